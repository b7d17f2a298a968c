package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"

	"shipper/internal/vfs"
)

// TestStaleFrames: the rest of a recycled segment is full of intact frames of its
// former life, at the very positions where new ones go. None may come back.
func TestStaleFrames(t *testing.T) {
	if err := staleFrames(newWorld(1)); err != nil {
		t.Fatal(err)
	}
}

func staleFrames(w *world) error {
	mem := vfs.NewMem()
	l, _, err := Open(w.options(mem))
	if err != nil {
		return err
	}
	_, err = l.Append(nil, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}})
	recycled := 0
	for i := uint64(0); i < 120 && err == nil; i++ {
		c := Commit{Cursors: []Cursor{{Source: 1, Offset: int64(i + 1)}}}
		if _, err = l.Append(nil, []Batch{testBatch(1, i, 1, 1200)}, &c); err == nil {
			err = l.Sync()
		}
		if err == nil && i > 20 {
			_, err = l.Append(nil, nil, &Commit{Acks: []Ack{{Lane: 1, First: i - 20, Count: 1}}})
			err = errors.Join(err, l.Sync())
		}
		if err != nil {
			return err
		}
		dead, r, err := Open(w.options(mem.Kill()))
		if err != nil {
			return err
		}
		if r.VoidBytes != 0 || len(r.Damage) != 0 || r.Sources[0].Offset != int64(i+1) || r.Lanes[0].Next != i+1 {
			return fmt.Errorf("after batch %d: cursor %d, next %d, void %d, %+v", i, r.Sources[0].Offset, r.Lanes[0].Next, r.VoidBytes, r.Damage)
		}
		if err := dead.Close(); err != nil {
			return err
		}
		if len(l.free) > sparesMin {
			recycled++
		}
	}
	if recycled == 0 {
		return errors.New("nothing was recycled")
	}
	return errors.Join(err, l.Close())
}

// TestTornPayload: header and commit of a group are there, a block in the middle
// of its records is not. The group never happened.
func TestTornPayload(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	mustSync(t, l)
	ref := mustAppend(t, l, []Batch{testBatch(1, 0, 5, 3000)}, nil)[0]
	mem = mem.Kill()
	if err := flip(mem, l.path(l.newest().name()), (int64(ref.Block)*blockBytes+1500)*8); err != nil {
		t.Fatal(err)
	}
	_, r := mustOpen(t, memOptions(mem))
	if lane := r.Lanes[0]; lane.Next != 0 || len(lane.Batches) != 0 || len(r.Damage) != 0 || r.VoidBytes == 0 {
		t.Fatalf("%+v", r)
	}
}

// TestVoidStaysVoid: a power cut leaves a torn group and a whole one behind it.
// After the next start the cut of the old segment is undone by another power cut
// and the new checkpoint rots: still neither of the two ever happened.
func TestVoidStaysVoid(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, &Commit{Lanes: []Lane{{ID: 1}}})
	mustSync(t, l)
	torn := mustAppend(t, l, []Batch{testBatch(1, 1, 1, 100)}, nil)[0]
	mustAppend(t, l, []Batch{testBatch(1, 2, 1, 100)}, nil)
	old := l.path(l.newest().name())
	mem = mem.Kill()
	if err := flip(mem, old, int64(torn.Block)*blockBytes*8); err != nil {
		t.Fatal(err)
	}
	f, err := mem.OpenFile(old, vfs.Read)
	if err != nil {
		t.Fatal(err)
	}
	before := make([]byte, testSegmentBytes)
	if _, err := f.ReadAt(before, 0); err != nil {
		t.Fatal(err)
	}
	l, r := mustOpen(t, memOptions(mem))
	if r.Lanes[0].Next != 1 || r.VoidBytes == 0 {
		t.Fatalf("%+v", r)
	}
	mustAppend(t, l, nil, nil) // one intact commit behind the checkpoint
	mustSync(t, l)
	mem = mem.Kill()
	if f, err = mem.OpenFile(old, vfs.Write); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(before, 0); err != nil {
		t.Fatal(err)
	}
	if err := flip(mem, l.path(l.newest().name()), 100); err != nil {
		t.Fatal(err)
	}
	_, r = mustOpen(t, memOptions(mem))
	if r.Lanes[0].Next != 1 || len(r.Lanes[0].Batches) != 1 {
		t.Fatalf("a void group is back: %+v", r.Lanes[0])
	}
}

// TestLostWithoutTrace: a batch and every frame that names its index are gone,
// while a later commit says that its file was read further. How many records are
// missing is still known.
func TestLostWithoutTrace(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 2, 100)}, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}, Sources: []Source{{ID: 1}}})
	mustSync(t, l)
	lost := mustAppend(t, l, []Batch{testBatch(2, 0, 7, 100)}, &Commit{Cursors: []Cursor{{Source: 1, Offset: 1}}})[0]
	for offset := range int64(2) {
		mustSync(t, l)
		mustAppend(t, l, nil, &Commit{Cursors: []Cursor{{Source: 1, Offset: 2 + offset}}})
	}
	mem = mem.Kill()
	at := int64(lost.Block) * blockBytes
	name := l.path(l.newest().name())
	if err := errors.Join(flip(mem, name, at*8), flip(mem, name, (at+FrameBytes(int(lost.Bytes)))*8)); err != nil {
		t.Fatal(err)
	}
	_, r := mustOpen(t, memOptions(mem))
	records := uint64(0)
	for _, d := range r.Damage {
		records += d.Records
	}
	if records != 7 || r.Sources[0].Offset != 3 {
		t.Fatalf("7 records are gone: %+v", r.Damage)
	}
	// Once is enough.
	_, r = mustOpen(t, memOptions(mem.Kill()))
	if len(r.Damage) != 0 {
		t.Fatalf("reported again: %+v", r.Damage)
	}
}

// TestSettleLane: which identity covers what after a start.
func TestSettleLane(t *testing.T) {
	old := Identity{Lane: 1, From: 0, ClusterID: "c", Topic: "t", TopicID: [16]byte{9}, Partition: 3, ProducerID: 70, Epoch: 4, Floor: 5, Reason: IdentityFirst}
	fresh := func(from uint64) Identity {
		return Identity{Lane: 1, From: from, ClusterID: "c", Topic: "t", TopicID: [16]byte{9}, Partition: 3, ProducerID: -1, Floor: -1, FloorEpoch: -1, Reason: IdentityStart}
	}
	waiting := fresh(10)
	for _, c := range []struct {
		what    string
		head    uint64
		batches []Ref
		gaps    []Gap
		have    []Identity
		head2   uint64
		want    []Identity
		damage  int
	}{
		{"head in doubt", 10, []Ref{{First: 10, Count: 5}, {First: 15, Count: 5}}, nil, []Identity{old}, 10, []Identity{old, fresh(15)}, 0},
		{"head never sent", 10, []Ref{{First: 10, Count: 10}}, nil, []Identity{old, waiting}, 10, []Identity{old, fresh(10)}, 0},
		{"nothing to send", 20, nil, nil, []Identity{old}, 20, []Identity{old, fresh(20)}, 0},
		{"hole at the head: the next one was never sent", 10, []Ref{{First: 15, Count: 5}}, nil, []Identity{old}, 15, []Identity{old, fresh(15)}, 1},
		{"hole behind it", 10, []Ref{{First: 10, Count: 4}, {First: 15, Count: 5}}, nil, []Identity{old}, 10, []Identity{old, fresh(15)}, 1},
		{"hole up to the next index", 10, []Ref{{First: 10, Count: 5}}, nil, []Identity{old}, 10, []Identity{old, fresh(20)}, 1},
		{"a gap is no hole", 10, []Ref{{First: 10, Count: 5}, {First: 16, Count: 4}}, []Gap{{Lane: 1, From: 15, To: 16}}, []Identity{old}, 10, []Identity{old, fresh(16)}, 0},
		{"a dropped batch is not live", 10, []Ref{{First: 10, Count: 5}, {First: 15, Count: 5}}, []Gap{{Lane: 1, From: 15, To: 20}}, []Identity{old}, 10, []Identity{old, fresh(20)}, 0},
		{"gaps where its halves were drop a batch", 10, []Ref{{First: 10, Count: 5}, {First: 15, Count: 2}, {First: 17, Count: 3}}, []Gap{{Lane: 1, From: 15, To: 16}, {Lane: 1, From: 16, To: 17}}, []Identity{old}, 10, []Identity{old, fresh(17)}, 0},
		{"an early identity goes", 10, []Ref{{First: 10, Count: 5}, {First: 15, Count: 5}}, nil, []Identity{old, fresh(17)}, 10, []Identity{old, fresh(15)}, 0},
		{"a batch that the head cuts", 10, []Ref{{First: 8, Count: 4}, {First: 12, Count: 8}}, nil, []Identity{old}, 12, []Identity{old, fresh(12)}, 1},
	} {
		r := &recovery{Log: &Log{state: newState(), logger: slog.New(slog.DiscardHandler)}}
		r.state.setLane(Lane{ID: 1, Topic: "t"})
		l := r.state.lanes[1]
		l.next, l.head, l.gaps, l.identities = 20, c.head, c.gaps, c.have
		live := r.settleLane(l, &heldLane{batches: c.batches, next: 20})
		if l.head != c.head2 || !reflect.DeepEqual(l.identities, c.want) || len(r.damage) != c.damage {
			t.Errorf("%s: head %d, want %d\n got %+v\nwant %+v\ndamage %+v", c.what, l.head, c.head2, l.identities, c.want, r.damage)
		}
		for _, b := range live {
			if b.First < l.head {
				t.Errorf("%s: batch %d below the head", c.what, b.First)
			}
		}
	}
}

// TestReaderBesideWriter reads in another goroutine while the log rolls, syncs
// and recycles. What is released meanwhile is answered with damage, never with
// other bytes; what is not acked is always there.
func TestReaderBesideWriter(t *testing.T) {
	l, _ := mustOpen(t, memOptions(vfs.NewMem()))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	type work struct {
		ref  Ref
		want Batch
		old  bool // may be released
	}
	const lag = 24
	todo := make(chan work, 16)
	done := make(chan int)
	go func() {
		rd := l.NewReader()
		released := 0
		for w := range todo {
			got, err := rd.ReadBatch(nil, w.ref)
			var damaged *CorruptionError
			switch {
			case errors.As(err, &damaged) && w.old:
				released++
			case err != nil || string(got[HeaderBytes:]) != string(w.want.Records):
				t.Errorf("read %+v: %v", w.ref, err)
			}
		}
		if err := rd.Close(); err != nil {
			t.Error(err)
		}
		done <- released
	}()
	var held []work
	for i := range uint64(400) {
		b := testBatch(1, i, 1, 2000)
		held = append(held, work{mustAppend(t, l, []Batch{b}, nil)[0], b, false})
		mustSync(t, l)
		todo <- held[i]
		if i >= lag { // the reader is at most 16 entries behind, of which half are as old
			mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: i - lag, Count: 1}}})
			old := held[i/2]
			old.old = true
			todo <- old
		}
		_ = l.Stats()
	}
	close(todo)
	if released := <-done; released == 0 {
		t.Error("no read met a segment that had been released")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestGapAcrossBatch: a batch was cut in two, the first half became a dead letter,
// and then the halves rot. The batch as it was first cut is sent whole, and what
// the dead letter's gap holds beside it stays dropped.
func TestGapAcrossBatch(t *testing.T) {
	l := &lane{gaps: []Gap{{From: 4, To: 7, Records: 3, Reason: GapRefused}, {From: 8, To: 9, Records: 1}, {From: 12, To: 14, Records: 2}}}
	l.trimGaps([]Ref{{First: 6, Count: 3}, {First: 9, Count: 3}})
	if want := []Gap{{From: 4, To: 6, Records: 2, Reason: GapRefused}, {From: 12, To: 14, Records: 2}}; !reflect.DeepEqual(l.gaps, want) {
		t.Errorf("gaps %+v, want %+v", l.gaps, want)
	}
	mem := vfs.NewMem()
	log, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, log, []Batch{testBatch(1, 0, 1, 100), testBatch(1, 1, 2, 100)}, &Commit{Lanes: []Lane{{ID: 1}}})
	cut := mustAppend(t, log, []Batch{testBatch(1, 1, 1, 100), testBatch(1, 2, 1, 100)}, nil)
	// The head is below the dead letter: it was moved back to heal.
	mustAppend(t, log, nil, &Commit{Gaps: []Gap{{Lane: 1, From: 1, To: 2, Records: 1, Reason: GapRefused, DeadLetter: "x"}}})
	mustSync(t, log)
	mustAppend(t, log, nil, nil) // says that the others are durable
	mem = mem.Kill()
	for _, ref := range cut {
		if err := flip(mem, log.path(log.newest().name()), int64(ref.Block)*blockBytes*8); err != nil {
			t.Fatal(err)
		}
	}
	_, r := mustOpen(t, memOptions(mem))
	if lane := r.Lanes[0]; len(lane.Batches) != 2 || lane.Batches[1].First != 1 || lane.Batches[1].Count != 2 || len(lane.Gaps) != 0 {
		t.Fatalf("%+v", lane)
	}
}

// TestTwoSegmentsOfOneNumber: a name that a directory forgot, and whose number was
// given again, is back. The log goes on with the file that holds more.
func TestTwoSegmentsOfOneNumber(t *testing.T) {
	mem := vfs.NewMem()
	o := memOptions(mem)
	l, _ := mustOpen(t, o)
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, &Commit{Lanes: []Lane{{ID: 1}}})
	mustSync(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, o) // segment 2
	twin, err := mem.OpenFile("/spool/"+segmentName(2, 77), vfs.Create)
	if err == nil {
		err = errors.Join(twin.Allocate(5000), twin.Close(), l.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l, r := mustOpen(t, o)
		if len(r.Lanes[0].Batches) != 1 || (len(r.Damage) > 0) != (i == 0) {
			t.Fatalf("start %d: %+v", i, r)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCutShort: somebody cut the newest segment short, below what was durable. What
// was in there is void without a trace, so the start says that it was there.
func TestCutShort(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, &Commit{Lanes: []Lane{{ID: 1}}})
	mustSync(t, l)
	for first := range uint64(3) {
		mustAppend(t, l, []Batch{testBatch(1, first+1, 1, 100)}, &Commit{Acks: []Ack{{Lane: 1, First: first, Count: 1}}})
		mustSync(t, l)
	}
	name := l.path(l.newest().name())
	for _, c := range []struct {
		size   int64
		damage int
		next   uint64
		says   string
	}{
		{testSegmentBytes, 0, 4, ""},
		{testSegmentBytes - 4096, 1, 4, "the file was cut short: no record is known to have been behind its end"},
		{640, 1, 1, "the file was cut short: at least 3 records that were behind its end are read again, and those of them that Kafka has come twice"},
	} {
		after := mem.Kill()
		f, err := after.OpenFile(name, vfs.Write)
		if err == nil {
			err = errors.Join(f.Truncate(c.size), f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if in, err := Verify(memOptions(after)); err != nil || len(in.Damage) != c.damage || c.damage > 0 && in.Damage[0].Reason != c.says {
			t.Errorf("%d bytes: verify finds %+v, %v", c.size, in.Damage, err)
		}
		l, r := mustOpen(t, memOptions(after))
		if len(r.Damage) != c.damage || r.Lanes[0].Next != c.next {
			t.Errorf("%d bytes: next %d, %+v", c.size, r.Lanes[0].Next, r.Damage)
		}
		if c.damage > 0 && (r.Damage[0].Bytes != testSegmentBytes-c.size || r.Damage[0].Position != c.size || r.Damage[0].Reason != c.says) {
			t.Errorf("%d bytes: %+v", c.size, r.Damage[0])
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, r = mustOpen(t, memOptions(after)); len(r.Damage) > 0 {
			t.Errorf("reported again: %+v", r.Damage)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostEnd: a disk forgot what it had said is durable; what it forgot is counted,
// once. Without the note, or with one of another spool, it cannot be told.
func TestLostEnd(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, &Commit{Lanes: []Lane{{ID: 1}}})
	mustSync(t, l)
	before := mem.Kill()
	mustAppend(t, l, []Batch{testBatch(1, 1, 5, 100)}, nil)
	mustSync(t, l)
	note := make([]byte, noteBytes)
	f, err := mem.OpenFile("/spool/"+noteName, vfs.Read)
	if err == nil {
		err = errors.Join(readFull(f, note, 0), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, says := range []string{"the disk has lost what it had said is written: at least 5 records that were behind its end are read again, and those of them that Kafka has come twice", ""} {
		if i == 1 {
			note[0]++
		}
		mem := before.Kill()
		f, err := mem.OpenFile("/spool/"+noteName, vfs.Write)
		if err == nil {
			_, err = f.WriteAt(note, 0)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		for again := range 2 {
			l, r := mustOpen(t, memOptions(mem))
			got := ""
			for _, d := range r.Damage {
				got += d.Reason
			}
			if again == 0 && got != says || again == 1 && got != "" {
				t.Errorf("start %d: %q, want %q", again, got, says)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLoneTear: the last commit alone is torn. It is told, if anything of it is
// there.
func TestLoneTear(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}})
	mustSync(t, l)
	at := l.newest().end
	mustAppend(t, l, nil, &Commit{Cursors: []Cursor{{Source: 1, Offset: 7}}})
	mem = mem.Kill()
	if err := flip(mem, l.path(l.newest().name()), (at+commitHeaderBytes+3)*8); err != nil {
		t.Fatal(err)
	}
	if _, r := mustOpen(t, memOptions(mem)); r.VoidBytes != blockBytes || r.Sources[0].Offset != 0 || len(r.Damage) > 0 {
		t.Fatalf("%+v", r)
	}
}

// TestRecoveryReadsHeaders: of a backlog of large batches a start reads the headers
// and, behind the newest commit that says what is durable, no more.
func TestRecoveryReadsHeaders(t *testing.T) {
	read := int64(0)
	o := memOptions(vfs.NewMem())
	o.segmentBytes, o.MaxBytes = 4<<20, 64<<20
	l, _ := mustOpen(t, o)
	c := &Commit{Lanes: []Lane{{ID: 1}}}
	for first := range uint64(100) {
		mustAppend(t, l, []Batch{testBatch(1, first, 1, 200<<10)}, c)
		mustSync(t, l)
		c = nil
	}
	mustAppend(t, l, nil, nil)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.FS = countReads{o.FS, &read}
	l, r := mustOpen(t, o)
	if n := len(r.Lanes[0].Batches); n != 100 {
		t.Fatalf("%d batches", n)
	}
	if most := int64(100*2*scanJumpBytes + 10*scanWindowBytes); read > most {
		t.Errorf("read %d bytes of 20 MiB, at most %d are headers", read, most)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
