package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Taking a sealed batch apart and making others of its records: the same
// records in the same order, byte for byte, with the same times unless they
// must be made one. Only what depends on a record's place is written anew:
//
//	length | attributes | TIME DELTA | OFFSET DELTA | key, value, headers
//
// Pure but for the memory it reuses. One goroutine owns a cutter.

// cutPlan says how a batch is to be cut.
type cutPlan struct {
	bytesMax int     // of one new batch with its header, but for single records; 0: any
	alone    []int32 // records, counted from 0, that become batches of their own
	bounded  bool    // the times are made one if they are more than spanMax apart
	spanMax  int64   // ms
}

// CutBatch is one of the batches that replace another.
type CutBatch struct {
	First  uint64
	Sealed Sealed
}

const (
	// cutPiecesMax bounds the work and the commit of one cut. What is left is
	// one more batch, which is cut again when its turn comes.
	cutPiecesMax = 64

	// cutRawBytesMax bounds what a spooled batch may expand to: four times the
	// largest group that the spool takes.
	cutRawBytesMax = 64 << 20

	// A piece is made of so much of the raw bytes that it should fit, and a
	// little less: small batches compress worse than large ones.
	cutFillNum, cutFillDen = 15, 16
)

// cutter cuts batches. The zero value is ready.
type cutter struct {
	compressors [Zstd + 1]*Compressor
	raw         []byte
	at          []int32 // where each record begins in raw, and where the last ends
	builder     Builder

	header Header
	first  uint64
	pieces []CutBatch
	target int // raw bytes of a piece that should fit

	frame, out []byte // of a merge: the batch in hand, and what all become
}

// load takes a batch apart: its header template and records, of which the first
// has index first.
func (c *cutter) load(frame []byte, first uint64) error {
	h, err := ParseHeader(frame)
	if err != nil {
		return err
	}
	if h.Codec() > Zstd {
		return fmt.Errorf("%w: %s", ErrMalformed, h.Codec())
	}
	c.header, c.first, c.pieces = h, first, nil
	if c.raw, err = Decompress(c.raw[:0], frame[HeaderBytes:], h.Codec(), cutRawBytesMax); err != nil {
		return err
	}
	c.at = c.at[:0]
	rest := c.raw
	for range h.Count {
		c.at = append(c.at, int32(len(c.raw)-len(rest)))
		if _, rest, err = NextRecord(rest, h.FirstTime); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes behind the last record", ErrMalformed, len(rest))
	}
	c.at = append(c.at, int32(len(c.raw)))
	return nil
}

// count is the number of records of the batch that is loaded.
func (c *cutter) count() int { return len(c.at) - 1 }

// record decodes record i.
func (c *cutter) record(i int) Record {
	r, _, err := NextRecord(c.raw[c.at[i]:c.at[i+1]], c.header.FirstTime)
	if err != nil {
		panic("BUG: a record that was decoded before cannot be decoded: " + err.Error())
	}
	return r
}

// span is how far apart the times of the batch are.
func (c *cutter) span() int64 {
	oldest := c.header.MaxTime
	for i := range c.count() {
		oldest = min(oldest, c.record(i).Time)
	}
	return c.header.MaxTime - oldest
}

// cut makes new batches of the one that is loaded.
func (c *cutter) cut(frameBytes int, plan *cutPlan) ([]CutBatch, error) {
	c.target = len(c.raw)
	if plan.bytesMax > 0 {
		c.target = c.fitting(plan.bytesMax, len(c.raw), frameBytes)
	}
	alone := slices.Clone(plan.alone)
	slices.Sort(alone)
	from := 0
	for _, i := range slices.Compact(alone) {
		if i < 0 || int(i) >= c.count() || len(c.pieces) >= cutPiecesMax-2 {
			continue
		}
		if err := c.cutRange(from, int(i), plan.bytesMax); err != nil {
			return nil, err
		}
		if c.end() < int(i) || len(c.pieces) > cutPiecesMax-2 {
			break // no more pieces: the rest goes as one
		}
		if err := c.seal(int(i), int(i)+1); err != nil {
			return nil, err
		}
		from = int(i) + 1
	}
	err := c.cutRange(c.end(), c.count(), plan.bytesMax)
	if err == nil && c.end() < c.count() {
		err = c.seal(c.end(), c.count())
	}
	return c.pieces, err
}

// even makes one batch of all records, with the newest time for each.
func (c *cutter) even() ([]CutBatch, error) {
	err := c.sealTimes(0, c.count(), func(int64) int64 { return c.header.MaxTime })
	return c.pieces, err
}

// end is the record behind the last piece.
func (c *cutter) end() int {
	if len(c.pieces) == 0 {
		return 0
	}
	p := &c.pieces[len(c.pieces)-1]
	return int(p.First + uint64(p.Sealed.Count) - c.first)
}

// fitting is how many raw bytes give a batch of at most bytesMax, if so many
// gave batchBytes.
func (c *cutter) fitting(bytesMax, rawBytes, batchBytes int) int {
	room := max(1, bytesMax-HeaderBytes)
	return int(int64(rawBytes) * int64(room) / int64(max(1, batchBytes-HeaderBytes)) * cutFillNum / cutFillDen)
}

// cutRange makes pieces of records [from, to), each of at most bytesMax bytes
// unless it is one record, and leaves the last piece of all to its caller.
func (c *cutter) cutRange(from, to, bytesMax int) error {
	for from < to && len(c.pieces) < cutPiecesMax-1 {
		n := c.take(from, to, c.target)
		for {
			if err := c.seal(from, from+n); err != nil {
				return err
			}
			p := &c.pieces[len(c.pieces)-1].Sealed
			size := HeaderBytes + len(p.Records)
			if bytesMax == 0 {
				break
			}
			if n > 1 || size <= bytesMax {
				c.target = c.fitting(bytesMax, p.RawBytes, size)
			}
			if size <= bytesMax || n == 1 {
				break
			}
			c.pieces = c.pieces[:len(c.pieces)-1]
			half := int(c.at[from+n]-c.at[from]) / 2
			n = min(c.take(from, from+n, min(half, c.target)), n-1)
		}
		from += n
	}
	return nil
}

// take is how many records from `from` on have at most rawBytes bytes, at least
// one.
func (c *cutter) take(from, to, rawBytes int) int {
	n, found := slices.BinarySearch(c.at[from+1:to+1], c.at[from]+int32(min(rawBytes, cutRawBytesMax)))
	if found {
		n++
	}
	return max(1, n)
}

// seal makes a piece of records [from, to).
func (c *cutter) seal(from, to int) error {
	return c.sealTimes(from, to, func(t int64) int64 { return t })
}

func (c *cutter) sealTimes(from, to int, time func(int64) int64) error {
	compressor, err := c.compressor(c.header.Codec())
	if err != nil {
		return err
	}
	c.builder.Reset(c.builder.buf)
	for i := from; i < to; i++ {
		c.again(i, time)
	}
	p := CutBatch{First: c.first + uint64(from)}
	compressor.Seal(&c.builder, nil, &p.Sealed)
	c.pieces = append(c.pieces, p)
	return nil
}

func (c *cutter) compressor(codec Codec) (*Compressor, error) {
	if c.compressors[codec] == nil {
		compressor, err := NewCompressor(codec, 0)
		if err != nil {
			return nil, err
		}
		c.compressors[codec] = compressor
	}
	return c.compressors[codec], nil
}

// again appends record i to the builder.
func (c *cutter) again(i int, time func(int64) int64) {
	p := c.raw[c.at[i]:c.at[i+1]]
	_, n := binary.Varint(p)
	attributes := p[n]
	p = p[n+1:]
	delta, n := binary.Varint(p)
	p = p[n:]
	_, n = binary.Varint(p)
	c.builder.again(time(c.header.FirstTime+delta), attributes, p[n:])
}

// again encodes a record that was encoded before: rest is what follows its
// offset delta. Unlike Append it grows the buffer.
func (b *Builder) again(ts int64, attributes byte, rest []byte) {
	if b.count == 0 {
		b.firstTime, b.maxTime = ts, ts
	}
	b.maxTime = max(b.maxTime, ts)
	timeDelta, offsetDelta := ts-b.firstTime, int64(b.count)
	p := appendVarint(b.buf, int64(1+varintLen(timeDelta)+varintLen(offsetDelta)+len(rest)))
	p = append(p, attributes)
	p = appendVarint(p, timeDelta)
	p = appendVarint(p, offsetDelta)
	b.buf = append(p, rest...)
	b.count++
}
