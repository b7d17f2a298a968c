//go:build linux

// Command files measures what many files cost the real agent and each other: processor time while all are at rest, the time until a
// line is read of a file that appears and of one that was at rest, and of 1,000 slow files while another grows as fast as the disk
// takes it. Each with inotify and without.
//
//	go run ./benchmarks/files -files 10000 -results benchmarks/results
//
// A line holds the time it was written; a record's timestamp is when it was read. Both clocks are the machine's; a record's has steps
// of 1 ms.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/benchmarks/internal/broker"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
)

const (
	filesPerDir = 100
	restAfter   = 65 * time.Second // until the agent takes a file for one at rest
	probes      = 200
	slowFiles   = 1000
)

type settings struct {
	files              int
	idleFor, growFor   time.Duration
	dir, results, only string
}

func main() {
	var s settings
	flag.IntVar(&s.files, "files", 10_000, "files at rest")
	flag.DurationVar(&s.idleFor, "idle", 30*time.Second, "how long to measure idling")
	flag.DurationVar(&s.growFor, "grow", 15*time.Second, "how long a file grows as fast as it can")
	flag.StringVar(&s.only, "only", "", "inotify or polling; empty: both")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "folder for the logs and the spool, on a real disk")
	flag.StringVar(&s.results, "results", "", "also write the table to a file in this folder")
	flag.Parse()
	if err := measure(s); err != nil {
		fmt.Fprintln(os.Stderr, "files:", err)
		os.Exit(1)
	}
}

func measure(s settings) error {
	dir, err := os.MkdirTemp(s.dir, "shipper-files-")
	if err != nil {
		return err
	}
	programs, err := run.Build(dir, "shipper")
	if err != nil {
		return err
	}
	result := report.Result{Name: "files", Args: os.Args[1:], Machine: report.Machine(dir)}
	t := report.NewTable("files at rest", "wake-up", "all read after s", "idle: CPU % of a core", "peak RSS MiB", "new file: p50 ms", "p99 ms", "file at rest grows: p50 ms", "p99 ms",
		"beside a growing file: p50 ms", "p99 ms", "it grew MB/s", "CPU % meanwhile")
	for _, mode := range []string{"inotify", "polling"} {
		if s.only != "" && s.only != mode {
			continue
		}
		if err := s.mode(filepath.Join(dir, mode), programs.Path("shipper"), mode, t); err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	result.Body.WriteString(t.String())
	if err := result.Save(s.results); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// withoutInotify is a program that runs bin where it gets no inotify instance.
func withoutInotify(dir, bin string) (string, error) {
	path := filepath.Join(dir, "polling-shipper")
	script := "#!/bin/sh\nexec unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"' " + bin + " \"$@\"\n"
	return path, os.WriteFile(path, []byte(script), 0o700)
}

func (s settings) mode(dir, bin, mode string, t *report.Table) error {
	logs := filepath.Join(dir, "logs")
	for i := range s.files {
		if err := write(s.restPath(logs, i), "at rest\n"); err != nil {
			return err
		}
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, broker.Topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	if mode == "polling" {
		if bin, err = withoutInotify(dir, bin); err != nil {
			return err
		}
	}
	a, err := run.StartAgent(run.AgentOptions{Bin: bin, CPU: run.AnyCPU, Dir: filepath.Join(dir, "agent"), Broker: cluster.ListenAddrs()[0], Codec: "lz4",
		Paths: []string{logs + "/**/*.log"}})
	if err != nil {
		return err
	}
	defer a.Kill()
	seen, stop, err := consume(cluster.ListenAddrs())
	if err != nil {
		return err
	}
	defer stop()
	cells, err := s.phases(a, logs, seen)
	if err != nil {
		return err
	}
	t.Add(append([]string{fmt.Sprint(s.files), mode}, cells...)...)
	return nil
}

func (s settings) restPath(logs string, i int) string {
	return filepath.Join(logs, fmt.Sprint(i/filesPerDir), fmt.Sprintf("%d.log", i))
}

// phases measures one after the other.
func (s settings) phases(a *run.Agent, logs string, seen *delays) (cells []string, err error) {
	start := time.Now()
	if _, err := a.WaitStats("all files read", 5*time.Minute, func(x run.AgentStats) bool { return x.LinesRead >= int64(s.files) }); err != nil {
		return nil, err
	}
	cells = append(cells, fmt.Sprintf("%.1f", time.Since(start).Seconds()))
	time.Sleep(restAfter)
	cpu, rss, err := cpuShare(a, func() error { time.Sleep(s.idleFor); return nil })
	if err != nil {
		return nil, err
	}
	cells = append(cells, fmt.Sprintf("%.2f", cpu), fmt.Sprintf("%.1f", float64(rss)/(1<<20)))
	for i := range probes {
		if err := write(filepath.Join(logs, fmt.Sprint(i%10), fmt.Sprintf("new-%d.log", i)), stamp("new")); err != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	for i := range probes {
		if err := write(s.restPath(logs, (i*7919+13)%s.files), stamp("rest")); err != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, kind := range []string{"new", "rest"} {
		c, err := seen.percentiles(kind, probes)
		if err != nil {
			return nil, err
		}
		cells = append(cells, c...)
	}
	grown, rounds := int64(0), 0
	cpu, _, err = cpuShare(a, func() (err error) { grown, rounds, err = s.grow(logs); return err })
	if err != nil {
		return nil, err
	}
	c, err := seen.percentiles("slow", rounds*slowFiles)
	if err != nil {
		return nil, err
	}
	return append(append(cells, c...), fmt.Sprintf("%.0f", float64(grown)/1e6/s.growFor.Seconds()), fmt.Sprintf("%.0f", cpu)), nil
}

// cpuShare is what the agent uses while do runs, in percent of one core.
func cpuShare(a *run.Agent, do func() error) (percent float64, peakRSS int64, err error) {
	before, err := a.Usage()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	after, err := a.Usage()
	return (after.CPUSeconds() - before.CPUSeconds()) / took.Seconds() * 100, after.PeakRSSBytes, err
}

// grow writes one file as fast as it can, and a line a second to each of the slow ones.
func (s settings) grow(logs string) (bytes int64, rounds int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.growFor)
	defer cancel()
	hot, err := os.Create(filepath.Join(logs, "hot.log"))
	if err != nil {
		return 0, 0, err
	}
	defer hot.Close()
	var all sync.WaitGroup
	var hotErr error
	all.Go(func() {
		block := []byte(strings.Repeat("the file that grows as fast as the disk takes it, one line of eighty bytes.....\n", 4096))
		for ctx.Err() == nil && hotErr == nil {
			_, hotErr = hot.Write(block)
			bytes += int64(len(block))
		}
	})
	for ; ctx.Err() == nil; rounds++ {
		next := time.Now().Add(time.Second)
		for i := range slowFiles {
			if err := write(filepath.Join(logs, "slow", fmt.Sprintf("%d.log", i)), stamp("slow")); err != nil {
				return 0, 0, err
			}
		}
		time.Sleep(time.Until(next))
	}
	all.Wait()
	return bytes, rounds, hotErr
}

func stamp(kind string) string { return fmt.Sprintf("%s %d\n", kind, time.Now().UnixNano()) }

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if os.IsNotExist(err) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			return write(path, text)
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// delays are the times from write to read, ms, by kind of line.
type delays struct {
	mu sync.Mutex
	ms map[string][]float64
}

// consume takes the delays out of every record from now on until stop.
func consume(brokers []string) (d *delays, stop func(), err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(broker.Topic))
	if err != nil {
		return nil, nil, err
	}
	d = &delays{ms: map[string][]float64{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(d.take)
		}
	}()
	return d, func() { cancel(); <-done; client.Close() }, nil
}

func (d *delays) take(r *kgo.Record) {
	kind, written, ok := strings.Cut(string(r.Value), " ")
	ns, err := strconv.ParseInt(written, 10, 64)
	if !ok || err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ms[kind] = append(d.ms[kind], max(0, float64(r.Timestamp.UnixMilli())-float64(ns)/1e6))
}

// percentiles waits for n delays and gives the median and the 99th percentile.
func (d *delays) percentiles(kind string, n int) ([]string, error) {
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		d.mu.Lock()
		got := slices.Clone(d.ms[kind])
		d.mu.Unlock()
		if len(got) >= n {
			slices.Sort(got)
			return []string{fmt.Sprintf("%.0f", got[len(got)/2]), fmt.Sprintf("%.0f", got[len(got)*99/100])}, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d lines %q arrived", len(got), n, kind)
		}
	}
}
