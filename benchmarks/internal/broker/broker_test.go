package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func listen(t *testing.T, o Options) *Broker {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	b, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func client(t *testing.T, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic(Topic), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestVerifyCountsEveryCodec(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			b := listen(t, Options{Verify: true})
			cl := client(t, b, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			const perTag, tags = 500, 3
			for i := range perTag * tags {
				tag, number := i%tags, i/tags
				cl.Produce(deadline(t), &kgo.Record{Partition: int32(tag), Value: fmt.Appendf(nil, "f%02d %010d some text", tag, number)},
					func(_ *kgo.Record, err error) {
						if err != nil {
							t.Error(err)
						}
					})
			}
			if err := cl.Flush(deadline(t)); err != nil {
				t.Fatal(err)
			}
			got := b.Totals()
			if want := (LineTotals{Lines: perTag * tags, Tags: tags}); *got.Lines != want || got.Records != perTag*tags {
				t.Errorf("lines %+v, want %+v; %d records", *got.Lines, want, got.Records)
			}
			if got.Unsequenced != 0 || got.ProducerIDs != 1 || len(got.Refused) != 0 || got.Duplicates != 0 {
				t.Errorf("totals %+v, want one producer id and nothing refused", got)
			}
		})
	}
}

func TestLineChecker(t *testing.T) {
	c := newLineChecker(2)
	say := func(partition int, tag string, numbers ...uint64) {
		var lines []line
		for _, n := range numbers {
			lines = append(lines, line{tag, n})
		}
		c.arrived(partition, lines)
	}
	say(0, "a", 0, 1, 2, 200) // 3..199 missing
	say(0, "a", 2)            // doubled and out of order
	say(1, "a", 5)            // spread; 5 is no longer missing
	say(0, "b", 1, 0)         // out of order
	say(1, "", 0)             // foreign
	want := LineTotals{Lines: 9, Tags: 2, Missing: 196, Doubled: 1, OutOfOrder: 2, SpreadTags: 1, Foreign: 1}
	if got := c.totals(); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestParseLine(t *testing.T) {
	for text, want := range map[string]line{
		"f01 0000000042 x":                    {"f01", 42},
		"f01 0000000042":                      {}, // cut
		"f01 00000000a2 x":                    {},
		"f01 000000042 xx":                    {},
		" 0000000042 x":                       {},
		"":                                    {},
		"a-tag-that-is-too-long 0000000042 x": {},
		"f01 9999999999 x":                    {}, // above numbersMax
	} {
		if got := parseLine([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// batchOf builds one uncompressed batch of n records that hold "x".
func batchOf(h batchHeader, n int) []byte {
	b := make([]byte, batchHeaderBytes)
	for i := range n {
		record := []byte{0, 0} // attributes, time delta
		record = binary.AppendVarint(record, int64(i))
		record = append(record, 1, 2, 'x', 0) // no key, value, no headers
		b = binary.AppendVarint(b, int64(len(record)))
		b = append(b, record...)
	}
	be := binary.BigEndian
	be.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	be.PutUint16(b[21:], uint16(h.attributes))
	be.PutUint32(b[23:], uint32(n-1))
	be.PutUint64(b[35:], uint64(h.maxTime))
	be.PutUint64(b[43:], uint64(h.producerID))
	be.PutUint16(b[51:], uint16(h.epoch))
	be.PutUint32(b[53:], uint32(h.baseSequence))
	be.PutUint32(b[57:], uint32(n))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func produceRaw(t *testing.T, b *Broker, cl *kgo.Client, version int16, batch []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	meta := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(Topic)
	meta.Topics = append(meta.Topics, mt)
	described, err := meta.RequestWith(deadline(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = Topic, described.Topics[0].TopicID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = 1, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c := conn{broker: b}
	body := req.AppendTo(nil)
	if req.IsFlexible() {
		body = append([]byte{0}, body...)
	}
	resp, err := c.carryOut(int16(kmsg.Produce), version, body)
	if err != nil {
		t.Fatalf("version %d: %v", version, err)
	}
	return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func TestProduceVersionsAndAnswers(t *testing.T) {
	b := listen(t, Options{Verify: true})
	cl := client(t, b)
	var end int64
	for version := int16(3); version <= 13; version++ {
		h := batchHeader{producerID: 5, baseSequence: int32(end), maxTime: 1234}
		if p := produceRaw(t, b, cl, version, batchOf(h, 3)); p.ErrorCode != 0 || p.BaseOffset != end || p.LogAppendTime != -1 {
			t.Fatalf("version %d: code %d, offset %d, time %d, want 0, %d, -1", version, p.ErrorCode, p.BaseOffset, p.LogAppendTime, end)
		}
		if p := produceRaw(t, b, cl, version, batchOf(h, 3)); p.ErrorCode != 0 || p.BaseOffset != end || p.LogAppendTime != 1234 {
			t.Fatalf("version %d, repeated: code %d, offset %d, time %d, want 0, %d, 1234", version, p.ErrorCode, p.BaseOffset, p.LogAppendTime, end)
		}
		end += 3
	}
	if got := b.Totals(); got.Records != end || got.Duplicates != 11 || got.Lines.Foreign != uint64(end) {
		t.Errorf("totals %+v, want %d records and 11 duplicates", got, end)
	}
}

func TestBadBatches(t *testing.T) {
	good := func() []byte { return batchOf(batchHeader{producerID: 9}, 2) }
	for name, c := range map[string]struct {
		change func([]byte) []byte
		want   *kerr.Error
	}{
		"two batches":       {func(b []byte) []byte { return append(b, b...) }, kerr.InvalidRecord},
		"cut":               {func(b []byte) []byte { return b[:40] }, kerr.CorruptMessage},
		"flipped bit":       {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, kerr.CorruptMessage},
		"old magic":         {func(b []byte) []byte { b[16] = 1; return b }, kerr.InvalidRecord},
		"base offset":       {func(b []byte) []byte { b[7] = 1; return b }, kerr.InvalidRecord},
		"count and delta":   {func([]byte) []byte { b := batchOf(batchHeader{}, 2); b[26] = 5; return withCRC(b) }, kerr.InvalidRecord},
		"transactional":     {func([]byte) []byte { return batchOf(batchHeader{attributes: 0x10}, 2) }, kerr.InvalidRecord},
		"negative sequence": {func([]byte) []byte { return batchOf(batchHeader{baseSequence: -1}, 2) }, kerr.InvalidRecord},
		"too large":         {func([]byte) []byte { return batchOf(batchHeader{}, 200_000) }, kerr.MessageTooLarge},
		"records not counted": {func([]byte) []byte {
			b := append(good(), 0)
			binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
			return withCRC(b)
		}, kerr.InvalidRecord},
	} {
		t.Run(name, func(t *testing.T) {
			b := listen(t, Options{Verify: true})
			p := produceRaw(t, b, client(t, b), 9, c.change(good()))
			if p.ErrorCode != c.want.Code {
				t.Errorf("code %d, want %v", p.ErrorCode, c.want)
			}
			if got := b.Totals(); got.Records != 0 || got.Refused[c.want.Message] != 1 {
				t.Errorf("totals %+v, want nothing appended and one %s", got, c.want.Message)
			}
		})
	}
}

func withCRC(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func TestDownKeepsState(t *testing.T) {
	b := listen(t, Options{})
	cl := client(t, b)
	if err := cl.ProduceSync(deadline(t), kgo.StringRecord("one")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.Down()
	if err := cl.Ping(deadlineShort(t)); err == nil {
		t.Error("ping answered while down")
	}
	if err := b.Up(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(deadline(t), kgo.StringRecord("two")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := b.Totals(); got.Records != 2 || got.ProducerIDs != 1 {
		t.Errorf("totals %+v, want 2 records of one producer id", got)
	}
}

func deadlineShort(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestLogEnds(t *testing.T) {
	b := listen(t, Options{})
	cl := client(t, b)
	produceRaw(t, b, cl, 9, batchOf(batchHeader{producerID: -1}, 7))

	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	et := kmsg.NewOffsetForLeaderEpochRequestTopic()
	et.Topic = Topic
	ep := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	ep.Partition, ep.LeaderEpoch, ep.CurrentLeaderEpoch = 1, 0, 0
	et.Partitions = append(et.Partitions, ep)
	ep.LeaderEpoch = 3 // never was
	et.Partitions = append(et.Partitions, ep)
	epochs.Topics = append(epochs.Topics, et)
	got, err := epochs.RequestWith(deadline(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Topics[0].Partitions; p[0].EndOffset != 7 || p[1].EndOffset != -1 {
		t.Errorf("ends %d and %d, want 7 and -1", p[0].EndOffset, p[1].EndOffset)
	}

	list := kmsg.NewPtrListOffsetsRequest()
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = Topic
	for _, at := range []int64{-1, -2} {
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Partition, lp.Timestamp = 1, at
		lt.Partitions = append(lt.Partitions, lp)
	}
	list.Topics = append(list.Topics, lt)
	offsets, err := list.RequestWith(deadline(t), cl)
	if err != nil {
		t.Fatal(err)
	}
	if p := offsets.Topics[0].Partitions; p[0].Offset != 7 || p[1].Offset != 0 {
		t.Errorf("latest %d and earliest %d, want 7 and 0", p[0].Offset, p[1].Offset)
	}
}
