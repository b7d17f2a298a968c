//go:build long

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/internal/kafkatest"
)

// No lane disturbs another: four healthy lanes ship at a steady rate while others of the same agent, some of them led by the
// same brokers, meet one trouble after the other. What the healthy ones do is printed phase by phase, as a table for
// benchmarks/README.md:
//
//	go test -tags long -count=1 -v -run TestNoLaneDisturbsAnother ./internal/e2e

const (
	disturbPhase = 15 * time.Second
	disturbRate  = 4_000 // lines per second over the four healthy lanes
	// A partition that cannot commit holds up the request in which that is found out for the acks time-out of 10 s, and with
	// it only what waits for the same followers: nothing of the healthy lanes.
	disturbMax = 8 * time.Second
)

// watch collects when the records of a topic arrive, and how old they are then.
type watch struct {
	mu   sync.Mutex
	ages []time.Duration
}

func watchTopic(t *testing.T, brokers []string, topic string) *watch {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w, done := &watch{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			now := time.Now()
			w.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { w.ages = append(w.ages, now.Sub(r.Timestamp)) })
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done; cl.Close() })
	return w
}

// take returns the ages of what arrived since the last call, ascending.
func (w *watch) take() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	ages := w.ages
	w.ages = nil
	slices.Sort(ages)
	return ages
}

func TestNoLaneDisturbsAnother(t *testing.T) {
	g := ground{replicas: [][]int32{{0}, {0}, {1}, {1}}, // on the brokers that lead what is in trouble, too
		settings: map[string]string{"min.insync.replicas": "1"},
		writer:   kafkatest.WriterOptions{Files: 8, Rate: disturbRate}, sources: []source{{name: "healthy", glob: "app-*.log"}}}
	g.asBoth(t, func(t *testing.T, w *secured) {
		c := w.cluster
		starved, slow, missing, denied := w.topic+"-starved", w.topic+"-slow", w.topic+"-missing", w.topic+"-denied"
		c.CreateTopicOn(starved, [][]int32{{0, 2}}, map[string]string{"min.insync.replicas": "2"})
		c.CreateTopicOn(slow, [][]int32{{2}}, nil)
		c.CreateTopicOn(denied, [][]int32{{1}}, nil)
		for _, topic := range []string{starved, slow, missing} {
			w.grantOn(topic)
		}
		logs := t.TempDir()
		troubles := map[string]*kafkatest.Writer{}
		for _, topic := range []string{starved, slow, missing, denied} {
			name := topic[strings.LastIndexByte(topic, '-')+1:]
			troubles[name] = kafkatest.NewWriter(t, kafkatest.WriterOptions{Dir: filepath.Join(logs, name), Name: name, Files: 2, Rate: 500})
			w.sources = append(w.sources, source{name: name, glob: filepath.Join(logs, name, "*.log"), topic: topic})
		}
		w.configure()
		seen := watchTopic(t, w.checker(), w.topic)
		w.agent.Start()
		w.writer.Start()
		time.Sleep(10 * time.Second)
		seen.take()
		var base time.Duration
		phase := func(name string, begin, end func(), in ...string) {
			for _, x := range in {
				troubles[x].Start()
			}
			begin()
			time.Sleep(disturbPhase)
			ages := seen.take()
			end()
			for _, x := range in {
				troubles[x].Stop()
			}
			if len(ages) == 0 {
				t.Fatalf("%s: nothing arrived on the healthy lanes", name)
			}
			p99, last := ages[len(ages)*99/100], ages[len(ages)-1]
			if base == 0 {
				base = last
			}
			fmt.Printf("| %s | %s | %.0f | %d | %d | %d |\n", t.Name()[strings.IndexByte(t.Name(), '/')+1:], name, float64(len(ages))/disturbPhase.Seconds(),
				ages[len(ages)/2].Milliseconds(), p99.Milliseconds(), last.Milliseconds())
			if last > base+disturbMax {
				t.Errorf("%s: a healthy line took %v, at most %v without trouble", name, last, base)
			}
		}
		nothing := func() {}
		phase("none", nothing, nothing)
		phase("topic missing", nothing, nothing, "missing")
		phase("topic denied", nothing, nothing, "denied")
		phase("slow broker, 2 s each way", func() { c.Proxy(2).Delay(2 * time.Second) }, c.Proxy(2).Heal, "slow")
		phase("too few replicas", c.ReplicaProxy(0).BlackHole, c.ReplicaProxy(0).Heal, "starved")
		phase("all at once", func() { c.Proxy(2).Delay(2 * time.Second); c.ReplicaProxy(0).BlackHole() },
			func() { c.Proxy(2).Heal(); c.ReplicaProxy(0).Heal() }, "missing", "denied", "slow", "starved")
		w.writer.Stop()
		w.checkSettled()
	})
}
