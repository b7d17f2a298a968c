package tail

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

type nobody struct{}

func (nobody) Began(context.Context, []*File) {}
func (nobody) Open(f *File)                   { f.SetID(1); f.Release() }
func (nobody) Gone(uint64)                    {}
func (nobody) Lost(uint64, int64, int64)      {}

// Without inotify, by choice or for lack of it, the loop wakes for scans only.
func TestPollingDoesNotSpin(t *testing.T) {
	w, err := NewWatcher(Options{Blocks: []Block{{Name: "b", Paths: []string{filepath.Join(t.TempDir(), "*")}, LineBytesMax: 1000}},
		ScanInterval: 20 * time.Millisecond, NoInotify: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer stop()
	if err := w.Run(ctx, nobody{}); err != nil {
		t.Fatal(err)
	}
	if w.passes > 100 {
		t.Fatalf("%d passes of the loop in 400 ms with a scan every 20 ms", w.passes)
	}
}
