package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Stamping in constant time. Kafka's checksum of a batch covers 40 header bytes and the records. CRC is linear over
// GF(2): with || for concatenation,
//
//	crc(a || b) = shift(crc(a), len(b)) xor crc(b)
//
// where shift multiplies by x^(8*len(b)) modulo the CRC polynomial. crc(records) is known since Seal, so an identity
// costs a checksum over 40 bytes and four multiplications, however long the records are. (zlib's crc32_combine does
// the same with another table.)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// Stamp is what is written into a sealed batch when it is sent.
type Stamp struct {
	ProducerID   int64
	Epoch        int16
	BaseSequence int32

	// ShiftMs moves the time of every record by moving the header's two times (records hold differences to the first).
	// For topics that refuse the records' own time with INVALID_TIMESTAMP; 0 leaves the times as they are.
	ShiftMs int64
}

// StampHeader copies template, the HeaderBytes header of a sealed batch, into dst with the identity, the shifted times
// and the checksum filled in. recordsCRC and recordsLen are those of the compressed records that follow the header.
// dst may be the template itself if it is stamped once only: a shift is not undone by the next stamp.
func StampHeader(dst *[HeaderBytes]byte, template []byte, s Stamp, recordsCRC uint32, recordsLen int) {
	if len(template) < HeaderBytes {
		panic("BUG: the header template of a batch is shorter than a header")
	}
	copy(dst[:], template)
	be := binary.BigEndian
	be.PutUint64(dst[producerIDAt:], uint64(s.ProducerID))
	be.PutUint16(dst[producerEpochAt:], uint16(s.Epoch))
	be.PutUint32(dst[baseSequenceAt:], uint32(s.BaseSequence))
	if s.ShiftMs != 0 {
		shift(dst[firstTimeAt:], s.ShiftMs)
		shift(dst[maxTimeAt:], s.ShiftMs)
	}
	be.PutUint32(dst[crcAt:], combineCRC(checksum(dst[crcFrom:]), recordsCRC, recordsLen))
}

func shift(field []byte, ms int64) {
	binary.BigEndian.PutUint64(field, binary.BigEndian.Uint64(field)+uint64(ms))
}

// combineCRC is crc(a || b) from crc(a), crc(b) and len(b), which is at most 2^32-1.
func combineCRC(crcA, crcB uint32, lenB int) uint32 {
	p := crcA
	for i, n := 0, uint32(lenB); n != 0; i, n = i+1, n>>8 {
		if b := n & 0xff; b != 0 {
			p = mulCRC(p, powers[i][b])
		}
	}
	return p ^ crcB
}

// powers[i][b] is x^(8 * b * 256^i) modulo the polynomial: one factor of the shift for each byte of a length.
var powers = func() (t [4][256]uint32) {
	const x8 = uint32(1) << (31 - 8) // x^8; bit 31 is x^0, as CRCs are kept reflected
	base := x8
	for i := range t {
		t[i][0] = 1 << 31 // x^0
		for b := 1; b < 256; b++ {
			t[i][b] = mulCRC(t[i][b-1], base)
		}
		base = mulCRC(t[i][255], base)
	}
	return t
}()

// mulCRC multiplies two polynomials modulo the Castagnoli polynomial, all reflected. No branches: the operands are as
// good as random.
func mulCRC(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31) // a's coefficient of the current power of x
		a <<= 1
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

// varintLen is the length of appendVarint(nil, v).
func varintLen(v int64) int {
	return (bits.Len64(zigzag(v)|1) + 6) / 7
}
