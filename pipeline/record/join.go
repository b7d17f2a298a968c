package record

// A container's log is rotated without regard for messages: one that was begun in a file may end in the next. Both files are
// looked at as if they were one then, until nothing of the older one is left.
//
//	older.Begin(...); older.Line(...) to the end of the older file
//	older.Join(place of the younger file)
//	older.Line(...) with lines of the younger one behind; Peek and Take as ever
//	the files go back to older.Places()

// Unfinished tells whether the oldest record that was not taken is a message whose end is missing.
func (s *Stream) Unfinished() bool {
	sc := s.sc
	return sc.head < len(sc.units) && !sc.units[sc.head].done && sc.units[sc.head].partial
}

// Join says that the lines that follow are of the file behind this one, whose place is p. It returns what their offsets are to be raised by.
func (s *Stream) Join(p Place) (shift int64) {
	s.join = s.pos
	if n := p.Note & noteSkipBytes; n > 0 {
		k := p.Note >> noteSkipStream & 1
		s.taken[k].to = max(s.taken[k].to, s.join+p.Offset+int64(n))
	}
	s.pos += p.Offset
	return s.join
}

// Joining tells whether a record that begins in the older file was not taken. Peek returns no others after Join.
func (s *Stream) Joining() bool {
	return s.sc.head < len(s.sc.units) && s.sc.units[s.sc.head].start < s.join
}

// Places are where both files must be read again; begun is where the younger one was begun. held is about the younger one, as in Place;
// with Joining both are.
func (s *Stream) Places(begun int64) (older, younger Place, held bool) {
	p, held := s.Place()
	if !s.Joining() {
		p.Offset -= s.join
		return Place{Offset: s.join}, p, held
	}
	older, younger = p, Place{Offset: begun}
	if n := int64(p.Note & noteSkipBytes); p.Offset+n > s.join {
		// What was taken of the other stream ends in the younger file.
		older.Note = p.Note&^noteSkipBytes | uint32(s.join-p.Offset)
		if n = p.Offset + n - s.join - begun; n > 0 {
			younger.Note = uint32(n) | p.Note&(1<<noteSkipStream)
		}
	}
	return older, younger, true
}
