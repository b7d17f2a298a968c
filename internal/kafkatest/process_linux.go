package kafkatest

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill a child when the thread that started it dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// giveUpRoot makes file permissions count for the processes that this thread starts, also if they are root's.
func giveUpRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	return errors.Join(unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_DAC_OVERRIDE, 0, 0, 0), unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_DAC_READ_SEARCH, 0, 0, 0))
}
