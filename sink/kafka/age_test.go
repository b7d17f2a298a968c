package kafka

import (
	"sync/atomic"
	"testing"
	"time"
)

const hourMs = 3_600_000

// ageAt is a sink whose clocks stand where the test puts them. Nothing that it is told of is sent.
type ageAt struct {
	*loop
	wallMs, lastedMs, nowMs int64
}

func newAgeAt(lanes int) *ageAt {
	a := &ageAt{loop: newLoop(lanes), wallMs: 1_800_000_000_000}
	a.sink.wall = func() int64 { return a.wallMs }
	a.sink.lasted = func() int64 { return a.lastedMs }
	a.sink.now = func() int64 { a.nowMs += 1001; return a.nowMs } // each look is due
	return a
}

func (a *ageAt) pass(ms int64) { a.wallMs, a.lastedMs = a.wallMs+ms, a.lastedMs+ms }

func (a *ageAt) come(lane uint32, first uint64) {
	a.sink.announce(a.sink.rows[lane], Ref{Batch: Batch{First: first, Count: 100, MaxTime: a.wallMs}})
}

func (a *ageAt) want(t *testing.T, what string, want time.Duration) {
	t.Helper()
	a.sink.age()
	if got := a.sink.Stats().OldestUnacked; got != want {
		t.Errorf("%s: the oldest has waited %v, want %v", what, got, want)
	}
}

// The clock of the host is set while lines wait: they have waited for as long as before.
func TestAgeOfASetClock(t *testing.T) {
	a := newAgeAt(2)
	a.want(t, "nothing waits", 0)
	a.come(0, 0)
	a.pass(2000)
	a.come(1, 0)
	a.want(t, "two lanes", 2*time.Second)
	for _, jump := range []int64{-25 * hourMs, 48 * hourMs, -23 * hourMs} {
		a.wallMs += jump
		a.come(0, a.sink.rows[0].end)
		a.want(t, "the clock was set", time.Duration(a.lastedMs)*time.Millisecond)
		a.pass(1000)
	}
	a.sink.rows[0].queue.pop()
	a.want(t, "the other lane's", 3*time.Second)
	a.sink.rows[1].queue.pop()
	a.want(t, "those that came later", 3*time.Second) // with the first jump
}

// What is cut anew or merged has waited for as long as what it was.
func TestAgeOfWhatIsReplaced(t *testing.T) {
	a := newAgeAt(1)
	q := &a.sink.rows[0].queue
	a.come(0, 0)
	a.pass(5000)
	a.come(0, 100)
	a.come(0, 200)
	q.replaceFirst([]Ref{{Batch: Batch{First: 0, Count: 50}}, {Batch: Batch{First: 50, Count: 50}}})
	q.pop()
	a.want(t, "half of the first", 5*time.Second)
	q.replaceRun(50, 2, Ref{Batch: Batch{First: 50, Count: 150}})
	a.want(t, "merged with a younger one", 5*time.Second)
	q.pop()
	a.pass(1000)
	a.want(t, "the younger one", time.Second)
}

// Of what only the spool knows there is nothing but the wall clock, which may have been set since.
func TestAgeOfWhatTheSpoolKnows(t *testing.T) {
	a := newAgeAt(1)
	start := func(id uint32, ages ...int64) {
		l := &LaneStart{LaneInfo: LaneInfo{ID: id, Topic: "t", Slot: id, SentNext: new(atomic.Uint64)}}
		for i, age := range ages {
			l.Batches = append(l.Batches, Ref{Batch: Batch{First: uint64(i) * 100, Count: 100, MaxTime: a.wallMs - age}})
		}
		a.sink.take(&Notice{Kind: NoticeLane, ID: id, Lane: l})
	}
	start(1, -2*hourMs)
	a.want(t, "written by a clock that was ahead", time.Millisecond)
	start(2, 3*hourMs, hourMs)
	a.pass(1000)
	a.want(t, "written before the start", 3*time.Hour+time.Second)
	a.wallMs += 48 * hourMs
	a.want(t, "the clock was set since the start", 3*time.Hour+time.Second)

	r := a.sink.rows[2]
	r.more = true
	a.sink.listed(r, &Notice{Refs: []Ref{{Batch: Batch{First: 200, Count: 100, MaxTime: a.wallMs - 47*hourMs}}}})
	r.queue.pop()
	r.queue.pop()
	a.want(t, "what is listed later has waited no longer than what was before it", time.Hour+time.Second)

	r.held = []HeldBatch{{Ref: Ref{Batch: Batch{First: 100, Count: 100, MaxTime: a.wallMs - 2*hourMs}}}}
	a.sink.rewind(r)
	a.want(t, "lost by the brokers", 2*time.Hour)
}
