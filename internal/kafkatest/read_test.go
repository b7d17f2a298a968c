package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever codec a producer used, ReadTopic returns its records and the headers tell
// identity, sequence and codec.
func TestReadTopic(t *testing.T) {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(int32(len(codecs)), "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const perPartition, batch = 60, 20
	for p, codec := range codecs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ProducerBatchCompression(codec),
			kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		for b := 0; b < perPartition; b += batch {
			var recs []*kgo.Record
			for i := range batch {
				r := kgo.StringRecord(fmt.Sprintf("%d-%d %s", p, b+i, strings.Repeat("x", 50)))
				r.Partition, r.Key = int32(p), []byte{byte(i)}
				r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}
				recs = append(recs, r)
			}
			if err := cl.ProduceSync(context.Background(), recs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		cl.Close()
	}
	recs, heads := ReadTopic(t, c.ListenAddrs(), "t", ReadOptions{})
	if len(recs) != perPartition*len(codecs) {
		t.Fatalf("%d records, want %d", len(recs), perPartition*len(codecs))
	}
	for i, r := range recs {
		p, n := int32(i/perPartition), int32(i%perPartition)
		want := fmt.Sprintf("%d-%d ", p, n)
		if r.Partition != p || r.Offset != int64(n) || r.Sequence != n || r.ProducerID < 0 || r.ProducerEpoch != 0 ||
			!strings.HasPrefix(string(r.Value), want) || r.Key[0] != byte(n%batch) || len(r.Headers) != 1 || r.Timestamp <= 0 {
			t.Fatalf("record %d is %+v, want %q", i, r, want)
		}
	}
	next := make(map[int32]int64)
	for _, h := range heads {
		if h.BaseOffset != next[h.Partition] || int64(h.BaseSequence) != h.BaseOffset || h.Bytes < batchHeadLen || int(h.Codec) != int(h.Partition) {
			t.Errorf("header %+v: want base %d, codec %d", h, next[h.Partition], h.Partition)
		}
		next[h.Partition] = h.NextOffset()
	}
	for p, mark := range HighWatermarks(t, c.ListenAddrs(), "t", ReadOptions{}) {
		if mark != perPartition || next[int32(p)] != mark {
			t.Errorf("partition %d: high watermark %d, headers end at %d, want %d", p, mark, next[int32(p)], perPartition)
		}
	}
	// From inside a batch: its header, and only the records asked for.
	recs, heads = ReadTopic(t, c.ListenAddrs(), "t", ReadOptions{From: batch + 5})
	if len(recs) != (perPartition-batch-5)*len(codecs) || recs[0].Offset != batch+5 || heads[0].BaseOffset > batch {
		t.Errorf("from %d: %d records, first at %d, first batch at %d", batch+5, len(recs), recs[0].Offset, heads[0].BaseOffset)
	}
	AwaitRecords(t, c.ListenAddrs(), "t", perPartition*int64(len(codecs)), ReadOptions{})
	// A log whose head was deleted is read from its start, beyond its end there is nothing.
	if recs, _ := ReadTopic(t, c.ListenAddrs(), "t", ReadOptions{From: 1000}); len(recs) != 0 {
		t.Errorf("%d records beyond the end", len(recs))
	}
}

// testBatch is an uncompressed batch of two records at offset 7 whose sequences wrap.
func testBatch() []byte {
	var recs []byte
	for i, v := range []string{"one", "two"} {
		r := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: int64(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		recs = r.AppendTo(recs)
	}
	b := kmsg.RecordBatch{
		FirstOffset: 7, Length: int32(batchHeadLen - 12 + len(recs)), PartitionLeaderEpoch: 3, Magic: 2,
		LastOffsetDelta: 1, FirstTimestamp: 1000, MaxTimestamp: 1001,
		ProducerID: 9, ProducerEpoch: 2, FirstSequence: 1<<31 - 1, NumRecords: 2, Records: recs,
	}
	data := b.AppendTo(nil)
	return sealBatch(data)
}

func sealBatch(data []byte) []byte {
	binary.BigEndian.PutUint32(data[17:], crc32.Checksum(data[batchCRCFrom:], castagnoli))
	return data
}

func TestDecodeBatches(t *testing.T) {
	var recs []Record
	var heads []BatchHeader
	data := testBatch()
	end, err := decodeBatches(0, 0, append(data, data[:30]...), &recs, &heads)
	if err != nil || end != 9 || len(recs) != 2 || len(heads) != 1 {
		t.Fatalf("end %d, %d records, %d headers, error %v", end, len(recs), len(heads), err)
	}
	if recs[0].Sequence != 1<<31-1 || recs[1].Sequence != 0 {
		t.Errorf("sequences %d, %d do not wrap at 2^31", recs[0].Sequence, recs[1].Sequence)
	}
	if recs[1].Timestamp != 1001 || heads[0].LeaderEpoch != 3 || heads[0].Epoch != 2 || heads[0].MaxTime != 1001 {
		t.Errorf("record %+v, header %+v", recs[1], heads[0])
	}
}

// Damage of any kind is named, never passed over and never a panic.
func TestDecodeDamage(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		damage     func([]byte) []byte
	}{
		{"bit in a record", "checksum", func(b []byte) []byte { b[70] ^= 1; return b }},
		{"older format", "format 1", func(b []byte) []byte { b[batchMagicAt] = 1; return b }},
		{"negative length", "a batch of", func(b []byte) []byte { b[batchLengthAt] = 0x80; return b }},
		{"more records than bytes", "does not fit", func(b []byte) []byte { b[60] = 3; return sealBatch(b) }},
		{"fewer records than bytes", "behind its 1 records", func(b []byte) []byte { b[60] = 1; return sealBatch(b) }},
		{"not the codec it says", "decompress", func(b []byte) []byte { b[22] = 4; return sealBatch(b) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var recs []Record
			var heads []BatchHeader
			_, err := decodeBatches(0, 0, tt.damage(testBatch()), &recs, &heads)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
