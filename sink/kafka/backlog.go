package kafka

import "math"

// Where a long backlog is. Memory for that is bounded: a lane's queue holds the
// places of its first batches; of those behind them the sink knows only that they
// are in the spool, and asks the committer for the next when the queue runs low.
//
//	queue [head ........ end)   known here: a prefix of what the spool holds
//	more  [end ............     only in the spool; notices about them are dropped
//
// The answer lists all that is durable then, and comes between the notices of what
// was made durable before and those of what is later: so none is missing, and none
// comes twice.

const (
	RefsMax     = 64 << 10 // places of batches in memory, of all lanes: 40 bytes each
	refsLaneMin = 64       // a lane has so many, however many lanes there are
)

// refsShare is how many places one lane may have.
func (s *Sink) refsShare() int { return max(s.refsLane, s.refsMax/len(s.rows)) }

// announce takes a batch that has become durable.
func (s *Sink) announce(r *row, ref Ref) {
	n := r.queue.len()
	if r.more || n >= s.refsLane && (n >= s.refsShare() || s.refs >= s.refsMax) {
		r.more = true // from the queue's end on
		return
	}
	ref.since = s.sinceNow()
	r.queue.push(ref)
	r.end = ref.Next()
}

// refill asks for the places behind the queue when half of its share is used up.
func (s *Sink) refill(r *row) {
	if !r.more || r.listing > 0 {
		return
	}
	share, n := s.refsShare(), r.queue.len()
	want := max(s.refsLane-n, min(share-n, s.refsMax-s.refs))
	if n > share/2 || want < s.refsLane/2 {
		return
	}
	r.listing = want
	s.refs += r.listing
	s.cfg.Journal.Refs(r.info.ID, r.end, r.listing)
}

// listed takes the answer.
func (s *Sink) listed(r *row, n *Notice) {
	s.refs -= r.listing
	r.listing, r.more = 0, n.More
	for _, ref := range n.Refs {
		if ref.First < r.end {
			panic("BUG: a batch is listed that the sink has")
		}
		after := int32(math.MinInt32)
		if n := r.queue.len(); n > 0 {
			after = r.queue.at(n - 1).since
		}
		ref.since = s.sinceOf(ref.MaxTime, after)
		r.queue.push(ref)
		r.end = ref.Next()
	}
	s.feed(r)
}

// rewind puts the held batches from the lane's new head on back into the queue.
func (s *Sink) rewind(r *row) {
	var again []Ref
	for _, h := range r.held {
		if h.Ref.First >= r.lane.Head() && (r.queue.len() == 0 || h.Ref.First < r.queue.at(0).First) {
			h.Ref.since = s.sinceOf(h.Ref.MaxTime, math.MinInt32)
			again = append(again, h.Ref)
		}
	}
	r.queue.prepend(again)
	r.held = nil
}
