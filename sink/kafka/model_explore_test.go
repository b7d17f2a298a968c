package kafka

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// What may happen to a world, and the walk through all that follow from one.

func (m *model) first() world {
	w := world{flight: request{batch: nobody}, zombie: request{batch: nobody}, last: nobody, left: m.left, dirty: ackOf{base: nobody}}
	w.lastAck.base = nobody
	w.clearLog()
	w.fill(m.others, 0)
	w.limited = m.big && m.left.lower == 0
	for b := range w.acks {
		w.acks[b].base = nobody
	}
	m.start(&w, false)
	return w
}

// visit is told of every world that can follow from one.
type visit func(next *world, label string, own bool)

func (m *model) successors(w *world, push visit) {
	t := *w
	if label, ok := m.own(&t); ok {
		push(&t, label, true)
	}
	refreshing := w.busy && w.op == ActRefresh
	if w.lane.Partition() >= 0 && !refreshing && w.lane.route.Epoch != int32(w.epoch) {
		t := *w
		m.step(&t, Event{Kind: EvRoute, Route: w.truth()})
		push(&t, "metadata for others", false)
	}
	if w.zombie.batch != nobody {
		t := *w
		code, _ := m.execute(&t.broker, t.zombie)
		for i := range t.zombie.count {
			if code == appended {
				t.late |= 1 << (t.zombie.batch + i)
			}
		}
		t.zombie = request{batch: nobody}
		push(&t, m.say("late request executed: %s", code), false)
		t = *w
		t.zombie = request{batch: nobody}
		push(&t, "late request gone", false)
	}
	m.mutate.others(m, w, push)
	m.agentMisfortunes(w, push)
	m.brokerMisfortunes(w, push)
}

func (m *model) agentMisfortunes(w *world, push visit) {
	if w.left.crash > 0 {
		t := *w
		t.left.crash--
		late := t
		m.die(&t, false)
		push(&t, "agent dies", false)
		if w.flight.batch != nobody && !w.answered && w.left.zombie > 0 && w.zombie.batch == nobody {
			late.left.zombie--
			late.zombie = w.flight
			m.die(&late, false)
			push(&late, "agent dies, request still on its way", false)
		}
	}
	if w.left.void > 0 && w.head < m.batches {
		t := *w
		t.left.void--
		m.die(&t, true)
		push(&t, "agent dies, its disk forgot the batches behind the last ack", false)
	}
	if w.left.blind > 0 && w.lane.Partition() >= 0 && w.lane.route.State == RouteOK && !(w.busy && w.op == ActRefresh) {
		t := *w
		t.left.blind--
		m.step(&t, Event{Kind: EvRoute, Route: Route{State: RouteNoLeader, Leader: -1, Epoch: -1, AskedAt: modelNow}})
		push(&t, "metadata for others: no leader", false)
	}
	if w.left.learn > 0 && m.big && !w.cut {
		t := *w
		t.left.learn--
		t.learnt = true
		if w.lane.batch.Count > 1 {
			m.step(&t, Event{Kind: EvLarge})
		}
		push(&t, "the limit is learnt elsewhere", false)
	}
	if w.left.drop == 0 {
		return
	}
	lose := func(label string, ev Event, zombie bool) {
		t := *w
		t.left.drop--
		if zombie {
			t.left.zombie--
			t.zombie = t.flight
		}
		t.land()
		m.step(&t, ev)
		push(&t, label, false)
	}
	switch {
	case w.flight.batch != nobody && w.answered:
		lose("answer lost", Event{Kind: EvUnanswered}, false)
	case w.flight.batch != nobody:
		lose("request lost", Event{Kind: EvUnanswered}, false)
		lose("request not sent", Event{Kind: EvUnanswered, NotSent: true}, false)
		lose("refused for want of replicas", Event{Kind: EvAnswer, Verdict: Retry, NotAppended: true, Base: -1, AppendTime: -1}, false)
		if w.left.zombie > 0 && w.zombie.batch == nobody {
			lose("request lost, still on its way", Event{Kind: EvUnanswered}, true)
		}
	case w.busy && (w.op == ActCut || w.op == ActAskEpochEnd || w.op == ActFindLoss || w.op == ActReadBack || w.op == ActAskIdentity):
		t := *w
		t.left.drop--
		t.busy, t.op, t.res = false, 0, result{}
		m.step(&t, Event{Kind: EvQuestionFailed})
		push(&t, "question lost", false)
	case w.busy && w.op == ActRefresh:
		t := *w
		t.left.drop--
		t.busy, t.op, t.res = false, 0, result{}
		m.step(&t, Event{Kind: EvRoute, Route: Route{AskedAt: modelNow}})
		push(&t, "no metadata", false)
	}
}

func (m *model) brokerMisfortunes(w *world, push visit) {
	if w.left.lower > 0 {
		t := *w
		t.left.lower--
		t.limited = true
		push(&t, "the topic's limit is lowered", false)
	}
	if w.end == 0 {
		return
	}
	if w.left.restart > 0 {
		t := *w
		t.left.restart--
		t.restart()
		push(&t, "broker restarts", false)
	}
	if w.left.move > 0 {
		t := *w
		t.left.move--
		t.lead()
		push(&t, "leader moves", false)
	}
	if w.left.rise > 0 {
		t := *w
		t.left.rise--
		t.epoch++
		push(&t, "the leader's epoch rises", false)
	}
	if w.left.expire > 0 {
		t := *w
		t.left.expire--
		t.forget()
		push(&t, "broker forgets producers", false)
	}
	for k := int8(0); w.left.elect > 0 && k < w.end; k++ {
		for _, implied := range []bool{true, false} {
			if w.splits(k) || m.knows && !implied {
				continue
			}
			if m.itself {
				m.crashOf(w, k, implied, push)
			}
			t := *w
			t.left.elect--
			t.truncate(k, implied)
			stray := t
			t.lead()
			push(&t, m.say("replica with %d records leads, state implied: %v", k, implied), false)
			t.fill(w.end, t.epoch)
			push(&t, m.say("replica with %d records leads, state implied: %v, refilled", k, implied), false)
			if epoch := w.strays(k); m.strays && epoch != nobody && w.left.elect == m.left.elect {
				stray.fill(w.end, epoch)
				stray.lead()
				push(&stray, m.say("replica with %d records, and others of epoch %d, leads, state implied: %v", k, epoch, implied), false)
			}
		}
	}
}

// crashOf has the leader crash, and lead on with k records.
func (m *model) crashOf(w *world, k int8, implied bool, push visit) {
	t := *w
	t.left.elect--
	t.truncate(k, implied)
	t.epoch, t.losses = t.epoch+1, t.losses+1
	if t.flight.batch != nobody {
		t.land()
		m.step(&t, Event{Kind: EvUnanswered})
	}
	push(&t, m.say("the leader crashes, and leads with %d records, state implied: %v", k, implied), false)
	t.fill(w.end, t.epoch)
	push(&t, m.say("the leader crashes, and leads with %d records, state implied: %v, refilled", k, implied), false)
}

// findings are what an exploration saw.
type findings struct {
	states, ends int
	doubled      int // most copies too many at an end
	reported     int // most batches reported as possibly doubled
	cut          int // worlds that ran out of ids, log or states
	bad          map[string]int
	trace        map[string]string // one way to each kind of violation
}

func (f *findings) String() string {
	var bad []string
	for k, n := range f.bad {
		bad = append(bad, fmt.Sprintf("%s: %d", k, n))
	}
	slices.Sort(bad)
	return fmt.Sprintf("%d states, %d ends, most doubled %d, most reported %d, cut %d, violations [%s]", f.states, f.ends, f.doubled, f.reported, f.cut, strings.Join(bad, "; "))
}

// step1 is how a world was first reached, and what its own next step leads to.
type step1 struct {
	from   int32
	choice uint16
	own    int32
	fine   bool // an end, or cut
}

// explore walks all worlds breadth first, at most statesMax.
func (m *model) explore(statesMax int) *findings {
	f := &findings{bad: map[string]int{}, trace: map[string]string{}}
	seed := maphash.MakeSeed()
	seen := map[uint64]int32{}
	var steps []step1
	var queue []world
	add := func(w *world, from int32, choice uint16) int32 {
		h := maphash.Comparable(seed, *w)
		if at, ok := seen[h]; ok {
			return at
		}
		at := int32(len(steps))
		seen[h] = at
		steps = append(steps, step1{from: from, choice: choice, own: -1})
		queue = append(queue, *w)
		return at
	}
	w0 := m.first()
	add(&w0, -1, 0)
	note := func(what string, at int32) {
		if f.bad[what]++; f.bad[what] == 1 {
			f.trace[what] = m.retell(steps, at)
		}
	}
	for at := int32(0); len(queue) > 0 && (m.until == "" || f.bad[m.until] == 0); at++ {
		w := queue[0]
		queue = queue[1:]
		if w.granted >= modelIDs-1 || w.end > modelLog-modelBatches-1 || len(steps) > statesMax {
			f.cut++
			steps[at].fine = true
			continue
		}
		if w.lane.Head() == uint64(m.batches) && !w.busy && !w.wake {
			steps[at].fine = true
			if w.zombie.batch == nobody && w.lane.checked && w.lane.route.Epoch == int32(w.epoch) && w.dirty.base == nobody {
				f.ends++
				m.judge(&w, f, func(what string) { note(what, at) })
			}
		}
		choice := uint16(0)
		m.successors(&w, func(next *world, _ string, own bool) {
			to := add(next, at, choice)
			if own {
				steps[at].own = to
			}
			choice++
		})
	}
	f.states = len(steps)
	if len(queue) == 0 {
		m.stuck(steps, note)
	}
	return f
}

// stuck finds worlds that never come to an end by themselves.
func (m *model) stuck(steps []step1, note func(string, int32)) {
	fine := make([]uint8, len(steps)) // 0 unknown, 1 under way, 2 ends, 3 does not
	for i := range steps {
		var way []int32
		at := int32(i)
		for at >= 0 && fine[at] == 0 && !steps[at].fine {
			fine[at] = 1
			way = append(way, at)
			at = steps[at].own
		}
		end := uint8(3)
		if at >= 0 && (steps[at].fine || fine[at] == 2) {
			end = 2
		}
		for _, s := range way {
			fine[s] = end
			if end == 3 {
				note(stuckForEver, s)
			}
		}
	}
}

// retell is the way to a world, one line a step.
func (m *model) retell(steps []step1, at int32) string {
	m.telling = true
	defer func() { m.telling = false }()
	var way []uint16
	for ; steps[at].from >= 0; at = steps[at].from {
		way = append(way, steps[at].choice)
	}
	slices.Reverse(way)
	w := m.first()
	var out strings.Builder
	for _, want := range way {
		i, next := uint16(0), w
		m.successors(&w, func(t *world, label string, _ bool) {
			if i == want {
				next = *t
				fmt.Fprintf(&out, "  %s\n", label)
			}
			i++
		})
		w = next
	}
	fmt.Fprintf(&out, "  log")
	for _, c := range w.log[:w.end] {
		fmt.Fprintf(&out, " %d/%d@%d", c.batch, c.id, c.epoch)
	}
	fmt.Fprintf(&out, " (batch/id@epoch); told: lost %b, maybe doubled %b, healed %b; identities %v; lane %+v\n", w.lost, w.maybe|w.counted, w.healed, w.ids[:w.idCount], w.lane)
	return out.String()
}

// judge compares the log with the promise: each batch once and in order, but
// for what was reported.
func (m *model) judge(w *world, f *findings, note func(string)) {
	var copies [modelBatches]int
	told := w.maybe | w.counted
	if !m.lossless {
		told |= w.late // the one double that nobody can know of
	}
	extra, reported, highest := 0, 0, nobody
	for _, c := range w.log[:w.end] {
		if c.batch == nobody {
			continue
		}
		if c.version != w.version[c.batch] {
			continue // lines that the disk forgot are read again: doubles that recovery reports
		}
		copies[c.batch]++
		fine := told&(1<<c.batch) != 0
		switch {
		case copies[c.batch] > 1:
			extra++
			if !fine {
				note(doubledSilently)
			}
		case !fine && c.batch < highest:
			note(disorderSilently)
		case !fine:
			highest = c.batch
		}
	}
	missing := int8(0)
	for b := range m.batches {
		if copies[b] == 0 && !(w.gone && b == deadRecord) {
			missing++
			// Of batches that are not held it is known how many may be lost,
			// not always which.
			if m.retain == m.batches && w.lost&(1<<b) == 0 {
				note(lostSilently)
			}
		}
		if told&(1<<b) != 0 {
			reported++
		}
	}
	if missing > w.lostCount {
		note(lostSilently)
	}
	if m.lossless && (told|w.lost|w.healed != 0 || extra > 0) {
		note(needless)
	}
	f.doubled, f.reported = max(f.doubled, extra), max(f.reported, reported)
}
