package tail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An overlay copies a file of its lower layer up when it is written to: one inode number, another time of creation.
func TestOverlayCopiesUp(t *testing.T) {
	m := newMachine(t, false)
	under := t.TempDir()
	for _, d := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(under, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := appendTo(filepath.Join(under, "lower", "a.log"), "below\n"); err != nil {
		t.Fatal(err)
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
	want := "a.log 0000-0006 \"below\"\n--\na.log 0006-0012 \"above\"\n--\na.log 0012-0018 \"later\"\n--\n"
	if got := stepAll(t, m, `poll`, `append a.log "above\n"`, `poll`, `restart`, `append a.log "later\n"`, `poll`); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// stepAll takes the steps and returns what came out up to now.
func stepAll(t *testing.T, m *machine, lines ...string) string {
	t.Helper()
	for _, line := range lines {
		if err := m.step(splitWords(t, line)); err != nil {
			t.Fatal(err)
		}
	}
	return strings.TrimPrefix(m.out.String(), "\n")
}
