package record

import (
	"bytes"
)

// What container runtimes write around messages.
//
//	CRI     2016-10-06T00:17:09.669794202Z stdout P the first part of a message
//	        2016-10-06T00:17:09.669794202Z stdout F and its end; further tags follow behind colons
//	Docker  {"log":"the first part of a message","stream":"stdout","time":"2016-10-06T00:17:09.669794202Z"}
//	        {"log":" and its end\n","stream":"stdout","time":"2016-10-06T00:17:09.669794202Z"}

// piece is what one line of a container log says.
type piece struct {
	text    []byte
	time    []byte // as it stands there
	stream  uint8  // stdout or stderr
	partial bool   // the message goes on in the next line of its stream
}

// Streams. A line that is in no container format has none, and is a record by itself.
const (
	stdout = iota
	stderr
	streams
	noStream = streams
)

var streamNames = [streams][]byte{[]byte("stdout"), []byte("stderr")}

func streamOf(name []byte) (uint8, bool) {
	switch string(name) {
	case "stdout":
		return stdout, true
	case "stderr":
		return stderr, true
	}
	return 0, false
}

// container takes a line apart. What stands in p may be in the arena.
func (s *Stream) container(b []byte, p *piece) (ok bool) {
	if len(b) > 0 && b[0] == 0 {
		b = bytes.TrimLeft(b, "\x00") // room that was reserved and lost its content in a power cut
	}
	if len(b) == 0 {
		return false
	}
	if c := s.f.cfg.Container; c == CRI || c == Auto && b[0] != '{' {
		return p.parseCRI(b)
	}
	s.sc.arena, ok = p.parseDocker(b, s.sc.arena)
	return ok
}

func (p *piece) parseCRI(b []byte) (ok bool) {
	at := bytes.IndexByte(b, ' ')
	if at < len("2006-01-02T15:04:05Z") || b[4] != '-' || b[10] != 'T' || b[0] < '0' || b[0] > '9' {
		return false
	}
	p.time = b[:at:at]
	b = b[at+1:]
	const streamBytes = len("stdout")
	if len(b) < streamBytes+2 || b[streamBytes] != ' ' {
		return false
	}
	if p.stream, ok = streamOf(b[:streamBytes]); !ok {
		return false
	}
	b = b[streamBytes+1:]
	if b[0] != 'F' && b[0] != 'P' {
		return false
	}
	p.partial = b[0] == 'P'
	if b = b[1:]; len(b) > 0 && b[0] == ':' { // further tags
		if at = bytes.IndexByte(b, ' '); at < 0 {
			at = len(b)
		}
		b = b[at:]
	}
	if len(b) == 0 {
		p.text = nil
		return true
	}
	if b[0] != ' ' {
		return false
	}
	p.text = b[1:]
	return true
}

func (p *piece) parseDocker(b, arena []byte) (grown []byte, ok bool) {
	m := objectMembers(b)
	hasLog := false
	var text []byte
	escaped := false
	for x, more := m.next(); more; x, more = m.next() {
		name, value := b[x.name+1:x.nameEnd-1], b[x.value:x.valueEnd]
		if value[0] != '"' {
			continue // attrs, an object
		}
		value = value[1 : len(value)-1]
		switch string(name) {
		case "log":
			text, hasLog, escaped = value, true, x.escaped
		case "stream":
			if s, known := streamOf(value); known {
				p.stream = s
			}
		case "time":
			p.time = value
		}
	}
	if m.bad || !hasLog || skipSpace(b, m.i) != len(b) {
		return arena, false
	}
	p.text, arena, p.partial = dockerText(text, escaped, arena)
	return arena, true
}

// dockerText is the message in a log member. A message ends with a line feed; one without goes on in the next line.
func dockerText(text []byte, escaped bool, arena []byte) (out, grown []byte, partial bool) {
	if !escaped {
		return text, arena, true
	}
	// The usual message has one escape, at its end.
	if n := len(text) - 2; bytes.IndexByte(text, '\\') == n && text[n+1] == 'n' {
		return text[:n:n], arena, false
	}
	from := len(arena)
	arena = appendUnescaped(arena, text)
	out = arena[from:len(arena):len(arena)]
	n := len(out)
	if n == 0 || out[n-1] != '\n' {
		return out, arena, true
	}
	if n--; n > 0 && out[n-1] == '\r' {
		n--
	}
	return out[:n:n], arena, false
}
