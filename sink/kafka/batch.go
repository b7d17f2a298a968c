// Package kafka is the Kafka side of shipper: record batches as bytes, one pure state machine per lane, and the
// transport that carries the batches to their partition leaders.
//
// Flow of a record:
//
//	Builder.Append -> Compressor.Seal -> (spool) -> StampHeader -> ProduceRequest.Add -> Client.Produce -> VerdictOf
//
// A sealed batch carries no identity. Producer id, epoch and base sequence are stamped into a copy of its header when
// the batch is about to be sent, so no sequence is consumed before its bytes are about to be written.
package kafka

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A record batch, format 2 (KIP-98), big endian. Kafka's checksum covers bytes 21 to the end.
//
//	 0 baseOffset           int64   0, the broker assigns it
//	 8 batchLength          int32   bytes behind this field: 49 + records
//	12 partitionLeaderEpoch int32   -1, the broker sets it
//	16 magic                int8    2
//	17 crc                  uint32  CRC-32C of bytes 21.. ; in a template, before the stamp: CRC-32C of the records
//	21 attributes           int16   bits 0-2 codec; ours sets no other bit
//	23 lastOffsetDelta      int32   count - 1
//	27 baseTimestamp        int64   ms; records hold the difference to it
//	35 maxTimestamp         int64   ms
//	43 producerId           int64   stamped
//	51 producerEpoch        int16   stamped
//	53 baseSequence         int32   stamped
//	57 count                int32
//	61 records                      compressed as a whole
const (
	HeaderBytes = 61

	batchLengthAt    = 8
	leaderEpochAt    = 12
	magicAt          = 16
	crcAt            = 17
	crcFrom          = 21 // the checksum covers everything from here on
	attributesAt     = 21
	lastDeltaAt      = 23
	firstTimeAt      = 27
	maxTimeAt        = 35
	producerIDAt     = 43
	producerEpochAt  = 51
	baseSequenceAt   = 53
	countAt          = 57
	batchLengthFrom  = 12 // batchLength counts from here on
	magicV2          = 2
	attributesCodec  = 0x07
	attributeAppend  = 0x08 // the times are the broker's append time
	attributeControl = 0x20 // transaction markers, not records
)

const (
	// RecordsMax is the most records of one batch. It bounds what one refusal can put in doubt and stays far below the
	// 2^30 at which distances between sequences become ambiguous.
	RecordsMax = 1 << 20

	// RecordsBytesMax is the most bytes of encoded records in one batch: batchLength is an int32.
	RecordsBytesMax = math.MaxInt32 - HeaderBytes

	// RecordOverheadMax is the most bytes a record adds to its key and value: length, attributes, time delta, offset
	// delta, key length, value length, header count.
	RecordOverheadMax = 5 + 1 + 10 + 5 + 5 + 5 + 1
)

// Builder encodes the records of one lane's open batch into one contiguous buffer: the only copy of a line before
// compression. The zero value has no room; give it a buffer with Reset. One goroutine owns a Builder; nothing in it
// allocates.
type Builder struct {
	buf       []byte
	count     int32
	firstTime int64 // of the first record, ms: base of all time deltas
	maxTime   int64
}

// Reset starts an empty batch in buf[:0]. The caller owns pools and growth: Append never grows beyond cap(buf).
func (b *Builder) Reset(buf []byte) {
	*b = Builder{buf: buf[:0]}
}

// Fits reports whether a record with a key and value of these lengths has room: in the buffer, within RecordsMax and
// within RecordsBytesMax. It reckons with RecordOverheadMax, so it may say no a few bytes early.
func (b *Builder) Fits(keyLen, valueLen int) bool {
	room := min(cap(b.buf), RecordsBytesMax) - len(b.buf) - RecordOverheadMax
	return keyLen+valueLen <= room && b.count < RecordsMax
}

// Append encodes one record: ts in ms, key only if hasKey (no key and an empty key differ). It panics if the record
// does not fit; ask Fits first.
//
// Record, all lengths zigzag varints:
//
//	length | attributes int8 0 | ts delta | offset delta | key length or -1 | key | value length | value | header count | headers
//
// Header: key length | key | value length | value
func (b *Builder) Append(ts int64, key, value []byte, hasKey bool) {
	const noHeaders = 1
	p := append(b.begin(ts, key, value, hasKey, noHeaders), value...)
	b.buf = append(p, 0)
	b.count++
}

// RecordHeader is one header of a record.
type RecordHeader struct{ Key, Value []byte }

// HeadersBytesMax is the most bytes that headers take in a record. It counts towards the value when Fits is asked.
func HeadersBytesMax(headers []RecordHeader) int {
	n := 0
	for i := range headers {
		n += 5 + len(headers[i].Key) + 5 + len(headers[i].Value)
	}
	return n
}

// AppendHeaders is Append for a record with headers.
func (b *Builder) AppendHeaders(ts int64, key, value []byte, hasKey bool, headers []RecordHeader) {
	if len(headers) == 0 {
		b.Append(ts, key, value, hasKey)
		return
	}
	if bytes := HeadersBytesMax(headers); !b.Fits(len(key), len(value)+bytes) {
		panic(fmt.Sprintf("BUG: %d headers of up to %d bytes were appended with a record that they do not fit beside", len(headers), bytes))
	}
	bytes := varintLen(int64(len(headers)))
	for i := range headers {
		h := &headers[i]
		bytes += varintLen(int64(len(h.Key))) + len(h.Key) + varintLen(int64(len(h.Value))) + len(h.Value)
	}
	p := append(b.begin(ts, key, value, hasKey, bytes), value...)
	p = appendVarint(p, int64(len(headers)))
	for i := range headers {
		h := &headers[i]
		p = append(appendVarint(p, int64(len(h.Key))), h.Key...)
		p = append(appendVarint(p, int64(len(h.Value))), h.Value...)
	}
	b.buf = p
	b.count++
}

// begin writes a record up to the length of its value. The headers behind that take headerBytes with their count.
func (b *Builder) begin(ts int64, key, value []byte, hasKey bool, headerBytes int) []byte {
	if !hasKey {
		key = nil
	}
	if !b.Fits(len(key), len(value)) {
		panic(fmt.Sprintf("BUG: a record of %d+%d bytes was appended to a batch of %d records and %d of %d bytes",
			len(key), len(value), b.count, len(b.buf), cap(b.buf)))
	}
	if b.count == 0 {
		b.firstTime, b.maxTime = ts, ts
	}
	b.maxTime = max(b.maxTime, ts)

	keyLen := int64(-1)
	if hasKey {
		keyLen = int64(len(key))
	}
	timeDelta, offsetDelta, valueLen := ts-b.firstTime, int64(b.count), int64(len(value))
	const attributes = 1
	length := attributes + varintLen(timeDelta) + varintLen(offsetDelta) +
		varintLen(keyLen) + len(key) + varintLen(valueLen) + len(value) + headerBytes

	p := b.buf
	p = appendVarint(p, int64(length))
	p = append(p, 0) // record attributes: none are defined
	p = appendVarint(p, timeDelta)
	p = appendVarint(p, offsetDelta)
	p = appendVarint(p, keyLen)
	p = append(p, key...)
	return appendVarint(p, valueLen)
}

// Grow moves the records into buf, which must be larger, and returns the buffer they were in.
func (b *Builder) Grow(buf []byte) []byte {
	if cap(buf) < len(b.buf) {
		panic(fmt.Sprintf("BUG: %d bytes of records were moved into a buffer of %d", len(b.buf), cap(buf)))
	}
	old := b.buf
	b.buf = append(buf[:0], old...)
	return old[:0]
}

// Count is the number of records.
func (b *Builder) Count() int { return int(b.count) }

// Bytes is the length of the encoded records, before compression and without header.
func (b *Builder) Bytes() int { return len(b.buf) }

// FirstTime is the time of the first record in ms, 0 if there is none.
func (b *Builder) FirstTime() int64 { return b.firstTime }

// MaxTime is the newest time of all records in ms, 0 if there is none.
func (b *Builder) MaxTime() int64 { return b.maxTime }

// Records is the encoded records. It is valid until the next Append, Grow or Reset.
func (b *Builder) Records() []byte { return b.buf }

// Sealed is a batch whose boundaries and bytes are frozen: what goes to the spool.
type Sealed struct {
	Header     [HeaderBytes]byte // template for StampHeader: the identity is zero, the CRC field holds RecordsCRC
	Records    []byte            // compressed as the header's attributes say
	RecordsCRC uint32            // CRC-32C of Records: the spool's payload checksum and the second half of Kafka's
	Count      uint32
	MaxTime    int64 // ms
	RawBytes   int   // length of the records before compression
}

// fill writes the header template and the checksums for records, which hold b's records encoded with codec.
func (s *Sealed) fill(b *Builder, codec Codec, records []byte) {
	*s = Sealed{
		Records:    records,
		RecordsCRC: checksum(records),
		Count:      uint32(b.count),
		MaxTime:    b.maxTime,
		RawBytes:   len(b.buf),
	}
	h := &s.Header
	be := binary.BigEndian
	be.PutUint32(h[batchLengthAt:], uint32(HeaderBytes-batchLengthFrom+len(records)))
	be.PutUint32(h[leaderEpochAt:], math.MaxUint32) // -1
	h[magicAt] = magicV2
	be.PutUint16(h[attributesAt:], uint16(codec))
	be.PutUint32(h[lastDeltaAt:], uint32(b.count-1))
	be.PutUint64(h[firstTimeAt:], uint64(b.firstTime))
	be.PutUint64(h[maxTimeAt:], uint64(b.maxTime))
	be.PutUint32(h[countAt:], uint32(b.count))
	be.PutUint32(h[crcAt:], s.RecordsCRC)
}

// appendVarint appends v as a zigzag varint. Most fields of a record fit one byte; those take the short way.
func appendVarint(p []byte, v int64) []byte {
	u := zigzag(v)
	if u < 0x80 {
		return append(p, byte(u))
	}
	return binary.AppendUvarint(p, u)
}

func zigzag(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }
