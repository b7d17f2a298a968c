//go:build linux

// Command slow measures what a quiet host pays: a few lines a second over some files. It counts the agent's syncs and the bytes it
// writes, scaled to a day, as they decide how long a flash disk lasts and how often a spinning one wakes.
//
//	go run ./benchmarks/slow -lines 10 -files 20 -for 1m -results benchmarks/results
//	go run ./benchmarks/slow -lines 1000 -files 8000 -sources 1000 -lanes 4 -results benchmarks/results
//
// With -lines 0 it measures idling. The process's own figure is /proc/PID/io, which includes file system metadata it caused.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shipper/benchmarks/internal/corpus"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
)

const settle = 5 * time.Second // from the agent's start to the first look

type settings struct {
	linesPerSecond, files int
	sources, lanes        int
	duration              time.Duration
	codec                 string
	dir, results          string
}

func main() {
	var s settings
	flag.IntVar(&s.linesPerSecond, "lines", 10, "lines a second, over all files")
	flag.IntVar(&s.files, "files", 20, "files")
	flag.IntVar(&s.sources, "sources", 1, "source blocks that share the files")
	flag.IntVar(&s.lanes, "lanes", 0, "lanes of each source; 0: the default")
	flag.DurationVar(&s.duration, "for", time.Minute, "how long")
	flag.StringVar(&s.codec, "codec", "zstd", "none, lz4, snappy, gzip or zstd")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "folder for the logs and the spool, on a real disk")
	flag.StringVar(&s.results, "results", "", "also write the table to a file in this folder")
	flag.Parse()
	if err := measure(s); err != nil {
		fmt.Fprintln(os.Stderr, "slow:", err)
		os.Exit(1)
	}
}

func measure(s settings) error {
	dir, err := os.MkdirTemp(s.dir, "shipper-slow-")
	if err != nil {
		return err
	}
	programs, err := run.Build(dir, "shipper", "nullbroker")
	if err != nil {
		return err
	}
	result := report.Result{Name: "slow", Args: os.Args[1:], Machine: report.Machine(dir)}
	b, err := run.StartBroker(run.BrokerOptions{Bin: programs.Path("nullbroker"), CPU: run.AnyCPU, Verify: true})
	if err != nil {
		return err
	}
	defer b.Kill()
	w, err := newWriter(dir, s.files, s.sources)
	if err != nil {
		return err
	}
	o := run.AgentOptions{Bin: programs.Path("shipper"), CPU: run.AnyCPU, Dir: filepath.Join(dir, "agent"), Broker: b.Addr, Codec: s.codec,
		Sources: s.sources, Lanes: s.lanes}
	for i := range s.sources {
		o.Paths = append(o.Paths, filepath.Join(dir, fmt.Sprintf("slow-%04d-*.log", i)))
	}
	a, err := run.StartAgent(o)
	if err != nil {
		return err
	}
	table, runErr := s.watch(a, b, w)
	if err := a.Stop(); runErr == nil && err != nil {
		runErr = err
	}
	if runErr != nil {
		return runErr // the folder stays, with the agent's log
	}
	result.Body.WriteString(table.String())
	if err := result.Save(s.results); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// look is one reading of all counters.
type look struct {
	at    time.Time
	agent run.AgentStats
	usage run.Usage
}

func lookAt(a *run.Agent) (l look, err error) {
	l.at = time.Now()
	if l.agent, err = a.Stats(); err != nil {
		return l, err
	}
	l.usage, err = a.Usage()
	return l, err
}

// watch writes for the set time and compares the counters before and behind it.
func (s settings) watch(a *run.Agent, b *run.Broker, w *writer) (*report.Table, error) {
	// One line in each file first: lanes, identities and cursors are not part of the steady state.
	if err := w.lines(s.files); err != nil {
		return nil, err
	}
	if _, err := b.WaitRecords(int64(s.files), a.Process, time.Minute); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	before, err := lookAt(a)
	if err != nil {
		return nil, err
	}
	if err := w.writeFor(s.duration, s.linesPerSecond); err != nil {
		return nil, err
	}
	after, err := lookAt(a)
	if err != nil {
		return nil, err
	}
	totals, err := b.WaitRecords(w.written, a.Process, time.Minute)
	if err != nil {
		return nil, err
	}
	if l := totals.Lines; totals.Records != w.written || l.Missing+l.Doubled+l.OutOfOrder+l.Foreign > 0 {
		return nil, fmt.Errorf("the lines that arrived are not those written: %+v", *l)
	}
	return s.table(before, after, w, float64(totals.Records)/float64(totals.Batches)), nil
}

func (s settings) table(before, after look, w *writer, perBatch float64) *report.Table {
	seconds := after.at.Sub(before.at).Seconds()
	perDay := 86400 / seconds
	syncs := float64(after.agent.Syncs - before.agent.Syncs)
	spooled := float64(after.agent.SpoolBytesWritten - before.agent.SpoolBytesWritten)
	disk := float64(after.usage.WrittenBytes - before.usage.WrittenBytes)
	cpu := after.usage.CPUSeconds() - before.usage.CPUSeconds()
	logged := float64(w.bytes)

	t := report.NewTable("lines/s", "sources", "files", "seconds", "records/batch", "syncs", "syncs a day", "logged a day MiB", "spool written a day MiB", "disk writes a day MiB",
		"CPU %", "peak RSS MiB")
	t.Add(fmt.Sprint(s.linesPerSecond), fmt.Sprint(s.sources), fmt.Sprint(s.files), fmt.Sprintf("%.0f", seconds), fmt.Sprintf("%.1f", perBatch),
		fmt.Sprintf("%.0f", syncs), fmt.Sprintf("%.0f", syncs*perDay), fmt.Sprintf("%.0f", logged*perDay/report.MiB),
		fmt.Sprintf("%.0f", spooled*perDay/report.MiB), fmt.Sprintf("%.0f", disk*perDay/report.MiB),
		fmt.Sprintf("%.2f", 100*cpu/seconds), fmt.Sprintf("%.1f", float64(after.usage.PeakRSSBytes)/report.MiB))
	return t
}

// writer appends numbered lines to the files in turn.
type writer struct {
	files   []*os.File
	lineOf  []*corpus.Generator
	next    int
	written int64
	bytes   int64 // since writeFor began
}

func newWriter(dir string, files, sources int) (*writer, error) {
	w := &writer{}
	for i := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("slow-%04d-%d.log", i%sources, i/sources)))
		if err != nil {
			return nil, err
		}
		w.files = append(w.files, f)
		w.lineOf = append(w.lineOf, corpus.New(corpus.Options{Kind: corpus.Access, Seed: uint64(i), Tag: fmt.Sprintf("f%04d", i)}))
	}
	return w, nil
}

// lines writes n lines at once.
func (w *writer) lines(n int) error {
	for range n {
		line := w.lineOf[w.next].AppendLine(nil)
		if _, err := w.files[w.next].Write(line); err != nil {
			return err
		}
		w.next = (w.next + 1) % len(w.files)
		w.written++
		w.bytes += int64(len(line))
	}
	return nil
}

// writeFor writes evenly, one line at a time.
func (w *writer) writeFor(d time.Duration, perSecond int) error {
	w.bytes = 0
	if perSecond == 0 {
		time.Sleep(d)
		return nil
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		if err := w.lines(1); err != nil {
			return err
		}
	}
	return nil
}
