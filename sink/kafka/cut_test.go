package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// cutRecord is a record with its bytes as they are on the wire behind the offset delta.
type cutRecord struct {
	time int64
	rest []byte
}

// wireRecords draws records with keys, headers and absent values, encoded by kmsg, not by us.
func wireRecords(t *rapid.T) []cutRecord {
	bytesOf := rapid.SliceOfN(rapid.Byte(), 0, 300)
	var out []cutRecord
	for i := range rapid.IntRange(1, 150).Draw(t, "records") {
		r := kmsg.NewRecord()
		if rapid.Bool().Draw(t, "keyed") {
			r.Key = bytesOf.Draw(t, "key")
		}
		r.Value = bytesOf.Draw(t, "value")
		switch rapid.IntRange(0, 20).Draw(t, "kind") {
		case 0:
			r.Value = nil
		case 1:
			r.Value = bytes.Repeat([]byte{'x', byte(i)}, 20_000)
		case 2:
			r.Headers = []kmsg.Header{{Key: "path", Value: bytesOf.Draw(t, "header")}, {Key: "", Value: nil}}
		}
		whole := r.AppendTo(nil) // length, attributes, time delta 0, offset delta 0
		_, n := binary.Varint(whole)
		out = append(out, cutRecord{time: testTime + rapid.Int64Range(-1<<33, 1<<33).Draw(t, "time"), rest: whole[n+3:]})
	}
	return out
}

func sealRecords(t rapid.TB, codec Codec, records []cutRecord) (frame []byte) {
	var b Builder
	b.Reset(nil)
	for _, r := range records {
		b.again(r.time, 0, r.rest)
	}
	c, err := NewCompressor(codec, 0)
	if err != nil {
		t.Fatal(err)
	}
	var s Sealed
	c.Seal(&b, nil, &s)
	return append(s.Header[:], s.Records...)
}

// unseal takes batches apart with kmsg and checks that each stands for itself.
func unseal(t rapid.TB, first uint64, pieces []CutBatch) (out []cutRecord) {
	for _, p := range pieces {
		s := &p.Sealed
		if p.First != first+uint64(len(out)) {
			t.Fatalf("a piece begins at %d, want %d", p.First, first+uint64(len(out)))
		}
		var b kmsg.RecordBatch
		if err := b.ReadFrom(append(s.Header[:], s.Records...)); err != nil {
			t.Fatal(err)
		}
		if uint32(b.NumRecords) != s.Count || b.LastOffsetDelta != b.NumRecords-1 || b.MaxTimestamp != s.MaxTime || b.FirstOffset != 0 || b.ProducerID != 0 ||
			int(b.Length) != HeaderBytes-batchLengthFrom+len(s.Records) || checksum(s.Records) != s.RecordsCRC || uint32(b.CRC) != s.RecordsCRC {
			t.Fatalf("header %+v of %d records", b, s.Count)
		}
		raw, err := Decompress(nil, s.Records, Codec(b.Attributes&attributesCodec), cutRawBytesMax)
		if err != nil {
			t.Fatal(err)
		}
		newest := int64(-1 << 62)
		for i := range b.NumRecords {
			length, n := binary.Varint(raw)
			var r kmsg.Record
			if err := r.ReadFrom(raw[:n+int(length)]); err != nil || r.OffsetDelta != i {
				t.Fatalf("record %d: %+v, %v", i, r, err)
			}
			raw = raw[n+int(length):]
			at := b.FirstTimestamp + r.TimestampDelta64
			newest = max(newest, at)
			r.TimestampDelta64, r.TimestampDelta, r.OffsetDelta, r.Length = 0, 0, 0, 0
			whole := r.AppendTo(nil)
			_, n = binary.Varint(whole)
			out = append(out, cutRecord{time: at, rest: whole[n+3:]})
		}
		if len(raw) > 0 || newest != s.MaxTime {
			t.Fatalf("%d bytes too many, newest time %d of %d", len(raw), newest, s.MaxTime)
		}
	}
	return out
}

func (r cutRecord) equal(o cutRecord) bool { return r.time == o.time && bytes.Equal(r.rest, o.rest) }

// Any records, any limit: the same records in the same order, whatever becomes of the batches; and none is above the limit
// but for single records and what is left when there are enough pieces.
func TestCutKeepsRecords(t *testing.T) {
	var c cutter // used again and again, as the sink does
	rapid.Check(t, func(t *rapid.T) {
		records := wireRecords(t)
		codec := rapid.SampledFrom(allCodecs[:]).Draw(t, "codec")
		frame := sealRecords(t, codec, records)
		first := rapid.Uint64Range(0, 1<<40).Draw(t, "first")
		if err := c.load(frame, first); err != nil {
			t.Fatal(err)
		}
		plan := cutPlan{bytesMax: rapid.IntRange(0, 2*len(frame)).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "named") {
			plan.alone = rapid.SliceOfN(rapid.Int32Range(-2, int32(len(records))+2), 0, 8).Draw(t, "alone")
		}
		pieces, err := c.cut(len(frame), &plan)
		if err != nil {
			t.Fatal(err)
		}
		if got := unseal(t, first, pieces); !slices.EqualFunc(got, records, cutRecord.equal) {
			t.Fatalf("%d records of %d, or others", len(got), len(records))
		}
		if len(pieces) > cutPiecesMax {
			t.Fatalf("%d pieces", len(pieces))
		}
		full := len(pieces) == cutPiecesMax
		for i := range pieces {
			s := &pieces[i].Sealed
			if size := HeaderBytes + len(s.Records); plan.bytesMax > 0 && size > plan.bytesMax && s.Count > 1 && !(full && i == len(pieces)-1) {
				t.Fatalf("piece %d of %d: %d records have %d bytes, limit %d", i, len(pieces), s.Count, size, plan.bytesMax)
			}
		}
		for _, n := range plan.alone {
			if n >= 0 && int(n) < len(records) && !full && !slices.ContainsFunc(pieces, func(p CutBatch) bool { return p.First == first+uint64(n) && p.Sealed.Count == 1 }) {
				t.Fatalf("record %d is not alone in %d pieces", n, len(pieces))
			}
		}
	})
}

// Times made one: all else stays.
func TestEvenTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := wireRecords(t)
		var c cutter
		if err := c.load(sealRecords(t, Zstd, records), 7); err != nil {
			t.Fatal(err)
		}
		oldest, newest := records[0].time, records[0].time
		for _, r := range records {
			oldest, newest = min(oldest, r.time), max(newest, r.time)
		}
		if got := c.span(); got != newest-oldest {
			t.Fatalf("times lie %d ms apart, want %d", got, newest-oldest)
		}
		pieces, err := c.even()
		if err != nil || len(pieces) != 1 {
			t.Fatalf("%d pieces, %v", len(pieces), err)
		}
		for i := range records {
			records[i].time = newest
		}
		if got := unseal(t, 7, pieces); !slices.EqualFunc(got, records, cutRecord.equal) {
			t.Fatal("other records")
		}
	})
}

// A cut is bounded and what it leaves can be cut on: in the end every batch fits.
func TestCutAgainAndAgain(t *testing.T) {
	const limit = 1_000
	frame := sealRecords(t, LZ4, func() (out []cutRecord) {
		for _, line := range logLines(testRand(t), 900_000) {
			rest := appendVarint(appendVarint(nil, -1), int64(len(line)))
			out = append(out, cutRecord{time: testTime + int64(len(out)), rest: append(append(rest, line...), 0)})
		}
		return out
	}())
	var c cutter
	rounds, first := 0, uint64(0)
	for ; ; rounds++ {
		if err := c.load(frame, first); err != nil {
			t.Fatal(err)
		}
		pieces, err := c.cut(len(frame), &cutPlan{bytesMax: limit})
		if err != nil {
			t.Fatal(err)
		}
		group := 0
		for _, p := range pieces {
			group += 101 + 64 + len(p.Sealed.Records)
		}
		if group > SealBytesMax(len(c.raw))+12<<10 {
			t.Fatalf("a group of %d bytes from a batch of %d, raw %d", group, len(frame), len(c.raw))
		}
		last := &pieces[len(pieces)-1]
		if HeaderBytes+len(last.Sealed.Records) <= limit {
			break
		}
		frame, first = append(last.Sealed.Header[:], last.Sealed.Records...), last.First
	}
	if rounds < 2 || rounds > 20 {
		t.Errorf("%d rounds", rounds)
	}
}

func TestCutDoubtsItsInput(t *testing.T) {
	frame := sealRecords(t, None, []cutRecord{{time: 1, rest: []byte{1, 2, 'a', 0}}, {time: 2, rest: []byte{1, 2, 'b', 0}}})
	var c cutter
	if err := c.load(frame, 0); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"short":            func(p []byte) []byte { return p[:len(p)-1] },
		"bytes behind":     func(p []byte) []byte { return append(p, 0) },
		"more records":     func(p []byte) []byte { p[countAt+3]++; return p },
		"fewer records":    func(p []byte) []byte { p[countAt+3]--; return p },
		"unknown codec":    func(p []byte) []byte { p[attributesAt+1] = 7; return p },
		"not a header":     func(p []byte) []byte { return p[:10] },
		"length of record": func(p []byte) []byte { p[HeaderBytes] = 0x7f; return p },
	} {
		if err := c.load(spoil(bytes.Clone(frame)), 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTopicConfig(t *testing.T) {
	for _, c := range []struct {
		values map[string]string
		want   TopicConfig
	}{
		{map[string]string{}, TopicConfig{Known: true}},
		{map[string]string{"max.message.bytes": "1048588", "segment.bytes": "1073741824", "cleanup.policy": "delete", "message.timestamp.before.max.ms": "9223372036854775807",
			"message.timestamp.after.max.ms": "3600000"}, TopicConfig{Known: true, BatchBytesMax: 1_048_588, AfterMs: 3_600_000}},
		{map[string]string{"max.message.bytes": "1048588", "segment.bytes": "65536", "cleanup.policy": "compact,delete"}, TopicConfig{Known: true, BatchBytesMax: 65536, Compacted: true}},
		{map[string]string{"message.timestamp.difference.max.ms": "1000"}, TopicConfig{Known: true, BeforeMs: 1000, AfterMs: 1000}},
		{map[string]string{"message.timestamp.difference.max.ms": "9223372036854775807", "max.message.bytes": "x"}, TopicConfig{Known: true}},
	} {
		if got := topicConfigOf(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestRemedies(t *testing.T) {
	known := TopicConfig{Known: true, BatchBytesMax: 10_000}
	compacted := TopicConfig{Known: true, Compacted: true}
	for name, c := range map[string]struct {
		why         Cut
		count       uint32
		size, limit int
		back        uint8
		fault       fault
		topic       TopicConfig
		want        string
	}{
		"ahead":                         {why: CutAhead, count: 9, size: 50_000, limit: 10_000, want: "cut to 10000"},
		"ahead, forgotten meanwhile":    {why: CutAhead, count: 9, size: 50_000, want: "same"},
		"too large":                     {why: CutSize, count: 9, size: 50_000, topic: known, want: "cut to 10000, learn 10000"},
		"too large, not explained":      {why: CutSize, count: 9, size: 9_000, topic: known, want: "cut to 4500, learn 4500"},
		"too large, nothing known":      {why: CutSize, count: 9, size: 50_000, want: "cut to 25000, learn 25000"},
		"too large, known to be less":   {why: CutSize, count: 9, size: 50_000, limit: 3_000, want: "cut to 3000, learn 3000"},
		"too large, ever less":          {why: CutSize, count: 2, size: 70, want: "cut to 62, learn 62"},
		"too large alone":               {why: CutSize, count: 1, size: 50_000, topic: known, want: "dead, learn 10000"},
		"named":                         {why: CutFault, count: 9, fault: fault{code: 87, named: []int32{3}}, want: "alone [3]"},
		"named, compacted":              {why: CutFault, count: 9, fault: fault{code: 87, named: []int32{3}}, topic: compacted, want: "hold"},
		"not named":                     {why: CutFault, count: 9, fault: fault{code: 87}, want: "hold"},
		"invalid alone":                 {why: CutFault, count: 1, fault: fault{code: 87}, topic: known, want: "dead"},
		"invalid alone, says why":       {why: CutFault, count: 1, fault: fault{code: 87, message: "bad"}, want: "dead"},
		"invalid alone, nothing known":  {why: CutFault, count: 1, fault: fault{code: 87}, want: "hold"},
		"invalid alone, wants a key":    {why: CutFault, count: 1, fault: fault{code: 87, message: "Compacted topic cannot accept message without key"}, want: "hold"},
		"corrupt alone, once":           {why: CutFault, count: 1, fault: fault{code: 2, strikes: 1}, topic: known, want: "hold"},
		"corrupt alone, again":          {why: CutFault, count: 1, fault: fault{code: 2, strikes: 4}, topic: known, want: "dead"},
		"times":                         {why: CutTimes, count: 9, back: 1, topic: known, want: "same"},
		"times, bounded":                {why: CutTimes, count: 9, back: 1, topic: TopicConfig{Known: true, BeforeMs: 60_000, AfterMs: 20_000}, want: "same, even above 30000, step 40000"},
		"times, nothing known":          {why: CutTimes, count: 9, back: 1, want: "same"},
		"times, nothing known, at last": {why: CutTimes, count: 9, back: 4, want: "same, even above 0"},
	} {
		r := remedyFor(c.why, c.count, c.size, c.limit, c.back, &c.fault, &c.topic)
		got := ""
		add := func(when bool, format string, args ...any) {
			if when && got != "" {
				got += ", "
			}
			if when {
				got += fmt.Sprintf(format, args...)
			}
		}
		add(r.hold != "", "hold")
		add(r.same, "same")
		add(r.dead, "dead")
		add(!r.dead && r.plan.bytesMax > 0, "cut to %d", r.plan.bytesMax)
		add(r.plan.alone != nil, "alone %v", r.plan.alone)
		add(r.plan.bounded, "even above %d", r.plan.spanMax)
		add(r.limit > 0, "learn %d", r.limit)
		add(r.step > 0, "step %d", r.step)
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestFaultNamesRecords(t *testing.T) {
	for name, c := range map[string]struct {
		out   PartOutcome
		count uint32
		named int
	}{
		"some":    {PartOutcome{Code: 87, RecordErrors: []int32{1, 3}}, 5, 2},
		"all":     {PartOutcome{Code: 87, RecordErrors: []int32{0, 1}}, 2, 0},
		"keyless": {PartOutcome{Code: 87, RecordErrors: []int32{1}, ErrorMessage: "... Compacted topic cannot accept message without key in topic partition t-0."}, 5, 0},
		"none":    {PartOutcome{Code: 87}, 5, 0},
	} {
		var f fault
		f.note(&c.out, c.count)
		if len(f.named) != c.named || f.strikes != 1 || f.code != 87 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Pieces of one record up to a named one leave room for the rest: rapid found a piece too many.
func TestCutPiecesAreBounded(t *testing.T) {
	var records []cutRecord
	for range 2 * cutPiecesMax {
		records = append(records, cutRecord{rest: []byte{1, 1, 0}})
	}
	for named := range int32(len(records)) {
		var c cutter
		frame := sealRecords(t, None, records)
		if err := c.load(frame, 0); err != nil {
			t.Fatal(err)
		}
		pieces, err := c.cut(len(frame), &cutPlan{bytesMax: 1, alone: []int32{named}})
		if err != nil || len(pieces) != cutPiecesMax || !slices.EqualFunc(unseal(t, 0, pieces), records, cutRecord.equal) {
			t.Errorf("record %d alone: %d pieces, %v", named, len(pieces), err)
		}
	}
}
