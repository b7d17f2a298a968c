package kafka

// The part of the lane that takes an answer for an ack, and says what it proves.

// InKafka is the index behind the last batch that is in Kafka.
func (l *Lane) InKafka() uint64 {
	if l.Acked() {
		return l.batch.Next()
	}
	return l.head
}

// success takes a broker's word that the batch at head is committed, unless
// the answer shows that it is not our batch that the broker speaks of.
func (l *Lane) success(ev *Event, a *Actions) {
	counts := l.counts()
	if counts && ev.Base >= 0 && ev.Base < l.last.End {
		// Either the log was cut short under us, or somebody else's batch
		// was taken for ours: rule 3 tells which.
		l.regress, l.checked, l.unheard = true, false, l.unheard || !ev.ByID
		l.routeAfter = ev.Now
		return
	}
	first := l.tries == 1 && l.head >= l.top // not one of those that a heal sends again
	if first && ev.AppendTime >= 0 && l.stamp == stampNone {
		l.notOurs(a)
		return
	}
	if first && l.stamp == stampUnknown {
		l.stamp = stampNone
		if ev.AppendTime >= 0 {
			l.stamp = stampBroker
		}
	}
	follows := counts && ev.Base == l.last.End
	l.unbroken = l.unbroken && follows
	switch {
	case l.counted == 0:
	case follows && (l.head >= l.top || l.unbroken): // nothing of ours lies before it
		a.report(ReportNotDoubled, l.head, l.head+l.counted, 0)
	case l.duplicate(ev): // the last attempt left nothing; those between it and the first may have
		a.report(ReportNotDoubled, l.head, l.batch.Next(), 0)
	}
	if l.back > 0 {
		l.backHint = l.back
		if ev.AppendTime < 0 { // else it is there since an attempt with other times
			a.report(ReportShifted, l.head, l.batch.Next(), 0)
		}
	}
	isNew := l.stamp == stampNone && ev.AppendTime < 0 // it was this attempt that was appended
	l.ack(ev.Base, l.flightEpoch, first || isNew, a)
}

// duplicate says that the answer speaks of an attempt from before the head was
// counted as possibly doubled. A duplicate carries the newest record time of
// the batch, which a topic that stamps append time cannot give to a new one; a
// second attempt since then may be a duplicate of the first.
func (l *Lane) duplicate(ev *Event) bool {
	dated := ev.AppendTime >= 0 && (l.stamp == stampNone || ev.AppendTime == l.batch.MaxTime)
	return dated && l.tries == l.countedTries+1
}

// ack takes the batch at head for acked under a leader epoch. firm: it was appended
// in no older one. If that is not known the leader is asked, as long as it is the
// same: its log says in which epoch the batch lies.
func (l *Lane) ack(base int64, epoch int32, firm bool, a *Actions) {
	l.pending = AckedBatch{Batch: l.batch, Base: base, End: base + int64(l.batch.Count), Epoch: epoch, Partition: l.id.Partition}
	// All attempts were made behind the ack below, so in its epoch or a later one; in
	// a heal they need not, but the batch lies behind that one.
	l.pending.Firm = firm || l.counts() && l.last.Epoch == epoch && (l.head >= l.top || l.last.Firm)
	if base < 0 {
		l.pending.Epoch = -1
	}
	l.forgetDoubt()
	l.slow, l.fails, l.cause = false, 0, CauseNone
	l.placeOrKeep(epoch, a)
}

// placeOrKeep asks the leader of an epoch in which of those before its own the batch
// lies, or has the ack written if that is known, or cannot be.
func (l *Lane) placeOrKeep(asOf int32, a *Actions) {
	if below := l.pending; !below.Firm && below.Epoch > 0 && l.route.State == RouteOK && l.route.Epoch == asOf {
		below.Epoch--
		l.ask(busyPlace, a, Action{Kind: ActAskEpochEnd, Acked: below, Route: l.route})
		return
	}
	l.ask(busyAck, a, Action{Kind: ActAck, Acked: l.pending})
}

// placed takes the end of the epochs below the one that the ack counts under.
func (l *Lane) placed(ev *Event, a *Actions) {
	l.settle(busyPlace)
	p := &l.pending
	switch {
	case ev.Base < 0: // it does not know
		l.ask(busyAck, a, Action{Kind: ActAck, Acked: *p})
		return
	case ev.Base < p.End:
		p.Firm = true
	default: // an older attempt was appended
		p.Epoch = min(ev.Epoch, p.Epoch-1)
		p.Firm = l.counts() && l.head >= l.top && p.Epoch <= l.last.Epoch
	}
	l.placeOrKeep(ev.Route.Epoch, a)
}

func (l *Lane) notOurs(a *Actions) {
	a.report(ReportNotOurs, l.head, l.batch.Next(), ReasonNotOurs)
	a.report(ReportMaybeDoubled, l.head, l.batch.Next(), ReasonNotOurs)
	l.forgetDoubt()
	l.needID = ReasonNotOurs
}

func (l *Lane) ackKept() {
	l.settle(busyAck)
	l.last = l.pending
	l.pass()
}
