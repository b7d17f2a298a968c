package e2e

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"shipper/internal/kafkatest"
)

// fix runs `shipper fix lane` beside the agent.
func (w *world) fix(args ...string) string {
	w.t.Helper()
	args = append([]string{"fix", "lane", "--config", w.agent.ConfigFile()}, args...)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.CommandContext(w.t.Context(), w.agent.Binary(), args...).CombinedOutput()
		if err == nil {
			return string(out)
		}
		if !bytes.Contains(out, []byte("is it running?")) || time.Now().After(deadline) { // it may be about to start
			w.t.Fatalf("shipper %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// adoptRest has all lanes adopt the other cluster but the one that did so before.
func (w *world) adoptRest(before string) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		list := w.fix()
		if strings.Contains(list, " adopt\n") {
			if strings.Contains(list, "shipper fix lane "+before+" adopt") {
				w.t.Errorf("the decision on %s was forgotten:\n%s", before, list)
			}
			w.fix("all", "adopt")
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no lane waits:\n%s", list)
		}
	}
}

// The brokers answer with another cluster id: the lanes are held, the log and `fix lane` say what to do, and what was not
// acked goes to the other cluster once an operator has decided so. The decision outlives a kill.
func TestClusterReplacedIsAdopted(t *testing.T) {
	old, other := embedded(t, 2, kfake.ClusterID("the-old-one")), embeddedBeside(t, 2, kfake.ClusterID("another-one"))
	w := newWorld(t, old, kafkatest.WriterOptions{Files: 8})
	w.first(1_000)
	acked := w.writer.Written()
	time.Sleep(2 * time.Second) // the acks are durable
	w.stop()
	w.brokers = other
	w.configure()
	w.writer.Write(1_000)
	w.agent.Start()
	w.agent.WaitLog("cluster id changed", 20*time.Second)
	w.agent.WaitLog("shipper fix lane", time.Second)
	time.Sleep(time.Second)
	for p := range int32(2) {
		if n := other.fake.PartitionInfo(other.topic, p).HighWatermark; n != 0 {
			t.Fatalf("%d records went to a cluster that nobody has adopted", n)
		}
	}
	list := w.fix()
	first, _, found := strings.Cut(list[max(0, strings.Index(list, "logs/")):], " ")
	if !found || !strings.Contains(list, "shipper fix lane "+first+" adopt") {
		t.Fatalf("fix lane does not say how to go on:\n%s", list)
	}
	if said := w.fix(first, "adopt"); !strings.Contains(said, "adopts the cluster") {
		t.Errorf("fix lane adopt says %q", said)
	}
	w.agent.WaitLog("why=operator", 20*time.Second)
	for deadline := time.Now().Add(20 * time.Second); other.fake.PartitionInfo(other.topic, 0).HighWatermark+other.fake.PartitionInfo(other.topic, 1).HighWatermark == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes of the decision")
		}
	} // what is used is durable
	w.agent.Kill9()
	w.agent.Start()
	w.adoptRest(first)
	w.wantBehind(acked)
	w.stop()
}
