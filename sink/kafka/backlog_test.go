package kafka

import (
	"encoding/binary"
	"testing"
)

// A backlog that is longer than what the sink remembers is sent once and in
// order, and the places in memory stay within their bound all the time.
func TestBacklogBeyondMemory(t *testing.T) {
	for _, lanes := range []int{1, 3, 8} {
		l := newLoop(lanes)
		l.sink.refsMax = 200
		most := l.sink.refsMax + lanes*refsLaneMin
		produce, next := l.sink.cfg.Transport.Produce, make([]int32, lanes)
		l.sink.cfg.Transport.Produce = func(broker int32, conn uint8, r *ProduceRequest, dst []PartOutcome) ([]PartOutcome, error) {
			for i := range r.parts {
				p, sequence := r.parts[i].Partition, int32(binary.BigEndian.Uint32(r.parts[i].Batch[baseSequenceAt:]))
				if sequence != next[p] {
					t.Errorf("partition %d: sequence %d, want %d", p, sequence, next[p])
				}
				next[p] += 100
			}
			return produce(broker, conn, r, dst)
		}
		offered := uint64(0)
		// A long outage; then batches that become durable while it is drained.
		for _, burst := range []int{1, 400, 1, 1, 30, 1, 100} {
			for range burst {
				l.offer()
			}
			offered += uint64(burst * lanes)
			for l.done < offered-min(offered, uint64(50*lanes)) {
				l.run(l.done + 1)
				if l.sink.refs > most {
					t.Fatalf("%d lanes: %d places in memory, at most %d", lanes, l.sink.refs, most)
				}
			}
		}
		l.run(offered)
		if l.sink.refs != 0 {
			t.Errorf("%d lanes: %d places in memory, and nothing to send", lanes, l.sink.refs)
		}
		for _, r := range l.sink.rows {
			if r.more || r.listing > 0 || r.end != l.next[r.info.ID] {
				t.Errorf("%d lanes: lane %d: more %v, listing %v, end %d of %d", lanes, r.info.ID, r.more, r.listing, r.end, l.next[r.info.ID])
			}
		}
	}
}
