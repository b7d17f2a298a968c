package pipeline

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"shipper/pipeline/record"
	"shipper/sink/kafka"
)

// Generations that no look saw under their first name, under a pattern that finds the rotated ones: all go to one lane, one behind the
// other. Before an extension that are only those with dates, and beside their log.
func TestGenerationsShareALane(t *testing.T) {
	for name, c := range map[string]struct {
		files []string // in the order in which they were made
		lanes int
	}{
		"behind": {[]string{"app.log.2026-11-30_10-15-59", "app.log-20261130_101600", "app.log.2026-11-30T10-17", "app.log.12", "app.log.11", "app.log-20261130-1", "app.log"}, 1},
		"before": {[]string{"app-2026-11-29.log", "app.2026-11-30.1.log", "app-2026-11-30T10-15-59.000.log", "app-20261130.log", "app.log"}, 1},
		"no log": {[]string{"job-2026-11-30T10-15-59.log", "job-2026-11-30T10-16-00.log"}, 2},
		"number": {[]string{"app-1.log", "app.log"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			x := newShaped(t, record.Config{})
			x.source.Lanes = 64
			x.pattern = "*"
			want := []string{}
			for i, file := range c.files {
				value := "line " + strconv.Itoa(i)
				if err := os.WriteFile(filepath.Join(x.dir, file), []byte(value+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				want = append(want, value)
				time.Sleep(15 * time.Millisecond)
			}
			lanes, deadline := map[uint32]bool{}, time.Now().Add(10*time.Second)
			x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
				for _, of := range r.files {
					lanes[of.feed.home.id] = true
				}
				r.seal(r.open)
				return time.Now(), len(x.got()) < len(want) && time.Now().Before(deadline)
			})
			if got := x.got(); len(lanes) != c.lanes || c.lanes == 1 && !slices.Equal(got, want) || len(got) != len(want) {
				t.Errorf("%d lanes, got %q", len(lanes), got)
			}
		})
	}
}

func TestSlotsOfBlocksDiffer(t *testing.T) {
	got := slotsOf([]Source{{Topic: "a"}, {Topic: "b"}, {Topic: "a"}, {Topic: "a", Lanes: 7}})
	want := []slots{{0, 1}, {0, 4}, {1, 1}, {2, 7}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("block %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// Another number of slots moves only the paths that the new slot takes.
func TestSlotIsStable(t *testing.T) {
	moved, n := 0, 2000
	for i := range n {
		path := "/var/log/" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		before, after := slots{0, 4}.of(path), slots{0, 5}.of(path)
		if after != before {
			if after != 4 {
				t.Fatalf("%s moved from slot %d to old slot %d", path, before, after)
			}
			moved++
		}
	}
	if moved < n/10 || moved > n/3 {
		t.Fatalf("%d of %d paths moved to the fifth slot", moved, n)
	}
}

// A batch is full at what its topic takes of it compressed; never above what memory and spool have room for, and never
// below one record.
func TestFullBatch(t *testing.T) {
	x := roomFor(1000, 16<<20, 64<<20)
	for _, c := range []struct {
		topicMax, raw, compressed, record, want int
	}{
		{0, 0, 0, 0, batchBytesBase},                        // nothing is known
		{0, 1 << 20, 1 << 20, 0, batchBytesBase},            // it does not shrink
		{0, 1 << 20, 1 << 19, 0, 1_792_800},                 // by half
		{0, 1 << 20, 1 << 10, 0, batchBytesLimit},           // by much
		{0, 1 << 10, 1, 0, batchBytesBase},                  // a small batch tells nothing
		{100_000, 0, 0, 0, 99_488},                          // the topic takes less than others
		{100_000, 1 << 20, 1 << 18, 0, 349_200},             // of what is left of it
		{10 << 20, 0, 0, 0, batchBytesLimit},                // the topic takes more
		{1, 0, 0, 0, bufferBytesMin},                        // the topic takes next to nothing
		{0, 0, 0, 5 << 20, 5<<20 + kafka.RecordOverheadMax}, // a record is longer
	} {
		l := &lane{shared: new(kafka.Topic)}
		l.shared.BatchBytesMax.Store(int32(c.topicMax))
		if c.raw > 0 {
			l.shrank(c.raw, c.compressed)
		}
		if got := l.full(x, c.record); got != c.want {
			t.Errorf("topic %d, %d shrink to %d, record %d: full at %d, want %d", c.topicMax, c.raw, c.compressed, c.record, got, c.want)
		}
	}
	l := &lane{shared: new(kafka.Topic)}
	l.shrank(1<<20, 1<<18)
	l.shrank(1<<20, 1<<19)
	worse := l.full(x, 0)
	l.shrank(1<<20, 1<<18)
	if better := l.full(x, 0); worse != 1_792_800 || better <= worse {
		t.Errorf("full at %d after a batch that shrank less, then at %d", worse, better)
	}
	if small := roomFor(1000, 1<<20, 16<<20); small.batchMax != 1<<20*7/8 || small.entriesBytes() < filesBytesMin {
		t.Errorf("in a small spool %+v", small)
	}
}
