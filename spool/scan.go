package spool

// Reading the frames of one segment in order, past damage.

import (
	"errors"
	"hash/crc32"
	"io"
	"iter"
	"slices"
)

// Small frames are read many at a time; behind a jump over a payload little.
const (
	scanWindowBytes = 64 << 10
	scanJumpBytes   = 4 << 10
)

// scanner reads one segment. The window holds what was last read, so that small
// frames do not cost a read each.
type scanner struct {
	file     io.ReaderAt
	seed     uint64
	window   []byte
	windowAt int64
	buf      []byte // of the last payload
}

// frame is what was found at a position: an intact header, or bytes that are
// none up to the next intact header or the end.
type frame struct {
	header
	at    int64
	bytes int64 // up to the next frame
	bad   error // nil: the header is intact
}

func (f *frame) end() int64 { return f.at + f.bytes }

func (f *frame) ref(segment uint32) Ref {
	return Ref{
		First: f.first, MaxTime: f.maxTime, Count: f.count,
		Segment: segment, Block: uint32(f.at / blockBytes), Bytes: f.payloadBytes,
	}
}

// frames yields what is in [from, to): first at `from`, then each at the end of
// the one before. Behind a damaged header the next intact one counts; seeds make
// sure that it is one of this segment.
func (s *scanner) frames(from, to int64) iter.Seq[*frame] {
	return func(yield func(*frame) bool) {
		for at := from; at < to; {
			f := frame{at: at}
			f.header, f.bad = s.header(at, to)
			if f.bad == nil {
				f.bytes = f.frameBytes()
			} else {
				next := at + blockBytes
				for next < to {
					if _, err := s.header(next, to); err == nil {
						break
					}
					next += blockBytes
				}
				f.bytes = min(next, to) - at
			}
			if !yield(&f) {
				return
			}
			at = f.end()
		}
	}
}

// header reads the header at a position. A frame that reaches over `to` is none.
func (s *scanner) header(at, to int64) (header, error) {
	b, err := s.peek(at, batchHeaderBytes)
	if err != nil {
		return header{}, err
	}
	h, err := parseHeader(b, s.seed, at)
	if err == nil && at+h.headerBytes()+int64(h.payloadBytes) > to {
		err = errShortFrame
	}
	return h, err
}

// peek returns up to n bytes at a position, fewer at the end of the file.
func (s *scanner) peek(at int64, n int) ([]byte, error) {
	if at < s.windowAt || at+int64(n) > s.windowAt+int64(len(s.window)) {
		size := scanWindowBytes
		if at > s.windowAt+int64(len(s.window)) {
			size = scanJumpBytes
		}
		s.window = slices.Grow(s.window[:0], size)[:size]
		got, err := s.file.ReadAt(s.window, at)
		s.window, s.windowAt = s.window[:got], at
		if err != nil && !errors.Is(err, io.EOF) && got < n {
			return nil, err
		}
	}
	b := s.window[at-s.windowAt:]
	return b[:min(n, len(b))], nil
}

// payload reads and checks the payload of an intact frame. It is valid until
// the next call.
func (s *scanner) payload(f *frame) ([]byte, error) {
	s.buf = slices.Grow(s.buf[:0], int(f.payloadBytes))[:f.payloadBytes]
	if err := readFull(s.file, s.buf, f.at+f.headerBytes()); err != nil {
		return nil, err
	}
	if crc32.Checksum(s.buf, castagnoli) != f.payloadCRC {
		return nil, errPayloadChecksum
	}
	return s.buf, nil
}

// batchList holds the batches of one lane, ascending and without overlap: for
// one index the frame later in the log wins, and takes the whole batch it cuts
// into out of the list.
type batchList []Ref

// add takes the frames in the order of the log.
func (l *batchList) add(r Ref) {
	old := *l
	if len(old) == 0 || old[len(old)-1].Next() <= r.First {
		*l = append(old, r)
		return
	}
	from, _ := slices.BinarySearchFunc(old, r.First, func(have Ref, first uint64) int {
		if have.Next() <= first {
			return -1
		}
		return 1
	})
	to := from
	for to < len(old) && old[to].First < r.Next() {
		to++
	}
	*l = slices.Replace(old, from, to, r)
}
