package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReplayHeader marks a record that was sent again on request.
const ReplayHeader = "shipper-replay"

const (
	replayBytesMax = 16 << 20  // of records that wait for an answer
	replayBatchMax = 1_000_012 // of a batch, before compression: what every topic takes that is left at its default
	replayAloneMax = 100 << 20 // of a record that is longer than that: kgo's most
)

// Replay sends records once more, beside an agent: with connections and producer
// ids of its own, so that nothing of a lane is touched.
type Replay struct {
	kgo     *kgo.Client
	alone   *kgo.Client // for records longer than replayBatchMax, one at a time
	timeout time.Duration
}

// NewReplay makes one. A record that no broker has taken within timeout fails.
// level is as in NewCompressor.
func NewReplay(cfg ClientConfig, codec Codec, level int, timeout time.Duration) (*Replay, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.ProducerBatchCompression(replayCompression(codec, level)), kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(replayPartition)))
	p := &Replay{timeout: timeout}
	if p.kgo, err = kgo.NewClient(append(slices.Clone(opts), kgo.MaxBufferedBytes(replayBytesMax), kgo.ProducerBatchMaxBytes(replayBatchMax))...); err != nil {
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	if p.alone, err = kgo.NewClient(append(opts, kgo.ProducerBatchMaxBytes(replayAloneMax))...); err != nil {
		p.kgo.Close()
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	return p, nil
}

// replayCompression is what NewCompressor makes of codec and level, in the client's
// terms.
func replayCompression(codec Codec, level int) kgo.CompressionCodec {
	switch codec {
	case Gzip:
		return kgo.GzipCompression().WithLevel(max(level, gzip.BestSpeed))
	case Snappy:
		return kgo.SnappyCompression()
	case LZ4:
		if level == 0 {
			return kgo.Lz4Compression()
		}
		return kgo.Lz4Compression().WithLevel(lz4Level(level))
	case Zstd:
		return kgo.ZstdCompression().WithLevel(int(zstd.EncoderLevelFromZstd(max(level, 1))))
	}
	return kgo.NoCompression()
}

// replayPartition keeps a record where it was, unless the topic was made anew
// with fewer partitions.
func replayPartition(string) func(*kgo.Record, int) int {
	return func(r *kgo.Record, n int) int { return int(r.Partition) % n }
}

// Send hands over one record, marked with ReplayHeader; done hears of its end, in
// other goroutines. It waits while too much is under way. Records of a partition
// arrive in the order of the calls.
func (p *Replay) Send(ctx context.Context, topic string, partition int32, r *Record, mark string, done func(error)) {
	out := &kgo.Record{Topic: topic, Partition: max(partition, 0), Timestamp: time.UnixMilli(r.Time), Value: bytes.Clone(r.Value)}
	if r.HasKey {
		out.Key = append([]byte{}, r.Key...)
	}
	r.EachHeader(func(key string, value []byte) {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: key, Value: bytes.Clone(value)})
	})
	out.Headers = append(out.Headers, kgo.RecordHeader{Key: ReplayHeader, Value: []byte(mark)})
	size := HeaderBytes + RecordOverheadMax + len(out.Key) + len(out.Value)
	for _, h := range out.Headers {
		size += 2*binary.MaxVarintLen32 + len(h.Key) + len(h.Value)
	}
	cl := p.kgo
	if size > replayBatchMax {
		cl = p.alone
		_ = p.kgo.Flush(ctx) // what is before it; only ctx ends it early, and then the record too
	}
	// Not kgo's own limit on delivery, which counts from a record's timestamp.
	within, cancel := context.WithTimeout(ctx, p.timeout)
	cl.Produce(within, out, func(_ *kgo.Record, err error) {
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("no broker took them within %v", p.timeout)
		}
		done(err)
	})
	if cl == p.alone {
		_ = cl.Flush(ctx)
	}
}

// Flush waits until all records have ended.
func (p *Replay) Flush(ctx context.Context) error {
	return errors.Join(p.kgo.Flush(ctx), p.alone.Flush(ctx))
}

// Close ends the connections; records under way fail.
func (p *Replay) Close() {
	p.kgo.Close()
	p.alone.Close()
}
