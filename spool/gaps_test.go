package spool

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"shipper/internal/vfs"
)

// ledgerOf is what somebody outside knows, by number of the gap.
type ledgerOf map[uint64]UntoldGap

// write writes down what is untold, as a committer does behind a sync, and returns
// the number behind it.
func (book ledgerOf) write(t *testing.T, l *Log) (next uint64) {
	t.Helper()
	for _, u := range l.Untold() {
		if u.Number < next {
			t.Fatalf("number %d behind %d", u.Number, next-1)
		}
		if had, again := book[u.Number]; again && had != u {
			t.Fatalf("gap %d is told as\n%+v\nthen as\n%+v", u.Number, had, u)
		}
		book[u.Number], next = u, u.Number+1
	}
	return next
}

func (book ledgerOf) tell(t *testing.T, l *Log) {
	t.Helper()
	if next := book.write(t, l); next > 0 {
		l.Told(next)
	}
}

func (book ledgerOf) records() (sum uint64) {
	for _, u := range book {
		sum += u.Records
	}
	return sum
}

// TestGapsAreTold drops lines, tells and crashes at random: whatever the cursors
// say was dropped is in the book, once for each number.
func TestGapsAreTold(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1, Block: "app", Topic: "logs"}}, Sources: []Source{{ID: 1, Block: "app", Path: "/a", Lane: 1}, {ID: 2, Block: "app", Path: "/b", Lane: 1}}})
	mustSync(t, l)
	book := ledgerOf{}
	offset := map[uint64]int64{}
	for range 1000 {
		switch rng.IntN(13) {
		case 0, 1, 2, 3, 4, 5:
			id := 1 + rng.Uint64N(2)
			from := offset[id]
			offset[id] += 1 + rng.Int64N(5)
			mustAppend(t, l, nil, &Commit{Cursors: []Cursor{{Source: id, Offset: offset[id]}},
				Gaps: []Gap{{Source: id, FromByte: from, ToByte: offset[id], Records: uint64(offset[id] - from), Reason: GapDroppedNewest}}})
		case 6, 7, 8:
			mustSync(t, l)
			book.tell(t, l)
		case 9:
			mustSync(t, l)
		case 10:
			mustAppend(t, l, nil, nil)
		case 11: // the lines may be there although writing them failed
			mustSync(t, l)
			book.write(t, l)
		case 12:
			if rng.IntN(4) == 0 {
				mustSync(t, l)
				book.tell(t, l)
				mem = mem.Kill()
			} else {
				mem = mem.Crash(rng)
			}
			var r *Recovered
			l, r = mustOpen(t, memOptions(mem))
			dropped := uint64(0)
			for _, s := range r.Sources {
				offset[s.Source.ID] = s.Offset
				dropped += uint64(s.Offset)
			}
			for _, u := range l.state.untold {
				if u.Block != "app" || u.Topic != "logs" || u.Path != map[uint64]string{1: "/a", 2: "/b"}[u.Source] {
					t.Fatalf("%+v", u)
				}
			}
			if rng.IntN(2) == 0 {
				continue // and goes on where one ended of which nobody knows whether it was told
			}
			book.tell(t, l)
			if got := book.records(); got != dropped {
				t.Fatalf("%d records are in the book, %d were dropped", got, dropped)
			}
		}
	}
	if len(book) < 20 {
		t.Fatalf("only %d gaps", len(book))
	}
}

// TestUntoldGapsAreBounded: when nobody can be told, gaps are folded and their
// records still counted.
func TestUntoldGapsAreBounded(t *testing.T) {
	o := memOptions(vfs.NewMem())
	l, _ := mustOpen(t, o)
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1, Block: "app"}}, Sources: []Source{{ID: 1}}})
	const gaps = untoldMax + 500
	for i := range int64(gaps) { // none begins where the one before ended
		reason := GapDroppedNewest
		if i%2 == 0 {
			reason = GapSourceLost
		}
		mustAppend(t, l, nil, &Commit{Gaps: []Gap{{Source: 1, FromByte: 10 * i, ToByte: 10*i + 5, Records: 3, Reason: reason}}})
	}
	want := func() {
		t.Helper()
		records := map[uint8]uint64{}
		for _, u := range l.Untold() {
			records[u.Reason] += u.Records
		}
		if len(l.Untold()) != untoldMax || fmt.Sprint(records) != fmt.Sprint(map[uint8]uint64{GapDroppedNewest: 3 * gaps / 2, GapSourceLost: 3 * gaps / 2}) {
			t.Fatalf("%d gaps, %v", len(l.Untold()), records)
		}
	}
	want()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, o)
	want()
}
