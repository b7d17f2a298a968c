//go:build long

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// Brokers that are restarted, frozen, elected, emptied, under an agent that ships: `make test-long`.

// C122: all brokers are restarted one after another, cleanly and by SIGKILL, and at last all at once.
func TestC122RollingRestart(t *testing.T) {
	asBoth(t, 3, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 3, Rate: 500})
		w.agent.Start()
		w.writer.Start()
		killEach(c)
		stopEach(c)
		killAll(c, 3*time.Second)
		w.writer.Stop()
		w.checkSettled()
		w.stop()
	})
}

// A broker that is stopped cleanly remembers one batch of a producer afterwards. The answer to one that it has appended is
// lost, the agent waits for it, and the broker is restarted: alone in charge of its partition, and as one of three.
func TestCleanRestartWithTheHeadInDoubt(t *testing.T) {
	for name, replicas := range map[string][]int32{"alone": {1}, "one-of-three": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			create := func(c *kafkatest.Cluster, topic string) {
				c.CreateTopicOn(topic, [][]int32{replicas}, map[string]string{"min.insync.replicas": "1"})
			}
			asBothOn(t, kafkatest.SharedACLs(t), create, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
				w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 2})
				w.agent.Start()
				for range 3 {
					w.writer.Write(500)
					w.awaitAll()
					leader := int(c.Leader(b.topic, 0))
					lost := c.Proxy(leader).HalfAnswers(1)
					w.writer.Write(500)
					<-lost
					c.Broker(leader).Restart()
					w.heal()
				}
				w.checkSettled()
				w.stop()
			})
		})
	}
}

// C143: the leader moves all the time.
func TestC143LeaderMovesUnderLoad(t *testing.T) {
	asBoth(t, 1, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 2, Rate: 1_000})
		w.agent.Start()
		w.writer.Start()
		for i := range 16 {
			c.MoveLeader(b.topic, 0, int32(i%3))
			time.Sleep(500 * time.Millisecond)
		}
		w.writer.Stop()
		w.checkSettled()
		w.stop()
	})
}

// C139: two of three brokers are frozen and thawed, again and again.
func TestC139FrozenAndThawed(t *testing.T) {
	asBoth(t, 3, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 4, Rate: 1_000})
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
		w.checkSettled()
		w.stop()
	})
}

// C121: one of the two replicas that must be in sync is away. The partition beside it goes on.
func TestC121ReplicaAway(t *testing.T) {
	create := func(c *kafkatest.Cluster, topic string) {
		c.CreateTopicOn(topic, [][]int32{{0, 1}, {0, 2}}, map[string]string{"min.insync.replicas": "2"})
	}
	asBothOn(t, kafkatest.SharedACLs(t), create, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 8, Rate: 1_000})
		w.agent.Start()
		w.writer.Start()
		time.Sleep(2 * time.Second)
		c.Broker(1).Kill()
		time.Sleep(15 * time.Second)
		c.Broker(1).Start()
		c.Broker(1).WaitReady()
		w.writer.Stop()
		w.checkSettled()
		w.stop()
	})
}

// C123: the brokers close what is idle.
func TestC123BrokersCloseIdleConnections(t *testing.T) {
	c := kafkatest.Start(t, ownOptions(map[string]string{"connections.max.idle.ms": "3000"}))
	create := func(c *kafkatest.Cluster, topic string) { c.CreateTopic(topic, 1, 3, nil) }
	asBothOn(t, c, create, func(t *testing.T, b *secured, _ *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{})
		w.agent.Start()
		for range 8 {
			w.writer.Write(1)
			time.Sleep(4 * time.Second)
		}
		w.checkSettled()
		if n := w.logLines("level=ERROR"); n > 0 {
			t.Errorf("%d errors about routine", n)
		}
		w.stop()
	})
}

// C130: appended, and the answer is lost, again and again.
func TestC130ResponsesLostUnderLoad(t *testing.T) {
	asBoth(t, 2, func(t *testing.T, b *secured, _ *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 4, Rate: 2_000})
		w.agent.Start()
		w.writer.Start()
		for range 20 {
			time.Sleep(300 * time.Millisecond)
			b.dropAnswers()
		}
		w.heal()
		w.writer.Stop()
		w.checkSettled()
		if b.writeOnly {
			w.agent.WaitLog("grant READ on the topic", time.Second)
			w.wantStat("unreadable_topics", 1)
		} else {
			w.wantStat("unreadable_topics", 0)
		}
		w.stop()
	})
}

// uncleanElection has the only replica in sync die with acked records that the one which takes over never got. With seen
// it knows our producer id, else it would take the next batch without a word.
func uncleanElection(t *testing.T, seen bool, after func(w *world, c *kafkatest.Cluster)) {
	const lines = 40
	c := kafkatest.Start(t, ownOptions(map[string]string{"replica.lag.time.max.ms": "2000"}))
	create := func(c *kafkatest.Cluster, topic string) {
		c.CreateTopicOn(topic, [][]int32{{0, 1}}, map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})
	}
	asBothOn(t, c, create, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{})
		w.agent.Start()
		if seen {
			w.writer.Write(lines)
			w.awaitAll()
		}
		c.ReplicaProxy(0).Cut() // the follower cannot fetch any more
		w.writer.Write(lines)
		c.WaitPartition(b.topic, 0, "the follower is out of sync", func(_ int32, isr []int32) bool { return len(isr) == 1 })
		for range 5 {
			w.writer.Write(lines)
			time.Sleep(700 * time.Millisecond)
		}
		w.awaitAll()
		time.Sleep(2 * time.Second) // the acks are durable
		c.Broker(0).Kill()
		c.ElectUnclean(b.topic, 0)
		c.ReplicaProxy(0).Heal()
		w.writer.Write(lines)
		w.checkSettled()
		if n := w.stats()["healed_records"]; n == 0 {
			t.Error("nothing was healed: acked records had vanished and should be back")
		}
		after(w, c)
		w.stop()
	})
}

// Acked lines that the brokers lost are back, each once, in order; also when the old leader joins again.
func TestUncleanElectionHeals(t *testing.T) {
	uncleanElection(t, true, func(w *world, c *kafkatest.Cluster) {
		c.Broker(0).Start()
		c.Broker(0).WaitReady()
		w.writer.Write(40)
		w.checkSettled()
	})
}

func TestUncleanElectionToAStranger(t *testing.T) {
	uncleanElection(t, false, func(*world, *kafkatest.Cluster) {})
}

// A backlog from before the brokers' memory, drained while answers are lost and all brokers are restarted: what is in doubt
// may be forgotten at once. An agent that may read looks it up; the other counts at most what it sent more than once.
func TestBacklogOlderThanTheExpiry(t *testing.T) {
	c := kafkatest.Start(t, ownOptions(map[string]string{"producer.id.expiration.check.interval.ms": "1000"})) // the expiry itself is a day
	create := func(c *kafkatest.Cluster, topic string) {
		c.CreateTopic(topic, 1, 3, map[string]string{"min.insync.replicas": "2"})
	}
	asBothOn(t, c, create, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		const batches = 60
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{})
		lines := fillSpool(t, filepath.Join(w.dir, "spool"), b.topic, time.Now().Add(-36*time.Hour), batches)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				b.dropAnswers()
				select {
				case <-stop:
					return
				case <-time.After(700 * time.Millisecond):
				}
			}
		}()
		w.agent.Start()
		stopEach(c)
		close(stop)
		<-done
		w.heal()
		w.spooled = map[string][]string{"spooled": lines}
		b.checkHonest(w, len(lines))
		w.stop()
	})
}

// C138: the topic is deleted while lines wait, and made again.
func TestC138TopicRecreated(t *testing.T) {
	for name, partitions := range map[string]int{"as-many": 2, "fewer": 1} {
		t.Run(name, func(t *testing.T) {
			asBoth(t, 2, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
				w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 4})
				w.agent.Start()
				w.writer.Write(400)
				w.check()
				acked := w.writer.Written()
				time.Sleep(2 * time.Second) // the acks are durable
				c.DeleteTopic(b.topic)
				w.writer.Write(400)
				time.Sleep(2 * time.Second)
				c.CreateTopic(b.topic, partitions, 3, nil)
				w.wantBehind(acked)
				w.wantStat("maybe_doubled_records", 0)
				w.stop()
			})
		})
	}
}

// All brokers lose their disks and come back under the same cluster id, and give out the same producer ids again: what was
// not acked arrives once, in a topic that is another one.
func TestClusterWiped(t *testing.T) {
	c := kafkatest.Start(t, ownOptions(nil))
	create := func(c *kafkatest.Cluster, topic string) { c.CreateTopic(topic, 2, 3, nil) }
	asBothOn(t, c, create, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 4})
		w.agent.Start()
		w.writer.Write(400)
		w.check()
		acked := w.writer.Written()
		time.Sleep(2 * time.Second) // the acks are durable
		w.cut()
		w.writer.Write(400)
		c.WipeAll(true)
		create(c, b.topic)
		b.grant()
		w.heal()
		w.wantBehind(acked)
		w.wantStat("maybe_doubled_records", 0)
		w.stop()
	})
}

// C119: the topic does not exist for a while, and the agent may not make it.
func TestC119TopicMadeLater(t *testing.T) {
	asBothOn(t, kafkatest.SharedACLs(t), func(*kafkatest.Cluster, string) {}, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 2})
		w.writer.Write(500)
		w.agent.Start()
		w.agent.WaitLog("topic unknown", 20*time.Second)
		time.Sleep(3 * time.Second)
		c.CreateTopic(b.topic, 2, 3, nil)
		w.checkSettled()
		w.stop()
	})
}

// C125: partitions are added.
func TestC125PartitionsGrowUnderLoad(t *testing.T) {
	asBoth(t, 1, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 20, Rate: 1_000})
		w.agent.Start()
		w.writer.Start()
		time.Sleep(2 * time.Second)
		c.GrowPartitions(b.topic, 6)
		time.Sleep(12 * time.Second)
		w.writer.Stop()
		w.checkSettled()
		w.stop()
	})
}

// Killed 200 times, wherever it is between append, sync, send and ack, while answers are lost: nothing lost, nothing doubled,
// nothing out of order.
func TestKill9TwoHundredTimes(t *testing.T) {
	asBoth(t, 3, func(t *testing.T, b *secured, _ *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 4, Rate: 2_000, Rotation: kafkatest.RotateRename, RotateLines: 20_000, TornWrites: true})
		w.writer.Start()
		for i := range 20 {
			switch i % 5 {
			case 1:
				w.cut()
			case 3:
				b.dropAnswers()
			default:
				w.heal()
			}
			w.agent.KillLoop(10, 20*time.Millisecond, 700*time.Millisecond, uint64(time.Now().UnixNano()))
		}
		w.heal()
		w.agent.Start()
		time.Sleep(500 * time.Millisecond)
		w.writer.Stop()
		w.checkSettled()
		w.stop()
	})
}

// The right to write comes late, is taken away, and comes back.
func TestC149WriteGrantedAndRevoked(t *testing.T) {
	c := kafkatest.SharedACLs(t)
	asBothOn(t, c, func(c *kafkatest.Cluster, topic string) { c.CreateTopic(topic, 2, 3, nil) }, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 2})
		b.revoke()
		w.writer.Write(500)
		w.agent.Start()
		w.agent.WaitLog("permission denied", 30*time.Second)
		if w.logLines("grant WRITE on the topic") == 0 || w.logLines("topic="+b.topic) == 0 {
			t.Error("the log does not say which right is missing on which topic")
		}
		b.grant()
		w.check()
		b.revoke()
		w.writer.Write(500)
		time.Sleep(5 * time.Second)
		b.grant()
		w.checkSettled()
		w.stop()
	})
}
