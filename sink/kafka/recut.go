package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The driver's side of lane_refused.go: a batch is read from the spool, taken
// apart and replaced.
//
//	ActCut --> question: topic's configuration, remedy (topic.go), cut (cut.go)
//	       --> Journal.Replace --> NoticeReplaced --> EvCut
//
// One batch at a time for all lanes, until its replacement is durable: so the
// bytes of one are in memory, however many lanes have the same trouble.

// cuts is whose turn it is to have a batch replaced.
type cuts struct {
	busy       *row   // nil: nobody's
	waiting    []*row // in order of asking
	reader     FrameReader
	tool       *cutter
	refs       []Ref // that are being merged; see merge.go
	mergeAfter int64 // ms; there was no room for a merged batch: not before then
}

// begin takes up the tools for r's batch.
func (c *cuts) begin(s *Sink, r *row) {
	c.busy = r
	if c.reader == nil {
		c.reader = s.cfg.NewReader()
	}
	if c.tool == nil {
		c.tool = &cutter{}
	}
}

// rest lets go of what a large batch needed, if nobody waits.
func (c *cuts) rest() {
	if c.busy == nil && len(c.waiting) == 0 {
		c.tool, c.refs = nil, nil
	}
}

// limit is what batches of a topic are cut to before they are sent. It is
// forgotten after a while: somebody may have raised what the topic takes.
type limit struct {
	bytes int
	until int64 // ms
}

const (
	limitAgeMaxMs = 3_600_000

	// configWaitMax bounds what a cut waits for the topic's configuration: all
	// others wait for it.
	configWaitMax = 3 * time.Second
)

// limitOf is how many bytes, header included, a batch of the topic may have; 0:
// nobody knows.
func (s *Sink) limitOf(topic string) int {
	if l, ok := s.limits[topic]; ok && s.now() < l.until {
		return l.bytes
	}
	return 0
}

func (s *Sink) large(r *row, ref *Ref) bool {
	if len(s.limits) == 0 || ref.Count == 1 {
		return false
	}
	limit := s.limitOf(r.info.Topic)
	return limit > 0 && HeaderBytes+int(ref.Bytes) > limit
}

// learn remembers a limit, and tells the lanes of the topic whose next batch is
// above it.
func (s *Sink) learn(topic string, bytes int) {
	s.limits[topic] = limit{bytes, s.now() + limitAgeMaxMs}
	s.cfg.Topics.Get(topic).BatchBytesMax.Store(int32(bytes))
	for _, r := range s.order {
		if r.info.Topic == topic && r != s.cuts.busy && r.queue.len() > 0 && !r.lane.Room() && s.large(r, r.queue.at(0)) {
			s.step(r, Event{Kind: EvLarge})
		}
	}
}

// cutReply is what came of a question about a batch that is to be cut.
type cutReply struct {
	topic  TopicConfig
	remedy remedy
	made   Replacement
	err    error
}

// nextCut begins with the next lane that waits, if none is under way.
func (s *Sink) nextCut() {
	c := &s.cuts
	if c.busy != nil || len(c.waiting) == 0 {
		return
	}
	r := c.waiting[0]
	c.waiting = append(c.waiting[:0], c.waiting[1:]...)
	c.begin(s, r)
	q := cutting{action: r.cut, ref: *r.queue.at(0), fault: r.fault, back: r.lane.back, limit: s.limitOf(r.info.Topic), info: &r.info,
		partition: r.lane.Partition(), reader: c.reader, tool: c.tool, config: s.cfg.Transport.TopicConfig}
	identity := r.cutIdentity()
	s.question(func(ctx context.Context) reply {
		x := q.run(ctx)
		x.made.Identity = identity
		return reply{row: r, cut: x}
	})
}

// cutIdentity is the record of the identity that a cut begins: the one just
// granted, or the one in use with another epoch.
func (r *row) cutIdentity() *IdentityRecord {
	a := &r.cut
	if a.Identity.PID < 0 {
		return nil
	}
	id := r.identityAt(a.Batch.First)
	if id.ProducerID != a.Identity.PID {
		id = r.grant
	}
	id.From, id.Epoch, id.Reason = a.Identity.From, a.Identity.Epoch, a.Reason
	return &id
}

// cutting is one batch on its way to its replacement. While it runs it has the
// cutter and the reader.
type cutting struct {
	action    Action
	ref       Ref
	fault     fault
	back      uint8
	limit     int
	info      *LaneInfo
	partition int32
	reader    FrameReader
	tool      *cutter
	config    func(ctx context.Context, topic string) (TopicConfig, int16, error)
}

func (q *cutting) run(ctx context.Context) *cutReply {
	x := &cutReply{}
	if q.action.Cut != CutAhead {
		asked, cancel := context.WithTimeout(ctx, configWaitMax)
		cfg, code, err := q.config(asked, q.info.Topic)
		cancel()
		if err == nil && code == 0 {
			x.topic = cfg // else: nothing is known, and that is reckoned with
		}
	}
	size := HeaderBytes + int(q.ref.Bytes)
	x.remedy = remedyFor(q.action.Cut, q.ref.Count, size, q.limit, q.back, &q.fault, &x.topic)
	bounded := x.remedy.plan.bounded
	if x.remedy.hold != "" || x.remedy.same && !bounded {
		return x
	}
	frame, err := q.reader.ReadBatch(nil, q.ref)
	if err == nil {
		err = q.tool.load(frame, q.ref.First)
	}
	switch {
	case err != nil:
	case x.remedy.dead:
		x.made.Dead = q.deadLetter()
	case !bounded:
		x.made.Batches, err = q.tool.cut(len(frame), &x.remedy.plan)
	case q.tool.span() > x.remedy.plan.spanMax:
		x.made.Batches, err = q.tool.even()
	}
	x.err = err
	return x
}

func (q *cutting) deadLetter() *DeadLetter {
	r := q.tool.record(0)
	d := &DeadLetter{Source: q.info.Block, Topic: q.info.Topic, Partition: q.partition, Slot: q.info.Slot, Index: q.ref.First, Time: r.Time,
		Key: r.Key, HasKey: r.HasKey, Value: r.Value, TooLarge: q.action.Cut == CutSize}
	r.EachHeader(func(key string, value []byte) {
		d.Headers = append(d.Headers, RecordHeader{Key: []byte(key), Value: value})
	})
	if err := kerr.ErrorForCode(q.fault.code); err != nil {
		d.Reason = err.Error()
	}
	if q.fault.message != "" {
		d.Reason = q.fault.message
	}
	return d
}

// takeCut goes on with what a question about a batch brought.
func (s *Sink) takeCut(r *row, x *cutReply) {
	if x.remedy.limit > 0 {
		s.learn(r.info.Topic, x.remedy.limit)
	}
	switch {
	case x.err != nil:
		s.warn("a batch could not be cut", "topic", r.info.Topic, "lane", r.info.ID, "error", x.err)
		s.endCut(r, Event{Kind: EvQuestionFailed, Cause: r.cutCause()})
	case x.remedy.hold != "":
		s.warn("a batch is refused, and no record of it can be blamed; the lane waits", "topic", r.info.Topic, "source", r.info.Block,
			"partition", r.lane.Partition(), "advice", x.remedy.hold)
		s.endCut(r, Event{Kind: EvQuestionFailed, Cause: r.cutCause()})
	case len(x.made.Batches) == 0 && x.made.Dead == nil:
		s.endCut(r, Event{Kind: EvCut, Same: true, StepMs: x.remedy.step})
	default:
		r.made = x
		s.cfg.Journal.Replace(r.info.ID, &x.made)
	}
}

// replaced goes on once a replacement is durable, or could not be written.
func (s *Sink) replaced(r *row, done *Replaced) {
	if r.merging {
		s.merged(r, done)
		return
	}
	x := r.made
	r.made = nil
	if done.Err != nil {
		s.warn("what replaces a batch could not be written", "topic", r.info.Topic, "lane", r.info.ID, "error", done.Err)
		s.endCut(r, Event{Kind: EvQuestionFailed, Cause: r.cutCause()})
		return
	}
	old := *r.queue.at(0)
	r.queue.replaceFirst(done.Refs)
	if x.made.Identity != nil {
		r.addIdentity(*x.made.Identity)
	}
	ev := Event{Kind: EvCut, Same: x.remedy.same, Evened: x.remedy.same, StepMs: x.remedy.step, Dead: x.made.Dead != nil}
	switch {
	case ev.Dead:
		s.stats.deadLetters.Add(1)
		s.log.Error("a record is refused by its topic for good; it is kept as a dead letter", "topic", r.info.Topic, "partition", r.lane.Partition(),
			"source", r.info.Block, "slot", SlotName(r.info.Slot), "lane", r.info.ID, "index", old.First, "bytes", len(x.made.Dead.Value), "reason", x.made.Dead.Reason, "place", done.Place,
			"path", string(x.made.Dead.header("path")), "offset", string(x.made.Dead.header("offset")))
	case ev.Same:
		s.warn("the times of a batch lie further apart than its topic takes; they are made one", "topic", r.info.Topic, "source", r.info.Block, "records", old.Count)
	default:
		s.stats.cutBatches.Add(1)
		s.warn("a batch is cut: its topic does not take it as it is", "topic", r.info.Topic, "source", r.info.Block, "records", old.Count,
			"bytes", HeaderBytes+int(old.Bytes), "into", len(done.Refs), "limit", s.limitOf(r.info.Topic))
	}
	s.endCut(r, ev)
}

// cutCause says why a lane waits whose batch was not replaced.
func (r *row) cutCause() Cause {
	switch r.cut.Cut {
	case CutFault:
		return CauseBadRecord
	case CutTimes:
		return CauseBadTime
	}
	return CauseTooLarge
}

// endCut gives the lane what came of its cut, and the next one its turn.
func (s *Sink) endCut(r *row, ev Event) {
	s.cuts.busy = nil
	s.cuts.rest()
	s.step(r, ev)
	s.nextCut()
}
