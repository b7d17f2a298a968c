package kafkatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Broker is a handle on one broker, running or not. Its methods wait for what they ask
// for and fail the test if it does not come.
type Broker struct {
	c *Cluster
	n *node
}

// node is one broker of a cluster: addresses, directories, process. Its process fields
// belong to whoever calls the methods of its one Broker.
type node struct {
	s  *state
	id int

	// host:port the broker listens on
	internal, controller, client, harness string
	// and what it advertises: a proxy's, if there is one
	internalSeen, clientSeen string

	ports                     []*port
	clientProxy, replicaProxy *Proxy // nil unless asked for

	dataDir string
	proc    *process // nil before the first start
	frozen  bool
}

func newNode(s *state, id int) (*node, error) {
	n := &node{s: s, id: id, dataDir: filepath.Join(s.dir.path, fmt.Sprintf("data-%d", id))}
	for _, addr := range []*string{&n.internal, &n.controller, &n.client, &n.harness} {
		p, err := reservePort()
		if err != nil {
			n.close()
			return nil, err
		}
		n.ports = append(n.ports, p)
		*addr = p.addr()
	}
	n.internalSeen, n.clientSeen = n.internal, n.client
	for _, w := range []struct {
		on     bool
		target string
		proxy  **Proxy
		seen   *string
	}{
		{s.o.Proxy, n.client, &n.clientProxy, &n.clientSeen},
		{s.o.ReplicaProxy, n.internal, &n.replicaProxy, &n.internalSeen},
	} {
		if !w.on {
			continue
		}
		p, err := newProxy(w.target)
		if err != nil {
			n.close()
			return nil, err
		}
		*w.proxy, *w.seen = p, p.Addr()
	}
	return n, nil
}

func (n *node) configFile() string {
	return filepath.Join(n.s.dir.path, fmt.Sprintf("server-%d.properties", n.id))
}

// format empties the disk and prepares it as the storage tool does: the template it
// made once for this version, with our ids in meta.properties.
func (n *node) format() error {
	if err := os.RemoveAll(n.dataDir); err != nil {
		return fmt.Errorf("kafkatest: wipe broker %d: %w", n.id, err)
	}
	if err := os.CopyFS(n.dataDir, os.DirFS(n.s.dist.templateDir())); err != nil {
		return fmt.Errorf("kafkatest: format broker %d: %w", n.id, err)
	}
	meta := fmt.Sprintf("version=1\nnode.id=%d\ncluster.id=%s\ndirectory.id=%s\n", n.id, n.s.clusterID, newUUID())
	if err := os.WriteFile(filepath.Join(n.dataDir, "meta.properties"), []byte(meta), 0o600); err != nil {
		return fmt.Errorf("kafkatest: format broker %d: %w", n.id, err)
	}
	return nil
}

// running tells whether the process lives; a frozen one does.
func (n *node) running() bool { return n.proc != nil && !n.proc.ended() }

// start starts the process if it does not run.
func (n *node) start() error {
	if n.running() {
		return nil
	}
	proc, err := startProcess(n.s.dist.brokerCommand(n.configFile()), n.s.logFile(n.id), false)
	if err != nil {
		return fmt.Errorf("kafkatest: start broker %d: %w", n.id, err)
	}
	n.proc, n.frozen = proc, false
	return nil
}

// waitReady waits until this broker itself lists at least want brokers, itself among
// them: it has then caught up with the controller and is not fenced.
func (n *node) waitReady(ctx context.Context, want int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.harness), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return fmt.Errorf("kafkatest: %w", err)
	}
	defer cl.Close()
	for {
		if !n.running() {
			return fmt.Errorf("kafkatest: broker %d ended while it started: %s", n.id, tail(n.s.logFile(n.id)))
		}
		if n.sees(ctx, cl, want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafkatest: broker %d was not ready in time: %s", n.id, tail(n.s.logFile(n.id)))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (n *node) sees(ctx context.Context, cl *kgo.Client, want int) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	kresp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return false
	}
	brokers := kresp.(*kmsg.MetadataResponse).Brokers
	if len(brokers) < want {
		return false
	}
	for _, b := range brokers {
		if int(b.NodeID) == n.id {
			return true
		}
	}
	return false
}

func (n *node) signal(sig syscall.Signal) error {
	if !n.running() {
		return fmt.Errorf("kafkatest: broker %d does not run", n.id)
	}
	if err := n.proc.signal(sig); err != nil {
		return fmt.Errorf("kafkatest: %v to broker %d: %w", sig, n.id, err)
	}
	return nil
}

// stop asks for a clean end and waits for it.
func (n *node) stop() error {
	if err := n.thaw(); err != nil {
		return err
	}
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if !n.proc.wait(stopMax) {
		n.kill()
		return fmt.Errorf("kafkatest: broker %d had not stopped %v after SIGTERM: %s", n.id, stopMax, tail(n.s.logFile(n.id)))
	}
	return nil
}

// kill ends the process at once, frozen or not; no-op if it does not run.
func (n *node) kill() {
	if n.proc != nil {
		n.proc.kill()
	}
	n.frozen = false
}

func (n *node) thaw() error {
	if !n.frozen {
		return nil
	}
	n.frozen = false
	return n.signal(syscall.SIGCONT)
}

// heal undoes faults of the proxies and wakes the process.
func (n *node) heal() {
	for _, p := range []*Proxy{n.clientProxy, n.replicaProxy} {
		if p != nil {
			p.Heal()
		}
	}
	if n.frozen && n.running() {
		// The only error is that the process ended meanwhile; up starts it again.
		_ = n.thaw()
	}
}

// close frees ports and proxies; the process must have ended.
func (n *node) close() {
	for _, p := range []*Proxy{n.clientProxy, n.replicaProxy} {
		if p != nil {
			p.Close()
		}
	}
	for _, p := range n.ports {
		p.release()
	}
	n.ports = nil
}

// ID returns the node id.
func (b *Broker) ID() int32 { return int32(b.n.id) }

// Addr returns the client address the broker advertises.
func (b *Broker) Addr() string { return b.n.clientSeen }

// LogFile returns the path of the broker's log, which all its lives append to.
func (b *Broker) LogFile() string { return b.n.s.logFile(b.n.id) }

// Running tells whether the broker's process lives; a frozen one does.
func (b *Broker) Running() bool { return b.n.running() }

// Start starts the broker if it does not run; WaitReady waits until it takes part.
func (b *Broker) Start() {
	b.c.tb.Helper()
	b.must(b.n.start())
}

// WaitReady waits until the broker has caught up with the controller and takes part.
func (b *Broker) WaitReady() {
	b.c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyMax)
	defer cancel()
	b.must(b.n.waitReady(ctx, 1))
}

// Stop sends SIGTERM, which moves leaders away and writes snapshots, and waits for the
// end of the process.
func (b *Broker) Stop() {
	b.c.tb.Helper()
	b.must(b.n.stop())
}

// Kill sends SIGKILL and waits for the end of the process.
func (b *Broker) Kill() { b.n.kill() }

// Restart stops the broker cleanly, starts it and waits until it takes part.
func (b *Broker) Restart() {
	b.c.tb.Helper()
	b.Stop()
	b.Start()
	b.WaitReady()
}

// Freeze stops the process (SIGSTOP): connections stay open and nothing answers.
// After 3 s the controller takes its leaders away.
func (b *Broker) Freeze() {
	b.c.tb.Helper()
	b.must(b.n.signal(syscall.SIGSTOP))
	b.n.frozen = true
}

// Thaw continues a frozen process (SIGCONT).
func (b *Broker) Thaw() {
	b.c.tb.Helper()
	b.must(b.n.thaw())
}

// Wipe kills the broker and empties its disk; Start brings it back with nothing.
func (b *Broker) Wipe() {
	b.c.tb.Helper()
	b.n.kill()
	b.must(b.n.format())
}

func (b *Broker) must(err error) {
	b.c.tb.Helper()
	if err != nil {
		b.c.tb.Fatal(err)
	}
}
