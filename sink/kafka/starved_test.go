package kafka

import (
	"log/slog"
	"sync/atomic"
	"testing"
)

// One lane finds out that its partition cannot commit: the other lane of that partition is not sent beside healthy ones any
// more, not even if it waits already, until somebody succeeds.
func TestStarvedPartitionTravelsApart(t *testing.T) {
	s := NewSink(SinkConfig{Logger: slog.New(slog.DiscardHandler)})
	lane := func(id uint32) *row {
		r := &row{info: LaneInfo{ID: id, Topic: "t", SentNext: new(atomic.Uint64)}, queue: refQueue{total: new(int)}}
		r.queue.push(Ref{Batch: Batch{Count: 1}})
		return r
	}
	send := func(r *row, partition int32) {
		s.enqueue(r, Action{Kind: ActSend, Batch: Batch{Count: 1}, Identity: Identity{PID: 1, Partition: partition}, Route: Route{State: RouteOK, Leader: 1}})
	}
	o := s.outlet(1)
	ids := func(list []*row) (lanes []uint32) {
		for _, r := range list {
			lanes = append(lanes, r.info.ID)
		}
		return lanes
	}
	first, second, healthy := lane(1), lane(2), lane(3)
	send(second, 7)
	send(healthy, 8)
	first.item = item{row: first, topic: "t", part: 7}
	s.noteStarved(&first.item, 7) // REQUEST_TIMED_OUT
	if fast, slow := ids(o.waiting), ids(o.apart); len(fast) != 1 || fast[0] != 3 || len(slow) != 1 || slow[0] != 2 {
		t.Errorf("lanes %v wait beside each other and %v apart, want [3] and [2]", fast, slow)
	}
	send(first, 7)
	s.noteStarved(&healthy.item, 0)
	if slow := ids(o.apart); len(slow) != 2 {
		t.Errorf("lanes %v wait apart, want [2 1]", slow)
	}
	s.noteStarved(&first.item, 0)
	o.apart = nil
	send(second, 7)
	if fast := ids(o.waiting); len(fast) != 2 {
		t.Errorf("lanes %v wait beside each other after a success, want [3 2]", fast)
	}
}
