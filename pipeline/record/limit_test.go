package record

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRateLimit(t *testing.T) {
	lines := strings.Repeat("0123456789\n", 100)
	w := newWorld(t, Config{Filter: Filter{LinesPerSecond: 10}}, lines)
	w.turn()
	if len(w.out) != 10 || w.s.Paused().Sub(w.now) != 100*time.Millisecond {
		t.Fatalf("%d records, paused for %v", len(w.out), w.s.Paused().Sub(w.now))
	}
	w.now = w.now.Add(500 * time.Millisecond)
	w.turn()
	if len(w.out) != 15 {
		t.Fatalf("%d records after half a second more", len(w.out))
	}
	if len(w.all()) != 100 {
		t.Fatalf("%d records", len(w.out))
	}

	w = newWorld(t, Config{Filter: Filter{BytesPerSecond: 100, LimitDrops: true}}, lines)
	if out := w.all(); len(out) != 10 {
		t.Fatalf("%d records", len(out))
	}
	w.count(Limited, 90)
}

// limitedFile is one of several files of a source, and is written at a steady rate.
type limitedFile struct {
	s       *Stream
	every   time.Duration // between two lines
	written int           // lines that it has
	passed  int
	dropped int
}

// limited runs files of one source for a while, in steps of a millisecond, and returns their lines that passed.
func limited(tb testing.TB, c Filter, seconds int, every ...time.Duration) (passed []int) {
	f := compile(tb, Config{Filter: c})
	files := make([]limitedFile, len(every))
	for i := range files {
		files[i] = limitedFile{s: f.NewStream(fmt.Sprintf("/%d", i)), every: every[i]}
	}
	var sc Scratch
	line := []byte("0123456789")
	start := testStart
	for ms := range seconds * 1000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		for i := range files {
			x := &files[i]
			// A writer that is ahead by a second waits.
			x.written = min(int(now.Sub(start)/x.every), x.passed+x.dropped+int(time.Second/x.every))
			if now.Before(x.s.Paused()) || x.passed+x.dropped == x.written {
				continue
			}
			// The reader gives a file a look of some lines, and then the next file.
			x.s.Begin(&sc, line, 0, Place{})
			n := min(20, x.written-x.passed-x.dropped)
			at := int64(0)
			for range n {
				x.s.Line(Line{Bytes: line, Offset: at, End: at + 11})
				at += 11
			}
			dropped := sc.Counts[Limited]
			for _, ok := x.s.Peek(now); ok; _, ok = x.s.Peek(now) {
				x.s.Take()
				x.passed++
			}
			x.dropped += int(sc.Counts[Limited] - dropped)
			if x.s.Paused().IsZero() && x.passed+x.dropped == x.written {
				x.s.Rest()
			}
		}
	}
	for i := range files {
		passed = append(passed, files[i].passed)
	}
	return passed
}

func sum(n []int) (total int) {
	for _, x := range n {
		total += x
	}
	return total
}

// The limit is of the source, and each of its files has its part: one that writes less than that loses and waits for nothing,
// whatever the others write.
func TestRateLimitIsShared(t *testing.T) {
	const seconds = 8
	const perSecond = 100
	flood, calm, slow := 2*time.Millisecond, 80*time.Millisecond, time.Second
	for _, x := range []struct {
		name string
		c    Filter
	}{
		{"lines", Filter{LinesPerSecond: perSecond}},
		{"bytes", Filter{BytesPerSecond: 10 * perSecond}},
		{"both", Filter{LinesPerSecond: perSecond, BytesPerSecond: 100 * perSecond}},
	} {
		for _, drops := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/drop=%v", x.name, drops), func(t *testing.T) {
				x.c.LimitDrops = drops
				got := limited(t, x.c, seconds, flood, flood, flood, calm, slow)
				if n := sum(got); n < perSecond*seconds || n > perSecond*(seconds+1)+20 {
					t.Errorf("%d records in %d s, want %d a second: %v", n, seconds, perSecond, got)
				}
				if got[3] < 12*seconds-10 || got[4] < seconds-2 {
					t.Errorf("the files that write little have %d and %d records, of %d and %d", got[3], got[4], 12*seconds, seconds)
				}
				least, most := slices.Min(got[:3]), slices.Max(got[:3])
				if pausesEvenly := !drops && float64(most) > 1.2*float64(least); pausesEvenly || least < perSecond/5*seconds/2 {
					t.Errorf("those that write much have %v", got[:3])
				}
			})
		}
	}
	// What one does not need the other has, also behind a time in which nobody wrote.
	if got := limited(t, Filter{LinesPerSecond: 100, LimitDrops: true}, 5, 2*time.Millisecond, 100*time.Millisecond); got[0] < 430 || got[1] < 47 {
		t.Errorf("%v", got)
	}
	if got := limited(t, Filter{LinesPerSecond: 10, BytesPerSecond: 1e9}, 10, 90*time.Millisecond); got[0] != 109 && got[0] != 110 {
		t.Errorf("%v", got)
	}
}

// Readers take from the limit at once.
func TestRateLimitOfManyReaders(t *testing.T) {
	for _, drops := range []bool{false, true} {
		f := compile(t, Config{Filter: Filter{LinesPerSecond: 1000, LimitDrops: drops}})
		const readers, seconds = 4, 3
		var wg sync.WaitGroup
		passed := make([]int, readers)
		for k := range readers {
			wg.Go(func() {
				s := f.NewStream(fmt.Sprintf("/%d", k))
				for ms := range seconds * 1000 {
					now := testStart.Add(time.Duration(ms) * time.Millisecond)
					for range 3 {
						if _, drop := s.judge(nil, now); !drop && !now.Before(s.paused) {
							s.grant.spend(f.filter.limit, 0)
							passed[k]++
						}
					}
				}
				s.Rest()
			})
		}
		wg.Wait()
		// Their clocks are apart, so some find the limit used up by those ahead of them.
		if n := sum(passed); n > 1000*(seconds+1)+readers*20 || n < 1000 {
			t.Errorf("drop=%v: %d records", drops, n)
		}
	}
}
