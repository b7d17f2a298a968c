package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
)

func TestCombineCRCEqualsRehash(t *testing.T) {
	r := testRand(t)
	for _, n := range []int{0, 1, 2, 3, 39, 40, 255, 256, 257, 65535, 65536, 65537, 1 << 20, 1<<20 + 1} {
		checkCombine(t, randomBytes(r, 1+r.IntN(100)), randomBytes(r, n))
	}
	for range 2000 {
		checkCombine(t, randomBytes(r, r.IntN(100)), randomBytes(r, r.IntN(5000)))
	}
}

func checkCombine(t *testing.T, a, b []byte) {
	t.Helper()
	whole := crc32.Update(checksum(a), castagnoli, b)
	if got := combineCRC(checksum(a), checksum(b), len(b)); got != whole {
		t.Fatalf("%d || %d bytes: combined %08x, hashed %08x", len(a), len(b), got, whole)
	}
}

// The fourth table is for lengths that a test cannot hash often: they are put together from shorter ones, since to shift
// by m and then by n is to shift by m+n.
func TestCombineCRCOfLongRecords(t *testing.T) {
	r := testRand(t)
	for range 1000 {
		crc := r.Uint32()
		m, n := r.IntN(1<<30), r.IntN(1<<30)
		if got, want := combineCRC(combineCRC(crc, 0, m), 0, n), combineCRC(crc, 0, m+n); got != want {
			t.Fatalf("shifted by %d and %d: %08x, at once: %08x", m, n, got, want)
		}
	}
	zeros := make([]byte, 1<<24)
	if got, want := combineCRC(checksum([]byte("x")), checksum(zeros), len(zeros)), crc32.Update(checksum([]byte("x")), castagnoli, zeros); got != want {
		t.Fatalf("2^24 bytes: combined %08x, hashed %08x", got, want)
	}
}

func TestStampHeader(t *testing.T) {
	r := testRand(t)
	c := mustCompressor(t, LZ4, 0)
	for range 500 {
		records := randomRecords(r, 1+r.IntN(20))
		var b Builder
		buildBatch(&b, records)
		var s Sealed
		c.Seal(&b, nil, &s)
		template := s.Header
		st := Stamp{ProducerID: r.Int64(), Epoch: int16(r.IntN(math.MaxInt16 + 1)), BaseSequence: int32(r.IntN(math.MaxInt32))}
		if r.IntN(2) == 0 {
			st.ShiftMs = r.Int64N(1<<40) - 1<<39
		}
		batch := stamped(&s, st)
		if s.Header != template {
			t.Fatal("StampHeader wrote into the template")
		}
		if !CheckCRC(batch) {
			t.Fatalf("wrong CRC after %+v", st)
		}
		h, err := ParseHeader(batch)
		if err != nil {
			t.Fatal(err)
		}
		if h.ProducerID != st.ProducerID || h.Epoch != st.Epoch || h.BaseSequence != st.BaseSequence ||
			h.FirstTime != records[0].time+st.ShiftMs || h.MaxTime != s.MaxTime+st.ShiftMs {
			t.Fatalf("%+v gives %+v", st, h)
		}
		checkRecords(t, batch, records, st.ShiftMs)

		// Stamped again, as for a new identity, the bytes depend on the template alone.
		again := Stamp{ProducerID: 1, BaseSequence: 2}
		var fromTemplate, fromStamped [HeaderBytes]byte
		StampHeader(&fromTemplate, s.Header[:], again, s.RecordsCRC, len(s.Records))
		again.ShiftMs = -st.ShiftMs
		StampHeader(&fromStamped, batch, again, s.RecordsCRC, len(s.Records))
		if fromTemplate != fromStamped {
			t.Fatalf("stamped from the template\n%x\nfrom a stamped header\n%x", fromTemplate, fromStamped)
		}
	}
}

func TestStampChangesOnlyItsFields(t *testing.T) {
	template := bytes.Repeat([]byte{0xa5}, HeaderBytes)
	var h [HeaderBytes]byte
	StampHeader(&h, template, Stamp{ProducerID: -1, Epoch: -1, BaseSequence: -1}, 0, 0)
	binary.BigEndian.PutUint32(h[crcAt:], 0xa5a5a5a5)
	for i := producerIDAt; i < countAt; i++ {
		if h[i] != 0xff {
			t.Errorf("byte %d is %x", i, h[i])
		}
		h[i] = 0xa5
	}
	if !bytes.Equal(h[:], template) {
		t.Errorf("other bytes changed: %x", h)
	}
	mustPanic(t, "BUG: the header template", func() { StampHeader(&h, template[:60], Stamp{}, 0, 0) })
}

func TestStampAllocatesNothing(t *testing.T) {
	var h [HeaderBytes]byte
	template := make([]byte, HeaderBytes)
	if n := testing.AllocsPerRun(1000, func() { StampHeader(&h, template, Stamp{ProducerID: 1}, 7, 1<<20) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStampHeader(b *testing.B) {
	var h [HeaderBytes]byte
	template := make([]byte, HeaderBytes)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		StampHeader(&h, template, Stamp{ProducerID: 1000, BaseSequence: int32(i)}, uint32(i), 1<<20-i&0xffff)
	}
}
