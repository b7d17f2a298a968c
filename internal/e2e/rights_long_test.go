//go:build long

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Every long test runs twice: as an agent that may read its topics and their configuration, and as one that may write and
// do nothing else. What the second cannot find out it must count.

// userOf are the users of both runs.
var userOf = []struct {
	name string
	user string
	ops  []kmsg.ACLOperation
}{
	{"reads", kafkatest.UserOne, []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs}},
	{"write-only", kafkatest.UserTwo, []kmsg.ACLOperation{kmsg.ACLOperationWrite}},
}

// secured is a world on brokers with access rules.
type secured struct {
	*world
	cluster       *kafkatest.Cluster
	writeOnly     bool
	counted       int // as possibly doubled by agents that were killed, see killCounted
	grantOn       func(topic string)
	grant, revoke func() // on the world's topic
}

// ground is what a long test stands on.
type ground struct {
	cluster    *kafkatest.Cluster // nil: the shared one
	partitions int                // of the topic, each on three brokers; 0: nobody makes the topic
	replicas   [][]int32          // instead: the brokers of each partition
	settings   map[string]string  // of the topic, beside two replicas that must be in sync
	writer     kafkatest.WriterOptions
	sources    []source
	defaults   string // see brokers
}

// cluster starts one for a ground of its own.
func cluster(t *testing.T, settings map[string]string) *kafkatest.Cluster {
	t.Helper()
	return kafkatest.Start(t, kafkatest.Options{Proxy: true, ReplicaProxy: true, ACLs: true, Config: settings,
		Users: map[string]string{kafkatest.UserOne: kafkatest.UserOne, kafkatest.UserTwo: kafkatest.UserTwo}})
}

// makeTopic makes the world's topic.
func (g ground) makeTopic(w *secured) {
	settings := map[string]string{"min.insync.replicas": "2"}
	maps.Copy(settings, g.settings)
	switch {
	case g.replicas != nil:
		w.cluster.CreateTopicOn(w.topic, g.replicas, settings)
	case g.partitions > 0:
		w.cluster.CreateTopic(w.topic, g.partitions, 3, settings)
	}
}

// asBoth runs f with both users, each with a world and a topic of its own, and stops the agent at the end.
func (g ground) asBoth(t *testing.T, f func(t *testing.T, w *secured)) {
	t.Helper()
	if g.cluster == nil {
		g.cluster = kafkatest.SharedACLs(t)
	}
	for _, u := range userOf {
		t.Run(u.name, func(t *testing.T) {
			c := g.cluster.For(t)
			b := &brokers{bootstrap: c.Bootstrap(), direct: c.DirectBootstrap(), topic: ownTopic(t), defaults: g.defaults,
				kafka: fmt.Sprintf("  sasl: {mechanism: scram-sha-512, username: %s, password: %s}\n  auto_create_topics: false\n", u.user, u.user)}
			for i := range 3 {
				b.proxies = append(b.proxies, c.Proxy(i))
			}
			w := &secured{world: newWorld(t, b, g.writer, slices.Clone(g.sources)...), cluster: c, writeOnly: u.name == "write-only"}
			w.grantOn = func(topic string) { c.Grant(u.user, kmsg.ACLResourceTypeTopic, topic, u.ops...) }
			w.grant = func() { w.grantOn(b.topic) }
			w.revoke = func() { c.Revoke(u.user, kmsg.ACLResourceTypeTopic, b.topic) }
			g.makeTopic(w)
			w.grant()
			f(t, w)
			w.stop()
		})
	}
}

// killCounted kills the agent, whose counters end with it, and starts it again.
func (w *secured) killCounted() {
	w.t.Helper()
	s := w.stats()
	w.agent.Kill9()
	w.counted += int(s["maybe_doubled_records"])
	if n := s["lost_records"]; n != 0 {
		w.t.Errorf("%v records told as lost", n)
	}
	w.agent.Start()
}

// checkHonest waits until no written line is missing and compares. An agent that may read doubles nothing; one that may
// not doubles at most what it counted, and the most it may count is most.
func (w *secured) checkHonest(most int) {
	w.t.Helper()
	var r kafkatest.Report
	for deadline := time.Now().Add(deliverMax); ; time.Sleep(500 * time.Millisecond) {
		got, _ := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
		if r = kafkatest.Check(w.lines(), got); r.Lost == 0 || time.Now().After(deadline) {
			break
		}
	}
	counted := w.counted + int(w.stats()["maybe_doubled_records"])
	if !w.writeOnly {
		most = 0
	}
	if r.Lost+r.Disorder+r.Foreign != 0 || r.Doubled > counted || counted > most {
		w.t.Fatalf("%v; the agent counted %d as possibly doubled, of at most %d", r.Err(), counted, most)
	}
	w.t.Logf("doubled %d, counted %d, allowed %d", r.Doubled, counted, most)
	w.wantStat("lost_records", 0)
}
