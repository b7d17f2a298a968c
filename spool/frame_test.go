package spool

import (
	"bytes"
	"hash/crc32"
	"reflect"
	"testing"
)

// FuzzFrame writes a frame and reads it back; then it reads the bytes at another
// position, under another seed and with one byte changed: none may pass.
func FuzzFrame(f *testing.F) {
	f.Add(uint64(1), uint32(0), uint32(1), uint32(2), uint64(3), int64(4), []byte("records"), uint16(5))
	f.Add(uint64(1<<63), uint32(1<<30), uint32(1<<32-1), uint32(1<<32-1), uint64(1<<64-1), int64(-1), []byte{}, uint16(1000))
	f.Fuzz(func(t *testing.T, seed uint64, block, lane, count uint32, first uint64, maxTime int64, records []byte, damage uint16) {
		at := int64(block) * blockBytes
		b := Batch{Lane: lane, First: first, Count: count, MaxTime: maxTime, Records: records, RecordsCRC: crc32.Checksum(records, castagnoli)}
		copy(b.Header[:], records)
		frame := appendBatchHeader(nil, seed, at, &b)
		if len(frame) != batchHeaderBytes {
			t.Fatalf("a header of %d bytes", len(frame))
		}
		checkHeader(t, frame, seed, at, damage, header{kindBatch, uint32(len(records)), b.RecordsCRC, lane, count, first, maxTime})
		frame = appendCommitFrame(nil, kindCommit, seed, at, records)
		if !bytes.Equal(frame[commitHeaderBytes:], records) {
			t.Fatal("the payload is not behind the header")
		}
		checkHeader(t, frame[:commitHeaderBytes], seed, at, damage, header{kind: kindCommit, payloadBytes: uint32(len(records)), payloadCRC: b.RecordsCRC})
	})
}

func checkHeader(t *testing.T, frame []byte, seed uint64, at int64, damage uint16, want header) {
	t.Helper()
	if h, err := parseHeader(frame, seed, at); err != nil || h != want {
		t.Fatalf("got %+v, %v, want %+v", h, err, want)
	}
	if _, err := parseHeader(frame[:len(frame)-1], seed, at); err == nil {
		t.Fatal("a header cut short passed")
	}
	if _, err := parseHeader(frame, seed, at+blockBytes); err == nil {
		t.Fatal("a header of another position passed")
	}
	if _, err := parseHeader(frame, seed+1, at); err == nil {
		t.Fatal("a header with another seed passed")
	}
	bad := bytes.Clone(frame)
	bad[int(damage)%len(bad)] ^= byte(damage>>8) | 1
	if _, err := parseHeader(bad, seed, at); err == nil {
		t.Fatalf("byte %d was changed and the header passed", int(damage)%len(bad))
	}
}

// FuzzReplay feeds any bytes to the reader of entries. What it takes must come
// out of a checkpoint again.
func FuzzReplay(f *testing.F) {
	var e encoder
	e.commit(&Commit{
		Lanes: []Lane{{1, "b", "t", 2}}, Sources: []Source{{ID: 9, Path: string(bytes.Repeat([]byte{'p'}, 300)), Prefix: 1}},
		Cursors:    []Cursor{{Source: 9, Offset: 1 << 50, Anchor: 7, AnchorBytes: 32, State: Discard, Part: 4}},
		Identities: []Identity{{Lane: 1, From: 3, ClusterID: "c", Topic: "t", Partition: -1, ProducerID: 1 << 60, Epoch: -1, Floor: -1, Reason: 2}},
		Heads:      []Head{{Lane: 1, Index: 2, Top: 4}}, Acks: []Ack{{1, 2, 3, 4, 5}}, Gaps: []Gap{{Lane: 1, From: 7, To: 9, Records: 2, Reason: 1, DeadLetter: "d"}},
		Begun: []string{"b"},
	})
	e.next(1, 20)
	f.Add(e.buf)
	f.Add([]byte{200, 1, 0})
	f.Add([]byte{byte(entryLane), 3, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newState()
		segments, _, err := s.replay(body)
		if err != nil {
			return
		}
		e := encoder{}
		s.appendState(&e, segments)
		again := newState()
		gotSegments, missing, err := again.replay(e.buf)
		if err != nil || missing != 0 {
			t.Fatalf("a checkpoint of it cannot be read: %v, %d missing", err, missing)
		}
		again.claimed, s.claimed = 0, 0
		if len(segments) > 0 && !reflect.DeepEqual(segments, gotSegments) {
			t.Fatalf("segments %+v, want %+v", gotSegments, segments)
		}
		f := encoder{}
		again.appendState(&f, segments)
		if !bytes.Equal(e.buf, f.buf) {
			t.Fatalf("a checkpoint of a checkpoint differs:\n%x\n%x", e.buf, f.buf)
		}
	})
}

// TestEntrySizes keeps the cost of what is written most often in sight.
func TestEntrySizes(t *testing.T) {
	size := func(c Commit) int {
		var e encoder
		e.commit(&c)
		return len(e.buf)
	}
	if n := size(Commit{Cursors: []Cursor{{Source: 1000, Offset: 1 << 30, Anchor: 1 << 63, AnchorBytes: 64}}}); n > 22 {
		t.Errorf("a cursor takes %d bytes", n)
	}
	if n := size(Commit{Acks: []Ack{{1000, 1 << 30, 1000, 1 << 30, 10}}}); n > 20 {
		t.Errorf("an ack takes %d bytes", n)
	}
}
