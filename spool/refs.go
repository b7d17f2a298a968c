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

// shareRefs cuts the lanes' lists to refsMax references in all: lanes with few
// keep theirs, the others get equal parts.
func shareRefs(lanes []LaneState, refsMax int) {
	byLength := make([]*LaneState, len(lanes))
	for i := range lanes {
		byLength[i] = &lanes[i]
	}
	slices.SortFunc(byLength, func(a, b *LaneState) int { return cmp.Compare(len(a.Batches), len(b.Batches)) })
	left := refsMax
	for i, l := range byLength {
		part := max(1, left/(len(byLength)-i)) // one at least: it may be in doubt
		if len(l.Batches) > part {
			l.Batches, l.More = slices.Clone(l.Batches[:part]), true
		}
		left -= len(l.Batches)
	}
}

// Refs lists the durable batches of a lane that will still be sent, ascending,
// from index from on, at most refsMax of them (more: there are others behind). It
// reads the headers of the segments that hold them. By the writer goroutine,
// right behind a Sync: what is appended later is not listed.
func (l *Log) Refs(id uint32, from uint64, refsMax int) (refs []Ref, more bool, err error) {
	lane := l.state.lanes[id]
	if lane == nil || refsMax <= 0 {
		return nil, false, nil
	}
	var found, live batchList
	// A batch that is copied or cut again may stand behind later ones: a full list
	// ends the search only for what begins behind its end.
	end := uint64(math.MaxUint64)
	for _, s := range l.segments {
		span, ok := s.lanes[id]
		if !ok || span.to <= from || span.from >= end {
			more = more || ok && span.from >= end
			continue
		}
		err := l.eachBatch(s, func(fr *frame) {
			switch at := (position{s.number, fr.at}); {
			case fr.lane != id || fr.next() <= from || !at.less(l.durable):
			case fr.first >= end:
				more = true
			default:
				found.add(fr.ref(s.number))
			}
		})
		if err != nil {
			return nil, false, err
		}
		live = slices.DeleteFunc(lane.live(found), func(r Ref) bool { return r.First < from })
		if len(live) >= refsMax {
			more = more || len(live) > refsMax
			live = live[:refsMax]
			end = live[refsMax-1].Next()
			found = slices.DeleteFunc(found, func(r Ref) bool { return r.First >= end })
		}
	}
	return live, more, nil
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
