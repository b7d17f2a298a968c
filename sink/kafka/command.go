package kafka

import (
	"context"
	"fmt"
)

// command is what an operator decides for a lane.
type command struct {
	lane uint32
	done chan error
}

// Adopt has a lane that is held since the cluster's id changed go on in the
// cluster that answers now: under a new producer id, in a partition chosen
// anew, from the first record without a durable ack on. It is durable with the
// new identity (ReasonOperator); a start before that finds the lane held. What
// was acked stays where it is. It may be called from any goroutine while Run
// runs; the error says why there is nothing to adopt.
func (s *Sink) Adopt(ctx context.Context, lane uint32) error {
	c := command{lane: lane, done: make(chan error, 1)}
	select {
	case s.commands <- c:
		return <-c.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Sink) adopt(lane uint32) error {
	r := s.rows[lane]
	if r == nil {
		return fmt.Errorf("there is no lane %d", lane)
	}
	if r.lane.Cause() != CauseOtherCluster {
		waits := "waits for nothing"
		if c := r.lane.Cause(); c != CauseNone {
			waits = "waits for something else: " + c.String()
		}
		return fmt.Errorf("lane %d has no other cluster to adopt: it %s", lane, waits)
	}
	s.log.Warn("an operator has the lane adopt another cluster", "topic", r.info.Topic, "source", r.info.Block, "slot", r.info.Slot, "lane", lane,
		"from_index", r.lane.Head(), "cluster", s.routes.meta.ClusterID)
	s.step(r, Event{Kind: EvAdopt})
	return nil
}
