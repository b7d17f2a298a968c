//go:build linux

// Package run starts the programs of a measurement as processes of their own, pins them to CPUs and reads what they used.
package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AnyCPU leaves the choice of CPUs to the kernel.
const AnyCPU = -1

// Command is a program to start.
type Command struct {
	Path   string
	Args   []string
	CPU    int       // AnyCPU, or the one CPU it may use
	Stdout io.Writer // nil: thrown away
	Stderr io.Writer
}

// Process is a running program. It is killed if this process dies.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed behind exitErr
	err    error
}

// Start starts c.
func Start(c Command) (*Process, error) {
	p := &Process{cmd: exec.Command(c.Path, c.Args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = c.Stdout, c.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startOn(c.CPU, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// startOn runs start on a thread with the CPU mask the child is to inherit.
func startOn(cpu int, start func() error) error {
	if cpu == AnyCPU {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &old))
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err is how the process ended, nil for exit code 0. Only after Exited.
func (p *Process) Err() error { return p.err }

// Stop asks the process to end and waits. A process that does not end within grace is killed, which is an error.
func (p *Process) Stop(grace time.Duration) error {
	select {
	case <-p.exited:
		return p.err
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return p.err
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.cmd.Path, grace)
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	p.cmd.Process.Kill() //nolint:errcheck // it has ended if that fails
	<-p.exited
}

// Usage is what a process has used since its start.
type Usage struct {
	UserSeconds, SystemSeconds float64
	RSSBytes, PeakRSSBytes     int64
	WrittenBytes               int64 // handed to the disk, pages included that were never written back
}

// CPUSeconds is user and system time.
func (u Usage) CPUSeconds() float64 { return u.UserSeconds + u.SystemSeconds }

// Usage reads /proc. CPU times come in steps of 10 ms.
func (p *Process) Usage() (Usage, error) {
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	var u Usage
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return u, err
	}
	// The command name, in brackets, may hold anything; user and system time are the 12th and 13th field behind it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("%sstat has %d fields", dir, len(fields))
	}
	const ticksPerSecond = 100 // USER_HZ, the same on every Linux
	for i, to := range []*float64{&u.UserSeconds, &u.SystemSeconds} {
		ticks, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return u, err
		}
		*to = float64(ticks) / ticksPerSecond
	}
	peakKiB, err := field(dir+"status", "VmHWM:")
	if err != nil {
		return u, err
	}
	rssKiB, err := field(dir+"status", "VmRSS:")
	if err != nil {
		return u, err
	}
	u.RSSBytes, u.PeakRSSBytes = rssKiB<<10, peakKiB<<10
	u.WrittenBytes, err = field(dir+"io", "write_bytes:")
	return u, err
}

// Descriptors counts the open files.
func (p *Process) Descriptors() (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	return len(open), err
}

// DiskBytes is what the files of a folder take of their volume.
func DiskBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		sum += st.Blocks * 512
		return err
	})
	return sum, err
}

// ResetPeak has PeakRSSBytes begin anew.
func (p *Process) ResetPeak() error {
	const peakOnly = "5"
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte(peakOnly), 0)
}

// field finds a `name value` line of a /proc file.
func field(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// WaitUsage waits for the end of a process that is to end by itself. Its peak memory is that of the last look, at most 10 ms
// before the end; its CPU time is exact.
func (p *Process) WaitUsage(timeout time.Duration) (Usage, error) {
	var last Usage
	deadline := time.After(timeout)
	for {
		select {
		case <-p.exited:
			last.UserSeconds = p.cmd.ProcessState.UserTime().Seconds()
			last.SystemSeconds = p.cmd.ProcessState.SystemTime().Seconds()
			return last, p.err
		case <-deadline:
			p.Kill()
			return last, fmt.Errorf("%s did not end within %v", p.cmd.Path, timeout)
		case <-time.After(10 * time.Millisecond):
			if u, err := p.Usage(); err == nil {
				last = u
			}
		}
	}
}
