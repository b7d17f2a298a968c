package kafka

import (
	"container/heap"
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"shipper/internal/spsc"
)

// The sink drives every lane machine. One goroutine, Run, owns all lanes,
// routes and timers; nobody else touches them, so nothing here is locked.
//
//	committer --Notice--> inbox --> Run --job--> sender per broker --> Kafka
//	committer <--Journal---------- Run <--job--- (outcomes)
//
// Two edges lead outwards and back: to the committer through Journal and
// Deliver, neither of which blocks, and to a sender through its one job, which
// the sink hands over only when it is idle. Questions that are rare (metadata,
// producer ids, epoch ends, read-back) run on goroutines of their own and come
// back through replies.

// LaneInfo says what a lane is.
type LaneInfo struct {
	ID    uint32
	Block string
	Topic string
	Slot  uint32
	Codec Codec // of batches that are merged

	// SentNext is kept at the index behind the last batch sent, for the
	// reader's linger. Written by the sink only.
	SentNext *atomic.Uint64
	Acked    *atomic.Uint64 // likewise at the index behind the last batch that is in Kafka, be its ack durable or not; nil: nobody asks
	Waits    *atomic.Uint32 // likewise the Cause that the lane waits for; nil: nobody asks
}

// LaneStart is a lane as a start of the agent, or its creation, finds it.
type LaneStart struct {
	LaneInfo
	Head       uint64
	Top        uint64           // a step back of the head, not made good yet, began here; 0: none
	LastAck    AckedBatch       // Count 0: none
	Identities []IdentityRecord // ascending From
	Batches    []Ref            // from Head on
	More       bool             // there are others behind the last of Batches
}

// IdentityRecord is an identity with all that makes it mean something.
// ProducerID -1: none yet. Partition -1: not chosen yet. Floor is the end of
// the partition's log when the id was taken, asked for in leader epoch
// FloorEpoch; -1: unknown.
type IdentityRecord struct {
	From       uint64
	ClusterID  string
	Topic      string
	TopicID    [16]byte
	Partition  int32
	ProducerID int64
	Epoch      int16
	Floor      int64
	FloorEpoch int32
	Reason     Reason
}

func (r *IdentityRecord) identity() Identity {
	return Identity{From: r.From, PID: r.ProducerID, Epoch: r.Epoch, Partition: r.Partition}
}

// Transport is what the sink needs of a Kafka client. A struct of functions, so
// that a simulation can stand in its place.
type Transport struct {
	Metadata       func(ctx context.Context, topics []string) (Metadata, error)
	InitProducerID func(ctx context.Context) (id int64, epoch, code int16, err error)
	EndOfEpoch     func(ctx context.Context, broker int32, topic string, partition, leaderEpoch, currentEpoch int32) (end int64, epoch int32, code int16, err error)
	TopicConfig    func(ctx context.Context, topic string) (cfg TopicConfig, code int16, err error)
	EndOffset      func(ctx context.Context, broker int32, topic string, partition, currentEpoch int32) (end int64, code int16, err error)
	ReadBack       func(ctx context.Context, q ReadBackQuery) (ReadBackResult, error)
	MayRead        func(ctx context.Context, q ReadBackQuery) (code int16, err error)                          // nil: nobody asks
	Ping           func(ctx context.Context, broker int32, conn uint8) error                                   // nil: one connection must do
	Losses         func(broker int32) uint64                                                                   // of connections, so far; nil: nobody counts
	Produce        func(broker int32, conn uint8, r *ProduceRequest, dst []PartOutcome) ([]PartOutcome, error) // conn is below ConnectionsMax
}

// SinkConfig is what a Sink is made of.
type SinkConfig struct {
	Host      [16]byte // places this host's lanes on partitions
	Transport Transport
	Journal   Journal
	Topics    *Topics // what is learned of topics goes there; nil: nobody asks
	// MergeBytesMax is how many raw bytes small batches of a backlog are merged to;
	// 0: they are not.
	MergeBytesMax int
	NewReader     func() FrameReader // one per sender; closed by nobody before the process ends
	// AcksTimeoutMs is how long a broker may wait for its replicas; 0: ProduceTimeoutMs.
	AcksTimeoutMs int32
	Logger        *slog.Logger
}

// Sink owns the lanes; see the head of this file.
type Sink struct {
	cfg   SinkConfig
	log   *slog.Logger
	inbox inbox
	stats stats
	beside

	rows     map[uint32]*row
	order    []*row       // rows as they came
	topics   []*laneTopic // as they came
	topicOf  map[string]*laneTopic
	routes   routes
	asking   bool // a metadata request is out
	wanted   bool // another is due
	nextAsk  int64
	probes   int       // failed in a row
	outlets  []*outlet // as they came
	flying   int
	stopping bool
	timers   timers
	actions  Actions
	done     chan *job
	replies  chan reply
	commands chan func()
	gate     chan struct{} // questions under way
	ctx      context.Context
	nextAge  int64
	noRead   map[string]bool  // topics
	starved  map[place]bool   // cannot commit, as the last answer said
	quiet    map[string]int64 // ms until which a warning is not repeated
	limits   map[string]limit // by topic: what batches are cut to; none: they were not refused
	refs     int              // in all queues, and those asked for
	refsMax  int
	refsLane int // at least, of each lane
	cuts     cuts
}

// row is one lane with what its machine may not know.
type row struct {
	info      LaneInfo
	lane      Lane
	ids       []IdentityRecord // ascending From
	queue     refQueue         // spooled batches from the lane's head on
	end       uint64           // behind the last batch that was in queue
	more      bool             // the spool holds others from end on; see backlog.go
	listing   int              // so many of them are asked for; 0: none
	merging   bool             // batches from mergeFrom on are being made one; see merge.go
	mergeFrom uint64           // no batch before it is merged
	recov     uint64           // the batch at this index may have been sent before this start; noDoubt: none
	wakeAt    int64

	wantsRoute bool           // a step waits for metadata
	wantsID    bool           // a grant waits for metadata
	want       Action         // the identity wanted
	grant      IdentityRecord // on its way to the disk
	loss       Route          // as of which the loss is looked for
	alarm      bool           // there may be none
	held       []HeldBatch    // for a step back
	fault      fault          // what was said of the batch at head
	cut        Action         // how to replace it
	made       *cutReply      // its replacement, on its way to the disk
	item       item           // the batch that waits for its sender
	cause      Cause          // logged last
	reckon     reckoning      // of a Resolve or Heal under way
}

const (
	noDoubt           = ^uint64(0)
	questionsMax      = 16 // under way at once
	metadataGapMinMs  = 250
	probeMaxMs        = 5_000 // between two questions for metadata while no broker answers
	metadataAheadMs   = 5_000 // refreshed in passing when older, so that no send waits
	questionTimeout   = 15 * time.Second
	readBackBytesMax  = 256 << 20
	identitiesKeptMax = 64
)

// NewSink returns a sink with no lanes.
func NewSink(cfg SinkConfig) *Sink {
	s := &Sink{
		cfg: cfg, log: cfg.Logger, commands: make(chan func()),
		inbox: inbox{queue: spsc.New[Notice](), ready: make(chan struct{}, 1)},
		rows:  map[uint32]*row{}, topicOf: map[string]*laneTopic{},
		quiet: map[string]int64{}, noRead: map[string]bool{}, starved: map[place]bool{},
		limits:  map[string]limit{},
		refsMax: RefsMax, refsLane: refsLaneMin,
		done:    make(chan *job, 256),
		replies: make(chan reply),
		gate:    make(chan struct{}, questionsMax),
	}
	s.beside = s.real()
	s.stats.oldest.Store(noneOldest)
	if s.cfg.Topics == nil {
		s.cfg.Topics = new(Topics)
	}
	return s
}

// Run drives the lanes until ctx ends, then waits up to grace for requests
// under way: their acks save the next start a doubt.
func (s *Sink) Run(ctx context.Context, grace time.Duration) {
	asks, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.ctx = asks
	stop := ctx.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var deadline <-chan time.Time
	for !s.stopping || s.flying > 0 {
		s.dispatch()
		s.age()
		timer.Reset(s.untilWake())
		select {
		case <-s.inbox.ready:
			s.takeNotices()
		case j := <-s.done:
			s.settle(j)
		case p := <-s.replies:
			s.takeReply(p)
		case f := <-s.commands:
			f()
		case <-timer.C:
			s.wake()
		case <-stop:
			stop, s.stopping = nil, true
			deadline = time.After(grace)
		case <-deadline:
			s.flying = 0
		}
	}
	for _, o := range s.outlets {
		for _, x := range o.conns {
			if x != nil {
				close(x.in)
			}
		}
	}
}

func (s *Sink) takeNotices() {
	for n, ok := s.inbox.queue.Pop(); ok; n, ok = s.inbox.queue.Pop() {
		s.take(&n)
	}
}

func (s *Sink) take(n *Notice) {
	if n.Kind == NoticeLane {
		s.addLane(n.Lane)
		return
	}
	r := s.rows[n.ID]
	if r == nil {
		panic("BUG: a notice for a lane that the sink does not know")
	}
	switch n.Kind {
	case NoticeBatch:
		s.announce(r, n.Ref)
		s.feed(r)
	case NoticeRefs:
		s.listed(r, n)
	case NoticeAckKept:
		r.queue.pop()
		s.step(r, Event{Kind: EvAckKept})
	case NoticeIdentityKept:
		r.addIdentity(r.grant)
		s.step(r, Event{Kind: EvIdentityKept})
	case NoticeSkipKept:
		r.queue.pop()
		s.step(r, Event{Kind: EvSkipped})
	case NoticeHeadKept:
		s.rewind(r)
		s.step(r, Event{Kind: EvHeadKept})
	case NoticeReplaced:
		s.replaced(r, n.Replaced)
	case NoticeHeld:
		r.held = n.Held
		s.findLoss(r)
	}
}

func (s *Sink) addLane(l *LaneStart) {
	r := &row{info: l.LaneInfo, ids: l.Identities, recov: noDoubt, queue: refQueue{total: &s.refs}, end: l.Head, more: l.More}
	for _, ref := range l.Batches {
		ref.since = s.sinceOf(ref.MaxTime, math.MinInt32)
		r.queue.push(ref)
	}
	if n := len(l.Batches); n > 0 {
		r.end = l.Batches[n-1].Next()
	}
	if len(l.Batches) > 0 && l.Batches[0].First == l.Head {
		r.recov = l.Head
	}
	id := r.identityAt(l.Head)
	if own := r.identityAt(l.LastAck.First); !own.samePlace(&id) {
		l.LastAck.Epoch = -1 // of a topic that is gone: it proves nothing here
	}
	s.routes.expect(&id, max(id.FloorEpoch, l.LastAck.Epoch))
	r.lane = NewLane(l.Head, l.Top, l.LastAck, id.identity())
	r.info.SentNext.Store(l.Head)
	s.rows[l.ID] = r
	s.order = append(s.order, r)
	s.addTopic(&l.LaneInfo)
	// Rule 3 holds for idle lanes too: what was acked before this start may
	// be gone.
	s.step(r, Event{Kind: EvTick})
}

// identityAt is the identity that covers index.
func (r *row) identityAt(index uint64) IdentityRecord {
	for i := len(r.ids) - 1; i >= 0; i-- {
		if r.ids[i].From <= index {
			return r.ids[i]
		}
	}
	return IdentityRecord{ProducerID: -1, Partition: -1, Floor: -1, FloorEpoch: -1, Topic: r.info.Topic}
}

// addIdentity makes id cover everything from its From on: later wins.
func (r *row) addIdentity(id IdentityRecord) {
	n := len(r.ids)
	for n > 0 && r.ids[n-1].From >= id.From {
		n--
	}
	r.ids = append(r.ids[:n], id)
	if len(r.ids) > identitiesKeptMax {
		r.ids = append(r.ids[:0], r.ids[len(r.ids)-identitiesKeptMax:]...)
	}
}

// feed offers the lane its next batch if it has room for one.
func (s *Sink) feed(r *row) {
	for r.queue.len() > 0 && r.lane.Room() {
		next := r.queue.at(0)
		if r.merging && next.First >= r.mergeFrom {
			break // it is about to be part of another
		}
		id := r.identityAt(next.First)
		ev := Event{Kind: EvOffer, Batch: next.Batch, Identity: id.identity(), InDoubt: r.recov == next.First, Large: s.large(r, next)}
		r.recov, r.fault = noDoubt, fault{}
		s.stepOnce(r, &ev)
	}
	s.refill(r)
	s.merge(r)
}

// step gives the lane an event, does what it asks for, and feeds it.
func (s *Sink) step(r *row, ev Event) {
	s.stepOnce(r, &ev)
	s.feed(r)
}

func (s *Sink) stepOnce(r *row, ev *Event) {
	ev.Now, ev.Rand = s.now(), s.random()
	s.turn(r, ev)
	for _, a := range s.actions.All() {
		s.perform(r, a)
	}
	s.speak(r)
}

func (s *Sink) perform(r *row, a Action) {
	s.prove(r, &a)
	switch a.Kind {
	case ActRefresh:
		r.wantsRoute, s.wanted = true, true
	case ActAskIdentity:
		r.want = a
		s.askIdentity(r)
	case ActPersistIdentity:
		r.grant.From, r.grant.Reason = a.Identity.From, a.Reason
		s.cfg.Journal.Identity(r.info.ID, r.grant)
	case ActAskEpochEnd:
		s.askEpochEnd(r, a)
	case ActReadBack:
		s.askReadBack(r, a)
	case ActFindLoss:
		r.loss, r.alarm = a.Route, a.Acked.Count > 0
		s.cfg.Journal.Held(r.info.ID)
	case ActSend:
		s.enqueue(r, a)
	case ActAck:
		s.stats.ackedRecords.Add(uint64(a.Acked.Count))
		s.stats.ackedBatches.Add(1)
		s.cfg.Journal.Ack(r.info.ID, a.Acked, r.queue.len() > 1 || r.more)
	case ActMoveHead:
		s.cfg.Journal.MoveHead(r.info.ID, a.Index, a.Top, a.Lost, a.Acked)
	case ActCut:
		r.cut = a
		s.cuts.waiting = append(s.cuts.waiting, r)
		s.nextCut()
	case ActWake:
		if at := int64(a.Index); at != r.wakeAt {
			r.wakeAt = at
			heap.Push(&s.timers, timerEntry{at, r})
		}
	case ActReport:
		s.report(r, a)
	}
}

// enqueue puts the lane's batch up for its broker's next request.
func (s *Sink) enqueue(r *row, a Action) {
	id := r.identityAt(a.Batch.First)
	r.item = item{row: r, ref: *r.queue.at(0), topic: r.info.Topic, topicID: id.TopicID, part: a.Identity.Partition,
		followers: a.Route.Followers, shift: a.Shift, backMs: a.BackMs,
		stamp: Stamp{ProducerID: a.Identity.PID, Epoch: a.Identity.Epoch, BaseSequence: a.Identity.Sequence(a.Batch.First)}}
	o := s.outlet(a.Route.Leader)
	if a.Slow || len(s.starved) > 0 && s.starved[r.item.place()] {
		o.apart = append(o.apart, r)
	} else {
		o.waiting = append(o.waiting, r)
	}
	s.stats.sentBatches.Add(1)
	if s.now()-s.routes.askedAt > metadataAheadMs {
		s.wanted = true
	}
}

// settle takes a job back and tells its lanes what became of their batches.
func (s *Sink) settle(j *job) {
	s.flying--
	j.from.out.returned(j, s.now())
	sent, byID, n := j.request.Written(), j.request.byID(), 0
	for i := range j.items {
		it := &j.items[i]
		if it.err != nil {
			s.unread(it)
			continue
		}
		if j.err != nil {
			if j.err != errCutOff {
				s.warn("produce request failed", "broker", j.from.key.broker, "error", j.err)
			}
			s.stats.retries.Add(1)
			s.step(it.row, Event{Kind: EvUnanswered, NotSent: !sent, ByID: byID, Slow: j.slow})
			continue
		}
		out := j.outcomes[n]
		n++
		s.outcome(it, &out, byID)
	}
}

func (s *Sink) outcome(it *item, out *PartOutcome, byID bool) {
	if !out.Answered {
		s.step(it.row, Event{Kind: EvUnanswered, ByID: byID})
		return
	}
	s.noteStarved(it, out.Code)
	v := VerdictOf(out.Code)
	if v != Acked {
		s.stats.retries.Add(1)
		if v == Refused {
			s.stats.refusals.Add(1)
		}
		it.row.fault.note(out, it.ref.Count)
		s.refusal(it, out)
	}
	it.row.reckon.known = v == Acked && out.LogAppendTime >= 0 && it.row.lane.stamp == stampNone
	s.step(it.row, Event{Kind: EvAnswer, Verdict: v, NotAppended: NotPersisted(out.Code), Slow: Slow(out.Code), Named: len(it.row.fault.named) > 0,
		ByID: byID, Base: out.BaseOffset, AppendTime: out.LogAppendTime})
}
