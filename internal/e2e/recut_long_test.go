//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"shipper/internal/kafkatest"
	"shipper/sink/kafka"
	"shipper/spool"
)

// Batches that their topic does not take, on real brokers.

func TestRecutRealBatchTooLarge(t *testing.T) {
	for _, compression := range []string{"producer", "uncompressed"} { // with the second the broker looks at what it has made of the batch
		t.Run(compression, func(t *testing.T) {
			ground{partitions: 1, settings: map[string]string{"max.message.bytes": "10000", "compression.type": compression}, writer: kafkatest.WriterOptions{LineBytes: 500}}.asBoth(t, func(t *testing.T, w *secured) {
				w.writer.Write(5_000)
				w.agent.Start()
				w.check()
				w.wantStat("maybe_doubled_records", 0)
				w.wantStat("dead_letters", 0)
				w.wantStat("out_of_order_answers", 0)
				// The size is kept: nothing is refused any more.
				before := w.stats()["retries"]
				w.writer.Write(1_000)
				w.check()
				if after := w.stats()["retries"]; after > before+2 {
					t.Errorf("%v refusals, then %v", before, after)
				}
			})
		})
	}
}

func TestRecutRealOneRecordTooLarge(t *testing.T) {
	ground{partitions: 1, settings: map[string]string{"max.message.bytes": "100000"}}.asBoth(t, func(t *testing.T, w *secured) {
		written := w.mixed("mixed", 200, 200, 300_000, 100)
		w.agent.Start()
		w.arrived(written)
		w.wantStat("dead_letters", 1)
		w.wantStat("maybe_doubled_records", 0)
		letters := w.deadLetters()
		if len(letters) != 1 || letters[0].Index != 100 || string(letters[0].Value) != string(kafkatest.AppendLine(nil, "large", 100, 300_000)) {
			t.Errorf("%d dead letters", len(letters))
		}
		w.stop()
		// It is settled: a start does not send it again.
		w.agent.Start()
		w.writer.Write(10)
		for tag, lines := range w.writer.Written() {
			written[tag] = lines
		}
		w.arrived(written)
		w.wantStat("dead_letters", 0)
	})
}

// S1 as it should have been: a batch that is refused for good in the middle costs its own lane one epoch, and nobody else
// anything.
func TestRecutS1RefusedInTheMiddle(t *testing.T) {
	g := ground{partitions: 1, writer: kafkatest.WriterOptions{Files: 2}, defaults: "  linger: 200ms\n  lanes: 1\n",
		sources: []source{{name: "one", glob: "app-00.log"}, {name: "other", glob: "app-[0m][1i]*.log"}}}
	g.asBoth(t, func(t *testing.T, w *secured) {
		w.agent.Start()
		written := map[string][]string{}
		for range 3 {
			w.writer.Write(200)
			kafkatest.AwaitRecords(t, w.checker(), w.topic, w.writer.Lines(), w.read)
		}
		w.cluster.SetTopicConfig(w.topic, "max.message.bytes", "100000") // lowered under the agent, which believes what it knew
		for tag, lines := range w.mixed("mixed", 1_000, 500, 0) {
			written[tag] = lines
		}
		kafkatest.AwaitRecords(t, w.checker(), w.topic, w.writer.Lines()+1_000, kafkatest.ReadOptions{Within: deliverMax})
		for range 3 {
			w.writer.Write(200)
			kafkatest.AwaitRecords(t, w.checker(), w.topic, w.writer.Lines()+1_000, w.read)
		}
		for tag, lines := range w.writer.Written() {
			written[tag] = lines
		}
		headers := w.arrived(written)
		type place struct {
			id    int64
			epoch int16
		}
		next := map[place]int32{}
		highest := map[int64]int16{}
		for _, h := range headers {
			p := place{h.ProducerID, h.Epoch}
			if h.BaseSequence != next[p] {
				t.Errorf("%+v: sequence %d, want %d", p, h.BaseSequence, next[p])
			}
			if h.Epoch < highest[h.ProducerID] {
				t.Errorf("%+v: epoch %d was used before", p, highest[h.ProducerID])
			}
			next[p] = h.BaseSequence + h.Count
			highest[h.ProducerID] = h.Epoch
		}
		if len(highest) != 2 {
			t.Fatalf("%d producer ids for two lanes", len(highest))
		}
		untouched, bumped := 0, 0
		for _, epoch := range highest {
			switch epoch {
			case 0:
				untouched++
			case 1:
				bumped++
			default:
				if w.writeOnly { // it cannot ask for the limit: each half that is refused again is an epoch
					bumped++
				}
			}
		}
		if untouched != 1 || bumped != 1 {
			t.Errorf("epochs %v: want one lane at 0 and one at 1", highest)
		}
		w.wantStat("maybe_doubled_records", 0)
	})
}

func TestRecutRealKill9(t *testing.T) {
	ground{partitions: 2, settings: map[string]string{"max.message.bytes": "10000"}, writer: kafkatest.WriterOptions{Files: 3, LineBytes: 300, Rate: 1_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.killLoop(6, func(i int) {
			switch i % 3 {
			case 0:
				w.heal()
				w.cluster.MoveLeader(w.topic, 0, int32(i%3))
			case 1:
				w.cut()
			case 2:
				w.heal()
				w.proxies[i%3].DropNextAnswers(2)
			}
		})
	})
}

// A topic that takes no record older than a second, and brokers that were away for longer.
func TestRecutRealTooOld(t *testing.T) {
	ground{partitions: 1, settings: map[string]string{"message.timestamp.before.max.ms": "1000"}, writer: kafkatest.WriterOptions{Files: 2, Rate: 500}}.asBoth(t, func(t *testing.T, w *secured) {
		w.agent.Start()
		w.writer.Start()
		time.Sleep(2 * time.Second)
		w.cut()
		time.Sleep(8 * time.Second)
		w.heal()
		time.Sleep(2 * time.Second)
		w.writer.Stop()
		w.check()
		if s := w.stats(); s["shifted_records"] == 0 || s["dead_letters"] != 0 || s["maybe_doubled_records"] != 0 {
			t.Errorf("shifted %v, dead letters %v, maybe doubled %v", s["shifted_records"], s["dead_letters"], s["maybe_doubled_records"])
		}
	})
}

// A spool that was filled while the host's clock was wrong, by two hours.
func TestRecutRealFromTheFuture(t *testing.T) {
	ground{partitions: 1, settings: map[string]string{"message.timestamp.after.max.ms": "60000"}}.asBoth(t, func(t *testing.T, w *secured) {
		written := map[string][]string{"spooled": fillSpool(t, w.spoolDir(), w.topic, time.Now().Add(2*time.Hour), 3)}
		if err := os.MkdirAll(filepath.Join(w.dir, "logs"), 0o755); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w.agent.Start()
		w.arrived(written)
		got, _ := kafkatest.ReadTopic(t, w.checker(), w.topic, w.read)
		for _, r := range got {
			if at := time.UnixMilli(r.Timestamp); at.After(time.Now()) || at.Before(start.Add(-time.Hour)) {
				t.Fatalf("a record of %s", at)
			}
		}
		w.wantStat("shifted_records", float64(len(written["spooled"])))
		w.wantStat("dead_letters", 0)
		w.wantStat("maybe_doubled_records", 0)
	})
}

// fillSpool makes a spool with count batches of a lane, read at `at`, and returns their lines.
func fillSpool(t *testing.T, dir, topic string, at time.Time, count int) (lines []string) {
	t.Helper()
	m := makeSpool(t, dir, kafka.Zstd, spool.Lane{ID: 1, Block: "app", Topic: topic})
	var batches []spool.Batch
	for range count {
		first := len(lines)
		for range 100 {
			lines = append(lines, string(kafkatest.AppendLine(nil, "spooled", len(lines), 100)))
		}
		batches = append(batches, m.batch(1, first, at, lines[first:]...))
		at = at.Add(time.Second)
	}
	m.append(batches...)
	m.close()
	return lines
}

// C159: a compacted topic takes no record without a key: nothing is dropped, and all goes on by itself once it is changed.
func TestC159Compacted(t *testing.T) {
	for name, lines := range map[string]int{"alone": 1, "among-others": 500} {
		t.Run(name, func(t *testing.T) {
			ground{partitions: 1, settings: map[string]string{"cleanup.policy": "compact"}}.asBoth(t, func(t *testing.T, w *secured) {
				w.writer.Write(lines)
				w.agent.Start()
				w.agent.WaitLog("set its cleanup.policy to delete", 30*time.Second)
				w.writer.Write(lines)
				time.Sleep(3 * time.Second)
				if n := len(w.deadLetters()); n > 0 {
					t.Errorf("%d dead letters", n)
				}
				w.cluster.SetTopicConfig(w.topic, "cleanup.policy", "delete")
				w.check()
				w.wantStat("dead_letters", 0)
				w.wantStat("maybe_doubled_records", 0)
			})
		})
	}
	t.Run("with-keys", func(t *testing.T) {
		g := ground{partitions: 1, settings: map[string]string{"cleanup.policy": "compact"}, defaults: "  linger: 200ms\n  key: path\n"}
		g.asBoth(t, func(t *testing.T, w *secured) {
			w.writer.Write(500)
			w.agent.Start()
			w.check()
		})
	})
}
