// Package pipeline is the agent: it starts the stages, connects them and stops
// them. A line goes one way only:
//
//	tail.Watcher   finds files                            1 goroutine
//	reader         read, split, batch            read.go  R goroutines
//	compressor     compress sealed batches   compress.go  C goroutines
//	committer      spool, sync                 commit.go  1 goroutine
//	kafka.Sink     sequence, send, take acks              1 goroutine, and one per connection
//
// Batches of one reader stay in order: a sealed batch is put into the
// committer's queue and a compressor's at once, and the committer waits for it.
// Acks and identities go back from the sink to the committer through the
// journal; bytes go back to the readers through the budget.
//
// What survives a crash is in the spool, and only there: see recover.go.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

const (
	readersMax      = 4
	groupsQueueMax  = 16
	sinkGrace       = 3 * time.Second // for answers under way at a stop
	slowMetadataMax = 10 * time.Second
	budgetShare     = 8  // of MemoryBytesMax
	gcPercent       = 25 // little is allocated once all is warm: a small heap costs nothing
	budgetBytesMin  = 8 << 20
	memoryBytesBase = 128 << 20
)

// Agent is one running shipper.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	spool   *spool.Log
	clients []*kafka.Client // by connection to a broker
	sink    *kafka.Sink
	watcher *tail.Watcher
	readers []*reader
	commits *committer
	files   *dispatch
	intakes []intake // by source block
	work    chan *batch
	groups  chan *group
	dead    chan struct{}
	start   time.Time
	damaged uint64 // records that this start found missing from the spool
}

// Open recovers the spool and makes an agent that is ready to run. Errors are
// what an operator must see to. Nothing is read or sent yet.
func Open(cfg Config) (*Agent, error) {
	if cfg.MemoryBytesMax == 0 {
		cfg.MemoryBytesMax = memoryBytesBase
	}
	cfg.Sources = slices.Concat(cfg.Sources, gapSource(&cfg))
	for i := range cfg.Sources {
		if err := cfg.Sources[i].compile(); err != nil {
			return nil, err
		}
	}
	debug.SetMemoryLimit(cfg.MemoryBytesMax)
	debug.SetGCPercent(gcPercent)
	a := &Agent{cfg: cfg, log: cfg.Logger, start: time.Now(), dead: make(chan struct{})}
	if err := a.openKafka(); err != nil {
		return nil, err
	}
	o := spool.Options{Dir: cfg.Spool.Dir, MaxBytes: cfg.Spool.MaxBytes, MinFreeBytes: cfg.Spool.MinFreeBytes,
		RetainAckedBytes: cfg.Spool.RetainAckedBytes, AllowNetworkFS: cfg.Spool.AllowNetworkFS, RefsMax: kafka.RefsMax, Blocks: cfg.Blocks(), Logger: cfg.Logger}
	if cfg.Spool.options != nil {
		cfg.Spool.options(&o)
	}
	log, recovered, err := spool.Open(o)
	if err != nil {
		a.closeKafka()
		return nil, err
	}
	a.spool = log
	if err := a.connect(recovered); err != nil {
		a.closeKafka()
		return nil, errors.Join(err, log.Close())
	}
	return a, nil
}

func (a *Agent) openKafka() error {
	k := &a.cfg.Kafka
	if err := codecsOf(&a.cfg); err != nil {
		return err
	}
	for range kafka.ConnectionsMax {
		c, err := kafka.NewClient(k.ClientConfig(a.log))
		if err != nil {
			a.closeKafka()
			return err
		}
		a.clients = append(a.clients, c)
	}
	return nil
}

func (a *Agent) closeKafka() {
	for _, c := range a.clients {
		c.Close()
	}
}

// transport asks questions over one client, and spreads requests over all: kgo
// has one produce connection per broker and client.
func (a *Agent) transport() kafka.Transport {
	c := a.clients[0]
	return kafka.Transport{Metadata: c.Metadata, InitProducerID: c.InitProducerID, EndOfEpoch: c.EndOfEpoch, EndOffset: c.EndOffset,
		ReadBack: c.ReadBack, MayRead: c.MayRead, TopicConfig: c.TopicConfig,
		Ping: func(ctx context.Context, broker int32, conn uint8) error { return a.clients[conn].Ping(ctx, broker) },
		Losses: func(broker int32) (n uint64) {
			for _, c := range a.clients {
				n += c.Losses(broker)
			}
			return n
		},
		Produce: func(broker int32, conn uint8, r *kafka.ProduceRequest, dst []kafka.PartOutcome) ([]kafka.PartOutcome, error) {
			if conn == kafka.ConnApart {
				// This client is seldom used, and asks where brokers are first.
				ctx, cancel := context.WithTimeout(context.Background(), slowMetadataMax)
				defer cancel()
				if _, err := a.clients[conn].Metadata(ctx, []string{}); err != nil {
					return dst, err
				}
			}
			return a.clients[conn].Produce(broker, r, dst)
		}}
}

// connect makes the stages and gives them what the spool remembers.
func (a *Agent) connect(rec *spool.Recovered) error {
	cfg := &a.cfg
	groupMax := a.spool.GroupBytesMax()
	budgetMax := budgetBytes(cfg, groupMax)
	shares := dividedSpool(cfg, a.spool.Stats().BytesMax, 4*groupMax)
	for i := range cfg.Sources {
		s := &cfg.Sources[i]
		if err := s.checkRoom(groupMax); err != nil {
			return fmt.Errorf("spool %s: %w", cfg.Spool.Dir, err)
		}
		s.room = roomFor(s.recordBytesMax(), groupMax, budgetMax)
		if len(cfg.Sources) > 1 {
			s.room = s.room.within(shares.kept[i])
		}
	}
	a.work, a.groups = make(chan *batch, groupsQueueMax), make(chan *group, groupsQueueMax)
	blocks := len(cfg.Sources)
	a.intakes = make([]intake, blocks)
	for i := range a.intakes {
		a.intakes[i].kept, a.intakes[i].longest = shares.kept[i], cfg.Sources[i].longest()
	}
	b := newBudget(budgetMax, largestBatch(cfg, groupMax, budgetMax), blocks)
	b.repays = func(block int) bool { return a.intakes[block].findsRoom() }
	for i := range max(1, min(readersMax, runtime.GOMAXPROCS(0)/2)) {
		r := &reader{cfg: cfg, log: a.log, n: i, start: a.start, budget: b, work: a.work, groups: a.groups, dead: a.dead, intakes: a.intakes,
			groupMax: groupMax, notify: make(chan struct{}, 1), reasons: make([]reasonCounts, blocks), feeds: map[uint32]*feed{}, short: make([]int64, blocks), stop: make([]bool, blocks)}
		b.freed = append(b.freed, r.notify)
		a.readers = append(a.readers, r)
	}
	a.files = newDispatch(cfg, a.readers, a.intakes)
	dir, err := os.Stat(cfg.Spool.Dir)
	if err != nil {
		return err
	}
	a.commits = &committer{dir: dir, movedAt: time.Now(), log: a.spool, slog: a.log, cfg: cfg, budget: b, groups: a.groups, journal: newJournal(),
		parked: make([]parking, blocks+1), intakes: a.intakes, blockOf: map[uint32]int{}, ledger: newLedger(cfg.Spool.Dir, rec.SpoolID),
		told: map[gapKey]uint64{}, wakeReaders: a.wakeReaders, shares: shares, seen: newProgress()}
	for i := range cfg.Sources {
		a.commits.drops = append(a.commits.drops, cfg.Spool.DropNewest && !cfg.Sources[i].Own)
	}
	a.sink = kafka.NewSink(kafka.SinkConfig{Host: rec.SpoolID, Transport: a.transport(), Journal: &a.commits.journal, Logger: a.log,
		AcksTimeoutMs: int32(cfg.Kafka.AcksTimeout.Milliseconds()), Topics: a.files.topics,
		MergeBytesMax: int(min(batchBytesBase, groupMax*7/8)),
		NewReader:     func() kafka.FrameReader { return frameReader{a.spool.NewReader()} }})
	a.commits.sink = a.sink
	return a.restore(rec)
}

// budgetBytes is the budget between read and spool: a share of the memory, and
// never less than the longest line takes beside another one.
func budgetBytes(cfg *Config, groupMax int64) int64 {
	return max(budgetBytesMin, cfg.MemoryBytesMax/budgetShare, 2*largestBatch(cfg, groupMax, 0))
}

// largestBatch is what the largest batch of any source takes of that budget.
func largestBatch(cfg *Config, groupMax, budgetMax int64) (most int64) {
	for i := range cfg.Sources {
		most = max(most, batchMemory(roomFor(cfg.Sources[i].recordBytesMax(), groupMax, budgetMax).batchMax))
	}
	return most
}

func (a *Agent) wakeReaders() {
	for _, r := range a.readers {
		r.wake()
	}
}

func (a *Agent) restore(rec *spool.Recovered) error {
	var notices []kafka.Notice
	batches, had := 0, begun{}
	for i := range rec.Lanes {
		s := &rec.Lanes[i]
		had.lane(s.Lane, s.Next)
		l := a.files.recover(s)
		if l.block >= 0 {
			a.commits.blockOf[l.id] = l.block
		}
		notices = append(notices, kafka.Notice{Kind: kafka.NoticeLane, ID: l.id, Lane: laneStart(s, l.info(&a.cfg, s.Block))})
		batches += len(s.Batches)
	}
	a.sink.Deliver(notices)
	a.commits.seen.recover(rec, a.files.lanes)
	var known []tail.Known
	had.note(rec.Begun)
	for i := range rec.Sources {
		a.files.recoverSource(&rec.Sources[i])
		known = append(known, knownSource(&rec.Sources[i]))
	}
	a.log.Info("spool recovered", "dir", a.cfg.Spool.Dir, "created", rec.Created, "segments", rec.Segments, "bytes", rec.Bytes, "void_bytes", rec.VoidBytes,
		"lanes", len(rec.Lanes), "files", len(rec.Sources), "batches_to_send", batches, "took", rec.Took)
	for _, d := range rec.Damage {
		a.damaged += d.Records // the spool has told it
	}
	var err error
	if a.watcher, err = tail.NewWatcher(a.tailOptions(known, had)); err != nil {
		return err
	}
	a.files.inherit(rec.Lanes, a.watcher.Heirs())
	return nil
}

// tailOptions needs what the spool knows: files, and the sources that have had their first start.
func (a *Agent) tailOptions(known []tail.Known, had begun) tail.Options {
	o := tail.Options{Known: known, OpenFilesMax: a.cfg.OpenFilesMax, ScanInterval: a.cfg.ScanInterval, NoInotify: a.cfg.NoInotify, SymlinkRoots: a.cfg.SymlinkRoots,
		HeldBytesMax: a.cfg.Spool.HeldBytesMax, HeldFilesMax: a.cfg.Spool.HeldFilesMax, Paused: a.files.paused,
		ExcludePaths: append([]string{a.cfg.Spool.Dir, "/proc/self/fd/1", "/proc/self/fd/2"}, a.cfg.ExcludePaths...), Logger: a.log}
	for i := range a.cfg.Sources {
		s := &a.cfg.Sources[i]
		o.Blocks = append(o.Blocks, tail.Block{Name: s.Name, Paths: s.Paths, Exclude: s.Exclude, IgnoreOlder: s.IgnoreOlder, StartAtEnd: s.StartAtEnd && !had[s.Name], Joins: s.joins(),
			LineBytesMax: s.LineBytesMax, Oversize: oversize(s.Oversize), Encoding: s.fileEncoding(), IdleFlush: s.IdleFlush})
	}
	return o
}

func oversize(rule string) tail.Oversize {
	switch rule {
	case "cut":
		return tail.Cut
	case "skip":
		return tail.Skip
	}
	return tail.Split
}

// Run ships until ctx ends, then flushes what was read to the spool and
// returns nil; whether Kafka is there or not, that takes seconds. An error
// means that the agent cannot go on; what is in the spool and in the files is
// where the next start begins.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers, compressors, others sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		compressors.Go(func() { compress(a.work, a.commits.budget) })
	}
	for _, r := range a.readers {
		readers.Go(func() { r.run(ctx) })
	}
	sinkDone := make(chan struct{})
	others.Go(func() {
		a.sink.Run(ctx, sinkGrace)
		close(sinkDone)
	})
	others.Go(func() {
		if err := a.watcher.Run(ctx, a.files); err != nil {
			cancel(fmt.Errorf("watching files: %w", err))
		}
	})
	var commitErr error
	others.Go(func() {
		if commitErr = a.commits.run(sinkDone); commitErr != nil {
			cancel(commitErr)
		}
		close(a.dead) // readers that wait for room in the spool go too
	})
	readers.Wait()
	close(a.groups)
	close(a.work)
	compressors.Wait()
	others.Wait()
	a.closeKafka()
	if commitErr != nil {
		// A failed write or sync: pages may be lost, so nothing more is
		// written, not even at the end.
		return commitErr
	}
	err := a.spool.Close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// Lanes lists the lanes as the sink sees them. It may be called from any goroutine; ctx bounds the wait for a Run that has
// not begun or has ended.
func (a *Agent) Lanes(ctx context.Context) ([]kafka.LaneView, error) { return a.sink.Lanes(ctx) }

// AdoptCluster has a lane go on in the cluster that answers now; see kafka.Sink.Adopt.
func (a *Agent) AdoptCluster(ctx context.Context, lane uint32) error { return a.sink.Adopt(ctx, lane) }
