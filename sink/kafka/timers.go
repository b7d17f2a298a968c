package kafka

import (
	"container/heap"
	"time"
)

func (s *Sink) untilWake() time.Duration {
	return time.Duration(max(0, min(s.dueAt()-s.now(), 1_000))) * time.Millisecond
}

// dueAt is when something is to be done next that nobody tells the sink, ms.
func (s *Sink) dueAt() int64 {
	next := never
	if len(s.timers) > 0 {
		next = s.timers[0].at
	}
	if s.wanted && !s.asking && !s.stopping {
		next = min(next, s.nextAsk)
	}
	for _, o := range s.outlets {
		if !s.stopping {
			next = min(next, o.dueAt)
		}
	}
	return next
}

func (s *Sink) wake() {
	for len(s.timers) > 0 && s.timers[0].at <= s.now() {
		e := heap.Pop(&s.timers).(timerEntry)
		if e.at == e.row.wakeAt { // else: the lane asked for another time since
			e.row.wakeAt = 0
			s.step(e.row, Event{Kind: EvTick})
		}
	}
}

type timerEntry struct {
	at  int64
	row *row
}

type timers []timerEntry

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timerEntry)) }
func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	old[len(old)-1] = timerEntry{}
	*t = old[:len(old)-1]
	return x
}
