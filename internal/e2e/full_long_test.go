//go:build long

package e2e

import (
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// Cases whose times say what they are about, with these times: `make test-long-cases`. The other suites have them in short.

// C126: 5 s and 25 s for every produce request, less than its time-out of 40 s, then more; two minutes of each.
func TestC126InFull(t *testing.T) {
	slowBroker(t, slow{acksTimeout: "30s", less: []time.Duration{5 * time.Second, 25 * time.Second}, hold: 2 * time.Minute, more: 45 * time.Second})
}

// C139: two of three brokers are frozen for 45 s and thawed for 20 s, 15 times.
func TestC139InFull(t *testing.T) {
	b, c := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 1_000})
	w.underLoad(func() { freezeTwo(c, 15, 45*time.Second, 20*time.Second) })
	w.stop()
}
