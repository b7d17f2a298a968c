package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets this binary stand in for the program: the scripts run it under the name shipper, as a process of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"shipper": main})
}

// TestScripts runs testdata/script/*.txt; CONTRIBUTING.md describes the language.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition:           scriptCondition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode":  scriptExitCode,
			"linesread": scriptLinesRead,
			"until":     scriptUntil,
		},
	})
}

// scriptCondition knows [mounts]: a script may mount file systems in a name space of its own.
func scriptCondition(name string) (bool, error) {
	if name != "mounts" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "-Urm", "mount", "-t", "tmpfs", "none", os.TempDir()).Run() == nil, nil
}

// scriptExitCode is `exitcode N program args...`: runs it and wants that exit code; stdout and stderr are kept as by exec.
func scriptExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N program args...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// The same as the scripts do from outside, in process: exit codes and streams of run.
func TestRunExitCodes(t *testing.T) {
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // how they begin
	}{
		{"version", exitOK, "shipper ", ""},
		{"--help", exitOK, "Tail log files", ""},
		{"check --help", exitOK, "Read the config", ""},
		{"completion bash", exitOK, "# bash completion", ""},
		{"", exitUsage, "", "shipper: no command given; see `shipper --help`\n"},
		{"rnu", exitUsage, "", "shipper: unknown command \"rnu\" for \"shipper\""},
		{"run", exitUsage, "", "shipper: --config FILE is required; see `shipper run --help`\n"},
		{"check --config", exitUsage, "", "shipper: flag needs an argument: --config; see `shipper check --help`\n"},
		{"check --conf x", exitUsage, "", "shipper: unknown flag: --conf; see `shipper check --help`\n"},
		{"check --config x.yaml y.yaml", exitUsage, "", "shipper: unknown command \"y.yaml\" for \"shipper check\"\n"},
		{"check --config /nowhere/x.yaml", exitUsage, "", "shipper: /nowhere/x.yaml: cannot read the config: no such file or directory\n"},
		{"run --config /nowhere/x.yaml", exitUsage, "", "shipper: /nowhere/x.yaml: cannot read the config: no such file or directory\n"},
		{"demo-writer", exitFailed, "", "shipper: demo-writer needs"},
	} {
		var stdout, stderr strings.Builder
		code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
		if code != c.code {
			t.Errorf("shipper %s: exit code %d, want %d", c.args, code, c.code)
		}
		for _, s := range []struct{ got, want string }{{stdout.String(), c.stdout}, {stderr.String(), c.stderr}} {
			if !strings.HasPrefix(s.got, s.want) || s.want == "" && s.got != "" {
				t.Errorf("shipper %s: printed %q, want %q", c.args, s.got, s.want)
			}
		}
		if strings.Count(stderr.String(), "\n") > 1 {
			t.Errorf("shipper %s: more than one line of error:\n%s", c.args, stderr.String())
		}
	}
}

// scriptLinesRead is `linesread SOCKET N`: waits until the agent behind the admin socket has read N lines since its start.
func scriptLinesRead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: linesread SOCKET N")
	}
	want, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got, err := agentStats(context.Background(), ts.MkAbs(args[0]))
		if err == nil && got.LinesRead >= want {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%d lines read (%v), want %d\n%s", got.LinesRead, err, want, lastWords(ts))
		}
	}
}

// scriptUntil is `until 'SHELL COMMAND'`: runs it again and again until it succeeds. If it never does, or what runs in the background has
// ended meanwhile, the script fails with what that said.
func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: until 'SHELL COMMAND'")
	}
	for deadline := time.Now().Add(time.Minute); ts.Exec("sh", "-c", args[0]) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) || slices.ContainsFunc(ts.BackgroundCmds(), hasEnded) {
			ts.Fatalf("it never succeeds\n%s", lastWords(ts))
		}
	}
}

func hasEnded(cmd *exec.Cmd) bool {
	return errors.Is(cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// lastWords ends what runs in the background and returns what it said.
func lastWords(ts *testscript.TestScript) string {
	var said strings.Builder
	for _, cmd := range ts.BackgroundCmds() {
		_ = cmd.Process.Kill()
		for deadline := time.Now().Add(5 * time.Second); !hasEnded(cmd) && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		}
		if hasEnded(cmd) { // else its buffers may still change
			fmt.Fprintf(&said, "%v said:\n%v%v", cmd.Args, cmd.Stdout, cmd.Stderr)
		}
	}
	return said.String()
}

// write makes a file and the directories above it.
func write(t *testing.T, mode os.FileMode, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
