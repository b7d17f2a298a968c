package spool

import (
	"errors"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// TestInspect: what is seen beside the open log is what a recovery would find,
// and nothing is changed or locked.
func TestInspect(t *testing.T) {
	mem := vfs.NewMem()
	s := newStuck(t, mem)
	mustAppend(t, s.log, nil, &Commit{Sources: []Source{{ID: 9, Path: "/a", Lane: 1}}, Cursors: []Cursor{{Source: 9, Offset: 77}},
		Identities: []Identity{{Lane: 2, ProducerID: 4}}})
	for i := range 2000 {
		stuckBytes := 0
		if i%20 == 0 {
			stuckBytes = 300
		}
		s.group(200, stuckBytes)
	}
	if s.log.Stats().BytesPunched == 0 {
		t.Fatal("nothing was punched")
	}
	var trace vfs.Trace
	looking := vfs.Hook{FS: mem, Before: func(op vfs.Op) error {
		if op.Kind == "lock" {
			t.Error("the lock was asked for")
		}
		return trace.Before(op)
	}}
	in, err := Verify(stuckOptions(looking))
	if err != nil {
		t.Fatal(err)
	}
	if ops := trace.Take(); ops != "" {
		t.Errorf("a look changes:\n%s", ops)
	}
	one, two := in.Lanes[0], in.Lanes[1]
	if len(in.Damage) > 0 || len(one.Held) != len(s.want) || one.Head != 0 || two.Next != s.next || two.Head != s.next || len(two.Pending()) > 0 || len(two.Held) == 0 {
		t.Fatalf("damage %+v, %d batches held of %d, lane 2 next %d head %d, %d held", in.Damage, len(one.Held), len(s.want), two.Next, two.Head, len(two.Held))
	}
	if len(in.Sources) != 1 || in.Sources[0].Offset != 77 {
		t.Errorf("sources %+v", in.Sources)
	}
	rd := in.NewReader()
	sum := int64(0)
	for i, ref := range one.Pending() {
		wantBatch(t, rd, ref, s.want[i])
		sum += int64(ref.Bytes)
	}
	if sum != one.PendingBytes {
		t.Errorf("%d bytes wait, counted %d", one.PendingBytes, sum)
	}
	disk := int64(0)
	for i, seg := range in.Segments {
		disk += seg.DiskBytes
		if own := s.log.segments[i]; seg.Number != own.number || seg.DiskBytes != own.diskBytes || seg.Bytes != own.end && i+1 < len(in.Segments) { // of the last, what is called durable
			t.Errorf("segment %+v, the log has %+v", seg, own)
		}
	}
	if want := s.log.totalBytes - s.log.spareBytes(); disk != want {
		t.Errorf("%d bytes on disk, the log counts %d", disk, want)
	}
	if err := errors.Join(rd.Close(), s.log.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestInspectMoving looks while the log gives segments up between two of the
// look's own operations.
func TestInspectMoving(t *testing.T) {
	mem := vfs.NewMem()
	o := stuckOptions(mem)
	o.RetainAckedBytes = 1
	s := &stuck{t: t}
	s.log, _ = mustOpen(t, o)
	mustAppend(t, s.log, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}})
	for range 300 {
		s.group(400, 40)
	}
	left := 40
	looking := vfs.Hook{FS: mem, Before: func(op vfs.Op) error {
		if op.Kind == "read" && (left > 0 || op.Name == noteName) {
			left = max(0, left-1)
			s.group(3000, 40)
		}
		return nil
	}}
	in, err := Verify(stuckOptions(looking))
	if err != nil || len(in.Damage) > 0 || left > 0 {
		t.Fatalf("%v, %d times left, damage %+v", err, left, in.Damage)
	}
	if in, err := Inspect(stuckOptions(looking)); err != nil || len(in.Damage) > 0 {
		t.Fatalf("a look: %v, damage %+v", err, in.Damage)
	}
	if got := len(in.Lanes[0].Pending()); got < 300 || got > len(s.want) {
		t.Errorf("%d batches wait, want 300 to %d", got, len(s.want))
	}
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVerify finds a turned bit in every frame of a small log, and says which
// records are hit; a tail that is being written is no damage.
func TestVerify(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	var refs []Ref
	for i := range uint64(12) {
		refs = append(refs, mustAppend(t, l, []Batch{testBatch(1, i, 1, 3000)}, nil)...)
		mustSync(t, l)
	}
	mustAppend(t, l, nil, nil) // names all of them durable
	mustSync(t, l)
	name := func(ref Ref) string {
		for _, s := range l.segments {
			if s.number == ref.Segment {
				return l.path(s.name())
			}
		}
		t.Fatal("no such segment")
		return ""
	}
	for _, ref := range refs {
		at := int64(ref.Block) * blockBytes
		for _, c := range []struct {
			byte int64
			says string
		}{{at + 20, "header checksum"}, {at + batchHeaderBytes + 100, "payload checksum"}, {at + FrameBytes(int(ref.Bytes)) + 20, "checksum"}} {
			m := mem.Kill()
			if err := flip(m, name(ref), c.byte*8); err != nil {
				t.Fatal(err)
			}
			in, err := Verify(memOptions(m))
			if err != nil {
				t.Fatal(err)
			}
			says := ""
			for _, d := range in.Damage {
				says += d.Reason + "; "
			}
			if !strings.Contains(says, c.says) {
				t.Errorf("batch %d, byte %d: %q, want %q", ref.First, c.byte, says, c.says)
			}
		}
	}
	// Half a group behind the tail.
	f, err := mem.OpenFile(l.path(l.newest().name()), vfs.Write)
	if err == nil {
		b := testBatch(1, 12, 1, 300)
		_, err = f.WriteAt(appendBatchHeader(nil, l.newest().seed, l.newest().end, &b), l.newest().end)
	}
	if err != nil {
		t.Fatal(err)
	}
	in, err := Verify(memOptions(mem))
	if err != nil || len(in.Damage) > 0 || in.Lanes[0].Next != 12 || in.VoidBytes == 0 {
		t.Errorf("a tail being written: %+v, %v", in.Damage, err)
	}
	if _, err := Inspect(Options{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "holds no spool") {
		t.Errorf("an empty directory: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
