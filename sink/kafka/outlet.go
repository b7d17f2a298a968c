package kafka

import "context"

// What waits for one broker, and the connections that it goes over.
//
// A broker handles one request of a connection at a time, and lets it wait for
// the followers of each partition in it, up to the acks time-out. Nobody knows
// beforehand which partition will wait. So that it holds up nobody else:
//
//	one request    only partitions that wait for the same followers: what one of
//	               them waits for, the others wait for too
//	overdue        a request without an answer for overdueMinMs, and several times as
//	               long as usual: if the broker answers a question meanwhile, what
//	               waits goes over the next connection. If it does not, the broker
//	               is slow or gone, and the requests stay here, where a new leader
//	               gets them at once
//	last           the last connection takes nothing that shares a follower with all
//	               of the overdue requests: that one is what they wait for
//	apart          a partition that is known not to commit; each lane of it alone
//
// A request stays where it is until it is answered or times out. A partition is
// in one of them at most.
type outlet struct {
	broker    int32
	waiting   []*row // lanes with a batch for this broker, in order of asking
	apart     []*row // likewise, of partitions that do not commit
	conns     [ConnectionsMax]*sender
	usualMs   int64 // until an answer, smoothed
	dueAt     int64 // ms, when to look again; never: once something else happens
	asking    bool
	askAfter  int64 // ms
	aliveAsOf int64 // ms, when a question was put that the broker answered

	// Losses of connections to the broker, when metadata were asked for: those that are
	// on their way, and those that are known; and when the latter came.
	lossesAsking, lossesAsked, losses uint64
}

const (
	ConnectionsMax = ConnApart + 1 // for produce requests, to one broker

	ConnApart    = 3
	overdueMinMs = 250
	overdueTimes = 4
	aliveRetryMs = 1_000
	never        = int64(1) << 62
)

type senderKey struct {
	broker int32
	conn   uint8
}

// outlet is the one of a broker, which is made if it is the first time.
func (s *Sink) outlet(broker int32) *outlet {
	for _, o := range s.outlets {
		if o.broker == broker {
			return o
		}
	}
	o := &outlet{broker: broker, dueAt: never, losses: s.lossesOf(broker)}
	s.outlets = append(s.outlets, o)
	return o
}

func (s *Sink) lossesOf(broker int32) uint64 {
	if s.cfg.Transport.Losses == nil {
		return 0
	}
	return s.cfg.Transport.Losses(broker)
}

// sender is the one of a connection, likewise.
func (s *Sink) sender(o *outlet, conn uint8) *sender {
	x := o.conns[conn]
	if x == nil {
		x = &sender{key: senderKey{o.broker, conn}, out: o, in: make(chan *job, 1), idle: &job{}}
		x.idle.from, x.idle.request.TimeoutMs = x, s.cfg.AcksTimeoutMs
		o.conns[conn] = x
		s.open(x)
	}
	return x
}

// dispatch gives idle senders what waits for them, and asks for metadata if
// somebody wants them.
func (s *Sink) dispatch() {
	if s.stopping {
		return
	}
	for _, o := range s.outlets {
		o.dueAt = never
		if len(o.apart) > 0 {
			if x := s.sender(o, ConnApart); x.idle != nil {
				s.send(x, &o.apart)
			}
		}
		for len(o.waiting) > 0 {
			if x := s.idleSender(o); x == nil || !s.send(x, &o.waiting) {
				break
			}
		}
	}
	if s.wanted && !s.asking && len(s.topics) > 0 && s.now() >= s.nextAsk {
		s.askMetadata()
	}
}

// idleSender is the first one that may send to o now, nil if none may.
func (s *Sink) idleSender(o *outlet) *sender {
	sentAt := int64(0)
	for conn := range uint8(ConnApart) {
		if x := o.conns[conn]; x != nil && x.idle == nil {
			if due := x.sentAt + max(overdueMinMs, overdueTimes*o.usualMs); s.now() < due {
				o.dueAt = due
				return nil
			}
			sentAt = max(sentAt, x.sentAt)
			continue
		}
		if conn > 0 && o.aliveAsOf <= sentAt {
			s.askAlive(o, conn)
			return nil
		}
		return s.sender(o, conn)
	}
	return nil
}

// askAlive asks o's broker, over the client of a connection that is not in use, whether it
// answers at all.
func (s *Sink) askAlive(o *outlet, conn uint8) {
	switch ping := s.cfg.Transport.Ping; {
	case ping == nil || o.asking:
	case s.now() < o.askAfter:
		o.dueAt = o.askAfter
	default:
		o.asking = true
		asked := s.now()
		s.question(func(ctx context.Context) reply {
			return reply{alive: o, asked: asked, err: ping(ctx, o.broker, conn)}
		})
	}
}

func (s *Sink) takeAlive(p *reply) {
	o := p.alive
	o.asking = false
	if p.err != nil {
		o.askAfter = s.now() + aliveRetryMs
		return
	}
	o.aliveAsOf = p.asked
}

// send hands what it can of list over to x; false: nothing.
func (s *Sink) send(x *sender, list *[]*row) bool {
	j := x.idle
	*list = s.compose(j, x, *list)
	if len(j.items) == 0 {
		return false
	}
	x.idle, x.sentAt, j.losses = nil, s.now(), x.out.lossesAsked
	s.flying++
	s.hand(x, j)
	return true
}

// compose fills a job from list, and returns the rest: each partition at most
// once, since a broker drops the second entry of a partition without an error.
func (s *Sink) compose(j *job, x *sender, list []*row) []*row {
	j.items, x.places = j.items[:0], x.places[:0]
	left, bytes, suspects := list[:0], 0, uint64(0)
	if x.key.conn == ConnApart-1 {
		suspects = x.out.suspects()
	}
	for _, r := range list {
		size := HeaderBytes + int(r.item.ref.Bytes)
		full := len(j.items) > 0 && (x.key.conn == ConnApart || bytes+size > requestBytesMax || r.item.followers != x.followers)
		if full || r.item.followers&suspects != 0 || x.out.flies(r.item.place(), x.key.conn) {
			left = append(left, r)
			continue
		}
		bytes += size
		if r.item.shift {
			r.item.stamp.ShiftMs = s.wall() - r.item.backMs - r.item.ref.MaxTime
		}
		j.items, x.places, x.followers = append(j.items, r.item), append(x.places, r.item.place()), r.item.followers
		r.info.SentNext.Store(r.item.ref.Next())
	}
	clear(list[len(left):])
	return left
}

// flies says that p is in a request that conn is being filled with, or that is
// under way over another of the ordinary connections. What travels apart does so
// beside them.
func (o *outlet) flies(p place, conn uint8) bool {
	for i, x := range o.conns {
		beside := i != ConnApart && conn != ConnApart
		if x == nil || uint8(i) != conn && (x.idle != nil || !beside) {
			continue
		}
		for _, q := range x.places {
			if q == p {
				return true
			}
		}
	}
	return false
}

// suspects are followers that the requests under way may be waiting for: those
// common to all of them if there are any.
func (o *outlet) suspects() uint64 {
	common, all := ^uint64(0), uint64(0)
	for _, x := range o.conns[:ConnApart] {
		if x != nil && x.idle == nil {
			common, all = common&x.followers, all|x.followers
		}
	}
	if common != 0 {
		return common
	}
	return all
}

// returned takes the job back from its sender, and learns how long an answer
// takes. One that waited for replicas says nothing; no answer at all does.
func (o *outlet) returned(j *job, now int64) {
	x := j.from
	x.idle = j
	if x.key.conn == ConnApart || j.err != nil && !j.slow {
		return
	}
	for i := range j.outcomes {
		if Slow(j.outcomes[i].Code) {
			return
		}
	}
	o.usualMs += (now - x.sentAt - o.usualMs) / 4
}
