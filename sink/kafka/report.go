package kafka

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What the sink tells people: counters, one log line for each recovery, and one
// warning for each kind of trouble and period.

type stats struct {
	ackedRecords, ackedBatches, sentBatches, retries, refusals atomic.Uint64
	maybeDoubled, lost, healed, found, newIdentities, damaged  atomic.Uint64
	cutBatches, mergedBatches, deadLetters, shifted, rePlaced  atomic.Uint64
	unreadable                                                 atomic.Int64
	resolves, heals, resent                                    atomic.Uint64
	oldest                                                     atomic.Int64
}

// Stats is a snapshot of the sink's counters since the start.
type Stats struct {
	AckedRecords, AckedBatches uint64 // the broker has them
	SentBatches                uint64 // attempts
	Retries                    uint64 // attempts without success
	Refusals                   uint64 // by sequence: 0 in a healthy cluster
	MaybeDoubledRecords        uint64
	LostRecords                uint64        // acked, then lost by the broker, and no longer held
	DamagedRecords             uint64        // in spooled batches that could not be read when they were to be sent
	HealedRecords              uint64        // acked, lost by the broker, and sent again
	FoundRecords               uint64        // in doubt, and found in the log
	Resolves, Heals            uint64        // doubts that were settled; losses at the brokers that were, or were looked for
	ResentRecords              uint64        // in these, sent again and taken
	CutBatches                 uint64        // cut anew, since they were larger than their topic takes or held a record that it refuses
	MergedBatches              uint64        // that became parts of larger ones, since many small ones waited
	DeadLetters                uint64        // records that their topic does not take, kept in files
	ShiftedRecords             uint64        // in their topic with another time, since it refused their own
	RePlacedLanes              uint64        // of keys whose partition is gone: their records go to another
	NewIdentities              uint64        // besides the one per lane and start
	UnreadableTopics           int64         // which we have no right to read: a doubt that outlives the brokers' memory ends as possibly doubled
	OldestUnacked              time.Duration // how long the oldest batch without a durable ack has waited, see age.go; 0: there is none
}

// Stats may be called from any goroutine.
func (s *Sink) Stats() Stats {
	x := &s.stats
	return Stats{AckedRecords: x.ackedRecords.Load(), AckedBatches: x.ackedBatches.Load(), SentBatches: x.sentBatches.Load(),
		Retries: x.retries.Load(), Refusals: x.refusals.Load(), MaybeDoubledRecords: x.maybeDoubled.Load(), LostRecords: x.lost.Load(),
		DamagedRecords: x.damaged.Load(), HealedRecords: x.healed.Load(), FoundRecords: x.found.Load(), Resolves: x.resolves.Load(), Heals: x.heals.Load(), ResentRecords: x.resent.Load(),
		CutBatches: x.cutBatches.Load(), MergedBatches: x.mergedBatches.Load(), DeadLetters: x.deadLetters.Load(), ShiftedRecords: x.shifted.Load(), RePlacedLanes: x.rePlaced.Load(), NewIdentities: x.newIdentities.Load(), UnreadableTopics: x.unreadable.Load(), OldestUnacked: s.oldestUnacked()}
}

func (s *Sink) report(r *row, a Action) {
	log := s.log.With("topic", r.info.Topic, "partition", r.lane.Partition(), "source", r.info.Block, "slot", SlotName(r.info.Slot), "lane", r.info.ID, "from_index", a.Index, "records", a.Records)
	switch a.Report {
	case ReportMaybeDoubled:
		s.stats.maybeDoubled.Add(a.Records)
		log.Debug("records may be in the topic twice: the broker may have forgotten them and they could not be looked for", "why", a.Reason.String())
	case ReportNotDoubled:
		s.stats.maybeDoubled.Add(-a.Records)
		log.Debug("the broker's answer shows that records reported as possibly doubled are there once")
	case ReportLost:
		s.stats.lost.Add(a.Records)
		log.Error("the brokers lost records that they had acknowledged, and the spool no longer holds them", "at_most", a.Records)
	case ReportHealed:
		s.stats.healed.Add(a.Records)
		log.Debug("the brokers lost records that they had acknowledged; they are sent again from the spool")
	case ReportFound:
		s.stats.found.Add(a.Records)
		log.Debug("records in doubt were found in the log; they are not sent again")
	case ReportNewIdentity:
		s.stats.newIdentities.Add(1)
		log.Warn("the lane goes on under a new producer id", "why", a.Reason.String())
	case ReportNotOurs:
		log.Error("an answer shows that another producer used this lane's producer id; the batch is sent again under a new one")
	case ReportShifted:
		s.stats.shifted.Add(a.Records)
		s.warn("the topic refuses the records' own times; they are moved to times that it takes", "topic", r.info.Topic, "source", r.info.Block, "records", a.Records)
	case ReportUnverified:
		log.Warn("the leader does not know the epoch of our last ack: it cannot be told whether it lost records")
	}
}

const quietMs = 10_000 // between two warnings of one kind

// warn logs at most one warning of a kind in a period.
func (s *Sink) warn(msg string, args ...any) {
	if now := s.now(); now >= s.quiet[msg] {
		s.quiet[msg] = now + quietMs
		s.log.Warn(msg, args...)
	}
}

// refusal logs an answer that is no success.
func (s *Sink) refusal(it *item, out *PartOutcome) {
	err := kerr.ErrorForCode(out.Code)
	args := []any{"topic", it.topic, "partition", it.part, "error", err}
	if out.ErrorMessage != "" {
		args = append(args, "message", out.ErrorMessage)
	}
	advice := Advice(out.Code)
	if it.row.fault.keyless() {
		advice = adviceKeys
	}
	if advice != "" {
		args = append(args, "advice", advice)
	}
	s.warn("broker did not take a batch: "+err.Error(), args...)
}

// unread handles a batch whose frame could not be read from the spool.
func (s *Sink) unread(it *item) {
	if errors.Is(it.err, ErrDamaged) {
		s.log.Error("a spooled batch is damaged and cannot be sent; a gap is recorded in its place", "topic", it.topic, "partition", it.part,
			"records", it.ref.Count, "error", it.err)
		s.stats.damaged.Add(uint64(it.ref.Count))
		s.cfg.Journal.Skip(it.row.info.ID, it.ref.Batch)
		return // the lane waits for NoticeSkipKept
	}
	s.warn("a spooled batch could not be read", "topic", it.topic, "error", it.err)
	s.step(it.row, Event{Kind: EvUnanswered, NotSent: true})
}

// speak logs when a lane begins and ends to wait for something, and what became
// of a doubt or a loss.
func (s *Sink) speak(r *row) {
	s.closeReckoning(r)
	if r.info.Acked != nil {
		r.info.Acked.Store(r.lane.InKafka())
	}
	cause := r.lane.Cause()
	if cause == r.cause {
		return
	}
	before := r.cause
	r.cause = cause
	if r.info.Waits != nil {
		r.info.Waits.Store(uint32(cause))
	}
	if cause != CauseNone {
		args := []any{"topic", r.info.Topic, "partition", r.lane.Partition(), "source", r.info.Block, "slot", SlotName(r.info.Slot)}
		if advice := cause.Advice(); advice != "" {
			args = append(args, "advice", advice)
		}
		s.warn("lane waits: "+cause.String(), args...)
	} else {
		s.log.Info("lane goes on", "topic", r.info.Topic, "partition", r.lane.Partition(), "source", r.info.Block, "waited_for", before.String())
	}
}
