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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Cases from the field, each a public report against some agent or client, on embedded brokers: what they share.

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

// sentBatch is a batch as it came in a produce request. Its bytes 43 to 56 are producer id, epoch and base sequence.
type sentBatch []byte

type sequence struct {
	id    int64
	epoch int16
	base  int32
}

func (b sentBatch) sequence() sequence {
	return sequence{int64(binary.BigEndian.Uint64(b[43:])), int16(binary.BigEndian.Uint16(b[51:])), int32(binary.BigEndian.Uint32(b[53:]))}
}

func (b sentBatch) count() int32 { return int32(binary.BigEndian.Uint32(b[57:])) }

// sent collects the batches that reach the brokers.
type sent struct {
	mu   sync.Mutex
	list []sentBatch
}

func (b *brokers) collect() *sent {
	var s sent
	b.observe(func(_ int32, batch []byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, batch)
	})
	return &s
}

// resent compares all attempts of each batch, byte for byte, and returns how many there were beyond the first.
func (s *sent) resent(t *testing.T) (again int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	first := map[sequence]sentBatch{}
	for _, b := range s.list {
		before, ok := first[b.sequence()]
		if !ok {
			first[b.sequence()] = b
			continue
		}
		again++
		if !bytes.Equal(before, b) {
			t.Errorf("the batch at %+v was sent again with other bytes", b.sequence())
		}
	}
	return again
}

// dropAnswers loses the next answer of every broker.
func (b *brokers) dropAnswers() {
	for _, p := range b.proxies {
		p.DropNextAnswers(1)
	}
}

// awaitAll waits until the topic holds all lines that were written so far.
func (w *world) awaitAll() {
	w.t.Helper()
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(w.t, w.checker(), w.topic, w.writer.Lines(), w.read)
}

// wantBehind waits for the lines that were written behind those in before, and wants these in the topic, in order per file,
// and no others.
func (w *world) wantBehind(before map[string][]string) {
	w.t.Helper()
	want, all := map[string][]string{}, 0
	for tag, lines := range w.writer.Written() {
		want[tag] = lines[len(before[tag]):]
		all += len(want[tag])
	}
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(w.t, w.checker(), w.topic, int64(all), w.read)
	got, _ := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
	next := map[string]int{}
	for _, r := range got {
		tag, _, _ := strings.Cut(string(r.Value), " ")
		if n := next[tag]; n >= len(want[tag]) || string(r.Value) != want[tag][n] {
			w.t.Fatalf("line %d of %s is %q", n, tag, r.Value)
		}
		next[tag]++
	}
	if len(got) != all {
		w.t.Fatalf("%d lines, want %d", len(got), all)
	}
}

// logLines counts the lines of the agent's log that hold text.
func (w *world) logLines(text string) (n int) {
	for line := range strings.Lines(w.agent.Log()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
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
