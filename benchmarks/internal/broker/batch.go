package broker

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A RecordBatch v2 (KIP-98) begins with these 61 bytes, big endian:
//
//	 0 base offset int64        21 attributes int16 (0-2 codec, 4 transactional, 5 control)
//	 8 length int32, from 12 on 23 last offset delta int32
//	12 leader epoch int32       27 first time int64   35 newest time int64
//	16 magic int8 = 2           43 producer id int64  51 epoch int16
//	17 CRC-32C from 21 on       53 base sequence int32, 57 record count int32
const batchHeaderBytes = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type batchHeader struct {
	attributes   int16
	maxTime      int64 // ms
	producerID   int64 // -1: none
	epoch        int16
	baseSequence int32
	count        int32
}

func (h batchHeader) codec() int8 { return int8(h.attributes & 7) }

func (h batchHeader) lastSequence() int32 { return sequenceAfter(h.baseSequence, h.count-1) }

// parseBatch checks what Kafka checks of one partition's records in a Produce request: exactly one batch of magic 2 with
// consistent numbers. code is Kafka's error code, 0 for a good one.
func parseBatch(b []byte, bytesMax int, checkCRC bool) (h batchHeader, code int16) {
	be := binary.BigEndian
	if len(b) < batchHeaderBytes {
		return h, kerr.CorruptMessage.Code
	}
	if length := int64(int32(be.Uint32(b[8:]))); b[16] != 2 || length != int64(len(b)-12) {
		return h, kerr.InvalidRecord.Code
	}
	h = batchHeader{
		attributes:   int16(be.Uint16(b[21:])),
		maxTime:      int64(be.Uint64(b[35:])),
		producerID:   int64(be.Uint64(b[43:])),
		epoch:        int16(be.Uint16(b[51:])),
		baseSequence: int32(be.Uint32(b[53:])),
		count:        int32(be.Uint32(b[57:])),
	}
	const transactionalOrControl = 0x30
	lastOffsetDelta := int32(be.Uint32(b[23:]))
	switch {
	case len(b) > bytesMax:
		return h, kerr.MessageTooLarge.Code
	case checkCRC && crc32.Checksum(b[21:], castagnoli) != be.Uint32(b[17:]):
		return h, kerr.CorruptMessage.Code
	case int64(be.Uint64(b)) != 0, h.count <= 0, lastOffsetDelta != h.count-1, h.attributes&transactionalOrControl != 0:
		return h, kerr.InvalidRecord.Code
	case h.producerID >= 0 && (h.baseSequence < 0 || h.epoch < 0):
		return h, kerr.InvalidRecord.Code
	}
	return h, 0
}
