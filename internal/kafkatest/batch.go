package kafkatest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Record is one record as it lies in a log.
type Record struct {
	Partition     int32
	Offset        int64
	Timestamp     int64 // milliseconds since 1970
	Key, Value    []byte
	Headers       []kmsg.Header
	ProducerID    int64 // -1: not idempotent
	ProducerEpoch int16
	Sequence      int32 // of this record; -1: not idempotent
}

// BatchHeader is the header of one record batch as it lies in a log (format v2,
// KIP-98).
type BatchHeader struct {
	Partition    int32
	BaseOffset   int64
	Bytes        int32 // of the batch with its header
	LeaderEpoch  int32
	Codec        int8 // 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
	AppendTime   bool // times are the broker's
	Control      bool // a transaction marker, no records of a client
	FirstTime    int64
	MaxTime      int64
	ProducerID   int64
	Epoch        int16
	BaseSequence int32
	Count        int32
}

// NextOffset is the offset behind the batch, unless compaction took its last records.
func (h BatchHeader) NextOffset() int64 { return h.BaseOffset + int64(h.Count) }

// Where the fields of a batch lie that are looked at before it is parsed.
const (
	batchLengthAt = 8
	batchMagicAt  = 16
	batchCRCFrom  = 21 // the checksum covers all from here
	batchHeadLen  = 61
)

var (
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	decompressor = kgo.DefaultDecompressor()
)

// decodeBatches appends the batches of a fetch answer, and their records from offset
// from on, and returns the offset behind them. An incomplete last batch is left out.
func decodeBatches(partition int32, from int64, data []byte, recs *[]Record, heads *[]BatchHeader) (int64, error) {
	next := from
	for len(data) >= batchHeadLen {
		n := 12 + int(int32(binary.BigEndian.Uint32(data[batchLengthAt:])))
		if n < batchHeadLen {
			return next, fmt.Errorf("partition %d: a batch of %d bytes", partition, n)
		}
		if n > len(data) {
			break
		}
		end, err := decodeBatch(partition, from, data[:n], recs, heads)
		if err != nil {
			return next, err
		}
		next, data = max(next, end), data[n:]
	}
	return next, nil
}

func decodeBatch(partition int32, from int64, data []byte, recs *[]Record, heads *[]BatchHeader) (int64, error) {
	if magic := data[batchMagicAt]; magic != 2 {
		return 0, fmt.Errorf("partition %d: a batch of format %d, only 2 is known", partition, magic)
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(data); err != nil {
		return 0, fmt.Errorf("partition %d: batch header: %w", partition, err)
	}
	fail := func(format string, args ...any) (int64, error) {
		return 0, fmt.Errorf("partition %d: batch at offset %d: "+format, append([]any{partition, b.FirstOffset}, args...)...)
	}
	if sum := crc32.Checksum(data[batchCRCFrom:], castagnoli); sum != uint32(b.CRC) {
		return fail("checksum %08x, its bytes have %08x", uint32(b.CRC), sum)
	}
	end := b.FirstOffset + int64(b.LastOffsetDelta) + 1
	if end <= from {
		return end, nil
	}
	h := BatchHeader{
		Partition: partition, BaseOffset: b.FirstOffset, Bytes: int32(len(data)), LeaderEpoch: b.PartitionLeaderEpoch,
		Codec: int8(b.Attributes & 7), AppendTime: b.Attributes&(1<<3) != 0, Control: b.Attributes&(1<<5) != 0,
		FirstTime: b.FirstTimestamp, MaxTime: b.MaxTimestamp,
		ProducerID: b.ProducerID, Epoch: b.ProducerEpoch, BaseSequence: b.FirstSequence, Count: b.NumRecords,
	}
	*heads = append(*heads, h)
	if h.Control {
		return end, nil
	}
	raw, err := decompressor.Decompress(b.Records, kgo.CompressionCodecType(h.Codec))
	if err != nil {
		return fail("decompress: %w", err)
	}
	for i := range b.NumRecords {
		length, n := binary.Varint(raw)
		if n <= 0 || length < 0 || length > int64(len(raw)-n) {
			return fail("record %d of %d does not fit", i, b.NumRecords)
		}
		var kr kmsg.Record
		if err := kr.ReadFrom(raw[:n+int(length)]); err != nil {
			return fail("record %d of %d: %w", i, b.NumRecords, err)
		}
		raw = raw[n+int(length):]
		if r := h.record(kr); r.Offset >= from {
			*recs = append(*recs, r)
		}
	}
	if len(raw) > 0 {
		return fail("%d bytes behind its %d records", len(raw), b.NumRecords)
	}
	return end, nil
}

// record completes a record with what its batch's header says.
func (h BatchHeader) record(kr kmsg.Record) Record {
	r := Record{
		Partition: h.Partition, Offset: h.BaseOffset + int64(kr.OffsetDelta), Timestamp: h.FirstTime + kr.TimestampDelta64,
		Key: kr.Key, Value: kr.Value, Headers: kr.Headers,
		ProducerID: h.ProducerID, ProducerEpoch: h.Epoch, Sequence: -1,
	}
	if h.AppendTime {
		r.Timestamp = h.MaxTime
	}
	if h.BaseSequence >= 0 {
		r.Sequence = int32((int64(h.BaseSequence) + int64(kr.OffsetDelta)) & 0x7fffffff)
	}
	return r
}
