package kafka

import "log/slog"

// The proof line: what became of records that were in doubt, or that the brokers
// lost. It begins when the lane sends a batch again, looks for it, or looks for a
// loss, and ends in one line of the log, when all that it is about is acked or
// given up.

// reckoning is one Resolve or Heal under way, of one lane. Numbers are records.
type reckoning struct {
	open    bool
	heal    bool
	since   int64  // ms
	until   uint64 // index; the head must get there
	inDoubt uint64 // that a broker may or may not have had
	stored  uint64 // that it had
	resent  uint64 // that it has since they were sent again
	lost    uint64 // that it had acked and lost, and the spool no longer holds
	healed  uint64 // that it had acked and lost, and which are sent again
	doubled uint64 // that may be there twice

	known bool // of the batch at head: an answer or a look at the log showed that it was there
}

// prove follows what a lane does.
func (s *Sink) prove(r *row, a *Action) {
	p := &r.reckon
	switch a.Kind {
	case ActSend:
		if !p.open && r.lane.tries > 1 {
			s.openReckoning(r)
		}
	case ActReadBack, ActFindLoss:
		s.openReckoning(r)
		p.heal = p.heal || a.Kind == ActFindLoss
	case ActAck:
		switch n := uint64(a.Acked.Count); {
		case !p.open || a.Acked.First >= p.until:
		case p.known:
			p.stored += n
		default:
			p.resent += n
		}
		p.known = false
	case ActReport:
		switch a.Report {
		case ReportMaybeDoubled, ReportLost, ReportHealed:
			s.openReckoning(r)
		}
		p.report(a)
	}
}

func (s *Sink) openReckoning(r *row) {
	p := &r.reckon
	if p.open {
		return
	}
	*p = reckoning{open: true, since: s.now(), until: r.lane.head, known: p.known}
	if r.lane.batch.Count > 0 {
		p.until = r.lane.batch.Next()
		if r.lane.doubt {
			p.inDoubt = uint64(r.lane.batch.Count)
		}
	}
}

func (p *reckoning) report(a *Action) {
	switch a.Report {
	case ReportMaybeDoubled:
		p.doubled += a.Records
	case ReportNotDoubled:
		p.doubled -= min(p.doubled, a.Records)
		return
	case ReportLost:
		p.lost, p.heal = p.lost+a.Records, true
	case ReportHealed:
		p.healed, p.heal = p.healed+a.Records, true
	case ReportFound:
		p.known = true
		return
	default:
		return
	}
	p.until = max(p.until, a.Index+a.Records)
}

// closeReckoning writes the line once the lane is through.
func (s *Sink) closeReckoning(r *row) {
	p := &r.reckon
	if !p.open || r.lane.head < p.until || r.lane.busy == busyLoss || r.lane.busy == busyHead {
		return
	}
	p.open = false
	what, level := "records in doubt are settled", slog.LevelInfo
	if p.heal {
		what, level = "a loss at the brokers is settled", slog.LevelWarn
		if p.lost+p.healed+p.doubled == 0 {
			what, level = "a loss at the brokers was looked for, and there is none", slog.LevelInfo
		}
	}
	if p.lost > 0 || p.doubled > 0 {
		level = slog.LevelWarn
	}
	if p.heal {
		s.stats.heals.Add(1)
	} else {
		s.stats.resolves.Add(1)
	}
	s.stats.resent.Add(p.resent)
	s.log.Log(s.ctx, level, what, "topic", r.info.Topic, "partition", r.lane.Partition(), "source", r.info.Block, "slot", r.info.Slot, "lane", r.info.ID,
		"in_doubt", p.inDoubt, "stored_already", p.stored, "resent", p.resent, "lost_by_broker", p.lost, "healed", p.healed, "possibly_doubled", p.doubled,
		"ms", s.now()-p.since)
}
