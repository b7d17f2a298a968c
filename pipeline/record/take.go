package record

import (
	"time"
	"unicode/utf8"
)

// Peek returns the oldest finished record that passes the filters; the same one until Take. Those that do not pass are
// taken and counted. false: none is finished, an older one is unfinished, or a rate limit says wait (Paused).
func (s *Stream) Peek(now time.Time) (r *Record, ok bool) {
	sc := s.sc
	s.paused = time.Time{}
	for !s.peeked {
		if sc.head == len(sc.units) || !sc.units[sc.head].done {
			return nil, false
		}
		u := &sc.units[sc.head]
		if len(s.joined) > 0 && u.start >= s.joined[0] {
			return nil, false
		}
		if u.drop {
			s.why = 0
			s.pop()
			continue
		}
		text := s.gather(u)
		repair := s.f.cfg.UTF8 && !utf8.Valid(text)
		if repair {
			text = s.repaired(text)
		}
		switch reason, drop := s.judge(text, now); {
		case !s.paused.IsZero():
			return nil, false
		case drop:
			s.why = 1 << reason
			s.count++
			s.pop()
			continue
		}
		s.render(u, text, now)
		if s.peeked = true; repair {
			s.note(Repaired)
		}
	}
	return &s.rec, true
}

// Take takes the record that Peek returned.
func (s *Stream) Take() {
	if !s.peeked {
		panic("BUG: record: Take without Peek")
	}
	if l := s.f.filter.limit; l != nil {
		s.grant.spend(l, len(s.rec.Value))
	}
	s.count++
	s.pop()
}

// pop takes the first unit.
func (s *Stream) pop() {
	sc := s.sc
	u := &sc.units[sc.head]
	for why := u.why | s.why; why != 0; why &= why - 1 {
		sc.Counts[lowest(why)]++
	}
	if u.stream != noStream {
		s.taken[u.stream] = taken{to: u.end, discard: u.more}
	}
	if u.stream == noStream || u.linePart > 0 {
		for k := range streams {
			s.taken[k].discard = false
		}
	}
	s.peeked = false
	if sc.head++; sc.head == len(sc.units) {
		sc.units, sc.parts, sc.arena, sc.head = sc.units[:0], sc.parts[:0], sc.arena[:0], 0
	}
}

// gather returns the content of u. Only what is not one stretch already is copied.
func (s *Stream) gather(u *unit) []byte {
	sc := s.sc
	if u.first < 0 {
		return u.text
	}
	if u.first == u.last {
		return sc.parts[u.first].b
	}
	sc.joined = sc.appendContent(sc.joined[:0], u)
	return sc.joined
}

// appendContent appends the content of u, which has parts.
func (sc *Scratch) appendContent(b []byte, u *unit) []byte {
	for i := u.first; i >= 0; i = sc.parts[i].next {
		p := &sc.parts[i]
		if p.newline {
			b = append(b, '\n')
		}
		b = append(b, p.b...)
	}
	return b
}

// repaired is text with U+FFFD for bytes that are not UTF-8, or with ? where it would have more bytes than a record may. Only of a whole
// message can that be said: its pieces end and begin within characters.
func (s *Stream) repaired(text []byte) []byte {
	b, room := s.sc.repaired[:0], s.f.cfg.RecordBytesMax-len(text)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r != utf8.RuneError || size > 1:
			b = append(b, text[:size]...)
		case room < utf8.RuneLen(utf8.RuneError)-1:
			b = append(b, '?')
		default:
			b = utf8.AppendRune(b, r)
			room -= utf8.RuneLen(utf8.RuneError) - 1
		}
		text = text[size:]
	}
	s.sc.repaired = b
	return b
}

// render makes the record.
func (s *Stream) render(u *unit, text []byte, now time.Time) {
	s.why = 0
	if len(s.f.redact) > 0 {
		text = s.redacted(text)
	}
	s.rec = Record{Value: text}
	at, found, moved := s.timeOf(u, text, now)
	s.rec.TimeMs = at
	if len(s.f.key) > 0 {
		s.makeKey(u, text)
	}
	s.makeHeaders(u, found, moved)
	if s.f.envelope != nil {
		s.rec.Value = s.wrap(u, text)
	}
}

func (s *Stream) note(r Reason) { s.why |= 1 << r }
