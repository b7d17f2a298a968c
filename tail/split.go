package tail

// Splitting is pure: bytes and a line state in, one decision out.
//
//	LF ends a line; one CR directly before it belongs to the delimiter; any other CR is content.
//	A UTF-8 byte order mark at offset 0 is dropped. An empty line is a record.
//	A run of 512 or more NULs where a line starts (a hole left by truncation or a power cut) is dropped.
//	A line longer than the limit is split, cut or skipped; what a state needs to go on is (LineState, part).

import (
	"bytes"
	"unicode/utf8"
)

// rule is how long a record may be and what happens above.
type rule struct {
	bytesMax int
	oversize Oversize
}

// lineAt is where in a line an offset is.
type lineAt struct {
	state LineState
	part  uint32 // Continued: number of the next part
	start bool   // the offset is 0
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

var bom = []byte{0xEF, 0xBB, 0xBF}

// split decides about the head of data, which starts at at.
func (r rule) split(data []byte, at lineAt) piece {
	if len(data) == 0 {
		return piece{}
	}
	switch {
	case at.state == Discard:
		return discard(data)
	case at.start && bytes.HasPrefix(data, bom):
		return piece{n: len(bom)}
	case at.start && bytes.HasPrefix(bom, data):
		return piece{} // one or two bytes of what may become a byte order mark
	case at.state == Fresh && data[0] == 0:
		run := nulRun(data)
		if run < len(data) && run >= nulRunBytesMin {
			return piece{n: run, nul: run}
		}
		if run == len(data) {
			return piece{} // how long the run is shows later; Fill looks ahead
		}
	}

	lf := bytes.IndexByte(data, '\n')
	end := lf
	if lf > 0 && data[lf-1] == '\r' {
		end--
	}
	if lf < 0 {
		if len(data) <= r.bytesMax || len(data) == r.bytesMax+1 && data[r.bytesMax] == '\r' {
			return piece{}
		}
		end = len(data)
	}
	if end > r.bytesMax {
		return r.tooLong(data, lf, at)
	}
	p := piece{n: lf + 1, to: end, emit: true}
	if at.state == Continued {
		p.part = at.part
		p.emit = end > 0 // the delimiter of a line whose bytes were all handed out is no record
	}
	return p
}

// tooLong handles a line with more than bytesMax bytes of content; lf < 0: its end is not in data.
func (r rule) tooLong(data []byte, lf int, at lineAt) piece {
	p := piece{oversize: at.state == Fresh || r.oversize != Split}
	if at.state == Continued {
		p.part = at.part
	}
	if r.oversize == Skip {
		d := discard(data)
		p.n, p.dropped, p.next = d.n, d.dropped, d.next
		return p
	}
	p.emit, p.to = true, runeCut(data, r.bytesMax)
	p.n = p.to
	if r.oversize == Cut {
		p.cut, p.next = true, lineAt{state: Discard}
		return p
	}
	p.next = lineAt{state: Continued, part: p.part + 1}
	return p
}

// discard drops bytes up to the next newline.
func discard(data []byte) piece {
	if lf := bytes.IndexByte(data, '\n'); lf >= 0 {
		return piece{n: lf + 1, dropped: lf}
	}
	return piece{n: len(data), dropped: len(data), next: lineAt{state: Discard}}
}

// flushable returns how many bytes of an unfinished last line may be handed out now, 0 for none: a CR that
// may be half a delimiter stays, so does the first part of a rune if something else can go.
func (r rule) flushable(data []byte, at lineAt) int {
	if at.state == Discard || at.start && bytes.HasPrefix(bom, data) || at.start && bytes.HasPrefix(data, bom) {
		return 0
	}
	n := len(data) - trailingNULs(data)
	if n > 0 && data[n-1] == '\r' {
		n--
	}
	if n > r.bytesMax {
		return runeCut(data, r.bytesMax)
	}
	if whole := wholeRunes(data[:n]); whole > 0 {
		return whole
	}
	return n
}

// trailingNULs returns the length of the run of NULs at the end of data if it counts as a hole (or room the
// writer reserved), else 0.
func trailingNULs(data []byte) int {
	i := len(data)
	for i > 0 && data[i-1] == 0 {
		i--
	}
	if len(data)-i < nulRunBytesMin {
		return 0
	}
	return len(data) - i
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
