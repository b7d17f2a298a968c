package kafka

import (
	"errors"
	"slices"
	"testing"
)

func TestFirstLoss(t *testing.T) {
	ack := func(first uint64, count uint32, base int64, epoch int32) AckedBatch {
		return AckedBatch{Batch: Batch{First: first, Count: count}, Base: base, End: base + int64(count), Epoch: epoch, Partition: 2}
	}
	elsewhere := func(x AckedBatch) AckedBatch { x.Partition = 1; return x }
	held := func(acks ...AckedBatch) (list []HeldBatch) {
		for _, x := range acks {
			list = append(list, HeldBatch{Ref: Ref{Batch: x.Batch}, Acked: x, To: x.Next()})
		}
		return list
	}
	behind := func(list []HeldBatch, to ...uint64) []HeldBatch { // gaps behind each up to there
		for i := range list {
			list[i].To = to[i]
		}
		return list
	}
	firm := func(x AckedBatch) AckedBatch { x.Firm = true; return x }
	none := AckedBatch{Epoch: -1}
	a, b, c := ack(0, 10, 100, 5), ack(10, 10, 110, 5), ack(20, 10, 120, 6)
	for _, x := range []struct {
		name       string
		head, from uint64
		held       []HeldBatch
		last       AckedBatch
		ends       map[int32]int64 // missing: not known to the leader
		parted     []int32         // of these it has no records
		lost       uint64
		unsure     uint64
		heldFrom   uint64
		acked      AckedBatch
	}{
		{name: "never acked", last: none, acked: none},
		{name: "nothing lost", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 120, 6: 130}, lost: 30, acked: c},
		{name: "each by its own epoch", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 115, 6: 115}, lost: 10, acked: a},
		{name: "only the newest", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 120, 6: 129}, lost: 20, acked: b},
		{name: "all", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 0, 6: 0}, lost: 0, acked: none},
		{name: "epoch not known", head: 30, held: held(a, b, c), last: c, lost: 30, acked: c},
		{name: "first held is whole in the gap", head: 30, held: held(b, c), last: c, ends: map[int32]int64{5: 110, 6: 110}, lost: 10, heldFrom: 10,
			acked: ack(9, 1, 109, 5)},
		{name: "below the first held: as many as offsets", head: 30, held: held(b, c), last: c, ends: map[int32]int64{5: 107, 6: 107}, lost: 7, heldFrom: 10,
			acked: ack(6, 1, 106, 5)},
		{name: "below the first held: others' records", head: 30, held: held(b, c), last: c, ends: map[int32]int64{5: 3, 6: 3}, lost: 0, heldFrom: 10, acked: none},
		{name: "not below where the partition began", head: 30, from: 8, held: held(b, c), last: c, ends: map[int32]int64{5: 3, 6: 3}, lost: 8, heldFrom: 10,
			acked: ack(7, 1, 2, 5)},
		{name: "none held", head: 30, last: c, ends: map[int32]int64{6: 115}, lost: 15, heldFrom: 30, acked: ack(14, 1, 114, 6)},
		{name: "hole in what is held", head: 30, held: held(a, c), last: c, ends: map[int32]int64{5: 110, 6: 110}, lost: 10, heldFrom: 20, acked: a},
		{name: "a dead letter is no hole", head: 31, held: behind(held(a, c), 20, 31), last: c, ends: map[int32]int64{5: 100, 6: 100}, lost: 0, acked: none},
		{name: "other partition proves nothing", head: 30, from: 20, held: held(elsewhere(a), elsewhere(b), c), last: c,
			ends: map[int32]int64{5: 0, 6: 120}, lost: 20, acked: ack(19, 1, 119, 6)},
		{name: "ack entry lost, the lane's own counts", head: 20, held: held(a, AckedBatch{Batch: b.Batch, Epoch: -1}), last: b, ends: map[int32]int64{5: 110}, lost: 10, acked: a},
		{name: "a batch is lost as a whole", head: 20, held: held(AckedBatch{Batch: a.Batch, Epoch: -1}, AckedBatch{Batch: b.Batch, Epoch: -1}), last: ack(19, 1, 119, 5),
			ends: map[int32]int64{5: 119}, lost: 10, acked: ack(18, 1, 118, 5)},
		{name: "parted before the epoch, all but the first are firm", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 900, 6: 900}, parted: []int32{5, 6},
			lost: 0, unsure: 10, acked: none},
		{name: "parted, and the only ack may be older", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 120, 6: 900}, parted: []int32{6},
			lost: 20, unsure: 30, acked: b},
		{name: "parted, the only ack of each epoch may be older", head: 30, held: held(a, c), last: c, ends: map[int32]int64{5: 900, 6: 900}, parted: []int32{5, 6},
			lost: 0, heldFrom: 20, unsure: 30, acked: none},
		{name: "parted, and nothing behind a firm one is there", head: 30, held: held(a, b, c), last: c, ends: map[int32]int64{5: 115, 6: 900}, parted: []int32{5, 6},
			lost: 0, unsure: 10, acked: none},
		{name: "parted, and the last ack is firm", head: 30, held: held(a, b, c), last: firm(c), ends: map[int32]int64{5: 120, 6: 900}, parted: []int32{6},
			lost: 20, acked: b},
		{name: "parted, none held", head: 30, last: firm(c), ends: map[int32]int64{6: 900}, parted: []int32{6}, lost: 0, heldFrom: 30, acked: none},
	} {
		t.Run(x.name, func(t *testing.T) {
			ev, err := firstLoss(x.head, x.from, x.held, x.last, 2, func(epoch int32) (epochEnd, error) {
				if end, known := x.ends[epoch]; known {
					return epochEnd{offset: end, parted: slices.Contains(x.parted, epoch)}, nil
				}
				return epochEnd{offset: -1}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if ev.Lost != x.lost || ev.Held != x.heldFrom || ev.Unsure != x.unsure || ev.Acked != x.acked {
				t.Errorf("lost %d held %d unsure %d acked %+v, want %d %d %d %+v", ev.Lost, ev.Held, ev.Unsure, ev.Acked, x.lost, x.heldFrom, x.unsure, x.acked)
			}
		})
	}
	failed := errors.New("no answer")
	if _, err := firstLoss(10, 0, held(a), a, 2, func(int32) (epochEnd, error) { return epochEnd{}, failed }); err != failed {
		t.Errorf("error %v", err)
	}
}
