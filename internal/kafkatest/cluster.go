package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Bounds of everything that waits.
const (
	readyMax = 90 * time.Second // a broker from exec to taking part
	stopMax  = 40 * time.Second // a broker from SIGTERM to its end
	adminMax = 75 * time.Second // one admin call with its wait for all brokers to agree
)

// Cluster is one test's handle on a running cluster; a method that cannot do what it
// says fails that test (as t.Fatal does, so only the test's goroutine and goroutines
// whose early end the test notices should call it). Methods may be called at the same
// time, but for those of one Broker.
type Cluster struct {
	tb testing.TB
	*state
}

// state is the cluster itself; several tests may hold it (Shared).
type state struct {
	o         Options
	dist      *dist
	dir       *runDir
	clusterID string
	nodes     []*node
	admin     *kgo.Client  // speaks to the HARNESS listeners
	turn      atomic.Int64 // of the brokers, see some
	marks     atomic.Int64 // values used by settled

	closeOnce sync.Once
}

// Start starts a cluster and stops it when the test ends. If Java, Maven or the
// artefacts are absent the test is skipped; with SHIPPER_REQUIRE_KAFKA=1 it fails.
// Logs are kept, and their place is printed, if the test failed.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	s, err := startState(o)
	if err != nil {
		refuse(tb, err)
	}
	c := &Cluster{tb: tb, state: s}
	tb.Cleanup(func() {
		s.keepIfFailed(tb)
		s.close()
	})
	return c
}

// refuse ends a test whose cluster could not be started: a skip if something it needs
// is absent, a failure otherwise or when the environment asks for it.
func refuse(tb testing.TB, err error) {
	tb.Helper()
	var absent *absentError
	if errors.As(err, &absent) && os.Getenv(envRequire) != "1" {
		tb.Skipf("no real Kafka: %v", err)
	} else {
		tb.Fatal(err)
	}
}

// startState starts the brokers side by side and waits until every one of them sees
// all others. What was started is ended again on an error.
func startState(o Options) (_ *state, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := obtain(o.Version)
	if err != nil {
		return nil, err
	}
	s, err := newState(o, d)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.dir.keep()
			s.close()
			err = fmt.Errorf("%w (logs: %s)", err, s.dir.path)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), readyMax)
	defer cancel()
	if err = s.up(ctx); err != nil {
		return nil, err
	}
	for user, password := range o.Users {
		if err = s.addUser(ctx, user, password); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newState lays out directories, ports, certificates and configurations; it starts
// nothing but the proxies.
func newState(o Options, d *dist) (_ *state, err error) {
	dir, err := newRunDir("cluster")
	if err != nil {
		return nil, err
	}
	s := &state{o: o, dist: d, dir: dir, clusterID: newUUID()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if o.TLS {
		if err := writeCertificates(dir.path); err != nil {
			return nil, err
		}
	}
	var voters []string
	for i := range o.Brokers {
		n, err := newNode(s, i)
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, n)
		voters = append(voters, fmt.Sprintf("%d@%s", i, n.controller))
	}
	for _, n := range s.nodes {
		props := o.properties(n, strings.Join(voters, ","), dir.path)
		if err := os.WriteFile(n.configFile(), []byte(props), 0o600); err != nil {
			return nil, fmt.Errorf("kafkatest: %w", err)
		}
		if err := n.format(); err != nil {
			return nil, err
		}
	}
	var seeds []string
	for _, n := range s.nodes {
		seeds = append(seeds, n.harness)
	}
	s.admin, err = kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DialTimeout(2*time.Second),
		kgo.RequestTimeoutOverhead(2*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("kafkatest: admin client: %w", err)
	}
	return s, nil
}

// up starts every broker that does not run and waits until all are ready.
func (s *state) up(ctx context.Context) error {
	for _, n := range s.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		if err := n.waitReady(ctx, len(s.nodes)); err != nil {
			return err
		}
	}
	return nil
}

// close kills the brokers and frees all; the data are worth nothing by then, so nobody
// waits for a clean shutdown. Idempotent.
func (s *state) close() {
	s.closeOnce.Do(func() {
		for _, n := range s.nodes {
			n.kill()
			n.close()
		}
		if s.admin != nil {
			s.admin.Close()
		}
		s.dir.close()
	})
}

func (s *state) keepIfFailed(tb testing.TB) {
	if tb.Failed() {
		s.dir.keep()
		tb.Logf("kafkatest: broker logs kept in %s", s.dir.path)
	}
}

// Bootstrap returns the client addresses of all brokers: those of the proxies if
// Options.Proxy is set.
func (c *Cluster) Bootstrap() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.clientSeen)
	}
	return addrs
}

// DirectBootstrap returns addresses that pass by every proxy and every access rule:
// plaintext, for checkers that must read what faulted or locked-out clients wrote.
func (c *Cluster) DirectBootstrap() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.harness)
	}
	return addrs
}

// ClusterID returns the id the brokers give in their metadata.
func (c *Cluster) ClusterID() string { return c.clusterID }

// Dir returns the directory of the run: configurations, logs and data.
func (c *Cluster) Dir() string { return c.dir.path }

// Broker returns broker i, counted from 0, which is its node id as well.
func (c *Cluster) Broker(i int) *Broker {
	c.tb.Helper()
	c.checkIndex(i)
	return &Broker{c: c, n: c.nodes[i]}
}

// Proxy returns the proxy in front of the client listener of broker i.
// Needs Options.Proxy.
func (c *Cluster) Proxy(i int) *Proxy {
	c.tb.Helper()
	c.checkIndex(i)
	if c.nodes[i].clientProxy == nil {
		c.tb.Fatal("kafkatest: Cluster.Proxy needs Options.Proxy")
	}
	return c.nodes[i].clientProxy
}

// ReplicaProxy returns the proxy through which the other brokers fetch from broker i:
// cut, followers of its partitions fall out of sync while clients still reach it.
// Needs Options.ReplicaProxy.
func (c *Cluster) ReplicaProxy(i int) *Proxy {
	c.tb.Helper()
	c.checkIndex(i)
	if c.nodes[i].replicaProxy == nil {
		c.tb.Fatal("kafkatest: Cluster.ReplicaProxy needs Options.ReplicaProxy")
	}
	return c.nodes[i].replicaProxy
}

func (c *Cluster) checkIndex(i int) {
	c.tb.Helper()
	if i < 0 || i >= len(c.nodes) {
		c.tb.Fatalf("kafkatest: broker %d of %d", i, len(c.nodes))
	}
}

// Restore brings a cluster back to health: proxies healed, frozen brokers thawed, dead
// ones started, all ready. Topics stay.
func (c *Cluster) Restore() {
	c.tb.Helper()
	for _, n := range c.nodes {
		n.heal()
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyMax)
	defer cancel()
	if err := c.up(ctx); err != nil {
		c.tb.Fatal(err)
	}
}

// WipeAll kills all brokers, empties their disks and starts them again: no topic, user,
// producer state is left and producer ids are given out from 0 again. The cluster id
// stays if keepID is set, as where a deployment pins it.
func (c *Cluster) WipeAll(keepID bool) {
	c.tb.Helper()
	for _, n := range c.nodes {
		n.heal()
		n.kill()
	}
	if !keepID {
		c.clusterID = newUUID()
	}
	for _, n := range c.nodes {
		if err := n.format(); err != nil {
			c.tb.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyMax)
	defer cancel()
	if err := c.up(ctx); err != nil {
		c.tb.Fatal(err)
	}
	for user, password := range c.o.Users {
		if err := c.addUser(ctx, user, password); err != nil {
			c.tb.Fatal(err)
		}
	}
}

// logFile is where broker i writes what it has to say.
func (s *state) logFile(i int) string {
	return filepath.Join(s.dir.path, fmt.Sprintf("broker-%d.log", i))
}
