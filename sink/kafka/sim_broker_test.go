package kafka

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What a broker does with a batch: the checks in Kafka's order, what it
// remembers of producers by version, and when it answers.

// simVersion is a class of brokers that treat producers alike.
type simVersion uint8

const (
	kafka21 simVersion = iota // no topic ids; without a memory of an id only sequence 0 is taken
	kafka28                   // 2.8 to 4.4: without a memory any sequence is taken
	kafka45                   // but into a log that never held a record only sequence 0
	simVersions
)

const (
	codeNotLeader    = 6
	codeTimedOut     = 7
	codeTooLarge     = 10
	codeTooFew       = 19
	codeTooFewAfter  = 20
	codeBadTime      = 32
	codeOutOfOrder   = 45
	codeFencedEpoch  = 47
	codeUnknownID    = 59
	codeWrongTopic   = 100
	simAcksTimeoutMs = 10_000
	simExpireMs      = 3_600_000 // producers are forgotten so long after the time of their last record
)

// simCell is a batch in a log. pid -1: somebody else's.
type simCell struct {
	base        int64
	count       int32
	pid         int64
	epoch       int16
	first       int32 // sequence
	leaderEpoch int32
	time        int64 // newest record
	lane        int
	line        uint64
	build       uint32
	serial      uint32 // of the append
	late        bool   // of a request that the agent had given up
}

func (x *simCell) next() int64 { return x.base + int64(x.count) }

func (x *simCell) lastSeq() int32 {
	return int32((int64(x.first) + int64(x.count) - 1) % sequenceModulus)
}

// simProducer is what a replica remembers of a producer id: the newest batches,
// newest first.
type simProducer struct {
	pid   int64
	epoch int16
	n     int
	seen  [5]simSeen
	time  int64
}

type simSeen struct {
	first, last int32
	base, next  int64
	time        int64
}

func (r *simReplica) producer(pid int64) int {
	return slices.IndexFunc(r.producers, func(p simProducer) bool { return p.pid == pid })
}

// note remembers a batch that was appended, without asking whether it follows.
func (r *simReplica) note(w *simWorld, x *simCell) {
	if x.pid < 0 {
		return
	}
	i := r.producer(x.pid)
	if i < 0 {
		r.producers = append(r.producers, simProducer{pid: x.pid, epoch: x.epoch})
		i = len(r.producers) - 1
	}
	p := &r.producers[i]
	if p.epoch != x.epoch {
		*p = simProducer{pid: x.pid, epoch: x.epoch}
	}
	copy(p.seen[1:], p.seen[:])
	p.seen[0] = simSeen{x.first, x.lastSeq(), x.base, x.next(), x.time}
	p.n = min(p.n+1, len(p.seen))
	p.time = x.time
	if w.stamps {
		p.time = w.now
	}
}

// truncate leaves n batches and the memory that they imply: what a snapshot
// below holds is only the last batch of each producer.
func (r *simReplica) truncate(w *simWorld, n int) {
	r.log = r.log[:n:n]
	r.end = r.start
	if n > 0 {
		r.end = r.log[n-1].next()
	}
	r.high = min(r.high, r.end)
	r.remember(w, w.rng.IntN(n+1))
}

// remember makes the memory anew from the log, of which a snapshot covers the
// first batches.
func (r *simReplica) remember(w *simWorld, covered int) {
	r.producers = nil
	for i := range r.log {
		r.note(w, &r.log[i])
		if i == covered-1 {
			r.shrink()
		}
	}
	r.expire(w)
}

// shrink is a snapshot written and read: one batch of each producer.
func (r *simReplica) shrink() {
	for i := range r.producers {
		r.producers[i].n = min(r.producers[i].n, 1)
	}
}

func (r *simReplica) expire(w *simWorld) {
	before := len(r.producers)
	r.producers = slices.DeleteFunc(r.producers, func(p simProducer) bool { return w.now-p.time >= simExpireMs })
	w.cluster.forgotten += before - len(r.producers)
}

// simPending is a part of a request that waits for replicas, or its answer.
type simPending struct {
	request *simRequest
	part    int
	base    int64
	need    int64 // high watermark
	done    bool
	time    int64 // append time of the answer
}

func (x *simPending) answer(w *simWorld, code int16, base int64) {
	if x.done {
		return
	}
	x.done = true
	out := PartOutcome{Answered: true, Code: code, BaseOffset: base, LogAppendTime: x.time}
	if code != 0 {
		out.LogAppendTime = -1
	}
	x.request.decided(w, x.part, out)
}

// execute is one part of a produce request at a broker.
func (w *simWorld) execute(q *simRequest, part int) {
	x := &simPending{request: q, part: part, base: -1, time: -1}
	d := &q.parts[part]
	c := &w.cluster
	p := c.partition(d.partition)
	zero := [16]byte{}
	switch {
	case c.denied:
		x.answer(w, kerr.TopicAuthorizationFailed.Code, -1)
		return
	case p == nil:
		x.answer(w, codeUnknownTopic, -1)
		return
	case d.topicID != zero && d.topicID != c.id && w.version >= kafka45:
		x.answer(w, codeWrongTopic, -1) // brokers that take requests by topic id
		return
	case p.replicas[q.broker].leader != q.broker:
		x.answer(w, codeNotLeader, -1)
		return
	}
	r := p.replicas[q.broker]
	switch {
	case p.inSyncs() < w.minInSync:
		x.answer(w, codeTooFew, -1)
	case w.bytesMax > 0 && d.bytes > w.bytesMax:
		x.answer(w, codeTooLarge, -1)
	case w.afterMs > 0 && d.cell.time > w.now+w.afterMs, w.beforeMs > 0 && d.oldest < w.now-w.beforeMs:
		x.answer(w, codeBadTime, -1) // before anybody looks for a duplicate
	default:
		w.decide(p, r, d, x)
	}
}

// decide looks for a duplicate, checks epoch and sequence, and appends.
func (w *simWorld) decide(p *simPartition, r *simReplica, d *simPart, x *simPending) {
	cell := d.cell
	cell.base, cell.leaderEpoch = r.end, r.epoch
	if i := r.producer(cell.pid); i >= 0 {
		have := &r.producers[i]
		for _, s := range have.seen[:have.n] {
			if have.epoch == cell.epoch && s.first == cell.first && s.last == cell.lastSeq() {
				x.base, x.need, x.time = s.base, s.next, s.time
				w.tell("    a duplicate of offset %d", s.base)
				w.wait(p, r, x)
				return
			}
		}
		next := int32((int64(have.seen[0].last) + 1) % sequenceModulus)
		switch {
		case cell.epoch < have.epoch:
			x.answer(w, codeFencedEpoch, -1)
			return
		case cell.epoch > have.epoch && cell.first != 0, cell.epoch == have.epoch && cell.first != next:
			x.answer(w, codeOutOfOrder, -1)
			return
		}
	} else if cell.first != 0 && w.version == kafka21 {
		x.answer(w, codeUnknownID, -1)
		return
	} else if cell.first != 0 && w.version == kafka45 && r.end == 0 {
		x.answer(w, codeOutOfOrder, -1)
		return
	}
	if cell.leaderEpoch != d.epoch && (cell.leaderEpoch != d.epoch+1 || cell.leaderEpoch != p.raised) {
		w.cluster.unseen++
	}
	cell.late = x.request.given || x.request.from != w.agent
	w.append(p, r, cell)
	w.tell("    appended: %s", &r.log[len(r.log)-1])
	x.base, x.need = cell.base, r.end
	if w.stamps {
		x.time = w.now
	}
	w.wait(p, r, x)
}

func (w *simWorld) append(p *simPartition, r *simReplica, cell simCell) {
	w.oracle.serial++
	cell.serial = w.oracle.serial
	r.log, r.end = append(r.log, cell), cell.next()
	r.note(w, &cell)
	for _, f := range p.replicas {
		if f != r {
			w.fetchLater(p, f)
		}
	}
}

// wait answers once all replicas in sync have the batch, or it takes too long.
func (w *simWorld) wait(p *simPartition, r *simReplica, x *simPending) {
	w.commit(p, r)
	if r.high >= x.need {
		x.answer(w, 0, x.base)
		return
	}
	r.waiting = append(r.waiting, x)
	w.after(simAcksTimeoutMs, func() {
		if !x.done {
			r.waiting = slices.DeleteFunc(r.waiting, func(y *simPending) bool { return y == x })
			x.answer(w, codeTimedOut, x.base)
		}
	})
}

// others has another producer write to a partition.
func (w *simWorld) others(p *simPartition) {
	l := p.lead()
	if l == nil || l.leader != l.broker || l.epoch != p.epoch || !w.cluster.brokers[l.broker].alive() || p.inSyncs() < w.minInSync {
		return
	}
	w.append(p, l, simCell{base: l.end, count: int32(w.between(1, 4)), pid: -1, leaderEpoch: l.epoch, time: w.now, lane: -1})
	w.commit(p, l)
}

// simRequest is a produce request on its way.
type simRequest struct {
	from    *simAgent
	broker  int32
	cluster int // as it was when it left
	parts   []simPart
	outs    []PartOutcome
	left    int  // parts without answer
	given   bool // up by the agent
	reply   func(outs []PartOutcome)
	gone    func() // the connection is
}

type simPart struct {
	partition int32
	topicID   [16]byte
	bytes     int
	oldest    int64 // record time
	epoch     int32 // of the leader, as the agent knew it
	cell      simCell
}

func (q *simRequest) decided(w *simWorld, part int, out PartOutcome) {
	if q.left == 0 {
		return
	}
	q.outs[part] = out
	if q.left--; q.left == 0 {
		w.flights--
		w.after(w.between(0, 4), func() { q.reply(q.outs) })
	}
}

// parsePart reads what a broker reads of a batch, and whose lines it holds.
func (w *simWorld) parsePart(p *ProducePart) simPart {
	h, err := ParseHeader(p.Batch)
	if err != nil || h.Bytes() != len(p.Batch) || h.LastOffsetDelta != h.Count-1 || h.BaseSequence < 0 || h.ProducerID < 0 {
		w.fail("a batch that no broker takes: %+v %v", h, err)
	}
	if w.seed%64 == 0 && !CheckCRC(p.Batch) {
		w.fail("a batch with a wrong checksum")
	}
	rec, _, err := NextRecord(p.Batch[HeaderBytes:], h.FirstTime)
	if err != nil || len(rec.Value) < simValueBytes {
		w.fail("a batch whose first record cannot be read: %v", err)
	}
	time := h.MaxTime
	if time <= 0 || time > math.MaxInt64/2 {
		w.fail("a batch of no time")
	}
	return simPart{partition: p.Partition, topicID: p.TopicID, bytes: len(p.Batch), oldest: h.FirstTime, cell: simCell{count: h.Count, pid: h.ProducerID, epoch: h.Epoch,
		first: h.BaseSequence, time: time, lane: int(rec.Value[0]), build: binary.BigEndian.Uint32(rec.Value[1:]), line: uint64(binary.BigEndian.Uint32(rec.Value[5:]))}}
}
