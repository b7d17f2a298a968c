package tail

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// heldReader holds what it is handed, and gives back what it should.
type heldReader struct {
	held  []*File
	opens int
	told  []string
}

func (r *heldReader) Began(context.Context, []*File) {}

func (r *heldReader) Open(f *File) {
	if r.opens++; f.ID() == 0 {
		f.SetID(uint64(r.opens))
	}
	r.held = append(r.held, f)
}

func (r *heldReader) Gone(id uint64) { r.told = append(r.told, fmt.Sprintf("gone %d", id)) }

func (r *heldReader) Lost(id uint64, from, to int64) {
	r.told = append(r.told, fmt.Sprintf("lost %d %d-%d", id, from, to))
}

// release gives back what fn says.
func (r *heldReader) release(fn func(f *File) bool) {
	r.held = slices.DeleteFunc(r.held, func(f *File) bool {
		if fn(f) {
			f.Release()
			return true
		}
		return false
	})
}

func heldWatcher(t *testing.T, o Options) (*Watcher, *heldReader) {
	t.Helper()
	o.NoInotify, o.ScanInterval = true, time.Millisecond
	w, err := NewWatcher(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &heldReader{}
	w.handler = r
	t.Cleanup(func() {
		r.release(func(*File) bool { return true })
		w.takeBack()
		w.end()
	})
	return w, r
}

// Files of a block that may not be read are deleted: they are held up to the
// limits, the oldest are given up and told, but for one that was read to its end, the
// others are read all the same.
func TestHeldFilesAreBounded(t *testing.T) {
	for name, o := range map[string]Options{
		"files": {HeldFilesMax: 3},
		"bytes": {HeldBytesMax: 35},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			paused := true
			o.Blocks = []Block{{Name: "b", Paths: []string{dir + "/*.log"}, LineBytesMax: 100}}
			o.Paused = func(string) bool { return paused }
			o.OpenFilesMax = 20
			w, r := heldWatcher(t, o)
			for i := range 5 {
				path := filepath.Join(dir, fmt.Sprintf("%d.log", i))
				must(t, os.WriteFile(path, []byte("ten bytes\n"), 0o600))
				must(t, os.Chtimes(path, time.Time{}, time.Unix(1_700_000_000+int64(i), 0)))
			}
			w.scan()
			w.admit()
			if len(r.held) != 5 {
				t.Fatalf("%d files are open", len(r.held))
			}
			readTenBytes(t, r.held[slices.IndexFunc(r.held, func(f *File) bool { return f.ID() == 2 })])
			for i := range 5 {
				must(t, os.Remove(filepath.Join(dir, fmt.Sprintf("%d.log", i))))
			}
			w.rescan = true
			w.scan()
			if s := w.Stats(); s.HeldFiles != 5 || s.HeldBytes != 50 || s.GivenUp != 0 { // their readers know how far they are
				t.Fatalf("%+v", s)
			}
			r.release((*File).GivenUp)
			w.takeBack()
			if len(r.held) != 3 || strings.Join(r.told, ", ") != "lost 1 0-10, gone 1, gone 2" {
				t.Fatalf("%d files are held; %s", len(r.held), r.told)
			}
			w.rescan = true
			w.scan()
			if s := w.Stats(); s.HeldFiles != 3 || s.HeldBytes != 30 || s.GivenUp != 1 || s.LostBytes != 10 {
				t.Fatalf("%+v", s)
			}
			for _, f := range r.held {
				readTenBytes(t, f)
			}
		})
	}
}

func readTenBytes(t *testing.T, f *File) {
	t.Helper()
	n, _, err := f.Fill(make([]byte, FillBytesMin), time.Now())
	if line, ok := f.Next(); err != nil || n != 10 || !ok || string(line.Bytes) != "ten bytes" {
		t.Errorf("%d bytes of %s, %v", n, f.Path(), err)
	}
	for _, ok := f.Next(); ok; _, ok = f.Next() {
	}
}

// More files than descriptors wait to be read: those of another block get some,
// and nothing goes in circles.
func TestPausedFilesLeaveDescriptors(t *testing.T) {
	dir := t.TempDir()
	w, r := heldWatcher(t, Options{OpenFilesMax: 8, Paused: func(block string) bool { return block == "waits" },
		Blocks: []Block{{Name: "waits", Paths: []string{dir + "/waits-*"}, LineBytesMax: 100}, {Name: "goes", Paths: []string{dir + "/goes-*"}, LineBytesMax: 100}}})
	for i := range 20 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("waits-%02d", i)), []byte("x\n"), 0o600))
	}
	w.scan()
	w.admit()
	if len(r.held) != 7 {
		t.Fatalf("%d files that may not be read are open", len(r.held))
	}
	for i := range 5 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("goes-%02d", i)), []byte("x\n"), 0o600))
	}
	for range 20 {
		w.rescan = true
		w.scan()
		w.admit()
		// As the pipeline's reader: it gives one back when others want it.
		given := false
		r.release(func(f *File) bool {
			if given || f.Block() != "waits" || !f.Wanted() || f.Missing() {
				return false
			}
			given = true
			return true
		})
		w.takeBack()
		w.admit()
	}
	goes := 0
	for _, f := range r.held {
		if f.Block() == "goes" {
			goes++
		}
	}
	if goes != 5 || len(r.held) > 8 || r.opens > 7+5+2 {
		t.Fatalf("%d of 5 files are open beside %d that wait; %d were opened", goes, len(r.held)-goes, r.opens)
	}
}

// Files that vanish while they wait for a descriptor are told and forgotten, however many come and go.
func TestWaitingGoneAreForgotten(t *testing.T) {
	m := newMachine(t, false)
	m.opts.OpenFilesMax, m.hold = 4, true
	step := func(words ...string) {
		t.Helper()
		if err := m.step(words); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.log", "b.log", "c.log", "d.log"} {
		step("write", name, "1\n")
	}
	step("poll")
	const rounds = 20
	for range rounds {
		step("write", "x.log", "x\n")
		step("poll")
		step("rm", "x.log")
		step("poll")
	}
	if lost := m.w.Stats().LostFiles; lost != rounds || len(m.w.strays) > 0 || len(m.w.strayKin) > 0 {
		t.Errorf("%d files told lost, want %d; %d and %d remembered", lost, rounds, len(m.w.strays), len(m.w.strayKin))
	}
}
