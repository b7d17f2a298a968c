package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// testRand is a random source whose seed is printed when the test fails; SHIPPER_SEED repeats a run.
func testRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SHIPPER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("SHIPPER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// logLines makes a batch's worth of lines that look like an access log.
func logLines(r *rand.Rand, bytesMin int) [][]byte {
	var lines [][]byte
	for n := 0; n < bytesMin; {
		line := fmt.Appendf(nil, `10.%d.%d.%d - - [03/Mar/2026:10:%02d:%02d +0000] "GET /api/v1/items/%d?page=%d HTTP/1.1" %d %d "https://shop.example.org/" "Mozilla/5.0 (X11; Linux x86_64)" rt=0.%03d`,
			r.IntN(4), r.IntN(256), r.IntN(256), n%60, r.IntN(60), r.IntN(100000), r.IntN(20), 200+r.IntN(5), r.IntN(50000), r.IntN(1000))
		lines = append(lines, line)
		n += len(line)
	}
	return lines
}

const testTime = 1_772_500_000_000 // ms

// testRecord is what went in, as kmsg and NextRecord must give it back.
type testRecord struct {
	time       int64
	key, value []byte
	hasKey     bool
}

func buildBatch(b *Builder, records []testRecord) {
	need := 0
	for _, r := range records {
		need += len(r.key) + len(r.value) + RecordOverheadMax
	}
	b.Reset(make([]byte, 0, need))
	for _, r := range records {
		b.Append(r.time, r.key, r.value, r.hasKey)
	}
}

func randomRecords(r *rand.Rand, n int) []testRecord {
	records := make([]testRecord, n)
	for i := range records {
		rec := testRecord{time: testTime + r.Int64N(1<<20) - 1<<19, value: randomBytes(r, r.IntN(300))}
		if r.IntN(10) == 0 {
			rec.value = bytes.Repeat([]byte{'x'}, r.IntN(20000)) // lengths of two and three varint bytes
		}
		if rec.hasKey = r.IntN(2) == 0; rec.hasKey {
			rec.key = randomBytes(r, r.IntN(100))
		}
		records[i] = rec
	}
	return records
}

func randomBytes(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func mustCompressor(t testing.TB, codec Codec, level int) *Compressor {
	t.Helper()
	c, err := NewCompressor(codec, level)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stamped is a sealed batch as it goes over the wire.
func stamped(s *Sealed, st Stamp) []byte {
	var h [HeaderBytes]byte
	StampHeader(&h, s.Header[:], st, s.RecordsCRC, len(s.Records))
	return append(h[:], s.Records...)
}

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// The encoder of kmsg is written from Kafka's own description of the format: what Builder writes must be what it writes.
func TestRecordsAreWhatKmsgWrites(t *testing.T) {
	r := testRand(t)
	for range 200 {
		records := randomRecords(r, 1+r.IntN(30))
		var b Builder
		buildBatch(&b, records)

		var want []byte
		maxTime := records[0].time
		for i, rec := range records {
			k := kmsg.NewRecord()
			k.TimestampDelta64 = rec.time - records[0].time
			k.OffsetDelta = int32(i)
			if rec.hasKey {
				k.Key = append([]byte{}, rec.key...)
			}
			k.Value = append([]byte{}, rec.value...)
			// kmsg leaves the length to its user. A length of 0 takes one byte.
			k.Length = int32(len(k.AppendTo(nil)) - 1)
			want = k.AppendTo(want)
			maxTime = max(maxTime, rec.time)
		}
		if !bytes.Equal(b.Records(), want) {
			t.Fatalf("records differ:\n got %x\nwant %x", b.Records(), want)
		}
		if b.Count() != len(records) || b.Bytes() != len(want) || b.FirstTime() != records[0].time || b.MaxTime() != maxTime {
			t.Fatalf("count %d bytes %d first %d max %d of %d records, %d bytes, first %d, max %d",
				b.Count(), b.Bytes(), b.FirstTime(), b.MaxTime(), len(records), len(want), records[0].time, maxTime)
		}
	}
}

func TestSealedHeaderIsWhatKmsgReads(t *testing.T) {
	r := testRand(t)
	for _, codec := range allCodecs {
		var b Builder
		var records []testRecord
		for i, line := range logLines(r, 20_000) {
			records = append(records, testRecord{time: testTime - int64(i), value: line})
		}
		buildBatch(&b, records)
		var s Sealed
		mustCompressor(t, codec, 0).Seal(&b, nil, &s)
		batch := stamped(&s, Stamp{ProducerID: 1<<40 + 7, Epoch: 3, BaseSequence: 1<<31 - 2})

		var k kmsg.RecordBatch
		if err := k.ReadFrom(batch); err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		want := kmsg.RecordBatch{
			Length: int32(len(batch) - 12), PartitionLeaderEpoch: -1, Magic: 2, CRC: k.CRC, Attributes: int16(codec),
			LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: testTime, MaxTimestamp: testTime,
			ProducerID: 1<<40 + 7, ProducerEpoch: 3, FirstSequence: 1<<31 - 2, NumRecords: int32(len(records)), Records: k.Records,
		}
		if got, want := fmt.Sprintf("%+v", k), fmt.Sprintf("%+v", want); got != want {
			t.Fatalf("%s: header\n got %.300s\nwant %.300s", codec, got, want)
		}
		if uint32(k.CRC) != checksum(batch[21:]) || !CheckCRC(batch) {
			t.Fatalf("%s: CRC %x, want %x", codec, uint32(k.CRC), checksum(batch[21:]))
		}
		h, err := ParseHeader(batch)
		if err != nil {
			t.Fatal(err)
		}
		if h.Bytes() != len(batch) || h.Codec() != codec || h.Count != k.NumRecords || h.MaxTime != testTime || h.FirstTime != testTime ||
			h.ProducerID != k.ProducerID || h.Epoch != 3 || h.BaseSequence != k.FirstSequence || h.LeaderEpoch != -1 ||
			h.CRC != uint32(k.CRC) || h.LastOffsetDelta != k.LastOffsetDelta || h.Control() || h.AppendTime() || h.BaseOffset != 0 {
			t.Fatalf("%s: ParseHeader gives %+v", codec, h)
		}
		if s.Count != uint32(len(records)) || s.MaxTime != testTime || s.RawBytes != b.Bytes() {
			t.Fatalf("%s: sealed count %d, max time %d, raw %d", codec, s.Count, s.MaxTime, s.RawBytes)
		}
		if crc := binary.BigEndian.Uint32(s.Header[crcAt:]); crc != s.RecordsCRC || crc != checksum(s.Records) {
			t.Fatalf("%s: the template's CRC field holds %x, the records' CRC is %x", codec, crc, checksum(s.Records))
		}
	}
}

func TestSealRoundTrip(t *testing.T) {
	r := testRand(t)
	for _, codec := range allCodecs {
		c := mustCompressor(t, codec, 0)
		for range 20 {
			records := randomRecords(r, 1+r.IntN(200))
			var b Builder
			buildBatch(&b, records)
			var s Sealed
			c.Seal(&b, nil, &s)
			checkRecords(t, stamped(&s, Stamp{}), records, 0)
		}
	}
}

// checkRecords decodes a batch with our own decoder.
func checkRecords(t *testing.T, batch []byte, want []testRecord, shiftMs int64) {
	t.Helper()
	h, err := ParseHeader(batch)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decompress(nil, batch[HeaderBytes:h.Bytes()], h.Codec(), 1<<28)
	if err != nil {
		t.Fatal(err)
	}
	if int(h.Count) != len(want) {
		t.Fatalf("%d records, want %d", h.Count, len(want))
	}
	for i, w := range want {
		var got Record
		got, p, err = NextRecord(p, h.FirstTime)
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if got.Time != w.time+shiftMs || got.OffsetDelta != int32(i) || got.HasKey != w.hasKey || !bytes.Equal(got.Key, w.key) ||
			!bytes.Equal(got.Value, w.value) || got.Headers != 0 {
			t.Fatalf("record %d is %+v, want %+v", i, got, w)
		}
	}
	if len(p) != 0 {
		t.Fatalf("%d bytes behind the last record", len(p))
	}
}

func TestFitsNeverLies(t *testing.T) {
	r := testRand(t)
	for range 300 {
		var b Builder
		room := r.IntN(500)
		b.Reset(make([]byte, 0, room))
		for {
			key, value := randomBytes(r, r.IntN(10)), randomBytes(r, r.IntN(200))
			if !b.Fits(len(key), len(value)) {
				break
			}
			b.Append(testTime+r.Int64()-r.Int64(), key, value, true)
			if len(b.Records()) > room || cap(b.Records()) != room {
				t.Fatalf("%d bytes in a buffer of %d, now %d", len(b.Records()), room, cap(b.Records()))
			}
		}
		if b.Fits(room, 0) || b.Fits(0, room) {
			t.Fatalf("a record as large as the buffer of %d fits", room)
		}
	}
}

func TestFitsStopsAtRecordsMax(t *testing.T) {
	var b Builder
	b.Reset(make([]byte, 0, RecordsMax*9+RecordOverheadMax))
	for range RecordsMax {
		b.Append(testTime, nil, nil, false)
	}
	if b.Fits(0, 0) {
		t.Fatalf("record %d fits", b.Count()+1)
	}
	if cap(b.Records())-len(b.Records()) < RecordOverheadMax {
		t.Fatal("the buffer was too small to show it")
	}
}

func TestBuilderPanicsWithoutRoom(t *testing.T) {
	mustPanic(t, "BUG: a record of 0+1 bytes", func() { new(Builder).Append(0, nil, []byte{1}, false) })
	mustPanic(t, "BUG: 39 bytes of records were moved", func() {
		var b Builder
		b.Reset(make([]byte, 0, 100))
		b.Append(0, nil, make([]byte, 32), false)
		b.Grow(make([]byte, 0, 38))
	})
	mustPanic(t, "BUG: an empty batch", func() { mustCompressor(t, None, 0).Seal(new(Builder), nil, new(Sealed)) })
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, want) {
			t.Errorf("panic %q, want %q", got, want)
		}
	}()
	f()
}

func TestGrowKeepsRecords(t *testing.T) {
	r := testRand(t)
	var b Builder
	first := make([]byte, 0, 64)
	b.Reset(first)
	var want []testRecord
	for i := range 1000 {
		rec := testRecord{time: testTime + int64(i), value: randomBytes(r, 30)}
		for !b.Fits(0, len(rec.value)) {
			old := b.Grow(make([]byte, 0, 2*cap(b.Records())+RecordOverheadMax))
			if len(old) != 0 || cap(old) == 0 {
				t.Fatalf("Grow gave back len %d cap %d", len(old), cap(old))
			}
		}
		b.Append(rec.time, nil, rec.value, false)
		want = append(want, rec)
	}
	var s Sealed
	mustCompressor(t, Zstd, 0).Seal(&b, nil, &s)
	checkRecords(t, stamped(&s, Stamp{}), want, 0)
}

func TestAppendAllocatesNothing(t *testing.T) {
	var b Builder
	buf := make([]byte, 0, 1<<20)
	b.Reset(buf)
	line := bytes.Repeat([]byte("a line of a log "), 14)
	key := []byte("key")
	if n := testing.AllocsPerRun(100_000, func() {
		if !b.Fits(len(key), len(line)) {
			b.Reset(buf)
		}
		b.Append(testTime, key, line, true)
	}); n != 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{32, 225, 2000} {
		b.Run(fmt.Sprintf("line=%d", size), func(b *testing.B) {
			var batch Builder
			buf := make([]byte, 0, 1<<20)
			batch.Reset(buf)
			line := bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !batch.Fits(0, len(line)) {
					batch.Reset(buf)
				}
				batch.Append(testTime+int64(i>>8), nil, line, false)
			}
		})
	}
}
