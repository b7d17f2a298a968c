package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Cases from the field, each a public report against some agent or client, on embedded brokers. The long forms on real
// brokers are in sequencer_long_test.go.

// fault answers the next count produce requests with err.
func (b *brokers) fault(err *kerr.Error, count int) {
	b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: count})
}

// observe calls f with every batch that a produce request brings, before it is handled.
func (b *brokers) observe(f func(partition int32, batch []byte)) {
	b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, When: func(r kmsg.Request) bool {
		req := r.(*kmsg.ProduceRequest)
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				p := &req.Topics[i].Partitions[j]
				f(p.Partition, bytes.Clone(p.Records))
			}
		}
		return false
	}})
}

// cpuSeconds is what the agent's process has used.
func (w *world) cpuSeconds() float64 {
	w.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.agent.Pid()))
	if err != nil {
		w.t.Skip("needs /proc:", err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	user, _ := strconv.ParseFloat(f[11], 64)
	sys, _ := strconv.ParseFloat(f[12], 64)
	return (user + sys) / 100
}

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

// C116: one of three brokers swallows everything. The partitions of the others go on.
func TestC116OneBrokerSwallows(t *testing.T) {
	b := embedded(t, 6)
	sources := make([]source, 6)
	for i := range sources {
		sources[i] = source{fmt.Sprintf("s%d", i), fmt.Sprintf("app-%02d.log", i)}
	}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 6}, sources...)
	w.agent.Start()
	w.writer.Write(600)
	w.check()
	dead := b.fake.LeaderFor(b.topic, 0)
	var alive []int32
	for p := range int32(6) {
		if b.fake.LeaderFor(b.topic, p) != dead {
			alive = append(alive, p)
		}
	}
	addrs := b.fake.ListenAddrs()
	for i, p := range w.proxies {
		if addrs[dead] == p.Addr() {
			w.proxies[i].BlackHole()
		}
	}
	before := map[int32]int64{}
	for _, p := range alive {
		before[p] = b.fake.PartitionInfo(b.topic, p).HighWatermark
	}
	w.writer.Write(600)
	deadline := time.Now().Add(20 * time.Second)
	for {
		moved := 0
		for _, p := range alive {
			if info := b.fake.PartitionInfo(b.topic, p); info != nil && info.HighWatermark > before[p] {
				moved++
			}
		}
		if moved > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no partition of a healthy broker moved while another broker swallowed packets")
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.heal()
	w.check()
	w.stop()
}

// C119: the topic is missing and nobody creates it for a while.
func TestC119TopicMissing(t *testing.T) {
	b := embedded(t, 1)
	b.topic = "created-later"
	b.kafka = "  auto_create_topics: false\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
	w.writer.Write(500)
	w.agent.Start()
	w.agent.WaitLog("topic unknown", 20*time.Second)
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
	w.agent.Start()
	w.writer.Start()
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		b.fault(kerr.NotEnoughReplicas, 1)
		b.fault(kerr.NotEnoughReplicasAfterAppend, 1)
	}
	time.Sleep(time.Second)
	w.writer.Stop()
	w.check()
	w.stop()
}

// C123: the broker closes idle connections, by FIN and by RST.
func TestC123IdleConnectionsClosed(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1})
	w.agent.Start()
	for i := range 8 {
		w.writer.Write(1)
		kafkatest.AwaitRecords(t, w.bootstrap, w.topic, int64(i+1), w.read)
		for _, p := range w.proxies {
			if i%2 == 0 {
				p.Reset()
				continue
			}
			p.Cut()
			p.Heal()
		}
	}
	w.check()
	if strings.Contains(w.agent.Log(), "level=ERROR") {
		t.Error("a closed connection is logged as an error")
	}
	w.stop()
}

// C126: every answer comes late.
func TestC126SlowBroker(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, Rate: 1_000})
	for _, p := range w.proxies {
		p.Delay(1500 * time.Millisecond)
	}
	w.agent.Start()
	w.writer.Start()
	time.Sleep(12 * time.Second)
	w.writer.Stop()
	w.heal()
	w.check()
	w.stop()
}

// C128: processor and log noise in an outage.
func TestC128QuietInAnOutage(t *testing.T) {
	b := embedded(t, 12)
	sources := make([]source, 10)
	for i := range sources {
		sources[i] = source{fmt.Sprintf("s%d", i), fmt.Sprintf("app-%02d.log", i)}
	}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 10}, sources...)
	w.agent.Start()
	w.writer.Write(1_000)
	w.check()
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

// C130, C132: answers are lost after the append. What is sent again is the same, byte for byte.
func TestC130ResponseLost(t *testing.T) {
	b := embedded(t, 1)
	type key struct {
		id    int64
		epoch int16
		seq   int32
	}
	var mu sync.Mutex
	seen, again := map[key][]byte{}, 0
	b.observe(func(_ int32, batch []byte) {
		mu.Lock()
		defer mu.Unlock()
		k := key{int64(binary.BigEndian.Uint64(batch[43:])), int16(binary.BigEndian.Uint16(batch[51:])), int32(binary.BigEndian.Uint32(batch[53:]))}
		if before, ok := seen[k]; ok {
			again++
			if !bytes.Equal(before, batch) {
				t.Errorf("the batch at %+v was sent again with other bytes", k)
			}
		}
		seen[k] = batch
	})
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1, Rate: 2_000})
	for _, p := range w.proxies {
		p.DropNextAnswers(1) // the first batch
	}
	w.agent.Start()
	w.writer.Start()
	for range 5 {
		time.Sleep(400 * time.Millisecond)
		for _, p := range w.proxies {
			p.DropNextAnswers(1)
		}
	}
	w.writer.Stop()
	w.check()
	w.stop()
	if again == 0 {
		t.Error("no batch was sent again: nothing was tested")
	}
}

// C133: the leader says it is none, in the middle of a stream.
func TestC133NotLeaderForAWhile(t *testing.T) {
	b := embedded(t, 2)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 2_000})
	w.agent.Start()
	w.writer.Start()
	for i := range 5 {
		time.Sleep(300 * time.Millisecond)
		b.fault(kerr.NotLeaderForPartition, 2)
		b.fault(kerr.RequestTimedOut, 1)
		if err := b.fake.MoveTopicPartition(b.topic, 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
	}
	w.writer.Stop()
	w.check()
	w.stop()
}

// C134: the broker has forgotten the producer.
func TestC134ProducerStateLost(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber} {
		t.Run(e.Message, func(t *testing.T) {
			b := embedded(t, 1)
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
			w.agent.Start()
			w.writer.Write(1_000)
			w.check()
			b.fault(e, 1)
			w.writer.Write(500)
			w.check()
			if !strings.Contains(w.agent.Log(), "new producer id") {
				t.Error("nothing is said about the new producer id")
			}
			w.stop()
		})
	}
}

// C144: a broker's "that is a duplicate" is a success.
func TestC144DuplicateIsSuccess(t *testing.T) {
	b := embedded(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.agent.Start()
	w.writer.Write(100)
	w.check()
	// The batch is appended and its answer lost; what comes again is answered with 46.
	var first sync.Once
	b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.DuplicateSequenceNumber, Count: 1, When: func(kmsg.Request) bool {
		retry := true
		first.Do(func() { retry = false })
		return retry
	}})
	for _, p := range w.proxies {
		p.DropNextAnswers(1)
	}
	w.writer.Write(100)
	time.Sleep(2 * time.Second)
	w.writer.Write(100)
	w.check()
	w.stop()
}
