//go:build !linux

package steady

import "time"

var started = time.Now()

// sinceBoot is the time since the process started; how long the machine was suspended is not in it.
func sinceBoot() time.Duration { return time.Since(started) + 1 }
