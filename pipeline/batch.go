package pipeline

import (
	"fmt"
	"sort"
	"sync/atomic"

	"shipper/sink/kafka"
	"shipper/spool"
)

// lane is what the stages share of one lane. A lane belongs to one reader for
// ever, so its indexes are given by one goroutine.
type lane struct {
	id     uint32
	block  int // index into Config.Sources
	topic  string
	slot   uint32
	reader int

	shared *kafka.Topic
	shrink atomic.Uint32 // what its batches are compressed to, of shrinkScale; 0: not known

	// sentNext is the index behind the last batch that was sent. The sink
	// writes it; the lane's reader lets its open batch fill while sealed
	// ones wait.
	sentNext atomic.Uint64
	acked    atomic.Uint64 // behind the last batch that is in Kafka, written by the sink
	waits    atomic.Uint32 // kafka.Cause, written by the sink

	// dropped is how many records were dropped that the reader had counted in:
	// indexes in the spool are that much lower. The committer writes it.
	dropped atomic.Uint64
}

func (l *lane) info(cfg *Config, block string) kafka.LaneInfo {
	info := kafka.LaneInfo{ID: l.id, Block: block, Topic: l.topic, Slot: l.slot, SentNext: &l.sentNext, Acked: &l.acked, Waits: &l.waits}
	if l.block >= 0 { // else its source is not configured any more
		info.Codec = cfg.Sources[l.block].codec.name
	}
	return info
}

// batch is a sealed batch on its way from a reader through a compressor to the
// committer; each owns it in turn.
type batch struct {
	lane     *lane
	first    uint64
	count    int
	codec    *codec
	bytesMax int64         // in the spool
	records  kafka.Builder // raw; its buffer goes back to the budget once compressed
	raw      []byte
	out      []byte // room for the compressed records; goes back once spooled
	sealed   kafka.Sealed
	ready    chan struct{} // closed by the compressor
}

// group is what becomes durable as one: batches, and the offsets up to which
// their files are in them. A crash before its commit is durable leaves nothing
// of it, and its files are read again from the offsets before.
type group struct {
	block   int // of the configuration; -1: none
	batches []*batch
	spans   []span // whose lines the batches hold
	commit  spool.Commit
	lanes   []*lane // first seen in this group
	records uint64
	bytes   int64 // at most, in the spool

	durable chan<- struct{} // closed when it is; nil: nobody waits
}

// span is a range of a file's bytes, and how many records came of it.
type span struct {
	source   uint64
	from, to int64
	records  uint64
}

// Bounds of what a reader makes.
const (
	// batchBytesBase is the raw size at which a batch is full while nothing is
	// known of its topic. With any codec, or none, the frame stays below the
	// 1,048,588 bytes that brokers take by default.
	batchBytesBase = 1_020_000

	// batchBytesLimit is the raw size at which a batch is full however well it
	// compresses: whoever reads the topic holds a batch unpacked.
	batchBytesLimit = 4 << 20

	batchShare        = 9    // of the budget: no batch, with the room to compress it into, takes more than two of these
	frameSlackBytes   = 512  // header, and what a codec adds to what it cannot shrink
	shrinkScale       = 1024 // of lane.shrink
	shrinkMargin      = 900  // of shrinkScale: the next lines may compress less well
	shrinkRawBytesMin = 64 << 10

	groupOverheadBytes = 4 << 10 // frame headers, and the entry of one lane
	filesBytesMin      = 16 << 10
	shareBatchMin      = 16 << 10 // of a source whose share of the spool is next to nothing
	pathBytesMax       = 5 << 10  // entries of one file
	laneEntryBytes     = 64       // but for its names
	frameBytes         = 256      // of a batch beside its records, and the padding
	fileEntriesBytes   = 160      // of a file's source and cursor entries, but for its names
)

// room is what the memory and the spool leave for the batches of one source.
type room struct {
	groupMax int64 // bytes of a group
	batchMax int   // raw bytes of a batch, at most
	shareMax int64 // of the batches of a group in the spool, but for a longer line; see within
}

// roomFor is the room of a source with lines of up to lineBytesMax, in a spool
// that takes groups of up to groupMax.
func roomFor(lineBytesMax int, groupMax, budgetBytes int64) room {
	most := min(groupMax*7/8, max(batchBytesBase, min(batchBytesLimit, budgetBytes/batchShare)))
	return room{groupMax, max(int(most), lineBytesMax+kafka.RecordOverheadMax), groupMax}
}

// checkRoom refuses records that a group of the spool would not hold beside the
// entries of their files, and tells how long lines may be.
func (s *Source) checkRoom(groupMax int64) error {
	fits := func(s *Source) bool { return roomFor(s.recordBytesMax(), groupMax, 0).entriesBytes() >= filesBytesMin }
	if fits(s) {
		return nil
	}
	shorter := *s
	tooLong := sort.Search(s.LineBytesMax, func(n int) bool {
		shorter.LineBytesMax = n
		return shorter.compile() == nil && !fits(&shorter)
	})
	return fmt.Errorf("its segments take groups of %d bytes, too few for the records of source %s: raise spool.max_bytes, or lower max_line_bytes to %d",
		groupMax, s.Name, tooLong-1)
}

// CheckRoom tells what of cfg a spool as plan says would refuse at the start.
func CheckRoom(cfg *Config, plan *spool.Plan) error {
	for i := range cfg.Sources {
		s := cfg.Sources[i]
		if err := s.compile(); err != nil {
			return err
		}
		if err := s.checkRoom(plan.GroupBytesMax()); err != nil {
			return err
		}
	}
	return nil
}

// within is the room of a source of whose lines the spool always takes shareBytes:
// a group holds half of them, so that one waits for Kafka while the next is
// written. A larger one would find no room while others have the rest.
func (x room) within(shareBytes int64) room {
	x.shareMax = min(x.groupMax, max(shareBytes/2, shareBatchMin))
	return x
}

// longest is what a batch of one line takes in the spool, at most.
func (s *Source) longest() int64 { return heldBytes(s.recordBytesMax() + kafka.RecordOverheadMax) }

// heldBytes is what a batch of raw bytes takes in the spool, at most.
func heldBytes(raw int) int64 { return int64(kafka.SealBytesMax(raw)) + frameBytes }

// entriesBytes is what is left in a group beside a full batch, for the entries
// of the files with lines in it: a batch that is fed by many files is ended
// when they fill it.
func (x room) entriesBytes() int64 {
	return x.groupMax - groupOverheadBytes - int64(kafka.SealBytesMax(x.batchMax))
}

// full is the raw size at which a batch of the lane is full, if its next record
// takes n bytes: as much as its topic takes of it compressed, reckoned by what
// the batches before shrank to. One record alone may be larger.
func (l *lane) full(x room, n int) int {
	topicMax := int(l.shared.BatchBytesMax.Load())
	if topicMax == 0 {
		topicMax = batchBytesBase + frameSlackBytes
	}
	full := max(min(topicMax, int(x.shareMax))-frameSlackBytes, bufferBytesMin)
	if shrink := int(l.shrink.Load()); shrink > 0 {
		full = max(full, full/shrink*shrinkMargin)
	}
	return max(min(full, x.batchMax), n+kafka.RecordOverheadMax)
}

// shrank notes what a batch of raw bytes was compressed to. Batches that
// compress worse count at once, better ones in time.
func (l *lane) shrank(raw, compressed int) {
	if raw < shrinkRawBytesMin {
		return
	}
	now, before := uint32(max(1, compressed*shrinkScale/raw)), l.shrink.Load()
	l.shrink.Store(max(now, (7*before+now)/8))
}
