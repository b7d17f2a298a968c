package tail

import (
	"fmt"
	"testing"
	"time"
)

// TestListedOnceForAll has many logs of one directory rotated and compressed at once: it is not listed for each of them.
func TestListedOnceForAll(t *testing.T) {
	const n = 40
	m := newMachine(t, false)
	each := func(steps ...string) {
		for i := range n {
			for _, step := range steps {
				stepAll(t, m, fmt.Sprintf(step, i))
			}
		}
	}
	stepAll(t, m, "block paths=*.log")
	each("lines %[1]d.log 0 %[1]d")
	stepAll(t, m, "poll")
	each("mv %[1]d.log %[1]d.log.1", "lines %d.log 1000 1000")
	stepAll(t, m, "poll")
	each("gzip %d.log.1")
	lists, now := map[time.Time]bool{}, m.w.now
	m.w.now = func() time.Time {
		if l, ok := m.w.siblings[m.dir]; ok {
			lists[l.at] = true
		}
		return now()
	}
	stepAll(t, m, "poll", "sleep 10s", "poll")
	if m.w.delivered != n || len(lists) > n/2 {
		t.Errorf("%d of %d generations known by their copies, after %d listings", m.w.delivered, n, len(lists))
	}
}
