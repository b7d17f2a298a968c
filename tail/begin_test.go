package tail

import (
	"os"
	"path/filepath"
	"testing"
)

// Where text ends and reserved room begins, whether that is a hole or written NULs.
func TestTextEnd(t *testing.T) {
	text := []byte("text\n")
	for name, c := range map[string]struct {
		written, hole int64
		size, want    int64
	}{
		"no room":           {size: 5, want: 5},
		"a hole":            {hole: 3 * lineBackBytes, size: 5 + 3*lineBackBytes, want: 5},
		"written":           {written: 3 * lineBackBytes, size: 5 + 3*lineBackBytes, want: 5},
		"written, a hole":   {written: 2*lineBackBytes + 1, hole: 1 << 20, size: 6 + 2*lineBackBytes + 1<<20, want: 5},
		"a part is asked":   {written: 100, hole: 1 << 20, size: 3, want: 3},
		"to amid a hole":    {hole: 1 << 20, size: 1 << 19, want: 5},
		"shorter than told": {written: 100, size: 1 << 20, want: 5},
	} {
		path := filepath.Join(t.TempDir(), "a.log")
		if err := os.WriteFile(path, append(text, make([]byte, c.written)...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(len(text))+c.written+c.hole); err != nil {
			t.Fatal(err)
		}
		fd, err := openRead(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := textEnd(fd, c.size); err != nil || got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
		closeFD(fd)
	}
}
