package kafka

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The simulation: the real Sink with its real lanes on a virtual clock, a spool
// (sim_spool_test.go) and a cluster (sim_cluster_test.go, sim_broker_test.go)
// in memory, and misfortunes at random times (sim_trouble_test.go). What people
// were told and what the final logs hold is compared at the end
// (sim_oracle_test.go). One goroutine and one seed: one run.
//
//	sink --request--> net --> broker --> replicas --> answer --> sink
//	sink --entry----> spool --sync--> notice -----------------> sink
type simWorld struct {
	simRules
	rng   *rand.Rand
	now   int64 // ms
	queue simQueue
	steps int
	beats int

	spool   simSpool
	cluster simCluster
	agent   *simAgent // nil: down
	oracle  simOracle
	lossyTo int64 // ms; until then requests and answers get lost
	flights int   // requests that somebody may still execute

	failure string
	telling bool
	story   strings.Builder
}

const (
	simStart    = int64(1_700_000_000_000)
	simStepsMax = 60_000 // of one world: more is a world that never ends
	simHorizon  = 40_000 // ms in which misfortunes begin
	simPatience = 3 * 3_600_000
)

// simTask is something that happens at a time. Two at one time happen in the
// order in which they were made.
type simTask struct {
	at int64
	n  uint32
	do func()
}

type simQueue struct {
	heap []simTask
	made uint32
}

func (a *simTask) before(b *simTask) bool { return a.at < b.at || a.at == b.at && a.n < b.n }

func (q *simQueue) push(at int64, do func()) {
	q.made++
	q.heap = append(q.heap, simTask{at, q.made, do})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(&q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *simQueue) pop() simTask {
	top, last := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[last]
	q.heap[last] = simTask{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return top
		}
		if down+1 < last && q.heap[down+1].before(&q.heap[down]) {
			down++
		}
		if !q.heap[down].before(&q.heap[i]) {
			return top
		}
		q.heap[i], q.heap[down] = q.heap[down], q.heap[i]
		i = down
	}
}

func (w *simWorld) after(ms int64, do func()) { w.queue.push(w.now+ms, do) }

// between is a random number from a to b.
func (w *simWorld) between(a, b int64) int64 { return a + w.rng.Int64N(b-a+1) }

// chance is true with one chance in n.
func (w *simWorld) chance(n int) bool { return w.rng.IntN(n) == 0 }

func (w *simWorld) tell(format string, args ...any) {
	if w.telling {
		fmt.Fprintf(&w.story, "%9d  %s\n", w.now-simStart, fmt.Sprintf(format, args...))
	}
}

// simFailure is what a world did that it must not.
type simFailure struct{ what string }

func (w *simWorld) fail(format string, args ...any) {
	panic(simFailure{fmt.Sprintf(format, args...)})
}

// run lives the world to its end: all lines are acked, no request is on its
// way, and every lane has asked the last leader what it has.
func (w *simWorld) run() (err string) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case simFailure:
			err = x.what
		case string: // BUG: ...
			err = x
		default:
			panic(x)
		}
	}()
	w.now = simStart
	w.build()
	w.startAgent()
	w.plan()
	for !w.quiet() {
		if len(w.queue.heap) == 0 {
			w.fail("stuck: nothing will ever happen")
		}
		t := w.queue.pop()
		w.now = t.at
		if w.steps++; w.steps > simStepsMax || w.now > simStart+simPatience {
			w.fail("stuck: not done after %d steps and %d s", w.steps, (w.now-simStart)/1000)
		}
		t.do()
	}
	w.judge()
	return ""
}

// quiet says that nothing is left to happen that matters.
func (w *simWorld) quiet() bool {
	if w.now < simStart+simHorizon || w.agent == nil || w.flights > 0 || !w.cluster.settled() {
		return false
	}
	for i := range w.spool.lanes {
		l := &w.spool.lanes[i]
		if l.next < w.lines || l.head < l.next {
			return false
		}
	}
	for _, r := range w.agent.sink.order {
		p := w.cluster.partition(r.lane.Partition())
		if r.lane.Idle() && r.lane.Partition() < 0 {
			continue // its topic is gone, and with it what was acked; the next batch chooses a partition
		}
		if p == nil || !r.lane.Idle() || !r.lane.checked || r.lane.route.Epoch != p.epoch {
			return w.agent.nudge()
		}
	}
	return true
}
