//go:build linux

package run

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestUsageOfAProcess(t *testing.T) {
	p, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"}, CPU: AnyCPU})
	if err != nil {
		t.Fatal(err)
	}
	u, err := p.WaitUsage(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if u.CPUSeconds() <= 0 || u.PeakRSSBytes <= 0 {
		t.Errorf("usage %+v, want CPU time and memory", u)
	}
}

func TestPinnedProcessSeesOneCPU(t *testing.T) {
	var out bytes.Buffer
	cpu := runtime.NumCPU() - 1
	p, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", "grep Cpus_allowed_list /proc/self/status"}, CPU: cpu, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if fields := strings.Fields(out.String()); len(fields) != 2 || strings.ContainsAny(fields[1], "-,") {
		t.Errorf("allowed CPUs %q, want one", out.String())
	}
}

// startShell runs a script and waits for its first output.
func startShell(t *testing.T, script string) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", script}, CPU: AnyCPU, Stdout: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the script said nothing: %v", err)
	}
	return p
}

func TestStop(t *testing.T) {
	obeys := startShell(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	if err := obeys.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	deaf := startShell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	if err := deaf.Stop(200 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end within") {
		t.Errorf("a process that ignores SIGTERM was stopped with %v", err)
	}
}
