package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"shipper/internal/vfs"
)

// crashRow is a place in the journey of a line, and what a crash right behind it
// leaves: of one lane whose file has two lines.
type crashRow struct {
	name   string
	do     func(t *testing.T, s *crashScene)
	killed string   // what the death of the process leaves
	cut    []string // what a power cut may leave
}

// crashScene is the log under test. fail makes the next operation of that kind
// fail, which ends the process there.
type crashScene struct {
	log  *Log
	mem  *vfs.Mem
	fail string
}

// TestCrashTable walks through the journey. States are written as
//
//	next/head/cursor batches [identity of the head, in doubt or not]
//
// "exact" is all that may be found otherwise: a line that is not in the log is
// read again, one that is in doubt goes out under the identity that it may have
// been sent under, all others under a new one.
func TestCrashTable(t *testing.T) {
	two := func() []Batch { return []Batch{testBatch(1, 0, 2, 40<<10)} }
	read := func(t *testing.T, s *crashScene) {
		mustAppend(t, s.log, two(), &Commit{Cursors: []Cursor{{Source: 1, Offset: 2}}})
	}
	synced := func(t *testing.T, s *crashScene) { read(t, s); mustSync(t, s.log) }
	identified := func(t *testing.T, s *crashScene) {
		synced(t, s)
		mustAppend(t, s.log, nil, &Commit{Identities: []Identity{{Lane: 1, ProducerID: 7}}})
		mustSync(t, s.log)
	}
	const nothing, fresh, doubt, done = "0/0/0 -", "2/0/2 0-2 new", "2/0/2 0-2 doubt", "2/2/2 - new"
	for _, row := range []crashRow{
		{"read, not in the log", func(*testing.T, *crashScene) {}, nothing, []string{nothing}},
		{"some frames of the group", func(t *testing.T, s *crashScene) {
			s.fail = "commit"
			if _, err := s.log.Append(nil, two(), &Commit{Cursors: []Cursor{{Source: 1, Offset: 2}}}); err == nil {
				t.Fatal("the commit was written")
			}
		}, nothing, []string{nothing}},
		{"commit, not synced", read, fresh, []string{nothing, fresh}},
		{"synced, not sent", synced, fresh, []string{fresh}},
		{"identity, not synced", func(t *testing.T, s *crashScene) {
			synced(t, s)
			mustAppend(t, s.log, nil, &Commit{Identities: []Identity{{Lane: 1, ProducerID: 7}}})
		}, doubt, []string{fresh, doubt}},
		{"identity durable: sent or not, answered or not", identified, doubt, []string{doubt}},
		{"ack, not synced", func(t *testing.T, s *crashScene) {
			identified(t, s)
			mustAppend(t, s.log, nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 2}}})
		}, done, []string{doubt, done}},
		{"ack durable", func(t *testing.T, s *crashScene) {
			identified(t, s)
			mustAppend(t, s.log, nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 2}}})
			mustSync(t, s.log)
		}, done, []string{done}},
		{"cut again, not synced", func(t *testing.T, s *crashScene) {
			synced(t, s)
			mustAppend(t, s.log, []Batch{testBatch(1, 0, 1, 50), testBatch(1, 1, 1, 50)}, nil)
		}, "2/0/2 0-1 1-2 new", []string{fresh, "2/0/2 0-1 1-2 new"}},
		{"cut again, durable, not sent", func(t *testing.T, s *crashScene) {
			synced(t, s)
			mustAppend(t, s.log, []Batch{testBatch(1, 0, 1, 50), testBatch(1, 1, 1, 50)}, nil)
			mustSync(t, s.log)
		}, "2/0/2 0-1 1-2 new", []string{"2/0/2 0-1 1-2 new"}},
		{"a new segment without its name", func(t *testing.T, s *crashScene) {
			synced(t, s)
			s.fail = "rename"
			if err := s.log.roll(blockBytes, false); err == nil {
				t.Fatal("the segment has a name")
			}
		}, fresh, []string{fresh}},
		{"a new segment with its name", func(t *testing.T, s *crashScene) {
			synced(t, s)
			if err := s.log.roll(blockBytes, false); err != nil {
				t.Fatal(err)
			}
		}, fresh, []string{fresh}},
		{"released, the removal not durable", func(t *testing.T, s *crashScene) {
			identified(t, s)
			mustAppend(t, s.log, nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 2}}})
			for range 3 {
				if err := s.log.roll(blockBytes, false); err != nil {
					t.Fatal(err)
				}
			}
			s.fail = "syncdir"
			s.log.settled = false
			if err := s.log.Sync(); err == nil {
				t.Fatal("the segment is gone for good")
			}
		}, done, []string{done}},
	} {
		t.Run(row.name, func(t *testing.T) { row.run(t) })
	}
}

func (row *crashRow) run(t *testing.T) {
	s := &crashScene{mem: vfs.NewMem()}
	broken := errors.New("the process ends here")
	o := memOptions(vfs.Hook{FS: s.mem, Before: func(op vfs.Op) error {
		if s.fail == op.Kind || s.fail == "commit" && op.Kind == "write" && op.Bytes < 1000 && op.Offset > 40<<10 {
			return broken
		}
		return nil
	}})
	o.segmentBytes, o.MaxBytes, o.RetainAckedBytes = 256<<10, 16<<20, 1
	s.log, _ = mustOpen(t, o)
	mustAppend(t, s.log, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}})
	mustSync(t, s.log)
	row.do(t, s)
	s.fail = ""
	found := map[string]int{}
	for seed := range uint64(30) {
		mem := s.mem.Crash(rand.New(rand.NewPCG(seed, 9)))
		o.FS, o.rand = mem, rand.NewChaCha8([32]byte{byte(seed)})
		state := crashState(t, o)
		if !slices.Contains(row.cut, state) {
			t.Fatalf("a power cut (%d) leaves %q, may leave %q", seed, state, row.cut)
		}
		found[state]++
		o.FS = mem.Crash(rand.New(rand.NewPCG(seed, 10)))
		if again := crashState(t, o); again != state {
			t.Fatalf("a power cut (%d) leaves %q, and another one behind that start %q", seed, state, again)
		}
	}
	if len(found) != len(row.cut) {
		t.Errorf("power cuts left %v of %q", found, row.cut)
	}
	o.FS = s.mem.Kill()
	if state := crashState(t, o); state != row.killed {
		t.Errorf("the death of the process leaves %q, want %q", state, row.killed)
	}
}

// crashState starts on what is left and tells what is found.
func crashState(t *testing.T, o Options) string {
	t.Helper()
	l, r := mustOpen(t, o)
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if len(r.Damage) > 0 || len(r.Lanes) != 1 {
		t.Fatalf("%+v", r)
	}
	lane := r.Lanes[0]
	out := fmt.Sprintf("%d/%d/%d", lane.Next, lane.Head, r.Sources[0].Offset)
	rd := l.NewReader()
	for _, ref := range lane.Batches {
		out += fmt.Sprintf(" %d-%d", ref.First, ref.Next())
		if _, err := rd.ReadBatch(nil, ref); err != nil {
			t.Error(err)
		}
	}
	if err := rd.Close(); err != nil {
		t.Error(err)
	}
	if len(lane.Batches) == 0 {
		out += " -"
	}
	newest := lane.Identities[len(lane.Identities)-1]
	switch {
	case newest.ProducerID >= 0 || newest.Reason != IdentityStart:
		t.Errorf("this start's identity is %+v", newest)
	case lane.Next == 0:
	case newest.From > lane.Head:
		out += " doubt"
	default:
		out += " new"
	}
	return out
}
