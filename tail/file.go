package tail

import (
	"bytes"
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

// File is one open source. Its methods belong to the goroutine that holds it (from Handler.Open to Release);
// it reads through the caller's buffer and keeps 2.5 KB of its own.
//
// One turn of a reader:
//
//	n, st, err := f.Fill(buf, now)   grow buf and fill again if st.NeedBytes > 0
//	for line, ok := f.Next(); ok; line, ok = f.Next() { take line.Bytes }
//	nothing new at st.EOF: f.Flush(buf, now), later f.Release()
//
// Next must run to its false, or Unfill be called, before buf is used for anything else.
type File struct {
	w     *Watcher
	block *Block
	rule  rule
	dec   *decoder // nil: raw bytes

	// Written by Run at any time, read by the reader.
	path    atomic.Pointer[string]
	gone    atomic.Bool           // no pattern finds it now
	givenUp atomic.Bool           // to be released at once
	ready   atomic.Bool           // something happened to it since TakeReady
	check   atomic.Bool           // its times changed: the next Fill compares its head even if nothing follows the offset
	shrunk  atomic.Int64          // size before a scan saw it shrink; 0: none did
	touched atomic.Bool           // a scan saw it empty and changed
	born    atomic.Int64          // time of creation that it got while it was open; 0: it has the one it had
	behind  atomic.Bool           // what came before is looked for, or read: nothing is handed out until then
	isWhole atomic.Bool           // it is behind for its turn only: nothing in it went
	cut     atomic.Pointer[place] // where it was before it was truncated, until a receiver has what was in it, or nobody has; nil: nowhere else
	notify  atomic.Pointer[chan<- struct{}]

	unpacked atomic.Bool // all of a compressed copy was unpacked; written by the holder
	gaveWay  atomic.Bool // it is not unpacked, although it is in a receiver's hands: nothing may be read of it
	ended    atomic.Bool // it was read to its end once, or will not be
	late     atomic.Bool // it was held back, and not read to its end since

	fills   atomic.Uint64 // looks at the file
	id      atomic.Uint64 // written once by the receiver
	after   *File         // was truncated, and this is what was unread of it
	follows uint64        // number of the source whose place it took, 0: not known; written by Run before it is handed out

	room     atomic.Int64           // bytes of reserved room at the end, as of the last Fill
	readTo   atomic.Int64           // the offset, as of the last Fill or the end of what it filled
	takenTo  atomic.Int64           // end of what the last Fill filled
	filledTo atomic.Int64           // end of the file, as of the last Fill
	failed   atomic.Pointer[string] // why the last Fill failed; nil: it did not

	// Owned by the holder.
	fd       int         // -1: closed; only Run opens and closes
	rd       *reading    // nil: closed, or unpack has not found the cursor yet
	unpack   *unpacker   // nil: the file holds the lines as they are
	cur      Cursor      // while closed
	fp       Fingerprint // Prefix is brought up to date when asked for
	fpTold   Fingerprint
	dirTold  string
	pending  int       // bytes of the unfinished last line, as last seen
	nulTo    int64     // bytes from the offset to here are NUL, as last seen
	sizeSeen int64     // largest end of file that Fill saw
	headSeen headSeen  // what nothing was taken of yet, as the watcher was asked about it
	foundAs  int64     // time of the last write with which it was found, something in it; 0: it was empty, or is known for longer
	aloneAt  int64     // nothing came before what is read first if nothing beside it was changed since; 0: not known
	elders   []*File   // older generations that were being read when it was handed out
	left     bool      // the last Fill left it to the watcher
	sawEnd   bool      // all bytes there were have been filled
	grewAt   time.Time // when Fill last saw new bytes
	odd      piece     // of the line handed out last, if it was no ordinary one
	badRunes int       // characters of that line that are U+FFFD
	noFlush  bool      // what is pending is not worth a record (half a delimiter, a hole)

	told   string // error that Tells said yes to last
	toldAt time.Time

	countedTo int64 // odd lines below it are counted: what is held is handed out again
	reread    bool  // Reread was called

	copied
	owes      bool // see Owes
	restarted bool // Flush met a truncation that no Status has told yet

	src source // owned by Run
}

// tellAgainAfter is how long the same error of a file is told once.
const tellAgainAfter = 10 * time.Minute

// ID returns the number the receiver gave the source, 0 before SetID.
func (f *File) ID() uint64 { return f.id.Load() }

// SetID names a new source, once.
func (f *File) SetID(id uint64) {
	if id == 0 || !f.id.CompareAndSwap(0, id) && f.id.Load() != id {
		panic(fmt.Sprintf("BUG: tail: SetID(%d) of source %d", id, f.id.Load()))
	}
}

// Block returns the name of the source block.
func (f *File) Block() string { return f.block.Name }

// Path returns where the file was seen last. It follows renames; a file that left every pattern keeps the
// last path a pattern found it at.
func (f *File) Path() string { return *f.path.Load() }

// Fingerprint grows until 1024 bytes were read, and changes when the content is replaced in place.
func (f *File) Fingerprint() Fingerprint {
	if f.rd != nil {
		f.fp.Born = cmp.Or(f.born.Swap(0), f.fp.Born)
		// The whole head of a compressed copy is known before its first line was read.
		if prefix, n := f.rd.prefix(); f.unpack == nil || n > f.fp.PrefixBytes {
			f.fp.Prefix, f.fp.PrefixBytes = prefix, n
		}
	}
	return f.fp
}

// EntryChanged tells whether the fingerprint of Place or the directory of Path differs from what the spool knew, or from the last call.
// A name that a rotation gave leads nowhere that the old one does not.
func (f *File) EntryChanged() bool {
	fp, dir := f.fpTold, f.dirTold
	f.fpTold, _ = f.Place()
	f.dirTold = parent(f.Path())
	return fp != f.fpTold || dir != f.dirTold
}

// Cursor is the place behind the last line handed out (and behind what was dropped after it). A hash of 256
// bytes; no I/O.
func (f *File) Cursor() Cursor {
	if f.rd == nil {
		return f.cur
	}
	return f.rd.cursor()
}

// Owes tells a receiver that gets the file whether what it knows of it may be older than Place and Path: it was truncated since, and
// given back, or its directory was moved.
func (f *File) Owes() bool { return f.owes }

// Attach makes the watcher send to notify, without blocking, when it thinks that the file changed. One channel
// of capacity 1 may serve all files of a reader: TakeReady tells which. Only a hint: the reader also polls.
func (f *File) Attach(notify chan<- struct{}) {
	f.notify.Store(&notify)
	if f.after != nil && f.after.cut.Swap(nil) != nil {
		f.after.hint()
	}
}

// TakeReady tells whether there was a hint since the last call.
func (f *File) TakeReady() bool { return f.ready.Swap(false) }

// Wanted tells that unread files wait for a descriptor: a reader then releases files at their end at once and
// busy ones after their turn.
func (f *File) Wanted() bool { return f.w.wanted.Load() }

// Pending returns how long the unfinished last line is at most that Flush will hand out when it is due, else 0.
func (f *File) Pending() int {
	if f.noFlush {
		return 0
	}
	num, den := f.dec.growth()
	return (f.pending*num + den - 1) / den
}

// Fill reads from the offset on into buf and returns how many bytes Next has; 0: nothing new (call again at
// once if !st.EOF). An unfinished line is read again by the next Fill, unless nothing was added to it.
//
// buf starts with the last bytes before the offset, read again: that and the head of the file show in one or
// two system calls whether the content is still the one that was being read. If not, the source starts again
// at 0. len(buf) >= FillBytesMin.
func (f *File) Fill(buf []byte, now time.Time) (n int, st Status, err error) {
	r := f.rd
	if len(buf) < FillBytesMin {
		panic(fmt.Sprintf("BUG: tail: Fill with %d bytes", len(buf)))
	}
	st.Gone = f.gone.Load()
	if len(f.elders) > 0 && f.mustAskForTurn() {
		f.ask(false)
		st.EOF, st.Truncated, f.restarted = true, f.restarted, false
		return 0, st, nil
	}
	if st.Waits = !f.mayUnpack(); st.Waits {
		return 0, st, nil
	}
	if r == nil {
		if f.catchUp(&st); f.rd == nil {
			return 0, st, nil
		}
		r = f.rd
	}
	if r.buf != nil && r.pos != r.from {
		panic("BUG: tail: Fill before Next was drained or Unfill called")
	}
	r.settle()
	f.readTo.Store(r.offset())
	f.sawEnd, f.left = false, false
	if f.behind.Load() {
		st.EOF, st.Truncated, f.restarted = true, f.restarted, false
		return 0, st, nil
	}
	check := f.check.Swap(false)
	n, err = f.fill(buf, check, &st)
	f.fills.Add(1)
	f.filledTo.Store(f.sizeSeen)
	st.Truncated = st.Truncated || f.restarted
	f.restarted = false
	if err != nil {
		f.check.Store(true)
		err = fmt.Errorf("read %s at offset %d: %w", f.Path(), r.offset(), err)
		msg := err.Error()
		f.failed.Store(&msg)
		return 0, st, err
	}
	if f.failed.Load() != nil {
		f.failed.Store(nil)
		f.told = ""
	}
	f.w.stats.bytesRead.Add(uint64(n))
	f.takenTo.Store(r.offset() + int64(n))
	if n > f.pending || st.Truncated {
		f.grewAt, f.noFlush = now, false
	} else if n == f.pending && st.EOF && !check && !f.reread {
		n = 0
	}
	f.reread = false
	if n == 0 {
		r.settle() // the caller has nothing to drain and uses buf for other files
		if st.EOF && !f.left && (f.Pending() == 0 || !f.copy) {
			f.end()
		}
		return 0, st, nil
	}
	st.NeedBytes = f.needBytes(buf, n)
	f.sawEnd = st.EOF && st.NeedBytes == 0
	return n, st, nil
}

// fill reads, compares and places buf.
func (f *File) fill(buf []byte, check bool, st *Status) (int, error) {
	r := f.rd
	m, err := f.pread(buf, r.base-int64(r.anchorLen))
	if err != nil {
		return 0, err
	}
	f.tellUnpacked()
	st.Shrunk = m < r.anchorLen
	size := int64(-1)
	if m < len(buf) {
		size = int64(m)
	}
	replaced := st.Shrunk || f.cutUnread(size) || !bytes.Equal(buf[:r.anchorLen], r.anchor[:r.anchorLen])
	if !replaced && r.headLen > r.anchorLen && (check || m > r.anchorLen) {
		n, err := f.pread(r.scratch[:r.headLen], 0)
		if err != nil {
			return 0, err
		}
		replaced = !bytes.Equal(r.scratch[:n], r.head[:r.headLen])
	}
	if !replaced && r.base == 0 && f.unpack == nil && !f.copy && !f.block.Joins {
		switch f.lookAtBegin(buf[:m]) {
		case beginOther:
			replaced = true
		case beginAsked:
			f.sizeSeen, st.EOF = max(f.sizeSeen, int64(m)), true
			return 0, nil
		}
	}
	if replaced && (f.copy || f.whole) && f.gone.Load() {
		f.replaced, st.EOF = true, true
		return 0, nil
	}
	f.whole = f.whole || st.Gone && !replaced
	if replaced {
		f.startAgain()
		st.Truncated, st.EOF = true, true
		return 0, nil
	}
	st.EOF = m < len(buf)
	f.sizeSeen = max(f.sizeSeen, r.base-int64(r.anchorLen)+int64(m))
	r.place(buf[:m], r.anchorLen)
	data := r.buf[r.pos:]
	f.findOrder()
	nuls, n := trailingNULs(data), len(data)
	switch {
	case nuls < nulRunBytesMin:
		f.room.Store(0)
		return n, nil
	case nuls == n && r.at.state == Fresh:
		n, err = f.hole(buf, st)
	default:
		n, err = f.leaveRoom(n-nuls, st)
	}
	f.noteRoom(n)
	return n, err
}

// pread reads up to len(buf) bytes at off, fewer only at the end.
func (f *File) pread(buf []byte, off int64) (int, error) {
	if f.unpack != nil {
		return f.unpack.readAt(buf, off)
	}
	return pread(f.fd, buf[:f.within(off+int64(len(buf)))-off], off)
}

// findOrder looks up the byte order at the head of the file, if it may have one.
func (f *File) findOrder() {
	if !f.rule.wide {
		return
	}
	head := f.rd.head[:f.rd.headLen]
	if f.rd.base == 0 {
		head = f.rd.buf
	}
	f.rule.big = f.dec.order(head)
}

// needBytes returns the buffer size the first line needs if n bytes that fill buf do not hold it.
func (f *File) needBytes(buf []byte, n int) int {
	r := f.rd
	if r.buf == nil || len(r.buf) < len(buf) || r.at.state == Discard {
		return 0
	}
	enough := anchorBytesMax + f.rule.bytesMax + 2*f.rule.unit()
	if len(buf) >= enough {
		return 0
	}
	if _, n := f.rule.line(r.buf[r.pos:]); n > 0 {
		return 0
	}
	return min(2*len(buf), enough)
}

// Next returns the next record of the filled bytes; ok == false: Fill again. No allocation; no copy unless the block has
// an encoding.
func (f *File) Next() (l Line, ok bool) {
	r := f.rd
	if r == nil {
		return Line{}, false
	}
	data := r.buf[r.pos:]
	// The ordinary line. A NUL may begin a hole, 0xEF a byte order mark.
	if len(data) > 0 && r.at.state == Fresh && data[0] != 0 && data[0] != 0xEF && f.dec == nil {
		if i := bytes.IndexByte(data, '\n'); i >= 0 && i <= f.rule.bytesMax {
			end := i
			if i > 0 && data[i-1] == '\r' {
				end--
			}
			from := r.offset()
			r.pos += i + 1
			f.odd.dropped, f.odd.oversize = 0, false
			return Line{Bytes: data[:end:end], Offset: from, End: r.offset()}, true
		}
	}
	return f.nextOdd()
}

// nextOdd is Next for everything that is not an ordinary line.
func (f *File) nextOdd() (l Line, ok bool) {
	r := f.rd
	for {
		data := r.buf[r.pos:]
		p := f.rule.split(data, r.lineAt())
		if p.n == 0 {
			if r.buf != nil && !r.held.on {
				f.pending = len(data)
			}
			if f.sawEnd && (f.pending == 0 || !f.copy) {
				f.end()
			}
			if r.held.on {
				return Line{}, false
			}
			f.readTo.Store(r.offset())
			r.settle()
			return Line{}, false
		}
		first := f.countPiece(&p)
		l = Line{Bytes: data[p.from:p.to:p.to], Offset: r.offset() + int64(p.from), Part: p.part, Cut: p.cut}
		r.pos += p.n
		r.at = p.next
		l.End = r.offset()
		if p.emit {
			f.odd = p
			f.decode(&l, first)
			return l, true
		}
	}
}

// decode turns l into UTF-8 if the block has an encoding.
func (f *File) decode(l *Line, count bool) {
	if f.dec == nil {
		return
	}
	l.Bytes, f.badRunes = f.dec.decode(l.Bytes)
	if count {
		f.w.stats.replaced.Add(uint64(f.badRunes))
	}
}

// countPiece counts p, and tells whether it does so for the first time: what is held comes again.
func (f *File) countPiece(p *piece) (first bool) {
	off := f.rd.offset()
	if off < f.countedTo {
		return false
	}
	f.countedTo = off + int64(p.n)
	s := &f.w.stats
	if p.nul > 0 {
		s.nulBytes.Add(uint64(p.nul))
	}
	if p.dropped > 0 {
		s.oversizeBytes.Add(uint64(p.dropped))
	}
	if p.oversize {
		s.oversize[f.rule.oversize].Add(1)
	}
	return true
}

// uncount takes back what countPiece counted of the odd line handed out last.
func (f *File) uncount() {
	if f.odd.dropped > 0 {
		f.w.stats.oversizeBytes.Add(^uint64(f.odd.dropped - 1))
	}
	if f.odd.oversize {
		f.w.stats.oversize[f.rule.oversize].Add(^uint64(0))
	}
	f.w.stats.replaced.Add(-uint64(f.badRunes))
	f.odd, f.badRunes, f.countedTo = piece{}, 0, 0
}

// Unfill drops what is filled and not handed out; the next Fill reads it again. buf must still hold it.
func (f *File) Unfill() {
	if f.rd != nil && f.rd.buf != nil {
		f.rd.settle()
		f.pending, f.sawEnd = 0, false
	}
}

// Flush hands out an unfinished last line that did not grow for IdleFlush. What follows it in the file is its
// next part (Line.Part), and a newline alone is then no record. A CR that may be half a delimiter and the
// first bytes of a rune stay back. Call it when Next is drained and Fill had nothing new.
func (f *File) Flush(buf []byte, now time.Time) (l Line, ok bool, err error) {
	r := f.rd
	if f.Pending() == 0 || r.buf != nil || !f.idle(now) {
		return Line{}, false, nil
	}
	var st Status
	n, err := f.fill(buf, true, &st)
	if err != nil {
		return Line{}, false, fmt.Errorf("read %s at offset %d: %w", f.Path(), r.offset(), err)
	}
	if n != f.pending || !st.EOF || st.Truncated {
		// It moved after all: the next Fill tells.
		f.Unfill()
		f.check.Store(true)
		f.restarted = f.restarted || st.Truncated
		return Line{}, false, nil
	}
	data := r.buf[r.pos:]
	to := f.rule.flushable(data, r.lineAt())
	if to == 0 {
		f.noFlush = true
		r.settle()
		return Line{}, false, nil
	}
	l = Line{Bytes: data[:to:to], Offset: r.offset(), End: r.offset() + int64(to)}
	if r.at.state == Continued {
		l.Part = r.at.part
	}
	r.pos += to
	r.at = lineAt{state: Continued, part: l.Part + 1}
	r.settle()
	f.pending -= to
	f.grewAt = now
	f.w.stats.idleFlushes.Add(1)
	f.decode(&l, true)
	return l, true, nil
}

// Release gives the file back to the watcher, which hands it out again when it grows. It never blocks. The
// caller must not touch f or the bytes of its lines any more.
func (f *File) Release() {
	f.Unfill()
	if f.dec != nil {
		f.dec.out = nil
	}
	f.notify.Store(nil)
	f.w.unpacks.CompareAndSwap(f, nil)
	f.w.giveBack(f)
}
