package spool

// Where the batches of a backlog are. Memory for that is bounded: a recovery
// hands out so many references in all, each lane its first ones, and a lane that
// has more asks for the next when it has used them up. The frames' headers say
// where they are.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shipper/internal/vfs"
)

// shareRefs cuts the lanes' lists to refsMax references in all. A batch that may be
// in doubt is the first of its lane, and stays.
func shareRefs(lanes []LaneState, refsMax int) {
	lengths := make([]int, len(lanes))
	for i := range lanes {
		lengths[i] = len(lanes[i].Batches)
	}
	for i, n := range shares(lengths, refsMax) {
		if l := &lanes[i]; n < len(l.Batches) {
			l.Batches, l.More = slices.Clone(l.Batches[:n]), true
		}
	}
}

// Refs lists the durable batches of a lane that will still be sent, ascending,
// from index from on, at most refsMax of them (more: there are others behind). It
// reads the headers of the segments that hold them. By the writer goroutine,
// right behind a Sync: what is appended later is not listed.
//
// Indexes that neither a batch nor a gap holds are listed as batches of segment 0,
// which a Reader answers with *CorruptionError: whoever wants to send them finds
// out that they are gone.
//
// Asking on from where the last answer ended costs no look at what lies before.
func (l *Log) Refs(id uint32, from uint64, refsMax int) (refs []Ref, more bool, err error) {
	lane := l.state.lanes[id]
	if lane == nil || refsMax <= 0 {
		return nil, false, nil
	}
	w := refsWalk{Log: l, lane: lane, from: max(from, lane.head), refsMax: refsMax, end: math.MaxUint64, behind: l.durable}
	start := position{}
	if at, ok := l.refsAt[id]; ok && at.index <= w.from {
		start = at.position
	}
	for _, s := range l.segments {
		if s.number < start.segment {
			continue
		}
		if err := w.segment(s, start); err != nil {
			return nil, false, err
		}
	}
	end, next := w.from, lane.next
	if len(w.live) > 0 {
		end = w.live[len(w.live)-1].Next()
	}
	if l.durable != (position{l.newest().number, l.newest().end}) {
		next = end // what is appended and not durable is not missing
	}
	if w.cut {
		w.more = w.more || end < next
	} else {
		end = max(end, next)
	}
	refs = withHoles(w.live, lane.holesIn(w.from, end, w.live))
	l.refsAt[id] = refsAt{end, w.behind}
	return refs, w.more, nil
}

// refsAt is where a lane's search for batches goes on: those from index on all
// lie at the position or behind it. What is appended later does too.
type refsAt struct {
	index uint64
	position
}

// refsWalk is one search for the batches of a lane.
type refsWalk struct {
	*Log
	lane    *lane
	from    uint64
	refsMax int

	found, live batchList
	cut         bool     // live is full: it ends at end
	more        bool     // there are others from end on
	end         uint64   // what begins there or behind is not wanted
	behind      position // nothing from end on lies before
}

// segment looks through one. A batch that is copied or cut again may stand behind
// later ones: a full list ends the search only for what begins behind its end.
func (w *refsWalk) segment(s *segment, start position) error {
	span, ok := s.lanes[w.lane.ID]
	if !ok || span.to <= w.from {
		return nil
	}
	if span.from >= w.end {
		w.beyond(position{segment: s.number})
		return nil
	}
	first := int64(0)
	if s.number == start.segment {
		first = start.byte
	}
	err := w.eachBatch(s, first, func(fr *frame) {
		switch at := (position{s.number, fr.at}); {
		case fr.lane != w.lane.ID || fr.next() <= w.from || !at.less(w.durable):
		case fr.first >= w.end:
			w.beyond(at)
		default:
			w.found.add(fr.ref(s.number))
			if len(w.found) >= 2*w.refsMax {
				w.trim() // no more in memory than that
			}
		}
	})
	w.trim()
	return err
}

func (w *refsWalk) beyond(at position) {
	w.more = true
	if at.less(w.behind) {
		w.behind = at
	}
}

// trim takes over what was found, as far as it is wanted.
func (w *refsWalk) trim() {
	w.live = slices.DeleteFunc(w.lane.live(w.found), func(r Ref) bool { return r.First < w.from })
	if len(w.live) < w.refsMax {
		return
	}
	rest := w.live[w.refsMax:]
	w.live, w.cut, w.end = w.live[:w.refsMax], true, w.live[w.refsMax-1].Next()
	for _, r := range rest {
		w.beyond(position{r.Segment, int64(r.Block) * blockBytes})
	}
	w.found = slices.DeleteFunc(w.found, func(r Ref) bool { return r.First >= w.end })
}

// withHoles puts a batch that cannot be read in the place of each hole.
func withHoles(live []Ref, holes []span) []Ref {
	for _, h := range holes {
		for h.from < h.to {
			n := min(h.to-h.from, math.MaxInt32)
			i, _ := slices.BinarySearchFunc(live, h.from, func(r Ref, first uint64) int { return cmp.Compare(r.First, first) })
			missing := Ref{First: h.from, Count: uint32(n)}
			if i < len(live) {
				missing.MaxTime = live[i].MaxTime
			}
			live = slices.Insert(live, i, missing)
			h.from += n
		}
	}
	return live
}

// AckedBatch is a batch that was acked and is still held. Ack.Count is 0 if no
// ack of its own is on record: one above it covered it.
type AckedBatch struct {
	Ref
	Ack Ack
	To  uint64 // up to here nothing else is to be sent: Next(), or the end of the gaps that begin there
}

// AckedFrom lists the acked batches of a lane that are still held, ascending,
// from index from on: what can be sent again to heal. It reads the headers and
// commits of every segment that may hold some, and the batches themselves, since
// parts of a segment may be punched out; so it is for rare use, by the writer
// goroutine. What is damaged, dropped by a gap, or older than the identities that
// are kept, is left out.
//
// What is listed stays until the lane's next head, ack or gap, or until new
// lines find no room: the head can be moved back to any of it.
func (l *Log) AckedFrom(id uint32, from uint64) ([]AckedBatch, error) {
	lane := l.state.lanes[id]
	if lane == nil {
		return nil, nil
	}
	var held batchList
	acks, unreadable := map[uint64]Ack{}, map[place]bool{}
	for _, s := range l.segments {
		if span, ok := s.lanes[id]; len(acks) == 0 && len(held) == 0 && (!ok || span.to <= from) {
			continue // acks of a batch are never before it
		}
		if err := l.collectAcked(s, id, from, &held, acks, unreadable); err != nil {
			return nil, err
		}
	}
	var acked []AckedBatch
	for _, ref := range held {
		_, covered := lane.covering(ref.First)
		if !covered || unreadable[ref.place()] || ref.First < from || ref.Next() > lane.head || lane.drops(span{ref.First, ref.Next()}) {
			continue
		}
		a := acks[ref.First]
		if a.Count != ref.Count {
			a = Ack{}
		}
		acked = append(acked, AckedBatch{ref, a, lane.behindGaps(ref.Next())})
	}
	if len(acked) > 0 {
		l.asked[id] = acked[0].First
	}
	return acked, nil
}

// Undropped cuts the indexes [from, to) of a lane into those that no gap holds,
// each as the gap that would drop it, without a reason. By the writer goroutine.
func (l *Log) Undropped(id uint32, from, to uint64) (rest []Gap) {
	lane := l.state.lanes[id]
	if lane == nil {
		return nil
	}
	for _, hole := range lane.undropped(nil, from, to) {
		rest = append(rest, Gap{Lane: id, From: hole.from, To: hole.to, Records: hole.to - hole.from})
	}
	return rest
}

// forgetAsked: the lane has decided.
func (l *Log) forgetAsked(c *Commit) {
	if len(l.asked) == 0 {
		return
	}
	for _, h := range c.Heads {
		delete(l.asked, h.Lane)
	}
	for _, a := range c.Acks {
		delete(l.asked, a.Lane)
	}
	for i := range c.Gaps {
		delete(l.asked, c.Gaps[i].Lane)
	}
}

func (l *Log) collectAcked(s *segment, id uint32, from uint64, held *batchList, acks map[uint64]Ack, unreadable map[place]bool) error {
	f, err := l.fs.OpenFile(l.path(s.name()), vfs.Read)
	if err != nil {
		return fmt.Errorf("spool: read segment %d: %w", s.number, err)
	}
	sc := scanner{file: f, seed: s.seed}
	kept := s.lanes[id] // what is left between two holes is not: nothing keeps it here
	for fr := range sc.frames(0, s.end) {
		switch {
		case fr.bad != nil:
		case fr.kind == kindBatch && (fr.lane != id || fr.next() <= from || fr.next() > l.state.lanes[id].head):
		case fr.kind == kindBatch:
			// Also one that cannot be read replaces an older cut, as in a recovery.
			ref := fr.ref(s.number)
			held.add(ref)
			if _, err := sc.payload(fr); err != nil || fr.first < kept.from || fr.next() > kept.to {
				unreadable[ref.place()] = true
			}
		default:
			payload, err := sc.payload(fr)
			if err != nil {
				continue
			}
			forEachAck(payload, fr.kind, func(a Ack) {
				if a.Lane == id && a.Count > 0 {
					acks[a.First] = a
				}
			})
		}
	}
	return f.Close()
}

// forEachAck finds the acks of a commit, and the last ones in a checkpoint.
func forEachAck(payload []byte, kind frameKind, fn func(Ack)) {
	_, _, d := openPayload(kind, payload)
	for len(d.b) > 0 {
		kind, entry := d.entry()
		if kind == entryLaneState {
			entry.u32()
			entry.uint()
			entry.uint()
		}
		if kind == entryAck || kind == entryLaneState {
			if a := entry.ack(); entry.err == nil {
				fn(a)
			}
		}
	}
}
