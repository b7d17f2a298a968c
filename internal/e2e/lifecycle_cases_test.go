package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// C165: 2,000 lines a second, and the agent is stopped and started all the time, with pauses and without.
func TestC165RestartLoop(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 4, Rate: 2_000})
	w.writer.Start()
	for i := range 6 {
		w.agent.Start()
		w.stats() // in the first milliseconds nobody has said what a signal is for
		time.Sleep(time.Duration(i) * 50 * time.Millisecond)
		w.stop()
		time.Sleep(time.Duration(i%3) * 50 * time.Millisecond)
	}
	w.agent.Start()
	w.writer.Stop()
	w.checkSettled()
	w.stop()
}

// C167: stops while a backlog in many files is read end soon, and the next start goes on.
func TestC167StopInBacklog(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 100, LineBytes: 900})
	w.writer.Write(20_000)
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
		w.agent.Start()
		w.stats()
		time.Sleep(after)
		w.stop()
	}
	w.agent.Start()
	w.checkSettled()
	w.stop()
}

// C177, C186, C187, C189: files rotate every second or so while all connections are cut fifty times. Nothing is dropped; what is told of files
// is never below zero nor goes back, and is right when all is read.
func TestC177C186C187C189CutUnderLoad(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc here")
	}
	const cuts = 50
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 3, Rate: 6_000, Rotation: kafkatest.RotateRename, RotateLines: 2_000})
	var before map[string]float64
	look := func() map[string]float64 {
		s := w.stats()
		for _, name := range []string{"lines_read", "bytes_read", "lines_acked", "batches_sent", "retries"} {
			if s[name] < before[name] {
				t.Errorf("%s goes from %v back to %v", name, before[name], s[name])
			}
		}
		for name, v := range s {
			if v < 0 {
				t.Errorf("%s is %v", name, v)
			}
		}
		before = s
		return s
	}
	w.underLoad(func() {
		for range cuts {
			for _, p := range w.proxies {
				p.Reset()
			}
			look()
			time.Sleep(50 * time.Millisecond)
		}
	})
	var written int64
	files, err := filepath.Glob(filepath.Join(w.dir, "logs", "*"))
	for _, f := range files {
		if st, serr := os.Stat(f); serr == nil {
			written += st.Size()
		}
	}
	if err != nil || len(files) < 6 {
		t.Fatalf("files %q, %v", files, err)
	}
	var s map[string]float64
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if s = look(); s["unread_bytes"] == 0 && s["oldest_unacked_seconds"] == 0 && int(s["files_open"]) == w.openLogs() || time.Now().After(deadline) {
			break
		}
	}
	if s["unread_bytes"] != 0 || s["oldest_unacked_seconds"] != 0 || int(s["files_open"]) != w.openLogs() || int64(s["bytes_read"]) != written || s["dropped_records"] != 0 || s["retries"] == 0 {
		t.Errorf("%d logs are open, %d bytes were written, and the agent says: %v", w.openLogs(), written, s)
	}
	w.stop()
}

// openLogs is how many descriptors of logs the agent has.
func (w *world) openLogs() (n int) {
	dir := fmt.Sprintf("/proc/%d/fd", w.agent.Pid())
	fds, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.Contains(to, "/logs/app-") {
			n++
		}
	}
	return n
}

// C175: many tiny files are delivered with few descriptors.
func TestC175TinyFiles(t *testing.T) {
	const files = 1_000
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: files})
	w.writer.Write(2 * files)
	w.agent.Start()
	w.check()
	w.writer.Write(files)
	w.checkSettled()
	if s := w.stats(); s["files"] != files || s["files_open"] > s["files_open_max"] || w.openLogs() > int(s["files_open_max"]) {
		t.Errorf("%v files, %v open of %v", s["files"], s["files_open"], s["files_open_max"])
	}
	w.stop()
}
