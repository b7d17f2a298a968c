package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("BUG: Linux has no clock of the time since the boot: " + err.Error()) // it has one since 2.6.39
	}
	return time.Duration(t.Nano())
}
