//go:build linux

// Command e2e measures what shipping a log file costs: it runs the real agent over a corpus into a counting broker until the
// broker has every line, and beside it, in turns, the floor (what no agent can leave out) and the baseline (a line scanner in front
// of a stock Kafka client).
//
//	go run ./benchmarks/e2e -kinds access -codecs lz4,zstd -bytes 536870912 -runs 3 -results benchmarks/results
//
// CPU is user and system time of the program's own process from its start to the moment the broker had counted all lines.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"shipper/benchmarks/internal/broker"
	"shipper/benchmarks/internal/corpus"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
)

type settings struct {
	kinds, codecs, programs []string
	bytes                   int64
	files, runs             int
	cpu, brokerCPU          int
	floorBatch              int
	kfake, verify, warm     bool
	dir, results            string
}

func main() {
	var s settings
	kinds := flag.String("kinds", "access", "corpora, with commas: access, json, syslog")
	codecs := flag.String("codecs", "lz4,zstd", "codecs, with commas: none, lz4, snappy, gzip, zstd")
	programs := flag.String("programs", "floor,shipper,baseline", "what to measure, with commas; floor first to have the ratios")
	flag.Int64Var(&s.bytes, "bytes", 512*report.MiB, "bytes of log in all")
	flag.IntVar(&s.files, "files", 1, "spread over that many files (the agent only: floor and baseline read them one after the other as one)")
	flag.IntVar(&s.runs, "runs", 3, "runs of each; figures are medians")
	flag.IntVar(&s.cpu, "cpu", run.AnyCPU, "pin the measured program to this CPU; -1: all CPUs")
	flag.IntVar(&s.brokerCPU, "broker-cpu", 1, "pin the broker to this CPU; -1: all CPUs")
	flag.IntVar(&s.floorBatch, "floor-batch-bytes", 1_048_515, "raw bytes in a batch of the floor; the agent's grow with what their codec makes of them")
	flag.BoolVar(&s.kfake, "kfake", false, "send to franz-go's kfake instead; it is the limit then")
	flag.BoolVar(&s.verify, "verify", false, "number the lines and check that each arrives once and in order; the broker is slower then")
	flag.BoolVar(&s.warm, "warm", false, "let the agent make its spool before it is measured: the segments of a new one are written once, whatever is shipped")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "folder for corpora and spools, on a real disk")
	flag.StringVar(&s.results, "results", "", "also write the table to a file in this folder")
	flag.Parse()
	s.kinds, s.codecs, s.programs = strings.Split(*kinds, ","), strings.Split(*codecs, ","), strings.Split(*programs, ",")
	if err := measure(s); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

func measure(s settings) error {
	dir, err := os.MkdirTemp(s.dir, "shipper-e2e-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := run.Build(dir, append(s.programs, "nullbroker")...)
	if err != nil {
		return err
	}
	m := &measurement{settings: s, dir: dir, bin: programs}
	result := report.Result{Name: "e2e", Args: os.Args[1:], Machine: report.Machine(dir)}
	table := newTable()
	for _, kind := range s.kinds {
		if err := m.makeCorpus(kind); err != nil {
			return err
		}
		for _, codec := range s.codecs {
			rows, err := m.compare(codec)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", kind, codec, err)
			}
			addRows(table, m, codec, rows)
		}
	}
	result.Body.WriteString(table.String())
	return result.Save(s.results)
}

// measurement is the state of one invocation.
type measurement struct {
	settings
	dir    string
	bin    run.Programs
	kind   string
	paths  []string // the corpus as files, for the agent
	whole  string   // the same bytes in one file
	corpus corpus.Totals
}

func (m *measurement) makeCorpus(kindName string) error {
	kind, err := corpus.ParseKind(kindName)
	if err != nil {
		return err
	}
	m.kind, m.corpus, m.paths = kindName, corpus.Totals{}, nil
	for i := range m.files {
		o := corpus.Options{Kind: kind, Seed: uint64(i + 1)}
		if m.verify {
			o.Tag = fmt.Sprintf("f%02d", i)
		}
		path := filepath.Join(m.dir, fmt.Sprintf("%s-%02d.log", kindName, i))
		t, err := corpus.WriteFile(path, o, m.bytes/int64(m.files))
		if err != nil {
			return err
		}
		m.corpus.Lines += t.Lines
		m.corpus.Bytes += t.Bytes
		m.paths = append(m.paths, path)
	}
	m.whole, err = concatenate(m.paths, filepath.Join(m.dir, kindName+"-whole"))
	return err
}

// compare measures every program with one codec, in turns, so that a change of the machine's mood meets all of them.
func (m *measurement) compare(codec string) (map[string][]sample, error) {
	samples := map[string][]sample{}
	for range m.runs {
		for _, program := range m.programs {
			s, err := m.once(program, codec)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", program, err)
			}
			samples[program] = append(samples[program], s)
		}
	}
	return samples, nil
}

// once runs one program against a fresh broker.
func (m *measurement) once(program, codec string) (s sample, err error) {
	b, err := run.StartBroker(run.BrokerOptions{Bin: m.bin.Path("nullbroker"), CPU: m.brokerCPU, Verify: m.verify, Kfake: m.kfake})
	if err != nil {
		return s, err
	}
	defer b.Kill()
	switch program {
	case "shipper":
		s, err = m.agent(b, codec)
	case "floor":
		s, err = m.tool(b, program, "-broker", b.Addr, "-file", m.whole, "-codec", codec, "-spool", m.dir, "-batch-bytes", strconv.Itoa(m.floorBatch))
	case "baseline":
		s, err = m.tool(b, program, "-broker", b.Addr, "-file", m.whole, "-codec", codec)
	default:
		err = fmt.Errorf("no such program: want floor, shipper or baseline")
	}
	if err != nil {
		return s, err
	}
	return s, m.check(s.totals)
}

// check makes sure that what is being compared did the whole job.
func (m *measurement) check(t broker.Totals) error {
	if t.Records != int64(m.corpus.Lines) {
		return fmt.Errorf("%d records arrived, the corpus has %d lines", t.Records, m.corpus.Lines)
	}
	if l := t.Lines; m.verify && (l.Missing+l.Doubled+l.OutOfOrder+l.Foreign > 0 || l.Tags != len(m.paths)) {
		return fmt.Errorf("the lines that arrived are not those of the corpus: %+v", *l)
	}
	return nil
}
