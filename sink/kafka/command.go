package kafka

import (
	"context"
	"fmt"
)

// What is asked of a running sink from outside. Run does it between two events, so that nothing is shared.

// do has Run call f and waits for its end. It may be called from any goroutine; ctx bounds the wait for a Run that has
// ended or has not begun.
func (s *Sink) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case s.commands <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LaneView is a lane as people see it.
type LaneView struct {
	ID        uint32
	Source    string // block
	Topic     string
	Slot      uint32
	Partition int32  // -1: not chosen yet
	Head      uint64 // first index without a durable ack
	Batches   int    // known and not acked
	Waits     Cause
}

// Lanes lists all lanes, in the order of their making.
func (s *Sink) Lanes(ctx context.Context) (views []LaneView, err error) {
	err = s.do(ctx, func() {
		for _, r := range s.order {
			views = append(views, LaneView{ID: r.info.ID, Source: r.info.Block, Topic: r.info.Topic, Slot: r.info.Slot, Partition: r.lane.Partition(),
				Head: r.lane.Head(), Batches: r.queue.len(), Waits: r.lane.Cause()})
		}
	})
	return views, err
}

// Adopt has a lane that is held since the cluster's id changed go on in the
// cluster that answers now: under a new producer id, in a partition chosen
// anew, from the first record without a durable ack on. It is durable with the
// new identity (ReasonOperator); a start before that finds the lane held. What
// was acked stays where it is. It may be called from any goroutine while Run
// runs; the error says why there is nothing to adopt.
func (s *Sink) Adopt(ctx context.Context, lane uint32) (err error) {
	if late := s.do(ctx, func() { err = s.adopt(lane) }); late != nil {
		return late
	}
	return err
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
