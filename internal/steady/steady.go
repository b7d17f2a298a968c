// Package steady tells how long something has lasted, by a clock that nobody
// sets: it runs on while the machine is suspended, and a correction of the time
// of day does not move it. Its times mean nothing in another process.
package steady

import "time"

// Time is ns since a moment before the process started. It is never 0, which
// stands for no time.
type Time int64

// Now may be called from any goroutine.
func Now() Time { return Time(sinceBoot()) }

// Since is how long ago t was.
func Since(t Time) time.Duration { return time.Duration(Now() - t) }
