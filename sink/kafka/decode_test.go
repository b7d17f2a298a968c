package kafka

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParseHeaderRefusesNonsense(t *testing.T) {
	good := stamped(sealed(t, None, []testRecord{{time: testTime, value: []byte("v")}}), Stamp{})
	if _, err := ParseHeader(good[:HeaderBytes]); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(p []byte) []byte{
		"60 bytes are no header":            func(p []byte) []byte { return p[:60] },
		"format 1 instead of 2":             func(p []byte) []byte { p[magicAt] = 1; return p },
		"batch length 48":                   func(p []byte) []byte { p[batchLengthAt+3] = 48; return p },
		"batch length -":                    func(p []byte) []byte { p[batchLengthAt] = 0x80; return p },
		"batch length 2147483647":           func(p []byte) []byte { copy(p[batchLengthAt:], "\x7f\xff\xff\xff"); return p },
		"-1 records, last offset delta 0":   func(p []byte) []byte { copy(p[countAt:], "\xff\xff\xff\xff"); return p },
		"1 records, last offset delta -256": func(p []byte) []byte { copy(p[lastDeltaAt:], "\xff\xff\xff\x00"); return p },
	} {
		_, err := ParseHeader(change(slices.Clone(good)))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func TestCheckCRC(t *testing.T) {
	batch := stamped(sealed(t, None, []testRecord{{time: testTime, value: []byte("v")}}), Stamp{})
	for i := crcAt; i < len(batch); i++ {
		damaged := slices.Clone(batch)
		damaged[i] ^= 0x10
		if CheckCRC(damaged) {
			t.Errorf("byte %d is wrong and the CRC right", i)
		}
	}
	if CheckCRC(batch[:60]) || !CheckCRC(batch) {
		t.Error("a short batch is right, or the whole one is not")
	}
}

func TestDecompressIsBounded(t *testing.T) {
	var b Builder
	buildBatch(&b, []testRecord{{time: testTime, value: bytes.Repeat([]byte("expands "), 400_000)}})
	for _, codec := range allCodecs {
		var s Sealed
		mustCompressor(t, codec, 0).Seal(&b, nil, &s)
		prefix := []byte("prefix")
		got, err := Decompress(slices.Clone(prefix), s.Records, codec, b.Bytes())
		if err != nil || !bytes.Equal(got, append(prefix, b.Records()...)) {
			t.Errorf("%s: %d bytes, %v", codec, len(got), err)
		}
		if _, err = Decompress(nil, s.Records, codec, b.Bytes()-1); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: one byte less allowed: %v", codec, err)
		}
		if _, err = Decompress(nil, s.Records[:len(s.Records)-5], codec, b.Bytes()); codec != None && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: cut off: %v", codec, err)
		}
		if _, err = Decompress(nil, []byte("nonsense"), codec, b.Bytes()); codec != None && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: nonsense: %v", codec, err)
		}
	}
	if _, err := Decompress(nil, nil, 7, 100); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "codec 7") {
		t.Errorf("codec 7: %v", err)
	}
}

// librdkafka and others write one bare snappy block.
func TestDecompressBareSnappy(t *testing.T) {
	want := bytes.Repeat([]byte("snappy "), 1000)
	if got, err := Decompress(nil, s2.EncodeSnappy(nil, want), Snappy, len(want)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestNextRecordCountsHeaders(t *testing.T) {
	k := kmsg.NewRecord()
	k.TimestampDelta64, k.OffsetDelta, k.Value = -5, 3, []byte("value")
	k.Headers = []kmsg.Header{{Key: "host", Value: []byte("a")}, {Key: "empty"}}
	k.Length = int32(len(k.AppendTo(nil)) - 1)
	p := append(k.AppendTo(nil), "rest"...)
	r, rest, err := NextRecord(p, testTime)
	if err != nil || r.Time != testTime-5 || r.OffsetDelta != 3 || r.HasKey || string(r.Value) != "value" || r.Headers != 2 || string(rest) != "rest" {
		t.Errorf("%+v, rest %q, %v", r, rest, err)
	}
	for n := range len(p) - len("rest") {
		if _, _, err := NextRecord(p[:n], 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes of the record: %v", n, err)
		}
	}
	for i, bad := range [][]byte{{0}, {1}, {2, 0}, {14, 0, 0, 0, 1, 1, 0, 0, 0}, {12, 0, 0, 0, 1, 1, 1}, {12, 0, 0, 0, 1, 20, 0}} {
		if _, _, err := NextRecord(bad, 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("bad record %d: %v", i, err)
		}
	}
}

func FuzzDecompress(f *testing.F) {
	var b Builder
	buildBatch(&b, []testRecord{{time: testTime, value: bytes.Repeat([]byte("compressible "), 100)}})
	for _, codec := range allCodecs {
		c, err := NewCompressor(codec, 0)
		if err != nil {
			f.Fatal(err)
		}
		var s Sealed
		c.Seal(&b, nil, &s)
		f.Add(uint8(codec), s.Records)
	}
	f.Fuzz(func(t *testing.T, codec uint8, p []byte) {
		const rawBytesMax = 1 << 16
		out, err := Decompress(nil, p, Codec(codec&attributesCodec), rawBytesMax)
		if err == nil && len(out) > rawBytesMax {
			t.Errorf("%d bytes, more than %d", len(out), rawBytesMax)
		}
	})
}

func FuzzParseBatch(f *testing.F) {
	var b Builder
	buildBatch(&b, []testRecord{{time: testTime, value: []byte("v")}, {time: testTime + 1, key: []byte("k"), hasKey: true}})
	c, err := NewCompressor(None, 0)
	if err != nil {
		f.Fatal(err)
	}
	var s Sealed
	c.Seal(&b, nil, &s)
	f.Add(stamped(&s, Stamp{ProducerID: 1}))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, err := ParseHeader(p)
		if err != nil {
			return
		}
		if h.Bytes() < HeaderBytes {
			t.Fatalf("a batch of %d bytes", h.Bytes())
		}
		for rest := p[HeaderBytes:]; ; {
			r, next, err := NextRecord(rest, h.FirstTime)
			if err != nil {
				break
			}
			if len(next) >= len(rest) || len(r.Key)+len(r.Value) > len(rest) {
				t.Fatalf("a record of %d bytes left %d", len(rest), len(next))
			}
			rest = next
		}
	})
}

// Builder against decoder: whatever goes in comes out.
func FuzzBuilder(f *testing.F) {
	f.Add(int64(testTime), int64(testTime+5), []byte("key"), []byte("value"), true)
	f.Add(int64(-1), int64(1<<62), []byte(nil), []byte(nil), false)
	f.Fuzz(func(t *testing.T, time1, time2 int64, key, value []byte, hasKey bool) {
		if !hasKey {
			key = nil
		}
		var b Builder
		records := []testRecord{{time1, key, value, hasKey}, {time2, value, key, true}}
		buildBatch(&b, records)
		var s Sealed
		c, err := NewCompressor(LZ4, 0)
		if err != nil {
			t.Fatal(err)
		}
		c.Seal(&b, nil, &s)
		checkRecords(t, stamped(&s, Stamp{}), records, 0)
	})
}
