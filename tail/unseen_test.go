package tail

import (
	"context"
	"fmt"
	"path/filepath"
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
