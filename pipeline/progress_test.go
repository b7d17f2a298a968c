package pipeline

import (
	"testing"

	"shipper/internal/steady"
	"shipper/sink/kafka"
	"shipper/spool"
)

// A file with partition_by: key whose records go to two lanes, one group each.
func newKeyedProgress() (p *progress, commit func(l uint32, first uint64, offset int64)) {
	lanes := map[uint32]*lane{1: {id: 1, topic: "t", slot: kafka.KeyedSlot}, 2: {id: 2, topic: "t", slot: kafka.KeyedSlot | 1}}
	p = newProgress()
	commit = func(l uint32, first uint64, offset int64) {
		g := &group{lanes: []*lane{lanes[l]}, batches: []*batch{{lane: lanes[l], first: first, sealed: kafka.Sealed{Count: 1}}}}
		g.commit.Sources = []spool.Source{{ID: 7, Lane: 1}}
		g.commit.Cursors = []spool.Cursor{{Source: 7, Offset: offset}}
		p.committed(g, steady.Now())
	}
	return p, commit
}

func ackOf(l uint32, first uint64) *entry {
	return &entry{kind: kafka.NoticeAckKept, lane: l, ack: kafka.AckedBatch{Batch: kafka.Batch{First: first, Count: 1}}}
}

func wantAcked(t *testing.T, p *progress, want int64) {
	t.Helper()
	if f, ok := p.of(7); !ok || f.Acked != want {
		t.Errorf("acked up to %d, want %d", f.Acked, want)
	}
}

// One lane is stuck, and the other goes on for longer than there are marks.
func TestProgressOfStuckLaneByKey(t *testing.T) {
	p, commit := newKeyedProgress()
	commit(1, 0, 10)
	commit(2, 0, 20)
	for i := range 3 * marksMax {
		commit(1, uint64(1+i), 30+int64(i))
		p.take(ackOf(1, uint64(1+i)))
		wantAcked(t, p, 10)
	}
	p.take(ackOf(2, 0))
	wantAcked(t, p, 30+3*marksMax-1)
}

// The brokers lose what was in a lane that is not the file's own by name: it is not acked until that was sent again.
func TestProgressOfLostLaneByKey(t *testing.T) {
	p, commit := newKeyedProgress()
	commit(1, 0, 10)
	commit(2, 0, 20)
	p.take(ackOf(1, 0))
	p.take(ackOf(2, 0))
	wantAcked(t, p, 20)
	for range 2 {
		p.take(&entry{kind: kafka.NoticeHeadKept, lane: 2, index: 0})
		wantAcked(t, p, -1)
	}
	p.take(ackOf(2, 0))
	wantAcked(t, p, 20)
}
