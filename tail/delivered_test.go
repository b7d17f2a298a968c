package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSizeTold asks compressed files how much is in them.
func TestSizeTold(t *testing.T) {
	dir := t.TempDir()
	for _, with := range []string{"gzip", "zstd", "pipe"} {
		path := filepath.Join(dir, with)
		must(t, os.WriteFile(path, []byte(strings.Repeat("line\n", 1000)), 0o600))
		must(t, pack(with, path))
	}
	for name, want := range map[string]bool{"gzip.gz": true, "zstd.zst": true, "pipe.zst": false} {
		w := &Watcher{peeks: map[key]peeked{}}
		path := filepath.Join(dir, name)
		st, err := statPath(path)
		must(t, err)
		if head, _ := w.headOf(sibling{path, st}); !strings.HasPrefix(string(head), "line\n") {
			t.Errorf("%s begins with %q", name, head)
		}
		if size := w.sizeIn(sibling{path, st}); size.is(5000) != want || size.is(4999) {
			t.Errorf("%s: %+v", name, size)
		}
	}
	if s := (unpackedSize{7, 1<<32 - 1}); !s.is(7+1<<32) || s.is(8) {
		t.Error("gzip tells the lowest 32 bits")
	}
}

// TestDeliveredIsNotUnpacked starts with copies of what was read: they are found again without being read, and forgotten when they are
// deleted, in any order, without a word.
func TestDeliveredIsNotUnpacked(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=app.log", "lines app.log 0 1", "poll")
	const n = 3
	for i := range n {
		stepAll(t, m, "tick", fmt.Sprintf("mv app.log app.log-2026112%d", i), fmt.Sprintf("lines app.log %d1 %d2", i+1, i+1), "poll", fmt.Sprintf("gzip app.log-2026112%d", i), "poll", "sleep 10s", "poll")
	}
	m.out.Reset()
	stepAll(t, m, "restart paths=app.log", "poll")
	if s := m.w.Stats(); s.BytesRead > 0 || s.Files != 1 || s.Missing != 0 || m.w.delivered != n {
		t.Errorf("%d bytes read, %d files, %d missing, %d delivered", s.BytesRead, s.Files, s.Missing, m.w.delivered)
	}
	stepAll(t, m, "rm app.log-20261121.gz", "poll", "sleep 10s", "poll", "restart paths=app.log", "rm app.log-20261120.gz", "poll", "poll")
	if out := m.out.String(); strings.Trim(out, "-\n") != "" || m.w.Stats().VanishedFiles != 0 {
		t.Error(out)
	}
	if m.w.delivered != 1 {
		t.Errorf("%d of one copy known", m.w.delivered)
	}
}

// TestDeliveredLimit has more copies than are remembered: the oldest are forgotten first, and not read again.
func TestDeliveredLimit(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=app.log", "lines app.log 0 0", "poll")
	for i := range deliveredPathMax + 2 {
		stepAll(t, m, fmt.Sprintf("mv app.log app.log-2026%04d", 1000+i), fmt.Sprintf("lines app.log %d %d", i+1, i+1), "poll", fmt.Sprintf("gzip app.log-2026%04d", 1000+i), "poll", "sleep 10s", "poll")
	}
	m.out.Reset()
	stepAll(t, m, "gone", "restart paths=app.log", "mv app.log app.log-20269999", "lines app.log 1000 1000", "poll", "sleep 1m", "poll")
	if out := m.out.String(); strings.Count(out, "gone app.log") != 2 || strings.Count(out, "app.log 0") != 1 {
		t.Error(out)
	}
	if m.w.delivered != deliveredPathMax {
		t.Errorf("%d known", m.w.delivered)
	}
}

// TestDeliveredIsNeeded deletes the copy of all that was read of a log, or has its inode used again, while younger generations wait to be
// read: a start that knew nothing of the path would not look for them.
func TestDeliveredIsNeeded(t *testing.T) {
	for _, reused := range []bool{false, true} {
		m := newMachine(t, false)
		stepAll(t, m, "block paths=app.log", "lines app.log 0 1", "poll", "tick", "mv app.log app.log-20261121", "poll", "gzip app.log-20261121", "poll", "sleep 10s", "poll")
		if m.w.delivered != 1 {
			t.Fatalf("%d delivered", m.w.delivered)
		}
		var read *File
		for _, f := range m.w.sources {
			read = f
		}
		waits := m.w.newFile(0, read.Path())
		waits.src.kin, waits.src.waiting = read.src.kin, true
		m.w.kin.join(waits.src.kin, waits)
		isGone := func() bool {
			stepAll(t, m, "poll", "sleep 10s", "poll", "sleep 10s", "poll")
			return len(m.known) == 0
		}
		must(t, os.Remove(read.src.at))
		if reused {
			m.w.displace(read)
		}
		if isGone() {
			t.Errorf("reused: %v: forgotten while a younger one waits", reused)
		}
		m.w.kin.leave(waits.src.kin, waits)
		if m.w.rescan = true; !isGone() || m.w.delivered != 0 {
			t.Errorf("reused: %v: not forgotten after that, %d delivered", reused, m.w.delivered)
		}
	}
}
