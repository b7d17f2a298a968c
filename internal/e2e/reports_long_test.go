//go:build long

package e2e

import (
	"fmt"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// S1 to S3 are the three public reports that shipper was made for: IBM/sarama#1661, tulios/kafkajs#598,
// confluentinc/librdkafka#3584. S1 with a batch that is refused for good: TestRecutS1RefusedInTheMiddle. S3 with a topic that
// is not known for a while: TestS3TopicUnknownAfterTheOutage.

// S1: messages that failed while a broker was away took sequence numbers that it never saw.
func TestS1aShortBlackHole(t *testing.T) { blackHole(t, 4*time.Second) }

// Longer than acks time-out and request time-out together.
func TestS1bLongBlackHole(t *testing.T) { blackHole(t, 35*time.Second) }

func blackHole(t *testing.T, hold time.Duration) {
	asBoth(t, 3, func(t *testing.T, b *secured, _ *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 6, Rate: 2_000})
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
		w.checkSettled()
		if _, epoch := w.identities(); epoch != 0 {
			t.Errorf("epoch %d after a black hole: nothing was refused for good", epoch)
		}
		w.stop()
	})
}

func TestS1cBrokersStopAndDie(t *testing.T) {
	asBoth(t, 3, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
		w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 6, Rate: 2_000})
		w.agent.Start()
		w.writer.Start()
		stopEach(c)
		killEach(c)
		w.writer.Stop()
		w.checkSettled()
		w.stop()
	})
}

// stopEach restarts one broker after another, in order.
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

// killAll kills all brokers, waits, and starts them.
func killAll(c *kafkatest.Cluster, pause time.Duration) {
	for i := range 3 {
		c.Broker(i).Kill()
	}
	time.Sleep(pause)
	for i := range 3 {
		c.Broker(i).Start()
	}
	for i := range 3 {
		c.Broker(i).WaitReady()
	}
}

// S2: sends that waited took numbers in another order than they reached the wire. Spikes of a millisecond and more on one
// broker after another, many sources, thousands of requests.
func TestS2WireOrder(t *testing.T) {
	asBoth(t, 12, func(t *testing.T, b *secured, _ *kafkatest.Cluster) {
		w := oneBlockEach(t, b.brokers, 24, 6_000, "10ms")
		w.agent.Start()
		w.agent.WaitLog("shipper runs", 20*time.Second)
		w.writer.Start()
		for i, end := 0, time.Now().Add(2*time.Minute); w.stats()["batches_sent"] < 3_000 && time.Now().Before(end); i++ {
			p := w.proxies[i%3]
			p.Delay(time.Duration(1+i%4) * time.Millisecond)
			time.Sleep(150 * time.Millisecond)
			p.Heal()
		}
		w.writer.Stop()
		w.checkSettled()
		s := w.stats()
		if s["out_of_order_answers"] != 0 || s["batches_sent"] < 3_000 {
			t.Errorf("%v out of order answers to %v batches", s["out_of_order_answers"], s["batches_sent"])
		}
		t.Logf("%v batches, %v retries, 0 out of order answers", s["batches_sent"], s["retries"])
		w.stop()
	})
}

// S3: after a long outage the client took its counter for 0 under the same producer id, and was dead for ever. Some records,
// idle beyond the broker's memory, all brokers killed, lines meanwhile, brokers back; the agent restarted in between or not.
func TestS3LongOutage(t *testing.T) {
	c := kafkatest.Start(t, ownOptions(map[string]string{"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"}))
	create := func(c *kafkatest.Cluster, topic string) {
		c.CreateTopic(topic, 2, 3, map[string]string{"min.insync.replicas": "2"})
	}
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			asBothOn(t, c, create, func(t *testing.T, b *secured, c *kafkatest.Cluster) {
				w := newWorld(t, b.brokers, kafkatest.WriterOptions{Files: 2})
				w.agent.Start()
				w.writer.Write(50)
				w.awaitAll()
				time.Sleep(7 * time.Second) // idle beyond the expiry
				for i := range 3 {
					c.Broker(i).Kill()
				}
				w.writer.Write(50)
				time.Sleep(6 * time.Second)
				if restart {
					w.agent.Kill9()
					w.agent.Start()
				}
				killAll(c, 0)
				w.writer.Write(50)
				w.checkSettled()
				w.stop()
			})
		})
	}
}
