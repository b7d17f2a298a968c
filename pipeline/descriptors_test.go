package pipeline

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shipper/internal/vfs"
	"shipper/sink/kafka"
	"shipper/spool"
)

// TestNoDescriptorsForAWhile: nothing of the spool can be opened for a while. That is no full spool: whatever is to be done when it is
// full, lines wait, the agent goes on, and says it once.
func TestNoDescriptorsForAWhile(t *testing.T) {
	a := newFaultyAgent(t)
	a.cfg.Spool.DropNewest = true
	a.start()
	a.write(3_000)
	a.await("spooled", func(s Stats) bool { return s.LinesSpooled == 3_000 })
	fail := func(op vfs.Op) error {
		if op.Kind == "create" || op.Kind == "open" || op.Kind == "opendir" {
			return &fs.PathError{Op: "open", Path: op.Name, Err: syscall.EMFILE}
		}
		return nil
	}
	a.broken.Store(&fail)
	a.write(14_000) // more than the files that are there take
	a.await("full", func(s Stats) bool { return s.SpoolFullFor > 0 })
	time.Sleep(2 * retryFull)
	a.broken.Store(nil)
	a.checkTopic()
	if n := strings.Count(a.log.String(), "until the process may open files again"); n != 1 || len(a.agent.Stats().Dropped) > 0 {
		t.Errorf("told %d times, dropped %+v\n%s", n, a.agent.Stats().Dropped, a.log.String())
	}
	a.stop()
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
}

// TestLettersWithoutDescriptors, in a process of its own: with ever more descriptors left, a line of the dead letters or of the ledger is
// there once it was said to be, and only then.
func TestLettersWithoutDescriptors(t *testing.T) {
	if os.Getenv("PIPELINE_TEST_STARVE") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLettersWithoutDescriptors$", "-test.v")
		cmd.Env = append(os.Environ(), "PIPELINE_TEST_STARVE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	letters, gaps := deadLetters{dir}, newLedger(dir, [16]byte{})
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 40
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var hog []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		hog = append(hog, f)
	}
	written, told, failed := 0, 0, 0
	for n := range 5 {
		for range 2 {
			if _, err := letters.write(1, &kafka.DeadLetter{Source: "app"}, now, 1<<20); err == nil {
				written++
			} else if failed++; !spool.IsNoDescriptor(err) {
				t.Fatal(err)
			}
			if err := gaps.write([]spool.UntoldGap{{Number: uint64(n)}}, now); err == nil {
				told++
			} else if !spool.IsNoDescriptor(err) {
				t.Fatal(err)
			}
		}
		if err := hog[n].Close(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{filepath.Join(dir, deadLetterDir, "2026-11-30.jsonl"): written, gaps.path(): told} {
		text, err := os.ReadFile(path)
		if got := bytes.Count(text, []byte("\n")); err != nil || got != want || want == 0 || failed == 0 {
			t.Error(fmt.Sprintf("%d lines, %d were said to be there, %d failed: %s", got, want, failed, path), err)
		}
	}
}
