package pipeline

import (
	"reflect"
	"testing"

	"shipper/sink/kafka"
	"shipper/spool"
)

// TestLostAroundDeadLetter: the brokers lost records on both sides of a dead
// letter and the spool does not hold them. They are named, the dead letter keeps
// its own gap.
func TestLostAroundDeadLetter(t *testing.T) {
	log, _, err := spool.Open(spool.Options{Dir: t.TempDir(), MaxBytes: 64 << 20, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	var batches []spool.Batch
	for first := range uint64(10) {
		batches = append(batches, spool.Batch{Lane: 1, First: first, Count: 1})
	}
	c := spool.Commit{Lanes: []spool.Lane{{ID: 1}}, Gaps: []spool.Gap{{Lane: 1, From: 5, To: 6, Records: 1, Reason: spool.GapRefused, DeadLetter: "x"}}}
	if _, err := log.Append(nil, batches, &c); err != nil {
		t.Fatal(err)
	}
	lost := func(from, to uint64) spool.Gap {
		return spool.Gap{Lane: 1, From: from, To: to, Records: to - from, Reason: spool.GapLostByBroker}
	}
	for _, x := range []struct {
		acked, index uint64 // end of the last ack that proves something, or with none the first that is lost; first batch held
		none         bool
		want         []spool.Gap
	}{
		{acked: 3, index: 8, want: []spool.Gap{lost(3, 5), lost(6, 8)}},
		{acked: 5, index: 6},
		{acked: 6, index: 6},
		{acked: 0, index: 8, none: true, want: []spool.Gap{lost(0, 5), lost(6, 8)}},
		{acked: 2, index: 4, none: true, want: []spool.Gap{lost(2, 4)}},
		{acked: 4, index: 4, none: true},
	} {
		e := entry{kind: kafka.NoticeHeadKept, lane: 1, index: x.index, lost: x.acked}
		if !x.none {
			e.lost, e.ack = x.index, kafka.AckedBatch{Batch: kafka.Batch{First: x.acked - 1, Count: 1}}
		}
		var got spool.Commit
		e.addTo(&got, log)
		if !reflect.DeepEqual(got.Gaps, x.want) || got.Heads[0].Index != x.acked {
			t.Errorf("from %d to %d: head %+v, gaps %+v, want %+v", x.acked, x.index, got.Heads, got.Gaps, x.want)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
