package tail

// Back takes back l, the line that Next handed out last: the next Next hands it out again, and Cursor is before it. For a
// receiver that has no room for it. A line of Flush cannot be taken back: call Flush only when there is room.
func (f *File) Back(l Line) {
	r := f.rd
	if r.buf == nil || l.End != r.offset() {
		panic("BUG: tail: Back of another line than the one Next handed out last")
	}
	f.uncount()
	r.pos = int(l.Offset - r.base)
	r.at = lineAt{}
	if l.Part > 0 {
		r.at = lineAt{state: Continued, part: l.Part}
	}
}
