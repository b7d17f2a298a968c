package kafkatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// agentBuildMax bounds the build of the agent.
const agentBuildMax = 5 * time.Minute

// agentBinary is the agent built once per test process.
var agentBinary struct {
	once sync.Once
	dir  *runDir
	path string
	err  error
}

// AgentOptions describe an agent process; Config is required.
type AgentOptions struct {
	Config string   // text of its configuration file
	Binary string   // "" builds cmd/shipper once (or takes SHIPPER_BINARY)
	Args   []string // nil is "run", "--config", the file
	Env    []string // added to the environment

	ObeyPermissions bool // also of files that only root may overrule, if we are root
}

// Agent is the real binary run as a process of its own: started, killed and stopped by
// the test. It dies with the test process and at the end of the test. Its log is kept
// if the test failed. Methods belong to one goroutine at a time.
type Agent struct {
	tb   testing.TB
	dir  *runDir
	o    AgentOptions
	proc *process
}

// NewAgent writes the configuration and builds the binary; it starts nothing.
func NewAgent(tb testing.TB, o AgentOptions) *Agent {
	tb.Helper()
	if o.Binary == "" {
		o.Binary = AgentBinary(tb)
	}
	dir, err := newRunDir("agent")
	if err != nil {
		tb.Fatal(err)
	}
	a := &Agent{tb: tb, dir: dir, o: o}
	tb.Cleanup(a.cleanup)
	if o.Args == nil {
		a.o.Args = []string{"run", "--config", a.ConfigFile()}
	}
	a.SetConfig(o.Config)
	return a
}

func (a *Agent) cleanup() {
	a.Kill9()
	if a.tb.Failed() {
		a.dir.keep()
		a.tb.Logf("kafkatest: agent log kept: %s", a.LogFile())
	}
	a.dir.close()
}

// Dir returns the directory the agent runs in: configuration, log, and room for its
// spool. It goes when the test ends, unless the test failed.
func (a *Agent) Dir() string { return a.dir.path }

// ConfigFile returns the path of the configuration.
func (a *Agent) ConfigFile() string { return filepath.Join(a.dir.path, "shipper.yaml") }

// LogFile returns the path of the log, which all lives of the agent append to.
func (a *Agent) LogFile() string { return filepath.Join(a.dir.path, "agent.log") }

// Log returns all that the agent has printed so far.
func (a *Agent) Log() string {
	a.tb.Helper()
	data, err := os.ReadFile(a.LogFile())
	if err != nil && !os.IsNotExist(err) {
		a.tb.Fatalf("kafkatest: agent: %v", err)
	}
	return string(data)
}

// SetConfig replaces the configuration file; the agent reads it at the next Start, or
// at once after Signal(SIGHUP).
func (a *Agent) SetConfig(text string) {
	a.tb.Helper()
	if err := os.WriteFile(a.ConfigFile(), []byte(text), 0o600); err != nil {
		a.tb.Fatalf("kafkatest: agent: %v", err)
	}
}

// Start starts the agent; it must not run.
func (a *Agent) Start() {
	a.tb.Helper()
	if a.Running() {
		a.tb.Fatal("kafkatest: Agent.Start while it runs")
	}
	cmd := exec.Command(a.o.Binary, a.o.Args...)
	cmd.Env = append(os.Environ(), a.o.Env...)
	cmd.Dir = a.dir.path
	proc, err := startProcess(cmd, a.LogFile(), a.o.ObeyPermissions)
	if err != nil {
		a.tb.Fatalf("kafkatest: start agent: %v", err)
	}
	a.proc = proc
}

// Binary returns the path of the program.
func (a *Agent) Binary() string { return a.o.Binary }

// Running tells whether the process lives.
func (a *Agent) Running() bool { return a.proc != nil && !a.proc.ended() }

// Pid returns the process id of the present or last life.
func (a *Agent) Pid() int { return a.proc.cmd.Process.Pid }

// Kill9 ends the agent with SIGKILL and waits for its end; no-op if it does not run.
func (a *Agent) Kill9() {
	if a.Running() {
		a.proc.kill()
	}
}

// Signal sends a signal to the running agent.
func (a *Agent) Signal(sig syscall.Signal) {
	a.tb.Helper()
	if !a.Running() {
		a.tb.Fatalf("kafkatest: %v to an agent that does not run; %s", sig, tail(a.LogFile()))
	}
	if err := a.proc.signal(sig); err != nil {
		a.tb.Fatalf("kafkatest: %v to agent: %v", sig, err)
	}
}

// Stop sends SIGTERM and returns the exit code; the test fails if the agent has not
// ended within limit.
func (a *Agent) Stop(limit time.Duration) int {
	a.tb.Helper()
	a.Signal(syscall.SIGTERM)
	return a.WaitExit(limit)
}

// WaitExit waits for the agent to end by itself and returns its exit code, -1 if a
// signal ended it; the test fails after limit.
func (a *Agent) WaitExit(limit time.Duration) int {
	a.tb.Helper()
	if !a.proc.wait(limit) {
		a.tb.Fatalf("kafkatest: agent had not ended after %v; %s", limit, tail(a.LogFile()))
	}
	return a.proc.exitCode()
}

// KillLoop starts the agent, lets it run between least and most, kills it with SIGKILL
// and so on, rounds times; it leaves the agent dead. An agent that ends by itself
// fails the test. The times follow from seed, which is logged.
func (a *Agent) KillLoop(rounds int, least, most time.Duration, seed uint64) {
	a.tb.Helper()
	a.tb.Logf("kafkatest: kill loop of %d rounds with seed %d", rounds, seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for round := range rounds {
		if !a.Running() {
			a.Start()
		}
		life := least + time.Duration(rng.Int64N(int64(most-least)+1))
		if a.proc.wait(life) {
			a.tb.Fatalf("kafkatest: agent ended by itself in round %d with code %d; %s", round, a.proc.exitCode(), tail(a.LogFile()))
		}
		a.Kill9()
	}
}

// WaitLog waits until the log contains text; the test fails after limit.
func (a *Agent) WaitLog(text string, limit time.Duration) {
	a.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !strings.Contains(a.Log(), text) {
		select {
		case <-ctx.Done():
			a.tb.Fatalf("kafkatest: agent did not log %q within %v; %s", text, limit, tail(a.LogFile()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// AgentBinary returns the path of the agent's binary, building it the first time.
func AgentBinary(tb testing.TB) string {
	tb.Helper()
	b := &agentBinary
	b.once.Do(func() {
		if b.path = os.Getenv(envBinary); b.path == "" {
			b.path, b.err = goBuild()
		}
	})
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return b.path
}

// goBuild builds cmd/shipper of the module the test runs in.
func goBuild() (string, error) {
	dir, err := newRunDir("binary")
	if err != nil {
		return "", err
	}
	agentBinary.dir = dir
	ctx, cancel := context.WithTimeout(context.Background(), agentBuildMax)
	defer cancel()
	path := filepath.Join(dir.path, "shipper")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "shipper/cmd/shipper")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("kafkatest: build the agent: %w: %s", err, out)
	}
	return path, nil
}
