package tail

// Reading what a compressed copy of a log holds. Offsets are those of the unpacked bytes, so a cursor goes on in the copy
// where it stood in the file; to get there everything before it is unpacked again, in slices, and then the anchor must
// match as it must in a file.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	gzipName = "gzip"
	zstdName = "zstd"

	zstdWindowMax    = 8 << 20 // what decoders must take, and what zstd uses up to level 19; a file that needs more is not read
	unpackSliceBytes = 8 << 20 // unpacked in one Fill on the way to the cursor
	inputBytes       = 64 << 10
)

// unpacker reads a compressed file from front to back. Memory: the decoder's window (at most zstdWindowMax) and a copy of
// what was read last. It belongs to the holder of the file.
type unpacker struct {
	fd   int
	at   int64 // bytes taken of the compressed file
	kind string
	in   *bufio.Reader
	gz   *gzip.Reader
	zst  *zstd.Decoder
	out  io.Reader // gz or zst; nil: nothing was read yet

	head    [prefixBytesMax]byte
	headLen int
	last    []byte // the unpacked bytes before pos
	pos     int64  // unpacked so far

	other  bool  // its anchor was not: another file's copy, or it ends before that
	ended  bool  // everything was unpacked
	torn   bool  // the file ends in the middle: it is still being written, or was never finished
	damage error // it cannot be unpacked further
}

func newUnpacker(fd int, kind string) *unpacker { return &unpacker{fd: fd, kind: kind} }

// Read is the decoder's input.
func (u *unpacker) Read(p []byte) (int, error) {
	n, err := pread(u.fd, p, u.at)
	u.at += int64(n)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// restart goes back to the first byte.
func (u *unpacker) restart() (err error) {
	u.at, u.pos, u.last, u.out = 0, 0, u.last[:0], nil
	u.ended, u.torn, u.damage = false, false, nil
	if u.in == nil {
		u.in = bufio.NewReaderSize(u, inputBytes)
	}
	u.in.Reset(u)
	switch u.kind {
	case gzipName:
		if u.gz == nil {
			u.gz = new(gzip.Reader)
		}
		u.out, err = u.gz, u.gz.Reset(u.in)
	case zstdName:
		if u.zst == nil {
			u.zst, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindowMax))
			if err != nil {
				return err
			}
		}
		u.out, err = u.zst, u.zst.Reset(u.in)
	default:
		return fmt.Errorf("%s is not a compression that is read", u.kind)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (u *unpacker) close() {
	if u != nil && u.zst != nil {
		u.zst.Close()
	}
}

// more unpacks into buf and notes how it ended if it did.
func (u *unpacker) more(buf []byte) (n int) {
	if u.ended || u.torn || u.damage != nil {
		return 0
	}
	var err error
	if u.out == nil {
		err = u.restart()
	}
	for err == nil && n < len(buf) {
		var m int
		m, err = u.out.Read(buf[n:])
		n += m
	}
	if u.pos < prefixBytesMax {
		u.headLen = max(u.headLen, int(u.pos)+copy(u.head[u.pos:], buf[:n]))
	}
	u.pos += int64(n)
	switch {
	case err == nil:
	case err == io.EOF:
		u.ended = true
	case errors.Is(err, io.ErrUnexpectedEOF):
		u.torn = true
	default:
		u.damage = err
	}
	return n
}

// endsBefore tells whether all of it was unpacked and it holds fewer than n bytes.
func (u *unpacker) endsBefore(n int64) bool { return u.ended && u.pos < n }

// readAt is pread of the unpacked bytes. Going back further than what was read last costs a new start. It never fails:
// damage is an end, which Run tells.
func (u *unpacker) readAt(buf []byte, off int64) (n int, err error) {
	if off+int64(len(buf)) <= int64(u.headLen) {
		return copy(buf, u.head[off:]), nil
	}
	if off < u.pos-int64(len(u.last)) {
		if err := u.restart(); err != nil {
			u.damage = err
			return 0, nil
		}
	}
	for u.pos < off { // the caller has been here, or went the way in slices
		if u.skip(off) == 0 {
			return 0, nil
		}
	}
	n = copy(buf, u.last[int64(len(u.last))-(u.pos-off):])
	if n < len(buf) {
		n += u.more(buf[n:])
		u.last = append(u.last[:0], buf[:n]...)
	}
	return n, nil
}

// skip unpacks some of what is before off; 0: there is no more.
func (u *unpacker) skip(off int64) (n int) {
	if cap(u.last) < inputBytes {
		u.last = make([]byte, 0, inputBytes)
	}
	buf := u.last[:min(int64(cap(u.last)), off-u.pos)]
	n = u.more(buf)
	u.last = buf[:n]
	return n
}

// Complete tells that all that can be read of the file was handed out and nothing can follow: a compressed copy was read to its
// end, or as far as it goes. The receiver should release it then, since others may wait to be unpacked.
func (f *File) Complete() bool {
	u := f.unpack
	switch {
	case u == nil:
		return false
	case u.other || f.EndMissing():
		return true
	}
	return u.ended && f.rd != nil && f.rd.offset()+int64(f.pending) == u.pos && f.Pending() == 0
}

// idle tells whether an unfinished last line has waited long enough for its end.
func (f *File) idle(now time.Time) bool {
	return now.Sub(f.grewAt) >= f.block.IdleFlush || f.unpack != nil && f.unpack.ended
}

// catchUp is Fill of a compressed copy before its cursor was found.
func (f *File) catchUp(st *Status) {
	u := f.unpack
	f.pending, f.nulTo, f.noFlush = 0, 0, false
	start := max(0, f.cur.Offset-anchorBytesMax) // the anchor is read in one piece
	for left := unpackSliceBytes; u.pos < start; {
		if left <= 0 {
			return
		}
		n := u.skip(start)
		if n == 0 {
			u.other, st.EOF = u.ended, true
			return
		}
		left -= n
	}
	r := &reading{}
	if same, _ := r.resume(u.readAt, f.fp, f.cur); !same { // readAt never fails
		u.other, st.EOF = u.damage == nil && !u.torn, true
		return
	}
	f.rd = r
}

// peek reads the first bytes of a file, unpacked if it is compressed, and with what; kind is also set for compressions
// that are not read.
func (w *Watcher) peek(sib sibling) (p peeked, err error) {
	fd, err := w.openSibling(sib)
	if err != nil {
		return p, err
	}
	defer closeFD(fd)
	head := make([]byte, prefixBytesMax)
	n, err := pread(fd, head, 0)
	if err != nil {
		return p, err
	}
	kind := compressed(head[:n])
	if kind == "" {
		return peeked{st: sib.st, head: head[:n]}, nil
	}
	u := newUnpacker(fd, kind)
	defer u.close()
	var size unpackedSize
	if st, err := statFD(fd); err == nil && st.same(&sib.st) {
		size = sizeTold(fd, kind, head[:n], st.size)
	}
	n = u.more(head)
	return peeked{sib.st, bytes.Clone(u.head[:u.headLen]), kind, n == 0 && u.ended, size}, nil
}

// unpackedSize is how many bytes a compressed file holds, as it says itself.
type unpackedSize struct {
	n    uint64
	mask uint64 // of n; gzip tells the lowest 32 bits; 0: it does not tell
}

// is tells whether it holds n bytes; false: it does not, or does not tell. Several members, of which gzip tells the last only,
// are no different.
func (s unpackedSize) is(n int64) bool { return s.mask != 0 && (uint64(n)^s.n)&s.mask == 0 }

const gzipBytesMin = 18 // of header and trailer

// sizeTold reads how many bytes a compressed file of size bytes holds, which begins with head.
func sizeTold(fd int, kind string, head []byte, size int64) unpackedSize {
	switch kind {
	case gzipName:
		var trailer [4]byte
		if n, err := pread(fd, trailer[:], size-int64(len(trailer))); size >= gzipBytesMin && err == nil && n == len(trailer) {
			return unpackedSize{uint64(binary.LittleEndian.Uint32(trailer[:])), 1<<32 - 1}
		}
	case zstdName:
		var h zstd.Header
		if err := h.Decode(head); err == nil && !h.Skippable && h.HasFCS {
			return unpackedSize{h.FrameContentSize, 1<<64 - 1}
		}
	}
	return unpackedSize{}
}
