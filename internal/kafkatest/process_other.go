//go:build !linux

package kafkatest

import (
	"errors"
	"os"
	"syscall"
)

// dieWithParent has no counterpart here: after a SIGKILL of the test process, brokers
// must be ended by hand.
func dieWithParent() *syscall.SysProcAttr { return nil }

// giveUpRoot is for Linux; others can run as another user.
func giveUpRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	return errors.New("kafkatest: root's rights cannot be given up here")
}
