//go:build long

package e2e

import (
	"strings"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// S1 to S3 are the three public reports that shipper was made for: IBM/sarama#1661, tulios/kafkajs#598,
// confluentinc/librdkafka#3584. S1 with a batch that is refused for good: TestRecutS1RefusedInTheMiddle.

// S1: messages that failed while a broker was away took sequence numbers that it never saw.
func TestS1aShortBlackHole(t *testing.T) { blackHole(t, 4*time.Second) }

// Longer than acks time-out and request time-out together.
func TestS1bLongBlackHole(t *testing.T) { blackHole(t, 35*time.Second) }

func blackHole(t *testing.T, hold time.Duration) {
	ground{partitions: 3, writer: kafkatest.WriterOptions{Files: 6, Rate: 2_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			time.Sleep(2 * time.Second)
			for _, p := range w.proxies {
				p.BlackHole()
			}
			time.Sleep(hold)
			w.heal()
			time.Sleep(2 * time.Second)
		})
		if _, epoch := w.identities(); epoch != 0 {
			t.Errorf("epoch %d after a black hole: nothing was refused for good", epoch)
		}
	})
}

func TestS1cBrokersStopAndDie(t *testing.T) {
	ground{partitions: 3, writer: kafkatest.WriterOptions{Files: 6, Rate: 2_000}}.asBoth(t, func(t *testing.T, w *secured) {
		w.underLoad(func() {
			stopEach(w.cluster)
			killEach(w.cluster)
		})
	})
}

// S2: sends that waited took numbers in another order than they reached the wire. Spikes of a millisecond and more on one
// broker after another, many sources, thousands of requests.
func TestS2WireOrder(t *testing.T) {
	ground{partitions: 12, writer: kafkatest.WriterOptions{Files: 24, Rate: 6_000}, sources: blocks(24), defaults: "  linger: 10ms\n"}.asBoth(t, func(t *testing.T, w *secured) {
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
	})
}

// S3: after a long outage the client took its counter for 0 under the same producer id, and was dead for ever. Some records,
// idle beyond the broker's memory, all brokers killed, lines meanwhile, brokers back; the agent restarted in between or not,
// and the brokers say for a while that they do not know the topic.
func TestS3LongOutage(t *testing.T) {
	c := cluster(t, map[string]string{"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"})
	for _, s := range []struct {
		name             string
		restart, unknown bool
	}{{"agent kept", false, false}, {"agent restarted", true, false}, {"topic unknown", true, true}} {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			ground{cluster: c, partitions: 2, writer: kafkatest.WriterOptions{Files: 2}}.asBoth(t, func(t *testing.T, w *secured) {
				w.agent.Start()
				w.writer.Write(50)
				w.awaitAll()
				time.Sleep(7 * time.Second) // idle beyond the expiry
				for i := range 3 {
					w.cluster.Broker(i).Kill()
				}
				w.writer.Write(50)
				time.Sleep(6 * time.Second)
				if s.unknown {
					for _, p := range w.proxies {
						p.HideTopic(w.topic)
					}
				}
				if s.restart {
					w.agent.Kill9()
					w.agent.Start()
				}
				killAll(w.cluster, 0)
				if s.unknown {
					w.agent.WaitLog("topic unknown", 60*time.Second)
					w.writer.Write(50)
					time.Sleep(5 * time.Second)
					w.heal()
				}
				w.writer.Write(50)
				w.checkSettled()
			})
		})
	}
}
