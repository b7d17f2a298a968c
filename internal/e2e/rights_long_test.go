//go:build long

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
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

// secured are brokers with access rules, and what the agent may do there.
type secured struct {
	*brokers
	writeOnly     bool
	grantOn       func(topic string)
	grant, revoke func() // on the world's topic
}

// asBoth runs f with both users on the shared cluster, each with a topic of its own.
func asBoth(t *testing.T, partitions int, f func(t *testing.T, b *secured, c *kafkatest.Cluster)) {
	asBothWith(t, partitions, map[string]string{}, f)
}

// asBothWith is asBoth with settings of the topic.
func asBothWith(t *testing.T, partitions int, settings map[string]string, f func(t *testing.T, b *secured, c *kafkatest.Cluster)) {
	settings["min.insync.replicas"] = "2"
	asBothOn(t, kafkatest.SharedACLs(t), func(c *kafkatest.Cluster, topic string) { c.CreateTopic(topic, partitions, 3, settings) }, f)
}

// ownOptions are of a cluster for asBothOn.
func ownOptions(settings map[string]string) kafkatest.Options {
	return kafkatest.Options{Proxy: true, ReplicaProxy: true, ACLs: true, Config: settings,
		Users: map[string]string{kafkatest.UserOne: kafkatest.UserOne, kafkatest.UserTwo: kafkatest.UserTwo}}
}

// asBothOn runs f with both users on a cluster. create makes a topic.
func asBothOn(t *testing.T, c *kafkatest.Cluster, create func(c *kafkatest.Cluster, topic string), f func(t *testing.T, b *secured, c *kafkatest.Cluster)) {
	t.Helper()
	for _, u := range userOf {
		t.Run(u.name, func(t *testing.T) {
			c := c.For(t)
			b := &secured{writeOnly: u.name == "write-only", brokers: &brokers{bootstrap: c.Bootstrap(), direct: c.DirectBootstrap(), topic: strings.NewReplacer("/", "-", "=", "-").Replace(t.Name()),
				kafka: fmt.Sprintf("  sasl: {mechanism: scram-sha-512, username: %s, password: %s}\n  auto_create_topics: false\n", u.user, u.user)}}
			b.grantOn = func(topic string) { c.Grant(u.user, kmsg.ACLResourceTypeTopic, topic, u.ops...) }
			b.grant = func() { b.grantOn(b.topic) }
			b.revoke = func() { c.Revoke(u.user, kmsg.ACLResourceTypeTopic, b.topic) }
			for i := range 3 {
				b.proxies = append(b.proxies, c.Proxy(i))
			}
			create(c, b.topic)
			b.grant()
			f(t, b, c)
		})
	}
}

// checkHonest waits until no written line is missing and compares. An agent that may read doubles nothing; one that may
// not doubles at most what it counted, and the most it may count is most.
func (b *secured) checkHonest(w *world, most int) {
	w.t.Helper()
	var r kafkatest.Report
	for deadline := time.Now().Add(deliverMax); ; time.Sleep(500 * time.Millisecond) {
		got, _ := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
		if r = kafkatest.Check(w.lines(), got); r.Lost == 0 || time.Now().After(deadline) {
			break
		}
	}
	counted := int(w.stats()["maybe_doubled_records"])
	if !b.writeOnly {
		most = 0
	}
	if r.Lost+r.Disorder+r.Foreign != 0 || r.Doubled > counted || counted > most {
		w.t.Fatalf("%v; the agent counted %d as possibly doubled, of at most %d", r.Err(), counted, most)
	}
	w.t.Logf("doubled %d, counted %d, allowed %d", r.Doubled, counted, most)
	w.wantStat("lost_records", 0)
}

// checkSettled is check with every counter of trouble at 0: nothing lost, nothing doubled, and no doubt about it.
func (w *world) checkSettled() {
	w.t.Helper()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.wantStat("lost_records", 0)
}

// oneBlockEach is a world with a block for every file.
func oneBlockEach(t *testing.T, b *brokers, files, rate int, linger string) *world {
	t.Helper()
	sources := make([]source, files)
	for i := range sources {
		sources[i] = source{name: fmt.Sprintf("s%02d", i), glob: fmt.Sprintf("app-%02d.log", i)}
	}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: files, Rate: rate}, sources...)
	w.agent.SetConfig(strings.Replace(w.config(filepath.Join(w.dir, "spool"), sources), "linger: 200ms", "linger: "+linger, 1))
	return w
}
