package spool

// A frame starts at a multiple of 64 bytes of its segment. Little endian.
//
//	 0  u32  header checksum, seeded with the segment's seed and the position
//	 4  u8   kind: 1 batch, 2 commit, 3 checkpoint
//	 5  u8   0
//	 6  u16  0
//	 8  u32  payload length
//	12  u32  CRC-32C of the payload
//	16       commit, checkpoint: payload
//
//	16  u32  lane                        batch only, all of it header
//	20  u32  count
//	24  u64  first index
//	32  i64  newest record time
//	40  61   RecordBatch v2 header template
//	101      payload: the compressed records
//
// Bytes between the end of a frame and the next multiple of 64 mean nothing;
// in a recycled segment they are what was there before.
//
// The header checksum starts from a number made of seed and position instead of
// from zero. Whatever a recycled segment or a void group holds was summed with
// another start and cannot pass, short of one chance in 2^32 a frame; nor can
// log content that imitates a frame, since nobody outside knows the seed.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	blockBytes        = 64 // frames start at multiples of it
	commitHeaderBytes = 16
	batchHeaderBytes  = 40 + HeaderBytes
)

type frameKind uint8

const (
	kindBatch      frameKind = 1
	kindCommit     frameKind = 2
	kindCheckpoint frameKind = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is a parsed frame header. The fields from lane on belong to batches.
type header struct {
	kind         frameKind
	payloadBytes uint32
	payloadCRC   uint32
	lane         uint32
	count        uint32
	first        uint64
	maxTime      int64
}

// headerBytes is where the payload starts.
func (h *header) headerBytes() int64 {
	if h.kind == kindBatch {
		return batchHeaderBytes
	}
	return commitHeaderBytes
}

// frameBytes is the distance to the next frame.
func (h *header) frameBytes() int64 {
	return roundUp(h.headerBytes()+int64(h.payloadBytes), blockBytes)
}

func (h *header) next() uint64 { return h.first + uint64(h.count) }

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// FrameBytes is the room that a batch with recordsBytes bytes of compressed
// records takes in a group.
func FrameBytes(recordsBytes int) int64 {
	return roundUp(batchHeaderBytes+int64(recordsBytes), blockBytes)
}

// checksumStart mixes seed and position into the start of a header checksum
// (the finaliser of splitmix64).
func checksumStart(seed uint64, position int64) uint32 {
	x := seed ^ uint64(position)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return uint32(x) ^ uint32(x>>32)
}

// seal fills in the checksum of the header in b, which is exactly the header.
func sealHeader(b []byte, seed uint64, position int64) {
	binary.LittleEndian.PutUint32(b, crc32.Update(checksumStart(seed, position), castagnoli, b[4:]))
}

// appendBatchHeader appends the header of b's frame.
func appendBatchHeader(dst []byte, seed uint64, position int64, b *Batch) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(kindBatch), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.Records)))
	dst = binary.LittleEndian.AppendUint32(dst, b.RecordsCRC)
	dst = binary.LittleEndian.AppendUint32(dst, b.Lane)
	dst = binary.LittleEndian.AppendUint32(dst, b.Count)
	dst = binary.LittleEndian.AppendUint64(dst, b.First)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.MaxTime))
	dst = append(dst, b.Header[:]...)
	sealHeader(dst[start:], seed, position)
	return dst
}

// appendCommitFrame appends a commit or checkpoint frame.
func appendCommitFrame(dst []byte, kind frameKind, seed uint64, position int64, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(kind), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(payload, castagnoli))
	sealHeader(dst[start:], seed, position)
	return append(dst, payload...)
}

// parseHeader reads the header at the start of b, which may be longer. An
// error means that no intact header of this segment and position is there.
func parseHeader(b []byte, seed uint64, position int64) (header, error) {
	if len(b) < commitHeaderBytes {
		return header{}, errShortFrame
	}
	h := header{
		kind:         frameKind(b[4]),
		payloadBytes: binary.LittleEndian.Uint32(b[8:]),
		payloadCRC:   binary.LittleEndian.Uint32(b[12:]),
	}
	if h.kind < kindBatch || h.kind > kindCheckpoint || b[5] != 0 || b[6] != 0 || b[7] != 0 {
		return header{}, errNoFrame
	}
	n := int(h.headerBytes())
	if len(b) < n {
		return header{}, errShortFrame
	}
	if crc32.Update(checksumStart(seed, position), castagnoli, b[4:n]) != binary.LittleEndian.Uint32(b) {
		return header{}, errHeaderChecksum
	}
	if h.kind == kindBatch {
		h.lane = binary.LittleEndian.Uint32(b[16:])
		h.count = binary.LittleEndian.Uint32(b[20:])
		h.first = binary.LittleEndian.Uint64(b[24:])
		h.maxTime = int64(binary.LittleEndian.Uint64(b[32:]))
	}
	return h, nil
}

// damage is a fixed reason why bytes are no frame.
type damageReason string

func (d damageReason) Error() string { return string(d) }

const (
	errShortFrame      damageReason = "the file ends inside the frame"
	errNoFrame         damageReason = "no frame header"
	errHeaderChecksum  damageReason = "header checksum does not match"
	errPayloadChecksum damageReason = "payload checksum does not match"
	errOtherBatch      damageReason = "the frame holds another batch"
	errMissing         damageReason = "no intact batch holds these records"
	errReleased        damageReason = "the segment was released"
)

// CorruptionError is damage: bytes of the spool that are not what was written.
type CorruptionError struct {
	Segment  uint32
	Position int64 // byte of the frame in its segment
	Reason   string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("spool segment %d is damaged at byte %d: %s", e.Segment, e.Position, e.Reason)
}

// Released tells that the segment is gone because nobody needed it any more.
func (e *CorruptionError) Released() bool { return e.Reason == string(errReleased) }
