package spool

// What the log knows about lanes and sources. The same functions apply a commit
// when it is appended and when it is read back, so what a checkpoint holds is
// what a replay of the commits before it would give.

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// state belongs to the writer goroutine.
type state struct {
	spoolID [16]byte
	lanes   map[uint32]*lane
	sources map[uint64]*source
	touched []*lane         // by a head, ack or gap of the commit in hand
	at      int64           // time of the commit in hand; 0: it does not say
	begun   map[string]bool // source blocks whose first start is over; as many as ever were configured
	// total is the sum of all next indexes: how many records ever got a number.
	// Each commit names it, so that a run of damage that hides a lane's newest
	// batches and every commit that speaks of them still shows how many are gone.
	total     uint64
	minor     uint16 // replay: version of the newest checkpoint
	claimed   uint64 // replay: by the newest commit
	fileBytes int64  // replay: of the segment with the newest checkpoint; 0: it does not say
	told      uint64 // gaps with lower numbers were told
	gapNext   uint64 // number of the next gap
	gapSealed uint64 // gaps with lower numbers grow no more: somebody may have been told
	untold    []UntoldGap
}

type lane struct {
	Lane
	next       uint64 // index the next new record gets
	head       uint64 // first index not acked; never inside a gap
	top        uint64 // a heal moved the head back from here; 0: none
	lastAck    Ack
	ackTime    int64      // of lastAck, ms since 1970; 0: not known
	identities []Identity // ascending From; each covers up to the next one
	gaps       []Gap      // ascending From
}

type source struct {
	Source
	cursor Cursor
}

func newState() state {
	return state{lanes: map[uint32]*lane{}, sources: map[uint64]*source{}, begun: map[string]bool{}}
}

// missing says that an entry speaks of something no entry has introduced: a bug
// when appended, damage before it when replayed.
type missingError struct {
	what string
	id   uint64
}

func (e *missingError) Error() string { return fmt.Sprintf("%s %d is not known", e.what, e.id) }

func (s *state) lane(id uint32) (*lane, error) {
	if l := s.lanes[id]; l != nil {
		return l, nil
	}
	return nil, &missingError{"lane", uint64(id)}
}

func (s *state) setLane(l Lane) {
	if have := s.lanes[l.ID]; have != nil {
		have.Lane = l
		return
	}
	s.lanes[l.ID] = &lane{Lane: l}
}

func (s *state) setSource(src Source) {
	have := s.sources[src.ID]
	switch {
	case src.Gone:
		delete(s.sources, src.ID)
	case have != nil:
		have.Source = src
	default:
		s.sources[src.ID] = &source{Source: src, cursor: Cursor{Source: src.ID}}
	}
}

func (s *state) setCursor(c Cursor) error {
	src := s.sources[c.Source]
	if src == nil {
		return &missingError{"source", c.Source}
	}
	src.cursor = c
	return nil
}

func (s *state) setNext(id uint32, next uint64) error {
	l, err := s.lane(id)
	if err == nil {
		s.raiseNext(l, next)
	}
	return err
}

func (s *state) raiseNext(l *lane, next uint64) {
	if next > l.next {
		s.total += next - l.next
		l.next = next
	}
}

func (s *state) setIdentity(id Identity) error {
	l, err := s.lane(id.Lane)
	if err == nil {
		l.setIdentity(id)
	}
	return err
}

// setIdentity makes id cover everything from its From on.
func (l *lane) setIdentity(id Identity) {
	keep := len(l.identities)
	for keep > 0 && l.identities[keep-1].From >= id.From {
		keep--
	}
	l.identities = append(l.identities[:keep], id)
}

// covering is the identity that covers index; ok is false if none does.
func (l *lane) covering(index uint64) (id Identity, ok bool) {
	for i := len(l.identities) - 1; i >= 0; i-- {
		if l.identities[i].From <= index {
			return l.identities[i], true
		}
	}
	return Identity{}, false
}

func (s *state) setHead(h Head) error {
	l, err := s.lane(h.Lane)
	if err == nil {
		l.head, l.top, l.lastAck, l.ackTime = h.Index, h.Top, Ack{}, 0
		s.raiseNext(l, h.Index)
		s.touched = append(s.touched, l)
	}
	return err
}

func (s *state) setAck(a Ack) error {
	l, err := s.lane(a.Lane)
	if err != nil || a.Next() < l.head {
		return err
	}
	l.head, l.lastAck, l.ackTime = a.Next(), a, s.at
	s.raiseNext(l, l.head)
	s.touched = append(s.touched, l)
	return nil
}

func (s *state) setGap(g Gap) error {
	if g.From >= g.To {
		s.noteGap(g)
		return nil // bytes of a source
	}
	l, err := s.lane(g.Lane)
	if err != nil {
		return err
	}
	s.noteGap(g)
	i, found := slices.BinarySearchFunc(l.gaps, g.From, func(have Gap, from uint64) int {
		switch {
		case have.From < from:
			return -1
		case have.From > from:
			return 1
		}
		return 0
	})
	if found {
		l.gaps[i] = g
	} else {
		l.gaps = slices.Insert(l.gaps, i, g)
	}
	s.raiseNext(l, g.To)
	s.touched = append(s.touched, l)
	return nil
}

// passGaps moves heads out of gaps, since nothing in there will be acked. Only
// at the end of a commit: an ack in it may name what a head moved back to.
func (s *state) passGaps() {
	for _, l := range s.touched {
		l.head = l.behindGaps(l.head)
		if l.head >= l.top {
			l.top = 0
		}
	}
	s.touched = s.touched[:0]
}

// behindGaps is index, or the end of the gaps that hold it.
func (l *lane) behindGaps(index uint64) uint64 {
	for _, g := range l.gaps { // ascending: one pass is enough
		if g.From <= index && index < g.To {
			index = g.To
		}
	}
	return index
}

// prune forgets identities and gaps of which no frame is held: held is the
// lowest index of the lane in any segment. The last ack keeps its identity,
// which says in which partition it proves something.
func (l *lane) prune(held uint64) {
	held = min(held, l.head)
	if l.lastAck.Count > 0 {
		held = min(held, l.lastAck.First)
	}
	first := 0
	for first+1 < len(l.identities) && l.identities[first+1].From <= held {
		first++
	}
	l.identities = slices.Delete(l.identities, 0, first)
	l.gaps = slices.DeleteFunc(l.gaps, func(g Gap) bool { return g.To <= held })
}

// apply takes over a commit and the batches of its group.
func (s *state) apply(batches []Batch, c *Commit) error {
	s.at = c.Time
	for i := range c.Lanes {
		s.setLane(c.Lanes[i])
	}
	for i := range c.Sources {
		s.setSource(c.Sources[i])
	}
	var firstErr error
	note := func(err error) {
		if firstErr == nil {
			firstErr = err
		}
	}
	for i := range batches {
		note(s.setNext(batches[i].Lane, batches[i].First+uint64(batches[i].Count)))
	}
	for i := range c.Cursors {
		note(s.setCursor(c.Cursors[i]))
	}
	for i := range c.Identities {
		note(s.setIdentity(c.Identities[i]))
	}
	for i := range c.Heads {
		note(s.setHead(c.Heads[i]))
	}
	for i := range c.Acks {
		note(s.setAck(c.Acks[i]))
	}
	for i := range c.Gaps {
		note(s.setGap(c.Gaps[i]))
	}
	for _, block := range c.Begun {
		s.begun[block] = true
	}
	s.passGaps()
	return firstErr
}

// segmentEnd is a live segment as a checkpoint lists it.
type segmentEnd struct {
	number uint32
	seed   uint64
	end    int64 // bytes; what lies behind does not exist
	cut    bool  // the file may be longer and is to be cut off there
}

// appendState appends the entries that hold everything, in a fixed order.
func (s *state) appendState(e *encoder, segments []segmentEnd) {
	e.begin(entrySpool)
	e.buf = append(e.buf, s.spoolID[:]...)
	e.end()
	for _, seg := range segments {
		e.begin(entrySegment)
		e.uint(uint64(seg.number))
		e.u64(seg.seed)
		e.uint(uint64(seg.end / blockBytes))
		e.bool(seg.cut)
		e.end()
	}
	e.total(s.total)
	for _, id := range slices.Sorted(maps.Keys(s.lanes)) {
		l := s.lanes[id]
		e.lane(&l.Lane)
		e.begin(entryLaneState)
		e.uint(uint64(id))
		e.uint(l.next)
		e.uint(l.head)
		e.ackBody(&l.lastAck)
		e.uint(l.top)
		e.int(l.ackTime)
		e.end()
		for i := range l.identities {
			e.identity(&l.identities[i])
		}
		for i := range l.gaps {
			e.gap(&l.gaps[i])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.sources)) {
		src := s.sources[id]
		e.source(&src.Source)
		e.cursor(&src.cursor)
	}
	for _, block := range slices.Sorted(maps.Keys(s.begun)) {
		e.begun(block)
	}
	s.appendGaps(e)
}

// laneState reads what appendState wrote of a lane.
func (d *decoder) laneState() lane {
	l := lane{Lane: Lane{ID: d.u32()}, next: d.uint(), head: d.uint(), lastAck: d.ack(), top: d.uint()}
	if len(d.b) > 0 { // since 1.2
		l.ackTime = d.int()
	}
	return l
}

func appendPreamble(dst []byte) []byte {
	dst = append(dst, formatMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, formatMajor)
	return binary.LittleEndian.AppendUint16(dst, formatMinor)
}

// replay applies the entries in body (a payload behind `durable`) and returns
// the segments it lists, if it lists any. missing counts entries about things
// that a damaged frame had introduced; they change nothing.
func (s *state) replay(body []byte) (segments []segmentEnd, missing int, err error) {
	d := decoder{b: body}
	s.at = 0
	defer s.passGaps()
	for len(d.b) > 0 {
		kind, entry := d.entry()
		if d.err != nil {
			return segments, missing, d.err
		}
		seg, err := s.replayEntry(kind, &entry)
		if entry.err != nil {
			return segments, missing, fmt.Errorf("entry of kind %d: %w", kind, entry.err)
		}
		if err != nil {
			missing++
		}
		if kind == entrySegment {
			segments = append(segments, seg)
		}
	}
	return segments, missing, nil
}

// replayEntry reads the whole entry before it changes anything.
func (s *state) replayEntry(kind entryKind, d *decoder) (seg segmentEnd, err error) {
	switch kind {
	case entryLane:
		if l := d.lane(); d.err == nil {
			s.setLane(l)
		}
	case entrySource:
		if src := d.source(); d.err == nil {
			s.setSource(src)
		}
	case entryCursor:
		if c := d.cursor(); d.err == nil {
			err = s.setCursor(c)
		}
	case entryNext:
		if id, next := d.u32(), d.uint(); d.err == nil {
			err = s.setNext(id, next)
		}
	case entryTotal:
		if total := d.uint(); d.err == nil {
			s.claimed = total
		}
	case entryIdentity:
		if id := d.identity(); d.err == nil {
			err = s.setIdentity(id)
		}
	case entryHead:
		if h := d.head(); d.err == nil {
			err = s.setHead(h)
		}
	case entryAck:
		if a := d.ack(); d.err == nil {
			err = s.setAck(a)
		}
	case entryGap:
		if g := d.gap(); d.err == nil {
			err = s.setGap(g)
		}
	case entryTime:
		s.at = d.int()
	case entryBegun:
		s.replayBegun(d)
	case entryFile:
		s.fileBytes = int64(d.u64())
	case entryTold, entryGaps, entryUntold:
		s.replayGaps(kind, d)
	case entrySpool:
		if id := d.bytes(16); d.err == nil {
			copy(s.spoolID[:], id)
		}
	case entrySegment:
		seg = segmentEnd{number: d.u32(), seed: d.u64(), end: int64(d.u32()) * blockBytes, cut: d.small(1) == 1}
	case entryLaneState:
		have := d.laneState()
		if l, lerr := s.lane(have.ID); d.err == nil && lerr == nil {
			s.total += have.next - l.next
			l.next, l.head, l.lastAck, l.top, l.ackTime = have.next, have.head, have.lastAck, have.top, have.ackTime
		} else {
			err = lerr
		}
	}
	return seg, err
}

func (s *state) replayBegun(d *decoder) {
	if block := d.string(); d.err == nil {
		s.begun[block] = true
	}
}
