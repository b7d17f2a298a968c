package main

import "syscall"

// childAttributes: a child dies with the thread that started it, whatever ends this process (runDemo stays locked to that thread),
// and does not get the terminal's Ctrl-C: the demo ends its children itself.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
