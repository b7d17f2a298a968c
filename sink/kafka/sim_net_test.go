package kafka

// Between the sink's senders and the brokers: requests and answers get lost,
// wait, or are executed long after the agent has given them up.

type simTimeout struct{}

func (simTimeout) Error() string   { return "timed out" }
func (simTimeout) Timeout() bool   { return true }
func (simTimeout) Temporary() bool { return true }

const simClientTimeoutMs = simAcksTimeoutMs + 10_000

// send is a sender at work on one job.
func (g *simAgent) send(x *sender, j *job) {
	w := g.w
	settled := false
	settle := func(outs []PartOutcome, err error) {
		if settled || w.agent != g {
			return
		}
		settled = true
		for i := range j.items {
			delete(g.flying, j.items[i].row.info.ID)
		}
		if j.request.Len() > 0 {
			j.take(append(j.outcomes[:0], outs...), err)
		}
		g.sink.settle(j)
		g.pump()
	}
	if j.cutOff(x.key, &g.sink.cfg.Transport) || !j.fill(&w.spool) {
		g.after(1, func() { settle(nil, nil) })
		return
	}
	q := &simRequest{from: g, broker: x.key.broker, cluster: w.cluster.replaced, left: j.request.Len(), outs: make([]PartOutcome, j.request.Len())}
	part := 0
	for i := range j.items {
		if it := &j.items[i]; it.err == nil {
			q.parts = append(q.parts, w.parsePart(&j.request.parts[part]))
			w.oracle.sent(g, it, &q.parts[part])
			q.parts[part].epoch = it.row.lane.flightEpoch
			part++
		}
	}
	giveUp := func(err error) {
		if !settled {
			q.given = true
			if j.request.Written() {
				w.cluster.brokers[x.key.broker].cut()
			}
			settle(nil, err)
		}
	}
	broker := &w.cluster.brokers[x.key.broker]
	lossy := w.now < w.lossyTo && w.chance(2)
	if !broker.up || lossy && w.chance(4) {
		w.tell("  no connection to broker %d", x.key.broker)
		g.after(w.between(1, 200), func() { giveUp(errSimNet) })
		return
	}
	j.request.written.Store(true)
	if w.version >= kafka45 {
		j.request.SetVersion(j.request.MaxVersion())
	}
	broker.linked = true
	w.flights++
	q.gone = func() { w.after(w.between(0, 50), func() { giveUp(errSimNet) }) }
	q.reply = func(outs []PartOutcome) { settle(outs, nil) }
	w.after(simClientTimeoutMs, func() { giveUp(simTimeout{}) })
	if !lossy {
		w.after(w.between(0, 3), func() { w.arrive(q) })
		return
	}
	lost := w.between(1, 3_000)
	switch w.rng.IntN(3) {
	case 0: // the request
		w.after(lost, func() { w.drop(q) })
	case 1: // its answer
		q.reply = func([]PartOutcome) { w.after(lost, func() { giveUp(errSimNet) }) }
		w.after(w.between(0, 3), func() { w.arrive(q) })
	default: // the connection, with the request still on its way
		g.after(lost, func() { giveUp(errSimNet) })
		w.after(lost+w.between(0, 30_000), func() { w.arrive(q) })
	}
}

// arrive has a broker execute a request.
func (w *simWorld) arrive(q *simRequest) {
	b := &w.cluster.brokers[q.broker]
	switch {
	case !b.up, q.cluster != w.cluster.replaced:
		w.drop(q)
		return
	case b.frozen:
		b.thawed = append(b.thawed, func() { w.arrive(q) })
		return
	}
	b.requests = append(b.requests, q)
	for i := range q.parts {
		w.tell("  broker %d executes %s%s", q.broker, &q.parts[i].cell, map[bool]string{true: ", given up"}[q.given])
		w.execute(q, i)
	}
}

// drop ends a request that nobody will answer.
func (w *simWorld) drop(q *simRequest) {
	if q.left > 0 {
		q.left = 0
		w.flights--
		q.gone()
	}
}
