//go:build long

package e2e

import (
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// Brokers that are restarted, frozen, elected, emptied, under an agent that ships: `make test-long`.

// stopEach restarts one broker after another.
func stopEach(c *kafkatest.Cluster) {
	for i := range 3 {
		c.Broker(i).Restart()
		time.Sleep(time.Second)
	}
}

// killEach does the same by SIGKILL.
func killEach(c *kafkatest.Cluster) {
	for i := range 3 {
		c.Broker(i).Kill()
		time.Sleep(2 * time.Second)
		c.Broker(i).Start()
		c.Broker(i).WaitReady()
	}
}

// C122: all brokers are restarted one after another, cleanly and by SIGKILL, in three rounds, and at last all at once.
func TestC122RollingRestart(t *testing.T) {
	ground{partitions: 3, writer: kafkatest.WriterOptions{Files: 3, Rate: 500}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			for range 3 {
				stopEach(w.cluster)
				killEach(w.cluster)
			}
			killAll(w.cluster, 3*time.Second)
		})
	})
}

// A broker that is stopped cleanly remembers one batch of a producer afterwards. The answer to one that it has appended is
// lost, the agent waits for it, and the broker is restarted: alone in charge of its partition, and as one of three.
func TestCleanRestartWithTheHeadInDoubt(t *testing.T) {
	for name, replicas := range map[string][]int32{"alone": {1}, "one-of-three": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			g := ground{replicas: [][]int32{replicas}, settings: map[string]string{"min.insync.replicas": "1"}, writer: kafkatest.WriterOptions{Files: 2}}
			g.asBoth(t, func(t *testing.T, w *secured) {
				w.agent.Start()
				for range 3 {
					w.writer.Write(500)
					w.awaitAll()
					leader := int(w.cluster.Leader(w.topic, 0))
					lost := w.cluster.Proxy(leader).HalfAnswers(1)
					w.writer.Write(500)
					<-lost
					w.cluster.Broker(leader).Restart()
					w.heal()
				}
				w.checkSettled()
			})
		})
	}
}

// C143: the leader moves all the time.
func TestC143LeaderMovesUnderLoad(t *testing.T) {
	ground{partitions: 1, writer: kafkatest.WriterOptions{Files: 2, Rate: 1_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			for i := range 16 {
				w.cluster.MoveLeader(w.topic, 0, int32(i%3))
				time.Sleep(500 * time.Millisecond)
			}
		})
	})
}

// C139: two of three brokers are frozen and thawed, again and again. With the times of the case: TestC139InFull.
func TestC139FrozenAndThawed(t *testing.T) {
	ground{partitions: 3, writer: kafkatest.WriterOptions{Files: 4, Rate: 1_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() { freezeTwo(w.cluster, 3, 13*time.Second, 5*time.Second) })
	})
}

// C121: one of the two replicas that must be in sync is away. The partition beside it goes on.
func TestC121ReplicaAway(t *testing.T) {
	ground{replicas: [][]int32{{0, 1}, {0, 2}}, writer: kafkatest.WriterOptions{Files: 8, Rate: 1_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			time.Sleep(2 * time.Second)
			w.cluster.Broker(1).Kill()
			time.Sleep(15 * time.Second)
			w.cluster.Broker(1).Start()
			w.cluster.Broker(1).WaitReady()
		})
	})
}

// C123: the brokers close what is idle.
func TestC123BrokersCloseIdleConnections(t *testing.T) {
	c := cluster(t, map[string]string{"connections.max.idle.ms": "3000"})
	ground{cluster: c, partitions: 1}.asBoth(t, func(t *testing.T, w *secured) {
		w.agent.Start()
		for range 8 {
			w.writer.Write(1)
			time.Sleep(4 * time.Second)
		}
		w.checkSettled()
		if n := w.logLines("level=ERROR"); n > 0 {
			t.Errorf("%d errors about routine", n)
		}
	})
}

// C130: appended, and the answer is lost, again and again.
func TestC130ResponsesLostUnderLoad(t *testing.T) {
	ground{partitions: 2, writer: kafkatest.WriterOptions{Files: 4, Rate: 2_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			for range 20 {
				time.Sleep(300 * time.Millisecond)
				w.dropAnswers()
			}
		})
		if w.writeOnly {
			w.agent.WaitLog("grant READ on the topic", time.Second)
			w.wantStat("unreadable_topics", 1)
		} else {
			w.wantStat("unreadable_topics", 0)
		}
	})
}

// A backlog from before the brokers' memory, drained while answers are lost and all brokers are restarted: what is in doubt
// may be forgotten at once. An agent that may read looks it up; the other counts at most what it sent more than once.
func TestBacklogOlderThanTheExpiry(t *testing.T) {
	c := cluster(t, map[string]string{"producer.id.expiration.check.interval.ms": "1000"}) // the expiry itself is a day
	ground{cluster: c, partitions: 1}.asBoth(t, func(t *testing.T, w *secured) {
		const batches = 60
		lines := fillSpool(t, w.spoolDir(), w.topic, time.Now().Add(-36*time.Hour), batches)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				w.dropAnswers()
				select {
				case <-stop:
					return
				case <-time.After(700 * time.Millisecond):
				}
			}
		}()
		w.agent.Start()
		stopEach(w.cluster)
		close(stop)
		<-done
		w.heal()
		w.spooled = map[string][]string{"spooled": lines}
		w.checkHonest(len(lines))
	})
}

// C138: the topic is deleted while lines wait, and made again.
func TestC138TopicRecreated(t *testing.T) {
	for name, partitions := range map[string]int{"as-many": 2, "fewer": 1} {
		t.Run(name, func(t *testing.T) {
			ground{partitions: 2, writer: kafkatest.WriterOptions{Files: 4}}.asBoth(t, func(t *testing.T, w *secured) {
				w.first(400)
				acked := w.writer.Written()
				time.Sleep(2 * time.Second) // the acks are durable
				w.cluster.DeleteTopic(w.topic)
				w.writer.Write(400)
				time.Sleep(2 * time.Second)
				w.cluster.CreateTopic(w.topic, partitions, 3, nil)
				w.wantBehind(acked)
				w.wantStat("maybe_doubled_records", 0)
			})
		})
	}
}

// All brokers lose their disks and come back under the same cluster id, and give out the same producer ids again: what was
// not acked arrives once, in a topic that is another one.
func TestClusterWiped(t *testing.T) {
	g := ground{cluster: cluster(t, nil), partitions: 2, writer: kafkatest.WriterOptions{Files: 4}}
	g.asBoth(t, func(t *testing.T, w *secured) {
		const lines = 400
		w.first(lines)
		acked := w.writer.Written()
		time.Sleep(2 * time.Second) // the acks are durable
		w.cut()
		w.writer.Write(lines)
		w.cluster.WipeAll(true)
		g.makeTopic(w)
		w.grant()
		w.heal()
		w.wantBehind(acked)
		// A connection that ended while it was idle is found out by the next request, of which nobody hears any more: had it
		// been under way, it might have come to the new topic by its name.
		if n := w.stats()["maybe_doubled_records"]; n > lines {
			t.Errorf("%v records counted as possibly doubled, %d were in doubt at most", n, lines)
		}
		w.wantStat("lost_records", 0)
	})
}

// C119: the topic does not exist for a while, and the agent may not make it.
func TestC119TopicMadeLater(t *testing.T) {
	ground{writer: kafkatest.WriterOptions{Files: 2}}.asBoth(t, func(t *testing.T, w *secured) {
		w.writer.Write(500)
		w.agent.Start()
		w.agent.WaitLog("topic unknown", 20*time.Second)
		time.Sleep(3 * time.Second)
		w.cluster.CreateTopic(w.topic, 2, 3, nil)
		w.checkSettled()
	})
}

// C125: partitions are added.
func TestC125PartitionsGrowUnderLoad(t *testing.T) {
	ground{partitions: 1, writer: kafkatest.WriterOptions{Files: 20, Rate: 1_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			time.Sleep(2 * time.Second)
			w.cluster.GrowPartitions(w.topic, 6)
			time.Sleep(12 * time.Second)
		})
	})
}

// Killed 200 times, wherever it is between append, sync, send and ack, while answers are lost: nothing lost, nothing doubled,
// nothing out of order.
func TestKill9TwoHundredTimes(t *testing.T) {
	o := kafkatest.WriterOptions{Files: 4, Rate: 2_000, Rotation: kafkatest.RotateRename, RotateLines: 20_000, TornWrites: true}
	ground{partitions: 3, writer: o}.asBoth(t, func(t *testing.T, w *secured) {
		w.writer.Start()
		for i := range 20 {
			switch i % 5 {
			case 1:
				w.cut()
			case 3:
				w.dropAnswers()
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
	})
}

// The right to write comes late, is taken away, and comes back.
func TestC149WriteGrantedAndRevoked(t *testing.T) {
	ground{partitions: 2, writer: kafkatest.WriterOptions{Files: 2}}.asBoth(t, func(t *testing.T, w *secured) {
		w.revoke()
		w.writer.Write(500)
		w.agent.Start()
		w.agent.WaitLog("permission denied", 30*time.Second)
		if w.logLines("grant WRITE on the topic") == 0 || w.logLines("topic="+w.topic) == 0 {
			t.Error("the log does not say which right is missing on which topic")
		}
		w.grant()
		w.check()
		w.revoke()
		w.writer.Write(500)
		time.Sleep(5 * time.Second)
		w.grant()
		w.checkSettled()
	})
}
