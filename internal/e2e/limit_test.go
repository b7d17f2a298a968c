package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// limitedLines are numbered lines of one file.
func limitedLines(name string, from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%s %04d\n", name, i)
	}
	return b.String()
}

// wantInOrder waits for the lines 0 to n of each file, each once and in the order of its file.
func (f *forms) wantInOrder(n int, names ...string) {
	f.t.Helper()
	next := map[string]int{}
	for _, r := range f.records(n * len(names)) {
		var name string
		var i int
		if _, err := fmt.Sscanf(string(r.Value), "%s %d", &name, &i); err != nil || i != next[name] {
			f.t.Fatalf("%q, want line %d of it", r.Value, next[name])
		}
		next[name]++
	}
	for _, name := range names {
		if next[name] != n {
			f.t.Errorf("%s: %d lines, want %d", name, next[name], n)
		}
	}
}

// A source that may send less than is written, in three files of which one is rotated twice, loses and doubles nothing when
// the agent is killed again and again.
func TestRateLimitKill9(t *testing.T) {
	f := newForms(t, "    filter: {rate_limit: {lines: 500}}\n")
	names := []string{"a", "b", "c"}
	for _, name := range names {
		f.write(name+".log", limitedLines(name, 0, 300))
	}
	f.agent.Start()
	for i := range 2 {
		f.records(100 * (i + 1))
		f.rename("a.log", fmt.Sprintf("a.log.%d", i+1))
		f.write("a.log", limitedLines("a", 300+200*i, 500+200*i))
		f.agent.Kill9()
		f.agent.Start()
	}
	for _, name := range names[1:] {
		f.write(name+".log", limitedLines(name, 300, 600))
	}
	f.agent.KillLoop(4, 100*time.Millisecond, 500*time.Millisecond, 1)
	f.agent.Start()
	for _, name := range names[1:] {
		f.write(name+".log", limitedLines(name, 600, 700))
	}
	f.wantInOrder(700, names...)
	f.stop()
}

// A limit below one line a second lets lines through all the same, one at a time.
func TestRateLimitBelowOneLine(t *testing.T) {
	f := newForms(t, "    filter: {rate_limit: {bytes: 20}}\n")
	long := strings.Repeat("x", 30)
	f.write("a.log", strings.Repeat(long+"\n", 3))
	f.agent.Start()
	f.want(long, long, long)
	f.stop()
}

// What a limit drops is counted to the line.
func TestRateLimitDropsAreCounted(t *testing.T) {
	f := newForms(t, "    filter: {rate_limit: {lines: 100, when_above: drop}}\n")
	f.agent.Start()
	f.agent.WaitLog("shipper runs", deliverMax)
	const lines = 2000
	for _, name := range []string{"a", "b"} {
		f.write(name+".log", limitedLines(name, 0, lines))
	}
	dropped := 0.0
	for deadline := time.Now().Add(deliverMax); ; time.Sleep(50 * time.Millisecond) {
		stats := statsOf(t, f.spoolDir())
		bySource, _ := stats["records"].(map[string]any)
		app, _ := bySource["app"].(map[string]any)
		dropped, _ = app["rate_limited"].(float64)
		acked, _ := stats["lines_acked"].(float64)
		if acked+dropped == 2*lines {
			break
		}
		if acked+dropped > 2*lines || time.Now().After(deadline) {
			t.Fatalf("%v lines were acknowledged and %v dropped, of %d", acked, dropped, 2*lines)
		}
	}
	if got := len(f.records(2*lines - int(dropped))); got != 2*lines-int(dropped) || dropped < lines {
		t.Errorf("%d records, and %v lines were dropped", got, dropped)
	}
	f.stop()
}
