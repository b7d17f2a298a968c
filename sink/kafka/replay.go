package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ReplayHeader marks a record that was sent again on request.
const ReplayHeader = "shipper-replay"

// replayBytesMax bounds the records that wait for an answer.
const replayBytesMax = 16 << 20

// Replay sends records once more, beside an agent: with connections and a
// producer id of its own, so that nothing of a lane is touched.
type Replay struct{ kgo *kgo.Client }

// NewReplay makes one. A record that no broker has taken within timeout fails.
func NewReplay(cfg ClientConfig, codec Codec, timeout time.Duration) (*Replay, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	compression := map[Codec]kgo.CompressionCodec{None: kgo.NoCompression(), Gzip: kgo.GzipCompression(),
		Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression()}
	cl, err := kgo.NewClient(append(opts, kgo.ProducerBatchCompression(compression[codec]), kgo.RecordDeliveryTimeout(timeout),
		kgo.MaxBufferedBytes(replayBytesMax), kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(replayPartition)))...)
	if err != nil {
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	return &Replay{cl}, nil
}

// replayPartition keeps a record where it was, unless the topic was made anew
// with fewer partitions.
func replayPartition(string) func(*kgo.Record, int) int {
	return func(r *kgo.Record, n int) int { return int(r.Partition) % n }
}

// Send hands over one record, marked with ReplayHeader; done hears of its end, in
// another goroutine, one record at a time. It waits while too much is under way.
// Records of a partition arrive in the order of the calls.
func (p *Replay) Send(ctx context.Context, topic string, partition int32, r *Record, mark string, done func(error)) {
	out := &kgo.Record{Topic: topic, Partition: max(partition, 0), Timestamp: time.UnixMilli(r.Time), Value: bytes.Clone(r.Value)}
	if r.HasKey {
		out.Key = append([]byte{}, r.Key...)
	}
	r.EachHeader(func(key string, value []byte) {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: key, Value: bytes.Clone(value)})
	})
	out.Headers = append(out.Headers, kgo.RecordHeader{Key: ReplayHeader, Value: []byte(mark)})
	p.kgo.Produce(ctx, out, func(_ *kgo.Record, err error) { done(err) })
}

// Flush waits until all records have ended.
func (p *Replay) Flush(ctx context.Context) error { return p.kgo.Flush(ctx) }

// Close ends the connections; records under way fail.
func (p *Replay) Close() { p.kgo.Close() }
