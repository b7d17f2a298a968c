package spool

import (
	"fmt"
	"maps"
	"strings"
)

// sequence is what a broker matches: which record of which producer id.
type sequence struct {
	producer int64
	epoch    int16
	number   uint64
}

// broker remembers everything for ever, so any number given to two lines shows.
type broker struct {
	log      map[sequence]string
	lines    map[string]int // how often it is there
	producer int64
}

func (b *broker) clone() *broker {
	return &broker{maps.Clone(b.log), maps.Clone(b.lines), b.producer}
}

// produce stores what is new under its number. Other bytes under a number that
// was used would be taken for a duplicate and thrown away: the worst thing that
// can happen to a line.
func (b *broker) produce(id Identity, first uint64, text []byte) error {
	for i, line := range strings.Split(string(text), "\n") {
		seq := sequence{id.ProducerID, id.Epoch, first - id.From + uint64(i)}
		if have, ok := b.log[seq]; !ok {
			b.log[seq] = line
			b.lines[lineKey(line)]++
		} else if have != line {
			return fmt.Errorf("swallowed: %+v was %q and is given to %q", seq, have, line)
		}
	}
	return nil
}

func lineKey(line string) string { return strings.TrimRight(line, ".") }
