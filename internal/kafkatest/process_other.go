//go:build !linux

package kafkatest

import "syscall"

// dieWithParent has no counterpart here: after a SIGKILL of the test process, brokers
// must be ended by hand.
func dieWithParent() *syscall.SysProcAttr { return nil }
