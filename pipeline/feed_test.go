package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

const keyedPartitions = 7

// byKey makes the bench's lines go to partitions by their member k.
func byKey(t *testing.T, x *bench) {
	t.Helper()
	s := &x.r.cfg.Sources[0]
	s.ByKey, s.LineBytesMax, s.Record.Key = true, 10_000, "field:k"
	if err := s.compile(); err != nil {
		t.Fatal(err)
	}
}

// keyedRead reads a file of so many lines by key, with room for groups of groupMax.
func keyedRead(t *testing.T, path string, lines uint64, groupMax int64) []*group {
	t.Helper()
	x := newBench(t, "none", 64<<20)
	byKey(t, x)
	x.groupMax(groupMax)
	x.keep = true
	x.d.topics.Get("t").Partitions.Store(keyedPartitions)
	x.readAll(t, path)
	for x.records.Load() < lines {
		runtime.Gosched()
	}
	return x.groups
}

// Lines go to the partitions of their keys, in the order of the file; and whatever group a crash leaves as the last, what
// is in the groups is what lies below the file's offset.
func TestByKey(t *testing.T) {
	const lines = 60_000
	path := filepath.Join(t.TempDir(), "keyed.log")
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, "{\"k\":\"key-%d\",\"line\":%d,\"x\":\"%s\"}\n", i*7919%501, i, bytes.Repeat([]byte("x"), i%300))
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, groupMax := range []int64{128 << 10, 1 << 20, 16 << 20} {
		t.Run(fmt.Sprint(groupMax), func(t *testing.T) {
			records, groups, last, slots := 0, 0, map[string]int{}, map[uint32]uint32{}
			next := map[uint32]uint64{}
			for _, g := range keyedRead(t, path, lines, groupMax) {
				groups++
				if g.bytes > groupMax {
					t.Errorf("a group of up to %d bytes in a spool that takes %d", g.bytes, groupMax)
				}
				for _, l := range g.commit.Lanes {
					slots[l.ID] = l.Slot
				}
				for _, b := range g.batches {
					slot, known := slots[b.lane.id]
					if !known || b.first != next[b.lane.id] {
						t.Fatalf("lane %d: entry %t, batch at %d, want %d", b.lane.id, known, b.first, next[b.lane.id])
					}
					next[b.lane.id] += uint64(b.sealed.Count)
					records += int(b.sealed.Count)
					checkKeyed(t, b, slot, last)
				}
				for _, c := range g.commit.Cursors {
					if below := bytes.Count(text.Bytes()[:c.Offset], []byte("\n")); below != records {
						t.Fatalf("%d records are in the groups, %d lines lie below the file's offset", records, below)
					}
				}
			}
			if records != lines || len(slots) != keyedPartitions {
				t.Fatalf("%d records in %d lanes, want %d in %d", records, len(slots), lines, keyedPartitions)
			}
			if groupMax == 16<<20 && groups > 3 {
				t.Errorf("%d groups for %d bytes", groups, text.Len())
			}
		})
	}
}

func checkKeyed(t *testing.T, b *batch, slot uint32, last map[string]int) {
	t.Helper()
	for rest := b.sealed.Records; len(rest) > 0; {
		var rec kafka.Record
		var err error
		if rec, rest, err = kafka.NextRecord(rest, 0); err != nil {
			t.Fatal(err)
		}
		var key string
		var line int
		if _, err := fmt.Sscanf(strings.ReplaceAll(string(rec.Value), `"`, " "), "{ k : %s , line :%d,", &key, &line); err != nil {
			t.Fatalf("%q: %v", rec.Value, err)
		}
		if p := kafka.KeyPartition(rec.Key, keyedPartitions); kafka.KeyedSlot|uint32(p) != slot || string(rec.Key) != key {
			t.Fatalf("a record with key %q, partition %d, is in slot %d", rec.Key, p, slot&^kafka.KeyedSlot)
		}
		if before, seen := last[key]; seen && before >= line {
			t.Fatalf("line %d of key %s comes behind line %d", line, key, before)
		}
		last[key] = line
	}
}

// watchOne has the bench's reader take a file of three lines, and returns the context of its turns.
func watchOne(t *testing.T, x *bench) context.Context {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyed.log")
	if err := os.WriteFile(path, []byte("{\"k\":\"a\"}\n{\"k\":\"b\"}\n{\"k\":\"c\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return watchPath(t, x, path)
}

// watchPath has the bench's reader take a file.
func watchPath(t *testing.T, x *bench, path string) context.Context {
	t.Helper()
	w, err := tail.NewWatcher(tail.Options{Blocks: []tail.Block{{Name: "app", Paths: []string{path}, LineBytesMax: 1000}}, NoInotify: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx, x.d) }()
	t.Cleanup(func() { stop(); <-done })
	for len(x.r.files) == 0 {
		x.r.takeMail(time.Now())
	}
	return ctx
}

// What was read when the block's records went another way, or by the block that had its files, is in Kafka before anything is
// read: both ways may lead to one partition. Another topic, and what is acked already, hold up nobody.
func TestElderLanesGoFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		block string // of before
		slot  uint32 // then
		keyed bool   // now
	}{{"by file now", "app", kafka.KeyedSlot | 2, false}, {"by key now", "app", 1, true}, {"source renamed", "before", 0, false}, {"source renamed, by key now", "before", 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			x := newBench(t, "none", 64<<20)
			if c.keyed {
				byKey(t, x)
				x.d.topics.Get("t").Partitions.Store(3)
			}
			lanes := []spool.LaneState{
				{Lane: spool.Lane{ID: 1, Block: c.block, Topic: "other", Slot: c.slot}, Head: 3, Next: 9},
				{Lane: spool.Lane{ID: 2, Block: c.block, Topic: "t", Slot: c.slot + 1}, Head: 9, Next: 9},
				{Lane: spool.Lane{ID: 3, Block: "gone", Topic: "t", Slot: c.slot}, Head: 3, Next: 9}, // nobody reads its files on
				{Lane: spool.Lane{ID: 4, Block: c.block, Topic: "t", Slot: c.slot}, Head: 3, Next: 12,
					Gaps: []spool.Gap{{From: 5, To: 6}, {From: 9, To: 10}, {From: 10, To: 12}}}, // damage took its last lines
			}
			var elder *lane
			for i := range lanes {
				elder = x.d.recover(&lanes[i])
			}
			x.d.inherit(lanes, map[string][]string{"before": {"app"}})
			ctx := watchOne(t, x)
			for _, acked := range []uint64{3, 8} {
				elder.acked.Store(acked)
				x.r.turns(ctx, time.Now())
				if got := x.r.stats.lines.Load(); got != 0 {
					t.Fatalf("%d lines were read while the elder lane holds records from %d on", got, acked)
				}
			}
			elder.acked.Store(9)
			x.r.turns(ctx, time.Now())
			if got := x.r.stats.lines.Load(); got != 3 {
				t.Fatalf("%d lines were read, want 3", got)
			}
		})
	}
}

// A file of a block that is renamed leads a start to the lanes of before. So it is remembered as of that block until these are
// through, whether it is gone from its path or truncated: a start in between would read what took its place before them.
func TestElderLanesStayKnown(t *testing.T) {
	for _, moved := range []bool{false, true} { // handed out since the start
		t.Run(fmt.Sprintf("moved %v", moved), func(t *testing.T) {
			x := newBench(t, "none", 64<<20)
			x.keep = true
			lanes := []spool.LaneState{{Lane: spool.Lane{ID: 4, Block: "before", Topic: "t"}, Head: 3, Next: 9}}
			before := x.d.recover(&lanes[0])
			x.d.recoverSource(&spool.SourceState{Source: spool.Source{ID: 7, Lane: 4}})
			x.d.inherit(lanes, map[string][]string{"before": {"app"}})
			ctx := watchOne(t, x)
			if moved {
				x.d.files[7], x.d.moved[7] = x.r.files[0].feed.home.id, true
			}
			of := x.r.files[0]
			of.known, of.owes = true, true
			x.d.Gone(7)
			turn := func() (groups int) {
				x.r.takeMail(time.Now())
				x.r.turns(ctx, time.Now())
				return len(x.r.late)
			}
			if kept := turn(); kept != 1 || !of.owes {
				t.Fatalf("%d sources are kept back, a truncated one %v", kept, of.owes)
			}
			before.acked.Store(9)
			turn()
			if kept := turn(); kept != 0 || of.owes {
				t.Fatalf("%d sources are kept back, a truncated one %v, and nothing waits for them", kept, of.owes)
			}
		})
	}
}

// Nothing is read before the number of partitions is known, a start knows it from the spool, and another number counts
// from the next record on.
func TestByKeyWaitsForPartitions(t *testing.T) {
	x := newBench(t, "none", 64<<20)
	byKey(t, x)
	ctx := watchOne(t, x)
	for range 3 {
		x.r.turns(ctx, time.Now())
	}
	f := x.r.files[0].feed
	if got := x.r.stats.lines.Load(); got != 0 || f.keyed.n != 0 {
		t.Fatalf("%d lines were read by key to %d partitions", got, f.keyed.n)
	}
	x.d.topics.Get("t").Partitions.Store(3)
	x.r.turns(ctx, time.Now())
	if got := x.r.stats.lines.Load(); got != 3 {
		t.Fatalf("%d lines were read, want 3", got)
	}
	home, last := f.home.lane, f.keyed.lanes[2].lane
	again := x.r.newFeed(&handover{handed: handed{lane: home, known: true}, siblings: []handed{{lane: last, next: 1, known: true}}})
	if again.keyed.n != 3 {
		t.Fatalf("a start finds %d partitions in the spool, want 3", again.keyed.n)
	}
	x.d.topics.Get("t").Partitions.Store(5)
	if !x.r.ready(again, time.Now()) || again.keyed.n != 5 || again.keyed.lanes[4] == nil || again.keyed.lanes[2].lane != last {
		t.Fatalf("after growth %+v", again.keyed)
	}
}

// A file that the spool knows from another topic goes on by key: the lane is written though nothing may be read, since
// the sink asks only for topics of lanes how many partitions they have.
func TestByKeyKnownFileOfAnotherTopic(t *testing.T) {
	x := newBench(t, "none", 64<<20)
	byKey(t, x)
	var lanes []spool.Lane
	taken := make(chan struct{}, 16)
	x.taken = func(g *group) { lanes = append(lanes, g.commit.Lanes...); taken <- struct{}{} }
	ctx := watchOne(t, x)
	f := x.r.files[0].f
	x.r.seal(x.r.open) // the entry of the new file, and its lane
	<-taken
	lanes = nil
	x.r.cfg.Sources[0].Topic = "other"
	f.SetID(1)
	x.d.Open(f)
	now := time.Now()
	x.r.takeMail(now)
	x.r.turns(ctx, now)
	if len(x.r.open) != 1 {
		t.Fatal("nothing tells the spool, and with it the sink, of the lane")
	}
	x.r.sealDue(now.Add(2 * time.Second))
	<-taken
	if len(lanes) != 1 || lanes[0].Topic != "other" || lanes[0].Slot != kafka.KeyedSlot || x.r.stats.lines.Load() != 0 {
		t.Errorf("lanes %+v are written, %d lines read; want the one of the other topic and no lines", lanes, x.r.stats.lines.Load())
	}
}

// A file of the spool goes to another lane now. With what is read of it first the spool learns of that, and not before: its lines
// may still wait for what the lane of before holds.
func TestFileInAnotherLane(t *testing.T) {
	x := newBench(t, "none", 64<<20)
	groups := make(chan *group, 16)
	x.taken = func(g *group) { groups <- g }
	x.d.nextSource = 7
	ctx := watchOne(t, x)
	x.r.seal(x.r.open) // the entry of the new file
	if g := <-groups; len(g.commit.Sources) != 1 || g.commit.Sources[0].ID != 7 {
		t.Fatalf("source entries %+v", g.commit.Sources)
	}
	f, now := x.r.files[0].f, time.Now()
	x.d.recover(&spool.LaneState{Lane: spool.Lane{ID: 9, Block: "before", Topic: "t"}, Head: 9, Next: 9})
	x.d.recoverSource(&spool.SourceState{Source: spool.Source{ID: 7, Lane: 9}})
	x.r.files = nil
	x.d.Open(f)
	if x.r.takeMail(now); len(x.r.open) > 0 {
		t.Fatal("an entry is written before anything is read")
	}
	x.r.turns(ctx, now)
	x.r.seal(x.r.open)
	if g := <-groups; len(g.commit.Sources) != 1 || g.commit.Sources[0].Lane == 9 || g.records != 3 {
		t.Fatalf("%d lines, source entries %+v", g.records, g.commit.Sources)
	}
}

// Lines that found no memory are read as soon as there is some, though they were the last of their file and nothing is added
// to it: a younger file of its line would be read first.
func TestLastLinesWithoutMemory(t *testing.T) {
	x := newBench(t, "none", 64<<20)
	src := &x.r.cfg.Sources[0]
	src.Record.Key = "field:k" // makes records of lines
	if err := src.compile(); err != nil {
		t.Fatal(err)
	}
	ctx := watchOne(t, x)
	var taken [][]byte
	for size := int(bufferBytes(bufferClass(64 << 20))); size > 0; size /= 2 {
		for {
			a, b := x.r.budget.pair(0, size, 1)
			if a == nil {
				break
			}
			taken = append(taken, a, b)
		}
	}
	now := time.Now()
	x.r.turns(ctx, now)
	x.r.turns(ctx, now)
	if of := x.r.files[0]; x.r.stats.lines.Load() != 0 || !of.more {
		t.Fatalf("%d lines were read without memory, more to read: %t", x.r.stats.lines.Load(), of.more)
	}
	for _, b := range taken {
		x.r.budget.give(0, b)
	}
	x.r.turns(ctx, now)
	if got := x.r.stats.lines.Load(); got != 3 {
		t.Fatalf("%d lines were read, want 3", got)
	}
}
