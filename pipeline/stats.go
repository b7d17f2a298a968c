package pipeline

import (
	"cmp"
	"time"

	"shipper/internal/steady"
	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// Stats is a snapshot of what the agent has done since its start. Any
// goroutine may take one.
type Stats struct {
	Uptime         time.Duration
	LinesRead      uint64
	BytesRead      uint64
	LinesSpooled   uint64 // durable
	BatchesSpooled uint64
	ReadsBlocked   uint64                       // times that a reader found the budget empty
	SpoolFullFor   time.Duration                // for so long lines have found no room: reading pauses, or they are dropped; 0: there is room
	Dropped        []Dropped                    // what was not delivered, by source and reason
	Sources        []SourceStats                // in the order of the configuration
	DamagedRecords uint64                       // lost to damage of the spool: found at the start, and when they were to be sent
	Records        map[string]map[string]uint64 // dropped or changed, by source block and reason
	Tail           tail.Stats
	Spool          spool.Stats
	Kafka          kafka.Stats
}

// Dropped counts records that are not delivered: see the ledger of gaps.
type Dropped struct {
	Source  string // "": unknown
	Reason  string
	Records uint64
}

func cmpDropped(a, b *Dropped) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
}

// SourceStats says how a source shares the spool.
type SourceStats struct {
	Name       string
	SpoolBytes int64 // its lines that are still to be sent, about
	ShareBytes int64 // kept for them whatever other sources write
	Paused     bool  // they find no room: its files wait
}

// Stats takes a snapshot.
func (a *Agent) Stats() Stats {
	s := Stats{Uptime: time.Since(a.start), LinesSpooled: a.commits.stats.records.Load(), BatchesSpooled: a.commits.stats.batches.Load(),
		Tail: a.watcher.Stats(), Spool: a.spool.Stats(), Kafka: a.sink.Stats()}
	s.Records = a.recordCounts()
	s.DamagedRecords = a.damaged + s.Kafka.DamagedRecords
	if since := a.commits.stats.fullSince.Load(); since > 0 {
		s.SpoolFullFor = max(1, steady.Since(steady.Time(since)))
	}
	if list := a.commits.stats.dropped.Load(); list != nil {
		s.Dropped = *list
	}
	for i := range a.intakes {
		x := &a.intakes[i]
		s.Sources = append(s.Sources, SourceStats{Name: a.cfg.Sources[i].Name, SpoolBytes: x.spoolBytes.Load(), ShareBytes: x.kept, Paused: x.paused.Load()})
	}
	for _, r := range a.readers {
		s.LinesRead += r.stats.lines.Load()
		s.BytesRead += r.stats.bytes.Load()
		s.ReadsBlocked += r.stats.blocked.Load()
	}
	return s
}
