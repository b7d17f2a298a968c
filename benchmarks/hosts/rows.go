//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"shipper/benchmarks/internal/run"
)

// volume is the whole life of a spool on a small volume: empty, full, not a byte left on the volume, killed, started there, drained.
func (s *settings) volume(h *host) error {
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", volumeBytes), "none", h.spool()).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	lines := int64(0)
	for _, name := range []string{"a", "b"} {
		n, err := h.write(name, logBytes)
		if err != nil {
			return err
		}
		lines += n
	}
	if err := h.start(); err != nil {
		return err
	}
	if _, err := h.agent.WaitStats("full", waitMax, func(x run.AgentStats) bool { return x.SpoolFullSeconds > 2 }); err != nil {
		return err
	}
	if err := h.row("a volume of 256 MiB, all defaults, full", lines); err != nil {
		return err
	}
	if err := fill(filepath.Join(h.spool(), "foreign")); err != nil {
		return err
	}
	h.agent.Kill()
	if err := h.start(); err != nil {
		return err
	}
	if err := h.deliver(lines); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(h.spool(), "foreign")); err != nil {
		return err
	}
	if err := h.row("the same, no byte free, killed, started, drained", lines); err != nil {
		return err
	}
	time.Sleep(restFor)
	if err := h.row("the same, at rest behind that", lines); err != nil {
		return err
	}
	return h.agent.Stop()
}

// fill takes the last byte of the volume.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
			return err
		}
		err = nil
	}
	return nil
}

// readOnly runs the agent where it may write to its spool alone.
func (s *settings) readOnly(h *host) error {
	lines, err := h.write("app", 20<<20)
	if err != nil {
		return err
	}
	root := filepath.Join(h.dir, "root")
	h.bin = filepath.Join(h.dir, "in-read-only-root")
	script := fmt.Sprintf("#!/bin/sh\nset -e\nmkdir -p %[1]s\nmount --rbind / %[1]s\nmount -o remount,bind,ro / %[1]s\nmount --bind %[2]s %[1]s%[2]s\n"+
		"if touch %[1]s/tmp/x 2>/dev/null; then echo the root can be written >&2; exit 1; fi\nexec chroot %[1]s %[3]s \"$@\"\n",
		root, h.spool(), s.programs.Path("shipper"))
	if err := os.WriteFile(h.bin, []byte(script), 0o700); err != nil {
		return err
	}
	if err := h.start(); err != nil {
		return err
	}
	if err := h.waitSpooled(lines); err != nil {
		return err
	}
	if err := h.row("a root that is read-only, the spool alone may be written", lines); err != nil {
		return err
	}
	if err := h.deliver(lines); err != nil {
		return err
	}
	return h.agent.Stop()
}

func (s *settings) manyFiles(h *host) error {
	lines := int64(0)
	for i := range s.files {
		n, err := h.write(fmt.Sprintf("%d/f%d", i/filesPerDir, i), fewBytes)
		if err != nil {
			return err
		}
		lines += n
	}
	if err := h.start(); err != nil {
		return err
	}
	if err := h.waitSpooled(lines); err != nil {
		return err
	}
	what := fmt.Sprintf("%d files", s.files)
	if err := h.row(what+", all in the spool", lines); err != nil {
		return err
	}
	if err := h.agent.Stop(); err != nil {
		return err
	}
	if err := h.start(); err != nil {
		return err
	}
	if _, err := h.agent.WaitStats("it answers", waitMax, func(run.AgentStats) bool { return true }); err != nil {
		return err
	}
	if err := h.row("the same, started again", lines); err != nil {
		return err
	}
	return h.delivered(lines)
}
