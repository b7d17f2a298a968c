package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadOptions of ReadTopic and HighWatermarks. The zero value is a plaintext client
// that gives up after readMax.
type ReadOptions struct {
	Client []kgo.Opt     // TLS and SASL; seed brokers are given apart
	From   int64         // first offset wanted in each partition; the log's start if later
	Within time.Duration // bound of the whole call; 0 is 60 s
}

const (
	readMax       = 60 * time.Second
	fetchBytesMax = 8 << 20
)

// topicReader reads one topic by requests of its own: a consumer would hide batch
// headers, and transactional and offset logic has no place in a checker.
type topicReader struct {
	cl    *kgo.Client
	topic string

	// From the last metadata answer; parts is nil when that is no longer trusted.
	id    [16]byte
	parts map[int32]int32 // partition -> leader
}

// ReadTopic reads all partitions of a topic from o.From to the high watermark they have
// when it gets there, by raw Fetch requests: every record in order of (partition,
// offset) and every batch header. It checks each batch's CRC and counts. Leader moves
// and dead brokers are waited out; the test fails if o.Within passes. Works on any
// broker, kfake too.
func ReadTopic(tb testing.TB, bootstrap []string, topic string, o ReadOptions) ([]Record, []BatchHeader) {
	tb.Helper()
	r, ctx, end := openReader(tb, bootstrap, topic, &o)
	defer end()
	var records []Record
	var headers []BatchHeader
	for p := range int32(r.partitions(ctx, tb)) {
		recs, heads, err := r.readPartition(ctx, p, o.From)
		if err != nil {
			tb.Fatal(err)
		}
		records = append(records, recs...)
		headers = append(headers, heads...)
	}
	return records, headers
}

// HighWatermarks returns the high watermark of each partition of a topic: the offset
// behind the last record that all in-sync replicas hold.
func HighWatermarks(tb testing.TB, bootstrap []string, topic string, o ReadOptions) []int64 {
	tb.Helper()
	r, ctx, end := openReader(tb, bootstrap, topic, &o)
	defer end()
	var marks []int64
	for p := range int32(r.partitions(ctx, tb)) {
		var mark int64
		err := attempt(ctx, fmt.Sprintf("list offsets of %s-%d", topic, p), func(ctx context.Context) (err error) {
			mark, err = r.listOffset(ctx, p, latest)
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
		marks = append(marks, mark)
	}
	return marks
}

// AwaitRecords waits until the high watermarks of a topic add up to at least want.
func AwaitRecords(tb testing.TB, bootstrap []string, topic string, want int64, o ReadOptions) {
	tb.Helper()
	r, ctx, end := openReader(tb, bootstrap, topic, &o)
	defer end()
	err := attempt(ctx, fmt.Sprintf("wait for %d records in %s", want, topic), func(ctx context.Context) error {
		if err := r.refresh(ctx); err != nil {
			return err
		}
		var have int64
		for p := range int32(len(r.parts)) {
			mark, err := r.listOffset(ctx, p, latest)
			if err != nil {
				return err
			}
			have += mark
		}
		if have < want {
			return fmt.Errorf("%d there", have)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func openReader(tb testing.TB, bootstrap []string, topic string, o *ReadOptions) (*topicReader, context.Context, func()) {
	tb.Helper()
	if o.Within == 0 {
		o.Within = readMax
	}
	opts := append([]kgo.Opt{kgo.SeedBrokers(bootstrap...), kgo.DialTimeout(2 * time.Second), kgo.RequestRetries(2)}, o.Client...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		tb.Fatalf("kafkatest: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Within)
	return &topicReader{cl: cl, topic: topic}, ctx, func() { cancel(); cl.Close() }
}

// partitions waits for the topic and returns how many partitions it has.
func (r *topicReader) partitions(ctx context.Context, tb testing.TB) int {
	tb.Helper()
	if err := attempt(ctx, "look up topic "+r.topic, r.refresh); err != nil {
		tb.Fatal(err)
	}
	return len(r.parts)
}

// refresh asks for the topic's id and leaders, without creating it.
func (r *topicReader) refresh(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &r.topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("metadata hold %d topics instead of one", len(resp.Topics))
	}
	mt := resp.Topics[0]
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		return err
	}
	parts := make(map[int32]int32, len(mt.Partitions))
	for _, mp := range mt.Partitions {
		parts[mp.Partition] = mp.Leader
	}
	r.id, r.parts = mt.TopicID, parts
	return nil
}

// ask sends a request to the leader of a partition; any error makes the next call look
// for the leader anew.
func (r *topicReader) ask(ctx context.Context, p int32, req kmsg.Request) (kmsg.Response, error) {
	if r.parts == nil {
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
	}
	leader, ok := r.parts[p]
	if !ok || leader < 0 {
		r.parts = nil
		return nil, fmt.Errorf("partition %d has no leader", p)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := r.cl.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		r.parts = nil
	}
	return resp, err
}

// What ListOffsets takes for an offset's time.
const (
	latest   = -1
	earliest = -2
)

func (r *topicReader) listOffset(ctx context.Context, p int32, when int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	tp := kmsg.NewListOffsetsRequestTopicPartition()
	tp.Partition, tp.Timestamp = p, when
	t.Topic, t.Partitions = r.topic, append(t.Partitions, tp)
	req.Topics = append(req.Topics, t)
	kresp, err := r.ask(ctx, p, req)
	if err != nil {
		return 0, err
	}
	rp := kresp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		r.parts = nil
		return 0, err
	}
	return rp.Offset, nil
}

// readPartition reads from an offset to the high watermark.
func (r *topicReader) readPartition(ctx context.Context, p int32, from int64) (recs []Record, heads []BatchHeader, err error) {
	what := fmt.Sprintf("read %s-%d", r.topic, p)
	next := from
	for {
		var done bool
		err := attempt(ctx, what, func(ctx context.Context) error {
			data, mark, err := r.fetch(ctx, p, next)
			if errors.Is(err, kerr.OffsetOutOfRange) {
				// The log starts later; an offset beyond its end is the end as well.
				start, err := r.listOffset(ctx, p, earliest)
				if err != nil {
					return err
				}
				if done = next > start; !done {
					next = start
				}
				return nil
			}
			if err != nil {
				return err
			}
			end, err := decodeBatches(p, next, data, &recs, &heads)
			if err != nil {
				return &permanentError{err}
			}
			if end == next && next < mark {
				return fmt.Errorf("offset %d of %d is not answered", next, mark)
			}
			next, done = end, end >= mark
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		if done {
			return recs, heads, nil
		}
	}
}

// fetch asks for batches from an offset on; it returns them as they are on the wire
// (the last one may be cut short) and the high watermark.
func (r *topicReader) fetch(ctx context.Context, p int32, from int64) ([]byte, int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 100, 0, fetchBytesMax
	t := kmsg.NewFetchRequestTopic()
	tp := kmsg.NewFetchRequestTopicPartition()
	tp.Partition, tp.FetchOffset, tp.PartitionMaxBytes = p, from, fetchBytesMax
	t.Topic, t.TopicID, t.Partitions = r.topic, r.id, append(t.Partitions, tp)
	req.Topics = append(req.Topics, t)
	kresp, err := r.ask(ctx, p, req)
	if err != nil {
		return nil, 0, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, errors.New("a fetch of one partition was not answered with one")
	}
	rp := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		r.parts = nil
		return nil, 0, err
	}
	return rp.RecordBatches, rp.HighWatermark, nil
}
