package tail

// Splitting is pure: bytes and a line state in, one decision out.
//
//	LF ends a line; one CR directly before it belongs to the delimiter; any other CR is content.
//	A byte order mark at offset 0 is dropped. An empty line is a record.
//	A run of 512 or more NULs where a line starts (a hole left by truncation or a power cut) is dropped.
//	A line longer than the limit is split, cut or skipped; what a state needs to go on is (LineState, part).

import (
	"bytes"
	"unicode/utf8"
)

// rule is how long a record may be, what happens above, and how a newline is encoded.
type rule struct {
	bytesMax int // of the file; even if wide
	oversize Oversize
	wide     bool // UTF-16: an offset where a unit starts is even
	big      bool // wide: the byte order
	noMark   bool // the encoding has no byte order mark
	// whole returns the largest length that does not end within a character of data, which starts with one; nil: UTF-8, or
	// UTF-16 if wide.
	whole func(data []byte) int
}

// unit is the length of a newline.
func (r *rule) unit() int {
	if r.wide {
		return 2
	}
	return 1
}

// lineAt is where in a line an offset is.
type lineAt struct {
	state LineState
	part  uint32 // Continued: number of the next part
	start bool   // the offset is 0
	inner bool   // the offset is odd: within a unit of UTF-16
}

// piece is split's decision about the head of data. n == 0: more bytes are needed, nothing else is set.
type piece struct {
	n        int  // bytes used up: record, delimiter and what is dropped
	emit     bool // data[from:to] is a record
	from, to int
	part     uint32
	cut      bool
	next     lineAt // behind n

	dropped  int  // bytes of oversize lines
	nul      int  // bytes of NUL runs
	oversize bool // an oversize line was met here (told once per line)
}

var (
	bom        = []byte{0xEF, 0xBB, 0xBF}
	markLittle = []byte{0xFF, 0xFE}
	markBig    = []byte{0xFE, 0xFF}
)

// mark returns the byte order mark that a file may begin with, nil for none.
func (r *rule) mark() []byte {
	switch {
	case r.noMark:
		return nil
	case r.wide && r.big:
		return markBig
	case r.wide:
		return markLittle
	}
	return bom
}

// split decides about the head of data, which starts at at.
func (r *rule) split(data []byte, at lineAt) piece {
	if len(data) < r.unit() {
		return piece{}
	}
	mark := r.mark()
	switch {
	case r.wide && at.inner: // what came before was read without the encoding: behind the first half of a newline, mostly
		return piece{n: 1, next: lineAt{state: at.state, part: at.part}}
	case at.state == Discard:
		return r.discard(data)
	case at.start && len(mark) > 0 && bytes.HasPrefix(data, mark):
		return piece{n: len(mark)}
	case at.start && bytes.HasPrefix(mark, data):
		return piece{} // one or two bytes of what may become a byte order mark
	case at.state == Fresh && data[0] == 0:
		run := r.nulRun(data)
		if run == len(data) {
			return piece{} // how long the run is shows later; Fill looks ahead
		}
		if run >= nulRunBytesMin {
			return piece{n: run, nul: run}
		}
	}

	end, n := r.line(data)
	if n == 0 {
		if over := len(data) - r.bytesMax; over < r.unit() || over < 2*r.unit() && r.isCR(data[r.bytesMax:]) {
			return piece{}
		}
		end = len(data)
	}
	if end > r.bytesMax {
		return r.tooLong(data, at)
	}
	p := piece{n: n, to: end, emit: true}
	if at.state == Continued {
		p.part = at.part
		p.emit = end > 0 // the delimiter of a line whose bytes were all handed out is no record
	}
	return p
}

// line returns the length of the first line of data without and with its delimiter; n == 0: its end is not in data.
func (r *rule) line(data []byte) (end, n int) {
	if r.wide {
		return r.wideLine(data)
	}
	lf := bytes.IndexByte(data, '\n')
	end = lf
	if lf > 0 && data[lf-1] == '\r' {
		end--
	}
	return end, lf + 1
}

// wideLine is line for UTF-16. A byte 0x0A may be half of another unit.
func (r *rule) wideLine(data []byte) (end, n int) {
	for i := 0; ; {
		lf := bytes.IndexByte(data[i:], '\n')
		if lf < 0 {
			return -1, 0
		}
		i += lf + 1
		u := (i - 1) &^ 1
		if u+2 <= len(data) && r.unitAt(data[u:]) == '\n' {
			end = u
			if u > 0 && r.isCR(data[u-2:]) {
				end -= 2
			}
			return end, u + 2
		}
	}
}

// lastLine returns where the last delimiter of data ends, 0 if there is none. data starts with a unit.
func (r *rule) lastLine(data []byte) int {
	if !r.wide {
		return bytes.LastIndexByte(data, '\n') + 1
	}
	for n := len(data) &^ 1; n > 0; n -= 2 {
		if r.unitAt(data[n-2:]) == '\n' {
			return n
		}
	}
	return 0
}

// unitAt is the first unit of data if wide.
func (r *rule) unitAt(data []byte) uint16 {
	if r.big {
		return uint16(data[0])<<8 | uint16(data[1])
	}
	return uint16(data[1])<<8 | uint16(data[0])
}

func (r *rule) isCR(data []byte) bool {
	if r.wide {
		return r.unitAt(data) == '\r'
	}
	return data[0] == '\r'
}

// tooLong handles a line with more than bytesMax bytes of content; its end may not be in data.
func (r *rule) tooLong(data []byte, at lineAt) piece {
	p := piece{oversize: at.state == Fresh || r.oversize != Split}
	if at.state == Continued {
		p.part = at.part
	}
	if r.oversize == Skip {
		d := r.discard(data)
		p.n, p.dropped, p.next = d.n, d.dropped, d.next
		return p
	}
	p.emit, p.to = true, r.cut(data)
	p.n = p.to
	if r.oversize == Cut {
		p.cut, p.next = true, lineAt{state: Discard}
		return p
	}
	p.next = lineAt{state: Continued, part: p.part + 1}
	return p
}

// discard drops bytes up to the next delimiter, of which a CR at the end of data may be the first half.
func (r *rule) discard(data []byte) piece {
	if end, n := r.line(data); n > 0 {
		return piece{n: n, dropped: end}
	}
	u := r.unit()
	n := len(data) / u * u
	if r.isCR(data[n-u:]) {
		n -= u
	}
	if n == 0 {
		return piece{}
	}
	return piece{n: n, dropped: n, next: lineAt{state: Discard}}
}

// cut returns where a line that goes on behind bytesMax is cut: not within a character.
func (r *rule) cut(data []byte) int {
	if !r.wide && r.whole == nil {
		return runeCut(data, r.bytesMax)
	}
	if n := r.wholeChars(data[:r.bytesMax]); n > 0 {
		return n
	}
	return r.bytesMax
}

func (r *rule) wholeChars(data []byte) int {
	switch {
	case r.whole != nil:
		return r.whole(data)
	case !r.wide:
		return wholeRunes(data)
	}
	n := len(data) &^ 1
	if n > 0 && r.unitAt(data[n-2:])&0xFC00 == 0xD800 {
		n -= 2 // half a surrogate pair
	}
	return n
}

// flushable returns how many bytes of an unfinished last line may be handed out now, 0 for none: NULs at its end, which may be
// room that is filled later, and a CR that may be half a delimiter stay, so does the first part of a character if something else can go. Raw bytes of what may
// never become a rune go alone; what is decoded waits, since its halves could not be put together again.
func (r *rule) flushable(data []byte, at lineAt) int {
	mark := r.mark()
	if at.state == Discard || at.start && len(mark) > 0 && (bytes.HasPrefix(mark, data) || bytes.HasPrefix(data, mark)) {
		return 0
	}
	u := r.unit()
	n := (len(data) - trailingNULs(data) + u - 1) / u * u
	if n = min(n, len(data)/u*u); n > 0 && r.isCR(data[n-u:]) {
		n -= u
	}
	if n > r.bytesMax {
		return r.cut(data)
	}
	if whole := r.wholeChars(data[:n]); whole > 0 || r.wide || r.whole != nil {
		return whole
	}
	return n
}

// trailingNULs returns the length of the run of NULs at the end of data: a hole, or room that the writer reserved.
func trailingNULs(data []byte) int {
	i := len(data)
	for i > 0 && data[i-1] == 0 {
		i--
	}
	return len(data) - i
}

// nulRun is the length of the run of NULs at the head of data, in whole units.
func (r *rule) nulRun(data []byte) int {
	n := nulRun(data)
	if r.wide && n < len(data) {
		n &^= 1 // a NUL may be half of a unit
	}
	return n
}

// nulRun returns the length of the run of NULs at the head of data.
func nulRun(data []byte) int {
	n := 0
	for len(data)-n >= len(zeros) && bytes.Equal(data[n:n+len(zeros)], zeros[:]) {
		n += len(zeros)
	}
	for n < len(data) && data[n] == 0 {
		n++
	}
	return n
}

var zeros [256]byte

// runeCut returns the largest cut <= limit that does not divide a rune of data (limit itself if the bytes
// there are not UTF-8). limit >= utf8.UTFMax, limit < len(data).
func runeCut(data []byte, limit int) int {
	for cut := limit; cut > limit-utf8.UTFMax; cut-- {
		if !utf8.RuneStart(data[cut]) {
			continue
		}
		if r, size := utf8.DecodeRune(data[cut:min(cut+utf8.UTFMax, len(data))]); cut+size > limit && (r != utf8.RuneError || !utf8.FullRune(data[cut:])) {
			return cut
		}
		return limit
	}
	return limit
}

// wholeRunes returns len(data) less the bytes of a rune that is cut off at the end.
func wholeRunes(data []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		i := len(data) - back
		if utf8.RuneStart(data[i]) {
			if !utf8.FullRune(data[i:]) {
				return i
			}
			break
		}
	}
	return len(data)
}
