package kafka

import (
	"context"
	"log/slog"
	"testing"
)

// A batch under our number with other records than ours is neither found nor
// absent: what the batch was cut to, or was before it was cut.
func TestReadBackOfAnotherCount(t *testing.T) {
	for _, c := range []struct {
		count         int32
		found, absent bool
	}{{count: 1}, {count: 2, found: true}} {
		s := NewSink(SinkConfig{Logger: slog.New(slog.DiscardHandler), Transport: Transport{
			ReadBack: func(context.Context, ReadBackQuery) (ReadBackResult, error) {
				return ReadBackResult{State: Found, BaseOffset: 110, Count: c.count}, nil
			}}})
		var got reply
		s.question = func(f func(context.Context) reply) { got = f(t.Context()) }
		r := &row{ids: []IdentityRecord{{ProducerID: 7}}}
		s.askReadBack(r, Action{Batch: Batch{First: 10, Count: 2}, Identity: Identity{PID: 7}, Acked: AckedBatch{Epoch: -1}})
		if got.ev.Kind != EvReadBack || got.ev.Found != c.found || got.ev.Absent != c.absent {
			t.Errorf("a batch of 2 records, %d are there: found %v, absent %v", c.count, got.ev.Found, got.ev.Absent)
		}
	}
}
