package tail

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// reading is what an open file remembers of the bytes below its offset, and the part of the reader's buffer
// it is handing out. It lives as long as the descriptor.
//
// Invariants: head holds the first min(1024, offset) bytes at least, and more where lines behind the offset were handed out;
// anchor the last min(256, offset) bytes before the offset, both as they were when handed out; while buf != nil only up to
// where Fill found the offset.
type reading struct {
	buf  []byte // what Fill read, from base on; nil: nothing is filled
	pos  int    // next byte of buf to hand out
	from int    // pos as Fill left it
	base int64  // offset of buf[0]; with buf == nil (pos is 0 then) the offset itself
	at   lineAt // start is not kept here: it is offset() == 0
	held held

	note   uint32 // of the receiver, about noteAt
	noteAt int64

	head      [prefixBytesMax]byte
	headLen   int
	anchor    [anchorBytesMax]byte
	anchorLen int

	scratch [prefixBytesMax]byte // the head as it is in the file now
}

func (r *reading) offset() int64 { return r.base + int64(r.pos) }

// lineAt is the split state at the offset.
func (r *reading) lineAt() lineAt {
	at := r.at
	off := r.offset()
	at.start, at.inner = off == 0, off&1 == 1
	return at
}

// place makes buf the filled part: it starts anchor bytes before the offset.
func (r *reading) place(buf []byte, anchor int) {
	r.base, r.buf, r.pos, r.from = r.offset()-int64(anchor), buf, anchor, anchor
}

// settle takes what must be remembered out of the caller's buffer and lets go of it.
func (r *reading) settle() {
	if r.buf == nil {
		return
	}
	r.extendHead()
	if r.held.on {
		r.pos, r.at, r.held.on = r.held.pos, r.held.at, false
	}
	r.anchorLen = copy(r.anchor[:], r.lastBytes())
	r.base, r.buf, r.pos, r.from = r.offset(), nil, 0, 0
}

// lastBytes returns the bytes that anchor the offset.
func (r *reading) lastBytes() []byte {
	if r.buf == nil {
		return r.anchor[:r.anchorLen]
	}
	pos := r.kept()
	return r.buf[max(0, pos-anchorBytesMax):pos]
}

func (r *reading) extendHead() {
	if r.buf == nil || r.headLen == prefixBytesMax {
		return
	}
	// base <= headLen: it is at most 256 below the offset that head reached.
	to := min(prefixBytesMax-r.base, int64(r.pos))
	if from := int64(r.headLen) - r.base; from < to {
		r.headLen += copy(r.head[r.headLen:], r.buf[from:to])
	}
}

// jump moves the offset forward over NULs to off, at least one anchor ahead.
func (r *reading) jump(off int64) {
	r.settle()
	clear(r.anchor[:])
	r.anchorLen = anchorBytesMax
	if n := int(min(off, prefixBytesMax)); n > r.headLen {
		clear(r.head[r.headLen:n])
		r.headLen = n
	}
	r.base = off
}

// restart forgets everything: the file is read from 0 again.
func (r *reading) restart() {
	r.base, r.buf, r.pos, r.from = 0, nil, 0, 0
	r.at, r.held, r.note, r.noteAt = lineAt{}, held{}, 0, 0
	r.headLen, r.anchorLen = 0, 0
}

func (r *reading) cursor() Cursor {
	at := r.at
	if r.held.on {
		at = r.held.at
	}
	c := Cursor{Offset: r.base + int64(r.kept()), State: at.state, Part: at.part}
	if c.Offset == r.noteAt && c.State == Fresh {
		c.Note = r.note
	}
	if last := r.lastBytes(); len(last) > 0 {
		c.Anchor, c.AnchorBytes = xxhash.Sum64(last), uint16(len(last))
	}
	return c
}

// readAt reads up to len(buf) bytes at off; fewer only at the end.
type readAt func(buf []byte, off int64) (int, error)

// load takes head and anchor for c.Offset from the file, and the line state from c.
func (r *reading) load(read readAt, c Cursor) error {
	r.restart()
	r.base = c.Offset
	r.at, r.note, r.noteAt = lineAt{state: c.State, part: c.Part}, c.Note, c.Offset
	head, err := read(r.head[:min(prefixBytesMax, c.Offset)], 0)
	if err != nil {
		return err
	}
	last := min(anchorBytesMax, c.Offset)
	anchor, err := read(r.anchor[:last], c.Offset-last)
	if err != nil {
		return err
	}
	r.headLen, r.anchorLen = head, anchor
	return nil
}

// resume loads head and anchor for c and tells whether the file has the bytes that fp and c remember: whether
// reading may go on at c.Offset. Less than remembered is never enough.
func (r *reading) resume(read readAt, fp Fingerprint, c Cursor) (bool, error) {
	if c.Offset < 0 || c.AnchorBytes > anchorBytesMax || int64(c.AnchorBytes) > c.Offset || fp.PrefixBytes > prefixBytesMax {
		return false, nil // not written by this package
	}
	if err := r.load(read, c); err != nil {
		return false, err
	}
	if int64(r.headLen) < min(prefixBytesMax, c.Offset) || int64(r.anchorLen) < min(anchorBytesMax, c.Offset) {
		return false, nil
	}
	if n := int(fp.PrefixBytes); n > 0 {
		// It may cover bytes behind the offset: it was told later, or lines were held there.
		m, err := read(r.scratch[:n], 0)
		if err != nil {
			return false, err
		}
		if m < n || xxhash.Sum64(r.scratch[:n]) != fp.Prefix {
			return false, nil
		}
		if n > r.headLen {
			r.headLen = copy(r.head[:], r.scratch[:n])
		}
	}
	if n := int(c.AnchorBytes); n > 0 && xxhash.Sum64(r.anchor[r.anchorLen-n:r.anchorLen]) != c.Anchor {
		return false, nil
	}
	return true, nil
}

// prefix returns the hash of the head and its length.
func (r *reading) prefix() (uint64, uint32) {
	r.extendHead()
	if r.headLen == 0 {
		return 0, 0
	}
	return xxhash.Sum64(r.head[:r.headLen]), uint32(r.headLen)
}

// compressions are the first bytes of files whose lines are not text any more.
var compressions = []struct{ name, magic string }{
	{"gzip", "\x1f\x8b"},
	{"zstd", "\x28\xb5\x2f\xfd"},
	{"xz", "\xfd7zXZ\x00"},
	{"bzip2", "BZh"},
	{"lz4", "\x04\x22\x4d\x18"},
	{"zip", "PK\x03\x04"},
}

// compressed names the compression that a file's first bytes show, or "".
func compressed(head []byte) string {
	for _, c := range compressions {
		if len(c.magic) <= len(head) && string(head[:len(c.magic)]) == c.magic {
			return c.name
		}
	}
	return ""
}

const magicBytesMax = 6 // of compressions

// isMagicPart tells whether a file that begins with head, and has no more, may become a compressed one.
func isMagicPart(head []byte) bool {
	for _, c := range compressions {
		if len(head) < len(c.magic) && c.magic[:len(head)] == string(head) {
			return true
		}
	}
	return false
}

func (fp Fingerprint) String() string {
	return fmt.Sprintf("device %d inode %d prefix %016x/%d", fp.Dev, fp.Ino, fp.Prefix, fp.PrefixBytes)
}
