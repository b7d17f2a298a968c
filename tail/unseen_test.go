package tail

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// gonePaths is a Handler that notes which files are told to be gone.
type gonePaths struct{ ids map[uint64]bool }

func (gonePaths) Began(context.Context, []*File) {}
func (gonePaths) Open(*File)                     {}
func (g gonePaths) Gone(id uint64)               { g.ids[id] = true }
func (gonePaths) Lost(uint64, int64, int64)      {}

// TestUnseenLimit has many more files vanish than are remembered: those unseen for longest are forgotten.
func TestUnseenLimit(t *testing.T) {
	const tooMany = unseenMax
	dir, gone := t.TempDir(), gonePaths{map[uint64]bool{}}
	w, err := NewWatcher(Options{Blocks: []Block{{Name: "b", Paths: []string{filepath.Join(dir, "*")}, LineBytesMax: 1000}}, NoInotify: true})
	must(t, err)
	w.handler = gone
	begun := time.Now()
	for i := range uint64(unseenMax + tooMany) {
		f := w.newFile(0, filepath.Join(dir, fmt.Sprint(i)))
		f.SetID(i + 1)
		f.src.key.ino, f.src.missing, f.src.lostSince = i, true, begun.Add(time.Duration(i)*time.Second)
		w.sources[f.src.key] = f
	}
	w.limitUnseen()
	if len(w.sources) != unseenMax || len(gone.ids) != tooMany || gone.ids[tooMany+1] || !gone.ids[tooMany] {
		t.Errorf("%d remembered, %d forgotten, the last of them that should be: %v", len(w.sources), len(gone.ids), gone.ids[tooMany])
	}
}

// TestEndBesideCopy stops while a reader holds a file of which nothing was read, and that was removed: where its compressed copy is there
// nothing is lost, and nothing is told.
func TestEndBesideCopy(t *testing.T) {
	for _, compressed := range []bool{true, false} {
		dir := t.TempDir()
		path := filepath.Join(dir, "app.log")
		must(t, os.WriteFile(path, []byte("0\n1\n"), 0o600))
		var out strings.Builder
		w, err := NewWatcher(Options{Blocks: []Block{{Name: "b", Paths: []string{path}, LineBytesMax: 1000}}, NoInotify: true, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		must(t, err)
		o := &onlyOpener{}
		w.handler = o
		w.scan()
		w.admit()
		must(t, os.Rename(path, path+".1"))
		if compressed {
			must(t, pack("gzip", path+".1"))
		} else {
			must(t, os.Remove(path+".1"))
		}
		w.end()
		o.files[0].Release()
		if lost := w.Stats().LostFiles; (lost == 0) != compressed || strings.Contains(out.String(), "could not be read") == compressed {
			t.Errorf("compressed: %v, %d files lost: %s", compressed, lost, out.String())
		}
	}
}

// TestOpenFollowsName rotates generations that wait, open: each is known by the name that it has.
func TestOpenFollowsName(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `block paths=app.log`, `lines app.log 1 3`, `poll`, `restart`, `tick`, `mv app.log app.log.2`, `lines app.log.1 4 6`, `lines app.log 7 9`, `tick`, `look`,
		`mv app.log.2 app.log.3`, `mv app.log.1 app.log.2`, `mv app.log app.log.1`, `lines app.log 10 12`, `look`)
	n := 0
	for _, f := range m.w.sources {
		if f.src.at == "" || f.fd < 0 {
			continue
		}
		n++
		if st, err := statPath(f.src.at); err != nil || !st.is(&f.src.st) {
			t.Errorf("%s of source %d is another file: %v", m.rel(f.src.at), f.ID(), err)
		}
	}
	if n == 0 {
		t.Error("none is open")
	}
}
