//go:build linux

// Command outage measures an agent whose broker is away while a lot is logged: what the backlog costs to spool, how much memory
// the agent takes meanwhile, what waiting costs, and how fast and completely the backlog drains once the broker is back.
//
//	go run ./benchmarks/outage -bytes 2147483648 -results benchmarks/results
//
//	go run ./benchmarks/outage -memory 64 -kind long -codec lz4 -hold 5s -verify=false -results benchmarks/results
//
//	broker up, a first stretch delivered -> broker down -> all files appear at once -> all spooled -> hold -> broker up -> all delivered
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shipper/benchmarks/internal/broker"
	"shipper/benchmarks/internal/corpus"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
)

const (
	firstBytes = 16 << 20 // delivered before the outage
	timeout    = 10 * time.Minute
)

type settings struct {
	bytes         int64
	files         int
	hold          time.Duration
	codec, kind   string
	cpu           int
	brokerCPU     int
	verify        bool
	dir, results  string
	peakRSSMiBMax int
	memoryMiB     int64
}

func main() {
	var s settings
	flag.Int64Var(&s.bytes, "bytes", 2*report.GiB, "bytes logged while the broker is away")
	flag.IntVar(&s.files, "files", 4, "spread over that many files")
	flag.DurationVar(&s.hold, "hold", 30*time.Second, "how long the broker stays away once all is spooled")
	flag.StringVar(&s.codec, "codec", "zstd", "none, lz4, snappy, gzip or zstd")
	flag.StringVar(&s.kind, "kind", "access", "corpus: access, json, syslog or long")
	flag.IntVar(&s.cpu, "cpu", run.AnyCPU, "pin the agent to this CPU; -1: all CPUs")
	flag.IntVar(&s.brokerCPU, "broker-cpu", 1, "pin the broker to this CPU; -1: all CPUs")
	flag.BoolVar(&s.verify, "verify", true, "number the lines and check that each arrives once and in order; the broker is slower then")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "folder for corpora and spool, on a real disk")
	flag.StringVar(&s.results, "results", "", "also write the table to a file in this folder")
	flag.IntVar(&s.peakRSSMiBMax, "peak-rss-mib-max", 0, "exit with an error if the agent's peak is above; 0: just tell")
	flag.Int64Var(&s.memoryMiB, "memory", 0, "the agent's memory_limit in MiB, and an error if a peak is more than a tenth above it; 0: the agent's default")
	flag.Parse()
	if err := measure(s); err != nil {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

func measure(s settings) (err error) {
	dir, err := os.MkdirTemp(s.dir, "shipper-outage-")
	if err != nil {
		return err
	}
	programs, err := run.Build(dir, "shipper", "nullbroker")
	if err != nil {
		return err
	}
	result := report.Result{Name: "outage", Args: os.Args[1:], Machine: report.Machine(dir)}
	o := &outage{settings: s, dir: dir}
	if err := o.makeCorpus(); err != nil {
		return err
	}
	if o.broker, err = run.StartBroker(run.BrokerOptions{Bin: programs.Path("nullbroker"), CPU: s.brokerCPU, Verify: s.verify}); err != nil {
		return err
	}
	defer o.broker.Kill()
	o.agent, err = run.StartAgent(run.AgentOptions{
		Bin: programs.Path("shipper"), CPU: s.cpu, Dir: filepath.Join(dir, "agent"), Broker: o.broker.Addr,
		Paths: []string{filepath.Join(dir, "*.log")}, Codec: s.codec,
		MemoryBytesMax: s.memoryMiB << 20,
	})
	if err != nil {
		return err
	}
	runErr := o.run()
	if err := o.agent.Stop(); runErr == nil && err != nil {
		runErr = err
	}
	if runErr != nil {
		return runErr // the folder stays, with the agent's log
	}
	result.Body.WriteString(o.table().String())
	if err := result.Save(s.results); err != nil {
		return err
	}
	peak := int64(0)
	for _, m := range []moment{o.before, o.spooled, o.held, o.drained} {
		peak = max(peak, m.usage.PeakRSSBytes)
	}
	if s.peakRSSMiBMax > 0 && peak > int64(s.peakRSSMiBMax)<<20 {
		return fmt.Errorf("the agent's peak memory was %d MiB, allowed are %d", peak>>20, s.peakRSSMiBMax)
	}
	if s.memoryMiB > 0 && peak > s.memoryMiB<<20*11/10 {
		return fmt.Errorf("the agent's peak memory was %.1f MiB, and its memory_limit is %d MiB", float64(peak)/report.MiB, s.memoryMiB)
	}
	return os.RemoveAll(dir)
}

// outage is the state of the one run.
type outage struct {
	settings
	dir    string
	broker *run.Broker
	agent  *run.Agent

	first, rest corpus.Totals
	spoolPeak   int64

	before, spooled, held, drained moment
	most                           time.Duration // from the files' appearance until nine tenths were spooled
	firstAfter, mostAfter          time.Duration // from the broker's return to the first batch, and to nine tenths of the backlog
	totals                         broker.Totals
}

// moment is what the agent has used at one point of the run; its peak is since the one before.
type moment struct {
	at    time.Time
	usage run.Usage
}

func (o *outage) look() (moment, error) {
	u, err := o.agent.Usage()
	return moment{time.Now(), u}, errors.Join(err, o.agent.ResetPeak())
}

// makeCorpus writes the first stretch where the agent looks, the rest beside it under names that it does not match.
func (o *outage) makeCorpus() error {
	kind, err := corpus.ParseKind(o.kind)
	if err != nil {
		return err
	}
	o.first, err = corpus.WriteFile(filepath.Join(o.dir, "first.log"), corpus.Options{Kind: kind, Seed: 1, Tag: "first"}, firstBytes)
	if err != nil {
		return err
	}
	for i := range o.files {
		t, err := corpus.WriteFile(o.restPath(i)+".later", corpus.Options{Kind: kind, Seed: uint64(i + 2), Tag: fmt.Sprintf("f%02d", i)}, o.bytes/int64(o.files))
		if err != nil {
			return err
		}
		o.rest.Lines += t.Lines
		o.rest.Bytes += t.Bytes
	}
	return nil
}

func (o *outage) nineTenths() int64 { return int64(o.rest.Lines) * 9 / 10 }

func (o *outage) restPath(i int) string { return filepath.Join(o.dir, fmt.Sprintf("rest-%02d.log", i)) }

func (o *outage) run() error {
	first, all := int64(o.first.Lines), int64(o.first.Lines+o.rest.Lines)
	if _, err := o.broker.WaitRecords(first, o.agent.Process, timeout); err != nil {
		return err
	}
	if _, err := o.agent.WaitStats("acks of the first stretch", timeout, func(s run.AgentStats) bool { return s.LinesAcked >= first }); err != nil {
		return err
	}
	if err := o.broker.Down(); err != nil {
		return err
	}
	var err error
	if o.before, err = o.look(); err != nil {
		return err
	}
	for i := range o.files {
		if err := os.Rename(o.restPath(i)+".later", o.restPath(i)); err != nil {
			return err
		}
	}
	if _, err = o.agent.WaitStats("the backlog spooled", timeout, func(s run.AgentStats) bool {
		o.spoolPeak = max(o.spoolPeak, s.SpoolBytes)
		if o.most == 0 && s.LinesSpooled >= first+o.nineTenths() {
			o.most = time.Since(o.before.at)
		}
		return s.LinesSpooled >= all
	}); err != nil {
		return err
	}
	if o.spooled, err = o.look(); err != nil {
		return err
	}
	time.Sleep(o.hold)
	if o.held, err = o.look(); err != nil {
		return err
	}
	return o.drain(all)
}

func (o *outage) drain(all int64) error {
	before, err := o.broker.Totals()
	if err != nil {
		return err
	}
	cameBack := time.Now()
	if err := o.broker.Up(); err != nil {
		return err
	}
	if _, err := o.broker.WaitRecords(before.Records+1, o.agent.Process, timeout); err != nil {
		return err
	}
	o.firstAfter = time.Since(cameBack)
	if _, err := o.broker.WaitRecords(before.Records+o.nineTenths(), o.agent.Process, timeout); err != nil {
		return err
	}
	o.mostAfter = time.Since(cameBack)
	if _, err := o.broker.WaitRecords(all, o.agent.Process, timeout); err != nil {
		return err
	}
	if o.drained, err = o.look(); err != nil {
		return err
	}
	if _, err := o.agent.WaitStats("all lines acked", timeout, func(s run.AgentStats) bool { return s.LinesAcked >= all }); err != nil {
		return err
	}
	if o.totals, err = o.broker.Totals(); err != nil {
		return err
	}
	if o.totals.Records != all {
		return fmt.Errorf("%d records arrived of %d lines", o.totals.Records, all)
	}
	if l := o.totals.Lines; o.verify && (l.Missing+l.Doubled+l.OutOfOrder+l.Foreign > 0 || l.Tags != o.files+1) {
		return fmt.Errorf("the lines that arrived are not those written: %+v", *l)
	}
	return nil
}

func (o *outage) table() *report.Table {
	gib := float64(o.rest.Bytes) / report.GiB
	between := func(a, b moment) (cpu, seconds float64) {
		return b.usage.CPUSeconds() - a.usage.CPUSeconds(), b.at.Sub(a.at).Seconds()
	}
	rate := func(most time.Duration, seconds float64) string {
		return fmt.Sprintf("%.0f MB/s for nine tenths; all in %.1f s", 0.9*float64(o.rest.Bytes)/report.MB/most.Seconds(), seconds)
	}
	peak := func(m moment) string { return fmt.Sprintf("%.1f", float64(m.usage.PeakRSSBytes)/report.MiB) }
	spoolCPU, spoolSeconds := between(o.before, o.spooled)
	holdCPU, holdSeconds := between(o.spooled, o.held)
	drainCPU, drainSeconds := between(o.held, o.drained)

	t := report.NewTable("step", "rate", "CPU", "peak RSS MiB", "note")
	t.Add("first stretch delivered", "-", "-", peak(o.before), fmt.Sprintf("%d lines", o.first.Lines))
	t.Add("broker away: "+o.codec+" backlog spooled", rate(o.most, spoolSeconds), fmt.Sprintf("%.1f s/GiB", spoolCPU/gib), peak(o.spooled),
		fmt.Sprintf("%.2f GiB, %d lines, %d files; spool %.0f MiB", gib, o.rest.Lines, o.files, float64(o.spoolPeak)/report.MiB))
	t.Add("broker away: waiting", fmt.Sprintf("%.0f s", holdSeconds), fmt.Sprintf("%.2f %%", 100*holdCPU/holdSeconds), peak(o.held), "")
	verified := "not looked at"
	if o.verify {
		verified = "0 lost, 0 doubled, 0 out of order"
	}
	t.Add("broker back: drained", rate(o.mostAfter, drainSeconds), fmt.Sprintf("%.2f s/GiB", drainCPU/gib), peak(o.drained),
		fmt.Sprintf("first batch after %.1f s; %.0f records a batch; lines: %s; batches repeated %d, refused %d",
			o.firstAfter.Seconds(), float64(o.totals.Records)/float64(o.totals.Batches), verified, o.totals.Duplicates, refused(o.totals)))
	return t
}

func refused(t broker.Totals) (n int64) {
	for _, k := range t.Refused {
		n += k
	}
	return n
}
