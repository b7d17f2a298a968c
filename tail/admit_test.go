package tail

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpacksAt is a machine whose reader is done with the file at before when the one at path is handed out.
type unpacksAt struct {
	*machine
	before, path string
}

func (u unpacksAt) Open(f *File) {
	if u.rel(f.Path()) == u.path {
		for _, g := range u.opened {
			for u.rel(g.Path()) == u.before && !g.unpacked.Load() {
				u.number(g)
				u.read(g)
			}
		}
	}
	u.machine.Open(f)
}

// TestOpenedCopyIsNotUnpacked: a copy that waits behind another, and is opened so that it may be deleted meanwhile, keeps nobody from being
// unpacked: the other may wait for that.
func TestOpenedCopyIsNotUnpacked(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=*.log", `write a.log "1\n"`, `write app.log "1\n"`, `write app-b.log "1\n"`, "poll")
	for _, f := range []string{"a", "app", "m", "app-b"} { // in this order they are queued
		stepAll(t, m, `append `+f+`.log "2\n"`, "tick")
		if f != "m" {
			stepAll(t, m, "mv "+f+".log "+f+".log.1", "gzip "+f+".log.1")
		}
	}
	stepAll(t, m, "restart paths=*.log")
	m.start()
	m.w.handler = unpacksAt{m, "a.log", "m.log"}
	m.look()
	if n := len(m.w.open); n != 3 {
		t.Fatalf("%d files are open", n)
	}
	out := stepAll(t, m, "poll")
	for _, want := range []string{"a.log", "app.log", "app-b.log", "m.log"} {
		if !strings.Contains(out, want+" 0002-0004 \"2\"") && !strings.Contains(out, want+" 0000-0002 \"2\"") {
			t.Errorf("%s was not read:\n%s", want, out)
		}
	}
}

// TestOpenIsHandedOutBehindThoseThatWait: while many wait for a descriptor, what has one is handed out, and the others keep their order.
func TestOpenIsHandedOutBehindThoseThatWait(t *testing.T) {
	dir := t.TempDir()
	const files = 30
	for i := range files {
		path := filepath.Join(dir, fmt.Sprintf("%02d.log", i))
		if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(int64(1_700_000_000+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := NewWatcher(Options{NoInotify: true, OpenFilesMax: openFilesMin, Blocks: []Block{{Name: "b", Paths: []string{dir + "/*.log"}, LineBytesMax: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	o := &onlyOpener{}
	w.handler = o
	buf := make([]byte, FillBytesMin)
	read := func(f *File) {
		if _, _, err := f.Fill(buf, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, ok := f.Next(); ok; _, ok = f.Next() {
		}
	}
	w.scan()
	w.admit()
	if n := len(o.files); n != openFilesMin {
		t.Fatalf("%d files were handed out", n)
	}
	first := o.files[0]
	read(first)
	if err := cmp.Or(appendTo(first.Path(), "y\n"), os.Remove(first.Path())); err != nil {
		t.Fatal(err)
	}
	w.scan() // its descriptor is all that leads to it now
	first.Release()
	w.takeBack()
	w.admit()
	if n := len(o.files); n != openFilesMin+1 || o.files[openFilesMin] != first {
		t.Fatalf("%d files were handed out, the last is %s", n, o.files[n-1].Path())
	}
	for next := 1; next < len(o.files); next++ {
		read(o.files[next])
		o.files[next].Release()
		w.takeBack()
		w.admit()
	}
	var order []string
	for _, f := range slices.Delete(o.files, openFilesMin, openFilesMin+1) {
		order = append(order, f.Path())
	}
	if len(order) != files || !slices.IsSorted(order) {
		t.Errorf("%d of %d files, in this order: %q", len(order), files, order)
	}
}

// TestNextOfARecordIsHandedOut: a copy that a receiver does not look at keeps the one from it in which the last record of another may
// end. Only one of them is unpacked at a time.
func TestNextOfARecordIsHandedOut(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=*.log", `write a.log "1\n"`, `write b.log "1\n"`, "poll", "restart paths=*.log")
	for _, f := range []string{"a.log a.log.20261130-1", "b.log b.log.20261130-1", "a.log a.log.20261130-2"} { // in this order they are queued
		path, rotated, _ := strings.Cut(f, " ")
		stepAll(t, m, "append "+path+` "2\n"`, "tick", "mv "+f, "gzip "+rotated, "write "+path+" \"\"", "tick")
	}
	m.opts.Blocks[0].Joins = true
	handedOut := func(name string) *File {
		m.look()
		m.take()
		i := slices.IndexFunc(m.held, func(f *File) bool { return m.rel(f.name()) == name })
		if i < 0 {
			t.Fatalf("%s was not handed out", name)
		}
		return m.held[i]
	}
	first := handedOut("a.log.20261130-1.gz")
	m.read(first)
	other, next := handedOut("b.log.20261130-1.gz"), handedOut("a.log.20261130-2.gz")
	if !next.Follows(first) {
		t.Fatal("it may be another file that is next")
	}
	waits := func(f *File) bool {
		_, st, err := f.Fill(m.buf, m.w.now())
		must(t, err)
		f.Unfill()
		return st.Waits
	}
	if waits(next) || !next.unpacked.Load() || waits(other) {
		t.Error("one that could be unpacked was not")
	}
	other.unpacked.Store(false) // there is more in it
	m.w.unpacks.Store(other)
	next.unpacked.Store(false)
	if !waits(next) {
		t.Error("two are unpacked at a time")
	}
	m.held = slices.DeleteFunc(m.held, func(f *File) bool { return f == other })
	other.Release()
	if waits(next) {
		t.Error("a file waits for one that was given back")
	}
}
