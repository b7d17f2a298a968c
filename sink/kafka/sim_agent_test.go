package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
)

// simAgent is one life of the agent: a sink, and what its committer has not
// written yet.
type simAgent struct {
	w       *simWorld
	sink    *Sink
	fresh   []simEntry // not in a commit
	roundAt int64      // ms; 0: no round is due
	syncAt  int64
	wakeAt  int64
	flying  map[uint32]bool // lanes with a batch on its way
	sent    []atomic.Uint64
	nudged  int64 // ms
}

// do has the agent do something later, if it still lives.
func (g *simAgent) after(ms int64, do func()) {
	g.w.after(ms, func() {
		if g.w.agent == g {
			do()
			g.pump()
		}
	})
}

// pump is what Run does between two waits.
func (g *simAgent) pump() {
	s := g.sink
	s.dispatch()
	at := max(s.dueAt(), g.w.now)
	if at > g.w.now+simPatience || g.wakeAt != 0 && g.wakeAt <= at {
		return
	}
	g.wakeAt = at
	g.w.queue.push(at, func() {
		if g.w.agent == g && g.wakeAt == at {
			g.wakeAt = 0
			s.wake()
			g.pump()
		}
	})
}

func (w *simWorld) startAgent() {
	g := &simAgent{w: w, flying: map[uint32]bool{}, sent: make([]atomic.Uint64, w.lanes)}
	w.agent = g
	for i := range w.cluster.brokers {
		w.cluster.brokers[i].linked = false
	}
	w.tell("the agent starts")
	s := NewSink(SinkConfig{Host: [16]byte{byte(w.seed), byte(w.seed >> 8)}, Journal: g, Logger: slog.New(slog.DiscardHandler),
		NewReader: func() FrameReader { return &w.spool }, Transport: w.cluster.transport(w), MergeBytesMax: w.mergeBytes})
	if s.ctx = context.Background(); w.refsMax > 0 {
		s.refsMax, s.refsLane = w.refsMax*w.lanes, w.refsMax
	}
	s.beside = beside{
		now:      func() int64 { return w.now },
		wall:     func() int64 { return w.now },
		lasted:   func() int64 { return w.now },
		random:   w.rng.Uint32,
		question: g.question,
		open:     func(*sender) {},
		hand:     g.send,
		around:   g.step,
	}
	g.sink = s
	w.oracle.forget()
	for i := range w.spool.lanes {
		l := w.spool.lanes[i].recover(w.off)
		l.SentNext = &g.sent[i]
		s.take(&Notice{Kind: NoticeLane, ID: l.ID, Lane: l})
	}
	g.pump()
	g.readLines()
}

// crash kills the agent. Of what no sync had covered, a prefix is on disk; if
// the disk lied, not even all that was said to be durable.
func (w *simWorld) crash(downMs int64) {
	if w.agent == nil {
		return
	}
	w.agent = nil
	kept := w.rng.IntN(len(w.spool.tail) + 1)
	for _, commit := range w.spool.tail[:kept] {
		w.spool.apply(w, commit)
	}
	w.spool.tail = nil
	w.tell("the agent dies; %d commits that were not synced are on disk", kept)
	w.after(downMs, w.startAgent)
}

// readLines spools lines until there are no more.
func (g *simAgent) readLines() {
	w := g.w
	var open []int
	for i := range w.spool.lanes {
		if w.spool.lanes[i].made < w.lines {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return
	}
	i := open[w.rng.IntN(len(open))]
	l := &w.spool.lanes[i]
	n := min(uint64(w.between(1, int64(w.batchMax))), w.lines-l.made)
	ref := w.makeBatch(i, l.made, n)
	l.made += n
	g.add(simEntry{kind: NoticeBatch, lane: uint32(i), ref: ref}, true)
	pause := w.between(1, 50)
	if w.chance(3) {
		pause = w.between(1, int64(simHorizon/w.lines))
	}
	g.after(pause, g.readLines)
}

const simValueBytes = 9 // lane, build, line

// makeBatch builds a batch of n lines. A line that is too large alone has a
// long tail.
func (w *simWorld) makeBatch(lane int, first, n uint64) Ref {
	w.spool.builds++
	var b Builder
	b.Reset(make([]byte, 0, 64+int(n)*(simValueBytes+RecordOverheadMax)+simDeadBytes))
	for i := range n {
		var value [simValueBytes + simDeadBytes]byte
		value[0] = byte(lane)
		binary.BigEndian.PutUint32(value[1:], w.spool.builds)
		binary.BigEndian.PutUint32(value[5:], uint32(first+i))
		size := simValueBytes
		if w.deadLine(first + i) {
			size = len(value)
		}
		b.Append(w.now-w.ageMs, nil, value[:size], false)
	}
	var x Sealed
	x.fill(&b, None, b.Records())
	frame := append(append(make([]byte, 0, HeaderBytes+len(x.Records)), x.Header[:]...), x.Records...)
	return w.spool.add(frame, first, &x)
}

// add puts an entry into the next commit.
func (g *simAgent) add(e simEntry, urgent bool) {
	w := g.w
	g.fresh = append(g.fresh, e)
	wait, most := w.between(0, 3), w.between(1, 10)
	if !urgent {
		wait, most = 1_000, 10_000
	}
	g.round(w.now + wait)
	g.sync(w.now + wait + most)
}

func (g *simAgent) round(at int64) {
	if g.roundAt != 0 && g.roundAt <= at {
		return
	}
	g.roundAt = at
	g.after(at-g.w.now, func() {
		if g.roundAt == at {
			g.roundAt = 0
			g.write()
		}
	})
}

func (g *simAgent) write() {
	if len(g.fresh) > 0 {
		g.w.spool.tail = append(g.w.spool.tail, g.fresh)
		g.fresh = nil
	}
}

func (g *simAgent) sync(at int64) {
	if g.syncAt != 0 && g.syncAt <= at {
		return
	}
	g.syncAt = at
	g.after(at-g.w.now, func() {
		if g.syncAt != at {
			return
		}
		g.syncAt = 0
		commits := g.w.spool.tail
		g.w.spool.tail = nil
		for _, c := range commits {
			g.w.spool.apply(g.w, c)
		}
		for _, c := range commits {
			for i := range c {
				if c[i].told {
					continue
				}
				g.sink.take(&Notice{Kind: c[i].kind, ID: c[i].lane, Ref: c[i].ref, Replaced: c[i].replace})
			}
		}
		if len(g.fresh) > 0 { // what a lane waits for does not wait for lines
			g.round(g.w.now + 1)
			g.sync(g.w.now + 5)
		}
	})
}

// Ack implements Journal.
func (g *simAgent) Ack(lane uint32, a AckedBatch, urgent bool) {
	g.w.oracle.acked(g.w, lane, &a)
	e := simEntry{kind: NoticeAckKept, lane: lane, ack: a}
	if g.w.off == ackInMemory {
		e.told = true
		g.add(e, false)
		g.after(0, func() { g.sink.take(&Notice{Kind: NoticeAckKept, ID: lane}) })
		return
	}
	g.add(e, urgent)
}

// Identity implements Journal.
func (g *simAgent) Identity(lane uint32, id IdentityRecord) {
	if id.Floor < 0 { // nobody knows from where on to look
		g.w.oracle.blind++
	}
	if g.w.off == identityInMemory {
		g.after(0, func() { g.sink.take(&Notice{Kind: NoticeIdentityKept, ID: lane}) })
		return
	}
	g.add(simEntry{kind: NoticeIdentityKept, lane: lane, id: id}, true)
}

// MoveHead implements Journal.
func (g *simAgent) MoveHead(lane uint32, index, top, lost uint64, last AckedBatch) {
	if g.w.off == moveInMemory {
		g.after(0, func() { g.sink.take(&Notice{Kind: NoticeHeadKept, ID: lane}) })
		return
	}
	g.add(simEntry{kind: NoticeHeadKept, lane: lane, index: index, top: top, lost: lost, ack: last}, true)
}

// Skip implements Journal.
func (g *simAgent) Skip(lane uint32, b Batch) {
	g.w.oracle.lanes[lane].damaged.add(b.First, b.Next())
	g.add(simEntry{kind: NoticeSkipKept, lane: lane, skip: b}, true)
}

// Held implements Journal.
func (g *simAgent) Held(lane uint32) {
	g.after(g.w.between(1, 20), func() {
		g.sink.take(&Notice{Kind: NoticeHeld, ID: lane, Held: g.w.spool.lanes[lane].acked()})
	})
}

// Refs implements Journal.
func (g *simAgent) Refs(lane uint32, from uint64, refsMax int) {
	g.after(g.w.between(1, 20), func() {
		n := Notice{Kind: NoticeRefs, ID: lane}
		l := &g.w.spool.lanes[lane]
		for i := range l.held {
			r := l.held[i].Ref
			switch {
			case r.First < from || l.dropped(r.Batch):
			case len(n.Refs) == refsMax:
				n.More = true
			default:
				n.Refs = append(n.Refs, r)
			}
		}
		g.sink.take(&n)
	})
}

var errSimFull = errors.New("no room")

// Replace implements Journal.
func (g *simAgent) Replace(lane uint32, x *Replacement) {
	w := g.w
	if w.chance(10) {
		g.after(5, func() { g.sink.take(&Notice{Kind: NoticeReplaced, ID: lane, Replaced: &Replaced{Err: errSimFull}}) })
		return
	}
	e := simEntry{kind: NoticeReplaced, lane: lane, replace: &Replaced{}, begins: x.Identity}
	for i := range x.Batches {
		s := &x.Batches[i].Sealed
		frame := append(append([]byte{}, s.Header[:]...), s.Records...)
		e.replace.Refs = append(e.replace.Refs, w.spool.add(frame, x.Batches[i].First, s))
	}
	if x.Dead != nil {
		e.gap = simSpan{x.Dead.Index, x.Dead.Index + 1}
		w.oracle.lanes[lane].dead.add(e.gap.from, e.gap.to)
	}
	if w.off == cutInMemory {
		g.after(0, func() { g.sink.take(&Notice{Kind: NoticeReplaced, ID: lane, Replaced: e.replace}) })
		return
	}
	g.add(e, true)
}

// question runs f at some time, and hands on what it says at a later one.
func (g *simAgent) question(f func(ctx context.Context) reply) {
	w := g.w
	wait := w.between(0, 5)
	if w.chance(20) {
		wait = w.between(0, 3_000)
	}
	g.after(wait, func() {
		p := f(g.sink.ctx)
		wait := w.between(0, 5)
		if p.err != nil {
			wait = w.between(1, 2_000)
		} else if w.chance(20) {
			wait = w.between(0, 3_000)
		}
		g.after(wait, func() { g.sink.takeReply(p) })
	})
}

// nudge has metadata fetched, as the next line would.
func (g *simAgent) nudge() bool {
	if g.w.now >= g.nudged+15_000 && !g.sink.asking {
		g.nudged, g.sink.wanted = g.w.now, true
		g.pump()
	}
	return false
}

// step takes a lane's step, watched and, in a mutation, changed.
func (g *simAgent) step(r *row, ev *Event, a *Actions) {
	w := g.w
	before := r.lane
	w.off.before(&r.lane, ev)
	r.lane.Step(ev, a)
	w.off.after(&r.lane, &before, ev)
	for i := range a.All() {
		if x := &a.All()[i]; x.Kind == ActReport {
			w.oracle.report(w, r.info.ID, &before, ev, x)
		}
	}
	if r.lane.counted == 0 { // what was not taken back by now stands
		l := &w.oracle.lanes[r.info.ID]
		l.maybe, l.counted = l.maybe|l.counted, 0
	}
	if w.telling {
		w.tell("lane %d: %s", r.info.ID, tellEvent(ev))
		for _, x := range a.All() {
			w.tell("    %s", (&script{now: w.now}).tell(x))
		}
	}
}
