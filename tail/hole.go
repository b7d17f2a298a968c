package tail

import "time"

// Runs of NULs: holes that a truncation or a power cut left, which are passed over, and room that a writer reserved (with
// fallocate, or to map it into memory), which it fills from the front.

// holeChunksMax bounds how much of a run one Fill looks through.
const holeChunksMax = 64

const roomBytes = 256 << 10 // of room that is looked through at once

// hole looks for the end of a run of NULs that fills the buffer. Found: the offset jumps there. At the end of
// the file nothing moves: a writer that reserved room may still fill it from the front.
func (f *File) hole(buf []byte, st *Status) (int, error) {
	r := f.rd
	off := r.offset()
	p := max(off+int64(len(r.buf)-r.pos), f.nulTo)
	r.settle()
	p, end, err := f.lookForText(buf, p)
	switch {
	case err != nil:
		return 0, err
	case end == nulsOn:
		f.nulTo, st.EOF = p, false
		return 0, nil
	case end == fileEnd:
		f.nulTo, st.EOF = p, true
		f.pending, f.noFlush = 0, true
		return 0, nil
	}
	f.w.stats.nulBytes.Add(uint64(p - off))
	r.jump(p)
	f.nulTo, f.pending = 0, 0
	m, err := f.pread(buf, r.base-int64(r.anchorLen))
	if err != nil {
		return 0, err
	}
	m = max(m, r.anchorLen) // cut short just now: the next Fill finds out
	st.EOF = m < len(buf)
	f.sizeSeen = max(f.sizeSeen, r.base-int64(r.anchorLen)+int64(m))
	r.place(buf[:m], r.anchorLen)
	return m - r.pos, nil
}

// leaveRoom hides the run of NULs that the buffer ends with, behind n bytes, if the file ends with it: room that the writer of an
// unfinished line fills later must not be taken for a part of it. It returns how many bytes are left to hand out.
func (f *File) leaveRoom(n int, st *Status) (int, error) {
	r := f.rd
	data := r.buf[r.pos:]
	if f.unpack != nil {
		return len(data), nil // nobody writes there any more
	}
	p, end, err := f.lookForText(r.scratch[:], max(r.offset()+int64(len(data)), f.nulTo))
	if err == nil && end == nulsOn {
		p, end, err = f.lookForText(make([]byte, roomBytes), p)
	}
	switch {
	case err != nil:
		return 0, err
	case end == text:
		f.nulTo = 0
		return len(data), nil
	}
	f.nulTo, st.EOF = p, true // as far as it was looked through: the next Fill goes on there
	u := f.rule.unit()        // a NUL may be half of one
	n = min((n+u-1)/u*u, len(data))
	r.buf = r.buf[:r.pos+n]
	return n, nil
}

// noteRoom keeps for others how much room follows the n bytes that are filled.
func (f *File) noteRoom(n int) {
	f.room.Store(max(0, f.nulTo-f.rd.offset()-int64(n)))
}

// unreadSeen returns how many bytes of f are unread, as far as Run may know it. Reserved room is none.
func (f *File) unreadSeen() int64 {
	return max(0, f.src.st.size-f.offsetSeen()-f.room.Load())
}

// roomPeekBytes is how much of reserved room is looked at to find out whether its writer has gone on.
const roomPeekBytes = 4096

// roomFilled looks, if it is time, whether something was written into the reserved room of a file that no reader holds.
func (w *Watcher) roomFilled(f *File) bool {
	s := &f.src
	if s.out {
		return false
	}
	from := f.cursorOffset() + int64(f.pending)
	if f.nulTo <= from {
		return false
	}
	now, changed := w.now(), s.changedAt
	if f.grewAt.After(changed) {
		changed = f.grewAt
	}
	if now.Sub(s.roomAt) < roomGap(now.Sub(changed)) {
		return false
	}
	s.roomAt = now
	fd := f.fd
	if fd < 0 {
		path := f.Path()
		if s.missing {
			path = s.at
		}
		var err error
		if fd, err = w.openRead(path); err != nil {
			return false
		}
		defer closeFD(fd)
	}
	var room [roomPeekBytes]byte
	n, err := pread(fd, room[:], from)
	return err == nil && trailingNULs(room[:n]) < n
}

// roomGap is how long a file with reserved room is left alone that did not change for so long: what is written to memory that it is
// mapped to shows in its times only when the kernel writes it out, and on a tmpfs never.
func roomGap(unchanged time.Duration) time.Duration {
	return min(max(unchanged/8, time.Second), time.Minute)
}

// nulEnd is what follows the NULs that were looked through.
type nulEnd uint8

const (
	nulsOn nulEnd = iota // more of them, perhaps
	text
	fileEnd
)

// lookForText looks through NULs from p on, with buf, and returns where it stopped and what is there.
func (f *File) lookForText(buf []byte, p int64) (int64, nulEnd, error) {
	s, err := statFD(f.fd)
	if err != nil {
		return 0, 0, err
	}
	for range holeChunksMax {
		if f.unpack == nil {
			p = seekData(f.fd, p, s.size)
		}
		if f.rule.wide {
			p &^= 1
		}
		n, err := f.pread(buf, p)
		if err != nil {
			return 0, 0, err
		}
		if n == 0 {
			if f.unpack == nil {
				p = min(p, s.size)
			}
			return p, fileEnd, nil
		}
		run := f.rule.nulRun(buf[:n])
		if p += int64(run); run < n {
			return p, text, nil
		}
	}
	return p, nulsOn, nil
}
