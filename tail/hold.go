package tail

import "time"

// For a receiver that makes records of several lines. The file's place stays at the first line of what is not finished
// while the lines behind it are handed out; the next Fill reads from there again, and so does a restart.
//
//	n, st, err := f.Fill(buf, now)
//	block, at := f.Keep()
//	for line, ok := f.Next(); ok; line, ok = f.Next() { ... f.Hold(...) whenever the place moves }
//	f.Done()

// held is where the offset stays while Next goes on.
type held struct {
	on  bool
	pos int // in buf
	at  lineAt
}

// kept is the position in buf that offset, head and anchor are about.
func (r *reading) kept() int {
	if r.held.on {
		return r.held.pos
	}
	return r.pos
}

// Keep makes the place stay where it is while lines are handed out: Next's false leaves the filled bytes as they are until Done, and
// Cursor is where Hold says. block is what lines are slices of, from offset at on; nil if the block has an encoding.
func (f *File) Keep() (block []byte, at int64) {
	r := f.rd
	r.held = held{on: true, pos: r.pos, at: r.at}
	if f.dec != nil || r.buf == nil {
		return nil, 0
	}
	return r.buf, r.base
}

// Hold moves the place to a line that was handed out since Keep. note goes with it, and comes back in the cursor; it is 0
// for a part of a line.
func (f *File) Hold(offset int64, part, note uint32) {
	r := f.rd
	pos := int(offset - r.base)
	if !r.held.on || pos < r.held.pos || pos > r.pos || part > 0 && note > 0 {
		panic("BUG: tail: Hold of a line that was not handed out")
	}
	r.held.pos, r.held.at = pos, lineAt{}
	if part > 0 {
		r.held.at = lineAt{state: Continued, part: part}
	}
	r.note, r.noteAt = note, offset
}

// HoldHere moves the place behind the last line that was handed out.
func (f *File) HoldHere(note uint32) {
	r := f.rd
	r.held.pos, r.held.at = r.pos, r.at
	r.note, r.noteAt = note, r.offset()
}

// Rest hands out the unfinished last line that Next left, if the file has not grown for IdleFlush; see Flush. To be
// called when Fill said EOF and Next false. It comes again as long as the place stays before it.
func (f *File) Rest(now time.Time) (l Line, ok bool) {
	r := f.rd
	data := r.buf[r.pos:]
	if len(data) == 0 || !f.idle(now) {
		return Line{}, false
	}
	to := f.rule.flushable(data, r.lineAt())
	if f.noFlush = to == 0; f.noFlush {
		return Line{}, false
	}
	l = Line{Bytes: data[:to:to], Offset: r.offset(), End: r.offset() + int64(to)}
	if r.at.state == Continued {
		l.Part = r.at.part
	}
	r.pos += to
	r.at = lineAt{state: Continued, part: l.Part + 1}
	first := l.Offset >= f.countedTo
	if first {
		f.countedTo = l.End
		f.w.stats.idleFlushes.Add(1)
	}
	f.decode(&l, first)
	return l, true
}

// RestDue tells whether Rest may have something although Fill has nothing new.
func (f *File) RestDue(now time.Time) bool {
	return f.pending > 0 && !f.noFlush && f.idle(now)
}

// Reread makes the next Fill hand out again what is held, though nothing was added to it.
func (f *File) Reread() { f.reread = true }

// Done ends what Keep began: the place is the offset. It returns how many bytes behind it there were; a Fill that returns
// no more has nothing new.
func (f *File) Done() (pending int) {
	r := f.rd
	if r.buf == nil {
		r.held.on = false
		return f.pending
	}
	f.pending = len(r.buf) - r.held.pos
	r.settle()
	return f.pending
}
