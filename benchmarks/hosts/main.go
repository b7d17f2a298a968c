//go:build linux

// Command hosts measures what the agent takes of ordinary hosts: at rest with all defaults, on a volume of 256 MiB that is filled to its
// last byte and drained, under a root that is read-only, with 32,000 files. It needs unshare, and the right to make name spaces.
//
//	go run ./benchmarks/hosts -results benchmarks/results
//	go run ./benchmarks/hosts -only volume
//
// All lines are numbered: the broker wants each once, and in the order of its file.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"shipper/benchmarks/internal/corpus"
	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
)

const (
	restFor     = 12 * time.Second
	waitMax     = 5 * time.Minute
	volumeBytes = 256 << 20
	logBytes    = 150 << 20 // of each of two files: more than the spool takes of the volume, whatever the codec
	filesPerDir = 100
	fewBytes    = 1 << 10 // some lines
)

type settings struct {
	dir, results, only string
	files              int
	inside             bool
	programs           run.Programs
	t                  *report.Table
}

func main() {
	var s settings
	flag.StringVar(&s.dir, "dir", os.TempDir(), "folder for the logs and the spool, on a real disk")
	flag.StringVar(&s.results, "results", "", "also write the table to a file in this folder")
	flag.StringVar(&s.only, "only", "", "rest, volume, readonly or files; empty: all")
	flag.IntVar(&s.files, "files", 32_000, "files of the last row")
	flag.BoolVar(&s.inside, "inside", false, "for the program itself: it has name spaces of its own")
	flag.Parse()
	err := s.enter()
	if s.inside {
		err = s.measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		os.Exit(1)
	}
}

// enter runs this program again where it may mount.
func (s *settings) enter() error {
	if s.inside {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command("unshare", append([]string{"-Urm", self, "-inside"}, os.Args[1:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func (s *settings) measure() error {
	dir, err := os.MkdirTemp(s.dir, "shipper-hosts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if s.programs, err = run.Build(dir, "shipper", "nullbroker"); err != nil {
		return err
	}
	result := report.Result{Name: "hosts", Args: os.Args[2:], Machine: report.Machine(dir)}
	s.t = report.NewTable("host", "disk MiB", "RSS MiB", "descriptors", "lines", "seconds")
	for _, row := range []struct {
		name string
		fn   func(h *host) error
	}{{"rest", s.rest}, {"volume", s.volume}, {"readonly", s.readOnly}, {"files", s.manyFiles}} {
		if s.only != "" && s.only != row.name {
			continue
		}
		if err := s.on(filepath.Join(dir, row.name), row.fn); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	result.Body.WriteString(s.t.String())
	return result.Save(s.results)
}

// host is one machine: an agent, its logs and a broker that is away at first.
type host struct {
	s      *settings
	dir    string
	broker *run.Broker
	agent  *run.Agent
	bin    string
	began  time.Time
}

func (s *settings) on(dir string, fn func(*host) error) error {
	b, err := run.StartBroker(run.BrokerOptions{Bin: s.programs.Path("nullbroker"), CPU: run.AnyCPU, Verify: true})
	if err != nil {
		return err
	}
	defer b.Kill()
	h := &host{s: s, dir: dir, broker: b, bin: s.programs.Path("shipper")}
	defer func() {
		if h.agent != nil {
			h.agent.Kill()
		}
	}()
	return errors.Join(b.Down(), os.MkdirAll(h.spool(), 0o700), fn(h))
}

func (h *host) spool() string { return filepath.Join(h.dir, "spool") }

func (h *host) start() (err error) {
	h.began = time.Now()
	h.agent, err = run.StartAgent(run.AgentOptions{Bin: h.bin, CPU: run.AnyCPU, Dir: h.dir, Broker: h.broker.Addr, Codec: "none", Paths: []string{filepath.Join(h.dir, "logs", "**", "*.log")}})
	return err
}

// write makes a log of numbered lines.
func (h *host) write(name string, bytes int64) (lines int64, err error) {
	path := filepath.Join(h.dir, "logs", name+".log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	made, err := corpus.WriteFile(path, corpus.Options{Kind: corpus.Access, Seed: 1, Tag: filepath.Base(name)}, bytes)
	if err == nil && made.Lines == 0 {
		err = fmt.Errorf("%d bytes hold no line", bytes)
	}
	return int64(made.Lines), err
}

// row says what the host takes now. seconds is since the agent started.
func (h *host) row(what string, lines int64) error {
	seconds := time.Since(h.began).Seconds()
	u, err := h.agent.Usage()
	if err != nil {
		return err
	}
	fds, err := h.agent.Descriptors()
	if err != nil {
		return err
	}
	disk, err := run.DiskBytes(h.spool())
	if err != nil {
		return err
	}
	h.s.t.Add(what, fmt.Sprint(disk>>20), fmt.Sprintf("%.1f, at most %.1f", mib(u.RSSBytes), mib(u.PeakRSSBytes)), fmt.Sprint(fds), fmt.Sprint(lines), fmt.Sprintf("%.1f", seconds))
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// deliver brings the broker back and wants so many lines: each once, and in order.
func (h *host) deliver(lines int64) error {
	if err := h.broker.Up(); err != nil {
		return err
	}
	got, err := h.broker.WaitRecords(lines, h.agent.Process, waitMax)
	if err != nil {
		return err
	}
	if l := *got.Lines; l.Lines != uint64(lines) || l.Doubled+l.OutOfOrder+l.Missing+l.Foreign > 0 {
		return fmt.Errorf("of %d lines arrived %+v", lines, l)
	}
	_, err = h.agent.WaitStats("all acked", waitMax, func(x run.AgentStats) bool { return x.OldestUnackedSecond == 0 })
	return err
}

func (h *host) waitSpooled(lines int64) error {
	_, err := h.agent.WaitStats("all spooled", waitMax, func(x run.AgentStats) bool { return x.LinesSpooled >= lines })
	return err
}

func (s *settings) rest(h *host) error {
	lines, err := h.write("app", fewBytes)
	if err := errors.Join(err, h.start()); err != nil {
		return err
	}
	if err := h.waitSpooled(lines); err != nil {
		return err
	}
	time.Sleep(restFor)
	if err := h.row("at rest, all defaults, nothing delivered yet", lines); err != nil {
		return err
	}
	return h.delivered(lines)
}

// delivered lets Kafka have the lines, makes the row of the agent at rest behind that, and stops it.
func (h *host) delivered(lines int64) error {
	if err := h.deliver(lines); err != nil {
		return err
	}
	time.Sleep(restFor)
	if err := h.row("the same, delivered", lines); err != nil {
		return err
	}
	return h.agent.Stop()
}
