package tail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What was read is changed where it stands: a hole is punched into it, or its front is taken out. Where neither the head nor the bytes
// before the place in the file are others, nobody sees it; else the file looks truncated and written anew, and what is left of it comes
// once more.
func TestFallocate(t *testing.T) {
	const lineBytes, lines = 64, 256 // 16 KiB
	for _, c := range []struct {
		name     string
		mode     uint32
		from, to int64
		again    string // first line that is read again; "": none
		count    int
	}{
		{"hole in the middle", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 4096, 8192, "", 0},
		{"hole at the head", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 0, 4096, "00000064", lines - 64},
		{"front taken out", unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096, "00000064", lines - 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, false)
			path := filepath.Join(m.dir, "a.log")
			var text bytes.Buffer
			for i := range lines {
				fmt.Fprintf(&text, "%08d %0*d\n", i, lineBytes-10, 0)
			}
			if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(stepAll(t, m, "poll"), "a.log"); got != lines {
				t.Fatalf("%d lines", got)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := unix.Fallocate(int(f.Fd()), c.mode, c.from, c.to-c.from); err != nil {
				t.Skip("the file system cannot do that: ", err)
			}
			m.out.Reset()
			got := stepAll(t, m, "unsorted", "tick", `append a.log "new\n"`, "poll", "poll")
			var read []string
			for line := range strings.Lines(got) {
				if _, text, ok := strings.Cut(line, `"`); ok && strings.HasPrefix(line, "a.log") {
					read = append(read, text[:min(8, len(text))])
				}
			}
			want := append(strings.Fields(c.again), "new\"\n")
			if len(read) != c.count+1 || read[0] != want[0] || read[c.count] != "new\"\n" {
				t.Errorf("%d lines were read, %q to %q; want %d, %q to new", len(read), read[0], read[len(read)-1], c.count+1, want[0])
			}
		})
	}
}
