package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"shipper/pipeline/record"
)

// An outage at ten lines a second, on a clock that runs ahead: while batches of the lane wait to be sent, its lines are handed over
// every ten seconds and not every second. So three days are 25,920 batches of a lane; what these take to drain is measured by
// go run ./benchmarks/backlog -batches 103680 -lines 25 -lanes 4 -rtt 1ms. With a broker that takes what comes it is one a second.
func TestLingerInAnOutage(t *testing.T) {
	for _, x := range []struct {
		outage      bool
		least, most int
	}{{true, 60, 62}, {false, 590, 602}} {
		t.Run(fmt.Sprintf("outage=%v", x.outage), func(t *testing.T) {
			const seconds, perSecond = 600, 10
			s := newShaped(t, record.Config{})
			f, err := os.Create(filepath.Join(s.dir, "a.log"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			now, steps, deadline := time.Now(), 0, time.Now().Add(time.Minute)
			s.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
				if len(r.files) == 0 && steps == 0 {
					return now, time.Now().Before(deadline)
				}
				r.sealDue(now)
				for _, feed := range r.feeds {
					for s.lines() < feed.home.sealed && time.Now().Before(deadline) {
						runtime.Gosched() // the reader's clock must not run ahead of the compressors: without buffers it would wait
					}
					if !x.outage {
						feed.home.sentNext.Store(feed.home.sealed)
					}
				}
				if steps++; steps > seconds*perSecond {
					now = now.Add(pollInterval)
					return now, s.lines() < seconds*perSecond && time.Now().Before(deadline)
				}
				fmt.Fprintf(f, "line %d\n", steps)
				for _, of := range r.files {
					of.more = true // the watcher would say so, by another clock
				}
				now = now.Add(time.Second / perSecond)
				return now, true
			})
			if n := len(s.got()); n != seconds*perSecond {
				t.Fatalf("%d lines, want %d", n, seconds*perSecond)
			}
			if s.batches < x.least || s.batches > x.most {
				t.Errorf("%d batches in %d s, want %d to %d", s.batches, seconds, x.least, x.most)
			}
		})
	}
}
