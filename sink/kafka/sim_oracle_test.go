package kafka

import "slices"

// simSet is a set of lines of a lane.
type simSet uint64

func simRange(from, to uint64) (s simSet) {
	for i := from; i < to; i++ {
		s |= 1 << i
	}
	return s
}

func (s *simSet) add(from, to uint64) { *s |= simRange(from, to) }
func (s simSet) has(line uint64) bool { return s&(1<<line) != 0 }

// simTold is what people were told of a lane, and what happened to it.
type simTold struct {
	maybe, counted, lost, healed simSet
	lostCount                    uint64
	ids                          int
	dead, damaged                simSet
	committed, deleted           simSet // at least once; in a topic that was deleted
	forgiven                     simSet // lines that a lying disk forgot

	attempts, counts [64]int   // by line: times sent, times counted since nobody could look for it
	sentAt           [64]int64 // for the first time
	doubled          uint64    // records told as possibly doubled, but for what was taken back
	misplaced        int       // acks under a later epoch than their batch's: a duplicate was answered, and then no leader could say where it lies
}

const sentUnseeing = "sent to a broker that may have been restarted"

// simOracle watches what is sent and told, and judges the end.
type simOracle struct {
	lanes  []simTold
	used   map[simNumber]simContent
	serial uint32
	told   int
	lives  int // of the agent
	blind  int // looks into a log that told nothing
}

// simNumber names a batch to a broker, simContent is what was sent under it.
type simNumber struct {
	pid   int64
	epoch int16
	first int32
}

type simContent struct {
	build uint32
	line  uint64
	count int32
}

// forget: a start takes nothing back any more.
func (o *simOracle) forget() {
	o.lives++
	for i := range o.lanes {
		l := &o.lanes[i]
		l.maybe, l.counted = l.maybe|l.counted, 0
	}
}

// sent checks a batch that leaves: durable and under a durable identity, no
// number used for other bytes, one batch of a lane at a time.
func (o *simOracle) sent(g *simAgent, it *item, d *simPart) {
	w, id := g.w, it.row.info.ID
	if g.flying[id] {
		w.fail("lane %d has two batches on their way", id)
	}
	g.flying[id] = true
	if o.used == nil {
		o.used = map[simNumber]simContent{}
	}
	if b := &w.cluster.brokers[it.row.lane.route.Leader]; b.losses != b.known {
		w.fail("lane %d: a connection was lost, and nobody asked for metadata: %s", id, sentUnseeing)
	}
	x, l := &d.cell, &o.lanes[id]
	number, content := simNumber{x.pid, x.epoch, x.first}, simContent{x.build, x.line, x.count}
	if have, ok := o.used[number]; ok && have != content && (l.forgiven == 0 || have.build != content.build || have.line != content.line) {
		w.fail("id %d/%d sequence %d was used for %+v and is used for %+v", x.pid, x.epoch, x.first, have, content)
	}
	o.used[number] = content
	for line := x.line; line < x.line+uint64(x.count); line++ {
		if l.attempts[line]++; l.attempts[line] == 1 {
			l.sentAt[line] = w.now
		}
	}
	disk := &w.spool.lanes[id]
	ref, durable := it.ref, false
	ref.since = 0 // of which the disk knows nothing
	for i := range disk.held {
		durable = durable || disk.held[i].Ref == ref
	}
	if own, ok := disk.covering(it.ref.First); !durable || !ok || own.ProducerID != x.pid || own.Epoch != x.epoch {
		w.fail("lane %d: batch %d+%d (durable: %v) is sent under id %d/%d, durable is %d/%d", id, it.ref.First, it.ref.Count, durable, x.pid, x.epoch, own.ProducerID, own.Epoch)
	}
}

func (o *simOracle) committed(x *simCell) {
	if x.lane >= 0 {
		o.lanes[x.lane].committed.add(x.line, x.line+uint64(x.count))
	}
}

// acked checks that what the agent takes for acked was committed once, and notes
// whether the ack counts under an epoch that is not the batch's.
func (o *simOracle) acked(w *simWorld, lane uint32, a *AckedBatch) {
	if all := simRange(a.First, a.Next()); o.lanes[lane].committed&all != all {
		w.fail("lane %d takes %d+%d for acked, which never was committed", lane, a.First, a.Count)
	}
	p := w.cluster.partition(a.Partition)
	if p == nil || a.Firm {
		return
	}
	for _, r := range p.replicas {
		if slices.ContainsFunc(r.log, func(x simCell) bool { return x.lane == int(lane) && x.line == a.First && x.leaderEpoch < a.Epoch }) {
			o.lanes[lane].misplaced++
		}
	}
}

// report notes what a step told people.
func (o *simOracle) report(w *simWorld, id uint32, before *Lane, ev *Event, a *Action) {
	l := &o.lanes[id]
	set := &l.maybe
	switch a.Report {
	case ReportMaybeDoubled:
		l.doubled += a.Records
		if ev.Kind == EvReadBack && a.Reason == 0 {
			set = &l.counted
		}
		w.justified(l, before, ev, a)
	case ReportNotDoubled:
		l.doubled -= a.Records
		if a.Records >= before.counted { // else an attempt in between still may have left one
			l.counted = 0
		}
		return
	case ReportLost:
		set = &l.lost
		l.lostCount += a.Records
	case ReportHealed:
		set = &l.healed
	case ReportNewIdentity:
		l.ids++
		return
	default:
		return
	}
	o.told++
	set.add(a.Index, a.Index+a.Records)
}

// justified checks that nothing is told as possibly doubled but in the worst case
// that is allowed: a batch that was sent, or may have been before this start, is
// counted once for each time, if it is old enough to be forgotten and the log did
// not tell; all else, if brokers lost or forgot something, a leader came and went
// that nobody saw while it acked, an ack had to be taken for one of a later epoch,
// the topic or the cluster is another, or somebody else is in the game.
func (w *simWorld) justified(l *simTold, before *Lane, ev *Event, a *Action) {
	c := &w.cluster
	if before.sought && a.Index == before.head && !ev.Found && w.oracle.blind == 0 {
		w.fail("%s: %d+%d (%s), and the log could be read", needless, a.Index, a.Records, a.Reason)
	}
	if ev.Kind != EvReadBack || a.Reason != 0 {
		if another := a.Reason == ReasonRecreated || a.Reason == ReasonOperator; another && w.version >= kafka45 && w.oracle.lives == 1 && before.top == 0 {
			w.fail("%s: %d+%d (%s), and all requests went by the topic's id", needless, a.Index, a.Records, a.Reason)
		}
		others := slices.ContainsFunc(w.menu, func(t simTrouble) bool { return t == idUsedTwice || t == diskLies || t == frameRots })
		if c.unclean+c.forgotten+c.unseen+c.replaced+l.misplaced == 0 && c.number == 1 && c.exists && !others {
			w.fail("%s: %d+%d (%s), and no broker lost or forgot anything", needless, a.Index, a.Records, a.Reason)
		}
		return
	}
	unsure := before.head < before.unsure // it may be where nobody remembers it
	old := unsure || before.back > 0 || before.cut.renumbers() || before.batch.MaxTime > w.now+freshMaxMs || w.now-before.batch.MaxTime > freshMaxMs
	for line := a.Index; line < a.Index+a.Records; line++ {
		l.counts[line]++
		switch {
		case l.counts[line] > l.attempts[line]+w.oracle.lives:
			w.fail("%s: line %d, sent %d times and counted %d times", needless, line, l.attempts[line], l.counts[line])
		case !old && (l.attempts[line] == 0 || w.now-l.sentAt[line] <= freshMaxMs):
			w.fail("%s: line %d, which is fresh", needless, line)
		}
	}
	if w.oracle.blind == 0 && l.forgiven == 0 || a.Records > uint64(before.batch.Count) {
		w.fail("%s: %d+%d, and the log could be read", needless, a.Index, a.Records)
	}
}

// judge compares the final logs with the promise: each line once and in order,
// but for what was told.
func (w *simWorld) judge() {
	c := &w.cluster
	for i := range w.oracle.lanes {
		told := &w.oracle.lanes[i]
		var copies, here [64]int // all; of the topic that is there
		for _, p := range c.old {
			for _, x := range simFinal(p) {
				if x.lane == i {
					for n := range uint64(x.count) {
						copies[x.line+n]++
					}
				}
			}
		}
		for _, p := range c.partitions {
			w.judgeLog(i, simFinal(p), &here)
		}
		missing := uint64(0)
		for line := range w.lines {
			if copies[line]+here[line] > 0 || (told.dead | told.damaged | told.deleted).has(line) {
				continue
			}
			if c.unclean > 0 && c.number > 1 && w.version < kafka45 {
				// Brokers that go by the topic's name acked batches in the new
				// topic before metadata showed it; to the agent these were in the
				// old one, and nobody looks for them in the new.
				continue
			}
			missing++
			if w.retain >= int(w.lines) && !told.lost.has(line) {
				w.fail("%s: lane %d line %d", lostSilently, i, line)
			}
		}
		if missing > told.lostCount {
			w.fail("%s: lane %d, %d lines are missing, %d were told to be", lostSilently, i, missing, told.lostCount)
		}
	}
}

// simFinal is what consumers could read, retired batches included.
func simFinal(p *simPartition) []simCell {
	r := p.lead()
	if r == nil {
		return p.retired
	}
	all := make([]simCell, 0, len(p.retired)+len(r.log))
	for _, x := range p.retired {
		if !slices.ContainsFunc(r.log, func(y simCell) bool { return y.serial == x.serial }) { // not every replica has removed it
			all = append(all, x)
		}
	}
	return append(all, r.log...)
}

// judgeLog looks for doubles and disorder of a lane in one log.
func (w *simWorld) judgeLog(lane int, log []simCell, copies *[64]int) {
	t := &w.oracle.lanes[lane]
	told := t.maybe | t.counted | t.forgiven | t.damaged | t.dead
	var own [64]int
	var late [64]int
	for _, x := range log {
		if x.lane != lane {
			continue
		}
		for n := range uint64(x.count) {
			own[x.line+n]++
			copies[x.line+n]++
			if x.late {
				late[x.line+n]++
			}
		}
	}
	unseen := w.cluster.elections > 1 && w.cluster.unclean > 0 && w.cluster.forgotten > 0 // see the model's known residual
	highest := int64(-1)
	for _, x := range log {
		if x.lane != lane {
			continue
		}
		for n := range uint64(x.count) {
			line := x.line + n
			excused := late[line]
			switch {
			case told.has(line) || unseen:
			case own[line] > 1+excused:
				w.fail("%s: lane %d line %d, %d times, %d of them late", doubledSilently, lane, line, own[line], late[line])
			case own[line] > 1:
			case int64(line) < highest && (late[line] == 0 || w.cluster.unclean == 0):
				w.fail("%s: lane %d line %d behind line %d", disorderSilently, lane, line, highest)
			default:
				highest = max(highest, int64(line))
			}
		}
	}
}
