package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// recutBench is a sink with a committer and a broker in memory: entries are durable at once, and batches are taken, refused and
// recognised as Kafka does it. One lane, one partition.
type recutBench struct {
	t      *testing.T
	sink   *Sink
	mu     sync.Mutex // guards the rest
	frames map[uint64][]byte
	place  uint64
	head   uint64
	dead   []uint64
	rotten map[uint64]bool // places
	full   int             // replacements that do not fit yet

	bytesMax int                // of a batch
	refuse   func(*Record) bool // what the topic takes for invalid
	config   func() (TopicConfig, int16, error)
	id       int64
	epoch    int16
	next     int32
	log      [][]byte // values
	refusals int
	before   int64 // ms: how old a record may be; 0: any age
	done     chan struct{}
	want     uint64 // head to wait for
}

func (b *recutBench) kept(n Notice) { b.sink.Deliver([]Notice{n}) }

func (b *recutBench) moved(to uint64) {
	b.head = to
	if b.head == b.want && b.want > 0 {
		close(b.done)
	}
}

func (b *recutBench) Ack(lane uint32, a AckedBatch, _ bool) {
	b.mu.Lock()
	b.moved(a.Next())
	b.mu.Unlock()
	b.kept(Notice{Kind: NoticeAckKept, ID: lane})
}

func (b *recutBench) Identity(lane uint32, _ IdentityRecord) {
	b.kept(Notice{Kind: NoticeIdentityKept, ID: lane})
}

func (b *recutBench) MoveHead(uint32, uint64, uint64, uint64, AckedBatch) {
	panic("nothing is lost here")
}
func (b *recutBench) Held(uint32)              { panic("nothing is lost here") }
func (b *recutBench) Refs(uint32, uint64, int) { panic("there is no backlog") }

func (b *recutBench) Skip(lane uint32, x Batch) {
	b.mu.Lock()
	for i := x.First; i < x.Next(); i++ {
		b.dead = append(b.dead, i)
	}
	b.moved(x.Next())
	b.mu.Unlock()
	b.kept(Notice{Kind: NoticeSkipKept, ID: lane})
}

func (b *recutBench) Replace(lane uint32, x *Replacement) {
	b.mu.Lock()
	done := &Replaced{}
	switch {
	case b.full > 0:
		b.full--
		done.Err = errors.New("no room")
	case x.Dead != nil:
		b.dead = append(b.dead, x.Dead.Index)
		done.Place = "there"
		b.moved(x.Dead.Index + 1)
	default:
		for i := range x.Batches {
			s := &x.Batches[i].Sealed
			done.Refs = append(done.Refs, b.spool(x.Batches[i].First, s))
		}
	}
	b.mu.Unlock()
	b.kept(Notice{Kind: NoticeReplaced, ID: lane, Replaced: done})
}

func (b *recutBench) spool(first uint64, s *Sealed) Ref {
	b.place++
	b.frames[b.place] = append(append([]byte{}, s.Header[:]...), s.Records...)
	return Ref{Batch: Batch{First: first, Count: s.Count, MaxTime: s.MaxTime}, Bytes: uint32(len(s.Records)), Place: b.place}
}

func (b *recutBench) ReadBatch(dst []byte, ref Ref) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rotten[ref.Place] {
		return dst, ErrDamaged
	}
	return append(dst, b.frames[ref.Place]...), nil
}

// produce is the broker. It takes only what follows what it has, and the same numbers for the same bytes.
func (b *recutBench) produce(_ int32, _ uint8, r *ProduceRequest, dst []PartOutcome) ([]PartOutcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.written.Store(true)
	batch := r.parts[0].Batch
	o := PartOutcome{Answered: true, BaseOffset: -1, LogAppendTime: -1}
	var c cutter
	if err := c.load(batch, 0); err != nil {
		return dst, err
	}
	h := &c.header
	for i := range c.count() {
		if rec := c.record(i); b.refuse != nil && b.refuse(&rec) {
			o.RecordErrors = append(o.RecordErrors, int32(i))
		}
	}
	switch {
	case len(batch) > b.bytesMax:
		o.Code = 10
	case b.before > 0 && h.MaxTime-c.span() < time.Now().UnixMilli()-b.before:
		o.Code, o.RecordErrors = 32, nil
	case len(o.RecordErrors) > 0:
		o.Code, o.ErrorMessage = 87, "One or more records have been rejected"
	case h.ProducerID != b.id && h.BaseSequence != 0, h.ProducerID == b.id && h.Epoch == b.epoch && h.BaseSequence != b.next,
		h.ProducerID == b.id && h.Epoch > b.epoch && h.BaseSequence != 0, h.ProducerID == b.id && h.Epoch < b.epoch:
		b.t.Errorf("id %d epoch %d sequence %d behind id %d epoch %d sequence %d", h.ProducerID, h.Epoch, h.BaseSequence, b.id, b.epoch, b.next)
		o.Code = 45
	default:
		o.BaseOffset = int64(len(b.log))
		for i := range c.count() {
			b.log = append(b.log, bytes.Clone(c.record(i).Value))
		}
		b.id, b.epoch, b.next = h.ProducerID, h.Epoch, h.BaseSequence+h.Count
	}
	if o.Code != 0 {
		b.refusals++
	}
	return append(dst, o), nil
}

func newRecutBench(t *testing.T) *recutBench {
	b := &recutBench{t: t, frames: map[uint64][]byte{}, bytesMax: 1 << 30, id: -1, done: make(chan struct{}),
		config: func() (TopicConfig, int16, error) { return TopicConfig{}, 29, nil }}
	ids := atomic.Int64{}
	b.sink = NewSink(SinkConfig{Journal: b, Logger: slog.New(slog.DiscardHandler), NewReader: func() FrameReader { return b },
		Transport: Transport{
			Metadata: func(context.Context, []string) (Metadata, error) {
				return Metadata{ClusterID: "c", Topics: []TopicMeta{{Name: "t", ID: [16]byte{1}, Partitions: []PartitionMeta{{Leader: 1}}}}}, nil
			},
			InitProducerID: func(context.Context) (int64, int16, int16, error) { return ids.Add(1), 0, 0, nil },
			EndOfEpoch: func(context.Context, int32, string, int32, int32, int32) (int64, int32, int16, error) {
				return 1 << 40, 0, 0, nil
			},
			EndOffset:   func(context.Context, int32, string, int32, int32) (int64, int16, error) { return 0, 0, nil },
			TopicConfig: func(context.Context, string) (TopicConfig, int16, error) { return b.config() },
			Produce:     b.produce,
		}})
	return b
}

// run spools batches of n records each and waits until all are in the topic or dead. It returns the values.
func (b *recutBench) run(batches, n int) (values []string) {
	b.t.Helper()
	compressor := mustCompressor(b.t, LZ4, 0)
	notices := []Notice{{Kind: NoticeLane, ID: 1, Lane: &LaneStart{LaneInfo: LaneInfo{ID: 1, Topic: "t", SentNext: new(atomic.Uint64)}}}}
	r := testRand(b.t)
	for range batches {
		var x Builder
		x.Reset(make([]byte, 0, n*600))
		first := len(values)
		for range n {
			v := fmt.Appendf(nil, "%06d %x", len(values), randomBytes(r, 100))
			values = append(values, string(v))
			x.Append(b.sink.now()-int64(10*(n-x.Count())), nil, v, false)
		}
		var s Sealed
		compressor.Seal(&x, nil, &s)
		notices = append(notices, Notice{Kind: NoticeBatch, ID: 1, Ref: b.spool(uint64(first), &s)})
	}
	b.want = uint64(len(values))
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() { b.sink.Run(ctx, 0); close(ended) }()
	b.sink.Deliver(notices)
	select {
	case <-b.done:
	case <-time.After(30 * time.Second):
		b.t.Error("not done")
	}
	stop()
	<-ended
	return values
}

// delivered compares the log with what was spooled, but for the dead letters.
func (b *recutBench) delivered(values []string) {
	b.t.Helper()
	var want []string
	for i, v := range values {
		if !slices.Contains(b.dead, uint64(i)) {
			want = append(want, v)
		}
	}
	if !slices.EqualFunc(b.log, want, func(got []byte, want string) bool { return string(got) == want }) {
		b.t.Errorf("%d records are in the log, want %d, or others", len(b.log), len(want))
	}
}

func TestSinkCutsBatches(t *testing.T) {
	for name, c := range map[string]struct {
		config      TopicConfig
		code        int16
		err         error
		full        int
		refusalsMax int
		epochMax    int16
	}{
		"configuration known":   {config: TopicConfig{Known: true, BatchBytesMax: 3_000}, refusalsMax: 1, epochMax: 1},
		"not to be read":        {code: 29, refusalsMax: 8, epochMax: 8},
		"no answer":             {err: errors.New("broken"), refusalsMax: 8, epochMax: 8},
		"says another limit":    {config: TopicConfig{Known: true, BatchBytesMax: 1 << 20}, refusalsMax: 8, epochMax: 8},
		"spool is full at once": {config: TopicConfig{Known: true, BatchBytesMax: 3_000}, full: 2, refusalsMax: 3, epochMax: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRecutBench(t)
			b.bytesMax, b.full = 3_000, c.full
			b.config = func() (TopicConfig, int16, error) { return c.config, c.code, c.err }
			b.delivered(b.run(4, 500))
			if b.refusals > c.refusalsMax || b.epoch > c.epochMax || b.id != 1 || len(b.dead) > 0 {
				t.Errorf("%d refusals, id %d epoch %d, dead %v", b.refusals, b.id, b.epoch, b.dead)
			}
			if s := b.sink.Stats(); s.CutBatches == 0 || s.DeadLetters != 0 || s.MaybeDoubledRecords != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Records that the topic takes for invalid, named by the broker: they alone are missing.
func TestSinkDeadLetters(t *testing.T) {
	bad := []uint64{0, 7, 8, 99, 100, 150}
	b := newRecutBench(t)
	b.refuse = func(r *Record) bool {
		var n uint64
		_, err := fmt.Sscanf(string(r.Value[:6]), "%d", &n)
		return err == nil && slices.Contains(bad, n)
	}
	b.config = func() (TopicConfig, int16, error) { return TopicConfig{Known: true}, 0, nil }
	b.delivered(b.run(2, 100))
	if !slices.Equal(b.dead, bad) {
		t.Errorf("dead letters %v, want %v", b.dead, bad)
	}
	if s := b.sink.Stats(); s.DeadLetters != uint64(len(bad)) {
		t.Errorf("%+v", s)
	}
}

// Times that lie further apart than the topic takes: made one, and moved.
func TestSinkMovesTimes(t *testing.T) {
	for name, known := range map[string]bool{"bounds known": true, "bounds not known": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRecutBench(t)
			b.before = 1_000
			if known {
				b.config = func() (TopicConfig, int16, error) { return TopicConfig{Known: true, BeforeMs: 1_000}, 0, nil }
			}
			values := b.run(2, 200)
			b.delivered(values)
			if s := b.sink.Stats(); s.ShiftedRecords != uint64(len(values)) || s.DeadLetters != 0 || b.epoch != 0 {
				t.Errorf("%+v, epoch %d", s, b.epoch)
			}
		})
	}
}

func TestTopicConfigOfACluster(t *testing.T) {
	cluster := newCluster(t)
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	cfg, code, err := client.TopicConfig(testContext(t), testTopic)
	if err != nil || code != 0 || !cfg.Known || cfg.BatchBytesMax < 1_000_000 || cfg.Compacted {
		t.Errorf("%+v, code %d, %v", cfg, code, err)
	}
	if cfg, code, err := client.TopicConfig(testContext(t), "unknown"); err != nil || code == 0 || cfg.Known {
		t.Errorf("%+v, code %d, %v", cfg, code, err)
	}
}
