package kafka

import "slices"

// Misfortunes. Each begins at a random time and mends by itself.

type simTrouble uint8

const (
	agentDies simTrouble = iota
	brokerDies
	brokerStops
	brokerLosesPower // and with it the end of its logs
	brokerFreezes
	netLoses
	leaderMoves
	followerLags
	uncleanElection
	producersExpire
	writeDenied
	topicRecreated
	clusterReplaced
	logRetired
	frameRots
	diskLies
	limitLowered
	idUsedTwice
	epochRises
)

func (w *simWorld) plan() {
	w.after(simBeatMs, w.beat)
	for range w.rng.IntN(w.troubles + 1) {
		t := w.menu[w.rng.IntN(len(w.menu))]
		w.after(w.between(0, simHorizon), func() { w.strike(t) })
	}
	for range w.rng.IntN(8) {
		w.after(w.between(0, simHorizon), func() {
			if w.cluster.exists {
				w.others(w.cluster.partitions[w.rng.IntN(len(w.cluster.partitions))])
			}
		})
	}
}

const simBeatMs = 5_000

// beat lets time pass in a world where nothing else happens: followers ask
// their leaders, and once in a while replicas forget producers that are old.
func (w *simWorld) beat() {
	w.beats++
	for _, p := range w.cluster.partitions {
		for _, r := range p.replicas {
			w.fetch(p, r)
			if w.beats%120 == 0 {
				r.expire(w)
			}
		}
	}
	w.operate()
	w.after(simBeatMs, w.beat)
}

// operate is what an operator does who sees lanes that are held.
func (w *simWorld) operate() {
	if w.agent == nil || !w.chance(3) {
		return
	}
	for _, r := range w.agent.sink.order {
		if r.lane.Cause() == CauseOtherCluster {
			if err := w.agent.sink.adopt(r.info.ID); err != nil {
				w.fail("no adoption: %v", err)
			}
			w.agent.pump()
		}
	}
}

// replaceCluster puts another cluster at the addresses of this one. Nothing on
// its way to the old one reaches the new one.
func (w *simWorld) replaceCluster() {
	c := &w.cluster
	if !c.exists {
		return
	}
	w.tell("another cluster is at these addresses")
	c.replaced++
	for i := range c.brokers {
		b := &c.brokers[i]
		b.cut()
		for _, q := range b.requests {
			w.drop(q)
		}
		b.requests = nil
		for _, do := range b.thawed { // its connections are gone
			do()
		}
		b.thawed = nil
	}
	w.recreateTopic()
}

func (w *simWorld) strike(t simTrouble) {
	c, b := &w.cluster, w.someBroker()
	switch t {
	case agentDies:
		w.crash(w.downtime())
	case diskLies:
		w.spool.lie(w)
	case brokerDies, brokerStops, brokerLosesPower:
		w.brokerDown(b, t)
	case brokerFreezes:
		w.freeze(b)
	case netLoses:
		w.tell("the network loses requests and answers")
		w.lossyTo = w.now + w.between(1_000, 20_000)
	case producersExpire:
		w.tell("broker %d forgets producers that are old", b)
		for _, p := range c.partitions {
			p.replicas[b].expire(w)
		}
	case writeDenied:
		c.denied = true
		w.after(w.between(500, 20_000), func() { c.denied = false })
	case topicRecreated:
		if w.version != kafka21 { // there nobody can tell
			w.recreateTopic()
		}
	case clusterReplaced:
		w.replaceCluster()
	case frameRots:
		if n := len(w.spool.frames); n > 0 {
			at := w.rng.IntN(n)
			w.tell("frame %d rots", at)
			w.spool.bad[at] = true
		}
	case limitLowered:
		w.tell("the topic takes less")
		w.bytesMax = simBytesMax
	default:
		if c.exists {
			w.strikePartition(t, c.partitions[w.rng.IntN(len(c.partitions))])
		}
	}
}

func (w *simWorld) strikePartition(t simTrouble, p *simPartition) {
	r := p.replicas[w.someBroker()]
	switch t {
	case leaderMoves:
		if p.inSync[r.broker] && w.cluster.brokers[r.broker].alive() {
			w.leadBy(p, r.broker)
		}
	case epochRises:
		w.raise(p)
	case followerLags:
		if r.broker != p.leader {
			w.lag(p, r)
		}
	case uncleanElection:
		w.loseTail(p, r)
	case idUsedTwice:
		if l := p.lead(); l != nil && len(l.producers) > 0 && l.epoch == p.epoch && l.leader == l.broker {
			x := &l.producers[w.rng.IntN(len(l.producers))]
			w.tell("another producer uses id %d", x.pid)
			w.append(p, l, simCell{base: l.end, count: int32(w.between(1, int64(w.batchMax))), pid: x.pid, epoch: x.epoch,
				first: int32((int64(x.seen[0].last) + 1) % sequenceModulus), leaderEpoch: l.epoch, time: w.now, lane: -1})
			w.commit(p, l)
		}
	case logRetired:
		if l := p.lead(); w.version != kafka21 && l != nil && l.high > l.start && l.epoch == p.epoch {
			to := w.between(l.start, l.high)
			for i := range l.log {
				if x := &l.log[i]; x.base < to && to < x.next() {
					to = x.base
				}
			}
			for i := range l.log {
				if x := &l.log[i]; x.base < to && !slices.ContainsFunc(p.retired, func(y simCell) bool { return y.serial == x.serial }) {
					p.retired = append(p.retired, l.log[i])
				}
			}
			w.tell("retention removes %d below %d", p.n, to)
			l.retain(to)
		}
	}
}

// raise gives the leader that there is another epoch.
func (w *simWorld) raise(p *simPartition) {
	c := &w.cluster
	if p.leader < 0 || !c.brokers[p.leader].alive() {
		return
	}
	for _, r := range w.agent.sink.order {
		if r.lane.Partition() == p.n && r.lane.route.Epoch < p.epoch {
			c.unseen++ // two epochs on, it may have been away
		}
	}
	p.epoch++
	p.raised = p.epoch
	w.tell("broker %d stays, in epoch %d", p.leader, p.epoch)
	w.announce(p)
}

// retain removes what is below an offset.
func (r *simReplica) retain(to int64) {
	r.start = to
	r.log = slices.DeleteFunc(r.log, func(x simCell) bool { return x.base < to })
	r.end, r.high = max(r.end, to), max(r.high, to)
}

// downtime is mostly short; sometimes it is longer than what is fresh, or than
// a broker remembers.
func (w *simWorld) downtime() int64 {
	switch w.rng.IntN(10) {
	case 0:
		return 2 * 3_600_000
	case 1, 2:
		return w.between(5*60_000, 20*60_000)
	}
	return w.between(10, 3_000)
}

func (w *simWorld) brokerDown(b int32, t simTrouble) {
	x := &w.cluster.brokers[b]
	if !x.alive() {
		return
	}
	w.tell("broker %d goes down: %s", b, [...]string{brokerDies: "dies", brokerStops: "stops", brokerLosesPower: "loses power"}[t])
	x.up = false
	x.cut()
	for _, q := range x.requests {
		w.drop(q)
	}
	x.requests = nil
	for _, p := range w.cluster.partitions {
		r := p.replicas[b]
		r.waiting, r.leader, r.fetched = nil, -1, -1
		if t == brokerLosesPower && len(r.log) > 0 {
			r.truncate(w, len(r.log)-w.rng.IntN(min(3, len(r.log))))
		}
	}
	if t == brokerLosesPower {
		w.cluster.unclean++
	}
	if t == brokerStops {
		w.fence(b)
	} else {
		w.after(w.between(2_000, 9_000), func() { w.fence(b) })
	}
	w.after(w.between(1_000, 30_000), func() { w.brokerUp(b, t == brokerStops) })
}

func (w *simWorld) brokerUp(b int32, clean bool) {
	x := &w.cluster.brokers[b]
	w.fence(b) // it registers anew
	x.up = true
	w.tell("broker %d is up again", b)
	for _, p := range w.cluster.partitions {
		r := p.replicas[b]
		if clean {
			r.shrink()
			r.expire(w)
		} else {
			r.remember(w, w.rng.IntN(len(r.log)+1))
		}
		w.elect(p)
		w.announce(p)
	}
}

func (w *simWorld) freeze(b int32) {
	x := &w.cluster.brokers[b]
	if !x.alive() {
		return
	}
	w.tell("broker %d freezes", b)
	x.frozen = true
	w.after(w.between(2_000, 9_000), func() { w.fence(b) })
	w.after(w.between(1_000, 40_000), func() {
		w.tell("broker %d thaws", b)
		x.frozen = false
		late := x.thawed
		x.thawed = nil
		for _, do := range late {
			w.after(w.between(0, 300), do)
		}
		for _, p := range w.cluster.partitions {
			w.elect(p)
			w.announce(p)
			w.fetchLater(p, p.replicas[b])
		}
	})
}

// lag has a follower stop to fetch, so that its leader gives it up.
func (w *simWorld) lag(p *simPartition, r *simReplica) {
	w.tell("broker %d lags in %d", r.broker, p.n)
	r.paused = true
	w.after(10_000, func() {
		if l := p.lead(); r.paused && l != nil && l.broker != r.broker && r.end < l.end && p.inSyncs() > 1 {
			p.inSync[r.broker] = false
			w.commit(p, l)
		}
	})
	w.after(w.between(1_000, 40_000), func() {
		r.paused = false
		w.fetchLater(p, r)
	})
}

// loseTail has a replica lead that is said to be behind all others.
func (w *simWorld) loseTail(p *simPartition, r *simReplica) {
	c := &w.cluster
	if !c.brokers[r.broker].alive() || len(r.log) == 0 {
		return
	}
	end := r.end
	c.brokers[r.broker].cut() // what it lacks it lost in a crash
	r.stopLeading(w, codeNotLeader)
	r.truncate(w, w.rng.IntN(len(r.log)+1))
	clear(p.inSync)
	p.inSync[r.broker] = true
	c.unclean, c.elections = c.unclean+1, c.elections+1
	p.leader, p.epoch = r.broker, p.epoch+1
	w.tell("broker %d leads %d in epoch %d with %d batches only", r.broker, p.n, p.epoch, len(r.log))
	w.hear(p, r)
	w.announce(p)
	for w.minInSync == 1 && w.chance(2) && r.end < end {
		w.others(p)
	}
}

func (w *simWorld) recreateTopic() {
	c := &w.cluster
	if !c.exists {
		return
	}
	w.tell("the topic is deleted")
	for _, p := range c.partitions {
		p.gone = true
		for _, r := range p.replicas {
			r.stopLeading(w, codeUnknownTopic)
			if p.inSync[r.broker] && p.leader < 0 {
				p.leader = r.broker // its log is what was there
			}
		}
	}
	c.old = append(c.old, c.partitions...)
	for i := range w.oracle.lanes { // what brokers lose of a topic that is deleted nobody misses
		w.oracle.lanes[i].deleted = w.oracle.lanes[i].committed
	}
	c.exists = false
	w.after(w.between(1, 40_000), func() {
		w.tell("the topic is created again")
		c.size = 1 + w.rng.IntN(w.partitions) // some may be gone
		w.createTopic()
		for _, p := range c.partitions {
			w.announce(p)
		}
	})
}
