package kafka

import (
	"math"
	"time"
)

// How long the oldest lines have waited. A batch that becomes durable while the
// sink runs is given the time of a clock that nobody sets. One of which only the
// spool knows (a start, a backlog longer than the queue, a loss at the brokers)
// has nothing but the time of its newest record: it has waited for as long as
// the wall clock says, and if that lies ahead, from now on.

const (
	ageUnitMs  = 100 // of Ref.since, which begins at the sink's start and is negative before it: 6.8 years either way
	noneOldest = math.MaxInt64
)

func (s *Sink) sinceNow() int32 { return int32(min(s.lasted()/ageUnitMs, math.MaxInt32)) }

// sinceOf is since when a batch waits that only the spool knows. after is that of
// the one before it in its lane, which has waited for at least as long.
func (s *Sink) sinceOf(maxTime int64, after int32) int32 {
	waited := max(0, s.wall()-maxTime)
	return int32(max((s.lasted()-waited)/ageUnitMs, int64(after)))
}

// age notes since when the oldest batch waits that is spooled and not acked.
func (s *Sink) age() {
	now := s.now()
	if now < s.nextAge {
		return
	}
	s.nextAge = now + 1000
	s.awaitTopics()
	oldest := int64(noneOldest)
	for _, r := range s.order {
		first := 0
		if r.lane.Acked() {
			first = 1 // in Kafka; only our note of it is not on disk
		}
		if r.queue.len() > first {
			oldest = min(oldest, int64(r.queue.at(first).since))
		}
	}
	s.stats.oldest.Store(oldest)
}

func (s *Sink) oldestUnacked() time.Duration {
	oldest := s.stats.oldest.Load()
	if oldest == noneOldest {
		return 0
	}
	return max(1, time.Duration(s.lasted()-oldest*ageUnitMs)) * time.Millisecond
}
