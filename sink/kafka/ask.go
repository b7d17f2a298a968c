package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The questions a sink asks besides producing. Each runs on a goroutine of its
// own, at most questionsMax at once, and ends in one reply.

// reply is the answer to a question: an event for one lane, or metadata.
type reply struct {
	row    *row // nil: metadata, or the configuration of a topic
	ev     Event
	grant  IdentityRecord // with EvGranted
	rights bool           // with EvGranted: it is known whether the topic may be read
	noRead bool           // it may not
	meta   *Metadata
	cut    *cutReply
	merged *mergeReply
	conf   *topicReply
	alive  *outlet // its broker answered, or not
	asked  int64
	err    error
	what   string // what could not be done
}

// ask runs f and hands its reply to Run; nothing is handed over once Run has
// ended.
func (s *Sink) ask(f func(ctx context.Context) reply) {
	go func() {
		select {
		case s.gate <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, questionTimeout)
		defer cancel()
		p := f(ctx)
		<-s.gate
		select {
		case s.replies <- p:
		case <-s.ctx.Done():
		}
	}()
}

func (s *Sink) takeReply(p reply) {
	switch {
	case p.conf != nil:
		s.takeConfig(p.conf)
		return
	case p.alive != nil:
		s.takeAlive(&p)
		return
	case p.row == nil:
		s.takeMetadata(p)
		return
	}
	if p.err != nil {
		s.warn(p.what, "topic", p.row.info.Topic, "lane", p.row.info.ID, "error", p.err)
	}
	if p.merged != nil {
		s.takeMerge(p.row, p.merged)
		return
	}
	if p.cut != nil {
		s.takeCut(p.row, p.cut)
		return
	}
	if p.ev.Kind == EvGranted {
		p.row.grant = p.grant
		if p.rights {
			s.noteRights(p.row.info.Topic, p.noRead)
		}
	}
	s.step(p.row, p.ev)
}

func (s *Sink) askMetadata() {
	topics := make([]string, 0, len(s.topics))
	for _, t := range s.topics {
		topics = append(topics, t.name)
	}
	s.wanted, s.asking = false, true
	asked := s.now()
	s.nextAsk = asked + metadataGapMinMs
	for _, o := range s.outlets {
		o.lossesAsking = s.lossesOf(o.broker)
	}
	s.question(func(ctx context.Context) reply {
		m, err := s.cfg.Transport.Metadata(ctx, topics)
		return reply{meta: &m, asked: asked, err: err}
	})
}

func (s *Sink) takeMetadata(p reply) {
	s.asking = false
	if p.err != nil {
		s.warn("no metadata from any broker", "error", p.err)
		s.probe()
	} else {
		s.probes = 0
		s.routes.replace(*p.meta, p.asked)
		for _, o := range s.outlets {
			o.lossesAsked, o.losses = o.lossesAsking, s.lossesOf(o.broker)
		}
	}
	for _, r := range s.order {
		waits := r.wantsRoute
		r.wantsRoute = false
		switch {
		case p.err != nil && waits:
			s.step(r, Event{Kind: EvRoute, Route: Route{AskedAt: p.asked}})
		case p.err == nil && (waits || r.lane.Partition() >= 0):
			s.step(r, Event{Kind: EvRoute, Route: s.routeOf(r)})
		}
		if r.wantsID {
			r.wantsID = false
			s.chooseIdentity(r, p.err)
		}
	}
	if p.err == nil {
		s.recall()
		s.learnTopics()
	}
}

// probe asks again by itself while no broker answers, for all lanes at once:
// each of them waits longer, and the first answer wakes them all.
func (s *Sink) probe() {
	wait := min(int64(metadataGapMinMs)<<min(s.probes, 10), probeMaxMs)
	s.probes++
	s.wanted = true
	s.nextAsk = s.now() + wait/2 + int64(s.random())*(wait/2)>>32
}

// recall takes back the batches that wait for a broker which does not lead
// their partition any more, so that they need not wait for its time-outs.
func (s *Sink) recall() {
	var moved []*row
	for _, o := range s.outlets {
		elsewhere := func(r *row) bool {
			route := s.routeOf(r)
			if route.State != RouteOK || route.Leader == o.broker {
				return false
			}
			moved = append(moved, r)
			return true
		}
		o.waiting, o.apart = slices.DeleteFunc(o.waiting, elsewhere), slices.DeleteFunc(o.apart, elsewhere)
	}
	for _, r := range moved {
		s.step(r, Event{Kind: EvUnanswered, NotSent: true})
	}
}

// routeOf is the route of the identity that the lane uses now, which may be
// one that is not on disk yet.
func (s *Sink) routeOf(r *row) Route {
	id := r.identityAt(r.lane.Head())
	if id.Partition != r.lane.Partition() {
		id = r.grant
	}
	route := s.routes.of(&id)
	if route.State == RouteOK {
		route.Losses = s.outlet(route.Leader).losses
	}
	return route
}

// askIdentity gets the lane a producer id, and first, if it has none, a
// partition, for which the topic must be known.
func (s *Sink) askIdentity(r *row) {
	if r.want.Identity.Partition < 0 {
		r.wantsID, s.wanted = true, true
		return
	}
	s.grantIdentity(r)
}

func (s *Sink) chooseIdentity(r *row, err error) {
	t := s.routes.topic(r.info.Topic)
	state := topicState(t)
	if err != nil {
		state = RouteUnknown
	}
	if state != RouteOK {
		s.step(r, Event{Kind: EvQuestionFailed, Cause: routeCauses[state]})
		return
	}
	r.want.Identity.Partition = s.partitionFor(r, int32(len(t.Partitions)))
	s.grantIdentity(r)
}

func (s *Sink) grantIdentity(r *row) {
	rec := IdentityRecord{From: r.want.Identity.From, ClusterID: s.routes.meta.ClusterID, Topic: r.info.Topic,
		Partition: r.want.Identity.Partition, Floor: -1, FloorEpoch: -1}
	if t := s.routes.topic(r.info.Topic); t != nil {
		rec.TopicID = t.ID
	}
	route := s.routes.of(&rec)
	t := &s.cfg.Transport
	s.question(func(ctx context.Context) reply {
		id, epoch, code, err := t.InitProducerID(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("InitProducerId: %w", kerr.ErrorForCode(code))
			if advice := Advice(code); advice != "" {
				err = fmt.Errorf("%w: %s", err, advice)
			}
		}
		if err != nil {
			cause := CauseNoProducerID
			if VerdictOf(code) == Denied {
				cause = CauseDenied
			}
			return reply{row: r, err: err, what: "no producer id", ev: Event{Kind: EvQuestionFailed, Cause: cause}}
		}
		rec.ProducerID, rec.Epoch = id, epoch
		if route.State == RouteOK {
			end, code, err := t.EndOffset(ctx, route.Leader, rec.Topic, rec.Partition, route.Epoch)
			if err == nil && code == 0 {
				rec.Floor, rec.FloorEpoch = end, route.Epoch // else unknown: a later read-back cannot tell, and says so
			}
		}
		p := reply{row: r, grant: rec, ev: Event{Kind: EvGranted, Identity: rec.identity()}}
		if t.MayRead != nil && rec.Floor >= 0 {
			code, err := t.MayRead(ctx, ReadBackQuery{Broker: route.Leader, Topic: rec.Topic, TopicID: rec.TopicID, Partition: rec.Partition, CurrentEpoch: route.Epoch, Floor: rec.Floor})
			p.rights, p.noRead = err == nil && (code == 0 || code == codeTopicDenied), code == codeTopicDenied
		}
		return p
	})
}

func (s *Sink) askEpochEnd(r *row, a Action) {
	topic, partition, t := r.info.Topic, r.lane.Partition(), &s.cfg.Transport
	s.question(func(ctx context.Context) reply {
		end, err := t.endOf(ctx, a.Route, topic, partition, a.Acked.Epoch)
		if err != nil {
			return reply{row: r, err: err, what: "the leader did not say how far an epoch reaches", ev: Event{Kind: EvQuestionFailed, Cause: CauseRetriable}}
		}
		return reply{row: r, ev: Event{Kind: EvEpochEnd, Base: end.offset, Epoch: end.epoch, Parted: end.parted, Route: a.Route}}
	})
}

// epochEnd is what a leader has of a leader epoch: the offset behind its last
// record, -1 if it does not know the epoch (KIP-320). parted: it has older and
// newer records, but none of the epoch, and the offset is where the older ones end.
type epochEnd struct {
	offset int64
	epoch  int32 // the newest of those up to the one asked for that it knows
	parted bool
}

// endOf asks for the end of a leader epoch.
func (t *Transport) endOf(ctx context.Context, at Route, topic string, partition, epoch int32) (epochEnd, error) {
	end, is, code, err := t.EndOfEpoch(ctx, at.Leader, topic, partition, epoch, at.Epoch)
	if err != nil {
		return epochEnd{}, err
	}
	if code != 0 {
		return epochEnd{}, fmt.Errorf("OffsetForLeaderEpoch: %w", kerr.ErrorForCode(code))
	}
	return epochEnd{end, is, is >= 0 && is < epoch}, nil
}

// askReadBack looks for the head in the log, from the last acked end or from
// where the log ended when the identity began.
func (s *Sink) askReadBack(r *row, a Action) {
	id := r.identityAt(a.Batch.First)
	acked := int64(-1)
	if a.Acked.Epoch >= 0 && a.Acked.Partition == id.Partition {
		acked = a.Acked.End
	}
	q := ReadBackQuery{Broker: a.Route.Leader, Topic: id.Topic, TopicID: id.TopicID, Partition: id.Partition, CurrentEpoch: a.Route.Epoch,
		ProducerID: id.ProducerID, Epoch: id.Epoch, BaseSequence: a.Identity.Sequence(a.Batch.First), BytesMax: readBackBytesMax}
	t := &s.cfg.Transport
	s.question(func(ctx context.Context) reply {
		floor, err := t.floorOf(ctx, &id, a.Route)
		if q.Floor = max(floor, acked); err == nil && q.Floor < 0 {
			// Nobody knows where to begin: it cannot be told.
			return reply{row: r, ev: Event{Kind: EvReadBack, Route: a.Route}}
		}
		res := ReadBackResult{}
		if err == nil {
			res, err = t.ReadBack(ctx, q)
		}
		if err != nil {
			return reply{row: r, err: err, what: "the log could not be read back", ev: Event{Kind: EvQuestionFailed, Cause: CauseUnreachable}}
		}
		if res.State == Inconclusive && notLeading(res.Code) {
			return reply{row: r, err: kerr.ErrorForCode(res.Code), what: "the log could not be read back", ev: Event{Kind: EvQuestionFailed, Cause: CauseRetriable}}
		}
		// One of another count is what the batch was cut to, or was before: it
		// holds other records, or not all.
		found := res.State == Found && res.Count == int32(a.Batch.Count)
		return reply{row: r, ev: Event{Kind: EvReadBack, Route: a.Route, Found: found, Absent: res.State == Absent, Base: res.BaseOffset}}
	})
}

// floorOf is the first offset at which a batch of the identity can be, -1 if
// that is unknown. The log may have been cut below its floor since, and have grown
// again: what a leader of a later epoch appended lies behind the records of the
// epoch in which the floor was asked for.
func (t *Transport) floorOf(ctx context.Context, id *IdentityRecord, at Route) (int64, error) {
	if id.Floor < 0 || id.FloorEpoch == at.Epoch {
		return id.Floor, nil
	}
	if id.FloorEpoch < 0 {
		return -1, nil
	}
	end, err := t.endOf(ctx, at, id.Topic, id.Partition, id.FloorEpoch)
	return min(id.Floor, end.offset), err
}

// notLeading says that a broker refused a question since it does not lead the
// partition, or not in the epoch that was named: the answer is elsewhere.
func notLeading(code int16) bool {
	switch kerr.ErrorForCode(code) {
	case kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable:
		return true
	}
	return false
}

// findLoss finds the first acked batch that the leader lacks.
func (s *Sink) findLoss(r *row) {
	held, last, head, at := r.held, r.lane.last, r.lane.Head(), r.loss
	own, from := r.identityAt(head), uint64(0)
	for i := 1; i < len(r.ids); i++ {
		if !r.ids[i-1].samePlace(&own) {
			from = r.ids[i].From
		}
	}
	for i := range held {
		held[i].Acked.Partition = -1
		if id := r.identityAt(held[i].Ref.First); id.samePlace(&own) {
			held[i].Acked.Partition = id.Partition
		}
	}
	topic, partition, t := r.info.Topic, r.lane.Partition(), &s.cfg.Transport
	look := s.lastAcked(r)
	s.question(func(ctx context.Context) reply {
		found := false
		if look != nil {
			res, err := t.ReadBack(ctx, *look)
			if err == nil && res.State == Inconclusive && notLeading(res.Code) {
				err = kerr.ErrorForCode(res.Code)
			}
			if err != nil {
				return reply{row: r, err: err, what: "the log could not be read back", ev: Event{Kind: EvQuestionFailed, Cause: CauseRetriable}}
			}
			found = res.State == Found && res.BaseOffset == last.Base && res.Count == int32(last.Count)
			// What is read where it was is not ours: then it is gone, whatever the epochs say.
			last.Firm = last.Firm || !found && res.Upto >= last.End
		}
		ev, err := firstLoss(head, from, held, last, partition, func(epoch int32) (epochEnd, error) {
			return t.endOf(ctx, at, topic, partition, epoch)
		})
		if err != nil {
			return reply{row: r, err: err, what: "the leader did not say how far an epoch reaches", ev: Event{Kind: EvQuestionFailed, Cause: CauseRetriable}}
		}
		ev.Route = at
		if found {
			ev.seen(last, head)
		}
		return reply{row: r, ev: ev}
	})
}

// lastAcked is where the last acked batch is if it is not lost: a leader that came
// and went unseen raises the alarm, too.
// nil: nobody wants to know, or it may not be read.
func (s *Sink) lastAcked(r *row) *ReadBackQuery {
	last := r.lane.last
	id := r.identityAt(last.First)
	if !r.alarm || last.Base < 0 || id.ProducerID < 0 || id.Partition != r.lane.Partition() || s.noRead[r.info.Topic] {
		return nil
	}
	own := id.identity()
	return &ReadBackQuery{Broker: r.loss.Leader, Topic: id.Topic, TopicID: id.TopicID, Partition: id.Partition, CurrentEpoch: r.loss.Epoch,
		Floor: last.Base, ProducerID: id.ProducerID, Epoch: id.Epoch, BaseSequence: own.Sequence(last.First), BytesMax: 1}
}

// samePlace says that both identities are of one partition of one topic in one
// cluster, and not of a topic that was deleted and created again. Brokers before 2.8 give topics
// no id.
func (r *IdentityRecord) samePlace(other *IdentityRecord) bool {
	unknown := [16]byte{}
	if r.ClusterID != other.ClusterID && r.ClusterID != "" && other.ClusterID != "" {
		return false
	}
	return r.Partition == other.Partition && (r.TopicID == other.TopicID || r.TopicID == unknown || other.TopicID == unknown)
}
