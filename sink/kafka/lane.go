package kafka

// Lane is the sequencer of one lane: a pure state machine that decides what
// is sent to Kafka, under which producer identity, and what an answer means.
// It does no I/O, reads no clock, starts nothing, locks nothing and allocates
// nothing; sink.go drives it. All transitions are in the files lane*.go: what an
// ack proves in lane_ack.go, what resolves a doubt and heals a loss in
// lane_resolve.go, what becomes of a batch that is refused for what is in it in
// lane_refused.go.
//
// A lane numbers its records: index 0, 1, 2 ... A batch is a fixed range of
// indexes. An identity (producer id, epoch, partition) covers indexes from its
// `From` on, so that the base sequence of a batch is arithmetic,
// (first - From) mod 2^31, and there is no counter to lose.
//
// The rules, and what each is for:
//
//  1. One batch at a time. The next batch is sent when the ack of the one
//     before is durable, so at most one batch, the head, is ever in doubt: the
//     one batch that every broker still recognises after a restart.
//  2. A batch keeps boundaries and identity on every attempt until its outcome
//     is known. "Possibly persisted" is sticky; only a refusal that proves the
//     first and only attempt was not appended clears it.
//  3. In a new leader epoch, before anything is sent, resends too, the leader
//     is asked how far the epoch of our last ack reaches (KIP-320). An end
//     below the last acked end means that acked records are gone: heal.
//     An ack counts under the leader epoch known when its request was sent.
//  4. A head in doubt whose producer state may have expired at the broker is
//     looked for in the log before it is sent again; what cannot be looked for
//     is counted as possibly doubled. What a heal sends again is looked for as
//     long as all of it was there: its alarm may be false.
//  5. A refusal by sequence (45, 47, 59) in the current leader epoch heals:
//     the head steps back, durably, over acked batches that the broker lost; or,
//     if the head is not found in the log, a new producer id starts there.
//
// A crash at any point leaves what the spool holds: the durable head, the
// identities, the frames; NewLane starts from them.
type Lane struct {
	head     uint64 // first index without a durable ack
	top      uint64 // a heal stepped back from here; 0: not stepping
	entire   bool   // all that a heal was to send again so far was found in the log: its alarm may be false
	unsure   uint64 // batches below that a heal sends again may be in the log, however young they are
	unbroken bool   // all that the heal sent again was appended right behind the ack below it: it was lost indeed
	batch    Batch  // the batch at head; Count 0: none offered

	id     Identity // covers head
	needID Reason   // a new identity must start at head; 0: no
	stamp  stamping // what the first answer under id said of append times

	last    AckedBatch // the last durable ack that counts against a leader
	pending AckedBatch // the ack of the batch at head while it is not durable

	route      Route
	routeAfter int64 // ms; metadata asked for at or before this do not count
	otherSince int64 // ms; metadata show another topic since; 0: they do not
	adopts     bool  // an operator takes the other cluster that metadata show
	checked    bool  // rule 3 is satisfied in route's leader epoch
	run        run   // of the leader that satisfied it last
	broken     bool  // nor has that of route's leader, since rule 3 asked it

	busy         busy
	flightEpoch  int32 // leader epoch known when the flight left
	doubt        bool  // the batch at head may be in a log
	doubtSince   int64 // ms
	tries        uint16
	unheard      bool   // an attempt that went by the topic's name got no answer, or one that may be of another topic
	asked        bool   // rule 4 is satisfied for this doubt
	counted      uint64 // records of the head reported as possibly doubled, once for each attempt
	countedTries uint16 // tries when they were
	refused      bool   // by sequence, in refusedEpoch
	sought       bool   // nothing is lost, and the head is looked for before a new identity is taken
	refusedEpoch int32
	alarm        bool // rule 3 calls for a loss, which may be none
	regress      bool // a base offset below the last acked end awaits rule 3

	// Of a batch that is refused for what is in it; see lane_refused.go.
	cut      Cut      // how the batch at head is to be replaced before anything is sent
	next     Identity // the identity that its replacement begins; PID -1: none
	sentTo   uint64   // sequences of indexes below were on the wire
	back     uint8    // how often its times were moved; 0: they are its own
	backHint uint8    // how often those of the last one were, when it was taken
	stepMs   int64    // of going back in time; 0: doubled each time

	slow      bool // travels alone over the second connection
	cause     Cause
	fails     uint8
	notBefore int64 // ms
}

// Limits of the sequencer, in milliseconds.
const (
	routeAgeMaxMs   = 10_000  // metadata older than this are refreshed before a send
	freshMaxMs      = 300_000 // producer state of a batch this young lives at every broker
	recreatedMinMs  = 15_000  // another topic id must be seen this long
	backoffMinMs    = 100
	backoffMaxMs    = 10_000
	backoffHeldMs   = 30_000 // for what an operator must change
	sequenceModulus = 1 << 31
	triesMax        = 1<<16 - 1 // attempts are not counted further
)

type busy uint8

const (
	free        busy = iota
	busyRoute        // metadata asked for
	busyID           // producer id asked for
	busyPersist      // identity on its way to the disk
	busyEpoch        // end of our last ack's leader epoch asked for
	busyLog          // looking for the head in the log
	busyLoss         // looking for the first lost batch
	busyHead         // the head's step back on its way to the disk
	busyCut          // what replaces the batch at head on its way to the disk
	busyFlight       // a produce request is under way
	busyPlace        // outcome known, asked in which leader epoch it lies
	busyAck          // outcome known, its ack on its way to the disk
)

type stamping uint8

const (
	stampUnknown stamping = iota
	stampNone             // answers to first attempts carry no append time
	stampBroker           // the topic stamps append time: it proves nothing
)

// NewLane returns a lane as a start of the agent finds it: head is the durable
// ack, last the ack below it (Count 0: none), id the identity that covers head
// (PID -1 and Partition -1: none). If the start found a heal under way, what is
// below top had been sent before the head moved back; else top is 0.
func NewLane(head, top uint64, last AckedBatch, id Identity) Lane {
	if last.Count == 0 {
		last.Epoch = -1
	}
	if top <= head {
		top = 0
	}
	return Lane{head: head, top: top, unsure: top, last: last, id: id, next: noIdentity} // nobody wrote down how sure the loss is
}

// Head is the first index without a durable ack.
func (l *Lane) Head() uint64 { return l.head }

// Idle says that the machine waits for nothing but a batch at Head.
func (l *Lane) Idle() bool { return l.busy == free && l.batch.Count == 0 }

// Room says that the driver may offer the batch at Head.
func (l *Lane) Room() bool {
	return l.batch.Count == 0 && l.busy != busyHead && l.busy != busyPersist
}

// Cause says what holds the lane up; CauseNone: nothing does.
func (l *Lane) Cause() Cause { return l.cause }

// Partition is the partition of the identity at Head; -1: not chosen yet.
func (l *Lane) Partition() int32 { return l.id.Partition }

// Acked says that the batch at Head is in Kafka and only its ack is not durable.
func (l *Lane) Acked() bool { return l.busy == busyAck || l.busy == busyPlace }

// InDoubt says that the batch at Head may be in a log.
func (l *Lane) InDoubt() bool { return l.doubt }

// Step takes one event and replaces the content of a by what is to be done.
func (l *Lane) Step(ev *Event, a *Actions) {
	a.n = 0
	switch ev.Kind {
	case EvOffer:
		l.offer(ev)
	case EvRoute:
		l.learn(ev, a)
	case EvGranted:
		l.granted(ev, a)
	case EvIdentityKept:
		l.settle(busyPersist)
	case EvAnswer:
		l.answer(ev, a)
	case EvUnanswered:
		l.unanswered(ev)
	case EvAckKept:
		l.ackKept()
	case EvEpochEnd:
		l.epochEnd(ev, a)
	case EvReadBack:
		l.readBack(ev, a)
	case EvLoss:
		l.heal(ev, a)
	case EvHeadKept:
		l.settle(busyHead)
	case EvCut:
		l.cutKept(ev, a)
	case EvLarge:
		l.large()
	case EvQuestionFailed:
		l.questionFailed(ev, a)
	case EvSkipped:
		l.settle(busyFlight)
		l.pass()
		l.needID = ReasonGap
	case EvAdopt:
		l.adopts = true
	case EvTick:
	}
	l.advance(ev.Now, a)
}

func (l *Lane) settle(want busy) {
	if l.busy != want {
		panic("BUG: a lane got an answer to a question it did not ask")
	}
	l.busy = free
}

// advance takes the lane's next own step, if nothing is under way.
func (l *Lane) advance(now int64, a *Actions) {
	if l.busy != free {
		return
	}
	if l.adopts {
		l.adopts = false
		if l.route.State == RouteOtherCluster {
			l.leave(ReasonOperator, a)
		}
	}
	if now < l.notBefore {
		a.add(Action{Kind: ActWake, Index: uint64(l.notBefore)})
		return
	}
	if l.id.Partition < 0 {
		if l.batch.Count > 0 || l.needID == ReasonOperator { // what an operator decides is written at once
			l.ask(busyID, a, Action{Kind: ActAskIdentity, Identity: Identity{From: l.head, Partition: -1}, Reason: l.reason()})
		}
		return
	}
	if !l.routed(now, a) {
		return
	}
	if l.refused {
		l.refused = false
		if l.refusedEpoch == l.route.Epoch {
			l.broken = false
			l.ask(busyLoss, a, Action{Kind: ActFindLoss, Route: l.route})
			return
		}
	}
	if !l.checked {
		l.broken = false
		if l.counts() {
			l.ask(busyEpoch, a, Action{Kind: ActAskEpochEnd, Acked: l.last, Route: l.route})
			return
		}
		l.satisfied()
	}
	if l.batch.Count == 0 {
		return
	}
	if l.needID != 0 || l.id.PID < 0 {
		l.ask(busyID, a, Action{Kind: ActAskIdentity, Identity: Identity{From: l.head, Partition: l.id.Partition}, Reason: l.reason()})
		return
	}
	if l.sought || l.doubt && !l.asked && (l.head < l.top && l.entire || l.cut.renumbers() || !l.fresh(now)) {
		below := l.last
		if l.head < l.top && !l.entire {
			below = AckedBatch{Epoch: -1} // where it was before the heal is not above what the heal sent again
		}
		l.ask(busyLog, a, Action{Kind: ActReadBack, Batch: l.batch, Identity: l.id, Acked: below, Route: l.route})
		return
	}
	if l.cut != CutNone {
		l.askCut(a)
		return
	}
	l.send(now, a)
}

// counts says that the last ack proves something of the partition.
func (l *Lane) counts() bool { return l.last.Epoch >= 0 && l.last.Partition == l.id.Partition }

func (l *Lane) ask(b busy, a *Actions, x Action) {
	l.busy = b
	a.add(x)
}

func (l *Lane) reason() Reason {
	if l.needID != 0 {
		return l.needID
	}
	if l.head == 0 {
		return ReasonFirst
	}
	return ReasonStart
}

// routed says whether the partition's leader is known well enough to talk to;
// if not it asks for metadata, or waits.
func (l *Lane) routed(now int64, a *Actions) bool {
	stale := l.route.AskedAt <= l.routeAfter
	old := l.batch.Count > 0 && now-l.route.AskedAt > routeAgeMaxMs
	// A state that was learnt while something else was under way made nobody
	// wait: without another look the lane would sleep for ever.
	if stale || old || l.route.State != RouteOK {
		l.ask(busyRoute, a, Action{Kind: ActRefresh})
		return false
	}
	return true
}

// fresh says that the broker's memory of the head, if it was appended, cannot
// have expired: it ages by record time, as that was sent.
func (l *Lane) fresh(now int64) bool {
	if l.head < l.unsure && l.head < l.top {
		return false // nobody knows whether it remembers what it may have
	}
	newest := l.batch.MaxTime
	if l.back > 0 {
		newest = l.doubtSince - l.backMs()
	}
	return now-newest <= freshMaxMs && now-l.doubtSince <= freshMaxMs
}

func (l *Lane) send(now int64, a *Actions) {
	if !l.doubt {
		l.doubt, l.doubtSince, l.tries = true, now, 0
	}
	if l.tries < triesMax {
		l.tries++
	}
	l.flightEpoch, l.sentTo = l.route.Epoch, max(l.sentTo, l.batch.Next())
	l.ask(busyFlight, a, Action{Kind: ActSend, Batch: l.batch, Identity: l.id, Route: l.route, Slow: l.slow, Shift: l.back > 0, BackMs: l.backMs()})
}

func (l *Lane) forgetDoubt() {
	l.doubt, l.unheard, l.asked, l.tries, l.counted, l.refused, l.sought, l.regress = false, false, false, 0, 0, false, false, false
}

// pass moves the head behind its batch.
func (l *Lane) pass() {
	l.forgetDoubt()
	l.head = l.batch.Next()
	l.dropBatch()
	if l.head >= l.top {
		l.top = 0
	}
}

// offer takes the batch at head. A first index above head is a durable gap.
func (l *Lane) offer(ev *Event) {
	if !l.Room() || ev.Batch.First < l.head || ev.Batch.Count == 0 {
		panic("BUG: a lane was offered a batch that is not the next one")
	}
	gap := ev.Batch.First > l.head
	l.head, l.batch = ev.Batch.First, ev.Batch
	if l.needID == 0 && (ev.Identity.PID >= 0 || ev.Identity.Partition >= 0) {
		if ev.Identity.Partition != l.id.Partition {
			l.forgetRoute()
		}
		if ev.Identity != l.id {
			l.id, l.stamp = ev.Identity, stampUnknown
		}
		if gap && l.id.PID >= 0 && l.id.From < l.head {
			l.needID = ReasonGap
		}
	}
	if l.needID == 0 && l.id.PID >= 0 && l.id.From > l.head {
		l.needID = ReasonStart // a heal went back further than identities are known
	}
	again := l.head < l.top // the alarm that a heal follows may be false
	if (ev.InDoubt || again) && l.needID == 0 && l.id.PID >= 0 {
		// The doubt began when the batch was sent, which nobody wrote down:
		// at the earliest when its newest record was read.
		l.doubt, l.unheard, l.doubtSince, l.tries = true, true, min(ev.Batch.MaxTime, ev.Now), 1
		l.sentTo = max(l.sentTo, ev.Batch.Next())
		if ev.Batch.MaxTime > ev.Now+freshMaxMs {
			l.doubtSince = ev.Now - freshMaxMs - 1 // of a clock that was wrong: it says nothing
		}
	}
	if ev.Large {
		l.large()
	}
}

// learn takes metadata, asked for or not.
func (l *Lane) learn(ev *Event, a *Actions) {
	if l.busy == busyRoute {
		l.busy = free
	}
	if ev.Route.AskedAt < l.route.AskedAt {
		return
	}
	moved := ev.Route.Epoch != l.route.Epoch || ev.Route.Leader != l.route.Leader
	if ev.Route.State == RouteOK && (moved || ev.Route.Losses != l.route.Losses) {
		l.moved(&ev.Route)
	}
	if ev.Route.State != RouteOK {
		// The epoch is kept: only a new leader asks for a new check.
		ev.Route.Leader, ev.Route.Epoch, ev.Route.Losses = l.route.Leader, l.route.Epoch, l.route.Losses
	}
	waits := l.route.State != RouteOK || moved && (l.cause == CauseRetriable || l.cause == CauseUnreachable)
	if ev.Route.State == RouteOK && waits {
		l.notBefore, l.cause = 0, CauseNone // what the lane waited for has come
	}
	l.route = ev.Route
	if l.route.State != RouteOtherTopic {
		l.otherSince = 0
	} else if l.otherSince == 0 {
		l.otherSince = ev.Now
	}
	if l.route.State == RouteOK || l.busy != free {
		return
	}
	if l.route.State == RouteOtherTopic && ev.Now-l.otherSince >= recreatedMinMs {
		l.leave(ReasonRecreated, a)
		return
	}
	l.slow = l.slow || l.route.State == RouteNoLeader
	l.fail(ev, routeCauses[l.route.State], backoffMaxMs)
}

var routeCauses = [...]Cause{RouteUnknown: CauseUnreachable, RouteOK: CauseNone, RouteNoLeader: CauseNoLeader, RouteNoTopic: CauseNoTopic,
	RouteDenied: CauseDenied, RouteOtherTopic: CauseOtherTopic, RouteOtherCluster: CauseOtherCluster}

// fail waits before the next step and distrusts what is known of the route.
func (l *Lane) fail(ev *Event, cause Cause, limitMs int64) {
	wait := min(backoffMinMs<<min(l.fails, 20), limitMs)
	wait = wait/2 + int64(ev.Rand)*(wait/2)>>32
	if l.fails < 255 {
		l.fails++
	}
	l.cause = cause
	l.notBefore = ev.Now + wait
	l.routeAfter = ev.Now
}

func (l *Lane) granted(ev *Event, a *Actions) {
	l.settle(busyID)
	if l.needID == 0 && l.cut.renumbers() {
		l.next = Identity{From: l.behindCut(), PID: ev.Identity.PID, Epoch: ev.Identity.Epoch, Partition: l.id.Partition}
		return
	}
	why := l.reason()
	if ev.Identity.Partition != l.id.Partition {
		l.forgetRoute()
	}
	l.id = Identity{From: l.head, PID: ev.Identity.PID, Epoch: ev.Identity.Epoch, Partition: ev.Identity.Partition}
	l.needID, l.stamp = 0, stampUnknown
	l.forgetDoubt()
	l.unsent()
	l.ask(busyPersist, a, Action{Kind: ActPersistIdentity, Identity: l.id, Reason: why})
	if why != ReasonFirst && why != ReasonStart {
		a.report(ReportNewIdentity, l.head, l.head+1, why)
	}
	if l.top > l.head { // a start cut a heal short and ended the identities that it used
		a.report(ReportMaybeDoubled, l.head, l.top, why)
	}
	l.top = 0
}

// answer decides by the verdict on a produce answer.
func (l *Lane) answer(ev *Event, a *Actions) {
	l.settle(busyFlight)
	if ev.NotAppended && l.tries == 1 {
		l.forgetDoubt()
	}
	l.asked = l.asked && ev.NotAppended // else there is a new attempt to look for
	l.slow = l.slow || ev.Slow
	switch ev.Verdict {
	case Acked:
		l.success(ev, a)
	case Refused:
		// Believed only when fresh metadata show that the leader that
		// refused still leads.
		l.refused, l.refusedEpoch = true, l.flightEpoch
		l.routeAfter = ev.Now
	case Retry, RetryRoute:
		// It is in a log, which may be that of a topic or a cluster that goes by the name meanwhile. A leader that is
		// none any more (RetryRoute) speaks of the old one.
		l.unheard = l.unheard || ev.Verdict == Retry && !ev.NotAppended && !ev.ByID
		l.fail(ev, CauseRetriable, backoffMaxMs)
	case Denied:
		l.fail(ev, CauseDenied, backoffHeldMs)
	case TooLarge, BadTime, BadRecord:
		l.unfit(ev)
	default:
		l.fail(ev, CausePolicy, backoffHeldMs)
	}
}

func (l *Lane) unanswered(ev *Event) {
	l.settle(busyFlight)
	if ev.NotSent && l.tries < triesMax { // it was no attempt
		l.tries--
	}
	if l.tries == 0 {
		l.forgetDoubt()
	}
	l.asked, l.unheard = false, l.unheard || !ev.NotSent && !ev.ByID
	l.slow = l.slow || ev.Slow
	l.fail(ev, CauseUnreachable, backoffMaxMs)
}
