package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shipper/pipeline/record"
	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// shaped is a reader of one block of files whose lines become records, and what it has handed over, as it would be durable.
type shaped struct {
	*bench
	tb      testing.TB
	dir     string
	source  Source
	pattern string // of files in dir

	mu      sync.Mutex // guards the rest
	values  []string
	batches int
	cursors map[uint64]*spool.SourceState
}

func newShaped(tb testing.TB, c record.Config) *shaped {
	return &shaped{tb: tb, dir: tb.TempDir(), pattern: "*.log*", cursors: map[uint64]*spool.SourceState{},
		source: Source{Name: "app", Topic: "t", Linger: time.Second, LineBytesMax: 1_000_000, Oversize: "split", IdleFlush: 5 * time.Second, Lanes: 1, Record: c}}
}

// collect takes a group as the committer would.
func (x *shaped) collect(g *group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range g.batches {
		h, err := kafka.ParseHeader(b.sealed.Header[:])
		if err != nil {
			x.tb.Error(err)
			return
		}
		x.batches++
		rest := b.sealed.Records
		for range h.Count {
			var r kafka.Record
			if r, rest, err = kafka.NextRecord(rest, h.FirstTime); err != nil {
				x.tb.Error(err)
				return
			}
			x.values = append(x.values, string(r.Value))
		}
	}
	for i := range g.commit.Sources {
		s := &g.commit.Sources[i]
		if s.Gone {
			delete(x.cursors, s.ID)
			continue
		}
		if x.cursors[s.ID] == nil {
			x.cursors[s.ID] = &spool.SourceState{}
		}
		x.cursors[s.ID].Source = *s
	}
	for i := range g.commit.Cursors {
		c := &g.commit.Cursors[i]
		x.cursors[c.Source].Cursor = *c
	}
}

// life runs an agent's reader from what was handed over until stop says so. What it had read and not handed over is gone with it. now is the reader's clock.
func (x *shaped) life(budgetBytes int64, block int, step func(r *reader) (now time.Time, more bool)) {
	x.bench = newBench(x.tb, "none", budgetBytes)
	x.taken = x.collect
	if err := x.source.compile(); err != nil {
		x.tb.Fatal(err)
	}
	x.source.codec = x.r.cfg.Sources[0].codec
	x.r.cfg.Sources[0] = x.source
	x.groupMax(16 << 20)
	x.d.slots = slotsOf(x.r.cfg.Sources)
	x.r.reasons, x.r.block = make([]reasonCounts, 1), make([]byte, block)
	o := tail.Options{Blocks: []tail.Block{{Name: "app", Paths: []string{filepath.Join(x.dir, x.pattern)}, LineBytesMax: x.source.LineBytesMax, Joins: x.source.joins(), IdleFlush: x.source.IdleFlush}}, NoInotify: true, ScanInterval: 5 * time.Millisecond}
	for _, s := range x.cursors {
		o.Known = append(o.Known, knownSource(s))
		x.d.recoverSource(s)
	}
	w, err := tail.NewWatcher(o)
	if err != nil {
		x.tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx, x.d) }()
	for {
		now, more := step(x.r)
		if !more {
			break
		}
		x.r.takeMail(now)
		x.r.turns(ctx, now)
		runtime.Gosched()
	}
	for _, of := range x.r.files {
		of.f.Release()
	}
	stop()
	if err := <-done; err != nil {
		x.tb.Fatal(err)
	}
	x.drain()
}

func (x *shaped) got() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.values)
}

// lines tells how many were handed over and compressed.
func (x *shaped) lines() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return uint64(len(x.values))
}

// Lives end anywhere: with records appended and not handed over, with records handed over in the middle of others. Each message comes once, whole and in order.
func TestRecordsAcrossLives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 6 {
		x := newShaped(t, record.Config{Container: record.Auto, Timeout: time.Second})
		var want []string
		var b strings.Builder
		open := map[string]int{}
		for i := range 3000 {
			stream := []string{"stdout", "stderr"}[rng.IntN(2)]
			text, tag := fmt.Sprintf("%d-%s ", i, strings.Repeat("x", rng.IntN(300))), "P"
			at, is := open[stream]
			if !is {
				at, want = len(want), append(want, "")
				open[stream] = at
			}
			want[at] += text
			if rng.IntN(3) == 0 {
				tag = "F"
				delete(open, stream)
			}
			fmt.Fprintf(&b, "2026-11-29T23:28:47.%09dZ %s %s %s\n", i, stream, tag, text)
		}
		if err := os.WriteFile(filepath.Join(x.dir, "0.log"), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		deadline := time.Now().Add(20 * time.Second)
		for lives := 0; len(x.got()) < len(want); lives++ {
			if time.Now().After(deadline) {
				t.Fatalf("round %d: %d of %d records in %d lives", round, len(x.got()), len(want), lives)
			}
			steps := rng.IntN(400)
			x.life(2<<20, 5000+rng.IntN(60_000), func(r *reader) (time.Time, bool) {
				if rng.IntN(3) == 0 {
					now = now.Add(300 * time.Millisecond)
				}
				if rng.IntN(4) == 0 {
					r.seal(r.open)
				}
				steps--
				return now, steps > 0
			})
		}
		if got := x.got(); !slices.Equal(got, want) {
			for i := range got {
				if i >= len(want) || got[i] != want[i] {
					t.Fatalf("round %d, record %d of %d: got %.200q, want %.200q", round, i, len(want), got[i], want[min(i, len(want)-1)])
				}
			}
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// C081: a message ends in the file that took the place of the one it begins in. What stands behind it there is read at once, though
// nothing is added to it and no time passes, and before the files behind that. So are files behind those that hold nothing but its end.
func TestC081ReadsOnBehindAJoin(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string // behind the one with the begin of the message
	}{
		{"in the same file", []string{cri("F", "two") + cri("F", "three"), cri("F", "four")}},
		{"in the next one", []string{cri("F", "two"), cri("F", "three"), cri("F", "four")}},
		{"in the one behind that", []string{cri("P", ""), cri("F", "two"), cri("F", "three"), cri("F", "four")}},
	} {
		for _, kind := range []string{"", ".gz"} {
			for _, pattern := range []string{"a.log", "a.log*"} {
				t.Run(c.name+"/"+pattern+kind, func(t *testing.T) {
					t.Parallel()
					l := newLog(t, record.Config{Container: record.CRI, Timeout: time.Hour}, pattern)
					appendTo(t, l.path, cri("F", "zero")+cri("P", "one "))
					l.read("zero")
					for i, text := range c.files {
						name := fmt.Sprintf("%s.20260101-%06d", l.path, i)
						if l.rename(l.path, name); kind != "" {
							packAs(t, name, kind)
						}
						appendTo(t, l.path, text)
					}
					now := time.Now()
					l.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
						r.seal(r.open)
						return now, len(l.got()) < 4 && time.Now().Before(l.end)
					})
					if got, want := l.got(), []string{"zero", "one two", "three", "four"}; !slices.Equal(got, want) {
						t.Fatalf("got %q, want %q", got, want)
					}
				})
			}
		}
	}
}

// The last event of a compressed generation ends with it: nobody writes to a copy. Of many that were made while no agent ran each would
// take the timeout otherwise.
func TestEventEndsWithItsCopy(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{Multiline: record.Multiline{Start: "^start"}, Timeout: time.Hour}, "a.log")
	appendTo(t, l.path, "start 0\n a\nstart 1\n")
	l.read("start 0\n a")
	for i, text := range []string{" b\n", "start 2\n c", "start 3\n d\nstart 4\n"} {
		appendTo(t, l.path, text)
		name := fmt.Sprintf("%s.20260101-%06d", l.path, i)
		l.rename(l.path, name)
		packAs(t, name, ".gz")
	}
	appendTo(t, l.path, "start 5\nstart 6\n")
	l.read("start 0\n a", "start 1\n b", "start 2\n c", "start 3\n d", "start 4", "start 5")
}

// A rotated file ends in the middle of an event: its part comes after the timeout, and before the file that took its place.
func TestC066RotationInsideAnEvent(t *testing.T) {
	x := newShaped(t, record.Config{Multiline: record.Multiline{Start: "^start"}, Timeout: 2 * time.Second})
	path := filepath.Join(x.dir, "a.log")
	write := func(path, text string) { appendTo(t, path, text) }
	write(path, "start 1\n a\nstart 2\n b\n")
	now, phase, deadline := time.Now(), 0, time.Now().Add(20*time.Second)
	x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		if time.Now().After(deadline) {
			t.Fatalf("phase %d: %q", phase, x.got())
		}
		r.seal(r.open)
		got := x.got()
		switch {
		case phase == 0 && len(got) == 1:
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			write(path, " c\nstart 3\n d\nstart 4\n")
			phase++
		case phase == 1 && len(r.files) == 2:
			phase++
		case phase == 2 && len(got) < 5:
			now = now.Add(100 * time.Millisecond)
		}
		return now, len(got) < 5
	})
	if got, want := x.got(), []string{"start 1\n a", "start 2\n b", " c", "start 3\n d", "start 4"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// An unfinished record ends when its time is over, not when its file is next looked at anyway.
func TestUnfinishedRecordEndsInTime(t *testing.T) {
	x := newShaped(t, record.Config{Multiline: record.Multiline{Start: "^start"}})
	if err := os.WriteFile(filepath.Join(x.dir, "a.log"), []byte("start\n more\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	deadline, due := now.Add(20*time.Second), time.Time{}
	x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		switch {
		case len(r.files) == 0 || r.files[0].due.IsZero():
		case due.IsZero():
			due = r.files[0].due
			now = now.Add(pollInterval / 3) // the looks at the file do not meet it by chance
		default:
			now = now.Add(r.untilDue(now))
		}
		r.seal(r.open)
		return now, len(x.got()) == 0 && time.Now().Before(deadline)
	})
	if late := now.Sub(due); len(x.got()) != 1 || late > pollInterval/10 {
		t.Errorf("got %q, %v after its time", x.got(), late)
	}
}

// A file waits for the unfinished record of the one before it, but not for ever: that one may only be called as if it
// were before it, and be written to all the time.
func TestNotBegunForLong(t *testing.T) {
	x := newShaped(t, record.Config{Multiline: record.Multiline{Start: "^start"}})
	path := filepath.Join(x.dir, "a.log")
	write := func(path, text string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(path, "start older\n")
	now := time.Now()
	found, begun, deadline := now, false, now.Add(20*time.Second)
	x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		if len(r.files) == 1 && r.stats.bytes.Load() > 0 && !begun {
			begun = true
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			write(path, "start younger\nstart last\n")
		}
		if len(r.files) == 2 {
			write(path+".1", " more\n")
			now = now.Add(100 * time.Millisecond)
		}
		r.seal(r.open)
		return now, !slices.Contains(x.got(), "start younger") && time.Now().Before(deadline)
	})
	if got, waited := x.got(), now.Sub(found); !slices.Contains(got, "start younger") || waited < 7*time.Second || waited > 15*time.Second {
		t.Errorf("the younger file was read: %v, after %v", slices.Contains(got, "start younger"), waited)
	}
}

// Generations that were rotated while no agent ran are found together. Each ends with an event that could go on, and is waited for
// in its turn, also behind one that takes long to read.
func TestC066ChainOfUnfinishedEvents(t *testing.T) {
	x := newShaped(t, record.Config{Multiline: record.Multiline{Start: "^start"}})
	var want []string
	for i := range 6 {
		events := []string{fmt.Sprintf("start %d", i), fmt.Sprintf("start %d\n more", i)}
		if i == 0 {
			events = slices.Insert(events, 1, slices.Repeat([]string{"start 0" + strings.Repeat("x", turnBytesMax*2/3)}, 3)...)
		}
		want = append(want, events...)
		appendTo(t, filepath.Join(x.dir, fmt.Sprintf("a.log.%d", 6-i)), strings.Join(events, "\n")+"\n")
		time.Sleep(12 * time.Millisecond) // the clock of the file system moves
	}
	now, found, deadline := time.Now(), false, time.Now().Add(20*time.Second)
	x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		switch found = found || len(r.files) == 6; {
		case found && r.stats.bytes.Load() < 2*turnBytesMax:
			now = now.Add(5 * time.Second)
		case found:
			now = now.Add(100 * time.Millisecond)
		}
		r.seal(r.open)
		return now, len(x.got()) < len(want) && time.Now().Before(deadline)
	})
	if got := x.got(); !slices.Equal(got, want) {
		for i := range got {
			got[i] = got[i][:min(len(got[i]), 20)]
		}
		t.Fatalf("got %q", got)
	}
}

// A rate limit pauses files and not the reader. It is of the source: two files take twice as long. A file that took the
// place of one that waits comes behind it.
func TestRateLimitPauses(t *testing.T) {
	x := newShaped(t, record.Config{Filter: record.Filter{LinesPerSecond: 100}})
	write := func(name, text string, n int) {
		if err := os.WriteFile(filepath.Join(x.dir, name), []byte(strings.Repeat(text+"\n", n)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.log", "a older", 2000) // it waits for longer than a file waits for an unfinished record before it
	write("b.log", "b", 500)
	now := time.Now()
	start, begun, rotated, found, deadline := now, false, false, false, time.Now().Add(20*time.Second)
	x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		begun, found = begun || len(r.files) == 2, found || len(r.files) == 3
		if begun && (!rotated || found) {
			now = now.Add(10 * time.Millisecond)
		}
		r.seal(r.open)
		if !rotated && r.stats.lines.Load() > 300 {
			rotated = true
			if err := os.Rename(filepath.Join(x.dir, "a.log"), filepath.Join(x.dir, "a.log.1")); err != nil {
				t.Fatal(err)
			}
			write("a.log", "a younger", 500)
		}
		return now, len(x.got()) < 3000 && time.Now().Before(deadline)
	})
	got := x.got()
	if took := now.Sub(start); len(got) != 3000 || took < 28*time.Second || took > 31*time.Second {
		t.Fatalf("%d lines in %v", len(got), took)
	}
	if b := strings.Count(strings.Join(got[:1000], " "), "b"); b < 450 {
		t.Errorf("%d of the first 1000 lines are of b.log, and 500 of it were there", b)
	}
	if first := slices.Index(got, "a younger"); slices.Contains(got[first:], "a older") {
		t.Error("the lines of a.log are out of order")
	}
}

// Read, split, parse, join, batch: nothing is allocated for a record.
func TestNoAllocationPerShapedRecord(t *testing.T) {
	const lines = 200_000
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		fmt.Fprintf(f, "2026-11-29T23:28:47.%09dZ stdout %s GET /item/%d?page=%d HTTP/1.1 200\n", i, "PF"[i%4/3:][:1], i*31%9973, i%17)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	x := newBench(t, "none", 64<<20)
	s := &x.r.cfg.Sources[0]
	s.Record = record.Config{Container: record.CRI, Headers: []string{"offset", "stream"}, Key: "path"}
	if err := s.compile(); err != nil {
		t.Fatal(err)
	}
	x.groupMax(16 << 20)
	x.r.reasons = make([]reasonCounts, 1)
	x.readAll(t, path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x.readAll(t, path)
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / lines; per > 0.02 {
		t.Fatalf("%.4f allocations a line", per)
	}
	if got := x.r.stats.lines.Load(); got != 2*lines/4 {
		t.Fatalf("%d records", got)
	}
}

// BenchmarkShapes is what a line costs in processor time from the file to the compressed batch, as it is and in other forms; the
// message is the same. The least of all rounds: what else runs on the machine only adds to it.
func BenchmarkShapes(b *testing.B) {
	const lines = 300_000
	for _, codec := range []string{"lz4", "zstd"} {
		for _, shape := range []struct {
			name, before, after string
			c                   record.Config
		}{
			{"raw", "", "", record.Config{}},
			{"cri", "2026-11-29T23:28:47.123456789Z stdout F ", "", record.Config{Container: record.CRI}},
			{"docker", `{"log":"`, `\n","stream":"stdout","time":"2026-11-29T23:28:47.123456789Z"}`, record.Config{Container: record.Docker}},
			{"multiline", "", "", record.Config{Multiline: record.Multiline{Start: `^10\.1\.`}}},
			{"headers", "", "", record.Config{Headers: []string{"host", "path", "offset"}}},
			{"json", "", "", record.Config{JSON: record.JSON{On: true}}},
		} {
			b.Run(codec+"/"+shape.name, func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "app.log")
				f, err := os.Create(path)
				if err != nil {
					b.Fatal(err)
				}
				for i := range lines {
					fmt.Fprintf(f, "%s10.1.%d.%d - - [29/Nov/2026:23:28:47 +0000] GET /item/%d?page=%d HTTP/1.1 200 %d rt=0.%03d%s\n", shape.before,
						i%7, i%251, i*31%9973, i%17, 500+i*7%4096, i%1000, shape.after)
				}
				f.Close()
				x := newBench(b, codec, 64<<20)
				s := &x.r.cfg.Sources[0]
				s.Record = shape.c
				if err := s.compile(); err != nil {
					b.Fatal(err)
				}
				x.groupMax(16 << 20)
				x.r.reasons = make([]reasonCounts, 1)
				read := func() time.Duration {
					before := processorTime(b)
					x.readAll(b, path)
					for x.records.Load() < x.r.stats.lines.Load() {
						time.Sleep(time.Millisecond) // the compressors have work left
					}
					return processorTime(b) - before
				}
				read()
				least := time.Duration(math.MaxInt64)
				for b.Loop() {
					least = min(least, read())
				}
				b.ReportMetric(float64(least)/lines, "cpu-ns/line")
			})
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Times that the guard moves are told once for a source, whichever reader met them.
func TestMovedTimesAreToldOnce(t *testing.T) {
	var told bytes.Buffer
	intakes := make([]intake, 2)
	cfg := &Config{Sources: []Source{{Name: "app"}, {Name: "nginx"}}}
	for range 3 {
		r := &reader{cfg: cfg, log: slog.New(slog.NewTextHandler(&told, nil)), start: time.Now().Add(-time.Minute), intakes: intakes, reasons: make([]reasonCounts, 2)}
		for block := range cfg.Sources {
			r.scratch.record.Counts[record.TimeClamped] = 5
			r.publish(block)
		}
		r.publish(0)
	}
	for want, times := range map[string]int{"source=app": 1, "source=nginx": 1, "records=5": 2, "\n": 2} {
		if n := strings.Count(told.String(), want); n != times {
			t.Errorf("%q is there %d times, want %d, in %s", want, n, times, told.String())
		}
	}
}
