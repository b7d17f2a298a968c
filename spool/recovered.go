package spool

import "time"

// Recovered is what Open found.
type Recovered struct {
	SpoolID   [16]byte // random, drawn when the spool was created
	Created   bool     // this Open created it
	Lanes     []LaneState
	Sources   []SourceState // those not gone
	Begun     []string      // source blocks whose first start is over, sorted
	StateLost bool          // there was a spool, and nothing is left that tells of all its files and blocks
	Damage    []Damage
	Took      time.Duration
	Segments  int
	Bytes     int64 // of all files
	VoidBytes int64 // whole or torn frames behind the tear: never happened
}

// LaneState is a lane as the sink takes it up again.
type LaneState struct {
	Lane
	Next    uint64 // index the next new record gets
	Head    uint64 // first index not durably acked; behind a gap that began there
	Top     uint64 // where the head was before it began to move back; 0: it is not moving back
	LastAck Ack    // Count 0: none
	// Identities are ascending by From; those of a frame that is held or will
	// be written. The last is this start's, without producer id.
	Identities []Identity
	Gaps       []Gap // those that end above Head
	Batches    []Ref // from Head on, ascending, one for each index
	More       bool  // there are others behind the last of Batches: see Options.RefsMax and Log.Refs
}

// SourceState is a file that was being read and how far.
type SourceState struct {
	Source
	Cursor
}

// Damage is one thing that recovery could not read or did not find. If records
// are gone with it, From < To, and a gap says so in the log.
type Damage struct {
	Segment  uint32 // 0: the frame was not found at all
	Position int64
	Bytes    int64
	Lane     uint32
	From, To uint64
	Records  uint64 // gone; of unknown lanes if From == To
	Reason   string
}
