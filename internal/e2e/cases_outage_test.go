package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Cases from the field: brokers that are away, slow, silent or changed.

// C115: no broker at the start.
func TestC115BrokerDownAtStart(t *testing.T) {
	w := newWorld(t, embedded(t, 4), kafkatest.WriterOptions{Files: 2})
	w.cut()
	w.writer.Write(1_000)
	w.agent.Start()
	w.agent.WaitLog("no metadata from any broker", 20*time.Second)
	time.Sleep(3 * time.Second)
	if warnings := strings.Count(w.agent.Log(), "level=WARN"); warnings > 12 {
		t.Errorf("%d warnings in a few seconds of outage", warnings)
	}
	w.heal()
	w.check()
	w.stop()
}

// moveLeader gives a partition to a broker.
func (b *brokers) moveLeader(t *testing.T, partition, broker int32) {
	t.Helper()
	if err := b.fake.MoveTopicPartition(b.topic, partition, broker); err != nil {
		t.Fatal(err)
	}
}

// proxyOf is the proxy before broker id.
func (b *brokers) proxyOf(id int32) *kafkatest.Proxy {
	addr := b.fake.ListenAddrs()[id]
	for _, p := range b.proxies {
		if p.Addr() == addr {
			return p
		}
	}
	panic("BUG: no proxy before broker")
}

// others are the partitions with records that broker id does not lead.
func (b *brokers) others(id int32) map[int32]int64 {
	ends := map[int32]int64{}
	for p := range int32(6) {
		if end := b.fake.PartitionInfo(b.topic, p).HighWatermark; end > 0 && b.fake.LeaderFor(b.topic, p) != id {
			ends[p] = end
		}
	}
	return ends
}

// awaitGrowth waits until every partition has more records than it had.
func (b *brokers) awaitGrowth(t *testing.T, before map[int32]int64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(before) > 0; time.Sleep(50 * time.Millisecond) {
		for p, end := range before {
			if b.fake.PartitionInfo(b.topic, p).HighWatermark > end {
				delete(before, p)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("partitions %v of healthy brokers stand still", before)
		}
	}
}

// oneBrokerFails breaks the way to one of three brokers, none of those the agent starts with. The partitions of the others go
// on, and the log names the broker.
func oneBrokerFails(t *testing.T, fault func(*kafkatest.Proxy)) {
	const broken = 2
	b := embedded(t, 6)
	for p := range int32(6) {
		b.moveLeader(t, p, p%3)
	}
	b.bootstrap = b.fake.ListenAddrs()[:broken]
	b.kafka = "  acks_timeout: 1s\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 6}, blocks(6)...)
	w.first(600)
	fault(b.proxyOf(broken))
	others := b.others(broken)
	if len(others) != 4 {
		t.Fatalf("lines are in %d partitions of the other brokers, want them in all 4", len(others))
	}
	w.writer.Write(600)
	b.awaitGrowth(t, others)
	w.agent.WaitLog(fmt.Sprintf("broker=%d", broken), time.Minute)
	w.heal()
	w.checkSettled()
	w.stop()
}

// C116: a broker swallows everything.
func TestC116OneBrokerSwallows(t *testing.T) { oneBrokerFails(t, (*kafkatest.Proxy).BlackHole) }

// C119: the topic is missing and nobody creates it for a while.
func TestC119TopicMissing(t *testing.T) {
	b := embedded(t, 1)
	b.topic = "created-later"
	b.kafka = "  auto_create_topics: false\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
	w.writer.Write(500)
	w.agent.Start()
	w.agent.WaitLog("topic unknown", 20*time.Second)
	if w.logLines("topic="+b.topic) == 0 {
		t.Error("the log does not name the topic")
	}
	requests := func() (n int) {
		for _, p := range b.proxies {
			n += p.Requests(kmsg.Metadata.Int16())
		}
		return n
	}
	before, said := requests(), w.logLines("level=WARN")
	time.Sleep(5 * time.Second)
	if n := requests() - before; n > 20 {
		t.Errorf("%d metadata requests in 5 s", n)
	}
	if n := w.logLines("level=WARN") - said; n > 5 {
		t.Errorf("%d warnings in 5 s", n)
	}
	if err := b.fake.CreateTopic(b.topic, 2, nil); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.stop()
}

// C121: too few replicas, before the append and after it.
func TestC121NotEnoughReplicas(t *testing.T) {
	b := embedded(t, 2)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, Rate: 1_000})
	w.underLoad(func() {
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			b.fault(kerr.NotEnoughReplicas, 1)
			b.fault(kerr.NotEnoughReplicasAfterAppend, 1)
		}
		time.Sleep(time.Second)
	})
	w.stop()
}

// C123: connections end while they are idle: by FIN, by RST, and without a sign.
func TestC123IdleConnectionsClosed(t *testing.T) {
	b := embedded(t, 1)
	b.kafka = "  acks_timeout: 1s\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.agent.Start()
	for i := range 8 {
		w.writer.Write(1)
		w.awaitAll()
		for _, p := range w.proxies {
			if i%2 == 0 {
				p.Reset()
				continue
			}
			p.Cut()
			p.Heal()
		}
	}
	// As a firewall that forgot the connection: what is sent goes nowhere, until the request's own time-out.
	for _, p := range w.proxies {
		p.BlackHole()
	}
	w.writer.Write(1)
	w.agent.WaitLog("deadline exceeded", time.Minute)
	w.heal()
	w.check()
	if w.logLines("level=ERROR") > 0 {
		t.Error("a closed connection is logged as an error")
	}
	w.stop()
}

// C125: partitions are added while lines are written. A file stays where it is; what begins later may use the new ones.
func TestC125PartitionsGrow(t *testing.T) {
	b := embedded(t, 2)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 20, Rate: 2_000})
	w.agent.Start()
	w.writer.Start()
	time.Sleep(2 * time.Second)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.bootstrap...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = b.topic, 6
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("grow: %v, %+v", err, resp)
	}
	time.Sleep(3 * time.Second)
	w.writer.Stop()
	w.check()
	w.wantStat("new_identities", 0)
	w.stop()
}

// slowProduce has every produce request take as long as delay says.
func (b *brokers) slowProduce(delay *atomic.Int64) {
	b.fake.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		b.fake.SleepControl(func() { time.Sleep(time.Duration(delay.Load())) })
		return nil, nil, false
	})
}

// slow is a case of a slow broker.
type slow struct {
	acksTimeout string // 10 s more are given for the way
	less        []time.Duration
	hold        time.Duration // for each of less
	more        time.Duration
}

// C126: every produce request takes long, first less than its time-out, then more.
func slowBroker(t *testing.T, c slow) {
	b := embedded(t, 2)
	b.kafka = "  acks_timeout: " + c.acksTimeout + "\n"
	var delay atomic.Int64
	b.slowProduce(&delay)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, Rate: 1_000})
	w.underLoad(func() {
		for _, d := range c.less {
			delay.Store(int64(d))
			time.Sleep(c.hold)
		}
		if n := w.logLines("level=WARN"); n > 0 {
			t.Errorf("%d warnings about requests that are only slow", n)
		}
		delay.Store(int64(c.more))
		w.agent.WaitLog("produce request failed", 2*time.Minute)
		if used := w.residentBytes(); used > 256<<20 {
			t.Errorf("%d MiB of memory", used>>20)
		}
		delay.Store(0)
	})
	w.stop()
}

func TestC126SlowBroker(t *testing.T) {
	slowBroker(t, slow{acksTimeout: "1s", less: []time.Duration{3 * time.Second}, hold: 7 * time.Second, more: 13 * time.Second})
}

// C128: processor and log noise in an outage.
func TestC128QuietInAnOutage(t *testing.T) {
	b := embedded(t, 12)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 10}, blocks(10)...)
	w.first(1_000)
	w.cut()
	w.writer.Write(1_000)
	time.Sleep(3 * time.Second)
	cpu, lines := w.cpuSeconds(), strings.Count(w.agent.Log(), "\n")
	time.Sleep(10 * time.Second)
	if used := w.cpuSeconds() - cpu; used > 0.5 {
		t.Errorf("%.2f s of processor time in 10 s of outage", used)
	}
	if said := strings.Count(w.agent.Log(), "\n") - lines; said > 6 {
		t.Errorf("%d log lines in 10 s of outage", said)
	}
	w.heal()
	w.check()
	w.stop()
}

// C129: a broker takes everything and answers nothing, or ends in the middle of an answer.
func TestC129AcceptsAndNeverAnswers(t *testing.T) {
	t.Parallel()
	t.Run("silence", func(t *testing.T) { oneBrokerFails(t, (*kafkatest.Proxy).Stall) })
	t.Run("half an answer", func(t *testing.T) { oneBrokerFails(t, func(p *kafkatest.Proxy) { p.HalfAnswers(1) }) })
}
