//go:build long

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// The sequencer on real brokers: `make test-long`. S1 to S3 are the three public reports that shipper was made for:
// IBM/sarama#1661, tulios/kafkajs#598, confluentinc/librdkafka#3584.

// S1: messages that failed while a broker was away took sequence numbers that it never saw.
func TestS1aShortBlackHole(t *testing.T) { blackHole(t, 4*time.Second) }

// Longer than acks time-out and request time-out together.
func TestS1bLongBlackHole(t *testing.T) { blackHole(t, 35*time.Second) }

func blackHole(t *testing.T, hold time.Duration) {
	b, _ := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 6, Rate: 2_000})
	w.agent.Start()
	w.writer.Start()
	time.Sleep(2 * time.Second)
	for _, p := range w.proxies {
		p.BlackHole()
	}
	time.Sleep(hold)
	w.heal()
	time.Sleep(2 * time.Second)
	w.writer.Stop()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	if _, epoch := w.identities(); epoch != 0 {
		t.Errorf("epoch %d after a black hole: nothing was refused for good", epoch)
	}
	w.stop()
}

func TestS1cBrokersStopAndDie(t *testing.T) {
	b, c := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 6, Rate: 2_000})
	w.agent.Start()
	w.writer.Start()
	for i := range 3 {
		c.Broker(i).Restart()
		time.Sleep(time.Second)
	}
	for i := range 3 {
		c.Broker(i).Kill()
		time.Sleep(2 * time.Second)
		c.Broker(i).Start()
		c.Broker(i).WaitReady()
	}
	w.writer.Stop()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}

// S2: sends that waited took numbers in another order than they reached the wire.
func TestS2WireOrder(t *testing.T) {
	b, _ := real(t, 12)
	b.kafka = ""
	sources := make([]source, 12)
	for i := range sources {
		sources[i] = source{fmt.Sprintf("s%02d", i), fmt.Sprintf("app-%02d.log", i)}
	}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 12, Rate: 6_000}, sources...)
	w.agent.SetConfig(strings.Replace(w.config(filepath.Join(w.dir, "spool"), sources), "linger: 200ms", "linger: 10ms", 1))
	w.agent.Start()
	w.writer.Start()
	for i := range 40 { // spikes of a millisecond and more on one broker after another
		p := w.proxies[i%3]
		p.Delay(time.Duration(1+i%4) * time.Millisecond)
		time.Sleep(300 * time.Millisecond)
		p.Heal()
	}
	w.writer.Stop()
	w.check()
	s := w.stats()
	if s["out_of_order_answers"] != 0 || s["batches_sent"] < 1_000 {
		t.Errorf("%v out of order answers to %v batches", s["out_of_order_answers"], s["batches_sent"])
	}
	w.stop()
}

// S3: after a long outage the client took its counter for 0 under the same producer id, and was dead for ever.
func TestS3LongOutage(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			c := kafkatest.Start(t, kafkatest.Options{Proxy: true, Config: map[string]string{
				"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"}})
			b := &brokers{bootstrap: c.Bootstrap(), topic: "s3"}
			c.CreateTopic(b.topic, 2, 3, map[string]string{"min.insync.replicas": "2"})
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
			w.agent.Start()
			w.writer.Write(50)
			kafkatest.AwaitRecords(t, b.bootstrap, b.topic, 50, kafkatest.ReadOptions{})
			time.Sleep(7 * time.Second) // idle beyond the expiry
			for i := range 3 {
				c.Broker(i).Kill()
			}
			w.writer.Write(50)
			time.Sleep(8 * time.Second)
			if restart {
				w.agent.Kill9()
				w.agent.Start()
			}
			for i := range 3 {
				c.Broker(i).Start()
			}
			for i := range 3 {
				c.Broker(i).WaitReady()
			}
			w.writer.Write(50)
			w.check()
			w.wantStat("lost_records", 0)
			w.stop()
		})
	}
}

func TestTopicUnknownForAWhile(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 1, Config: map[string]string{"auto.create.topics.enable": "false"}})
	b := &brokers{bootstrap: c.Bootstrap(), topic: "late"}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
	w.writer.Write(500)
	w.agent.Start()
	w.agent.WaitLog("topic unknown", 20*time.Second)
	time.Sleep(3 * time.Second)
	c.CreateTopic(b.topic, 2, 1, nil)
	w.check()
	w.stop()
}

func TestLeaderMoves(t *testing.T) {
	b, c := real(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, Rate: 2_000})
	w.agent.Start()
	w.writer.Start()
	for i := range 8 {
		c.MoveLeader(b.topic, 0, int32(i%3))
		time.Sleep(500 * time.Millisecond)
	}
	w.writer.Stop()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.wantStat("lost_records", 0)
	w.stop()
}

func TestFrozenAndThawed(t *testing.T) {
	b, c := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 1_000})
	w.agent.Start()
	w.writer.Start()
	for range 3 {
		c.Broker(1).Freeze()
		c.Broker(2).Freeze()
		time.Sleep(13 * time.Second)
		c.Broker(1).Thaw()
		c.Broker(2).Thaw()
		time.Sleep(5 * time.Second)
	}
	w.writer.Stop()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}

// unclean makes a topic of one partition on brokers 0 and 1, lets the follower fall behind, and elects it.
func unclean(t *testing.T, before int, seen bool) (w *world, c *kafkatest.Cluster) {
	t.Helper()
	c = kafkatest.Start(t, kafkatest.Options{Proxy: true, ReplicaProxy: true, Config: map[string]string{"replica.lag.time.max.ms": "2000"}})
	b := &brokers{bootstrap: c.Bootstrap(), topic: "unclean"}
	c.CreateTopicOn(b.topic, [][]int32{{0, 1}}, map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})
	w = newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.agent.Start()
	if seen {
		w.writer.Write(before)
		kafkatest.AwaitRecords(t, c.DirectBootstrap(), b.topic, int64(before), kafkatest.ReadOptions{})
	}
	c.ReplicaProxy(0).Cut() // the follower cannot fetch any more
	w.writer.Write(before)
	c.WaitPartition(b.topic, 0, "the follower is out of sync", func(_ int32, isr []int32) bool { return len(isr) == 1 })
	for range 5 {
		w.writer.Write(before)
		time.Sleep(700 * time.Millisecond)
	}
	kafkatest.AwaitRecords(t, c.DirectBootstrap(), b.topic, w.writer.Lines(), kafkatest.ReadOptions{})
	time.Sleep(2 * time.Second) // the acks are durable
	c.Broker(0).Kill()
	c.ElectUnclean(b.topic, 0)
	c.ReplicaProxy(0).Heal()
	return w, c
}

// Acked lines that the brokers lost are back, each once, in order.
func TestUncleanElectionHeals(t *testing.T) {
	w, c := unclean(t, 40, true)
	w.writer.Write(40)
	w.check()
	if s := w.stats(); s["healed_records"] == 0 || s["lost_records"] != 0 {
		t.Errorf("healed %v, lost %v: acked records had vanished and should be back", s["healed_records"], s["lost_records"])
	}
	c.Broker(0).Start()
	c.Broker(0).WaitReady()
	w.writer.Write(40)
	w.check()
	w.stop()
}

// The same, elected to a replica that never saw our producer id: it would take the next batch without a word.
func TestUncleanElectionToAStranger(t *testing.T) {
	w, _ := unclean(t, 40, false)
	w.writer.Write(40)
	w.check()
	if s := w.stats(); s["healed_records"] == 0 || s["lost_records"] != 0 {
		t.Errorf("healed %v, lost %v: acked records had vanished and should be back", s["healed_records"], s["lost_records"])
	}
	w.stop()
}

func TestTopicRecreated(t *testing.T) {
	b, c := real(t, 2)
	b.kafka = "  auto_create_topics: false\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
	w.agent.Start()
	w.writer.Write(200)
	w.check()
	c.DeleteTopic(b.topic)
	before := w.writer.Lines()
	w.writer.Write(200)
	time.Sleep(2 * time.Second)
	c.CreateTopic(b.topic, 1, 3, nil)
	kafkatest.AwaitRecords(t, b.bootstrap, b.topic, w.writer.Lines()-before, kafkatest.ReadOptions{Within: deliverMax})
	got, _ := kafkatest.ReadTopic(t, b.bootstrap, b.topic, b.read)
	next := map[string]int{} // lines of a file in the new topic
	for _, r := range got {
		tag, _, _ := strings.Cut(string(r.Value), " ")
		lines := w.writer.Written()[tag]
		if want := lines[len(lines)-100+next[tag]]; string(r.Value) != want {
			t.Fatalf("line %d of %s in the new topic is %q, want %q", next[tag], tag, r.Value, want)
		}
		next[tag]++
	}
	if len(got) != 200 {
		t.Fatalf("%d lines in the new topic, want the 200 that were not acked before", len(got))
	}
	w.stop()
}

func TestPartitionsGrow(t *testing.T) {
	b, c := real(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 1_000})
	w.agent.Start()
	w.writer.Start()
	time.Sleep(2 * time.Second)
	c.GrowPartitions(b.topic, 6)
	time.Sleep(12 * time.Second)
	w.writer.Stop()
	w.check()
	w.stop()
}

// With WRITE and nothing else: no read-back, and no new message in the topic's log but ours.
func TestWriteOnly(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Proxy: true, ACLs: true, Users: map[string]string{"agent": "secret"}})
	b := &brokers{bootstrap: c.Bootstrap(), topic: "write-only", kafka: "  sasl: {mechanism: scram-sha-512, username: agent, password: secret}\n  auto_create_topics: false\n"}
	for i := range 3 {
		b.proxies = append(b.proxies, c.Proxy(i))
	}
	c.CreateTopic(b.topic, 2, 3, map[string]string{"min.insync.replicas": "2"})
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, Rate: 1_000})
	w.bootstrap = c.DirectBootstrap() // for the checker
	w.agent.Start()
	w.writer.Start()
	w.agent.WaitLog("permission denied", 20*time.Second)
	c.Grant("agent", kmsg.ACLResourceTypeTopic, b.topic, kmsg.ACLOperationWrite)
	time.Sleep(3 * time.Second)
	for i := range 4 {
		w.proxies[i%3].DropNextAnswers(1)
		time.Sleep(time.Second)
	}
	w.agent.Kill9()
	w.heal()
	c.Broker(0).Restart()
	w.agent.Start()
	time.Sleep(2 * time.Second)
	w.writer.Stop()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}

func TestRealKill9Long(t *testing.T) {
	b, _ := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 3_000, Rotation: kafkatest.RotateRename, RotateLines: 20_000, TornWrites: true})
	killLoop(t, w, 60, func(i int) {
		switch i % 4 {
		case 1:
			w.cut()
		case 3:
			w.proxies[i%3].DropNextAnswers(1)
		default:
			w.heal()
		}
	})
}
