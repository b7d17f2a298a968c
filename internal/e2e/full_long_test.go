//go:build long

package e2e

import (
	"fmt"
	"os"
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

// C172: 20 rotations whose new file may be read 3 s later. The old one is full of unread lines, and gets late ones; it is finished
// while the new one waits, and comes before it.
func TestC172InFull(t *testing.T) {
	b := embedded(t, 1)
	d := caseDir{t, t.TempDir()}
	agent := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: b.config(d.path("spool"), []source{{name: "app", glob: d.path("app.log*")}}), ObeyPermissions: true})
	var want []string
	add := func(name string, n int) {
		var list []string
		for range n {
			list = append(list, fmt.Sprintf("line %d", len(want)+len(list)))
		}
		want = append(want, list...)
		d.add(name, lines(list...))
	}
	arrived := func(n int) {
		t.Helper()
		kafkatest.AwaitRecords(t, b.bootstrap, b.topic, int64(n), b.read)
	}
	b.read.Within = deliverMax
	add("app.log", 10)
	agent.Start()
	arrived(len(want))
	for round := range 20 {
		old := fmt.Sprintf("app.log.%d", 20-round) // numbers count backwards
		add("app.log", 2_000)
		d.rotate("app.log", old, "")
		d.must(os.Chmod(d.path("app.log"), 0))
		add(old, 500)
		finished := len(want)
		add("app.log", 10)
		tight := time.After(3 * time.Second)
		arrived(finished)
		<-tight
		d.must(os.Chmod(d.path("app.log"), 0o644))
		arrived(len(want))
	}
	got, _ := kafkatest.ReadTopic(t, b.bootstrap, b.topic, b.read)
	checkCase(t, got, [][]string{want})
	if code := agent.Stop(stopMax); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}
