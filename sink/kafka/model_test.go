package kafka

import "fmt"

// The lane explored exhaustively: the real Lane, a driver that does what sink.go
// and ask.go do (this file and model_ask_test.go), and a broker (model_broker_test.go), in worlds
// (model_rules_test.go) small enough that every interleaving of every misfortune
// can be walked (model_explore_test.go).
//
//	successors(world) = the one next step of agent or broker ("own")
//	                  + what may happen at any time (news, late requests)
//	                  + every misfortune that is left in the budget
//
// One batch is one record, so that an index is a batch and an offset a record;
// but for one of two records in worlds with a big batch, until it is cut.
// Time stands still, but for what has to pass: a lane that waits is woken at
// once, metadata that were asked for are newer than all that was before.

const (
	modelBatches = 4
	modelIDs     = 8  // producer ids that a world may use up
	modelLog     = 20 // records that a log may hold
	modelNow     = int64(1_000_000_000)
	modelOldMs   = int64(3_600_000) // age of records where state may expire
	nobody       = int8(-1)
)

// budget is how often each misfortune may strike.
type budget struct {
	crash   int8 // the agent dies
	void    int8 // it dies and its disk forgot batches that were said to be durable
	drop    int8 // a request or an answer is lost, or a question fails
	zombie  int8 // a lost request is executed later after all
	restart int8 // the broker restarts cleanly: it remembers one batch per id
	move    int8 // a replica that has everything leads
	elect   int8 // a replica that has any prefix leads
	rise    int8 // the leader stays, in another epoch
	expire  int8 // the broker forgets all producers
	blind   int8 // metadata say that there is no leader
	lower   int8 // the topic's limit is lowered; 0 in a world with a big batch: it is low
	learn   int8 // another lane learns the limit
}

// rules are what does not change while a world is explored.
type rules struct {
	name     string
	batches  int8
	retain   int8 // acked batches that the spool holds
	read     bool // READ is granted
	refuse   bool // a broker without memory refuses what does not start at 0
	stamps   bool // the topic stamps append time
	young    bool // metadata are refreshed before every send
	old      bool // records are old: producer state may expire
	big      bool // two records are one batch, which is larger than the topic takes
	others   int8 // records of other producers that the log begins with
	itself   bool // the leader may crash, lose the end of its log and lead on, in the next epoch
	knows    bool // a replica that leads remembers what its log implies, as long as records are young
	strays   bool // a replica that leads may have written records that nobody else has
	dead     bool // one of these is larger than the topic takes even alone
	lossless bool // nothing may be reported: the promise without exceptions
	left     budget
	mutate   mutation
}

// binding is a durable identity.
type binding struct{ from, pid, floor, epoch, floorEpoch int8 }

// ackOf is the durable ack of a batch; base nobody: none.
type ackOf struct{ base, epoch int8 }

type result struct {
	done          bool
	epoch, leader int8 // route as of the question
	base          int8
	found, absent bool
	parted, seen  bool
	of            int8 // the epoch whose end is asked for, or of the answer
	failed        bool
	lost, held    int8
	unsure        int8
	acked         int8 // the last ack below lost; nobody: none
	ackedIs       ackOf
}

// world is one state. It is comparable and holds no pointer.
type world struct {
	broker
	losses   int8    // of connections
	flight   request // batch nobody: none
	answered bool
	code     outcome
	offset   int8
	zombie   request

	// durable
	ids     [modelIDs]binding
	idCount int8
	head    int8
	top     int8 // where a step back of the head began; 0: none
	held    int8 // first batch in the spool
	acks    [modelBatches]ackOf
	last    int8 // batch of the last ack that counts; nobody: none
	lastAck ackOf
	version [modelBatches]int8 // of the content of a batch
	cut     bool               // the big batch was replaced by two
	gone    bool               // the dead record is a dead letter: a gap stands in its place

	// what people were told, by batch
	lost, maybe, counted, healed uint8
	lostCount                    int8  // batches, as often as they were named
	late                         uint8 // appended by a request that was left on a dead connection

	// the agent's memory
	lane    Lane
	op      ActionKind
	busy    bool // op is under way
	wake    bool
	res     result
	id      binding // granted
	recov   bool    // the next offer is in doubt
	dirty   ackOf   // mutation unsynced: an ack in the page cache only
	learnt  bool    // the limit is known
	soft    bool    // mutation cutInMemory: the cut is not durable
	granted int8

	left budget
}

type model struct {
	rules
	actions Actions
	telling bool   // labels are wanted
	until   string // a violation that ends the exploration
}

// say is a label, made only when somebody reads it.
func (m *model) say(format string, args ...any) string {
	if !m.telling {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// ---- the driver

func (m *model) identityAt(w *world, batch int8) Identity {
	for i := w.idCount - 1; i >= 0; i-- {
		if w.ids[i].from <= batch {
			return Identity{From: uint64(w.ids[i].from), PID: int64(w.ids[i].pid), Epoch: int16(w.ids[i].epoch)}
		}
	}
	return Identity{PID: -1, Partition: -1}
}

func (w *world) addIdentity(id binding) {
	n := w.idCount
	for n > 0 && w.ids[n-1].from >= id.from {
		n--
	}
	clear(w.ids[n:])
	w.ids[n] = id
	w.idCount = n + 1
}

// count is how many records the batch has that begins with b.
func (m *model) count(w *world, b int8) int8 {
	if m.big && !w.cut && b == jointFirst {
		return 2
	}
	return 1
}

// recordTime is the time of every record.
func (m *model) recordTime() int64 {
	if m.old {
		return modelNow - modelOldMs
	}
	return modelNow
}

func (m *model) batch(w *world, b int8) Batch {
	return Batch{First: uint64(b), Count: uint32(m.count(w, b)), MaxTime: m.recordTime()}
}

func (m *model) ackedBatch(w *world, b int8, a ackOf) AckedBatch {
	if b == nobody {
		return AckedBatch{Epoch: -1}
	}
	if a.base == nobody {
		a.epoch = nobody
	}
	return AckedBatch{Batch: m.batch(w, b), Base: int64(a.base), End: int64(a.base + m.count(w, b)), Epoch: int32(a.epoch)}
}

// step gives the lane one event, and its next batch if it has room.
func (m *model) step(w *world, ev Event) {
	w.wake = false
	m.stepOnce(w, ev)
	for w.lane.Room() && int8(w.lane.Head()) < m.batches {
		b := int8(w.lane.Head())
		if b == deadRecord && w.gone {
			b++
		}
		m.stepOnce(w, Event{Kind: EvOffer, Batch: m.batch(w, b), Identity: m.identityAt(w, b), InDoubt: w.recov,
			Large: w.learnt && m.count(w, b) > 1})
		w.recov = false
	}
}

func (m *model) stepOnce(w *world, ev Event) {
	before := w.lane
	ev.Now = modelNow
	m.mutate.before(&w.lane, &ev)
	w.lane.Step(&ev, &m.actions)
	for _, a := range m.actions.All() {
		m.perform(w, &before, &ev, a)
	}
	if w.lane.counted == 0 { // what was not taken back by now stands
		w.maybe, w.counted = w.maybe|w.counted, 0
	}
	m.mutate.after(&w.lane, &before, &ev)
	w.lane.stopClock(m.young)
}

// stopClock makes states that differ only in how long ago things were equal.
func (l *Lane) stopClock(young bool) {
	stale := l.route.AskedAt <= l.routeAfter
	age := int64(1)
	if young {
		age = 2 * routeAgeMaxMs
	}
	if l.route.AskedAt != 0 {
		l.route.AskedAt = modelNow - age
	}
	l.routeAfter = l.route.AskedAt - 1
	if stale {
		l.routeAfter = l.route.AskedAt
	}
	if l.doubt {
		l.doubtSince = modelNow
	} else {
		l.doubtSince = 0
	}
	if l.busy != busyFlight {
		l.flightEpoch = 0
	}
	if !l.refused {
		l.refusedEpoch = 0
	}
	if l.busy != busyAck && l.busy != busyPlace {
		l.pending = AckedBatch{}
	}
	since := l.tries - l.countedTries // only one and more than one make a difference
	if l.counted == 0 {
		l.countedTries, since = 0, l.tries
	}
	l.counted = min(l.counted, 2*uint64(l.batch.Count)) // of one attempt, or of more
	l.countedTries = min(l.countedTries, 2)
	l.tries = l.countedTries + min(since, 2)
	if l.sentTo <= l.head {
		l.sentTo = 0
	}
	l.unbroken = l.unbroken && l.head < l.top
	if l.head >= l.unsure || l.head >= l.top {
		l.unsure = 0
	}
	l.notBefore, l.fails, l.cause, l.slow = 0, 0, CauseNone, false
}

func (m *model) perform(w *world, before *Lane, ev *Event, a Action) {
	switch a.Kind {
	case ActWake:
		w.wake = true
	case ActReport:
		m.report(w, before, ev, a)
	case ActSend:
		w.flight = request{batch: int8(a.Batch.First), count: int8(a.Batch.Count), id: int8(a.Identity.PID), pe: int8(a.Identity.Epoch), from: int8(a.Identity.From), to: int8(a.Route.Leader), version: w.version[a.Batch.First]}
		w.answered, w.code, w.offset = false, 0, 0
	default:
		if w.busy {
			panic("BUG: two questions at once")
		}
		w.op, w.busy, w.res = a.Kind, true, result{epoch: int8(a.Route.Epoch), leader: int8(a.Route.Leader)}
		switch a.Kind {
		case ActPersistIdentity:
			w.id.from = int8(a.Identity.From)
		case ActCut:
			w.id = m.cutIdentity(w, a.Identity)
		case ActAskEpochEnd:
			w.res.of = int8(a.Acked.Epoch)
		}
	}
}

// cutIdentity is the sink's.
func (m *model) cutIdentity(w *world, id Identity) binding {
	if id.PID < 0 {
		return binding{pid: nobody}
	}
	floor, floorEpoch := w.id.floor, w.id.floorEpoch // of the one just granted
	if id.Epoch > 0 {
		for i := range w.idCount {
			if w.ids[i].from <= int8(w.lane.head) {
				floor, floorEpoch = w.ids[i].floor, w.ids[i].floorEpoch
			}
		}
	}
	return binding{from: int8(id.From), pid: int8(id.PID), epoch: int8(id.Epoch), floor: floor, floorEpoch: floorEpoch}
}

// report notes what people were told, in batches.
func (m *model) report(w *world, before *Lane, ev *Event, a Action) {
	set := &w.maybe
	switch a.Report {
	case ReportMaybeDoubled:
		if ev.Kind == EvReadBack && a.Reason == 0 {
			set = &w.counted
		}
	case ReportNotDoubled:
		if a.Records >= before.counted { // else an attempt in between still may have left one
			w.counted = 0
		}
		return
	case ReportLost:
		set = &w.lost
		w.lostCount += int8(a.Records)
	case ReportHealed:
		set = &w.healed
	default:
		return
	}
	for b := int8(a.Index); b < int8(a.Index+a.Records); b++ {
		*set |= 1 << b
	}
}

// own takes the one step that agent or broker takes next; false: they wait.
func (m *model) own(w *world) (string, bool) {
	switch {
	case w.flight.batch != nobody && !w.answered && int8(w.lane.route.Losses) != w.losses: // it has not left
		w.land()
		m.step(w, Event{Kind: EvUnanswered, NotSent: true})
		return "a connection was lost, nothing is sent", true
	case w.flight.batch != nobody && !w.answered:
		w.code, w.offset = m.execute(&w.broker, w.flight)
		w.answered = true
		return m.say("broker executes: %s at %d", w.code, w.offset), true
	case w.flight.batch != nobody:
		code, offset := w.code, w.offset
		w.land()
		m.step(w, m.answerEvent(code, offset))
		return m.say("answer %s", code), true
	case w.busy:
		return m.progress(w), true
	case w.wake:
		m.step(w, Event{Kind: EvTick})
		return "time passes", true
	}
	return "", false
}

func (w *world) land() {
	w.flight, w.answered, w.code, w.offset = request{batch: nobody}, false, 0, 0
}

func (m *model) answerEvent(code outcome, offset int8) Event {
	ev := Event{Kind: EvAnswer, Base: int64(offset), AppendTime: -1}
	if m.stamps {
		ev.AppendTime = modelNow
	}
	switch code {
	case appended:
		ev.Verdict = Acked
	case duplicate:
		ev.Verdict, ev.AppendTime = Acked, m.recordTime()
	case refused:
		ev.Verdict, ev.Base = Refused, -1
	case moved:
		ev.Verdict, ev.Base = RetryRoute, -1
	case tooLarge:
		ev.Verdict, ev.NotAppended, ev.Base, ev.AppendTime = TooLarge, true, -1, -1
	}
	return ev
}

// progress takes the question or entry under way one step further.
func (m *model) progress(w *world) string {
	op := w.op
	asks := op == ActAskEpochEnd || op == ActFindLoss || op == ActReadBack
	if asks && !w.res.done {
		m.ask(w)
		return m.say("broker is asked (%d): %+v", op, w.res)
	}
	res := w.res
	w.busy, w.op, w.res = false, 0, result{}
	at := Route{Epoch: int32(res.epoch)}
	if asks && res.failed {
		m.step(w, Event{Kind: EvQuestionFailed})
		return "question fails"
	}
	switch op {
	case ActRefresh:
		m.step(w, Event{Kind: EvRoute, Route: w.truth()})
		return "metadata"
	case ActAskIdentity:
		w.id = binding{pid: w.granted, floor: w.end, floorEpoch: w.epoch}
		w.granted++
		m.step(w, Event{Kind: EvGranted, Identity: Identity{PID: int64(w.id.pid)}})
		return "producer id granted"
	case ActPersistIdentity:
		id := w.id
		w.id = binding{}
		w.addIdentity(id)
		m.step(w, Event{Kind: EvIdentityKept})
		return m.say("identity %+v durable", id)
	case ActCut:
		id := w.id
		w.id = binding{}
		dead := w.lane.batch.Count == 1
		if dead {
			w.gone = true
			w.addIdentity(id)
			w.passGap()
		} else {
			m.mutate.cut(w, id)
		}
		w.learnt = true
		m.step(w, Event{Kind: EvCut, Dead: dead})
		return m.say("cut durable, dead letter %v, identity %+v", dead, id)
	case ActAck:
		p := &w.lane.pending
		m.mutate.ack(m, w, int8(p.First), ackOf{int8(p.Base), int8(p.Epoch)})
		m.step(w, Event{Kind: EvAckKept})
		return "ack durable"
	case ActMoveHead:
		m.mutate.moveHead(w)
		m.step(w, Event{Kind: EvHeadKept})
		return "head moved"
	case ActAskEpochEnd:
		m.step(w, Event{Kind: EvEpochEnd, Base: int64(res.base), Epoch: int32(res.of), Parted: res.parted, Route: at})
		return m.say("end of epoch %d", res.base)
	case ActFindLoss:
		m.step(w, Event{Kind: EvLoss, Lost: uint64(res.lost), Held: uint64(res.held), Unsure: uint64(res.unsure), Found: res.seen, Acked: m.ackedBatch(w, res.acked, res.ackedIs), Route: at})
		return m.say("lost from %d, held from %d", res.lost, res.held)
	case ActReadBack:
		m.step(w, Event{Kind: EvReadBack, Found: res.found, Absent: res.absent, Base: int64(res.base), Route: at})
		return m.say("read back: found %v absent %v", res.found, res.absent)
	}
	panic("BUG: unknown action")
}

// passGap moves the durable head out of the gap.
func (w *world) passGap() {
	if w.gone && w.head == deadRecord {
		w.head++
	}
	if w.head >= w.top {
		w.top = 0
	}
}

func (w *world) truth() Route {
	return Route{State: RouteOK, Leader: int32(w.leader), Epoch: int32(w.epoch), AskedAt: modelNow, Losses: uint64(w.losses)}
}

// keepAck makes the lane's ack durable.
func (m *model) keepAck(w *world, b int8, a ackOf) {
	w.acks[b] = a
	next := b + m.count(w, b)
	if next < w.head {
		return // the spool takes no ack below the head
	}
	w.last, w.lastAck, w.head = b, a, next
	w.passGap()
	w.held = max(w.held, w.head-m.retain)
	if w.held == jointFirst+1 && m.count(w, jointFirst) > 1 {
		w.held-- // as a whole or not at all
	}
}

// keepHead makes the lane's step back durable.
func (w *world) keepHead() {
	w.head, w.top = int8(w.lane.head), int8(w.lane.top)
	for b := w.head; b < modelBatches; b++ {
		w.acks[b] = ackOf{base: nobody}
	}
	w.last, w.lastAck = nobody, ackOf{base: nobody}
	if l := &w.lane.last; l.Epoch >= 0 {
		w.last, w.lastAck = int8(l.First), ackOf{int8(l.Base), int8(l.Epoch)}
	}
	w.passGap()
}
