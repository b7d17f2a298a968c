package pipeline

import (
	"time"

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
	SpoolFull      bool                         // reading pauses
	OldestUnacked  time.Duration                // age of the oldest spooled batch that Kafka does not have
	DamagedRecords uint64                       // lost to damage of the spool: found at the start, and when they were to be sent
	Records        map[string]map[string]uint64 // dropped or changed, by source block and reason
	Tail           tail.Stats
	Spool          spool.Stats
	Kafka          kafka.Stats
}

// Stats takes a snapshot.
func (a *Agent) Stats() Stats {
	s := Stats{Uptime: time.Since(a.start), LinesSpooled: a.commits.stats.records.Load(), BatchesSpooled: a.commits.stats.batches.Load(),
		SpoolFull: a.commits.stats.blocked.Load(), Tail: a.watcher.Stats(), Spool: a.spool.Stats(), Kafka: a.sink.Stats()}
	s.Records = a.recordCounts()
	s.DamagedRecords = a.damaged + s.Kafka.DamagedRecords
	for _, r := range a.readers {
		s.LinesRead += r.stats.lines.Load()
		s.BytesRead += r.stats.bytes.Load()
		s.ReadsBlocked += r.stats.blocked.Load()
	}
	if s.Kafka.OldestUnackedMs > 0 {
		s.OldestUnacked = max(0, time.Duration(time.Now().UnixMilli()-s.Kafka.OldestUnackedMs)*time.Millisecond)
	}
	return s
}
