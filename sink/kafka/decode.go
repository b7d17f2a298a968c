package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The way back from bytes to records: for cutting a batch anew, dead letters, inspectors and checkers. Input may come
// from a disk or a broker, so every length in it is doubted, and what it may expand to is bounded by the caller.

// ErrMalformed is wrapped by all errors about bytes that are no record batch.
var ErrMalformed = errors.New("malformed record batch")

// Header is the decoded header of a record batch; see the layout in batch.go.
type Header struct {
	BaseOffset      int64
	BatchLength     int32
	LeaderEpoch     int32
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	FirstTime       int64 // ms
	MaxTime         int64 // ms
	ProducerID      int64
	Epoch           int16
	BaseSequence    int32
	Count           int32
}

// Bytes is the length of the whole batch, header and records.
func (h *Header) Bytes() int { return batchLengthFrom + int(h.BatchLength) }

// Codec is how the records are compressed.
func (h *Header) Codec() Codec { return Codec(h.Attributes & attributesCodec) }

// AppendTime reports whether MaxTime is the broker's append time and the time of every record.
func (h *Header) AppendTime() bool { return h.Attributes&attributeAppend != 0 }

// Control reports whether the batch holds transaction markers.
func (h *Header) Control() bool { return h.Attributes&attributeControl != 0 }

// ParseHeader decodes the header at the start of p. It checks magic, lengths and count, not the CRC, and does not ask
// for the records to be there.
func ParseHeader(p []byte) (Header, error) {
	if len(p) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: %d bytes are no header", ErrMalformed, len(p))
	}
	be := binary.BigEndian
	if p[magicAt] != magicV2 {
		return Header{}, fmt.Errorf("%w: format %d instead of %d", ErrMalformed, p[magicAt], magicV2)
	}
	h := Header{
		BaseOffset:      int64(be.Uint64(p)),
		BatchLength:     int32(be.Uint32(p[batchLengthAt:])),
		LeaderEpoch:     int32(be.Uint32(p[leaderEpochAt:])),
		CRC:             be.Uint32(p[crcAt:]),
		Attributes:      int16(be.Uint16(p[attributesAt:])),
		LastOffsetDelta: int32(be.Uint32(p[lastDeltaAt:])),
		FirstTime:       int64(be.Uint64(p[firstTimeAt:])),
		MaxTime:         int64(be.Uint64(p[maxTimeAt:])),
		ProducerID:      int64(be.Uint64(p[producerIDAt:])),
		Epoch:           int16(be.Uint16(p[producerEpochAt:])),
		BaseSequence:    int32(be.Uint32(p[baseSequenceAt:])),
		Count:           int32(be.Uint32(p[countAt:])),
	}
	switch {
	case h.BatchLength < HeaderBytes-batchLengthFrom || h.BatchLength > RecordsBytesMax+HeaderBytes-batchLengthFrom:
		return Header{}, fmt.Errorf("%w: batch length %d", ErrMalformed, h.BatchLength)
	case h.Count < 0 || h.LastOffsetDelta < 0:
		return Header{}, fmt.Errorf("%w: %d records, last offset delta %d", ErrMalformed, h.Count, h.LastOffsetDelta)
	}
	return h, nil
}

// CheckCRC reports whether the checksum in the header of a whole, stamped batch is right.
func CheckCRC(batch []byte) bool {
	return len(batch) >= HeaderBytes && binary.BigEndian.Uint32(batch[crcAt:]) == checksum(batch[crcFrom:])
}

// Decompress appends the records that p holds to dst. They may take rawBytesMax bytes at most.
func Decompress(dst, p []byte, codec Codec, rawBytesMax int) ([]byte, error) {
	var err error
	switch codec {
	case None:
		if len(p) > rawBytesMax {
			return dst, fmt.Errorf("%w: %d bytes of records, more than %d", ErrMalformed, len(p), rawBytesMax)
		}
		return append(dst, p...), nil
	case Gzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(p)); err == nil {
			dst, err = appendAll(dst, r, rawBytesMax)
		}
	case Snappy:
		dst, err = decompressXerial(dst, p, rawBytesMax)
	case LZ4:
		dst, err = appendAll(dst, lz4.NewReader(bytes.NewReader(p)), rawBytesMax)
	case Zstd:
		var r *zstd.Decoder
		if r, err = zstd.NewReader(bytes.NewReader(p), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowBytesMax)); err == nil {
			dst, err = appendAll(dst, r, rawBytesMax)
			r.Close()
		}
	default:
		err = fmt.Errorf("unknown %s", codec)
	}
	if err != nil {
		return dst, fmt.Errorf("%w: decompress %s: %w", ErrMalformed, codec, err)
	}
	return dst, nil
}

// zstdWindowBytesMax is the largest window that Kafka's own clients write.
const zstdWindowBytesMax = 128 << 20

// appendAll appends what r yields to dst, at most bytesMax bytes.
func appendAll(dst []byte, r io.Reader, bytesMax int) ([]byte, error) {
	w := sliceWriter{dst}
	n, err := io.Copy(&w, io.LimitReader(r, int64(bytesMax)+1))
	if err == nil && n > int64(bytesMax) {
		err = fmt.Errorf("more than %d bytes", bytesMax)
	}
	return w.p, err
}

// decompressXerial reads snappy with Kafka's framing, or without as some clients write it.
func decompressXerial(dst, p []byte, rawBytesMax int) ([]byte, error) {
	const headerBytes = len(xerialHeader)
	framed := len(p) >= headerBytes && string(p[:8]) == xerialHeader[:8]
	if framed {
		p = p[headerBytes:]
	}
	for len(p) > 0 {
		chunk := p
		if framed {
			if len(p) < 4 {
				return dst, io.ErrUnexpectedEOF
			}
			n := binary.BigEndian.Uint32(p)
			if p = p[4:]; uint64(n) > uint64(len(p)) {
				return dst, io.ErrUnexpectedEOF
			}
			chunk = p[:n]
		}
		p = p[len(chunk):]
		n, err := s2.DecodedLen(chunk)
		if err != nil {
			return dst, err
		}
		if n > rawBytesMax {
			return dst, errors.New("too many bytes")
		}
		rawBytesMax -= n
		raw, err := s2.Decode(nil, chunk)
		if err != nil {
			return dst, err
		}
		dst = append(dst, raw...)
	}
	return dst, nil
}

// Record is one decoded record. Its bytes are those of the decompressed records.
type Record struct {
	Time        int64 // ms: the header's FirstTime plus the record's delta
	OffsetDelta int32
	Key         []byte
	HasKey      bool
	Value       []byte
	Headers     int    // how many
	headers     []byte // the bytes of all of them
}

// EachHeader hands out the headers in order.
func (r *Record) EachHeader(fn func(key string, value []byte)) {
	d := fields{p: r.headers, ok: true}
	for range r.Headers {
		key, _ := d.bytes()
		value, _ := d.bytes()
		fn(string(key), value)
	}
}

// NextRecord decodes the first record of the decompressed records in p and returns what follows it. An empty p is an
// error: count the records by Header.Count.
func NextRecord(p []byte, firstTime int64) (r Record, rest []byte, err error) {
	length, p, ok := takeVarint(p)
	if !ok || length < 0 || length > int64(len(p)) {
		return Record{}, nil, fmt.Errorf("%w: record length %d of %d bytes", ErrMalformed, length, len(p))
	}
	body, rest := p[:length], p[length:]
	if len(body) == 0 {
		return Record{}, nil, fmt.Errorf("%w: empty record", ErrMalformed)
	}
	d := fields{p: body[1:], ok: true} // behind the attributes
	r.Time = firstTime + d.varint()
	r.OffsetDelta = int32(d.varint())
	r.Key, r.HasKey = d.bytes()
	r.Value, _ = d.bytes()
	headers := d.varint()
	r.headers = d.p
	for i := int64(0); i < headers && d.ok; i++ {
		d.bytes()
		d.bytes()
	}
	r.Headers = int(headers)
	if !d.ok || headers < 0 || len(d.p) != 0 {
		return Record{}, nil, fmt.Errorf("%w: a record's fields do not fill its %d bytes", ErrMalformed, length)
	}
	return r, rest, nil
}

// fields takes a record apart; ok turns false at the first thing that is not there.
type fields struct {
	p  []byte
	ok bool
}

func (d *fields) varint() int64 {
	v, rest, ok := takeVarint(d.p)
	d.p, d.ok = rest, d.ok && ok
	return v
}

// bytes takes a length and so many bytes; a negative length is an absent value.
func (d *fields) bytes() ([]byte, bool) {
	n := d.varint()
	if n > int64(len(d.p)) {
		d.ok = false
	}
	if n < 0 || !d.ok {
		return nil, false
	}
	v := d.p[:n:n]
	d.p = d.p[n:]
	return v, true
}

func takeVarint(p []byte) (v int64, rest []byte, ok bool) {
	v, n := binary.Varint(p)
	if n <= 0 {
		return 0, nil, false
	}
	return v, p[n:], true
}
