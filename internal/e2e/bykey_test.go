package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/internal/kafkatest"
)

// keyedLine is one line of the file whose records go to partitions by key.
type keyedLine struct {
	User string `json:"user"`
	N    int    `json:"n"`
}

// The lines of one file go to the lanes of many partitions. However the agent dies between lanes, each line arrives once, in
// the partition that Kafka's clients choose for its key, and in the order of the file among those of its key.
func TestByKeyKill9(t *testing.T) {
	const partitions, users, lines = 5, 40, 40_000
	b := embedded(t, partitions)
	dir := t.TempDir()
	path := filepath.Join(dir, "keyed.log")
	config := b.config(filepath.Join(dir, "spool"), []source{{name: "app", glob: path}})
	config += "    partition_by: key\n    key: field:user\n"
	agent := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: config})

	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	write := func(to int) {
		var text bytes.Buffer
		for ; n < to; n++ {
			fmt.Fprintf(&text, "{\"user\":\"user-%d\",\"n\":%d,\"pad\":\"%s\"}\n", n*7919%users, n, strings.Repeat("x", n%200))
		}
		if _, err := f.Write(text.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	// The first start has no Kafka: how many partitions there are is not known, so nothing may be read.
	b.cut()
	write(lines / 10)
	agent.Start()
	agent.WaitLog("reading waits until Kafka has told how many partitions", deliverMax)
	for i := range 5 {
		if i%2 == 0 {
			b.heal()
		} else {
			b.cut()
		}
		write(lines * (i + 2) / 8)
		agent.KillLoop(2, 100*time.Millisecond, 1500*time.Millisecond, uint64(time.Now().UnixNano()))
	}
	b.heal()
	agent.Start()
	write(lines)
	b.read.Within = deliverMax
	kafkatest.AwaitRecords(t, b.checker(), b.topic, lines, b.read)
	got, _ := kafkatest.ReadTopic(t, b.checker(), b.topic, b.read)
	checkByKey(t, got, lines, partitions)
	explainByKey(t, agent, path, got)
	if code := agent.Stop(stopMax); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
	explainByKey(t, agent, path, got)
}

// explainByKey compares what `shipper explain` says of a file that is in Kafka with the ends of the partitions.
func explainByKey(t *testing.T, agent *kafkatest.Agent, path string, got []kafkatest.Record) {
	t.Helper()
	last := map[int32]int64{}
	for _, r := range got {
		last[r.Partition] = max(last[r.Partition], r.Offset)
	}
	var reply struct {
		Sources []struct {
			File struct {
				Size, Acked int64
				Lane        struct {
					Partition int32
					ByKey     []struct {
						Partition  int32
						LastOffset int64 `json:"last_offset"`
					} `json:"by_key"`
				}
			}
		}
	}
	for deadline := time.Now().Add(deliverMax); ; time.Sleep(100 * time.Millisecond) { // the last acks become durable
		out, err := exec.Command(agent.Binary(), "explain", "--json", "--config", agent.ConfigFile(), path).Output()
		if err == nil {
			err = json.Unmarshal(out, &reply)
		}
		if err != nil {
			t.Fatal(err)
		}
		if f := &reply.Sources[0].File; f.Acked == f.Size {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not acked: %s", out)
		}
	}
	lane := &reply.Sources[0].File.Lane
	told := map[int32]int64{}
	for _, k := range lane.ByKey {
		told[k.Partition] = k.LastOffset
	}
	if lane.Partition != -1 || !maps.Equal(told, last) {
		t.Errorf("explain says partition %d and %v, want %v by partition", lane.Partition, told, last)
	}
}

func checkByKey(t *testing.T, got []kafkatest.Record, lines, partitions int) {
	t.Helper()
	hash := kgo.StickyKeyPartitioner(nil).ForTopic(topicName)
	seen, last := make([]bool, lines), map[string]int{}
	for _, r := range got {
		var l keyedLine
		if err := json.Unmarshal(r.Value, &l); err != nil || l.N >= lines {
			t.Fatalf("%.80q at partition %d offset %d: %v", r.Value, r.Partition, r.Offset, err)
		}
		if want := hash.Partition(&kgo.Record{Key: r.Key}, partitions); string(r.Key) != l.User || int(r.Partition) != want {
			t.Fatalf("line %d of %s has key %q and lies in partition %d, want %d", l.N, l.User, r.Key, r.Partition, want)
		}
		if seen[l.N] {
			t.Fatalf("line %d came twice, again at partition %d offset %d", l.N, r.Partition, r.Offset)
		}
		if before, any := last[l.User]; any && before > l.N {
			t.Fatalf("line %d of %s comes behind line %d", l.N, l.User, before)
		}
		seen[l.N], last[l.User] = true, l.N
	}
	if len(got) != lines {
		t.Fatalf("%d records, want %d", len(got), lines)
	}
}
