package kafka

// The part of the lane that finds out what the broker has: rules 3 to 5.

// run is a leader that led without a break since it satisfied rule 3, up to an
// epoch: all acks since were its own. The zero value is nobody.
type run struct {
	known  bool
	leader int32
	epoch  int32
	losses uint64 // of connections to it
}

func (r *Route) run() run { return run{true, r.Leader, r.Epoch, r.Losses} }

// moved takes a leader that is new, or leads in a new epoch, or to which a
// connection was lost.
//
// Another leader in between would have had an epoch of its own, so one that leads
// in the next epoch, too, has led all the time: brokers raise epochs so when
// replicas change. Only who follows cuts its log, and only a crash loses the end of
// one: that ends a connection, and then the run is over, for the acks before too.
func (l *Lane) moved(r *Route) {
	l.checked, l.asked, l.sought = false, false, false
	next := l.run
	next.epoch++
	if next == r.run() {
		l.run = next
		return
	}
	l.run, l.broken = run{}, true
}

func (l *Lane) forgetRoute() { l.route, l.checked, l.run = Route{}, false, run{} }

// satisfied ends rule 3's question.
func (l *Lane) satisfied() { l.checked, l.run = true, l.route.run() }

// epochEnd compares what the leader still has of our last ack's epoch.
func (l *Lane) epochEnd(ev *Event, a *Actions) {
	if l.busy == busyPlace {
		l.placed(ev, a)
		return
	}
	l.settle(busyEpoch)
	switch {
	case ev.Route.Epoch != l.route.Epoch || l.broken: // asked of a leader that is none any more, or may have crashed since
	case ev.Base >= 0 && (ev.Base < l.last.End || ev.Parted):
		if l.last.Epoch < l.route.Epoch && l.run == l.route.run() {
			l.placeLast(ev, a)
			return
		}
		l.alarm = true
		l.ask(busyLoss, a, Action{Kind: ActFindLoss, Acked: l.last, Route: l.route})
	default:
		if ev.Base < 0 {
			a.report(ReportUnverified, l.head, l.head+1, 0)
		}
		l.allThere(a)
	}
}

// placeLast takes the end of an epoch from a leader that has led since it gave the
// last ack: it has the batch, in that epoch or another one.
func (l *Lane) placeLast(ev *Event, a *Actions) {
	if ev.Base >= l.last.End {
		l.last.Epoch, l.last.Firm = ev.Epoch, false // an older one: it has no records of the one asked for
		l.allThere(a)
		return
	}
	l.last.Epoch, l.last.Firm = l.last.Epoch+1, true
	if l.last.Epoch >= l.route.Epoch {
		l.allThere(a)
	}
}

// allThere is the end of a check that finds nothing lost.
func (l *Lane) allThere(a *Actions) {
	l.satisfied()
	if l.regress {
		l.regress = false
		l.notOurs(a)
	}
}

// readBack takes the result of looking for the head in the log.
func (l *Lane) readBack(ev *Event, a *Actions) {
	l.settle(busyLog)
	switch {
	case ev.Found:
		a.report(ReportFound, l.head, l.batch.Next(), 0)
		if l.counted > 0 && l.tries == l.countedTries { // it was not sent again since it was counted
			a.report(ReportNotDoubled, l.head, l.batch.Next(), 0)
		}
		at := ev.Base
		if l.head < l.top && l.counts() && at < l.last.End {
			// Behind it lies what the heal sent again before it: out of order. The
			// ack reaches as far as theirs, so that no loss of them is missed.
			a.report(ReportMaybeDoubled, l.head, l.batch.Next(), ReasonLost)
			at = max(at, l.last.End-int64(l.batch.Count))
		}
		l.ack(at, ev.Route.Epoch, false, a)
	case ev.Route.Epoch != l.route.Epoch: // look again at the new leader
	case l.sought:
		l.renew(ev.Absent, a)
	default:
		l.entire = false
		if !ev.Absent && !l.cut.renumbers() && l.fresh(ev.Now) {
			return // it was asked for the sake of the heal alone: the broker knows the batch again
		}
		l.asked = true
		if !ev.Absent && (l.counted == 0 || l.tries != l.countedTries) { // every attempt may leave one more
			l.counted, l.countedTries = l.counted+uint64(l.batch.Count), l.tries
			a.report(ReportMaybeDoubled, l.head, l.batch.Next(), 0)
		}
	}
}

// heal begins again at the first acked batch that the leader lost, if any.
func (l *Lane) heal(ev *Event, a *Actions) {
	l.settle(busyLoss)
	if ev.Route.Epoch != l.route.Epoch || l.broken {
		l.alarm = false
		return // said by a leader that is none any more: rule 3 asks the new one
	}
	alarm := l.alarm
	l.alarm = false
	if alarm && ev.Lost >= l.head {
		if ev.Found {
			l.last.Epoch, l.last.Firm = l.route.Epoch, false
		}
		l.allThere(a)
		return
	}
	l.regress = false
	end := max(l.top, l.head)
	if l.doubt {
		end = max(end, l.batch.Next())
	}
	at := ev.Lost
	if at >= l.head {
		l.satisfied()
		l.sought = l.tries > 1 // an attempt before the refused one may have been appended
		if !l.sought {
			l.renew(true, a)
		}
		return
	}
	l.last = ev.Acked // acks from here on never count against a leader again
	if l.last.Count == 0 {
		l.last.Epoch = -1
	}
	if at >= l.top && at >= ev.Held { // a first step back
		a.report(ReportHealed, at, l.head, 0)
		l.top, l.unsure, l.unbroken, l.entire = end, ev.Unsure, true, true
		l.moveHead(at, at, a)
		return
	}
	why, maybe := ReasonRefused, max(l.top, at)
	if l.tries > 1 {
		maybe = max(maybe, l.batch.Next())
	}
	if at < ev.Held {
		why, maybe = ReasonLost, end
		a.report(ReportLost, at, ev.Held, why)
		at = ev.Held
	}
	told := at
	if at == l.head {
		told += min(l.counted, uint64(l.batch.Count))
	}
	a.report(ReportMaybeDoubled, told, maybe, why)
	l.top = 0
	l.needID = why
	l.moveHead(at, min(ev.Lost, at), a)
}

// renew ends an identity that the leader refuses although it lost nothing. absent:
// the batch at head is in no log.
func (l *Lane) renew(absent bool, a *Actions) {
	told := l.batch.Next()
	if !absent {
		told = l.head + min(l.counted, uint64(l.batch.Count))
	}
	a.report(ReportMaybeDoubled, told, max(l.top, l.batch.Next()), ReasonRefused)
	l.top, l.needID = 0, ReasonRefused
	l.forgetDoubt()
}

// moveHead starts again, behind a loss, at index at, which may be the head itself; from lost to there all is gone.
// That is durable even then: another start would take the acks from there on
// for proof of the same loss.
func (l *Lane) moveHead(at, lost uint64, a *Actions) {
	l.forgetDoubt()
	l.satisfied()
	l.head = at
	l.dropBatch()
	l.ask(busyHead, a, Action{Kind: ActMoveHead, Index: at, Top: l.top, Lost: lost, Acked: l.last})
}

// leave gives up a topic, which is gone or in a cluster that an operator gives
// up, for the one of its name that metadata show. What was acked went into the
// old log. What is in doubt is sent again: it can be in the new one only if a
// request that went by the topic's name came late, or was sent before metadata
// showed that there is another cluster.
func (l *Lane) leave(why Reason, a *Actions) {
	if l.doubt && l.unheard {
		a.report(ReportMaybeDoubled, l.head, l.batch.Next(), why)
	}
	l.id = Identity{From: l.head, PID: -1, Partition: -1}
	l.needID = why
	l.notBefore, l.cause = 0, CauseNone
	l.last.Epoch = -1
	l.top, l.otherSince = 0, 0
	l.forgetDoubt()
	l.cut, l.next = CutNone, noIdentity // what the old one took says nothing about the new one
	l.forgetRoute()
}
