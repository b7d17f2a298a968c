package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Cases from the field: what is sent again, and in which order.

// C130: the answer is lost after the append, for the first batch, for some in the middle, and for the last before all is idle.
func TestC130ResponseLost(t *testing.T) {
	b := embedded(t, 1)
	sent := b.collect()
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1, Rate: 2_000})
	b.dropAnswers()
	w.agent.Start()
	w.writer.Start()
	for range 5 {
		time.Sleep(400 * time.Millisecond)
		b.dropAnswers()
	}
	w.writer.Stop()
	w.awaitAll()
	b.heal()
	b.dropAnswers()
	w.writer.Write(10)
	w.check()
	w.stop()
	if sent.resent(t) < 3 {
		t.Error("hardly a batch was sent again: nothing was tested")
	}
}

// C132: lines that come while a batch is retried go into later ones; it keeps its count and its base sequence.
func TestC132RetryKeepsTheBatch(t *testing.T) {
	b := embedded(t, 1)
	sent := b.collect()
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.first(100)
	for range 3 {
		b.dropAnswers()
		w.writer.Write(10)
		w.awaitAll() // appended, and the answer is lost
		w.writer.Write(3_000)
		w.check()
		b.heal()
	}
	w.stop()
	if sent.resent(t) < 3 {
		t.Error("fewer than 3 batches were sent again")
	}
	next := map[int64]int32{}
	for _, x := range sent.list {
		s := x.sequence()
		if s.epoch != 0 || s.base > next[s.id] {
			t.Errorf("%+v: the batch before it ended at %d", s, next[s.id])
		}
		next[s.id] = max(next[s.id], s.base+x.count())
	}
}

// C133: the leader says it is none, in the middle of a stream.
func TestC133NotLeaderForAWhile(t *testing.T) {
	b := embedded(t, 2)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 2_000})
	w.underLoad(func() {
		for i := range 5 {
			time.Sleep(300 * time.Millisecond)
			b.fault(kerr.NotLeaderForPartition, 2)
			b.fault(kerr.RequestTimedOut, 1)
			b.moveLeader(t, 0, int32(i%3))
		}
	})
	w.stop()
}

// C134: the broker has forgotten the producer.
func TestC134ProducerStateLost(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber} {
		t.Run(e.Message, func(t *testing.T) {
			b := embedded(t, 1)
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
			w.first(1_000)
			b.fault(e, 1)
			w.writer.Write(500)
			w.check()
			if n := w.logLines("new producer id"); n != 1 {
				t.Errorf("%d lines about a new producer id, want one", n)
			}
			w.wantStat("lost_records", 0)
			w.stop()
		})
	}
}

// C138: the topic is deleted while lines come, and made again with fewer partitions. What was not acked before arrives in the
// new one, once. With as many partitions, and on real brokers: TestC138TopicRecreated.
func TestC138TopicMadeAgain(t *testing.T) {
	b := embedded(t, 4)
	b.kafka = "  auto_create_topics: false\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 500})
	w.agent.Start()
	w.writer.Start()
	time.Sleep(2 * time.Second)
	w.writer.Stop()
	w.check()
	acked := w.writer.Written()
	if err := b.fake.DeleteTopic(b.topic); err != nil {
		t.Fatal(err)
	}
	w.writer.Start()
	time.Sleep(2 * time.Second)
	if err := b.fake.CreateTopic(b.topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	w.writer.Stop()
	w.wantBehind(acked)
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}

// C141: requests are late, not lost: given up here, and executed there when the batch was sent again long ago.
func TestC141LateDelivery(t *testing.T) {
	b := embedded(t, 2)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, Rate: 1_000})
	w.underLoad(func() {
		for range 5 {
			time.Sleep(500 * time.Millisecond)
			var late []<-chan struct{}
			for _, p := range b.proxies {
				late = append(late, p.LateNextRequests(1, 700*time.Millisecond))
			}
			time.Sleep(time.Second)
			b.heal()
			for _, done := range late {
				<-done
			}
		}
	})
	w.stop()
}

// C142: killed twenty times. There is no window: what was in doubt is recognised.
func TestC142Kill9(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, Rate: 1_000})
	w.writer.Start()
	w.agent.KillLoop(20, 50*time.Millisecond, 600*time.Millisecond, uint64(time.Now().UnixNano()))
	w.writer.Stop()
	w.agent.Start()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}

// C143: the leader moves all the time.
func TestC143LeaderMoves(t *testing.T) {
	b := embedded(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1, Rate: 1_000})
	w.underLoad(func() {
		for i := range 20 {
			time.Sleep(200 * time.Millisecond)
			b.moveLeader(t, 0, int32(i%3))
		}
	})
	w.wantStat("out_of_order_answers", 0)
	w.stop()
}

// C144: a broker's "that is a duplicate" is a success.
func TestC144DuplicateIsSuccess(t *testing.T) {
	b := embedded(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.first(100)
	// The batch is appended and its answer lost; what comes again is answered with 46.
	var first sync.Once
	b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.DuplicateSequenceNumber, Count: 1, When: func(kmsg.Request) bool {
		retry := true
		first.Do(func() { retry = false })
		return retry
	}})
	w.dropAnswers()
	w.writer.Write(100)
	time.Sleep(2 * time.Second)
	w.writer.Write(100)
	w.check()
	w.stop()
}

// The same of a batch that was never sent before: somebody else has used these numbers, and its bytes are not in the log.
func TestC144DuplicateAtTheFirstTry(t *testing.T) {
	b := embedded(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.first(100)
	b.fault(kerr.DuplicateSequenceNumber, 1)
	w.writer.Write(1) // one batch, whenever it is read
	w.check()
	if w.logLines("another producer used this lane's producer id") != 1 {
		t.Error("the log does not say that the answer cannot be")
	}
	w.wantStat("maybe_doubled_records", 1)
	w.stop()
}

// The end of S3: all brokers were away, and after they are back, and the agent too, they do not know the topic for a while.
func TestS3TopicUnknownAfterTheOutage(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			b := embedded(t, 2)
			b.kafka = "  auto_create_topics: false\n"
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
			w.first(50)
			w.cut()
			w.writer.Write(50)
			w.agent.WaitLog("no metadata from any broker", 30*time.Second)
			unknown := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: b.topic, Err: kerr.UnknownTopicOrPartition, Count: -1})
			if restart {
				w.agent.Kill9()
				w.agent.Start()
			}
			w.heal()
			w.agent.WaitLog("topic unknown", 30*time.Second)
			w.writer.Write(50)
			time.Sleep(2 * time.Second)
			unknown.Remove()
			w.check()
			w.wantStat("maybe_doubled_records", 0)
			w.wantStat("out_of_order_answers", 0)
			w.stop()
		})
	}
}
