package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// loop is a sink whose cluster and committer answer at once, so that what is
// left is the way of a batch: notice, step, compose, stamp, outcome, step, ack.
type loop struct {
	sink    *Sink
	next    []uint64
	lanes   int
	kept    []Notice
	offsets []atomic.Int64 // by partition
	tick    *time.Ticker
	done    uint64 // acks made durable
}

func (l *loop) Ack(lane uint32, _ AckedBatch, _ bool) {
	l.kept = append(l.kept, Notice{Kind: NoticeAckKept, ID: lane})
}

func (l *loop) Identity(lane uint32, _ IdentityRecord) {
	l.kept = append(l.kept, Notice{Kind: NoticeIdentityKept, ID: lane})
}

func (l *loop) MoveHead(uint32, uint64, uint64, uint64, AckedBatch) {
	panic("not in a healthy cluster")
}
func (l *loop) Skip(uint32, Batch) { panic("not in a healthy cluster") }
func (l *loop) Held(uint32)        { panic("not in a healthy cluster") }

// Refs lists what offer made durable, on from an index.
func (l *loop) Refs(lane uint32, from uint64, refsMax int) {
	n := Notice{Kind: NoticeRefs, ID: lane}
	for ; from < l.next[lane]; from += 100 {
		if n.More = len(n.Refs) == refsMax; n.More {
			break
		}
		n.Refs = append(n.Refs, l.ref(from))
	}
	l.kept = append(l.kept, n)
}

func (l *loop) ref(first uint64) Ref {
	return Ref{Batch: Batch{First: first, Count: 100, MaxTime: l.sink.now()}, Bytes: 16 << 10}
}

func (l *loop) Replace(uint32, *Replacement) { panic("not in a healthy cluster") }

// ReadBatch makes every lane's batches the same.
func (l *loop) ReadBatch(dst []byte, ref Ref) ([]byte, error) {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderBytes)...)
	binary.BigEndian.PutUint32(dst[at+countAt:], ref.Count)
	return append(dst, benchRecords[:ref.Bytes]...), nil
}

var benchRecords [64 << 10]byte

func (l *loop) produce(_ int32, _ uint8, r *ProduceRequest, dst []PartOutcome) ([]PartOutcome, error) {
	r.written.Store(true)
	for i := range r.parts {
		h := r.parts[i].Batch
		end := l.offsets[r.parts[i].Partition].Add(int64(binary.BigEndian.Uint32(h[countAt:])))
		dst = append(dst, PartOutcome{Answered: true, BaseOffset: end - int64(binary.BigEndian.Uint32(h[countAt:])), LogAppendTime: -1})
	}
	return dst, nil
}

func newLoop(lanes int) *loop {
	l := &loop{next: make([]uint64, lanes), lanes: lanes, offsets: make([]atomic.Int64, lanes), tick: time.NewTicker(10 * time.Millisecond)}
	meta := Metadata{ClusterID: "c", Topics: []TopicMeta{{Name: "t", ID: [16]byte{1}}}}
	for p := range lanes {
		meta.Topics[0].Partitions = append(meta.Topics[0].Partitions, PartitionMeta{Partition: int32(p), Leader: int32(p % 3)})
	}
	var ids atomic.Int64
	l.sink = NewSink(SinkConfig{Journal: l, Logger: slog.New(slog.DiscardHandler), NewReader: func() FrameReader { return l },
		Transport: Transport{
			Metadata:       func(context.Context, []string) (Metadata, error) { return meta, nil },
			InitProducerID: func(context.Context) (int64, int16, int16, error) { return ids.Add(1), 0, 0, nil },
			EndOfEpoch: func(context.Context, int32, string, int32, int32, int32) (int64, int32, int16, error) {
				return 1 << 40, 0, 0, nil
			},
			EndOffset: func(context.Context, int32, string, int32, int32) (int64, int16, error) { return 0, 0, nil },
			Produce:   l.produce,
		}})
	l.sink.ctx = context.Background()
	var sent atomic.Uint64
	for i := range lanes {
		l.sink.take(&Notice{Kind: NoticeLane, ID: uint32(i), Lane: &LaneStart{LaneInfo: LaneInfo{ID: uint32(i), Topic: "t", Slot: uint32(i), SentNext: &sent}}})
	}
	return l
}

// offer makes one batch of every lane durable.
func (l *loop) offer() {
	for i := range l.lanes {
		l.kept = append(l.kept, Notice{Kind: NoticeBatch, ID: uint32(i), Ref: l.ref(l.next[i])})
		l.next[i] += 100
	}
}

// turn does what Run does between two waits, until all that was offered is acked.
func (l *loop) turn() { l.run(l.done + uint64(l.lanes)) }

func (l *loop) run(want uint64) {
	for l.done < want {
		for i := range l.kept {
			if l.kept[i].Kind == NoticeAckKept {
				l.done++
			}
		}
		l.sink.Deliver(l.kept)
		l.kept = l.kept[:0]
		l.sink.takeNotices()
		l.sink.dispatch()
		l.sink.wake()
		if len(l.kept) > 0 || l.done >= want {
			continue
		}
		select {
		case j := <-l.sink.done:
			l.sink.settle(j)
		case p := <-l.sink.replies:
			l.sink.takeReply(p)
		case <-l.tick.C:
		}
	}
}

// From a durable batch to its durable ack: no allocation of ours, whatever the
// number of lanes.
func TestNoAllocationPerBatch(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const rounds, lanes = 2000, 16
	l := newLoop(lanes)
	for range 50 {
		l.offer()
		l.turn()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		l.offer()
		l.turn()
	}
	runtime.ReadMemStats(&after)
	// Metadata are refreshed now and then; a hundredth covers them.
	if per := float64(after.Mallocs-before.Mallocs) / (rounds * lanes); per > 0.01 {
		t.Fatalf("%.3f allocations a batch", per)
	}
}

func BenchmarkSequenceAndSend(b *testing.B) {
	for _, lanes := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			l := newLoop(lanes)
			l.offer()
			l.turn()
			b.ReportAllocs()
			for b.Loop() {
				l.offer()
				l.turn()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lanes), "ns/batch")
		})
	}
}
