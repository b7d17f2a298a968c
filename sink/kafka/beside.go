package kafka

import (
	"context"
	"math/rand/v2"
	"time"

	"shipper/internal/steady"
)

// beside is what a sink reads of the world and starts in it. A simulation puts
// its own in place: then nothing runs beside the sink, and one seed makes one
// run.
type beside struct {
	now      func() int64                            // ms; wall time at the start plus what has passed since: a clock that is set back stops no timer
	wall     func() int64                            // ms since 1970, as the host has it now
	lasted   func() int64                            // ms since the start, time asleep too, whatever the wall clock is set to
	random   func() uint32                           // spreads retries
	question func(f func(ctx context.Context) reply) // runs f; takeReply gets what it returns
	open     func(x *sender)                         // makes x ready for jobs
	hand     func(x *sender, j *job)                 // has x run j; settle gets it back
	around   func(r *row, ev *Event, a *Actions)     // takes the step of r's lane; nil: nobody looks on
}

func (s *Sink) real() beside {
	start, from := time.Now(), steady.Now()
	startMs := start.UnixMilli()
	return beside{
		now:      func() int64 { return startMs + time.Since(start).Milliseconds() },
		wall:     func() int64 { return time.Now().UnixMilli() },
		lasted:   func() int64 { return steady.Since(from).Milliseconds() },
		random:   rand.Uint32,
		question: s.ask,
		open:     func(x *sender) { go x.run(s.cfg.NewReader(), &s.cfg.Transport, s.done) },
		hand:     func(x *sender, j *job) { x.in <- j },
	}
}

// turn takes a step of a lane.
func (s *Sink) turn(r *row, ev *Event) {
	if s.around == nil {
		r.lane.Step(ev, &s.actions)
		return
	}
	seen := *ev // the event itself stays on the stack
	s.around(r, &seen, &s.actions)
}
