package kafka

// The part of the lane that knows what to do about a batch that is refused for
// what is in it: too large, a record that is invalid, times out of bounds.
// Sending it again as it is does not help; other lanes go on meanwhile.
//
// Boundaries may change only if the old ones can be in no log. So a batch that
// may be there is looked for first (rule 4), however young; then:
//
//	never sent             cut, same identity: none of its numbers was used
//	only attempt refused   cut, epoch+1 from its first index on, sequence 0
//	else                   cut, a new producer id
//
// The new batches and the identity are one commit, durable before the first of
// them is sent. A batch of one record is not cut: the record becomes a dead
// letter, a gap stands in its place, and the identity begins behind the gap.
//
// Times are no part of what a broker recognises a batch by: they are moved, in
// the header and for this attempt only, under the same identity.
//
// A crash leaves the old batch or the new ones, never both: whichever is at the
// head is in doubt then, under the identity that stands for it.

// epochMax is the last producer epoch that is used: Kafka's own clients bump to
// 32767 and then need another id; we leave that one alone.
const epochMax = 32_766

// Going back in time, for hosts whose clock is ahead of the broker's.
const (
	backMax     = 14        // then from the beginning: 4,096 hours back
	backFirstMs = 3_600_000 // brokers take an hour ahead by default; doubled each time
)

var noIdentity = Identity{PID: -1, Partition: -1}

// unfit decides what is to be done about the batch at head.
func (l *Lane) unfit(ev *Event) {
	switch {
	case ev.Verdict == TooLarge:
		l.cut = CutSize
	case ev.Verdict == BadTime:
		l.cut = CutTimes
		if l.back == 0 {
			l.back = max(1, l.backHint)
			return
		}
		l.back++
		limit := int64(backoffMaxMs)
		if l.back > backMax {
			l.back, limit = 1, backoffHeldMs
		}
		l.fail(ev, CauseBadTime, limit)
	case ev.Named || l.batch.Count == 1:
		l.cut = CutFault
	default: // it is not one record: somebody must change a setting
		l.fail(ev, CauseBadRecord, backoffHeldMs)
	}
}

// large has the batch at head cut before it is sent for the first time.
func (l *Lane) large() {
	if l.batch.Count > 1 && l.head >= l.sentTo && l.head >= l.top && l.cut == CutNone {
		l.cut = CutAhead
	}
}

// askCut asks for what replaces the batch at head. If it was in doubt, that is
// resolved.
func (l *Lane) askCut(a *Actions) {
	x := Action{Kind: ActCut, Batch: l.batch, Cut: l.cut, Identity: noIdentity}
	if l.cut.renumbers() {
		onlyAttempt := !l.doubt && l.head >= l.top
		switch {
		case l.next.PID >= 0:
		case onlyAttempt && l.id.Epoch < epochMax:
			l.next = Identity{From: l.behindCut(), PID: l.id.PID, Epoch: l.id.Epoch + 1, Partition: l.id.Partition}
		default:
			l.ask(busyID, a, Action{Kind: ActAskIdentity, Identity: Identity{From: l.behindCut(), Partition: l.id.Partition}, Reason: ReasonRefused})
			return
		}
		x.Identity, x.Reason = l.next, ReasonRefused
	}
	l.ask(busyCut, a, x)
}

// behindCut is where the identity begins that a cut needs: at the batch, or
// behind the gap that will stand in its place.
func (l *Lane) behindCut() uint64 {
	if l.batch.Count == 1 {
		return l.batch.Next()
	}
	return l.head
}

// cutKept goes on with what replaces the batch at head.
func (l *Lane) cutKept(ev *Event, a *Actions) {
	l.settle(busyCut)
	if ev.Same {
		l.stepMs, l.cut = ev.StepMs, CutNone
		if ev.Evened {
			l.back = 1 // a batch that was too old as a whole fits into now
		}
		return
	}
	if l.cut.renumbers() {
		if l.next.PID != l.id.PID {
			l.stamp = stampUnknown
			a.report(ReportNewIdentity, l.head, l.head+1, ReasonRefused)
		}
		if l.top > l.head {
			// In a heal: what had been sent from here on was sent under
			// identities that end with this one.
			a.report(ReportMaybeDoubled, l.head+min(l.counted, uint64(l.batch.Count)), l.top, ReasonRefused)
		}
		l.id, l.top, l.sentTo = l.next, 0, l.head
	}
	l.forgetDoubt()
	if ev.Dead {
		l.head = l.batch.Next()
	}
	l.dropBatch()
}

// questionFailed waits and goes on. A batch that could not be replaced goes
// again as it is: perhaps it is taken now.
func (l *Lane) questionFailed(ev *Event, a *Actions) {
	if l.busy == busyPlace { // the ack counts as it is
		l.ask(busyAck, a, Action{Kind: ActAck, Acked: l.pending})
		return
	}
	limit := int64(backoffMaxMs)
	if l.busy == busyCut {
		l.cut, l.next, limit = CutNone, noIdentity, backoffHeldMs
	}
	l.busy, l.alarm = free, false
	l.fail(ev, ev.Cause, limit)
}

// unsent says that the batch at head has numbers under a new identity, none of
// which was used.
func (l *Lane) unsent() {
	l.sentTo, l.next = l.head, noIdentity
	if l.cut.renumbers() {
		l.cut = CutAhead
		if l.batch.Count == 1 {
			l.cut = CutNone
		}
	}
}

// dropBatch forgets the batch at head and all that was about it alone.
func (l *Lane) dropBatch() {
	l.batch, l.cut, l.next, l.back = Batch{}, CutNone, noIdentity, 0
}

// backMs is how long ago the newest record is to seem when the times are moved.
func (l *Lane) backMs() int64 {
	switch {
	case l.back <= 1:
		return 0
	case l.stepMs > 0:
		return int64(l.back-1) * l.stepMs
	}
	return backFirstMs << (l.back - 2)
}
