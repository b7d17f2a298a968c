package tail

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestHeirOfMany renames a block of very many files: who takes each of them over is looked up, not searched for among all. One that the
// other block knows, by its path or as a file, is not taken over.
func TestHeirOfMany(t *testing.T) {
	const n = 30_000
	dir := t.TempDir()
	var known []Known
	for i := range uint64(n) {
		known = append(known, Known{ID: i + 1, Block: "was", Path: filepath.Join(dir, fmt.Sprint(i, ".log")), Fingerprint: Fingerprint{Ino: i + 1}})
	}
	known = append(known, Known{ID: n + 1, Block: "is", Path: known[0].Path, Fingerprint: Fingerprint{Ino: n + 1}},
		Known{ID: n + 2, Block: "is", Path: filepath.Join(dir, "new.log"), Fingerprint: Fingerprint{Ino: known[1].Fingerprint.Ino}})
	w, err := NewWatcher(Options{NoInotify: true, Known: known, Blocks: []Block{{Name: "is", Paths: []string{dir + "/*.log"}, LineBytesMax: 1 << 20}}})
	must(t, err)
	taken := 0
	for _, list := range w.strays {
		for _, f := range list {
			if f.src.wasBlock == "" {
				continue
			}
			if f.src.key.block == 0 {
				taken++
			} else if f.ID() > 2 {
				t.Errorf("%s is not taken over", f.Path())
			}
		}
	}
	if taken != n-2 {
		t.Errorf("%d of %d taken over", taken, n-2)
	}
}
