package pipeline

import (
	"time"

	"shipper/sink/kafka"
)

// feed is what a set of files is read into and what is sealed together. A
// file's offset is one number, so all that holds its lines below it is sealed
// into one group.
type feed struct {
	block int
	lane  *openLane

	since        time.Time // of the oldest record or cursor not handed over
	dirty        []*openFile
	entriesBytes int64 // of the entries of dirty, at most
	listed       bool  // in reader.open

	families map[string]*generations
}

// openLane is a lane as its reader sees it.
type openLane struct {
	*lane
	known   bool   // the spool has its Lane entry, or will with a group that was handed over
	next    uint64 // index of the next record
	sealed  uint64 // index behind the last batch handed over
	builder kafka.Builder
	raw     []byte // the builder's buffer; nil: none
	out     []byte // room to compress it into
	size    int    // of the next buffer: what the lane needed last
}

func newFeed(h handover) *feed {
	return &feed{block: h.lane.block, lane: &openLane{lane: h.lane, known: h.laneKnown, next: h.next, sealed: h.next}, families: map[string]*generations{}}
}

// family is where the generations of a path stand in line.
func (f *feed) family(path string) *generations {
	name := family(path)
	g := f.families[name]
	if g == nil {
		g = &generations{name: name}
		f.families[name] = g
	}
	g.open++
	return g
}

// batchesBytes is what the open batches take in the spool, at most.
func (f *feed) batchesBytes() int64 { return int64(kafka.SealBytesMax(f.lane.builder.Bytes())) }

// hasIdleLane says whether a lane could send at once what is in its open batch.
func (f *feed) hasIdleLane() bool {
	return f.lane.builder.Count() > 0 && f.lane.sealed <= f.lane.sentNext.Load()
}
