package kafka

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestParseCodec(t *testing.T) {
	for _, codec := range allCodecs {
		if got, err := ParseCodec(codec.String()); got != codec || err != nil {
			t.Errorf("ParseCodec(%q) = %v, %v", codec.String(), got, err)
		}
	}
	_, err := ParseCodec("brotli")
	if err == nil || !strings.Contains(err.Error(), "none, gzip, snappy, lz4, zstd") {
		t.Errorf("unknown codec: %v", err)
	}
	if got := Codec(9).String(); got != "codec 9" {
		t.Errorf("Codec(9) is %q", got)
	}
}

func TestNewCompressorChecksLevel(t *testing.T) {
	for codec, levelMax := range map[Codec]int{None: 0, Gzip: 9, Snappy: 0, LZ4: 9, Zstd: 22} {
		for _, level := range []int{0, levelMax} {
			if _, err := NewCompressor(codec, level); err != nil {
				t.Errorf("%s level %d: %v", codec, level, err)
			}
		}
		for _, level := range []int{-1, levelMax + 1} {
			if _, err := NewCompressor(codec, level); err == nil || !strings.Contains(err.Error(), "out of range") {
				t.Errorf("%s level %d: %v", codec, level, err)
			}
		}
	}
	if _, err := NewCompressor(5, 0); err == nil {
		t.Error("codec 5 was taken")
	}
}

// kgo's decoder reads what any Kafka client writes and is not ours.
func TestKgoDecompresses(t *testing.T) {
	r := testRand(t)
	text := bytes.Join(logLines(r, 4<<20+1), nil)
	decoder := kgo.DefaultDecompressor()
	kgoCodecs := map[Codec]kgo.CompressionCodecType{Gzip: kgo.CodecGzip, Snappy: kgo.CodecSnappy, LZ4: kgo.CodecLz4, Zstd: kgo.CodecZstd}
	for codec, kgoCodec := range kgoCodecs {
		for _, level := range []int{0, 3, 9} {
			if codec == Snappy && level > 0 {
				continue
			}
			c := mustCompressor(t, codec, level)
			// Around the block sizes of the codecs' formats, and well above the largest.
			for _, size := range []int{2000, 64 << 10, 64<<10 + 1, 300_000, 1<<20 + 1, 4<<20 + 1} {
				if level > 0 && size != 300_000 {
					continue // the framing is that of level 0
				}
				b := Builder{buf: text[:size], count: 1} // a codec does not look into records
				var s Sealed
				c.Seal(&b, nil, &s)
				if h, err := ParseHeader(s.Header[:]); err != nil || h.Codec() != codec {
					t.Fatalf("%s level %d, %d bytes: header %+v, %v", codec, level, size, h, err)
				}
				got, err := decoder.Decompress(s.Records, kgoCodec)
				if err != nil || !bytes.Equal(got, b.Records()) {
					t.Fatalf("%s level %d, %d bytes: decoded %d bytes, %v", codec, level, size, len(got), err)
				}
			}
		}
	}
}

func TestIncompressibleRecordsStayAsTheyAre(t *testing.T) {
	r := testRand(t)
	noise := randomBytes(r, 200_000)
	for _, codec := range allCodecs {
		for _, size := range []int{1, 20, len(noise)} {
			var b Builder
			buildBatch(&b, []testRecord{{time: testTime, value: noise[:size]}})
			var s Sealed
			mustCompressor(t, codec, 0).Seal(&b, nil, &s)
			h, err := ParseHeader(s.Header[:])
			if err != nil || h.Codec() != None || !bytes.Equal(s.Records, b.Records()) {
				t.Errorf("%s, %d random bytes: sealed as %s, %v", codec, size, h.Codec(), err)
			}
			if &s.Records[0] == &b.Records()[0] {
				t.Errorf("%s, %d random bytes: Records lies in the builder's buffer", codec, size)
			}
		}
	}
}

// Half of the batch compresses and half does not: LZ4 stores blocks, the others have their own ways.
func TestMixedRecords(t *testing.T) {
	r := testRand(t)
	// LZ4's blocks are 4 MiB at most: one with text, one of noise only.
	records := []testRecord{
		{time: testTime, value: bytes.Repeat([]byte("0123456789"), 20_000)},
		{time: testTime, value: randomBytes(r, 5<<20)},
	}
	for _, codec := range allCodecs[1:] {
		var b Builder
		buildBatch(&b, records)
		var s Sealed
		mustCompressor(t, codec, 0).Seal(&b, nil, &s)
		if h, err := ParseHeader(s.Header[:]); err != nil || h.Codec() != codec {
			t.Errorf("%s: sealed as %s, %v", codec, h.Codec(), err)
		}
		checkRecords(t, stamped(&s, Stamp{}), records, 0)
	}
}

// Equal input gives equal bytes whatever came before: what is compressed again after a crash can be compared.
func TestSealIsDeterministic(t *testing.T) {
	r := testRand(t)
	var one, other Builder
	buildBatch(&one, linesAsRecords(logLines(r, 300_000)))
	buildBatch(&other, linesAsRecords(logLines(r, 100_000)))
	for _, codec := range allCodecs {
		levels := []int{0}
		if codec != None && codec != Snappy {
			levels = append(levels, 3)
		}
		for _, level := range levels {
			c := mustCompressor(t, codec, level)
			var first, between, second, fresh Sealed
			c.Seal(&one, nil, &first)
			c.Seal(&other, nil, &between)
			c.Seal(&one, nil, &second)
			mustCompressor(t, codec, level).Seal(&one, make([]byte, 0, 1<<20), &fresh)
			for _, s := range []*Sealed{&second, &fresh} {
				if !bytes.Equal(first.Records, s.Records) || first.Header != s.Header {
					t.Errorf("%s level %d: not the same bytes again", codec, level)
				}
			}
		}
	}
}

func linesAsRecords(lines [][]byte) []testRecord {
	records := make([]testRecord, len(lines))
	for i, line := range lines {
		records[i] = testRecord{time: testTime + int64(i), value: line}
	}
	return records
}

func TestSealAllocatesNothing(t *testing.T) {
	r := testRand(t)
	var b Builder
	buildBatch(&b, linesAsRecords(logLines(r, 300_000)))
	for _, codec := range allCodecs {
		c := mustCompressor(t, codec, 0)
		dst := make([]byte, 0, SealBytesMax(b.Bytes()))
		var s Sealed
		c.Seal(&b, dst, &s)
		if &s.Records[0] != &dst[:1][0] {
			t.Errorf("%s: dst of SealBytesMax was not enough", codec)
		}
		if raceEnabled && codec == Snappy {
			continue // its scratch space comes from a sync.Pool, which loses things on purpose under the race detector
		}
		if n := testing.AllocsPerRun(10, func() { c.Seal(&b, dst, &s) }); n != 0 {
			t.Errorf("%s: %v allocations a batch", codec, n)
		}
	}
}

// No codec writes beyond SealBytesMax before it gives up, so that noise does not allocate either.
func TestSealOfNoiseAllocatesNothing(t *testing.T) {
	r := testRand(t)
	var b Builder
	buildBatch(&b, []testRecord{{time: testTime, value: randomBytes(r, 1<<20)}})
	for _, codec := range allCodecs {
		c := mustCompressor(t, codec, 0)
		dst := make([]byte, 0, SealBytesMax(b.Bytes()))
		var s Sealed
		c.Seal(&b, dst, &s)
		if raceEnabled && codec == Snappy {
			continue // as above
		}
		if n := testing.AllocsPerRun(5, func() { c.Seal(&b, dst, &s) }); n != 0 {
			t.Errorf("%s: %v allocations a batch", codec, n)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	r := testRand(b)
	var batch Builder
	buildBatch(&batch, linesAsRecords(logLines(r, 1<<20)))
	for _, codec := range allCodecs {
		b.Run(codec.String(), func(b *testing.B) {
			c := mustCompressor(b, codec, 0)
			dst := make([]byte, 0, SealBytesMax(batch.Bytes()))
			var s Sealed
			b.SetBytes(int64(batch.Bytes()))
			b.ReportAllocs()
			for b.Loop() {
				c.Seal(&batch, dst, &s)
			}
			b.ReportMetric(float64(batch.Bytes())/float64(len(s.Records)), "ratio")
		})
	}
}

// The libraries alone on the same block: what Seal adds is the difference.
func BenchmarkCodecAlone(b *testing.B) {
	r := testRand(b)
	var batch Builder
	buildBatch(&batch, linesAsRecords(logLines(r, 1<<20)))
	src, dst := batch.Records(), make([]byte, 2<<20)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	var lz lz4.CompressorCCompat
	for name, f := range map[string]func(){
		"lz4":  func() { _, err = lz.CompressBlock(src, dst) },
		"zstd": func() { dst = enc.EncodeAll(src, dst[:0])[:cap(dst)] },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

func ExampleParseCodec() {
	_, err := ParseCodec("zip")
	fmt.Println(err)
	// Output: unknown compression "zip": use one of none, gzip, snappy, lz4, zstd
}
