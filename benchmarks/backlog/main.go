//go:build linux

// Command backlog measures how an agent drains a spool that is full of batches, at several round trip times: with batches of one
// line each, which it merges, or with large ones, which show what one batch at a time costs a lane. No files are read.
//
//	go run ./benchmarks/backlog -batches 5000000 -rtt 1ms -results benchmarks/results
//	go run ./benchmarks/backlog -batches 600 -lines 4500 -lanes 1,2,4,8 -rtt 0s,1ms,10ms -results benchmarks/results
//	go run ./benchmarks/backlog -batches 2000 -lines 4500 -rtt 0s [-cold] -results benchmarks/results
//
//	a spool is made -> broker up, which holds back each answer for a round trip time -> agent started -> all delivered
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shipper/benchmarks/internal/broker"
	"shipper/benchmarks/internal/corpus"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
	"shipper/sink/kafka"
	"shipper/spool"
)

const (
	timeout    = 30 * time.Minute
	groupBytes = 1 << 20 // of batches that become durable together
	spoolBytes = 8 << 30
)

type settings struct {
	batches, lines int
	lanes          []int
	rtts           []time.Duration
	cold           bool
	codec          kafka.Codec
	dir, results   string
	peakRSSMiBMax  int
}

func main() {
	s := settings{lanes: []int{4}, rtts: []time.Duration{time.Millisecond}, codec: kafka.LZ4}
	flag.IntVar(&s.batches, "batches", 5_000_000, "batches in the spool, of all lanes")
	flag.IntVar(&s.lines, "lines", 1, "lines of each batch")
	flag.Func("lanes", "lanes, with commas; one run for each (default 4)", func(text string) (err error) {
		s.lanes, err = list(text, strconv.Atoi)
		return err
	})
	flag.Func("rtt", "how long the broker holds back an answer, with commas; one run for each (default 1ms)", func(text string) (err error) {
		s.rtts, err = list(text, time.ParseDuration)
		return err
	})
	flag.Func("codec", "none, lz4, snappy, gzip or zstd (default lz4)", func(text string) (err error) {
		s.codec, err = kafka.ParseCodec(text)
		return err
	})
	flag.BoolVar(&s.cold, "cold", false, "take the spool out of the page cache before the agent starts")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "folder for the spool, on a real disk")
	flag.StringVar(&s.results, "results", "", "also write the table to a file in this folder")
	flag.IntVar(&s.peakRSSMiBMax, "peak-rss-mib-max", 0, "exit with an error if the agent's peak is above; 0: just tell")
	flag.Parse()
	if err := measure(s); err != nil {
		fmt.Fprintln(os.Stderr, "backlog:", err)
		os.Exit(1)
	}
}

func list[T any](text string, parse func(string) (T, error)) (all []T, err error) {
	for _, word := range strings.Split(text, ",") {
		v, err := parse(word)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func measure(s settings) error {
	dir, err := os.MkdirTemp(s.dir, "shipper-backlog-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := run.Build(dir, "shipper", "nullbroker")
	if err != nil {
		return err
	}
	result := report.Result{Name: "backlog", Args: os.Args[1:], Machine: report.Machine(dir)}
	t := report.NewTable("batches", "lines each", "lanes", "RTT", "start s", "drained s", "MB/s of lines", "batches sent", "CPU s", "RSS MiB at the start", "peak RSS MiB")
	for _, lanes := range s.lanes {
		for _, rtt := range s.rtts {
			d := drain{settings: s, dir: filepath.Join(dir, fmt.Sprintf("%d-%s", lanes, rtt)), lanes: lanes, rtt: rtt}
			if err := d.run(programs); err != nil {
				return err
			}
			if err := os.RemoveAll(d.dir); err != nil {
				return err
			}
			d.addTo(t)
			if peak := d.usage.PeakRSSBytes; s.peakRSSMiBMax > 0 && peak > int64(s.peakRSSMiBMax)<<20 {
				return fmt.Errorf("the agent's peak memory was %d MiB, allowed are %d", peak>>20, s.peakRSSMiBMax)
			}
		}
	}
	result.Body.WriteString(t.String())
	return result.Save(s.results)
}

// drain is one run.
type drain struct {
	settings
	dir   string
	lanes int
	rtt   time.Duration

	rawBytes       int64 // of lines
	ready, drained time.Duration
	first, usage   run.Usage
	sent           int64
}

func (d *drain) run(programs run.Programs) (err error) {
	agentDir := filepath.Join(d.dir, "agent")
	if err := os.MkdirAll(agentDir, 0o755); err != nil {
		return err
	}
	if err := d.fill(filepath.Join(agentDir, "spool")); err != nil {
		return err
	}
	if d.cold {
		if err := run.DropCache(filepath.Join(agentDir, "spool")); err != nil {
			return err
		}
	}
	b, err := run.StartBroker(run.BrokerOptions{Bin: programs.Path("nullbroker"), CPU: 1, AckDelay: d.rtt, Partitions: 64})
	if err != nil {
		return err
	}
	defer b.Kill()
	start := time.Now()
	a, err := run.StartAgent(run.AgentOptions{Bin: programs.Path("shipper"), CPU: run.AnyCPU, Dir: agentDir, Broker: b.Addr,
		Paths: []string{filepath.Join(d.dir, "*.log")}, Codec: d.codec.String(), SpoolBytesMax: spoolBytes})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	if _, err := a.WaitStats("its start", timeout, func(run.AgentStats) bool { return true }); err != nil {
		return err
	}
	d.ready = time.Since(start)
	if d.first, err = a.Usage(); err != nil {
		return err
	}
	all := int64(d.batches) * int64(d.lines)
	if _, err := b.WaitRecords(all, a.Process, timeout); err != nil {
		return err
	}
	d.drained = time.Since(start)
	totals, err := b.Totals()
	if err != nil {
		return err
	}
	if totals.Records != all {
		return fmt.Errorf("%d records arrived of %d lines", totals.Records, all)
	}
	d.sent = totals.Batches
	d.usage, err = a.Usage()
	return err
}

// fill makes the spool, with the agent's own encoder.
func (d *drain) fill(dir string) error {
	log, _, err := spool.Open(spool.Options{Dir: dir, MaxBytes: spoolBytes, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	f := filler{log: log, commit: &spool.Commit{}}
	if f.compressor, err = kafka.NewCompressor(d.codec, 0); err != nil {
		return err
	}
	for lane := range d.lanes {
		f.commit.Lanes = append(f.commit.Lanes, spool.Lane{ID: uint32(lane + 1), Block: "bench", Topic: broker.Topic, Slot: uint32(lane)})
	}
	lines, line := corpus.New(corpus.Options{Kind: corpus.Access, Seed: 1, Tag: "spooled"}), []byte{}
	next := make([]uint64, d.lanes)
	for i := range d.batches {
		f.builder.Reset(f.raw)
		for range d.lines {
			line = bytes.TrimSuffix(lines.AppendLine(line[:0]), []byte("\n"))
			d.rawBytes += int64(len(line)) + 1
			f.append(line)
		}
		lane := i % d.lanes
		if err := f.seal(uint32(lane+1), next[lane]); err != nil {
			return err
		}
		next[lane] += uint64(d.lines)
	}
	return errors.Join(f.commitGroup(), log.Close())
}

// filler appends batches to a spool, many in a group.
type filler struct {
	log        *spool.Log
	compressor *kafka.Compressor
	builder    kafka.Builder
	raw        []byte
	commit     *spool.Commit
	batches    []spool.Batch
	bytes      int
}

func (f *filler) append(line []byte) {
	if !f.builder.Fits(0, len(line)) {
		f.raw = make([]byte, 0, 2*(cap(f.raw)+len(line)+kafka.RecordOverheadMax))
		f.builder.Grow(f.raw)
	}
	f.builder.Append(time.Now().UnixMilli(), nil, line, false)
}

func (f *filler) seal(lane uint32, first uint64) error {
	var s kafka.Sealed
	f.compressor.Seal(&f.builder, nil, &s)
	f.batches = append(f.batches, spool.Batch{Lane: lane, First: first, Count: s.Count, MaxTime: s.MaxTime, Header: s.Header, Records: s.Records, RecordsCRC: s.RecordsCRC})
	f.bytes += len(s.Records) + kafka.HeaderBytes
	if f.bytes < groupBytes {
		return nil
	}
	return f.commitGroup()
}

func (f *filler) commitGroup() error {
	if _, err := f.log.Append(nil, f.batches, f.commit); err != nil {
		return err
	}
	f.batches, f.bytes, f.commit = f.batches[:0], 0, nil
	return nil
}

func (d *drain) addTo(t *report.Table) {
	mib := func(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/report.MiB) }
	t.Add(strconv.Itoa(d.batches), strconv.Itoa(d.lines), strconv.Itoa(d.lanes), d.rtt.String(), fmt.Sprintf("%.2f", d.ready.Seconds()), fmt.Sprintf("%.2f", d.drained.Seconds()),
		fmt.Sprintf("%.1f", float64(d.rawBytes)/report.MB/(d.drained-d.ready).Seconds()), strconv.FormatInt(d.sent, 10), fmt.Sprintf("%.1f", d.usage.CPUSeconds()),
		mib(d.first.RSSBytes), mib(d.usage.PeakRSSBytes))
}
