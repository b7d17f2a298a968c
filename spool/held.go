package spool

// What a recovery remembers of the batches that it finds. A backlog may have
// millions; of each lane it needs the first, which it hands out, and of those behind
// them only which indexes there are, to see what is missing.

import (
	"maps"
	"slices"
)

// heldLane collects the frames of one lane.
type heldLane struct {
	batches batchList
	rest    spanList // indexes of batches from cut on that are not in the list
	cut     uint64   // 0: all are in the list
	next    uint64
}

// remember takes a batch, in the order of the log.
func (r *recovery) remember(h *heldLane, ref Ref) {
	if h.cut > 0 && ref.First >= h.cut {
		h.rest.add(span{ref.First, ref.Next()})
		return
	}
	before := len(h.batches)
	h.batches.add(ref)
	r.refs += len(h.batches) - before
	if most := r.options.RefsMax; most > 0 && !r.look && r.refs > 2*most+len(r.held) {
		r.forget(most)
	}
}

// forget keeps the first batches of each lane that will still be sent, most in all;
// so the one that may be in doubt stays. (All entries are known by now.) What is cut
// off is one batch for one index, but a later frame may still replace some: which
// of these is missing then shows when they are listed.
func (r *recovery) forget(most int) {
	ids := slices.Sorted(maps.Keys(r.held))
	lanes, lengths := make([]*heldLane, len(ids)), make([]int, len(ids))
	for i, id := range ids {
		h := r.held[id]
		if l := r.state.lanes[id]; l != nil {
			h.batches = slices.DeleteFunc(h.batches, func(b Ref) bool { return !l.wants(b) })
		}
		lanes[i], lengths[i] = h, len(h.batches)
	}
	r.refs = 0
	for i, n := range shares(lengths, most) {
		h := lanes[i]
		if n < len(h.batches) {
			h.cut = h.batches[n-1].Next()
			for _, ref := range h.batches[n:] {
				h.rest.add(span{ref.First, ref.Next()})
			}
			h.batches = h.batches[:n]
		}
		r.refs += n
	}
}

// shares cuts lists to most entries in all: those with few keep theirs, the others
// get equal parts, one at least.
func shares(lengths []int, most int) []int {
	byLength := make([]int, len(lengths))
	for i := range byLength {
		byLength[i] = i
	}
	slices.SortFunc(byLength, func(a, b int) int { return lengths[a] - lengths[b] })
	out, left := slices.Clone(lengths), most
	for i, at := range byLength {
		out[at] = min(lengths[at], max(1, left/(len(lengths)-i)))
		left -= out[at]
	}
	return out
}

// spanList is a set of indexes: ascending spans that do not touch.
type spanList []span

func (l *spanList) add(s span) {
	old := *l
	from, _ := slices.BinarySearchFunc(old, s.from, func(have span, from uint64) int {
		if have.to < from {
			return -1
		}
		return 1
	})
	to := from
	for to < len(old) && old[to].from <= s.to {
		s.from, s.to = min(s.from, old[to].from), max(s.to, old[to].to)
		to++
	}
	*l = slices.Replace(old, from, to, s)
}

// touches tells whether the list holds an index of s.
func (l spanList) touches(s span) bool {
	at, _ := slices.BinarySearchFunc(l, s.from, func(have span, from uint64) int {
		if have.to <= from {
			return -1
		}
		return 1
	})
	return at < len(l) && l[at].from < s.to
}

// missing are the indexes in [from, to) that neither live nor the rest holds.
func (h *heldLane) missing(l *lane, live []Ref) (holes []span) {
	at := l.head
	for _, b := range live {
		holes = l.undropped(holes, at, b.First)
		at = b.Next()
	}
	for _, s := range h.rest {
		if s.to > at {
			holes = l.undropped(holes, at, max(at, s.from))
			at = s.to
		}
	}
	return l.undropped(holes, at, l.next)
}
