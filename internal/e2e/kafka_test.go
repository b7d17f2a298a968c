package e2e

import (
	"fmt"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// The same on real brokers.

func TestRealKill9(t *testing.T) {
	b, c := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 5_000, Rotation: kafkatest.RotateRename, RotateLines: 9_000, TornWrites: true})
	w.killLoop(4, func(i int) {
		switch i {
		case 0:
			c.Broker(0).Kill()
		case 1:
			c.Broker(0).Start()
			w.cut()
		case 2:
			w.heal()
			c.Broker(0).WaitReady()
			c.Broker(1).Restart()
		case 3:
			for _, p := range w.proxies {
				p.DropNextAnswers(2)
			}
		}
	})
	w.stop()
}

func TestRealKill9TwoBlocksOnePartition(t *testing.T) {
	b, _ := real(t, 1)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 5_000},
		source{name: "even", glob: "app-0[02].log"}, source{name: "odd", glob: "app-0[13].log"})
	w.killLoop(3, w.cutEverySecond)
	w.stop()
}

func TestRealRestartIntoBacklog(t *testing.T) {
	b, _ := real(t, 2)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 400})
	w.cut()
	w.agent.Start()
	w.writer.Write(40_000)
	w.agent.WaitLog("no metadata", 20*time.Second)
	time.Sleep(2 * time.Second)
	w.stop()
	w.heal()
	w.agent.Start()
	w.check()
	w.stop()
}

// killAll kills all brokers, waits, and starts them.
func killAll(c *kafkatest.Cluster, pause time.Duration) {
	for i := range 3 {
		c.Broker(i).Kill()
	}
	time.Sleep(pause)
	for i := range 3 {
		c.Broker(i).Start()
	}
	for i := range 3 {
		c.Broker(i).WaitReady()
	}
}

// freezeTwo freezes two of three brokers and thaws them.
func freezeTwo(c *kafkatest.Cluster, rounds int, frozen, thawed time.Duration) {
	for range rounds {
		c.Broker(1).Freeze()
		c.Broker(2).Freeze()
		time.Sleep(frozen)
		c.Broker(1).Thaw()
		c.Broker(2).Thaw()
		time.Sleep(thawed)
	}
}

// C122, in short: a clean restart, a SIGKILL, and all brokers at once. More of it: TestC122RollingRestart.
func TestC122BrokersRestart(t *testing.T) {
	b, c := real(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 3, Rate: 500})
	w.underLoad(func() {
		c.Broker(0).Restart()
		c.Broker(1).Kill()
		c.Broker(1).Start()
		c.Broker(1).WaitReady()
		killAll(c, time.Second)
	})
	w.stop()
}

// C139, in short: a request gets no answer within its time, or the answer that not all have stored it, since those who would have to are frozen.
func TestC139FrozenOnce(t *testing.T) {
	b, c := real(t, 3)
	b.kafka = "  acks_timeout: 1s\n" // 10 s more are given for the way
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 4, Rate: 1_000})
	w.underLoad(func() {
		freezeTwo(c, 1, 12*time.Second, time.Second)
		w.agent.WaitLog("records in doubt are settled", 30*time.Second)
	})
	w.stop()
}

// TLS with the cluster's own authority, a client certificate, and SCRAM on top.
func TestRealTLSAndSASL(t *testing.T) {
	const password = "pa: $ss#"
	takeTurn(t, realTurns)
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 1, MutualTLS: true, Users: map[string]string{"agent": password}})
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			cert, key := c.ClientCertFiles()
			b := &brokers{bootstrap: c.Bootstrap(), topic: "tls-" + mechanism,
				kafka: fmt.Sprintf("  tls: {enabled: true, ca_file: %s, cert_file: %s, key_file: %s}\n  sasl: {mechanism: %s, username: agent, password: '${SHIPPER_TEST_PASSWORD}'}\n",
					c.CAFile(), cert, key, mechanism)}
			b.read.Client = c.ClientOpts("agent", password)
			c.CreateTopic(b.topic, 1, 1, nil)
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
			w.agent = kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: w.config(w.spoolDir(), w.sources), Env: []string{"SHIPPER_TEST_PASSWORD=" + password}})
			w.writer.Write(3_000)
			w.agent.Start()
			w.check()
			w.stop()
		})
	}
}
