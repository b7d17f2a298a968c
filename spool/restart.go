package spool

// The second half of a recovery: what is known becomes this start's first
// segment (steps 5 to 8 of recover.go).

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"shipper/internal/vfs"
)

// settleLanes is steps 5 and 6.
func (r *recovery) settleLanes() []LaneState {
	for i, f := range r.found {
		if i <= r.last {
			r.segments = append(r.segments, &f.segment)
		} else {
			r.void = append(r.void, &f.segment)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.held)) {
		if r.state.lanes[id] == nil {
			r.noteDamage(Damage{Lane: id, Reason: "batches of a lane that a damaged frame had named: nobody knows their topic"})
		}
	}
	if r.short > 0 {
		r.noteDamage(Damage{Records: r.short, Reason: "records that a later commit counts and no intact frame names"})
	}
	ids := slices.Sorted(maps.Keys(r.state.lanes))
	lanes := make([]LaneState, 0, len(ids))
	for _, id := range ids {
		l := r.state.lanes[id]
		h := r.lane(id)
		lanes = append(lanes, LaneState{Lane: l.Lane, Batches: r.settleLane(l, h), More: len(h.rest) > 0})
	}
	r.pruneLanes()
	for i, id := range ids {
		l, out := r.state.lanes[id], &lanes[i]
		out.Next, out.Head, out.Top, out.LastAck = l.next, l.head, l.top, l.lastAck
		out.Identities = slices.Clone(l.identities)
		for _, g := range l.gaps {
			if g.To > l.head {
				out.Gaps = append(out.Gaps, g)
			}
		}
	}
	return lanes
}

// settleLane makes gaps of what is missing, starts the identity of this start
// and returns the live batches.
func (r *recovery) settleLane(l *lane, h *heldLane) []Ref {
	r.state.raiseNext(l, h.next)
	acked := l.head
	live := l.live(h.batches)
	l.trimGaps(live)
	for _, hole := range h.missing(l, live) {
		r.noteDamage(Damage{Lane: l.ID, From: hole.from, To: hole.to, Records: hole.to - hole.from, Reason: "no intact batch holds these records"})
		if err := r.state.setGap(Gap{Lane: l.ID, From: hole.from, To: hole.to, Records: hole.to - hole.from, Reason: GapDamaged}); err != nil {
			panic("BUG: spool recovery: " + err.Error())
		}
	}
	r.state.passGaps()
	if r.options.without == ruleIdentity {
		return live
	}
	from := l.head
	if len(live) > 0 && live[0].First == acked {
		// Only this one can have been sent without a durable ack; with a hole
		// before it, it cannot.
		if id, ok := l.covering(acked); ok && id.ProducerID >= 0 {
			from = live[0].Next()
		}
	}
	for _, g := range l.gaps { // a gap needs a new identity behind it in any case
		if g.From <= from && from < g.To {
			from = g.To
		}
	}
	id, ok := l.covering(from)
	if !ok {
		id = Identity{Topic: l.Topic, Partition: -1}
	}
	id.Lane, id.From, id.ProducerID, id.Epoch, id.Floor, id.FloorEpoch, id.Reason = l.ID, from, -1, 0, -1, -1, IdentityStart
	l.setIdentity(id)
	return live
}

// wants tells whether a batch will still be sent, if nothing replaces it.
func (l *lane) wants(b Ref) bool { return b.First >= l.head && !l.drops(span{b.First, b.Next()}) }

// live are the batches from the head on that no gap has dropped.
func (l *lane) live(held batchList) []Ref {
	live := make([]Ref, 0, len(held))
	for _, b := range held {
		if l.wants(b) {
			live = append(live, b)
		}
	}
	return live
}

// trimGaps takes out of the gaps what a live batch holds. A gap cuts into a batch
// only if the batches that had replaced it are damaged: it is sent whole, or the
// records beside the gap would go with it.
func (l *lane) trimGaps(live []Ref) {
	var trimmed []Gap
	for _, g := range l.gaps {
		at, rest := g.From, g
		add := func(to uint64) {
			if at < to {
				rest.From, rest.To = at, to
				rest.Records = min(g.Records, to-at)
				trimmed = append(trimmed, rest)
			}
		}
		for _, b := range live {
			if b.First < g.To && b.Next() > at {
				add(b.First)
				at = max(at, b.Next())
			}
		}
		add(g.To)
	}
	l.gaps = trimmed
}

// holes are the indexes from the head on that neither a batch nor a gap holds.
func (l *lane) holes(live []Ref) []span { return l.holesIn(l.head, l.next, live) }

// holesIn are those in [from, to), of which live has the batches.
func (l *lane) holesIn(from, to uint64, live []Ref) []span {
	var holes []span
	at := from
	for _, b := range live {
		holes = l.undropped(holes, at, b.First)
		at = b.Next()
	}
	return l.undropped(holes, at, to)
}

// undropped appends the parts of [from, to) that no gap holds.
func (l *lane) undropped(dst []span, from, to uint64) []span {
	for _, g := range l.gaps {
		if g.From < to && g.To > from {
			if g.From > from {
				dst = append(dst, span{from, g.From})
			}
			from = max(from, g.To)
		}
	}
	if from < to {
		dst = append(dst, span{from, to})
	}
	return dst
}

// writeSegment is step 7. The batches that it copies get their new place in
// lanes.
func (r *recovery) writeSegment(lanes []LaneState) error {
	copies, copyBytes := r.toCopy()
	number, err := r.nextNumber()
	if err != nil {
		return err
	}
	payload := r.checkpointPayload()
	first := roundUp(commitHeaderBytes+int64(len(payload)), blockBytes)
	end := first + copyBytes
	if len(copies) > 0 {
		// The state once more, behind the copies: should the checkpoint be
		// damaged one day, nothing that only the copied groups knew is gone.
		end += roundUp(commitHeaderBytes+int64(len(payload)-preambleBytes), blockBytes)
	}
	before := int64(0)
	if len(r.segments) > 0 {
		before = r.newest().end
	}
	seed, err := r.newSeed()
	if err != nil {
		return err
	}
	f, fileSize, err := r.takeFileAnyway(number, end+r.GroupBytesMax())
	if err != nil {
		return err
	}
	patchCheckpoint(payload, preface{position{number, end}, before}, fileSize)
	s := newSegment(number, seed, fileSize, end)
	r.stage = appendCommitFrame(r.stage[:0], kindCheckpoint, seed, 0, payload)
	_, err = f.WriteAt(r.stage, 0)
	at := first
	for i := 0; err == nil && i < len(copies); i++ {
		err = r.copyBatch(f, s, copies[i], at)
		at += FrameBytes(int(copies[i].ref.Bytes))
	}
	if err == nil && len(copies) > 0 {
		r.stage = appendCommitFrame(r.stage[:0], kindCommit, seed, at, payload[preambleBytes:])
		_, err = f.WriteAt(r.stage, at)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("spool: write segment %d: %w", number, err), f.Close())
	}
	if err := r.publish(f, s); err != nil {
		return errors.Join(err, f.Close())
	}
	moved := map[place]uint32{}
	for _, c := range copies {
		moved[c.ref.place()] = c.block
	}
	for i := range lanes {
		for j := range lanes[i].Batches {
			ref := &lanes[i].Batches[j]
			if block, ok := moved[ref.place()]; ok {
				ref.Segment, ref.Block = number, block
			}
		}
	}
	return nil
}

// nextNumber is behind the newest segment. Numbers of files behind that, in which
// there is nothing, do not count, or one that is not ours could use all of them up.
func (r *recovery) nextNumber() (uint32, error) {
	number := uint32(1)
	if len(r.segments) > 0 {
		number = r.newest().number + 1
	}
	for r.taken[number] {
		number++
	}
	if number > numberLimit {
		return 0, fmt.Errorf("spool: %s has a higher number than a spool ever reaches, so it is not of this one: move it out of the directory", r.path(r.newest().name()))
	}
	return number, nil
}

// batchCopy is a batch on its way from the old newest segment to the new one.
type batchCopy struct {
	lane  uint32
	ref   Ref
	block uint32 // where the copy is
}

// toCopy lists the live batches from D on in the order of the log.
func (r *recovery) toCopy() (copies []*batchCopy, bytes int64) {
	lists := map[uint32]*batchList{}
	for _, w := range r.whole {
		if lists[w.lane] == nil {
			lists[w.lane] = &batchList{}
		}
		lists[w.lane].add(w.ref)
	}
	for id, list := range lists {
		lane := r.state.lanes[id]
		if lane == nil {
			continue // noted as damage
		}
		for _, ref := range lane.live(*list) {
			copies = append(copies, &batchCopy{lane: id, ref: ref})
			bytes += FrameBytes(int(ref.Bytes))
		}
	}
	slices.SortFunc(copies, func(a, b *batchCopy) int { return cmp.Compare(a.ref.Block, b.ref.Block) })
	return copies, bytes
}

// copyBatch writes the frame again with the checksum of its new place. Its
// payload was checked when it was found.
func (r *recovery) copyBatch(to vfs.File, s *segment, c *batchCopy, at int64) error {
	from := r.found[r.last]
	n := batchHeaderBytes + int(c.ref.Bytes)
	r.stage = slices.Grow(r.stage[:0], n)[:n]
	if err := readFull(from.file, r.stage, int64(c.ref.Block)*blockBytes); err != nil {
		return err
	}
	sealHeader(r.stage[:batchHeaderBytes], s.seed, at)
	if _, err := to.WriteAt(r.stage, at); err != nil {
		return err
	}
	c.block = uint32(at / blockBytes)
	s.note(c.lane, c.ref.First, c.ref.Next(), FrameBytes(int(c.ref.Bytes)))
	return nil
}

// takeFileAnyway finds a file for the segment of a recovery. When neither a
// spare nor a limit allows one it asks the volume itself: a start must not fail
// because the spool is full.
func (r *recovery) takeFileAnyway(number uint32, needBytes int64) (vfs.File, int64, error) {
	f, size, err := r.takeFile(number, needBytes, 0)
	if denied, ok := errors.AsType[*fullError](err); ok && isDenied(denied) {
		return nil, 0, denied.cause // no room would help
	}
	if !errors.Is(err, ErrFull) {
		return f, size, err
	}
	if len(r.found) == 0 {
		return nil, 0, fmt.Errorf("%w: others filled the volume of %s while its first segment was made", ErrTooSmall, r.dir)
	}
	f, err = r.makeSegmentFile(number, needBytes)
	for _, give := range []func() (bool, error){r.giveUpEmpty, r.shorten} {
		if !errors.Is(err, ErrFull) {
			break
		}
		gone, gerr := give()
		if gerr != nil {
			return nil, 0, gerr
		}
		if gone { // as a spare, or as room on the volume
			if f, size, err := r.takeFile(number, needBytes, 0); !errors.Is(err, ErrFull) {
				return f, size, err
			}
			f, err = r.makeSegmentFile(number, needBytes)
		}
	}
	if errors.Is(err, ErrFull) {
		err = fmt.Errorf("%w: recovery needs %d bytes in %s and the volume has no room; free some", ErrTooSmall, needBytes, r.dir)
	}
	return f, needBytes, err
}

// giveUpEmpty releases segments without batches before the new one is there:
// the newest checkpoint, which is intact, holds what their commits said.
func (r *recovery) giveUpEmpty() (gone bool, err error) {
	if r.base != r.last {
		return false, nil
	}
	var empty []*segment
	for _, s := range r.segments[:len(r.segments)-1] {
		if len(s.lanes) == 0 {
			empty = append(empty, s)
		}
	}
	return len(empty) > 0, r.giveUp(empty)
}

// shorten gives back what cutOff kept behind the ends of older files: ends that the
// newest checkpoint, which is intact, knows.
func (r *recovery) shorten() (shorter bool, err error) {
	if r.base != r.last {
		return false, nil
	}
	for _, s := range r.segments[:len(r.segments)-1] {
		if s.cut && s.fileSize > s.end {
			if err := r.cutOff(s, false); err != nil {
				return false, err
			}
			shorter = true
		}
	}
	return shorter, nil
}

// tidy is step 8; then what no lane needs any more goes, and spares are made.
func (r *recovery) tidy() error {
	for _, s := range r.segments[:len(r.segments)-1] {
		if !s.cut || s.fileSize <= s.end {
			continue
		}
		if err := r.cutOff(s, true); err != nil {
			return err
		}
	}
	if err := r.giveUp(r.void); err != nil {
		return err
	}
	if err := r.sync(); err != nil { // not Sync: a start does not copy
		return err
	}
	if err := r.note.open(r.fs, r.path(noteName)); err != nil {
		r.logger.Warn("spool: the number of records cannot be written down; should a segment be cut short, nobody will know how many come twice", "dir", r.dir, "error", err)
	}
	r.note.write(&r.state.spoolID, r.state.total)
	spares, err := r.ensureSpares()
	if err != nil {
		return err
	}
	if !spares {
		r.logger.Warn("spool: no room for spare segments; new lines wait until there is some, or all before them is in Kafka", "dir", r.dir)
	}
	return nil
}

// cutOff takes what is void from the end of a segment's file. On a volume that
// others filled the file may keep its length, as zeros: given back, the room would
// be theirs, and each start would leave one file less to write into. A crash on the
// way leaves the void bytes, or a short file.
func (r *recovery) cutOff(s *segment, mayKeep bool) error {
	f, err := r.fs.OpenFile(r.path(s.name()), vfs.Write)
	if err != nil {
		return fmt.Errorf("spool: cut off segment %d: %w", s.number, err)
	}
	fileSize, diskBytes := s.end, min(s.diskBytes, s.end)
	err = f.Truncate(s.end)
	if err == nil {
		_, err = r.roomForFile(r.segmentBytes)
	}
	if err == nil && mayKeep && r.VolumeFull() {
		switch err = f.Allocate(s.fileSize); {
		case err == nil:
			fileSize, diskBytes = s.fileSize, diskBytes+s.fileSize-s.end
		case vfs.IsNoSpace(err):
			err = f.Truncate(s.end)
		}
	}
	if err == nil {
		err = f.Sync() // or a power cut brings the void bytes back
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("spool: cut off segment %d: %w", s.number, err)
	}
	r.addBytes(diskBytes - s.diskBytes)
	s.fileSize, s.diskBytes = fileSize, diskBytes
	return nil
}
