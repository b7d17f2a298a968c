package record

import "slices"

// With multiline, whether a message in pieces belongs to the record before it is known only once it is there as a whole: its first
// piece may be shorter than what the pattern looks for. Until then it is a unit by itself behind that record, so the place in
// the file and the order of the streams are as if it were a record; then it is that, or it is put at the end of the other one.

// forming takes a piece of a message that is not there as a whole. false: the line is to be taken like any other.
func (s *Stream) forming(l Line, p *piece) bool {
	k := int(p.stream)
	i := s.sc.forms[k]
	if i < 0 {
		if open := s.sc.open[k]; s.f.multiline == nil || !p.partial || open >= 0 && s.sc.units[open].partial {
			return false
		}
		i = len(s.sc.units)
		s.push(unit{start: l.Offset, stream: p.stream, time: p.time, lines: 1})
		s.sc.forms[k] = i
	}
	u := &s.sc.units[i]
	if !s.fits(u, len(p.text)) {
		s.settle(k) // by what is there: no record holds more
		return false
	}
	u.end, u.partial = l.End, p.partial
	s.content(u, l, p.text, false)
	if !p.partial {
		s.settle(k)
	}
	return true
}

// settle decides what the message is that forms in a stream, if one does, by what is there of it.
func (s *Stream) settle(k int) {
	sc := s.sc
	j := sc.forms[k]
	if j < 0 {
		return
	}
	sc.forms[k] = -1
	message := &sc.units[j]
	sc.message = sc.appendContent(sc.message[:0], message)
	if i := sc.open[k]; i >= 0 {
		u := &sc.units[i]
		if s.f.multiline.continues(u, sc.message) {
			switch {
			case !u.absorbs && int(u.lines) >= s.f.multiline.linesMax:
				u.note(OversizeSplit)
			case !s.splits(u, int(message.bytes)):
				s.join(u, j)
				s.finishIfFull(u)
				return
			}
		}
		s.finish(k)
	}
	s.open(j, sc.message)
	s.finishIfFull(message)
}

// join puts the j-th unit, a message, at the end of u.
func (s *Stream) join(u *unit, j int) {
	sc := s.sc
	m := &sc.units[j]
	if !u.absorbs {
		sc.parts[m.first].newline = true
		sc.parts[u.last].next = m.first
		u.last = m.last
		u.bytes += m.bytes + 1
	}
	u.lines++
	u.end, u.partial = m.end, m.partial
	sc.units = slices.Delete(sc.units, j, j+1) // few units: those of the other stream since the message began
	for k := range streams {
		if sc.open[k] > j {
			sc.open[k]--
		}
		if sc.forms[k] > j {
			sc.forms[k]--
		}
	}
}
