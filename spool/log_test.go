package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// testSegmentBytes keeps segments small, so that a test rolls often.
const testSegmentBytes = 16 << 10

func memOptions(fs vfs.FS) Options {
	return Options{Dir: "/spool", FS: fs, MaxBytes: 16 * testSegmentBytes, MinFreeBytes: 1, segmentBytes: testSegmentBytes,
		RetainAckedBytes: 2 * testSegmentBytes, punchUnit: 256, rand: rand.NewChaCha8([32]byte{1})}
}

func mustOpen(t testing.TB, o Options) (*Log, *Recovered) {
	t.Helper()
	l, r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

// testBatch makes a batch whose records say which lane and indexes they are.
func testBatch(lane uint32, first uint64, count uint32, payloadBytes int) Batch {
	records := []byte(fmt.Sprintf("lane %d from %d count %d;", lane, first, count))
	for len(records) < payloadBytes {
		records = append(records, byte(len(records)))
	}
	b := Batch{Lane: lane, First: first, Count: count, MaxTime: int64(1000 + first), Records: records, RecordsCRC: crc32.Checksum(records, castagnoli)}
	for i := range b.Header {
		b.Header[i] = byte(i)
	}
	return b
}

func wantBatch(t testing.TB, r *Reader, ref Ref, want Batch) {
	t.Helper()
	got, err := r.ReadBatch([]byte("x"), ref)
	if err != nil {
		t.Fatalf("read %+v: %v", ref, err)
	}
	if string(got[:1]) != "x" || !bytes.Equal(got[1:1+HeaderBytes], want.Header[:]) || !bytes.Equal(got[1+HeaderBytes:], want.Records) {
		t.Fatalf("batch at %+v is not what was appended", ref)
	}
}

func mustAppend(t testing.TB, l *Log, batches []Batch, c *Commit) []Ref {
	t.Helper()
	refs, err := l.Append(nil, batches, c)
	if err != nil {
		t.Fatal(err)
	}
	return refs
}

func mustSync(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestReopen writes one of everything on the operating system's file system and
// finds it again, twice.
func TestReopen(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "a", "spool"), MaxBytes: 32 << 20, MinFreeBytes: 1}
	l, r := mustOpen(t, o)
	if !r.Created || r.SpoolID == [16]byte{} || len(r.Lanes) != 0 {
		t.Fatalf("new spool: %+v", r)
	}
	id := r.SpoolID
	big := testBatch(1, 0, 100, 900<<10)
	small := testBatch(2, 0, 1, 10)
	src := Source{ID: 7, Block: "app", Path: "/var/log/a\xff.log", Lane: 1, Encoding: "utf-8", Dev: 3, Ino: 1 << 60, Prefix: 99, PrefixBytes: 1024}
	cur := Cursor{Source: 7, Offset: 1 << 40, Anchor: 1 << 63, AnchorBytes: 64, State: Continued, Part: 3}
	ident := Identity{Lane: 1, From: 0, ClusterID: "c", Topic: "logs", TopicID: [16]byte{1, 2}, Partition: 5, ProducerID: 1234, Epoch: 2, Floor: 77, Reason: IdentityFirst}
	refs := mustAppend(t, l, []Batch{big, small}, &Commit{
		Lanes:   []Lane{{1, "app", "logs", 0}, {2, "app", "logs", 1}},
		Sources: []Source{src}, Cursors: []Cursor{cur}, Identities: []Identity{ident, {Lane: 2, Topic: "logs", ProducerID: 1235}},
	})
	mustSync(t, l)
	rd := l.NewReader()
	wantBatch(t, rd, refs[0], big)
	wantBatch(t, rd, refs[1], small)
	ack := Ack{Lane: 2, First: 0, Count: 1, BaseOffset: 500, LeaderEpoch: 9}
	mustAppend(t, l, nil, &Commit{Acks: []Ack{ack}})
	if _, _, err := Open(o); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "pid") {
		t.Fatalf("second Open: %v", err)
	}
	for range 2 {
		if err := errors.Join(rd.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		l, r = mustOpen(t, o)
		if r.Created || r.SpoolID != id || len(r.Damage) != 0 || r.VoidBytes != 0 {
			t.Fatalf("reopened: %+v", r)
		}
		if len(r.Sources) != 1 || r.Sources[0] != (SourceState{src, cur}) {
			t.Fatalf("sources: %+v", r.Sources)
		}
		one, two := r.Lanes[0], r.Lanes[1]
		if one.Next != 100 || one.Head != 0 || len(one.Batches) != 1 || two.Next != 1 || two.Head != 1 || two.LastAck != ack || len(two.Batches) != 0 {
			t.Fatalf("lanes: %+v", r.Lanes)
		}
		restarted := ident
		restarted.From, restarted.ProducerID, restarted.Epoch, restarted.Floor, restarted.FloorEpoch, restarted.Reason = 100, -1, 0, -1, -1, IdentityStart
		if len(one.Identities) != 2 || one.Identities[0] != ident || one.Identities[1] != restarted {
			t.Fatalf("identities: %+v", one.Identities)
		}
		rd = l.NewReader()
		wantBatch(t, rd, one.Batches[0], big)
		acked, err := l.AckedFrom(2, 0)
		if err != nil || len(acked) != 1 || acked[0].Ack != ack {
			t.Fatalf("acked: %+v, %v", acked, err)
		}
		wantBatch(t, rd, acked[0].Ref, small)
	}
	if err := errors.Join(rd.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}
