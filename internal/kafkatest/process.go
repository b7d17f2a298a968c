package kafkatest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// No process outlives the tests that started it, not even when the test process is
// killed with SIGKILL: on Linux every child asks the kernel for SIGKILL at the death of
// its parent *thread* (prctl PR_SET_PDEATHSIG). So all children are started by one
// goroutine that owns one OS thread and never ends: that thread dies with the process
// and not before. Go closes the race between fork and prctl by itself. Those for whom file
// permissions count though they are root's have a thread of their own, which gave that right
// of root away for itself and its children.

// process is a started child.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child was waited for
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

// starter starts processes on one thread, whose death ends them all.
type starter struct {
	once   sync.Once
	starts chan startRequest
}

var asWeAre, obeying = starter{starts: make(chan startRequest)}, starter{starts: make(chan startRequest)}

func (s *starter) start(cmd *exec.Cmd, prepare func() error) error {
	s.once.Do(func() {
		go func() {
			runtime.LockOSThread()
			err := prepare()
			for r := range s.starts {
				if err == nil {
					r.err <- r.cmd.Start()
				} else {
					r.err <- err
				}
			}
		}()
	})
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	s.starts <- r
	return <-r.err
}

// startProcess starts cmd with both outputs appended to logFile.
func startProcess(cmd *exec.Cmd, logFile string, obeyPermissions bool) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	if obeyPermissions {
		err = obeying.start(cmd, giveUpRoot)
	} else {
		err = asWeAre.start(cmd, func() error { return nil })
	}
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		// How it ended is read from ProcessState by whoever cares.
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait tells whether the child ended within limit.
func (p *process) wait(limit time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(limit):
		return p.ended()
	}
}

// exitCode is that of an ended child, -1 if a signal ended it.
func (p *process) exitCode() int { return p.cmd.ProcessState.ExitCode() }

func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// kill ends the child at once and waits for its end.
func (p *process) kill() {
	// An error says that it ended already.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tail returns the last lines of a log for an error message.
func tail(file string) string {
	const bytesMax = 2000
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	if len(data) > bytesMax {
		data = data[len(data)-bytesMax:]
	}
	return "its log ends:\n" + strings.TrimSpace(string(data))
}
