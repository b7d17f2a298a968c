package kafka

import "shipper/internal/spsc"

// What passes between the sink and the committer, which has the spool.

// HeldBatch is an acked batch that the spool still holds.
type HeldBatch struct {
	Ref   Ref
	Acked AckedBatch
	To    uint64 // its end, or that of the gaps behind it: nothing else up to here is to be sent
}

// Journal is where the sink writes what must survive it; the committer
// implements it. No method blocks. Each is answered, once the entry is
// durable, by the Notice of the same name.
type Journal interface {
	Ack(lane uint32, a AckedBatch, urgent bool) // NoticeAckKept
	Identity(lane uint32, id IdentityRecord)    // NoticeIdentityKept
	// MoveHead: the head is index again, of a step back that began at top; last is the last ack that proves something
	// (Count 0: none does), and what is between it and index is lost; without one, what is between lost and index. NoticeHeadKept.
	MoveHead(lane uint32, index, top, lost uint64, last AckedBatch)
	Skip(lane uint32, b Batch) // NoticeSkipKept: a gap stands for a batch that cannot be read
	Held(lane uint32)          // NoticeHeld
	// Refs asks for the places of the lane's batches from index from on, at most refsMax. NoticeRefs.
	Refs(lane uint32, from uint64, refsMax int)
	// Replace puts other batches, a gap, or both in the place of the batch at the lane's head. NoticeReplaced, which may
	// say that it could not be done.
	Replace(lane uint32, x *Replacement)
}

// Replacement is what comes into the place of one batch, as one commit.
type Replacement struct {
	Batches  []CutBatch      // ascending
	Dead     *DeadLetter     // with no batches: its bytes are kept before the gap is written
	Identity *IdentityRecord // begins with them; nil: they keep the one they have
	Optional bool            // may be left out: the room kept for what must be written is not for it
}

// DeadLetter is a record that its topic does not take.
type DeadLetter struct {
	Source    string // block
	Topic     string
	Partition int32
	Slot      uint32
	Index     uint64
	Time      int64 // of the record, ms
	Key       []byte
	HasKey    bool
	Value     []byte
	Headers   []RecordHeader
	TooLarge  bool   // else: invalid
	Reason    string // the broker's words
}

// header is the value of the first header of a name; nil: there is none. Records have some if their source's config says so.
func (d *DeadLetter) header(name string) []byte {
	for i := range d.Headers {
		if string(d.Headers[i].Key) == name {
			return d.Headers[i].Value
		}
	}
	return nil
}

// Replaced is the answer to a Replacement.
type Replaced struct {
	Refs  []Ref
	Place string // of the dead letter
	Err   error  // nothing was written, or nothing that counts
}

// NoticeKind names what the committer tells the sink.
type NoticeKind uint8

const (
	NoticeLane         NoticeKind = iota // Lane: a lane exists now
	NoticeBatch                          // Ref: a batch is durable
	NoticeAckKept                        // the lane's last Ack is durable
	NoticeIdentityKept                   // the lane's last Identity is durable
	NoticeHeadKept                       // the lane's MoveHead is durable
	NoticeSkipKept                       // the lane's Skip is durable
	NoticeReplaced                       // Replaced: the lane's Replacement is durable, or cannot be written
	NoticeRefs                           // Refs, More: the lane's next batches in the spool
	NoticeHeld                           // Held: the acked batches of the lane that are still in the spool
)

// Notice is one message from the committer.
type Notice struct {
	Kind NoticeKind
	ID   uint32 // lane
	Ref  Ref
	Lane *LaneStart
	Held []HeldBatch
	Refs []Ref
	More bool // there are others behind the last of Refs

	Replaced *Replaced
}

// inbox hands notices from the committer to the sink, without a lock.
type inbox struct {
	queue *spsc.Queue[Notice]
	ready chan struct{} // something was pushed
}

// Deliver gives the sink news, in order. It never blocks and keeps nothing of
// the slice. One goroutine may call it: the committer.
func (s *Sink) Deliver(n []Notice) {
	if len(n) == 0 {
		return
	}
	for i := range n {
		s.inbox.queue.Push(n[i])
	}
	select {
	case s.inbox.ready <- struct{}{}:
	default:
	}
}
