package kafkatest

import "syscall"

// dieWithParent makes the kernel kill a child when the thread that started it dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
