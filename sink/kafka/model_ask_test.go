package kafka

// What the model's agent asks the leader, and how it dies and starts again: the
// part of the driver in model_test.go that stands for ask.go and the spool.

// ask has the leader answer the question under way.
func (m *model) ask(w *world) {
	r := &w.res
	r.done = true
	if r.leader != w.leader || r.epoch != w.epoch {
		r.failed = true // fenced
		return
	}
	switch w.op {
	case ActAskEpochEnd:
		end := w.endOf(r.of)
		r.base, r.of, r.parted = int8(end.offset), int8(end.epoch), end.parted
	case ActFindLoss:
		m.findLoss(w)
	case ActReadBack:
		m.readBack(w)
	}
}

// findLoss is what the sink does for ActFindLoss.
func (m *model) findLoss(w *world) {
	r, l := &w.res, &w.lane
	if b := int8(l.last.First); m.read && l.alarm && l.last.Count > 0 && int8(l.last.Base) < w.end {
		id, c := m.identityAt(w, b), w.log[l.last.Base]
		r.seen = c.batch == b && int64(c.id) == id.PID && int16(c.pe) == id.Epoch && c.joint == (l.last.Count > 1)
	}
	last := l.last
	last.Firm = last.Firm || m.read && l.alarm && !r.seen
	var held []HeldBatch
	for b := w.held; b < w.head; b += m.count(w, b) {
		if w.gone && b == deadRecord {
			continue
		}
		h := HeldBatch{Ref: Ref{Batch: m.batch(w, b)}, Acked: m.ackedBatch(w, b, w.acks[b]), To: m.batch(w, b).Next()}
		if w.gone && h.To == uint64(deadRecord) {
			h.To++
		}
		held = append(held, h)
	}
	ev, _ := firstLoss(w.lane.head, 0, held, last, 0, func(epoch int32) (epochEnd, error) { return w.endOf(int8(epoch)), nil })
	if r.seen {
		ev.seen(last, l.head)
	}
	r.seen, r.unsure = ev.Found, int8(ev.Unsure)
	r.lost, r.held, r.acked = int8(ev.Lost), int8(ev.Held), nobody
	if a := ev.Acked; a.Epoch >= 0 {
		r.acked, r.ackedIs = int8(a.First), ackOf{int8(a.Base), int8(a.Epoch)}
	}
}

// readBack is the sink's askReadBack with ReadBack.
func (m *model) readBack(w *world) {
	r, b := &w.res, int8(w.lane.batch.First)
	var id binding
	for i := range w.idCount {
		if w.ids[i].from <= b {
			id = w.ids[i]
		}
	}
	floor := id.floor
	if m.mutate != floorUnbound {
		floor = min(floor, int8(w.endOf(id.floorEpoch).offset))
	}
	if l := &w.lane; l.last.Epoch >= 0 && (l.head >= l.top || m.mutate == healFloorRises) {
		floor = max(floor, int8(l.last.End))
	}
	if w.end == floor { // nothing is there; that is known without READ
		r.absent = true
		return
	}
	if !m.read || w.end < floor {
		return // cannot be told
	}
	if w.splits(floor) {
		floor-- // a fetch from the middle of a batch brings all of it
	}
	for i := floor; i < w.end; i++ {
		if w.log[i].batch == b && w.log[i].id == id.pid && w.log[i].pe == id.epoch {
			r.found, r.base = true, i
			return
		}
	}
	r.absent = true
}

// die loses the agent's memory; what recovery makes of the rest is the start.
func (m *model) die(w *world, void bool) {
	w.land()
	w.busy, w.op, w.res, w.id, w.wake, w.dirty = false, 0, result{}, binding{}, false, ackOf{base: nobody}
	w.learnt = false
	m.mutate.die(w)
	if void { // the batches from the head on are gone; other lines get their indexes
		for b := w.head; b < m.batches; b++ {
			w.version[b]++
		}
	}
	m.start(w, void)
}

// start is the spool's recovery and the sink's addLane.
func (m *model) start(w *world, void bool) {
	id := m.identityAt(w, w.head)
	m.mutate.recover(m, w, id, void)
	w.recov = w.head < m.batches && !void
	w.maybe, w.counted = w.maybe|w.counted, 0 // nobody takes that back any more
	w.lane = NewLane(uint64(w.head), uint64(w.top), m.ackedBatch(w, w.last, w.lastAck), m.identityAt(w, w.head))
	m.step(w, Event{Kind: EvTick})
}

func (w *world) endIdentity(id Identity, void bool, m *model) {
	from := w.head
	if !void && from < m.batches && id.PID >= 0 {
		from += m.count(w, from)
	}
	if w.idCount > 0 {
		w.addIdentity(binding{from: from, pid: nobody, floor: nobody})
	}
}
