package record

import (
	"time"
)

// Place is where a file must be read again so that what was not taken comes again and what was taken does not. Note is
// more about it than an offset can say; 0: nothing. It goes into the file's cursor.
type Place struct {
	Offset int64
	Part   uint32 // > 0: a part of a line begins there; Note is 0 then
	Note   uint32
}

// A Note, from the highest bit on: for each stream, whether the rest of a record that was cut is to be dropped; which
// stream has lines behind Offset that were taken; and how many bytes behind Offset these end.
const (
	noteDiscard    = 30 // + stream
	noteSkipStream = 29
	noteSkipBytes  = 1<<29 - 1
)

// Scratch is room that the streams of one reader share: what is in it lives from Begin to the end of that look at a file.
type Scratch struct {
	units []unit
	head  int          // first unit that was not taken
	open  [streams]int // index of the unfinished unit of each stream; -1: none
	forms [streams]int // index of the unit that is a message of which only the begin is there (message.go); -1: none
	parts []part
	arena []byte // messages that are not in the block as they are

	joined, repaired, redacted, value, key []byte // of the record that was peeked at
	message                                []byte // as multiline looks at it
	spare                                  []byte
	headers                                []Header
	numbers                                []byte   // values of headers
	names                                  [][]byte // of members of an object
	timeMember                             []byte   // what an envelope says of timeMs
	timeMs                                 int64

	Counts Counts // since the owner last cleared it
}

// unit is a record: not finished, or finished and not taken.
type unit struct {
	start, end  int64
	lines       int32
	bytes       int32 // of its content
	first, last int32 // its parts, a list
	linePart    uint32
	stream      uint8
	done        bool
	partial     bool   // its last line goes on in the next one of its stream
	absorbs     bool   // what comes to it is dropped
	drop        bool   // it is no record: the rest of one, or one that was skipped
	why         uint32 // Reasons to count when it is taken, a set
	more        bool   // it ended while it absorbed: what follows is to be dropped too
	inTrace     bool   // as multiline says
	time        []byte
	text        []byte // its content, if it has no parts
}

// part is a stretch of a record's content.
type part struct {
	b       []byte
	newline bool // a line feed stands before it
	next    int32
	from    int64 // offset of b in the file, if it is a slice of the block
	to      int64 // behind its delimiter
}

// taken is what is known of the lines of one stream: all below to were taken, and the next ones are to be dropped if discard.
type taken struct {
	to      int64
	discard bool
}

// age is since when an unfinished record is as it is.
type age struct {
	start, end int64
	since      time.Time // zero: there is none
}

// Stream makes the records of one file. One goroutine at a time may use it.
//
// One look at a file:
//
//	s.Begin(scratch, block, at, place)   place: of the file's cursor
//	for each line { s.Line(line); take what there is: for r := s.Peek(now); ... s.Take() }
//	s.End(now, ...); take what there is
//	the file goes back to s.Place()
type Stream struct {
	f     *Format
	attrs attrs
	grant grant  // of the source's rate limit
	count uint64 // records that reached the sampler

	age [streams]age

	// From Begin on.
	sc      *Scratch
	block   []byte // what the lines are slices of; nil: they are not, and are copied
	at      int64  // offset of block[0]
	began   int64
	pos     int64   // behind the last line
	joined  []int64 // where the lines of files behind this one begin
	taken   [streams]taken
	discard [streams]bool // the next line of the stream is to be dropped
	peeked  bool          // rec is of the first unit that was not taken
	rec     Record
	why     uint32 // Reasons to count when it is taken, a set
	paused  time.Time
}

// NewStream makes a stream for a file at path.
func (f *Format) NewStream(path string) *Stream {
	s := &Stream{f: f}
	s.SetPath(path)
	return s
}

// Begin starts a look at the file from p on. Lines that are slices of block, whose first byte is at offset at, are
// joined without copying. Without a block a line's bytes may change behind Line.
func (s *Stream) Begin(sc *Scratch, block []byte, at int64, p Place) {
	sc.units, sc.parts, sc.arena, sc.head = sc.units[:0], sc.parts[:0], sc.arena[:0], 0
	sc.open, sc.forms = [streams]int{-1, -1}, [streams]int{-1, -1}
	s.sc, s.block, s.at, s.began, s.pos, s.joined = sc, block, at, p.Offset, p.Offset, s.joined[:0]
	s.peeked, s.paused = false, time.Time{}
	s.taken = [streams]taken{}
	for k := range streams {
		s.discard[k] = p.Note>>(noteDiscard+k)&1 != 0
		s.taken[k].discard = s.discard[k]
	}
	if n := p.Note & noteSkipBytes; n > 0 {
		s.taken[p.Note>>noteSkipStream&1].to = p.Offset + int64(n)
	}
}

// Place is where the file must be read again for what was not taken. held: before the end of the last line.
func (s *Stream) Place() (p Place, held bool) {
	p.Offset = s.pos
	if held = s.sc.head < len(s.sc.units); held {
		u := &s.sc.units[s.sc.head]
		p.Offset, p.Part = u.start, u.linePart
	}
	for k := range streams {
		// Of one stream only: the oldest record that was not taken is of the other, or there is none.
		if n := s.taken[k].to - p.Offset; n > 0 {
			p.Note |= uint32(n) | uint32(k)<<noteSkipStream
		}
		if s.taken[k].discard {
			p.Note |= 1 << (noteDiscard + k)
		}
	}
	if p.Part > 0 {
		p.Note = 0 // such a line ended all that was open, and what was to be dropped
	}
	return p, held
}

// Line takes the next line.
func (s *Stream) Line(l Line) {
	s.pos = l.End
	if s.block == nil {
		// The next line may take the place of this one.
		from := len(s.sc.arena)
		s.sc.arena = append(s.sc.arena, l.Bytes...)
		l.Bytes = s.sc.arena[from:len(s.sc.arena):len(s.sc.arena)]
	}
	p := piece{text: l.Bytes}
	if s.f.cfg.Container != NoContainer {
		if l.Part > 0 || !s.container(l.Bytes, &p) {
			s.single(l, noStream, true)
			return
		}
	} else if l.Part > 0 {
		// What was split is never joined again.
		s.single(l, stdout, false)
		return
	}
	if l.Offset < s.taken[p.stream].to {
		return // it belongs to a record that was taken before the file was read again
	}
	if s.forming(l, &p) {
		return
	}
	if i := s.sc.open[p.stream]; i >= 0 {
		u := &s.sc.units[i]
		switch {
		case u.partial:
			s.add(u, l, &p, false)
			return
		case s.f.multiline != nil && s.f.multiline.continues(u, p.text):
			if u.absorbs || int(u.lines) < s.f.multiline.linesMax {
				s.add(u, l, &p, true)
				return
			}
			u.note(OversizeSplit)
		}
		s.finish(int(p.stream))
	} else if !p.partial && s.f.multiline == nil && !s.discard[p.stream] {
		s.whole(l, &p)
		return
	}
	s.begin(l, &p)
}

// whole makes a record of a message that neither goes on nor was begun, as nearly all are: what begin, add and finish come to.
func (s *Stream) whole(l Line, p *piece) {
	s.sc.units = append(s.sc.units, unit{start: l.Offset, end: l.End, lines: 1, bytes: int32(len(p.text)), first: -1, last: -1, stream: p.stream, done: true, time: p.time, text: p.text})
}

// single makes a record of one line, and ends all that is open.
func (s *Stream) single(l Line, stream uint8, damaged bool) {
	for k := range streams {
		s.settle(k)
		s.finish(k)
		s.discard[k] = false
	}
	s.push(unit{start: l.Offset, linePart: l.Part, stream: stream, done: true})
	u := &s.sc.units[len(s.sc.units)-1]
	if damaged {
		u.note(Damaged)
	}
	s.content(u, l, l.Bytes, false)
	u.end = l.End
}

func (u *unit) note(r Reason) { u.why |= 1 << r }

func (s *Stream) push(u unit) {
	u.first, u.last = -1, -1
	s.sc.units = append(s.sc.units, u)
}

// begin starts a record.
func (s *Stream) begin(l Line, p *piece) {
	s.push(unit{start: l.Offset, stream: p.stream, time: p.time})
	i := len(s.sc.units) - 1
	s.open(i, p.text)
	s.add(&s.sc.units[i], l, p, false)
}

// open makes the i-th unit the unfinished one of its stream; its first line is text.
func (s *Stream) open(i int, text []byte) {
	u := &s.sc.units[i]
	k := int(u.stream)
	if s.discard[k] {
		// Only the rest of a record that was cut.
		s.discard[k] = false
		u.absorbs, u.drop = true, true
	}
	s.sc.open[k] = i
	if m := s.f.multiline; m != nil {
		m.begin(u, text)
		if u.absorbs && !m.restOf(text) {
			u.absorbs, u.drop = false, false
		}
	}
}

// add appends a line to the unfinished record u.
func (s *Stream) add(u *unit, l Line, p *piece, newline bool) {
	if s.splits(u, len(p.text)) {
		s.finish(int(p.stream))
		s.begin(l, p)
		return
	}
	if !u.partial || u.lines == 0 {
		u.lines++
	}
	u.end, u.partial = l.End, p.partial
	if !u.absorbs {
		s.content(u, l, p.text, newline)
	}
	s.finishIfFull(u)
}

// splits tells whether u is to end before a line of n bytes that it has no room for. Where records are not split it takes no more of any line.
func (s *Stream) splits(u *unit, n int) bool {
	if u.absorbs || u.lines == 0 || s.fits(u, n) {
		return false
	}
	switch s.f.cfg.Oversize {
	case Split:
		u.note(OversizeSplit)
		return true
	case Skip:
		u.drop = true
		u.note(OversizeSkip)
	default:
		u.note(OversizeCut)
	}
	u.absorbs = true
	return false
}

// finishIfFull ends u if no line can belong to it any more.
func (s *Stream) finishIfFull(u *unit) {
	m := s.f.multiline
	if !u.partial && (m == nil || m.count > 0 && int(u.lines) >= m.count) {
		s.finish(int(u.stream))
	}
}

// fits tells whether u takes n more bytes. An empty one always does.
func (s *Stream) fits(u *unit, n int) bool {
	return u.first < 0 || int(u.bytes)+n+1 <= s.f.cfg.RecordBytesMax
}

// content appends b to u. Lines that follow each other in the block stay one slice of it.
func (s *Stream) content(u *unit, l Line, b []byte, newline bool) {
	sc := s.sc
	whole := s.block != nil && len(b) == len(l.Bytes)
	u.bytes += int32(len(b))
	if newline {
		u.bytes++
		// One byte between the two, a line feed: no carriage return is left inside.
		if last := &sc.parts[u.last]; whole && last.to == l.Offset && last.to-last.from == int64(len(last.b))+1 {
			from := last.from - s.at
			to := l.Offset - s.at + int64(len(b))
			last.b, last.to = s.block[from:to:to], l.End
			return
		}
	}
	p := part{b: b, newline: newline, next: -1, to: -1}
	if whole {
		p.from, p.to = l.Offset, l.End
	}
	sc.parts = append(sc.parts, p)
	i := int32(len(sc.parts) - 1)
	if u.first < 0 {
		u.first = i
	} else {
		sc.parts[u.last].next = i
	}
	u.last = i
}

// finish ends the unfinished record of a stream, if there is one.
func (s *Stream) finish(k int) {
	if i := s.sc.open[k]; i >= 0 {
		s.sc.units[i].done = true
		s.sc.open[k] = -1
	}
}

// Stuck tells that an unfinished record begins where this look at the file began, and nothing behind it can be taken.
func (s *Stream) Stuck() bool {
	return s.sc.head < len(s.sc.units) && !s.sc.units[s.sc.head].done && s.sc.units[s.sc.head].start == s.began
}

// Force ends the oldest record though it is not finished: the window is full.
func (s *Stream) Force() {
	u := &s.sc.units[s.sc.head]
	if s.settle(int(u.stream)); u.done {
		return // what follows does not belong to it
	}
	u.note(WindowFull)
	if u.absorbs {
		u.more = true
		s.discard[u.stream] = true
	}
	s.finish(int(u.stream))
}

// End is to be called when all there is of the file has been given: unfinished records that have not grown for the timeout
// end now.
func (s *Stream) End(now time.Time) {
	for k := range streams {
		i, last, a := s.sc.open[k], s.sc.forms[k], &s.age[k]
		if i < 0 {
			i = last
		}
		if last < 0 {
			last = i
		}
		if i < 0 {
			*a = age{}
			continue
		}
		u, end := &s.sc.units[i], s.sc.units[last].end
		if a.since.IsZero() || a.start != u.start || a.end != end {
			*a = age{u.start, end, now}
		}
		if now.Sub(a.since) >= s.f.cfg.Timeout {
			s.settle(k)
			if u = &s.sc.units[s.sc.open[k]]; u.partial {
				u.note(TimedOut)
			}
			s.finish(k)
		}
	}
}

// Close is End where nothing can follow: all that is unfinished ends.
func (s *Stream) Close() {
	for k := range streams {
		s.settle(k)
		s.finish(k)
	}
}

// Due is when the oldest unfinished record is to be ended, for the caller to look again; zero: there is none. It is about
// the last look, before another stream uses its scratch.
func (s *Stream) Due() time.Time {
	if s.sc.head == len(s.sc.units) || s.sc.units[s.sc.head].done {
		return time.Time{}
	}
	return s.age[s.sc.units[s.sc.head].stream].since.Add(s.f.cfg.Timeout)
}

// Paused is until when a rate limit holds the next record back; zero: none does.
func (s *Stream) Paused() time.Time { return s.paused }

// Rest is to be called when all there is of the file was taken: what it has of a rate limit and does not need goes back.
func (s *Stream) Rest() {
	if l := s.f.filter.limit; l != nil {
		s.grant.giveBack(l)
	}
}

// Forget is for a file whose content was replaced: nothing that was seen of it counts any more.
func (s *Stream) Forget() { s.age = [streams]age{} }
