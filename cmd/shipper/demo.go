// The demo: the whole promise, shown on one machine in half a minute.
//
//	this process:  embedded Kafka (demo_kafka.go) <- agent <- log files <- writer
//	child 1:       `shipper run`, the real agent, killed with SIGKILL and started again
//	child 2:       `shipper demo-writer` (demo_writer.go)
//	at the end:    log files and topics are compared byte for byte (demo_check.go)
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	demoWriteFor     = 15 * time.Second
	demoLinesPerFile = 4000             // per second
	demoStallMax     = 10 * time.Second // without a new record in Kafka
	demoStopMax      = 10 * time.Second
)

// demoScript is what happens while the writer writes.
var demoScript = []struct {
	at  time.Duration
	say string
	do  func(*demo) error
}{
	{4 * time.Second, "all brokers are cut off; answers on their way are lost", (*demo).cutBrokers},
	{8 * time.Second, "the brokers are back", (*demo).healBrokers},
	{11 * time.Second, "kill -9 to the agent", (*demo).killAgent},
	{12 * time.Second, "the agent is started again", (*demo).startAgent},
}

type demoOptions struct {
	Keep bool // stay until Ctrl-C
}

// demo is one run. Its goroutine starts all children and stays on its thread, see childAttributes.
type demo struct {
	out     io.Writer
	dir     string
	cluster *demoCluster
	writer  *child
	agent   *child       // nil between the kill and the restart
	written latestNumber // lines
	inKafka int64        // as of the last answer
	began   time.Time
	last    sample
}

// sample is the progress at one moment, for the rate between two.
type sample struct {
	at        time.Time
	bytesRead int64
}

// runDemo returns nil if every line written arrived once and in order.
func runDemo(ctx context.Context, o demoOptions, out io.Writer) (err error) {
	runtime.LockOSThread()
	dir, err := os.MkdirTemp("", "shipper-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	d := &demo{out: out, dir: dir}
	defer func() {
		for _, c := range []*child{d.writer, d.agent} {
			c.kill()
		}
		if d.cluster != nil {
			d.cluster.close()
		}
		switch {
		case err == nil:
			_ = os.RemoveAll(dir)
		case ctx.Err() != nil:
			err = errors.New("the demo was interrupted")
			_ = os.RemoveAll(dir)
		default:
			d.say("the files stay in %s", dir)
		}
	}()
	if err := d.start(); err != nil {
		return err
	}
	if err := d.play(ctx); err != nil {
		return err
	}
	if err := d.drain(ctx); err != nil {
		return err
	}
	if err := d.verify(ctx); err != nil {
		return err
	}
	if o.Keep {
		return d.keep(ctx)
	}
	return nil
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, format+"\n", args...)
}

// start brings up brokers, agent and writer.
func (d *demo) start() (err error) {
	if d.cluster, err = startDemoCluster("demo-web", "demo-app"); err != nil {
		return err
	}
	if err := os.Mkdir(d.logs(), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(d.config(), []byte(d.configText()), 0o644); err != nil {
		return err
	}
	d.say("Kafka: %d brokers inside this process; agent and writer: processes of their own; files: %s", demoBrokers, d.dir)
	if err := d.startAgent(); err != nil {
		return err
	}
	d.began = time.Now()
	return d.startWriter()
}

func (d *demo) logs() string   { return filepath.Join(d.dir, "logs") }
func (d *demo) config() string { return filepath.Join(d.dir, "shipper.yaml") }
func (d *demo) socket() string { return filepath.Join(d.dir, "spool", "admin.sock") }

// configText matches the rotated names too: a file that was made and rotated while no agent ran is known to nobody otherwise.
func (d *demo) configText() string {
	return fmt.Sprintf(`kafka:
  brokers: ["%s"]
spool:
  dir: %q
  max_bytes: 512MiB
defaults:
  idle_flush: 1m  # on a busy machine the writer may pause in the middle of a line
sources:
  - name: web
    paths: [%q]
    topic: demo-web
  - name: app
    paths: [%q]
    exclude: [%q]
    topic: demo-app
`, strings.Join(d.cluster.addresses(), `", "`), filepath.Join(d.dir, "spool"),
		filepath.Join(d.logs(), "web-*.log*"), filepath.Join(d.logs(), "*.log*"), filepath.Join(d.logs(), "web-*"))
}

func (d *demo) startWriter() (err error) {
	d.writer, err = startChild(&d.written, os.Stderr, "demo-writer", "--dir", d.logs(), "--for", demoWriteFor.String(), "--rate", strconv.Itoa(demoLinesPerFile))
	return err
}

// latestNumber takes lines of one number each and keeps the last; one goroutine writes, any may Load.
type latestNumber struct {
	atomic.Int64
	partial []byte // of the line that has not ended
}

func (l *latestNumber) Write(b []byte) (int, error) {
	l.partial = append(l.partial, b...)
	for {
		line, rest, complete := bytes.Cut(l.partial, []byte("\n"))
		if !complete {
			return len(b), nil
		}
		n, err := strconv.ParseInt(string(line), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("not a number from the writer: %w", err)
		}
		l.Store(n)
		l.partial = rest
	}
}

func (d *demo) startAgent() error {
	log, err := os.OpenFile(filepath.Join(d.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	d.agent, err = startChild(log, log, "run", "--config", d.config())
	return err
}

func (d *demo) killAgent() error {
	d.agent.kill()
	d.agent = nil
	return nil
}

func (d *demo) cutBrokers() error {
	d.cluster.cut()
	return nil
}

func (d *demo) healBrokers() error {
	d.cluster.heal()
	return nil
}

// play runs the script beside the writer, until the writer has ended.
func (d *demo) play(ctx context.Context) error {
	script := demoScript
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		var next <-chan time.Time // nil, never ready, behind the last step
		if len(script) > 0 {
			next = time.After(time.Until(d.began.Add(script[0].at)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.writer.ended:
			switch {
			case d.writer.err != nil:
				return fmt.Errorf("the writer failed: %w", d.writer.err)
			case len(script) > 0:
				return errors.New("the writer ended too early")
			}
			return nil
		case <-d.agentEnded():
			return d.agentFailure()
		case <-next:
			d.say("%5.1fs  ** %s", time.Since(d.began).Seconds(), script[0].say)
			if err := script[0].do(d); err != nil {
				return err
			}
			script = script[1:]
		case <-second.C:
			d.progress(ctx)
		}
	}
}

// agentEnded is ready if the agent ended by itself; nil, never ready, while there is none.
func (d *demo) agentEnded() <-chan struct{} {
	if d.agent == nil {
		return nil
	}
	return d.agent.ended
}

// agentFailure tells what the agent said last.
func (d *demo) agentFailure() error {
	log, err := os.ReadFile(filepath.Join(d.dir, "agent.log"))
	if err != nil {
		return err
	}
	return fmt.Errorf("the agent ended by itself (%v); the end of its log:\n%s", d.agent.err, log[max(0, len(log)-2000):])
}

// progress prints one line. The agent counts since its own start; what is in Kafka is asked from the brokers.
func (d *demo) progress(ctx context.Context) {
	if d.cluster.reachable() {
		if n, err := d.cluster.records(ctx); err == nil {
			d.inKafka = n
		}
	}
	line := fmt.Sprintf("%5.1fs  written %7d  in Kafka %7d", time.Since(d.began).Seconds(), d.written.Load(), d.inKafka)
	if s, err := agentStats(ctx, d.socket()); d.agent != nil && err == nil {
		now := sample{time.Now(), s.BytesRead}
		rate := float64(max(0, now.bytesRead-d.last.bytesRead)) / now.at.Sub(d.last.at).Seconds() / 1e6
		if d.last.at.IsZero() || now.bytesRead < d.last.bytesRead {
			rate = 0 // no two samples of the same process yet
		}
		d.last = now
		line += fmt.Sprintf("  |  agent: read %7d  spooled %7d  acked %7d  %4.1f MB/s  spool %5.1f MiB  oldest waits %4.1fs",
			s.LinesRead, s.LinesSpooled, s.LinesAcked, rate, float64(s.SpoolBytes)/(1<<20), s.OldestUnackedSeconds)
	} else {
		d.last = sample{}
		line += "  |  agent: no answer"
	}
	d.say("%s", line)
}

// drain waits until as many records as lines are in Kafka, or none came for demoStallMax, then asks the agent to stop.
func (d *demo) drain(ctx context.Context) error {
	d.say("%5.1fs  ** the writer has ended", time.Since(d.began).Seconds())
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for before, since := d.inKafka, time.Now(); d.inKafka < d.written.Load(); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.agentEnded():
			return d.agentFailure()
		case <-second.C:
			d.progress(ctx)
		}
		if d.inKafka > before {
			before, since = d.inKafka, time.Now()
		} else if time.Since(since) > demoStallMax {
			d.say("        nothing arrived for %v", demoStallMax)
			break
		}
	}
	return d.stopAgent()
}

func (d *demo) stopAgent() error {
	d.say("%5.1fs  ** SIGTERM to the agent", time.Since(d.began).Seconds())
	if err := d.agent.stop(demoStopMax); err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	d.agent = nil
	return nil
}

// verify reads the topics back and prints the verdict.
func (d *demo) verify(ctx context.Context) error {
	found, err := newDelivery(filepath.Join(d.logs(), "*.log*"))
	if err != nil {
		return fmt.Errorf("read the log files again: %w", err)
	}
	if err := d.cluster.read(ctx, found.take); err != nil {
		return err
	}
	found.finish()
	d.say("\nlog files and topics compared byte for byte, %d files:", len(found.files))
	for _, row := range []struct {
		name string
		n    int
	}{
		{"written", found.Written},
		{"delivered", found.Delivered},
		{"lost", found.Lost},
		{"doubled", found.Doubled},
		{"out of order", found.OutOfOrder},
		{"foreign", found.Foreign},
	} {
		d.say("  %-13s %8d", row.name, row.n)
	}
	if !found.perfect() {
		for _, fault := range found.faults() {
			d.say("  %s", fault)
		}
		return errors.New("the demo failed: not every line is in Kafka exactly once and in order")
	}
	d.say("Every line is in Kafka exactly once and in order.")
	return nil
}

// keep starts the agent once more and waits for Ctrl-C.
func (d *demo) keep(ctx context.Context) error {
	if err := d.startAgent(); err != nil {
		return err
	}
	d.say(`
The brokers and the agent stay up until Ctrl-C. To look around:
  echo hello >> %s
  kcat -b %s -C -t demo-web -o -5 -e
  curl -s --unix-socket %s http://agent/stats
  tail %s`, filepath.Join(d.logs(), "web-a.log"), d.cluster.addresses()[0], d.socket(), filepath.Join(d.dir, "agent.log"))
	select {
	case <-ctx.Done():
		return nil
	case <-d.agentEnded():
		return d.agentFailure()
	}
}
