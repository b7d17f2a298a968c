//go:build !linux

package main

import "syscall"

// childAttributes: the child does not get the terminal's Ctrl-C. Only Linux can tie its life to ours.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
