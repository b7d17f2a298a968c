package spool

// Step 3 of a recovery: what the frames from the newest checkpoint on say, in order.
//
//	below the end that a later segment names    each frame counts for itself
//	newest segment, below D                     the same
//	newest segment, from D on                   whole groups, up to the tear
//	segment whose end is not known              batches that no later one replaces
//	behind the newest intact commit             nothing

import (
	"fmt"
	"slices"
)

// replayFrames is step 3 over the frames from the base on, in order. Only the
// newest segment can hold some at or above D.
func (r *recovery) replayFrames() {
	for i := r.base; i <= r.last; i++ {
		f := r.found[i]
		switch {
		case i == r.last:
			f.end, f.cut = min(r.durable.byte, f.limit), true
			switch r.options.without {
			case ruleTear:
				f.end = f.limit
			case ruleDurable:
				f.end = f.frames[0].end() // only the checkpoint
			}
			r.replaySegment(f, f.end)
		case f.endless:
			r.replayEndless(f)
		default:
			f.end = f.limit
			r.replaySegment(f, f.limit)
		}
	}
}

// replayEndless is for a segment whose end is not known: the frames that said so are
// damaged. A part of it, nobody knows which, may be what a crash had made void, and
// the start behind that gave its indexes, and its bytes of files, to others. So it
// counts only where that cannot hide a loss: no commit of it moves a file, a head or
// an identity (which costs doubles), and a batch counts until a later one has its
// indexes. Where none has, it may stand for one that is lost, which noteUnsure tells.
func (r *recovery) replayEndless(f *foundSegment) {
	f.end = f.framesEnd()
	if len(f.frames) > 0 {
		at := f.frames[0].end() // what its checkpoint says is older than its end
		r.noteDamage(Damage{Segment: f.number, Position: at, Bytes: f.end - at, Reason: "where this segment ended is not known any more: " +
			"what was read and sent while it was written is read and sent again, so records may come twice"})
	}
	for i := range f.frames {
		switch fr := &f.frames[i]; {
		case fr.bad != nil:
		case fr.kind == kindBatch:
			r.hold(f, fr)
			r.recent[len(r.recent)-1].unsure = true
		default:
			r.keepBegun(f, fr)
		}
	}
}

// keepBegun takes of a commit what can only lead to more being read: without it,
// files might be taken for those of a first start, which may begin at their end.
func (r *recovery) keepBegun(f *foundSegment, fr *frame) {
	payload, err := f.payload(fr)
	if err != nil {
		return
	}
	_, _, d := openPayload(fr.kind, payload)
	for d.err == nil && len(d.b) > 0 {
		if kind, entry := d.entry(); d.err == nil && kind == entryBegun {
			r.state.replayBegun(&entry)
		}
	}
}

// noteUnsure tells of batches of endless segments that no later frame replaces. They
// are sent, but others may have stood there.
func (r *recovery) noteUnsure() {
	if !slices.ContainsFunc(r.recent, func(b recentBatch) bool { return b.unsure }) {
		return
	}
	later := map[uint32]*spanList{}
	for _, b := range slices.Backward(r.recent) {
		if later[b.lane] == nil {
			later[b.lane] = &spanList{}
		}
		s := span{b.ref.First, b.ref.Next()}
		l := r.state.lanes[b.lane]
		if b.unsure && l != nil && s.to > l.head && !later[b.lane].touches(s) {
			d := Damage{Segment: b.ref.Segment, Position: int64(b.ref.Block) * blockBytes, Bytes: FrameBytes(int(b.ref.Bytes)), Lane: b.lane, From: s.from, To: s.to,
				Records: s.to - s.from, Reason: "these records are sent, but they may be older ones, which come twice then, in place of as many that are lost"}
			r.tellDamage("the spool was damaged: records may be missing", d)
			r.state.noteGap(Gap{Lane: d.Lane, From: d.From, To: d.To, Records: d.Records, Reason: GapUncertain})
		}
		later[b.lane].add(s)
	}
}

// replaySegment applies what counts of a segment that is durable up to a byte.
func (r *recovery) replaySegment(f *foundSegment, durable int64) {
	var group []frame // from D on, its commit not seen yet
	tear := func(at int64) {
		bytes := f.frames[len(f.frames)-1].end() - at
		r.torn += bytes
		r.logger.Warn("spool: the end is torn, as a crash leaves it; the lines in it are read again from their files", "segment", f.name(), "byte", at, "bytes", bytes)
	}
	for i := range f.frames {
		fr := &f.frames[i]
		if fr.at < durable {
			r.replayDurable(f, fr)
			if fr.end() > durable { // bad bytes on both sides of D
				tear(durable)
				return
			}
			continue
		}
		if !r.replayWhole(f, fr, &group) {
			group = append(group, *fr)
			break
		}
	}
	if len(group) > 0 {
		tear(group[0].at)
	}
}

// replayDurable takes one frame below D: each counts for itself.
func (r *recovery) replayDurable(f *foundSegment, fr *frame) {
	err := fr.bad
	switch {
	case fr.at == 0: // the checkpoint: loaded, or noted as damage
		return
	case err != nil:
	case fr.kind == kindBatch:
		r.hold(f, fr)
	default:
		err = r.replayCommit(f, fr)
	}
	if err != nil {
		r.noteBadFrame(Damage{Segment: f.number, Position: fr.at, Bytes: fr.bytes, Reason: err.Error()})
	}
}

// replayWhole takes one frame from D on. Nothing of a group counts before its
// commit; whole is false at the tear.
func (r *recovery) replayWhole(f *foundSegment, fr *frame, group *[]frame) (whole bool) {
	if fr.bad != nil || fr.kind == kindCheckpoint {
		return false
	}
	if fr.kind == kindBatch {
		if _, err := f.payload(fr); err != nil {
			return false
		}
		if r.options.without == ruleGroup {
			r.hold(f, fr)
			return true
		}
		*group = append(*group, *fr)
		return true
	}
	if err := r.replayCommit(f, fr); err != nil {
		return false
	}
	for i := range *group {
		r.hold(f, &(*group)[i])
	}
	*group = (*group)[:0]
	return true
}

func (r *recovery) replayCommit(f *foundSegment, fr *frame) error {
	payload, err := f.payload(fr)
	if err != nil {
		return err
	}
	_, _, d := openPayload(fr.kind, payload)
	if d.err != nil {
		return d.err
	}
	_, missing, err := r.state.replay(d.b)
	if missing > 0 {
		r.noteDamage(Damage{Segment: f.number, Position: fr.at, Reason: fmt.Sprintf(
			"%d entries about a lane or file that a damaged frame had named", missing)})
	}
	r.short = 0
	if r.state.claimed > r.state.total {
		r.short = r.state.claimed - r.state.total
	}
	return err
}

// noteLostEnd tells how many records were in the log behind its end: in the missing
// part of a file, or where a disk lied. Their lines are read again, under new numbers.
func (r *recovery) noteLostEnd() {
	total, known := r.noted.total(&r.state.spoolID)
	have := max(r.state.total, r.state.claimed)
	d, again := r.cut, uint64(0)
	switch {
	case known && total > have:
		again = total - have
	case d.Bytes == 0:
		return
	}
	switch {
	case d.Bytes == 0:
		d = Damage{Segment: r.durable.segment, Position: r.durable.byte, Reason: "the disk has lost what it had said is written"}
	case !known:
		d.Reason = fmt.Sprintf("the file was cut short, and %s, which says how many records were in it, is missing or damaged too", noteName)
	default:
		d.Reason = "the file was cut short"
	}
	switch {
	case !known:
		d.Reason += ": lines that were behind its end are read again, and those that Kafka has come twice"
	case again == 0:
		d.Reason += ": no record is known to have been behind its end"
	default:
		d.Reason += fmt.Sprintf(": at least %d records that were behind its end are read again, and those of them that Kafka has come twice", again)
	}
	r.noteDamage(d)
}

func (r *recovery) lane(id uint32) *heldLane {
	h := r.held[id]
	if h == nil {
		h = &heldLane{}
		r.held[id] = h
	}
	return h
}

// hold notes that a batch frame is there.
func (r *recovery) hold(f *foundSegment, fr *frame) {
	h := r.lane(fr.lane)
	h.next = max(h.next, fr.next())
	l := r.state.lanes[fr.lane]
	if l != nil {
		r.state.raiseNext(l, fr.next())
	}
	if f.frames != nil {
		// A later entry may still move the head back: decided when all are read.
		r.recent = append(r.recent, recentBatch{lane: fr.lane, ref: fr.ref(f.number)})
	} else if l != nil && (r.look || fr.next() > l.head) {
		r.remember(h, fr.ref(f.number))
	}
	if (position{f.number, fr.at}).less(r.durable) {
		f.note(fr.lane, fr.first, fr.next(), fr.frameBytes())
	} else {
		r.whole = append(r.whole, recentBatch{lane: fr.lane, ref: fr.ref(f.number)})
	}
}
