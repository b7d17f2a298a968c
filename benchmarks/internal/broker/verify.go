package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/benchmarks/internal/corpus"
)

const (
	tagBytesMax = 16
	numbersMax  = 1 << 28 // per tag; a bit each
	tagsMax     = 1 << 16
)

// LineTotals is what verify mode found in the numbered lines (`<tag> <number> ...`, one tag per file).
type LineTotals struct {
	Lines      uint64 `json:"lines"`
	Tags       int    `json:"tags"`
	Missing    uint64 `json:"missing"` // numbers below a tag's highest that never came
	Doubled    uint64 `json:"doubled"`
	OutOfOrder uint64 `json:"out_of_order"` // lower than the tag's line before it in the same partition
	SpreadTags int    `json:"spread_tags"`  // tags that came to more than one partition
	Foreign    uint64 `json:"foreign"`      // without a tag and number
}

// line is one record's tag and number; an empty tag marks a foreign line.
type line struct {
	tag    string
	number uint64
}

// decompressor is safe for concurrent use.
var decompressor = kgo.DefaultDecompressor()

// parseLines unpacks a batch's records.
func parseLines(records []byte, h batchHeader) ([]line, error) {
	raw, err := decompressor.Decompress(records, kgo.CompressionCodecType(h.codec()))
	if err != nil {
		return nil, err
	}
	lines := make([]line, 0, h.count)
	for i := range h.count {
		var value []byte
		if value, raw, err = nextRecord(raw, i); err != nil {
			return nil, fmt.Errorf("record %d of %d: %w", i, h.count, err)
		}
		lines = append(lines, parseLine(value))
	}
	if len(raw) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last record", len(raw))
	}
	return lines, nil
}

// nextRecord cuts one record off and returns its value.
//
//	length varint | attributes int8 | time delta varint | offset delta varint | key length varint, key | value length varint, value | headers
func nextRecord(b []byte, offsetDelta int32) (value, rest []byte, err error) {
	size, n := binary.Varint(b)
	if n <= 0 || size < 0 || int64(len(b)-n) < size {
		return nil, nil, errors.New("cut short")
	}
	body, rest := b[n:n+int(size)], b[n+int(size):]
	if len(body) == 0 {
		return nil, nil, errors.New("empty")
	}
	body = body[1:]
	var field [2]int64 // time delta, offset delta
	for i := range field {
		if field[i], n = binary.Varint(body); n <= 0 {
			return nil, nil, errors.New("deltas cut short")
		}
		body = body[n:]
	}
	if field[1] != int64(offsetDelta) {
		return nil, nil, fmt.Errorf("offset delta %d", field[1])
	}
	for range 2 { // key, then value
		size, n := binary.Varint(body)
		if n <= 0 || size > int64(len(body)-n) {
			return nil, nil, errors.New("key or value cut short")
		}
		value = body[n : n+int(max(size, 0))]
		body = body[n+int(max(size, 0)):]
	}
	return value, rest, nil
}

// parseLine reads `<tag> <10 digits> `.
func parseLine(b []byte) line {
	for i, c := range b[:min(len(b), tagBytesMax+1)] {
		if c != ' ' {
			continue
		}
		rest := b[i+1:]
		if i == 0 || len(rest) <= corpus.NumberDigits || rest[corpus.NumberDigits] != ' ' {
			return line{}
		}
		var number uint64
		for _, d := range rest[:corpus.NumberDigits] {
			if d < '0' || d > '9' {
				return line{}
			}
			number = number*10 + uint64(d-'0')
		}
		if number >= numbersMax {
			return line{}
		}
		return line{tag: string(b[:i]), number: number}
	}
	return line{}
}

// lineChecker keeps, per tag, one bit for each number seen and the last number of each partition.
type lineChecker struct {
	partitions int
	tags       map[string]*tagLines
	found      LineTotals
}

type tagLines struct {
	seen       []uint64
	last       []int64 // per partition, -1 before the first
	partitions int     // that this tag came to
}

func newLineChecker(partitions int) *lineChecker {
	return &lineChecker{partitions: partitions, tags: map[string]*tagLines{}}
}

// arrived takes the lines of one appended batch, in order.
func (c *lineChecker) arrived(partition int, lines []line) {
	for _, l := range lines {
		c.found.Lines++
		t := c.tags[l.tag]
		if t == nil {
			if l.tag == "" || len(c.tags) == tagsMax {
				c.found.Foreign++
				continue
			}
			t = &tagLines{last: make([]int64, c.partitions)}
			for i := range t.last {
				t.last[i] = -1
			}
			c.tags[l.tag] = t
		}
		if t.last[partition] < 0 {
			t.partitions++
		} else if int64(l.number) < t.last[partition] {
			c.found.OutOfOrder++
		}
		t.last[partition] = int64(l.number)
		word, bit := l.number/64, uint64(1)<<(l.number%64)
		for uint64(len(t.seen)) <= word {
			t.seen = append(t.seen, 0)
		}
		if t.seen[word]&bit != 0 {
			c.found.Doubled++
		}
		t.seen[word] |= bit
	}
}

// totals counts the holes below each tag's highest number; lines behind it that never came do not show.
func (c *lineChecker) totals() LineTotals {
	t := c.found
	t.Tags = len(c.tags)
	for _, tag := range c.tags {
		if tag.partitions > 1 {
			t.SpreadTags++
		}
		var distinct, highest int
		for i, word := range tag.seen {
			distinct += bits.OnesCount64(word)
			if word != 0 {
				highest = i*64 + bits.Len64(word)
			}
		}
		t.Missing += uint64(highest - distinct)
	}
	return t
}
