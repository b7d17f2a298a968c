package kafka

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// frameList is a spool of frames by place.
type frameList [][]byte

func (f frameList) ReadBatch(dst []byte, ref Ref) ([]byte, error) {
	if f[ref.Place] == nil {
		return dst, ErrDamaged
	}
	return append(dst, f[ref.Place]...), nil
}

// Any batches, any limit: the merged one has the records of the first n, byte for byte and with their times, n is as many
// as fit, and one that cannot be read ends it.
func TestMergeKeepsRecords(t *testing.T) {
	var c cutter // used again and again, as the sink does
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(allCodecs[:]).Draw(t, "codec")
		batches := rapid.IntRange(1, 12).Draw(t, "batches")
		end := rapid.IntRange(0, 20).Draw(t, "first that is damaged")
		var frames frameList
		var refs []Ref
		var records [][]cutRecord
		next := rapid.Uint64Range(0, 1<<40).Draw(t, "first")
		bytes := 0
		for i := range batches {
			records = append(records, wireRecords(t))
			frame := sealRecords(t, rapid.SampledFrom([]Codec{None, codec}).Draw(t, "its codec"), records[i])
			if i == end {
				frame = nil
			}
			bytes += 300 * len(records[i])
			frames = append(frames, frame)
			refs = append(refs, Ref{Batch: Batch{First: next, Count: uint32(len(records[i]))}, Place: uint64(i)})
			next += uint64(len(records[i]))
		}
		limit := 1 << 30
		if rapid.Bool().Draw(t, "limited") {
			limit = rapid.IntRange(0, bytes).Draw(t, "limit")
		}
		sealed, n, err := c.merge(frames, refs, limit, codec)
		if want := min(batches, end); n > want || n < want && limit == 1<<30 || (err != nil) != (n == end && n < batches) {
			t.Fatalf("%d of %d batches, damaged is %d: %v", n, batches, end, err)
		}
		if n < mergeWorthMin {
			return
		}
		want := slices.Concat(records[:n]...)
		if got := unseal(t, 5, []CutBatch{{First: 5, Sealed: sealed}}); !slices.EqualFunc(got, want, cutRecord.equal) {
			t.Fatalf("%d records of %d, or others", len(got), len(want))
		}
		if sealed.RawBytes > limit {
			t.Fatalf("%d bytes, at most %d", sealed.RawBytes, limit)
		}
	})
}

// A backlog of small batches becomes few large ones: each record once, in order, under one producer id.
func TestSinkMergesSmallBatches(t *testing.T) {
	for name, c := range map[string]struct {
		batches, records int
		limit            int // of the topic
		full             int // times that there is no room
		requestsMax      uint64
	}{
		"one record each":  {batches: 3000, records: 1, requestsMax: 30},
		"several each":     {batches: 1000, records: 7, requestsMax: 60},
		"too few to merge": {batches: mergeFramesMin, records: 1, requestsMax: mergeFramesMin},
		"topic takes less": {batches: 1000, records: 1, limit: 5_000, requestsMax: 500},
		"no room at first": {batches: 300, records: 1, full: 1, requestsMax: 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRecutBench(t)
			b.sink.cfg.MergeBytesMax = 100_000
			b.full = c.full
			if c.limit > 0 {
				b.bytesMax = c.limit
				b.sink.limits["t"] = limit{c.limit, b.sink.now() + limitAgeMaxMs}
			}
			b.delivered(b.run(c.batches, c.records))
			s := b.sink.Stats()
			if s.AckedBatches > c.requestsMax || b.refusals > 0 || b.id != 1 || b.epoch != 0 {
				t.Errorf("%d batches sent, at most %d; %d refusals, id %d epoch %d", s.AckedBatches, c.requestsMax, b.refusals, b.id, b.epoch)
			}
			if few := c.batches <= mergeFramesMin; few != (s.MergedBatches == 0) && c.full == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Batches that cannot be read are passed over as ever; their neighbours are merged.
func TestSinkMergesAroundDamage(t *testing.T) {
	b := newRecutBench(t)
	b.sink.cfg.MergeBytesMax = 100_000
	b.rotten = map[uint64]bool{1: true, 5: true, 60: true, 61: true, 300: true, 1000: true} // places count from 1
	values := b.run(1000, 1)
	slices.Sort(b.dead)
	b.delivered(values)
	if !slices.Equal(b.dead, []uint64{0, 4, 59, 60, 299, 999}) {
		t.Errorf("gaps at %v", b.dead)
	}
	if s := b.sink.Stats(); s.AckedBatches > 200 || s.MergedBatches < 800 || s.DamagedRecords != 6 {
		t.Errorf("%+v", s)
	}
}
