package kafka

import "slices"

// The spool and its committer: entries and batches become a commit, a sync
// makes commits durable, and only then is the sink told. A crash leaves a prefix
// of the commits that no sync had covered.
type simSpool struct {
	lanes  []simLane
	frames [][]byte     // by place
	bad    []bool       // by place: damaged
	tail   [][]simEntry // commits that no sync has covered
	builds uint32
	before [][]simLane // as it was at the last syncs, where the disk may lie
}

// simLane is a lane as it is on disk. Index i is line i of its source.
type simLane struct {
	info       LaneInfo
	made       uint64 // lines in commits, durable or not
	next       uint64
	head, top  uint64
	last       AckedBatch // Count 0: none
	identities []IdentityRecord
	held       []HeldBatch // ascending
	gaps       []simSpan
}

type simSpan struct{ from, to uint64 }

func (s simSpan) has(i uint64) bool { return s.from <= i && i < s.to }

// simEntry is one thing in a commit.
type simEntry struct {
	kind    NoticeKind
	lane    uint32
	ref     Ref // NoticeBatch
	ack     AckedBatch
	id      IdentityRecord
	index   uint64
	top     uint64
	lost    uint64
	skip    Batch
	replace *Replaced
	gap     simSpan // with replace
	begins  *IdentityRecord
	told    bool // already that it is durable
}

func (s *simSpool) add(frame []byte, first uint64, x *Sealed) Ref {
	s.frames, s.bad = append(s.frames, frame), append(s.bad, false)
	return Ref{Batch: Batch{First: first, Count: x.Count, MaxTime: x.MaxTime}, Bytes: uint32(len(x.Records)), Place: uint64(len(s.frames) - 1)}
}

// ReadBatch implements FrameReader.
func (s *simSpool) ReadBatch(dst []byte, ref Ref) ([]byte, error) {
	if s.bad[ref.Place] {
		return dst, ErrDamaged
	}
	return append(dst, s.frames[ref.Place]...), nil
}

func (s *simSpool) apply(w *simWorld, commit []simEntry) {
	if slices.Contains(w.menu, diskLies) {
		s.keep()
	}
	for i := range commit {
		e := &commit[i]
		l := &s.lanes[e.lane]
		switch e.kind {
		case NoticeBatch:
			l.hold(e.ref)
		case NoticeAckKept:
			l.ack(e.ack, w.retain)
		case NoticeIdentityKept:
			l.identify(e.id)
		case NoticeHeadKept:
			l.moveHead(e)
		case NoticeSkipKept:
			l.drop(simSpan{e.skip.First, e.skip.Next()})
		case NoticeReplaced:
			for _, ref := range e.replace.Refs {
				l.hold(ref)
			}
			if e.begins != nil {
				l.identify(*e.begins)
			}
			l.drop(e.gap)
		}
	}
}

// hold adds a batch; it replaces all that have its indexes.
func (l *simLane) hold(ref Ref) {
	at := len(l.held)
	for at > 0 && l.held[at-1].Ref.Next() > ref.First {
		at--
	}
	end := at
	for end < len(l.held) && l.held[end].Ref.First < ref.Next() {
		end++
	}
	h := HeldBatch{Ref: ref, Acked: AckedBatch{Batch: ref.Batch, Epoch: -1}}
	l.held = slices.Replace(l.held, at, end, h)
	if end > at && l.held[at].Ref.Next() < ref.Next() {
		panic("BUG: a batch was replaced by half")
	}
	l.next = max(l.next, ref.Next())
}

func (l *simLane) ack(a AckedBatch, retain int) {
	if a.Next() < l.head {
		return
	}
	a.Firm = false // is not on disk
	l.head, l.last = a.Next(), a
	l.next = max(l.next, l.head)
	acked := 0
	for i := range l.held {
		if h := &l.held[i]; h.Ref.First == a.First && h.Ref.Count == a.Count {
			h.Acked = a
		}
		if l.held[i].Ref.Next() <= l.head {
			acked++
		}
	}
	l.pass()
	if acked > retain {
		l.held = slices.Delete(l.held, 0, acked-retain)
	}
}

// pass moves the head out of gaps.
func (l *simLane) pass() {
	for _, g := range l.gaps {
		if g.has(l.head) {
			l.head = g.to
		}
	}
	if l.head >= l.top {
		l.top = 0
	}
}

func (l *simLane) identify(id IdentityRecord) {
	n := len(l.identities)
	for n > 0 && l.identities[n-1].From >= id.From {
		n--
	}
	l.identities = append(l.identities[:n:n], id)
}

func (l *simLane) covering(index uint64) (IdentityRecord, bool) {
	for i := len(l.identities) - 1; i >= 0; i-- {
		if l.identities[i].From <= index {
			return l.identities[i], true
		}
	}
	return IdentityRecord{}, false
}

// moveHead is what pipeline/journal.go writes.
func (l *simLane) moveHead(e *simEntry) {
	l.head, l.top, l.last = min(e.lost, e.index), e.top, AckedBatch{}
	if e.ack.Count > 0 {
		l.head, l.last = e.ack.Next(), e.ack
	}
	for i := range l.held {
		if h := &l.held[i]; h.Ref.First >= e.index {
			h.Acked = AckedBatch{Batch: h.Ref.Batch, Epoch: -1} // its ack was below a newer head
		}
	}
	for from := l.head; from < e.index; from++ { // lost by the broker, and not held
		if !l.dropped(Batch{First: from, Count: 1}) {
			l.drop(simSpan{from, from + 1})
		}
	}
	l.pass()
}

func (l *simLane) drop(g simSpan) {
	if g.from >= g.to {
		return
	}
	l.gaps = slices.Clip(l.gaps)
	at, found := slices.BinarySearchFunc(l.gaps, g.from, func(x simSpan, from uint64) int { return int(int64(x.from) - int64(from)) })
	if found {
		l.gaps[at] = g
	} else {
		l.gaps = slices.Insert(l.gaps, at, g)
	}
	l.next = max(l.next, g.to)
	l.pass()
}

func (l *simLane) dropped(b Batch) bool {
	for _, g := range l.gaps {
		if g.from <= b.First && b.Next() <= g.to {
			return true
		}
	}
	return false
}

// recover is what a start makes of a lane: spool/restart.go, settleLane.
func (l *simLane) recover(m mutation) *LaneStart {
	live := []Ref{}
	for i := range l.held {
		if r := l.held[i].Ref; r.First >= l.head && !l.dropped(r.Batch) {
			live = append(live, r)
		}
	}
	from := l.head
	if len(live) > 0 && live[0].First == l.head {
		if id, ok := l.covering(l.head); ok && id.ProducerID >= 0 {
			from = live[0].Next()
		}
	}
	for _, g := range l.gaps {
		if g.has(from) {
			from = g.to
		}
	}
	if m != identityLives {
		id, ok := l.covering(from)
		if !ok {
			id = IdentityRecord{Topic: l.info.Topic, Partition: -1}
		}
		id.From, id.ProducerID, id.Epoch, id.Floor, id.FloorEpoch, id.Reason = from, -1, 0, -1, -1, ReasonStart
		l.identify(id)
	}
	l.made = l.next
	if m == topForgotten {
		l.top = 0
	}
	s := &LaneStart{LaneInfo: l.info, Head: l.head, Top: l.top, LastAck: l.last, Identities: slices.Clone(l.identities), Batches: live}
	if own, ok := l.covering(l.last.First); ok {
		s.LastAck.Partition = own.Partition
	}
	return s
}

// acked lists what can be sent again, as spool.AckedFrom does.
func (l *simLane) acked() (held []HeldBatch) {
	for i := range l.held {
		h := l.held[i]
		if _, ok := l.covering(h.Ref.First); !ok || h.Ref.Next() > l.head || l.dropped(h.Ref.Batch) {
			continue
		}
		h.To = h.Ref.Next()
		for _, g := range l.gaps {
			if g.has(h.To) {
				h.To = g.to
			}
		}
		held = append(held, h)
	}
	return held
}

// keep remembers what was durable, so that the disk may have lied about it.
func (s *simSpool) keep() {
	lanes := slices.Clone(s.lanes)
	for i := range lanes {
		l := &lanes[i]
		l.identities, l.held, l.gaps = slices.Clone(l.identities), slices.Clone(l.held), slices.Clone(l.gaps)
	}
	s.before = append(s.before, lanes)
	if len(s.before) > 4 {
		s.before = s.before[1:]
	}
}

// lie kills the agent, and the disk has forgotten the last syncs.
func (s *simSpool) lie(w *simWorld) {
	if w.agent == nil || len(s.before) == 0 {
		return
	}
	w.crash(w.downtime())
	was := s.lanes
	s.lanes = s.before[w.rng.IntN(len(s.before))]
	s.before = nil
	for i := range s.lanes {
		w.tell("the disk lied: lane %d is at %d of %d, was at %d of %d", i, s.lanes[i].head, s.lanes[i].next, was[i].head, was[i].next)
		w.oracle.lanes[i].forgiven.add(s.lanes[i].head, was[i].made)
	}
}
