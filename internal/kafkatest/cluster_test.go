package kafkatest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// topicClient is a producer to partition 0 of a topic.
func topicClient(t *testing.T, c *Cluster, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return client(t, c.Bootstrap(), append([]kgo.Opt{kgo.DefaultProduceTopic(topic)}, opts...)...)
}

// expect fails the test unless partition order of a topic is what want says.
func expect(t *testing.T, c *Cluster, topic, want string) {
	t.Helper()
	recs, _ := ReadTopic(t, c.DirectBootstrap(), topic, ReadOptions{})
	if got := values(recs); got != want {
		t.Errorf("%s holds %q, want %q", topic, got, want)
	}
}

// The one shared cluster: each step leaves it healthy for the next.
func TestCluster(t *testing.T) {
	Shared(t) // skips all steps at once if it must
	for _, step := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"admin", testAdmin},
		{"leaders", testLeaders},
		{"proxies", testProxies},
		{"replicas", testReplicaProxy},
		{"unclean", testUnclean},
		{"wipe", testWipe},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, Shared(t)) })
	}
}

func testAdmin(t *testing.T, c *Cluster) {
	c.CreateTopic("admin", 2, 3, map[string]string{"min.insync.replicas": "2"})
	for p := range int32(2) {
		if isr := c.InSync("admin", p); len(isr) != 3 {
			t.Errorf("partition %d has in sync %v", p, isr)
		}
	}
	if got := c.LeaderEpoch("admin", 0); got < 0 {
		t.Errorf("leader epoch %d", got)
	}
	c.GrowPartitions("admin", 4)
	if got := len(HighWatermarks(t, c.Bootstrap(), "admin", ReadOptions{})); got != 4 {
		t.Errorf("%d partitions, want 4", got)
	}
	cl := topicClient(t, c, "admin", kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce(t, cl, "a")
	c.SetTopicConfig("admin", "max.message.bytes", "200")
	err := cl.ProduceSync(context.Background(), kgo.StringRecord(strings.Repeat("x", 300))).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("300 bytes into a topic of 200: %v", err)
	}
	c.SetTopicConfig("admin", "max.message.bytes", "")
	produce(t, cl, strings.Repeat("x", 300))
	c.SetBrokerConfig(-1, "message.max.bytes", "150")
	c.SetBrokerConfig(1, "log.cleaner.threads", "2")
	c.SetBrokerConfig(-1, "message.max.bytes", "")
	id := c.TopicID("admin")
	cl.Close()
	c.DeleteTopic("admin")
	c.CreateTopicOn("admin", [][]int32{{2, 1}}, nil)
	if c.TopicID("admin") == id || c.Leader("admin", 0) != 2 {
		t.Errorf("recreated topic: same id %v, leader %d", c.TopicID("admin") == id, c.Leader("admin", 0))
	}
	expect(t, c, "admin", "")
}

func testLeaders(t *testing.T, c *Cluster) {
	c.CreateTopicOn("leaders", [][]int32{{0, 1}}, nil)
	cl := topicClient(t, c, "leaders")
	produce(t, cl, "a")
	c.MoveLeader("leaders", 0, 1)
	produce(t, cl, "b")
	c.MoveLeader("leaders", 0, 2) // a new replica, in place of the last one
	produce(t, cl, "c")
	c.Reassign("leaders", 0, []int32{1, 2, 0})
	c.MoveLeader("leaders", 0, 1)

	c.MoveLeader("leaders", 0, 0)
	c.Broker(0).Freeze()
	produce(t, cl, "d")
	if got := c.Leader("leaders", 0); got == 0 {
		t.Error("a frozen broker leads")
	}
	c.Broker(0).Thaw()
	c.Broker(0).WaitReady()

	leader := int(c.Leader("leaders", 0))
	c.Broker(leader).Restart()
	produce(t, cl, "e")
	recs, heads := ReadTopic(t, c.DirectBootstrap(), "leaders", ReadOptions{})
	if got := slices.Compact(strings.Fields(values(recs))); !slices.Equal(got, strings.Fields("a b c d e")) {
		t.Errorf("log holds %v", got)
	}
	if epoch := heads[len(heads)-1].LeaderEpoch; epoch < 5 {
		t.Errorf("leader epoch %d after five moves", epoch)
	}
}

func testProxies(t *testing.T, c *Cluster) {
	c.CreateTopicOn("proxies", [][]int32{{0}, {1}}, nil)
	p := c.Proxy(0)
	plain := topicClient(t, c, "proxies")
	produce(t, plain, "a")
	within(t, "dropping", func() <-chan struct{} {
		done := p.DropNextAnswers(1)
		produce(t, plain, "b")
		return done
	}())
	late := p.LateNextRequests(1, 300*time.Millisecond)
	produce(t, plain, "c")
	within(t, "the late request", late)
	expect(t, c, "proxies", "a b b c c")

	// The same with a producer id: Kafka sees the doubles, even the late one.
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.DefaultProduceTopic("proxies"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	produce(t, cl, "d")
	dropped := p.DropNextAnswers(1)
	produce(t, cl, "e")
	within(t, "dropping", dropped)
	late = p.LateNextRequests(1, 300*time.Millisecond)
	produce(t, cl, "f")
	within(t, "the late request", late)
	expect(t, c, "proxies", "a b b c c d e f")

	p.Cut()
	sent := make(chan error, 1)
	cl.Produce(context.Background(), kgo.StringRecord("g"), func(_ *kgo.Record, err error) { sent <- err })
	other := &kgo.Record{Partition: 1, Value: []byte("h")} // another broker's
	if err := cl.ProduceSync(context.Background(), other).FirstErr(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-sent:
		t.Errorf("produced through a cut proxy: %v", err)
	default:
	}
	p.Heal()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	expect(t, c, "proxies", "a b b c c d e f g h")
}

// A leader its followers cannot reach appends but does not commit.
func testReplicaProxy(t *testing.T, c *Cluster) {
	c.CreateTopicOn("replicas", [][]int32{{0, 1, 2}}, map[string]string{"min.insync.replicas": "2"})
	cl := topicClient(t, c, "replicas")
	produce(t, cl, "a")
	c.ReplicaProxy(0).Cut()
	impatient := topicClient(t, c, "replicas", kgo.ProduceRequestTimeout(time.Second), kgo.RecordRetries(0))
	err := impatient.ProduceSync(context.Background(), kgo.StringRecord("b")).FirstErr()
	if !errors.Is(err, kgo.ErrRecordRetries) {
		t.Errorf("acks of all without followers: %v, want that it failed all tries", err)
	}
	expect(t, c, "replicas", "a")
	c.ReplicaProxy(0).Heal()
	produce(t, cl, "c")
	expect(t, c, "replicas", "a b c")
}

// An unclean election loses what the stale replica does not hold.
func testUnclean(t *testing.T, c *Cluster) {
	c.CreateTopicOn("unclean", [][]int32{{0, 1}}, nil)
	cl := topicClient(t, c, "unclean", kgo.RequiredAcks(kgo.AllISRAcks()))
	produce(t, cl, "a")
	c.Broker(1).Kill()
	if c.Broker(1).Running() {
		t.Error("broker 1 outlived Kill")
	}
	c.WaitPartition("unclean", 0, "without broker 1", func(_ int32, isr []int32) bool { return !slices.Contains(isr, 1) })
	produce(t, cl, "b")
	c.Broker(0).Kill()
	c.Broker(1).Start()
	c.Broker(1).WaitReady()
	c.ElectUnclean("unclean", 0)
	if got := c.Leader("unclean", 0); got != 1 {
		t.Errorf("leader %d, want 1", got)
	}
	produce(t, cl, "c")
	expect(t, c, "unclean", "a c")
}

func testWipe(t *testing.T, c *Cluster) {
	id := c.ClusterID()
	c.CreateTopicOn("wipe", [][]int32{{0, 1, 2}}, nil)
	cl := topicClient(t, c, "wipe")
	produce(t, cl, "a")
	cl.Close()
	c.Broker(1).Wipe() // comes back empty and copies what it lost
	c.Broker(1).Start()
	c.Broker(1).WaitReady()
	c.WaitPartition("wipe", 0, "all in sync again", func(_ int32, isr []int32) bool { return len(isr) == 3 })
	c.MoveLeader("wipe", 0, 1)
	expect(t, c, "wipe", "a")

	c.WipeAll(true)
	if c.ClusterID() != id {
		t.Error("cluster id changed")
	}
	c.do("look for a topic after WipeAll", c.everywhere("wipe", isUnknown))
	c.CreateTopic("wipe", 1, 3, nil)
	expect(t, c, "wipe", "")
}

// TLS, users and access rules, on a cluster of one broker.
func TestSecurity(t *testing.T) {
	c := Start(t, Options{Brokers: 1, MutualTLS: true, Users: map[string]string{"ann": "secret"}, ACLs: true, Proxy: true})
	c.CreateTopic("t", 1, 1, nil)
	c.AddUser("bob", "hidden")
	secure := func(user, password string) *kgo.Client {
		return client(t, c.Bootstrap(), append(c.ClientOpts(user, password), kgo.RecordRetries(1))...)
	}
	try := func(cl *kgo.Client) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return cl.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr()
	}
	ann := secure("ann", "secret")
	if err := try(ann); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without a grant: %v", err)
	}
	c.Grant("ann", kmsg.ACLResourceTypeTopic, "t", kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe)
	if err := try(ann); err != nil {
		t.Errorf("with a grant: %v", err)
	}
	if err := try(secure("bob", "hidden")); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("another user: %v", err)
	}
	if err := try(secure("bob", "wrong")); err == nil || errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("wrong password: %v", err)
	}
	viaPlain := client(t, c.Bootstrap(), kgo.DialTLSConfig(c.TLSConfig()), kgo.SASL(plain.Auth{User: "ann", Pass: "secret"}.AsMechanism()))
	if err := try(viaPlain); err != nil {
		t.Errorf("with PLAIN: %v", err)
	}
	if err := dialWithoutCertificate(c); err == nil || !strings.Contains(err.Error(), "remote error: tls") {
		t.Errorf("without a client certificate: %v", err)
	}
	c.Revoke("ann", kmsg.ACLResourceTypeTopic, "t")
	if err := try(ann); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("after Revoke: %v", err)
	}
	expect(t, c, "t", "a a")
}

// dialWithoutCertificate returns how a broker that wants a certificate ends a connection.
func dialWithoutCertificate(c *Cluster) error {
	conf := c.TLSConfig()
	conf.Certificates = nil
	conn, err := tls.Dial("tcp", c.Bootstrap()[0], conf)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the client learns of it only now
	return err
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Brokers: -1}, {Brokers: brokersMax + 1}, {Version: "4"}, {Version: "x.y.z"}, {ACLs: true}} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	t.Setenv(envVersion, "3.9.1")
	o, err := Options{MutualTLS: true, ACLs: true}.withDefaults()
	if err != nil || o.Version != "3.9.1" || o.Brokers != 3 || !o.TLS {
		t.Errorf("%+v, error %v", o, err)
	}
	if got := fmt.Sprintln(o.protocol(), Options{Users: map[string]string{"a": "b"}}.protocol()); got != "SSL SASL_PLAINTEXT\n" {
		t.Errorf("protocols %s", got)
	}
}
