package tail

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestBoundBelowWhatWaits lowers the bound of open files, as a lack of descriptors does, below the number of those that are open and wait
// for an older generation, which is not: it is opened all the same.
func TestBoundBelowWhatWaits(t *testing.T) {
	m := newMachine(t, false)
	m.opts.Blocks = []Block{{Name: "b", Paths: []string{m.dir + "/app.log"}, LineBytesMax: 100}}
	m.opts.OpenFilesMax = 20
	m.unsorted = true
	stepAll(t, m, `write app.log "1\n"`, "poll", "restart paths=app.log", `append app.log "2\n"`)
	for _, day := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		stepAll(t, m, "tick", "mv app.log app.log.2026010"+day, "tick", `write app.log "of day `+day+`\n"`)
	}
	m.out.Reset()
	stepAll(t, m, "gzip app.log.20260101", "gzip app.log.20260102", "look", "look")
	waiting := 0
	for f := range m.w.open {
		if f.src.waiting {
			waiting++
		}
	}
	if waiting < openFilesMin {
		t.Fatalf("only %d files are open and wait", waiting)
	}
	m.w.openMax = openFilesMin
	out := stepAll(t, m, "poll")
	for _, line := range []string{`"2"`, `"of day 1"`, `"of day 2"`, `"of day 7"`} {
		_, rest, ok := strings.Cut(out, line)
		if out = rest; !ok {
			t.Fatalf("%s is missing or out of order: %s", line, m.out.String())
		}
	}
}

// TestBoundIsRaisedAgain lets time pass after a lack of descriptors.
func TestBoundIsRaisedAgain(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `write a.log "1\n"`, "poll")
	top := m.w.openMax
	m.w.starvedAt, m.w.openMax = m.w.now(), openFilesMin
	stepAll(t, m, "poll")
	if m.w.openMax != openFilesMin {
		t.Errorf("raised to %d at once", m.w.openMax)
	}
	for range 100 {
		m.ahead += regainAfter + time.Second
		m.look()
	}
	if m.w.openMax != top {
		t.Errorf("the bound is %d, was %d", m.w.openMax, top)
	}
}

// TestCopyOfNameless asks whether a compressed file was made of one that was never read, and that no name leads to: what has its path now
// is not asked, or the question would be put again for ever.
func TestCopyOfNameless(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `write app.log ""`, "poll", "restart", "poll", `write copy "1\n"`, "gzip copy")
	var g *File
	for _, f := range m.w.sources {
		g = f
	}
	if g == nil || g.fd >= 0 {
		t.Fatalf("the empty file is not known and closed: %v", g)
	}
	must(t, os.Chtimes(m.dir+"/copy.gz", time.Unix(0, g.src.st.mtime), time.Unix(0, g.src.st.mtime)))
	st, err := statPath(m.dir + "/copy.gz")
	must(t, err)
	stepAll(t, m, "mv app.log elsewhere", `write app.log "other\n"`)
	g.src.missing = true
	clear(m.w.peeks)
	if moved := m.w.moved; m.w.isCopyOf(g, sibling{m.dir + "/copy.gz", st}, []byte("1\n")) || m.w.moved != moved {
		t.Errorf("an empty file has a copy, or is looked at again: %d, now %d", moved, m.w.moved)
	}
}

// hog takes descriptors as long as there are any.
type hog []int

func (h *hog) take(t *testing.T) {
	for {
		fd, err := openRead("/dev/null")
		if noDescriptors(err) {
			return
		}
		must(t, err)
		*h = append(*h, fd)
	}
}

func (h *hog) free() {
	for _, fd := range *h {
		closeFD(fd)
	}
	*h = nil
}

// TestOpenTop: where a process may open few files, most are for the spool and Kafka.
func TestOpenTop(t *testing.T) {
	for limit, want := range map[uint64]uint64{1 << 40: 1 << 39, 1024: 512, 128: 64, 100: 36, 64: 16, 40: 10, 0: openFilesMin} {
		if got := openTop(limit); got != want {
			t.Errorf("of %d descriptors %d are for log files, want %d", limit, got, want)
		}
	}
}
