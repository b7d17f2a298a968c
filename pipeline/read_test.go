package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shipper/sink/kafka"
	"shipper/tail"
)

// bench is a reader with a compressor behind it and no spool: groups are taken and their buffers given back.
type bench struct {
	r       *reader
	d       *dispatch
	largest atomic.Int64  // group, in bytes
	records atomic.Uint64 // in groups
	batch   atomic.Int64  // largest, in bytes
	jitter  time.Duration // compressors take up to this longer
	keep    bool          // groups and their buffers
	groups  []*group      // kept; read them when records has what is awaited
	taken   func(*group)  // called with each group whose batches are sealed; nil: nobody looks
	drain   func()        // ends all behind the reader, when what was handed over is taken
}

func newBench(tb testing.TB, codec string, budgetBytes int64) *bench {
	tb.Helper()
	cfg := &Config{Kafka: Kafka{Compression: codec}, Sources: []Source{{Name: "app", Topic: "t", Linger: time.Second, LineBytesMax: 1_000_000, IdleFlush: time.Hour}}}
	if err := codecsOf(cfg); err != nil {
		tb.Fatal(err)
	}
	work, groups := make(chan *batch, 16), make(chan *group, 16)
	b := newBudget(budgetBytes, 0, 1)
	x := &bench{}
	x.r = &reader{cfg: cfg, log: slog.New(slog.DiscardHandler), start: time.Now(), budget: b, work: work, groups: groups, dead: make(chan struct{}),
		notify: make(chan struct{}, 1), block: make([]byte, blockBytesMin), feeds: map[uint32]*feed{},
		intakes: make([]intake, 1), short: make([]int64, 1), stop: make([]bool, 1)}
	b.freed = []chan struct{}{x.r.notify}
	x.d = newDispatch(cfg, []*reader{x.r}, x.r.intakes)
	x.groupMax(16 << 20)
	for range 3 {
		go func() {
			tools := compressor{}
			for y := range work {
				if x.jitter > 0 {
					time.Sleep(rand.N(x.jitter))
				}
				tools.seal(y, b)
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for g := range groups {
			x.largest.Store(max(x.largest.Load(), g.bytes))
			for _, y := range g.batches {
				<-y.ready
				x.batch.Store(max(x.batch.Load(), int64(kafka.HeaderBytes+len(y.sealed.Records))))
			}
			if x.taken != nil {
				x.taken(g)
			}
			if x.keep {
				x.groups = append(x.groups, g)
			} else {
				for _, y := range g.batches {
					b.give(0, y.out)
				}
			}
			x.records.Add(g.records)
		}
	}()
	x.drain = sync.OnceFunc(func() {
		close(work)
		close(groups)
		<-done
	})
	tb.Cleanup(x.drain)
	return x
}

// groupMax gives the spool groups of so many bytes.
func (x *bench) groupMax(bytes int64) {
	x.r.groupMax = bytes
	s := &x.r.cfg.Sources[0]
	s.room = roomFor(s.recordBytesMax(), bytes, x.r.budget.total)
}

// readAll reads a file from its beginning to its end, turn by turn.
func (x *bench) readAll(tb testing.TB, path string) {
	w, err := tail.NewWatcher(tail.Options{Blocks: []tail.Block{{Name: "app", Paths: []string{path}, LineBytesMax: 1_000_000}}, NoInotify: true})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx, x.d) }()
	for x.r.takeMail(time.Now()); len(x.r.files) == 0; x.r.takeMail(time.Now()) {
		<-x.r.notify
	}
	for x.r.files[0].more || x.r.files[0].readAt.IsZero() {
		if !x.r.turns(ctx, time.Now()) && x.r.files[0].more {
			<-x.r.notify // the budget is empty
		}
	}
	x.r.seal(x.r.open)
	x.r.release(x.r.files[0])
	x.r.files = x.r.files[:0]
	stop()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

func corpus(tb testing.TB, lines int) (path string, bytes int64) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "app.log")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range lines {
		fmt.Fprintf(f, "10.1.%d.%d - - [29/Nov/2026:23:28:47 +0000] \"GET /item/%d?page=%d HTTP/1.1\" 200 %d rt=0.%03d\n", i%7, i%251, i*31%9973, i%17, 500+i*7%4096, i%1000)
	}
	bytes, err = f.Seek(0, io.SeekCurrent)
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return path, bytes
}

// Read, split, batch: nothing is allocated for a record.
func TestNoAllocationPerRecord(t *testing.T) {
	const lines = 400_000
	path, _ := corpus(t, lines)
	x := newBench(t, "none", 64<<20)
	x.readAll(t, path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x.readAll(t, path)
	runtime.ReadMemStats(&after)
	// Batches, groups and the watcher of this test allocate; records do not.
	if per := float64(after.Mallocs-before.Mallocs) / lines; per > 0.01 {
		t.Fatalf("%.4f allocations a record", per)
	}
}

// A budget that is smaller than what the reader could hold blocks it and never wedges it.
func TestTinyBudget(t *testing.T) {
	path, _ := corpus(t, 100_000)
	x := newBench(t, "zstd", 4<<20)
	x.readAll(t, path)
	if got := x.r.stats.lines.Load(); got != 100_000 {
		t.Fatalf("%d lines were read, want 100000", got)
	}
}

// Readers are faster than compressors, so the budget is empty most of the time.
// Batches are full all the same, and made in the buffers of those before them.
func TestFullBatchesOfAnEmptyBudget(t *testing.T) {
	path, size := corpus(t, 80_000)
	x := newBench(t, "none", 8<<20)
	var batches, fullest, least, last int
	var want uint64
	x.taken = func(g *group) {
		for _, b := range g.batches {
			batches, fullest = batches+1, max(fullest, b.count)
			if batches > 2 { // the first knows nothing of what its lines shrink to
				least = min(least, last)
			}
			last = b.count
		}
		time.Sleep(5 * time.Millisecond) // the reader does not need as long for the next batch
	}
	read := func() uint64 {
		batches, fullest, least, last = 0, 0, math.MaxInt, math.MaxInt
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		want += 80_000
		for x.readAll(t, path); x.records.Load() < want; {
			runtime.Gosched()
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	read()
	allocated := read()
	if batches < 6 || least < fullest*9/10 {
		t.Errorf("%d batches of up to %d records, but for the last of %d or more", batches, fullest, least)
	}
	if allocated > uint64(size)*3/2 {
		t.Errorf("%d bytes were allocated to read %d", allocated, size)
	}
}

// A full batch stays below what brokers take by default, however large the buffers are that it is made in.
func TestBatchesFitTheBroker(t *testing.T) {
	path, _ := corpus(t, 100_000)
	x := newBench(t, "none", 64<<20)
	x.readAll(t, path)
	for x.records.Load() < 100_000 {
		runtime.Gosched()
	}
	const brokerMax = 1_048_588
	if got := x.batch.Load(); got < batchBytesBase/2 || got > brokerMax {
		t.Fatalf("the largest batch has %d bytes, brokers take %d", got, brokerMax)
	}
}

// Thousands of files feed one lane at once, in a spool of small groups.
func TestGroupsFit(t *testing.T) {
	const files = 2_000
	dir := t.TempDir()
	for i := range files {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.log", strings.Repeat("long-name-", 20), i))
		if err := os.WriteFile(path, []byte("a line\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x := newBench(t, "none", 64<<20)
	x.r.cfg.Sources[0].LineBytesMax, x.r.cfg.Sources[0].Lanes = 1000, 1
	x.groupMax(128 << 10)
	x.d.slots = slotsOf(x.r.cfg.Sources)
	w, err := tail.NewWatcher(tail.Options{Blocks: []tail.Block{{Name: "app", Paths: []string{dir + "/*"}, LineBytesMax: 1000}}, NoInotify: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx, x.d) }()
	for x.r.stats.lines.Load() < files {
		x.r.takeMail(time.Now())
		x.r.turns(ctx, time.Now())
	}
	x.r.seal(x.r.open)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for x.records.Load() < files {
		runtime.Gosched()
	}
	if got := x.largest.Load(); got > x.r.groupMax {
		t.Fatalf("a group of up to %d bytes in a spool that takes %d", got, x.r.groupMax)
	}
}

// Compressors that overtake each other keep the order of a lane.
func TestOrderThroughCompressors(t *testing.T) {
	const lines = 60_000
	path := filepath.Join(t.TempDir(), "order.log")
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, "%07d\n", i)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	x := newBench(t, "lz4", 64<<20)
	x.d.topics.Get("t").BatchBytesMax.Store(16 << 10) // many batches
	x.jitter, x.keep = 5*time.Millisecond, true
	x.readAll(t, path)
	for x.records.Load() < lines {
		runtime.Gosched()
	}
	line, batches, raw := 0, 0, []byte(nil)
	for _, g := range x.groups {
		for _, b := range g.batches {
			batches++
			if b.first != uint64(line) {
				t.Fatalf("a batch begins at index %d, want %d", b.first, line)
			}
			header, err := kafka.ParseHeader(b.sealed.Header[:])
			if err == nil {
				raw, err = kafka.Decompress(raw[:0], b.sealed.Records, header.Codec(), 1<<20)
			}
			for rest := raw; err == nil && len(rest) > 0; line++ {
				var rec kafka.Record
				if rec, rest, err = kafka.NextRecord(rest, 0); err == nil && string(rec.Value) != fmt.Sprintf("%07d", line) {
					t.Fatalf("%q in place of line %d", rec.Value, line)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if batches < 10 {
		t.Fatalf("%d batches are too few to overtake each other", batches)
	}
}

func BenchmarkReadSplitBatch(b *testing.B) {
	const lines = 500_000
	path, bytes := corpus(b, lines)
	for _, codec := range []string{"none", "lz4", "zstd"} {
		b.Run(codec, func(b *testing.B) {
			x := newBench(b, codec, 64<<20)
			x.readAll(b, path)
			b.SetBytes(bytes)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				x.readAll(b, path)
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N*lines), "allocs/record")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lines), "ns/record")
		})
	}
}

// A line that is written in pieces is filled again with each of them, and its bytes are read once (C189).
func TestBytesOfUnfinishedLineCountOnce(t *testing.T) {
	x := newBench(t, "none", 64<<20)
	path := filepath.Join(t.TempDir(), "a.log")
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("one\nabc")
	ctx := watchPath(t, x, path)
	for _, c := range []struct {
		text string
		want uint64
	}{{"", 4}, {"def", 4}, {"g\nx", 12}, {"", 12}} {
		write(c.text)
		x.r.files[0].more = true
		x.r.turns(ctx, time.Now())
		if got := x.r.stats.bytes.Load(); got != c.want {
			t.Errorf("after %q: %d bytes, want %d", c.text, got, c.want)
		}
	}
}
