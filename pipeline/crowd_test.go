package pipeline

import (
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"shipper/internal/vfs"
	"shipper/sink/kafka"
	"shipper/spool"
)

// crowd is a committer over a real spool that many sources have filled; the
// lanes of some of them are never acked.
type crowd struct {
	t       *testing.T
	c       *committer
	log     *spool.Log
	lanes   []*lane
	next    []uint64 // by source, like the rest
	head    []uint64
	stuck   []bool
	typical []int // bytes of its batches
	most    []int
	records []byte
}

func newCrowd(t *testing.T, rng *rand.Rand, sources int, bytesMax int64) *crowd {
	t.Helper()
	log, _, err := spool.Open(spool.Options{Dir: "/spool", FS: vfs.NewMem(), MaxBytes: bytesMax})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{Spool: Spool{Dir: "/spool", RetainAckedBytes: 64 << 20}, Sources: make([]Source, sources)}
	for i := range cfg.Sources {
		cfg.Sources[i].LineBytesMax = 10_000
	}
	x := &crowd{t: t, log: log, records: make([]byte, 2<<20), next: make([]uint64, sources), head: make([]uint64, sources)}
	for i := range x.records {
		x.records[i] = byte(rng.Uint32())
	}
	x.c = &committer{log: log, slog: slog.New(slog.DiscardHandler), cfg: cfg, budget: newBudget(1<<30, 1<<20, sources), intakes: make([]intake, sources),
		blockOf: map[uint32]int{}, shares: dividedSpool(cfg, bytesMax, 4*log.GroupBytesMax()), seen: newProgress()}
	var commit spool.Commit
	for i := range sources {
		l := &lane{id: uint32(i + 1), block: i}
		x.lanes = append(x.lanes, l)
		x.c.blockOf[l.id] = i
		commit.Lanes = append(commit.Lanes, spool.Lane{ID: l.id, Block: fmt.Sprint(i), Topic: "logs"})
		r := roomFor(10_000, log.GroupBytesMax(), 64<<20).within(x.c.shares.kept[i])
		x.most = append(x.most, int(r.shareMax)-frameSlackBytes)
		x.typical = append(x.typical, min(x.most[i], []int{40, 300, 3000, 50_000, 1 << 20}[rng.IntN(5)]))
		x.stuck = append(x.stuck, i > 0 && rng.IntN(2) == 0)
	}
	if _, err := log.Append(nil, nil, &commit); err != nil {
		t.Fatal(err)
	}
	return x
}

// write offers a batch of n bytes of a source.
func (x *crowd) write(source, n int) (took bool) {
	x.t.Helper()
	ready := make(chan struct{})
	close(ready)
	b := &batch{lane: x.lanes[source], first: x.next[source], count: 1, ready: ready,
		sealed: kafka.Sealed{Records: x.records[:n], RecordsCRC: crc32.Checksum(x.records[:n], crc32.MakeTable(crc32.Castagnoli)), Count: 1}}
	x.c.measured = time.Time{} // as often as it takes
	full, err := x.c.appendGroup(&group{block: source, batches: []*batch{b}})
	if err != nil {
		x.t.Fatal(err)
	}
	x.c.appended, x.c.refs = x.c.appended[:0], x.c.refs[:0]
	if !full {
		x.next[source]++
	}
	return !full
}

// ack makes what healthy sources have written durable and acked.
func (x *crowd) ack() {
	x.t.Helper()
	if err := x.log.Sync(); err != nil {
		x.t.Fatal(err)
	}
	var commit spool.Commit
	for i, next := range x.next {
		if !x.stuck[i] && x.head[i] < next {
			commit.Acks = append(commit.Acks, spool.Ack{Lane: x.lanes[i].id, First: next - 1, Count: 1})
			x.head[i] = next
		}
	}
	_, err := x.log.Append(nil, nil, &commit)
	if err == nil {
		err = x.log.Sync()
	}
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *crowd) size(rng *rand.Rand, source int) int {
	if rng.IntN(50) == 0 {
		return x.most[source]
	}
	return 1 + rng.IntN(x.typical[source])
}

// Whoever fills the spool with whatever batches and is stuck: one whose batches
// are delivered always finds room for its next one.
func TestHealthySourcesMove(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SHARES_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	sources := 2 + rng.IntN(40)
	x := newCrowd(t, rng, sources, 32<<20)
	t.Logf("SHARES_SEED=%d: %d sources, stuck %v, batches %v of at most %v, kept %v", seed, sources, x.stuck, x.typical, x.most[0], x.c.shares.kept[0])
	outage := 0
	for refused := 0; refused < sources; outage++ {
		if s := rng.IntN(sources); !x.write(s, x.size(rng, s)) {
			refused++
		}
		if outage%100 == 0 {
			if err := x.log.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.ack()
	written := int64(0)
	for i := 0; written < 32<<20 && i < 1_000; i++ {
		s := rng.IntN(sources)
		n := x.size(rng, s)
		took := x.write(s, n)
		if !took && !x.stuck[s] {
			x.ack()
			took = x.write(s, n)
		}
		if !took && !x.stuck[s] {
			t.Fatalf("round %d: source %d finds no room for %d bytes, %d of its %d are used; %d bytes in the outage; %+v", i, s, n, x.c.shares.used[s], x.c.shares.kept[s], outage, x.log.Stats())
		}
		if took {
			written += int64(n)
		}
		if i%8 == 0 {
			x.ack()
		}
	}
	t.Logf("%d batches in the outage, then %d bytes; %+v", outage, written, x.log.Stats())
}
