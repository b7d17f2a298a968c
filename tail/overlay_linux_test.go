package tail

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountOverlay mounts one over what is in the directory of m, and returns how to mount it anew.
func mountOverlay(t *testing.T, m *machine) (again func()) {
	under := t.TempDir()
	// What is below is older than the upper layer, as an image is older than its containers.
	if err := os.Rename(m.dir, filepath.Join(under, "lower")); err != nil {
		t.Fatal(err)
	}
	m.tick()
	for _, d := range []string{m.dir, filepath.Join(under, "upper"), filepath.Join(under, "work")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	layers := "lowerdir=" + under + "/lower,upperdir=" + under + "/upper,workdir=" + under + "/work"
	if err := unix.Mount("overlay", m.dir, "overlay", 0, layers); err != nil {
		t.Skip("no overlay can be mounted: ", err)
	}
	t.Cleanup(func() {
		m.stop()
		if err := unix.Unmount(m.dir, 0); err != nil {
			t.Error(err)
		}
	})
	return func() {
		m.stop()
		if err := unix.Unmount(m.dir, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("overlay", m.dir, "overlay", 0, layers); err != nil {
			t.Fatal(err)
		}
	}
}

// An overlay copies a file of its lower layer up when it is changed: one inode number, another time of creation. The file is read on,
// short as it is, whether it is open then (a), closed (b), or no agent runs (c is written to, d gets other permissions).
func TestOverlayCopiesUp(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `write a.log "a\n"`, `write b.log "b\n"`, `write c.log "c\n"`, `write d.log "d\n"`)
	remount := mountOverlay(t, m)
	stepAll(t, m, `poll`, `append a.log "a2\n"`, `poll`)
	m.w.keep.idle = 0
	stepAll(t, m, `poll`, `poll`)
	if n := m.w.Stats().Open; n != 0 {
		t.Fatal(n, "files are open")
	}
	stepAll(t, m, `append b.log "b2\n"`, `append a.log "a3\n"`, `write e.log "e\n"`, `poll`)
	remount()
	stepAll(t, m, `append c.log "c2\n"`, `chmod 600 d.log`, `poll`)
	// What is made in the upper layer with a number that was used there before is another file, however it begins.
	e, err := statPath(filepath.Join(m.dir, "e.log"))
	if err != nil {
		t.Fatal(err)
	}
	born := e.born
	if e.born += int64(time.Second); copiedUp(filepath.Join(m.dir, "e.log"), born, &e) {
		t.Error("a file of the upper layer was taken for one that was copied up")
	}
	want := `a.log 0000-0002 "a"
b.log 0000-0002 "b"
c.log 0000-0002 "c"
d.log 0000-0002 "d"
--
a.log 0002-0005 "a2"
--
--
--
a.log 0005-0008 "a3"
b.log 0002-0005 "b2"
e.log 0000-0002 "e"
--
c.log 0002-0005 "c2"
--
--
b.log 0005-0008 "b3"
d.log 0002-0005 "d2"
--
`
	if got := stepAll(t, m, `poll`, `restart`, `append d.log "d2\n"`, `append b.log "b3\n"`, `poll`); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
