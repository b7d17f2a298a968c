package tail

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// obeyPermissions makes file permissions count for the calling goroutine also if it is root's: it gives up, on its thread and
// until the test ends, the capabilities that let root read everything.
func obeyPermissions(t *testing.T) {
	if unix.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine, and its lack of capabilities with it
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []uint{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		data[c/32].Effective &^= 1 << (c % 32)
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
}
