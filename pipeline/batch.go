package pipeline

import (
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

	// sentNext is the index behind the last batch that was sent. The sink
	// writes it; the lane's reader lets its open batch fill while sealed
	// ones wait.
	sentNext atomic.Uint64
}

func (l *lane) info(block string) kafka.LaneInfo {
	return kafka.LaneInfo{ID: l.id, Block: block, Topic: l.topic, Slot: l.slot, SentNext: &l.sentNext}
}

// batch is a sealed batch on its way from a reader through a compressor to the
// committer; each owns it in turn.
type batch struct {
	lane     *lane
	first    uint64
	count    int
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
	batches []*batch
	commit  spool.Commit
	lanes   []*lane // first seen in this group
	records uint64
	bytes   int64 // at most, in the spool
}

// Bounds of what a reader makes.
const (
	// batchBytesMax is the raw size at which a batch is full. With any codec,
	// or none, the frame stays below the 1,048,588 bytes that brokers take by
	// default, and raw and compressed buffer each fit in 1 MiB.
	batchBytesMax = 1_020_000

	groupOverheadBytes = 4 << 10 // frame headers, and the entry of one lane
	filesBytesMin      = 16 << 10
	pathBytesMax       = 5 << 10 // entries of one file
	laneEntryBytes     = 64      // but for its names
	frameBytes         = 256     // of a batch beside its records, and the padding
	fileEntriesBytes   = 160     // of a file's source and cursor entries, but for its names
)

// batchBytes is the raw size of a full batch for lines of up to lineBytesMax,
// in a spool that takes groups of up to groupMax.
func batchBytes(lineBytesMax int, groupMax int64) int {
	return max(int(min(batchBytesMax, groupMax*7/8)), lineBytesMax+kafka.RecordOverheadMax)
}

// heldBytes is what a batch of raw bytes takes in the spool, at most.
func heldBytes(raw int) int64 { return int64(kafka.SealBytesMax(raw)) + frameBytes }

// filesBytes is what is left in a group beside a full batch, for the entries
// of the files with lines in it: a batch that is fed by many files is ended
// when they fill it.
func filesBytes(lineBytesMax int, groupMax int64) int64 {
	return groupMax - groupOverheadBytes - int64(kafka.SealBytesMax(batchBytes(lineBytesMax, groupMax)))
}
