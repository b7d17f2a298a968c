package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whoever reads the log may end: the agent goes on without, and stops cleanly.
func TestLogReaderGone(t *testing.T) {
	dir := t.TempDir()
	spool := filepath.Join(dir, "spool")
	config := filepath.Join(dir, "c.yaml")
	write(t, 0o600, config, strings.NewReplacer("kafka-1:9092", "127.0.0.1:1", "/var/lib/shipper", spool+"\n  max_bytes: 32MiB", "/var/log/app/**", dir).Replace(minimal))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("shipper", "run", "--config", config)
	cmd.Stderr = w
	if err := errors.Join(cmd.Start(), w.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(spool, "admin.sock")); err == nil {
			break
		}
	}
	time.Sleep(50 * time.Millisecond) // some lines of log
	_ = cmd.Process.Signal(syscall.SIGTERM)
	hang := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer hang.Stop()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Signals may come at any moment of a start. A stop ends the process cleanly, or by the signal's default action before it touched
// anything; a SIGHUP ends nothing once the config is read. In the end the spool, which lived through all of them, is in order.
func TestC168SignalsDuringStart(t *testing.T) {
	dir := t.TempDir()
	spool := filepath.Join(dir, "spool")
	write(t, 0o600, filepath.Join(dir, "app.log"), "one\n")
	config := filepath.Join(dir, "c.yaml")
	write(t, 0o600, config, strings.NewReplacer("kafka-1:9092", "127.0.0.1:1", "/var/lib/shipper", spool+"\n  max_bytes: 32MiB", "/var/log/app/**", dir).Replace(minimal))
	start := func() (*exec.Cmd, *strings.Builder) {
		log := new(strings.Builder)
		cmd := exec.Command("shipper", "run", "--config", config)
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, log
	}
	end := func(when time.Duration, cmd *exec.Cmd, log *strings.Builder) {
		hang := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer hang.Stop()
		err := cmd.Wait()
		if err == nil {
			return
		}
		exit, ok := errors.AsType[*exec.ExitError](err)
		bySignal := ok && exit.Sys().(syscall.WaitStatus).Signaled()
		if !bySignal || strings.Contains(log.String(), "level=") {
			t.Errorf("signal after %v: %v, log:\n%s", when, err, log)
		}
	}
	for when := time.Duration(0); when <= 240*time.Millisecond; when += 30 * time.Millisecond {
		cmd, log := start()
		time.Sleep(when)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		end(when, cmd, log)
	}
	cmd, log := start()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(spool, "admin.sock")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not up in time, log:\n%s", log)
		}
	}
	for range 5 {
		_ = cmd.Process.Signal(syscall.SIGHUP)
		time.Sleep(5 * time.Millisecond)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	end(0, cmd, log)
	if strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("the last run's log:\n%s", log)
	}
}
