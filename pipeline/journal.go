package pipeline

import (
	"sync/atomic"
	"time"

	"shipper/internal/spsc"
	"shipper/sink/kafka"
	"shipper/spool"
)

// journal carries entries from the sink to the committer, without a lock: each
// side has fields of its own, the queue and one flag are shared. It never blocks
// the sink, and wakes the committer for what is urgent and for the first entry
// behind those that were written.
type journal struct {
	queue  *spsc.Queue[entry] // sink -> committer
	told   atomic.Bool        // the committer knows that there is something to write
	urgent chan struct{}      // wakes it

	next  entries   // committer: taken from the queue, not due yet
	since time.Time // committer: when it saw the oldest of next.list; zero: none
}

// entries are what the committer has in hand.
type entries struct {
	list     []entry
	appended int      // of list
	held     []uint32 // lanes that ask what is held of theirs
	refs     []entry  // lanes that ask for their next batches
	urgent   bool
	replace  *replacement // at most one at a time
}

// replacement is what comes into the place of a batch.
type replacement struct {
	lane uint32
	new  *kafka.Replacement
	done kafka.Replaced
}

// entry is one thing to write, and the notice that it is durable; or a question.
type entry struct {
	kind    kafka.NoticeKind
	urgent  bool
	lane    uint32
	ack     kafka.AckedBatch
	id      *kafka.IdentityRecord
	index   uint64      // NoticeHeadKept, NoticeRefs
	top     uint64      // NoticeHeadKept
	lost    uint64      // NoticeHeadKept
	skip    kafka.Batch // NoticeSkipKept
	refsMax int         // NoticeRefs
	replace *kafka.Replacement
}

func newJournal() journal {
	return journal{queue: spsc.New[entry](), urgent: make(chan struct{}, 1)}
}

// add is for the sink. The flag goes up behind the push: whoever takes it down
// looks into the queue afterwards, and finds what did not wake him.
func (j *journal) add(e entry) {
	j.queue.Push(e)
	if !j.told.Swap(true) || e.urgent {
		select {
		case j.urgent <- struct{}{}:
		default:
		}
	}
}

// Ack implements kafka.Journal.
func (j *journal) Ack(lane uint32, a kafka.AckedBatch, urgent bool) {
	j.add(entry{kind: kafka.NoticeAckKept, lane: lane, ack: a, urgent: urgent})
}

// Identity implements kafka.Journal.
func (j *journal) Identity(lane uint32, id kafka.IdentityRecord) {
	j.add(entry{kind: kafka.NoticeIdentityKept, lane: lane, id: &id, urgent: true})
}

// MoveHead implements kafka.Journal.
func (j *journal) MoveHead(lane uint32, index, top, lost uint64, last kafka.AckedBatch) {
	j.add(entry{kind: kafka.NoticeHeadKept, lane: lane, index: index, top: top, lost: lost, ack: last, urgent: true})
}

// Skip implements kafka.Journal.
func (j *journal) Skip(lane uint32, b kafka.Batch) {
	j.add(entry{kind: kafka.NoticeSkipKept, lane: lane, skip: b, urgent: true})
}

// Held implements kafka.Journal.
func (j *journal) Held(lane uint32) {
	j.add(entry{kind: kafka.NoticeHeld, lane: lane, urgent: true})
}

// Refs implements kafka.Journal.
func (j *journal) Refs(lane uint32, from uint64, refsMax int) {
	j.add(entry{kind: kafka.NoticeRefs, lane: lane, index: from, refsMax: refsMax, urgent: true})
}

// Replace implements kafka.Journal.
func (j *journal) Replace(lane uint32, x *kafka.Replacement) {
	j.add(entry{kind: kafka.NoticeReplaced, lane: lane, replace: x, urgent: true})
}

// collect empties the queue. For the committer, as all below.
func (j *journal) collect(now time.Time) {
	for e, ok := j.queue.Pop(); ok; e, ok = j.queue.Pop() {
		switch e.kind {
		case kafka.NoticeHeld:
			j.next.held = append(j.next.held, e.lane)
		case kafka.NoticeRefs:
			j.next.refs = append(j.next.refs, e)
		case kafka.NoticeReplaced:
			if j.next.replace != nil {
				panic("BUG: two batches are replaced at once")
			}
			j.next.replace = &replacement{lane: e.lane, new: e.replace}
		default:
			if j.since.IsZero() {
				j.since = now
			}
			j.next.list = append(j.next.list, e)
			j.next.urgent = j.next.urgent || e.urgent
		}
	}
}

// take appends what there is to e, if it is due: urgent, or old, or others are
// written anyway. It says whether there are entries to write.
func (j *journal) take(e *entries, now time.Time, anyway bool) bool {
	j.collect(now)
	due := anyway || j.next.urgent || now.Sub(j.since) >= writeAckMax
	if due || len(j.next.list) == 0 {
		j.told.Store(false)
		j.collect(now)
	}
	e.held = append(e.held, j.next.held...)
	e.refs = append(e.refs, j.next.refs...)
	j.next.held, j.next.refs = j.next.held[:0], j.next.refs[:0]
	if j.next.replace != nil {
		e.replace, j.next.replace = j.next.replace, nil
	}
	if len(j.next.list) == 0 || !due && !j.next.urgent {
		return false
	}
	e.list = append(e.list, j.next.list...)
	e.urgent = e.urgent || j.next.urgent
	clear(j.next.list)
	j.next.list, j.next.urgent, j.since = j.next.list[:0], false, time.Time{}
	return true
}

// oldest is when the oldest entry not taken was seen; zero: there is none.
func (j *journal) oldest() time.Time { return j.since }

// addTo puts the entry into a commit.
func (e *entry) addTo(c *spool.Commit, log *spool.Log) {
	switch e.kind {
	case kafka.NoticeAckKept:
		c.Acks = append(c.Acks, spoolAck(e.lane, &e.ack))
	case kafka.NoticeIdentityKept:
		c.Identities = append(c.Identities, spoolIdentity(e.lane, e.id))
	case kafka.NoticeHeadKept:
		e.addHead(c, log)
	case kafka.NoticeSkipKept:
		c.Gaps = append(c.Gaps, spool.Gap{Lane: e.lane, From: e.skip.First, To: e.skip.Next(), Records: uint64(e.skip.Count), Reason: spool.GapDamaged})
	default:
		panic("BUG: an unknown entry in the journal")
	}
}

// addHead moves the head back with the ack that still proves something. If the
// brokers lost what lies between, and the spool does not hold it, a gap names
// it; it brings the head to where it belongs. A dead letter that lies between is
// no loss: its own gap stays, and does the same.
func (e *entry) addHead(c *spool.Commit, log *spool.Log) {
	from := e.lost
	if e.ack.Count > 0 {
		from = e.ack.Next()
		c.Acks = append(c.Acks, spoolAck(e.lane, &e.ack))
	}
	h := spool.Head{Lane: e.lane, Index: min(from, e.index), Top: e.top}
	for _, g := range log.Undropped(e.lane, h.Index, e.index) {
		g.Reason = spool.GapLostByBroker
		c.Gaps = append(c.Gaps, g)
	}
	c.Heads = append(c.Heads, h)
}

func spoolIdentity(lane uint32, id *kafka.IdentityRecord) spool.Identity {
	return spool.Identity{Lane: lane, From: id.From, ClusterID: id.ClusterID, Topic: id.Topic, TopicID: id.TopicID,
		Partition: id.Partition, ProducerID: id.ProducerID, Epoch: id.Epoch, Floor: id.Floor, FloorEpoch: id.FloorEpoch, Reason: uint8(id.Reason)}
}

func spoolAck(lane uint32, a *kafka.AckedBatch) spool.Ack {
	return spool.Ack{Lane: lane, First: a.First, Count: a.Count, BaseOffset: a.Base, LeaderEpoch: a.Epoch}
}

// group is the replacement as the spool takes it: new batches for the same
// indexes, or a gap, with the identity that begins there.
func (x *replacement) group(place string) (batches []spool.Batch, c spool.Commit) {
	for i := range x.new.Batches {
		b := &x.new.Batches[i]
		batches = append(batches, spoolBatch(x.lane, b.First, &b.Sealed))
	}
	c.Optional = x.new.Optional
	if x.new.Identity != nil {
		c.Identities = append(c.Identities, spoolIdentity(x.lane, x.new.Identity))
	}
	if d := x.new.Dead; d != nil {
		g := spool.Gap{Lane: x.lane, From: d.Index, To: d.Index + 1, Records: 1, Reason: spool.GapRefused, DeadLetter: place}
		if d.TooLarge {
			g.Reason = spool.GapTooLarge
		}
		c.Gaps = append(c.Gaps, g)
	}
	return batches, c
}

func spoolBatch(lane uint32, first uint64, s *kafka.Sealed) spool.Batch {
	return spool.Batch{Lane: lane, First: first, Count: s.Count, MaxTime: s.MaxTime, Header: s.Header, Records: s.Records, RecordsCRC: s.RecordsCRC}
}
