package steady_test

import (
	"testing"
	"time"

	"shipper/internal/steady"
)

// It runs as the monotonic clock does, as long as the machine is awake.
func TestRuns(t *testing.T) {
	began, from := time.Now(), steady.Now()
	if from <= 0 {
		t.Fatalf("the time is %d", from)
	}
	time.Sleep(20 * time.Millisecond)
	took := steady.Since(from)
	if most := time.Since(began); took < 20*time.Millisecond || took > most+time.Millisecond {
		t.Errorf("%v have passed, of at least 20 ms and at most %v", took, most)
	}
}
