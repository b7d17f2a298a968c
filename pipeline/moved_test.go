package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shipper/pipeline/record"
)

// A directory is renamed. Generations are looked for beside the path that the spool knows, so it must be that of now, also if nothing
// is read of the file any more.
func TestMovedDirectory(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{}, "*/a.log")
	first := strings.Repeat("x", 1100) // from a kilobyte on the fingerprint stays what it is
	was, is := filepath.Join(l.dir, "was"), filepath.Join(l.dir, "is")
	if err := os.Mkdir(was, 0o700); err != nil {
		t.Fatal(err)
	}
	appendTo(t, filepath.Join(was, "a.log"), first+"\n")
	l.read(first)
	l.rename(was, is)
	path := filepath.Join(is, "a.log")
	known := func() (at string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.cursors {
			at = s.Source.Path
		}
		return at
	}
	l.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		r.seal(r.open)
		return time.Now(), known() != path && time.Now().Before(l.end)
	})
	if known() != path {
		t.Fatalf("the spool knows it as %s", known())
	}
	for i, text := range []string{"two", "three"} {
		appendTo(t, path, text+"\n")
		l.rename(path, fmt.Sprintf("%s.20260101-%d", path, i))
	}
	appendTo(t, path, "four\n")
	l.read(first, "two", "three", "four")
}
