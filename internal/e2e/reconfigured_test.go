package e2e

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"shipper/internal/kafkatest"
)

// The config changes between two starts while lines wait in the spool: how many lanes, what chooses the partition, which topic.
// What was read goes where it was to go; what is read then goes by the new config. Nothing is lost, doubled or out of order.
func TestConfigChangedBetweenStarts(t *testing.T) {
	const later = "later"
	b := embedded(t, 8, kfake.SeedTopics(8, later))
	b.defaults = "  linger: 100ms\n  lanes: 1\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 6})
	w.first(2_000)
	change := func(defaults, topic string) (before int64) {
		t.Helper()
		w.cut()
		w.writer.Write(2_000)
		w.awaitSpooled()
		before = w.writer.Lines()
		w.stop()
		b.defaults = "  linger: 100ms\n" + defaults
		w.sources[0].topic = topic
		w.configure()
		w.heal()
		w.agent.Start()
		w.writer.Write(2_000)
		return before
	}
	// Known files keep their lane, and with it their partition: check wants each in one.
	change("  lanes: 4\n", "")
	w.check()
	change("  lanes: 2\n", "")
	w.check()
	topics := func(want map[string]int64) {
		t.Helper()
		var all []kafkatest.Record
		for topic, n := range want {
			w.read.Within = deliverMax
			kafkatest.AwaitRecords(t, w.checker(), topic, n, w.read)
			got, _ := kafkatest.ReadTopic(t, w.checker(), topic, w.read)
			if int64(len(got)) != n {
				t.Errorf("%d records in %s, want %d", len(got), topic, n)
			}
			for _, r := range got {
				if topic == later {
					r.Partition += 8 // order is that of a topic's partition
				}
				all = append(all, r)
			}
		}
		if err := kafkatest.Check(w.lines(), all).Err(); err != nil {
			t.Fatal(err)
		}
	}
	change("  partition_by: key\n  key: path\n", "")
	topics(map[string]int64{w.topic: w.writer.Lines()})
	change("  lanes: 3\n", "")
	topics(map[string]int64{w.topic: w.writer.Lines()})
	before := change("  lanes: 3\n", later)
	topics(map[string]int64{w.topic: before, later: w.writer.Lines() - before})
	w.stop()
}

// A source is renamed while the spool holds lines of its files. Both lanes lead to one partition; what is read under the new name, of
// these files or of those that took their places, comes behind that.
func TestSourceRenamedWithBacklog(t *testing.T) {
	b := embedded(t, 1)
	b.defaults, b.kafka = "  linger: 100ms\n", "  compression: none\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 3, LineBytes: 900})
	w.first(300)
	w.cut()
	w.writer.Write(9_000)
	for _, name := range []string{"renamed", "again"} {
		time.Sleep(time.Second) // it reads what it reads
		w.stop()
		w.sources[0].name = name
		w.configure()
		w.agent.Start()
		w.writer.Write(300)
	}
	time.Sleep(time.Second)
	w.heal()
	w.check()
	w.stop()
}
