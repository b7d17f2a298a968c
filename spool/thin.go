package spool

// Thinning: a lane that cannot send keeps its segments, but not what others
// wrote into them. Behind a sync, once for each new segment and whenever new
// lines find no room, from the newest segment below the last two:
//
//	retained     what is dead counts as kept to heal, up to RetainAckedBytes
//	few live     its live batches are appended again to the newest segment; once
//	             that is synced the segment is released like a dead one
//	else         dead runs between live frames are punched out of the file
//	no room      segments of which punching leaves more dead bytes than there are
//	             live ones are copied, several into one: a live byte, one dead one
//
// Copying needs no help of the file system and keeps the number of segments
// bounded; punching works when there is no byte left to copy to, but not between
// frames that are smaller than a block of the file system. While there is room a
// live byte is copied only to free fifteen dead ones, or three that punching
// leaves.
//
// A crash behind a decision and before its punch, or that undoes part of one,
// leaves frames that are dead: below a durable head, dropped by a durable gap,
// or replaced by a synced frame later in the log. Recovery reads nothing else of
// segments below the newest checkpoint than headers of batches, and calls damaged
// only what an index misses; so a hole there is no damage, and no entry needs to
// name it. Punches are rounded inwards, so no block with a live byte is touched,
// and synced: else the header of a newer cut could come back, without its
// records, after the head was moved back to an older cut.
//
// A crash between copies and release leaves both: the later frame wins.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"shipper/internal/vfs"
)

const (
	punchUnitBytes = 4096 // blocks of usual file systems; larger ones give back less

	thinShare       = 16 // of a segment must be dead for it to be worth the reading
	carryShare      = 16 // of a segment may be live for it to be copied
	carryShareAlone = 4  // the same where punching leaves three dead bytes for a live one
	carryPassShare  = 2  // of a segment may be copied in one go
)

// place is where a frame begins, in one number.
type place uint64

func (r Ref) place() place { return place(r.Segment)<<32 | place(r.Block) }

func (r *Ref) moveTo(p place) { r.Segment, r.Block = uint32(p>>32), uint32(p) }

// movedBatch is where a batch was copied to, and until when somebody may ask.
type movedBatch struct {
	to   place
	lane uint32
	next uint64
}

// laneRef is a batch and whose it is.
type laneRef struct {
	lane uint32
	Ref
}

// keepFrom is the lowest index of a lane that may be sent.
func (l *Log) keepFrom(lane *lane) uint64 {
	if from, asked := l.asked[lane.ID]; asked {
		return min(from, lane.head)
	}
	return lane.head
}

// dead tells whether nothing in s will be sent: all durably acked or dropped.
func (l *Log) dead(s *segment) bool {
	alive := func(id uint32) bool {
		lane := l.state.lanes[id]
		return lane != nil && s.lanes[id].to > l.keepFrom(lane)
	}
	if alive(s.blocker) { // mostly still the same: no need to go through all
		return false
	}
	for id := range s.lanes {
		if alive(id) {
			s.blocker = id
			return false
		}
	}
	return true
}

// liveBytes is about what of s will still be sent; a lane whose head is inside
// counts in proportion.
func (l *Log) liveBytes(s *segment) (live int64) {
	for id, span := range s.lanes {
		live += l.liveOf(id, span)
	}
	return live
}

func (l *Log) liveOf(id uint32, span laneSpan) int64 {
	lane := l.state.lanes[id]
	switch {
	case lane == nil || span.to <= lane.head:
		return 0
	case span.from >= lane.head:
		return span.bytes
	}
	return int64(float64(span.bytes) * float64(span.to-lane.head) / float64(span.to-span.from))
}

// thin frees the dead parts of segments that a lane keeps, beyond retainBytes of
// the newest. All that the state says is durable. noRoom says that new lines wait
// for it. An error is final.
func (l *Log) thin(retainBytes int64, noRoom bool) error {
	l.thinning = true
	defer func() { l.thinning = false }()
	c := carrier{Log: l, moved: map[place]movedBatch{}}
	kept := int64(0)
	for _, s := range slices.Backward(slices.Clone(l.segments[:max(0, len(l.segments)-segmentsKept)])) {
		live := l.liveBytes(s)
		dead := s.diskBytes - live
		kept += dead
		if s.spared = 0; live > 0 && kept <= retainBytes {
			s.spared = dead
			l.settled = false // dead ones that are older may have to go for it
		}
		if live == 0 || kept <= retainBytes || dead-s.residue < l.segmentBytes/thinShare {
			continue
		}
		refs, err := l.liveFrames(s)
		if isDenied(err) {
			continue // for now
		}
		if err != nil {
			return err
		}
		done, err := c.carry(s, refs)
		if err == nil && !done {
			err = l.punch(s, refs)
		}
		if err != nil {
			return err
		}
	}
	if noRoom {
		if err := c.compact(); err != nil {
			return err
		}
	}
	return c.finish()
}

// liveFrames lists the batches of s that will still be sent, in the order of the
// file: not acked, not dropped, not replaced by a later frame.
func (l *Log) liveFrames(s *segment) ([]laneRef, error) {
	lists := map[uint32]*batchList{}
	err := l.eachBatch(s, 0, func(fr *frame) {
		lane := l.state.lanes[fr.lane]
		if lane == nil || fr.next() <= lane.head || lane.drops(span{fr.first, fr.next()}) {
			return
		}
		if lists[fr.lane] == nil {
			lists[fr.lane] = &batchList{}
		}
		lists[fr.lane].add(fr.ref(s.number))
	})
	if err != nil {
		return nil, err
	}
	// Segments of one lane do not overlap, unless batches were cut again or copied.
	at, _ := slices.BinarySearchFunc(l.segments, s.number, func(t *segment, number uint32) int { return cmp.Compare(t.number, number) })
	for _, t := range l.segments[at+1:] {
		overlaps := false
		for id, list := range lists {
			other, ok := t.lanes[id]
			overlaps = overlaps || ok && list.overlaps(other.span)
		}
		if !overlaps {
			continue
		}
		if err := l.eachBatch(t, 0, func(fr *frame) {
			if list := lists[fr.lane]; list != nil && list.overlaps(span{fr.first, fr.next()}) {
				list.add(fr.ref(t.number))
			}
		}); err != nil {
			return nil, err
		}
	}
	var refs []laneRef
	for id, list := range lists {
		for _, ref := range *list {
			if ref.Segment == s.number {
				refs = append(refs, laneRef{id, ref})
			}
		}
	}
	slices.SortFunc(refs, func(a, b laneRef) int { return cmp.Compare(a.Block, b.Block) })
	return refs, nil
}

// overlaps tells whether b may hold an index of the list.
func (l batchList) overlaps(b span) bool {
	return len(l) > 0 && l[0].First < b.to && b.from < l[len(l)-1].Next()
}

// drops tells whether gaps hold all of b.
func (l *lane) drops(b span) bool { return dropped(l.gaps, b.from, b.to) }

// dropped tells whether gaps, ascending, hold all of [from, to). One gap need not:
// of two halves that replaced a batch each may have been dropped, and of all three
// only the frame of the batch may still be there.
func dropped(gaps []Gap, from, to uint64) bool {
	for _, g := range gaps {
		if g.From <= from && from < g.To {
			from = g.To
		}
	}
	return from >= to
}

// eachBatch reads the headers of a segment from the frame at a byte on.
func (l *Log) eachBatch(s *segment, from int64, fn func(*frame)) error {
	f, err := l.fs.OpenFile(l.path(s.name()), vfs.Read)
	if err != nil {
		return fmt.Errorf("spool: read segment %d: %w", s.number, err)
	}
	sc := scanner{file: f, seed: s.seed}
	for fr := range sc.frames(from, s.end) {
		if fr.bad == nil && fr.kind == kindBatch {
			fn(fr)
		}
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("spool: read segment %d: %w", s.number, err)
	}
	return nil
}

// punch gives back all of s but its checkpoint and the live frames. Should the
// two newest checkpoints be damaged one day, this one still names the lanes.
func (l *Log) punch(s *segment, live []laneRef) error {
	if l.punchless {
		return nil
	}
	f, err := l.fs.OpenFile(l.path(s.name()), vfs.Write)
	if isDenied(err) {
		return nil // for now
	}
	if err != nil {
		return fmt.Errorf("spool: thin segment %d: %w", s.number, err)
	}
	err = l.punchRuns(f, s, live)
	if err == nil || vfs.IsNoSpace(err) { // splitting an extent may need a block that is not there
		err = f.Sync()
	}
	disk, derr := f.DiskBytes()
	err = errors.Join(err, derr, f.Close())
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		l.punchless = true // few live batches are copied instead
		return nil
	case err != nil:
		return fmt.Errorf("spool: thin segment %d: %w", s.number, err)
	}
	freed := s.diskBytes - min(s.diskBytes, disk)
	s.diskBytes -= freed
	l.addBytes(-freed)
	l.stats.punchedBytes.Add(freed)
	clear(s.lanes)
	liveBytes := int64(0)
	for _, r := range live {
		s.note(r.lane, r.First, r.Next(), FrameBytes(int(r.Bytes)))
		liveBytes += FrameBytes(int(r.Bytes))
	}
	s.residue = s.diskBytes - liveBytes
	l.settled = l.settled && len(s.lanes) > 0 // all replaced: it can go
	l.logger.Debug("spool: punched a segment that a lane keeps", "segment", s.number, "lane", s.blocker, "freed_bytes", freed, "bytes_left", s.diskBytes)
	return nil
}

func (l *Log) punchRuns(f vfs.File, s *segment, live []laneRef) error {
	sc := scanner{file: f, seed: s.seed}
	at := int64(0)
	if h, err := sc.header(0, s.end); err == nil && h.kind == kindCheckpoint {
		at = h.frameBytes()
	}
	return l.deadRuns(s, at, live, f.Punch)
}

// deadRuns calls fn for each run of whole units of the file system without a live
// byte, from at on.
func (l *Log) deadRuns(s *segment, at int64, live []laneRef, fn func(from, to int64) error) error {
	run := func(to int64) error {
		from := roundUp(at, l.options.punchUnit)
		if to = to / l.options.punchUnit * l.options.punchUnit; from < to {
			return fn(from, to)
		}
		return nil
	}
	for _, r := range live {
		position := int64(r.Block) * blockBytes
		if err := run(position); err != nil {
			return err
		}
		at = position + FrameBytes(int(r.Bytes))
	}
	return run(s.fileSize)
}

// unpunchable is how many dead bytes punching would leave, about.
func (l *Log) unpunchable(s *segment, live []laneRef) int64 {
	left := min(s.fileSize, s.diskBytes)
	for _, r := range live {
		left -= FrameBytes(int(r.Bytes))
	}
	if !l.punchless && s.residue == 0 { // else it is what is left
		l.deadRuns(s, 0, live, func(from, to int64) error { left -= to - from; return nil })
	}
	return left
}

// carrier copies the live batches of segments that have few. What it appends
// are whole batches below the next index of their lane, which replace what they
// are a copy of.
type carrier struct {
	*Log
	gone  []*segment
	moved map[place]movedBatch
	bytes int64
	buf   []byte
}

// carry copies what is live of s, if that is little; done tells.
func (c *carrier) carry(s *segment, live []laneRef) (done bool, err error) {
	bytes := int64(0)
	for _, r := range live {
		bytes += FrameBytes(int(r.Bytes))
	}
	share := int64(carryShare)
	if c.unpunchable(s, live) >= (carryShareAlone-1)*bytes {
		share = carryShareAlone
	}
	if bytes > c.segmentBytes/share || c.bytes+bytes > c.segmentBytes/carryPassShare {
		return false, nil
	}
	// The last spares are not for this, unless one comes back for the one taken.
	if room := c.newest().room(); bytes+c.GroupBytesMax()/2 > room && len(c.free) <= sparesMin && s.diskBytes < c.options.segmentBytes {
		return false, nil
	}
	return c.copyLive(s, live, bytes)
}

// compact copies the live batches of several segments into one, if punching
// leaves much of what is dead in them and enough of it comes back for the spare
// that this may take.
func (c *carrier) compact() error {
	var all []*segment
	live, disk := int64(0), int64(0)
	for _, s := range c.segments[:max(0, len(c.segments)-segmentsKept)] {
		n, left := c.liveBytes(s), s.residue
		if c.punchless {
			left = s.diskBytes - n
		}
		if n == 0 || left < n || live+n > c.segmentBytes/carryPassShare || slices.Contains(c.gone, s) {
			continue
		}
		all, live, disk = append(all, s), live+n, disk+s.diskBytes
	}
	u, err := c.fs.Usage(c.dir)
	if err != nil {
		return fmt.Errorf("spool: ask the volume of %s for its free space: %w", c.dir, err)
	}
	if min(c.options.MaxBytes-c.totalBytes, u.FreeBytes-c.options.MinFreeBytes)+disk < c.segmentBytes {
		return nil
	}
	for _, s := range all {
		refs, err := c.liveFrames(s)
		if isDenied(err) {
			return nil // for now
		}
		if err != nil {
			return err
		}
		bytes := int64(0)
		for _, r := range refs {
			bytes += FrameBytes(int(r.Bytes))
		}
		if done, err := c.copyLive(s, refs, bytes); err != nil || !done {
			return err
		}
	}
	return nil
}

// copyLive copies these batches of s, of so many bytes; s can go behind the next
// sync then.
func (c *carrier) copyLive(s *segment, live []laneRef, bytes int64) (done bool, err error) {
	batches, err := c.readLive(s, live)
	if isDamage(err) || isDenied(err) {
		return false, nil // stays where it is; of damage the lane will say so when it gets there
	}
	if err != nil {
		return false, err
	}
	moved, err := c.appendCopies(batches)
	if errors.Is(err, ErrFull) {
		return false, nil // what was copied counts, and s stays
	}
	if err != nil {
		return false, err
	}
	for i, ref := range moved {
		c.moved[live[i].place()] = movedBatch{ref.place(), live[i].lane, ref.Next()}
	}
	c.bytes += bytes
	c.stats.carriedBytes.Add(bytes)
	c.gone = append(c.gone, s)
	return true, nil
}

// readLive reads the frames into c.buf and checks both checksums.
func (c *carrier) readLive(s *segment, live []laneRef) ([]Batch, error) {
	rd := Reader{log: c.Log}
	c.buf = c.buf[:0]
	batches := make([]Batch, 0, len(live))
	var err error
	for _, r := range live {
		start := len(c.buf)
		if c.buf, err = rd.ReadBatch(c.buf, r.Ref); err != nil {
			break
		}
		b := Batch{Lane: r.lane, First: r.First, Count: r.Count, MaxTime: r.MaxTime, RecordsCRC: rd.payloadCRC}
		copy(b.Header[:], c.buf[start:])
		batches = append(batches, b)
	}
	if err := errors.Join(err, rd.Close()); err != nil {
		return nil, err
	}
	at := 0
	for i, r := range live { // only now: c.buf has stopped moving
		at += HeaderBytes
		batches[i].Records = c.buf[at : at+int(r.Bytes)]
		at += int(r.Bytes)
	}
	return batches, nil
}

// appendCopies appends the batches in groups that fit.
func (c *carrier) appendCopies(batches []Batch) (refs []Ref, err error) {
	// Of a group a quarter is left for its commit: 32 bytes for a batch of 64.
	bytesMax := c.GroupBytesMax() * 3 / 4
	for len(batches) > 0 {
		n, bytes := 0, int64(0)
		for n < len(batches) && (n == 0 || bytes+FrameBytes(len(batches[n].Records))*5/4 <= bytesMax) {
			bytes += FrameBytes(len(batches[n].Records)) * 5 / 4
			n++
		}
		if refs, err = c.Append(refs, batches[:n], nil); err != nil {
			return nil, err
		}
		batches = batches[n:]
	}
	return refs, nil
}

// finish makes the copies durable, tells readers where they are, and releases
// the segments they came from.
func (c *carrier) finish() error {
	if len(c.gone) == 0 {
		return nil
	}
	if err := c.sync(); err != nil {
		return err
	}
	if old := c.shared.moved.Load(); old != nil {
		for from, m := range *old {
			if lane := c.state.lanes[m.lane]; lane != nil && lane.head < m.next {
				c.moved[from] = m
			}
		}
	}
	c.shared.moved.Store(&c.moved) // first: whoever finds a segment gone looks here
	c.logger.Debug("spool: copied live batches into the newest segment", "segments", len(c.gone), "bytes", c.bytes)
	return c.giveUp(c.gone)
}
