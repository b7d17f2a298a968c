//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shipper/benchmarks/internal/broker"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
)

const timeout = 10 * time.Minute

// sample is one run of one program.
type sample struct {
	usage  run.Usage
	wall   time.Duration // from the program's start to the last batch at the broker
	totals broker.Totals
}

// tool runs the floor or the baseline, which end by themselves.
func (m *measurement) tool(b *run.Broker, name string, args ...string) (s sample, err error) {
	started := time.Now()
	p, err := run.Start(run.Command{Path: m.bin.Path(name), Args: args, CPU: m.cpu, Stderr: os.Stderr})
	if err != nil {
		return s, err
	}
	if s.usage, err = p.WaitUsage(timeout); err != nil {
		return s, err
	}
	s.wall = time.Since(started)
	s.totals, err = b.Totals()
	return s, err
}

// agent runs shipper until the broker has all lines, then until it knows so itself, and stops it.
func (m *measurement) agent(b *run.Broker, codec string) (s sample, err error) {
	dir := filepath.Join(m.dir, "agent")
	o := run.AgentOptions{Bin: m.bin.Path("shipper"), CPU: m.cpu, Dir: dir, Broker: b.Addr, Paths: m.paths, Codec: codec}
	if m.warm {
		if err := makeSpool(o); err != nil {
			return s, err
		}
	}
	started := time.Now()
	a, err := run.StartAgent(o)
	if err != nil {
		return s, err
	}
	defer func() {
		if stopErr := a.Stop(); err == nil && stopErr != nil {
			err = stopErr
		}
		if err == nil { // else the log is wanted
			err = os.RemoveAll(dir)
		}
	}()
	lines := int64(m.corpus.Lines)
	if s.totals, err = b.WaitRecords(lines, a.Process, timeout); err != nil {
		return s, err
	}
	if s.usage, err = a.Usage(); err != nil {
		return s, err
	}
	s.wall = time.Since(started)
	if last := s.totals.LastAppendNano; last != 0 {
		s.wall = time.Unix(0, last).Sub(started)
	}
	if _, err = a.WaitStats("all lines acked", 15*time.Second, func(st run.AgentStats) bool { return st.LinesAcked >= lines }); err != nil {
		return s, err
	}
	s.totals, err = b.Totals() // a line too many would show by now
	return s, err
}

// makeSpool runs the agent once with nothing to read.
func makeSpool(o run.AgentOptions) error {
	o.Paths = []string{filepath.Join(o.Dir, "no-such-file")}
	a, err := run.StartAgent(o)
	if err != nil {
		return err
	}
	_, err = a.WaitStats("its first start", time.Minute, func(run.AgentStats) bool { return true })
	return errors.Join(err, a.Stop())
}

func concatenate(paths []string, whole string) (string, error) {
	if len(paths) == 1 {
		return paths[0], nil
	}
	out, err := os.Create(whole)
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		in, err := os.Open(path)
		if err != nil {
			return "", errors.Join(err, out.Close())
		}
		_, err = io.Copy(out, in)
		if err = errors.Join(err, in.Close()); err != nil {
			return "", errors.Join(err, out.Close())
		}
	}
	return whole, out.Close()
}

func newTable() *report.Table {
	return report.NewTable("program", "corpus", "files", "codec", "runs", "CPU s/GiB (min-max)", "user / sys", "MB/s", "k lines/s",
		"peak RSS MiB", "records/batch", "ratio", "times the floor")
}

// addRows adds one row a program, in the order measured.
func addRows(t *report.Table, m *measurement, codec string, samples map[string][]sample) {
	gib, mb, lines := float64(m.corpus.Bytes)/report.GiB, float64(m.corpus.Bytes)/report.MB, float64(m.corpus.Lines)
	var floorCPU float64
	for _, program := range m.programs {
		of := func(figure func(sample) float64) []float64 {
			values := make([]float64, 0, m.runs)
			for _, s := range samples[program] {
				values = append(values, figure(s))
			}
			return values
		}
		cpu := of(func(s sample) float64 { return s.usage.CPUSeconds() / gib })
		median := report.Median(cpu)
		times := "-"
		if program == "floor" {
			floorCPU = median
		}
		if floorCPU > 0 {
			times = fmt.Sprintf("%.2f", median/floorCPU)
		}
		perBatch := "-" // kfake does not count batches
		if batches := samples[program][0].totals.Batches; batches > 0 {
			perBatch = fmt.Sprintf("%.0f", report.Median(of(func(s sample) float64 { return float64(s.totals.Records) / float64(s.totals.Batches) })))
		}
		seconds := of(func(s sample) float64 { return s.wall.Seconds() })
		t.Add(program, m.kind, fmt.Sprint(m.files), codec, fmt.Sprint(m.runs),
			fmt.Sprintf("**%.1f** (%.1f-%.1f)", median, slices.Min(cpu), slices.Max(cpu)),
			fmt.Sprintf("%.1f / %.1f", report.Median(of(func(s sample) float64 { return s.usage.UserSeconds / gib })),
				report.Median(of(func(s sample) float64 { return s.usage.SystemSeconds / gib }))),
			fmt.Sprintf("%.0f", mb/report.Median(seconds)),
			fmt.Sprintf("%.0f", lines/1000/report.Median(seconds)),
			fmt.Sprintf("%.0f", report.Median(of(func(s sample) float64 { return float64(s.usage.PeakRSSBytes) / report.MiB }))),
			perBatch,
			fmt.Sprintf("%.2f", report.Median(of(func(s sample) float64 { return float64(m.corpus.Bytes) / float64(s.totals.BatchBytes) }))),
			times)
	}
}
