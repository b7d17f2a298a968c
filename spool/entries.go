package spool

// The vocabulary of a commit: what a caller may record beside batches.
//
// Bytes of an entry (all integers varint unless a width is given, strings are
// length-prefixed):
//
//	kind u8 | length of the body | body
//
// A reader skips kinds it does not know and bytes behind the fields it knows,
// so a later minor version may add both.

// Ref locates one spooled batch frame. It is comparable and 32 bytes wide, so
// a backlog of 256 k batches costs 8 MiB.
type Ref struct {
	First   uint64 // index of the batch's first record in its lane
	MaxTime int64  // newest record time, ms since epoch
	Segment uint32 // segment number
	Block   uint32 // frame position in units of 64 bytes
	Count   uint32 // records
	Bytes   uint32 // length of the compressed records
}

// Next is the index behind the batch's last record.
func (r Ref) Next() uint64 { return r.First + uint64(r.Count) }

// HeaderBytes is the length of the RecordBatch v2 header kept with each batch.
const HeaderBytes = 61

// Batch is one sealed, compressed batch to append.
type Batch struct {
	Lane    uint32
	First   uint64 // the lane's next index, or lower for a batch that is cut again
	Count   uint32
	MaxTime int64 // newest record time, ms since epoch
	// Header is a complete RecordBatch v2 header with base offset 0; CRC,
	// producer id, epoch and base sequence are zero and stamped at send.
	Header [HeaderBytes]byte
	// Records are the compressed records; Append neither keeps nor changes them.
	Records []byte
	// RecordsCRC is the CRC-32C of Records. It is also the frame's payload
	// checksum, so the bytes are summed once in their life.
	RecordsCRC uint32
}

// Commit holds the entries of one commit frame; empty slices are absent.
// Append copies what it keeps, so the caller may reuse everything.
//
// Entries are applied in the order of the fields, with the group's batches
// behind Lanes and Sources.
type Commit struct {
	Lanes      []Lane
	Sources    []Source
	Cursors    []Cursor
	Identities []Identity
	Heads      []Head
	Acks       []Ack
	Gaps       []Gap
	Time       int64    // when the acks were, ms since 1970; 0: not said
	Begun      []string // source blocks whose first start is over: all that it found is in Sources and Cursors

	// Optional says that the group may be left out: like new lines it must not use
	// the spares, and gets ErrFull. It is not written.
	Optional bool
}

// Lane names an ordered stream of records. It is written once, in the commit
// of its first use, and never changes.
type Lane struct {
	ID    uint32
	Block string // name of the source block
	Topic string
	Slot  uint32
}

// Source describes one file being read. Written with the file's first cursor,
// again when the prefix grew or the path changed, and with Gone at its end,
// which also forgets its cursor.
type Source struct {
	ID          uint64
	Block       string
	Path        string // raw bytes of the path, any byte
	Lane        uint32
	Encoding    string
	Dev, Ino    uint64
	Prefix      uint64 // hash of the first PrefixBytes bytes
	PrefixBytes uint32
	Born        int64 // creation time, ns since 1970; 0: unknown
	Gone        bool
}

// LineState tells how to read on at a cursor.
type LineState uint8

const (
	// Fresh: a new line starts at the offset.
	Fresh LineState = iota
	// Continued: the offset is inside a line of which Part parts are out.
	Continued
	// Discard: skip to the next newline; what is before it is accounted for.
	Discard
)

// Cursor is how far a source is in the spool: every byte below Offset is in a
// committed record or was dropped and counted.
type Cursor struct {
	Source      uint64
	Offset      int64  // bytes
	Anchor      uint64 // hash of the AnchorBytes bytes before Offset
	AnchorBytes uint16
	State       LineState
	Part        uint32
}

// Identity binds a lane from index From on to a partition and a producer id.
// It covers every index up to the next identity of its lane; writing one
// removes those of the lane with an equal or higher From.
type Identity struct {
	Lane       uint32
	From       uint64 // index with sequence 0
	ClusterID  string
	Topic      string
	TopicID    [16]byte
	Partition  int32 // -1: not chosen yet
	ProducerID int64 // -1: none yet
	Epoch      int16
	Floor      int64 // log end of the partition when the id was taken; -1 unknown
	FloorEpoch int32 // leader epoch in which it was asked for; -1 unknown
	Reason     uint8 // one of the Identity reasons
}

// Reasons of an identity. Only IdentityStart is written by the spool itself.
const (
	IdentityFirst    uint8 = 1 // first one of its lane, or the id it was waiting for
	IdentityStart    uint8 = 2 // every start ends every identity
	IdentityRefused  uint8 = 3 // behind a batch that was refused for good
	IdentityHealed   uint8 = 4 // the broker lost data or state
	IdentityGap      uint8 = 5 // behind a gap
	IdentityConflict uint8 = 6 // the producer id was not ours alone
	IdentityTopic    uint8 = 7 // topic recreated or partition gone
	IdentityOperator uint8 = 8 // asked for by an operator
)

// Ack confirms one batch and everything below it. It applies if it ends at or
// above the lane's head; an older one changes nothing.
type Ack struct {
	Lane        uint32
	First       uint64
	Count       uint32 // 0: none
	BaseOffset  int64
	LeaderEpoch int32 // known when the request was sent
}

// Next is the index behind the acked batch.
func (a Ack) Next() uint64 { return a.First + uint64(a.Count) }

// Head moves a lane's head back to heal: the frames from Index on are live
// again and the last ack is forgotten. An Ack in the same commit that ends at
// Index becomes the last ack.
type Head struct {
	Lane  uint32
	Index uint64
	Top   uint64 // the head before it began to move back; kept until the head is there again, 0: none
}

// Gap names records that will not be delivered: indexes of a lane, or bytes of
// a source that never got an index (From == To). A gap that holds the lane's
// head moves the head behind it.
type Gap struct {
	Lane       uint32
	From, To   uint64 // lane indexes, half open
	Source     uint64
	FromByte   int64 // source bytes, half open
	ToByte     int64
	Records    uint64
	Reason     uint8  // one of the Gap reasons
	DeadLetter string // where the bytes are kept, if anywhere
}

// Reasons of a gap.
const (
	GapDamaged       uint8 = 1  // the spool's own bytes went bad
	GapDroppedNewest uint8 = 2  // spool full, policy drop_newest
	GapTooLarge      uint8 = 3  // larger than the broker takes
	GapRefused       uint8 = 4  // the broker refused this record for good
	GapLostByBroker  uint8 = 5  // acked once, gone at the broker, no longer held here
	GapOperator      uint8 = 6  // an operator chose to skip
	GapOversize      uint8 = 7  // line over max_line_bytes
	GapFiltered      uint8 = 8  // filter, sampling or rate limit
	GapSourceLost    uint8 = 9  // bytes of a file that were gone before they were read
	GapUncertain     uint8 = 10 // delivered, but perhaps in place of records that damage hides
)
