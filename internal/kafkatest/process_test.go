package kafkatest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary run with this variable is one of the helpers below instead.
const envHelper = "KAFKATEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(envHelper) {
	case "":
		os.Exit(Run(m))
	case "owner":
		helperOwner()
	case "agent":
		helperAgent()
	}
	os.Exit(3)
}

// helperOwner owns a child, a frozen child and, if Kafka is to be had, a broker; it
// prints its run directory and their process ids and waits to be killed.
func helperOwner() {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	var pids []int
	dir, err := newRunDir("orphan")
	fail(err)
	for range 2 {
		p, err := startProcess(exec.Command("sleep", "600"), filepath.Join(dir.path, "log"), false)
		fail(err)
		pids = append(pids, p.cmd.Process.Pid)
	}
	fail(syscall.Kill(pids[1], syscall.SIGSTOP))
	paths := dir.path
	o, err := Options{Brokers: 1}.withDefaults()
	fail(err)
	d, err := obtain(o.Version)
	var gone *absentError
	if !errors.As(err, &gone) {
		fail(err)
		s, err := newState(o, d)
		fail(err)
		fail(s.nodes[0].start())
		pids = append(pids, s.nodes[0].proc.cmd.Process.Pid)
		paths += " " + s.dir.path
	}
	fmt.Println(paths)
	fmt.Println(strings.Trim(fmt.Sprint(pids), "[]"))
	time.Sleep(time.Minute)
}

// A test process killed with SIGKILL leaves no child, frozen or not, and what it left
// on disk is removed by the next run.
func TestNoOrphans(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envHelper+"=owner")
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	r := bufio.NewReader(out)
	paths, err := r.ReadString('\n')
	if err != nil || strings.HasPrefix(paths, "error") {
		t.Fatalf("helper: %v %s", err, paths)
	}
	pidLine, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, f := range strings.Fields(pidLine) {
		var pid int
		fmt.Sscan(f, &pid)
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("child %d does not live: %v", pid, err)
		}
		pids = append(pids, pid)
	}
	t.Logf("helper %d owns %v", cmd.Process.Pid, pids)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		for deadline := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d outlived the test process that started it", pid)
			}
		}
	}
	cmd.Wait()
	sweep(runRoot())
	for _, p := range strings.Fields(paths) {
		if _, err := os.Stat(p); !os.IsNotExist(err) {
			t.Errorf("%s was not swept: %v", p, err)
		}
	}
}

// alive tells whether a process lives; one that waits to be reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// helperAgent behaves like an agent: it logs, leaves with 0 on SIGTERM and with 7 if
// its configuration says so.
func helperAgent() {
	config, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		os.Exit(2)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Println("started with", string(config))
	if string(config) == "fail" {
		os.Exit(7)
	}
	<-stop
	fmt.Println("asked to stop")
	os.Exit(0)
}

func TestAgent(t *testing.T) {
	a := NewAgent(t, AgentOptions{Config: "one", Binary: os.Args[0], Env: []string{envHelper + "=agent"}})
	a.Start()
	a.WaitLog("started with one", 10*time.Second)
	if code := a.Stop(10 * time.Second); code != 0 || a.Running() {
		t.Errorf("exit code %d, running %v after SIGTERM", code, a.Running())
	}
	a.SetConfig("two")
	a.Start()
	a.WaitLog("started with two", 10*time.Second)
	pid := a.Pid()
	a.Kill9()
	if alive(pid) || a.WaitExit(0) != -1 {
		t.Errorf("process %d outlived Kill9", pid)
	}
	a.KillLoop(5, 0, 20*time.Millisecond, 1)
	if a.Running() {
		t.Error("agent runs after KillLoop")
	}
	a.SetConfig("fail")
	a.Start()
	if code := a.WaitExit(10 * time.Second); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if !strings.Contains(a.Log(), "asked to stop") || !strings.Contains(a.Log(), "started with fail") {
		t.Errorf("log lacks a life:\n%s", a.Log())
	}
}

func TestRunDirs(t *testing.T) {
	d, err := newRunDir("test")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(d.path, "data-0")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	sweep(runRoot())
	if _, err := os.Stat(data); err != nil {
		t.Errorf("a directory in use was swept: %v", err)
	}
	d.keep()
	d.close()
	sweep(runRoot())
	if _, err := os.Stat(d.path); err != nil {
		t.Errorf("a kept directory is gone: %v", err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("data of a kept directory are still there: %v", err)
	}
	old := time.Now().Add(-keptMax - time.Hour)
	if err := os.Chtimes(filepath.Join(d.path, "keep"), old, old); err != nil {
		t.Fatal(err)
	}
	sweep(runRoot())
	if _, err := os.Stat(d.path); !os.IsNotExist(err) {
		t.Errorf("a directory kept for more than %v is still there: %v", keptMax, err)
	}
}

func TestReservePort(t *testing.T) {
	seen := make(map[int]bool)
	for range 20 {
		p, err := reservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if seen[p.number] || p.number < portMin || p.number >= portMax {
			t.Fatalf("port %d twice or out of range", p.number)
		}
		seen[p.number] = true
		if _, err := tryLock(filepath.Join(runRoot(), "ports", fmt.Sprint(p.number))); !errors.Is(err, errLocked) {
			t.Fatalf("a reserved port can be reserved again: %v", err)
		}
	}
}

// A directory that is being made is nobody's leftover.
func TestRunDirsMadeSideBySide(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				d, err := newRunDir("side")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(filepath.Join(d.path, "lock")); err != nil {
					t.Errorf("a directory in use was swept: %v", err)
				}
				d.close()
			}
		})
	}
	all.Wait()
}
