package record

// A container's log is rotated without regard for messages: one that was begun in a file may end in the next, or in one behind that.
// The files are looked at as if they were one then, until nothing of the oldest is left.
//
//	oldest.Begin(...); oldest.Line(...) to the end of the oldest file
//	oldest.Join(note of the next file's cursor); oldest.Line(...) with lines of that; Peek and Take as ever
//	the same with the file behind it, if that one was read to its end, too
//	the files go back to oldest.PlaceIn(0), (1), ...

// Unfinished tells whether the oldest record that was not taken goes on in the next file, should there be one: the end of a
// message is missing, or, in a container's log, the next lines may belong to it.
func (s *Stream) Unfinished() bool {
	sc := s.sc
	return s.f.cfg.Container != NoContainer && sc.head < len(sc.units) && !sc.units[sc.head].done
}

// Join says that the lines that follow are of the file behind the last one, of which nothing was read; note is of its cursor. It
// returns what their offsets are to be raised by.
func (s *Stream) Join(note uint32) (shift int64) {
	shift = s.pos
	s.joined = append(s.joined, shift)
	if n := note & noteSkipBytes; n > 0 {
		k := note >> noteSkipStream & 1
		s.taken[k].to = max(s.taken[k].to, shift+int64(n))
	}
	return shift
}

// Bytes is how long the files are that this look was given, from its place on.
func (s *Stream) Bytes() int { return int(s.pos - s.began) }

// Joining tells whether a record that begins in the oldest file was not taken. Peek returns no others after Join.
func (s *Stream) Joining() bool {
	return s.sc.head < len(s.sc.units) && (len(s.joined) == 0 || s.sc.units[s.sc.head].start < s.joined[0])
}

// PlaceIn is where the i-th file must be read again for what was not taken. held: before the end of its last line.
func (s *Stream) PlaceIn(i int) (p Place, held bool) {
	at, held := s.Place()
	from, taken := int64(0), at.Offset+int64(at.Note&noteSkipBytes) // of the other stream all before this was
	if i > 0 {
		from = s.joined[i-1]
	}
	if i < len(s.joined) {
		to := s.joined[i]
		if at.Offset >= to {
			return Place{Offset: to - from}, false
		}
		held, taken = true, min(taken, to)
	}
	if p = (Place{at.Offset, at.Part, at.Note &^ (noteSkipBytes | 1<<noteSkipStream)}); at.Offset < from {
		p, held = Place{Offset: from}, from < s.pos
	}
	if n := taken - p.Offset; n > 0 {
		p.Note |= uint32(n) | at.Note&(1<<noteSkipStream)
	}
	p.Offset -= from
	return p, held
}
