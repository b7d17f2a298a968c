package spool

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shipper/internal/vfs"
)

// TestRefusedForAWhile: from the n-th operation on the volume has no space, or
// the directory cannot be changed, for a while. Append says that the spool is
// full and why; nothing that it refused is there later, everything else is, and
// it goes on by itself.
func TestRefusedForAWhile(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		kinds string
	}{
		{"no space", vfs.ErrNoSpace, "create allocate write"},
		{"denied", syscall.EPERM, "create remove rename"},
		{"read-only", syscall.EROFS, "create remove write"},
	} {
		refused := 0
		for at := 0; at < 90; at++ {
			n, err := refuseAt(at, c.err, strings.Fields(c.kinds))
			if err != nil {
				t.Fatalf("%s from operation %d on: %v", c.name, at, err)
			}
			refused += n
		}
		if refused < 20 {
			t.Errorf("%s: only %d groups were refused", c.name, refused)
		}
	}
}

func refuseAt(at int, cause error, kinds []string) (refused int, err error) {
	const lasts = 25 // operations
	rng := rand.New(rand.NewPCG(uint64(at), 5))
	mem, seen, armed := vfs.NewMem(), 0, false
	before := func(op vfs.Op) error {
		// The last step of a new segment is no place to turn back.
		if !armed || !op.Changing || !slices.Contains(kinds, op.Kind) || strings.HasPrefix(op.To, "segment-") {
			return nil
		}
		if seen++; seen <= at || seen > at+lasts {
			return nil
		}
		if op.Kind == "write" && rng.IntN(2) == 0 {
			return &vfs.ShortWriteError{Bytes: rng.IntN(op.Bytes + 1), Err: cause}
		}
		return cause
	}
	o := memOptions(vfs.Hook{FS: mem, Before: before})
	o.MaxBytes = 12 * testSegmentBytes
	l, _, err := Open(o)
	if err != nil {
		return 0, err
	}
	if _, err := l.Append(nil, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}}); err != nil {
		return 0, err
	}
	armed = true
	next, acked := uint64(0), uint64(0)
	for i := range 120 {
		var batches []Batch
		c := &Commit{Cursors: []Cursor{{Source: 1, Offset: int64(next) + 1}}}
		if i%3 == 2 && acked < next {
			c = &Commit{Acks: []Ack{{Lane: 1, First: acked, Count: 1}}}
		} else {
			batches = []Batch{testBatch(1, next, 1, 1000+rng.IntN(2000))}
		}
		_, err := l.Append(nil, batches, c)
		switch {
		case errors.Is(err, ErrFull):
			if cause != vfs.ErrNoSpace && !errors.Is(err, cause) && seen < at+lasts && next-acked < 20 {
				return 0, err
			}
			refused++
			continue
		case err != nil:
			return 0, err
		case len(batches) > 0:
			next++
		default:
			acked++
		}
		if i%5 == 4 {
			if err := l.Sync(); err != nil {
				return 0, err
			}
		}
	}
	if err := l.Sync(); err != nil {
		return 0, err
	}
	for _, left := range []*vfs.Mem{mem.Kill(), mem.Crash(rng)} {
		o.FS = left
		l, r, err := Open(o)
		if err != nil {
			return 0, err
		}
		lane := r.Lanes[0]
		if lane.Next != next || lane.Head != acked || len(lane.Batches) != int(next-acked) || r.Sources[0].Offset != int64(next) || len(r.Damage) > 0 {
			return 0, errors.New("another state than what was accepted")
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
	}
	return refused, nil
}

// TestRoom: what Room says fits, fits, and not much more does.
func TestRoom(t *testing.T) {
	o := memOptions(vfs.NewMem())
	l, _ := mustOpen(t, o)
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 3000)}, nil)
	room, err := l.Room()
	if err != nil {
		t.Fatal(err)
	}
	written := l.Stats().BytesWritten
	next := fill(t, l, 1)
	if took := l.Stats().BytesWritten - written; took < room || took > 2*room {
		t.Errorf("there was room for %d bytes, %d got in", room, took)
	}
	if room, err := l.Room(); err != nil || room > o.segmentBytes {
		t.Errorf("full, and room for %d more; %v", room, err)
	}
	live := func() (sum int64) {
		l.LiveBytes(func(lane uint32, n int64) { sum += n })
		return sum
	}
	all := live()
	if all < int64(next)*3000 {
		t.Errorf("%d bytes are live of %d batches", all, next)
	}
	mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: next/2 - 1, Count: 1}}})
	if half := live(); half < all/3 || half > all*2/3 {
		t.Errorf("%d bytes are live, %d before half was acked", half, all)
	}
}
