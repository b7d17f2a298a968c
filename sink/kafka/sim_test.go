package kafka

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	simSeed   = flag.Uint64("sim.seed", 1, "first seed of the simulation")
	simRuns   = flag.Int("sim.runs", 0, "worlds to simulate; 0: until the time is over")
	simSearch = flag.Int("sim.search", 4000, "worlds to look through for the lack of a rule")
	simOnly   = flag.String("sim.kind", "", "simulate only worlds whose kind has this in its name")
	simTime   = flag.Duration("sim.time", 3*time.Second, "time to simulate")
)

// TestSim lives worlds with ascending seeds, one on each processor. Each is
// repeated by its seed:
//
//	go test ./sink/kafka -run 'TestSim$' -sim.seed N -sim.runs 1
func TestSim(t *testing.T) {
	begin := time.Now()
	var (
		next, worlds, steps atomic.Uint64
		mu                  sync.Mutex
		failed              []*simWorld
		all                 sync.WaitGroup
	)
	over := func(n uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(failed) >= 3 || *simRuns > 0 && n >= uint64(*simRuns) || *simRuns == 0 && time.Since(begin) >= *simTime
	}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for n := next.Add(1) - 1; !over(n); n = next.Add(1) - 1 {
				if !strings.Contains(simKind(*simSeed+n), *simOnly) {
					continue
				}
				w := simLive(*simSeed+n, asItIs, false)
				worlds.Add(1)
				steps.Add(uint64(w.steps))
				if w.failure != "" {
					mu.Lock()
					failed = append(failed, w)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for i, w := range failed {
		t.Errorf("-sim.seed %d -sim.runs 1 (%s): %s", w.seed, w.name, w.failure)
		if i == 0 {
			t.Log(simRetell(w.seed, asItIs))
		}
	}
	t.Logf("-sim.seed %d: %d worlds, %d steps, %.0f worlds/s", *simSeed, worlds.Load(), steps.Load(), float64(worlds.Load())/time.Since(begin).Seconds())
}

// Worlds that showed a bug once, with what it was: testdata/sim/NAME.txt.
func TestSimRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/sim/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no worlds", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var seed uint64
			if _, err := fmt.Sscanf(string(text), "seed %d", &seed); err != nil {
				t.Fatal("the first line names no seed:", err)
			}
			if w := simLive(seed, asItIs, false); w.failure != "" {
				t.Errorf("%s\n%s", w.failure, simRetell(seed, asItIs))
			}
		})
	}
}

// simLive lives the world of a seed.
func simLive(seed uint64, off mutation, telling bool) *simWorld {
	rules, rng := simRulesOf(seed)
	w := &simWorld{simRules: rules, rng: rng, telling: telling}
	w.off = off
	w.failure = w.run()
	return w
}

// simRetell is what happened in the world of a seed.
func simRetell(seed uint64, off mutation) string {
	w := simLive(seed, off, true)
	return fmt.Sprintf("%+v\n%s%s", w.simRules, w.story.String(), w.ending())
}

func (w *simWorld) ending() string {
	out := "final logs:\n"
	for _, p := range append(append([]*simPartition{}, w.cluster.old...), w.cluster.partitions...) {
		for _, x := range simFinal(p) {
			out += fmt.Sprintf("  %d: %s\n", p.n, &x)
		}
	}
	for _, p := range w.cluster.partitions {
		out += fmt.Sprintf("partition %d: leader %d epoch %d in sync %v\n", p.n, p.leader, p.epoch, p.inSync)
		for _, r := range p.replicas {
			out += fmt.Sprintf("  broker %d: up %v frozen %v, leader %d epoch %d end %d committed %d waiting %d\n", r.broker, w.cluster.brokers[r.broker].up,
				w.cluster.brokers[r.broker].frozen, r.leader, r.epoch, r.end, r.high, len(r.waiting))
		}
	}
	for i := range w.oracle.lanes {
		out += fmt.Sprintf("lane %d: %+v\n", i, w.oracle.lanes[i])
	}
	if w.agent != nil {
		for _, r := range w.agent.sink.order {
			out += fmt.Sprintf("lane %d: %+v\n", r.info.ID, r.lane)
		}
	}
	return out + fmt.Sprintf("flights %d; %s", w.flights, w.failure)
}

var simEvents = [...]string{EvOffer: "offer", EvRoute: "route", EvGranted: "granted", EvIdentityKept: "identity durable", EvAnswer: "answer", EvUnanswered: "unanswered",
	EvAckKept: "ack durable", EvEpochEnd: "epoch end", EvReadBack: "read back", EvLoss: "loss", EvHeadKept: "head durable", EvQuestionFailed: "question failed",
	EvCut: "cut", EvLarge: "large", EvSkipped: "skipped", EvAdopt: "adopt", EvTick: "tick"}

func tellEvent(ev *Event) string {
	switch ev.Kind {
	case EvOffer:
		return fmt.Sprintf("offer %s, %s from %d, in doubt %v", ev.Batch.tell(), ev.Identity.tell(), ev.Identity.From, ev.InDoubt)
	case EvRoute:
		return fmt.Sprintf("route %+v", ev.Route)
	case EvAnswer:
		return fmt.Sprintf("answer %s base %d time %d", ev.Verdict, ev.Base, ev.AppendTime)
	case EvEpochEnd:
		return fmt.Sprintf("epoch end %d as of epoch %d", ev.Base, ev.Route.Epoch)
	case EvReadBack:
		return fmt.Sprintf("read back found %v absent %v", ev.Found, ev.Absent)
	case EvLoss:
		return fmt.Sprintf("loss from %d, held from %d, acked %s", ev.Lost, ev.Held, ev.Acked.tell())
	}
	return simEvents[ev.Kind]
}
