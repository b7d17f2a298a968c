package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"
)

const testTopic = "app-logs"

func newCluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(5, testTopic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newTestClient(t *testing.T, cfg ClientConfig) *Client {
	t.Helper()
	cfg.ClientID = "shipper-test"
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// topicOf asks for one topic that exists.
func topicOf(t *testing.T, c *Client, topic string) TopicMeta {
	t.Helper()
	m, err := c.Metadata(testContext(t), []string{topic})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Topics) != 1 || m.Topics[0].Code != 0 {
		t.Fatalf("metadata: %+v", m)
	}
	return m.Topics[0]
}

func (t TopicMeta) at(partition int32) PartitionMeta {
	for _, p := range t.Partitions {
		if p.Partition == partition {
			return p
		}
	}
	return PartitionMeta{Partition: partition, Leader: -1, LeaderEpoch: -1}
}

func newID(t *testing.T, c *Client) int64 {
	t.Helper()
	id, epoch, code, err := c.InitProducerID(testContext(t))
	if err != nil || code != 0 || epoch != 0 || id < 0 {
		t.Fatalf("producer id %d, epoch %d, code %d, %v", id, epoch, code, err)
	}
	return id
}

func sealed(t testing.TB, codec Codec, records []testRecord) *Sealed {
	var b Builder
	buildBatch(&b, records)
	s := new(Sealed)
	mustCompressor(t, codec, 0).Seal(&b, nil, s)
	return s
}

// produceOne sends one batch to the leader and returns its outcome.
func produceOne(t *testing.T, c *Client, topic string, partition int32, batch []byte) PartOutcome {
	t.Helper()
	m := topicOf(t, c, topic)
	var r ProduceRequest
	r.Add(ProducePart{Topic: topic, TopicID: m.ID, Partition: partition, Batch: batch})
	out, err := c.Produce(m.at(partition).Leader, &r, nil)
	if err != nil || len(out) != 1 || !out[0].Answered || !r.Written() {
		t.Fatalf("produce: %+v, %v, written %v", out, err, r.Written())
	}
	return out[0]
}

func TestProduceAndConsumeBack(t *testing.T) {
	r := testRand(t)
	for name, opts := range map[string][]kfake.Opt{
		"newest": nil, // by topic id
		"3.0":    {kfake.MaxVersions(kversion.V3_0_0())},
		"2.1":    {kfake.MaxVersions(kversion.V2_1_0())}, // not flexible, no topic ids
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, opts...)
			client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
			m := topicOf(t, client, testTopic)

			// One request per leader, with one partition per codec, each with a producer id of its own.
			const shiftMs = -77_000
			want := map[int32][]testRecord{}
			ids := map[int32]int64{}
			requests := map[int32]*ProduceRequest{}
			for i, codec := range allCodecs {
				p := m.at(int32(i))
				records := append(linesAsRecords(logLines(r, 3000)), randomRecords(r, 30)...)
				ids[p.Partition] = newID(t, client)
				st := Stamp{ProducerID: ids[p.Partition], BaseSequence: 0}
				if codec == LZ4 {
					st.ShiftMs = shiftMs
				}
				want[p.Partition] = records
				if requests[p.Leader] == nil {
					requests[p.Leader] = new(ProduceRequest)
				}
				requests[p.Leader].Add(ProducePart{Topic: testTopic, TopicID: m.ID, Partition: p.Partition, Batch: stamped(sealed(t, codec, records), st)})
			}
			for leader, req := range requests {
				for range 2 { // the second time it is a duplicate
					out, err := client.Produce(leader, req, nil)
					if err != nil || len(out) != req.Len() {
						t.Fatalf("%+v, %v", out, err)
					}
					for _, o := range out {
						if !o.Answered || o.Code != 0 || o.BaseOffset != 0 || VerdictOf(o.Code) != Acked {
							t.Fatalf("outcome %+v", o)
						}
					}
				}
			}
			got := consume(t, cluster, testTopic, want)
			for partition, records := range want {
				shift := int64(0)
				if allCodecs[partition] == LZ4 {
					shift = shiftMs
				}
				checkConsumed(t, got[partition], records, ids[partition], shift)
			}
		})
	}
}

// consume reads as many records of each partition as are wanted, with kgo's own consumer and decoders.
func consume(t *testing.T, cluster *kfake.Cluster, topic string, want map[int32][]testRecord) map[int32][]*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	missing := 0
	for _, records := range want {
		missing += len(records)
	}
	got := map[int32][]*kgo.Record{}
	for missing > 0 {
		fetches := cl.PollFetches(testContext(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], r)
			missing--
		})
	}
	return got
}

func checkConsumed(t *testing.T, got []*kgo.Record, want []testRecord, id, shiftMs int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g.Offset != int64(i) || g.ProducerID != id || g.Timestamp.UnixMilli() != w.time+shiftMs || !bytes.Equal(g.Value, w.value) ||
			!bytes.Equal(g.Key, w.key) || (g.Key != nil) != w.hasKey || len(g.Headers) != 0 {
			t.Fatalf("record %d of id %d: %+v, want %+v", i, id, g, w)
		}
	}
}

func TestMetadata(t *testing.T) {
	cluster := newCluster(t, kfake.ClusterID("a-cluster"))
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	m, err := client.Metadata(testContext(t), []string{testTopic, "absent"})
	if err != nil {
		t.Fatal(err)
	}
	if m.ClusterID != "a-cluster" || len(m.Topics) != 2 {
		t.Fatalf("%+v", m)
	}
	for _, topic := range m.Topics {
		if topic.Name == "absent" {
			if topic.Code != 3 || len(topic.Partitions) != 0 || topic.ID != [16]byte{} {
				t.Errorf("absent topic: %+v", topic)
			}
			continue
		}
		info := cluster.TopicInfo(testTopic)
		if topic.Name != testTopic || topic.ID != info.TopicID || topic.Code != 0 || len(topic.Partitions) != 5 {
			t.Errorf("%+v, want id %x", topic, info.TopicID)
		}
		for _, p := range topic.Partitions {
			if want := cluster.PartitionInfo(testTopic, p.Partition); p.Leader != want.Leader || p.LeaderEpoch != want.Epoch || p.Code != 0 {
				t.Errorf("%+v, want %+v", p, want)
			}
		}
	}
	if m, err = client.Metadata(testContext(t), nil); err != nil || len(m.Topics) != 0 || m.ClusterID != "a-cluster" {
		t.Errorf("without topics: %+v, %v", m, err)
	}
}

func TestMetadataAutoCreates(t *testing.T) {
	cluster := newCluster(t, kfake.AllowAutoTopicCreation())
	timid := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	if m, err := timid.Metadata(testContext(t), []string{"fresh"}); err != nil || m.Topics[0].Code != 3 {
		t.Fatalf("created without being asked to: %+v, %v", m, err)
	}
	bold := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs(), AutoCreateTopics: true})
	if m, err := bold.Metadata(testContext(t), []string{"fresh"}); err != nil || m.Topics[0].Code != 0 {
		t.Fatalf("not created: %+v, %v", m, err)
	}
}

func TestInitProducerIDIsFresh(t *testing.T) {
	cluster := newCluster(t)
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	seen := map[int64]bool{}
	for range 20 {
		id := newID(t, client)
		if seen[id] {
			t.Fatalf("id %d came twice", id)
		}
		seen[id] = true
	}
}

func TestEndOfEpochAndEndOffset(t *testing.T) {
	cluster := newCluster(t)
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	s := sealed(t, None, randomRecords(testRand(t), 7))
	produceOne(t, client, testTopic, 2, stamped(s, Stamp{ProducerID: newID(t, client)}))
	p := topicOf(t, client, testTopic).at(2)
	ctx := testContext(t)

	if end, epoch, code, err := client.EndOfEpoch(ctx, p.Leader, testTopic, 2, p.LeaderEpoch, p.LeaderEpoch); end != 7 || epoch != p.LeaderEpoch || code != 0 || err != nil {
		t.Errorf("end %d of epoch %d, code %d, %v", end, epoch, code, err)
	}
	if _, _, code, err := client.EndOfEpoch(ctx, p.Leader, testTopic, 2, p.LeaderEpoch, p.LeaderEpoch+1); code != 75 || err != nil {
		t.Errorf("future leader epoch: code %d, %v", code, err)
	}
	if end, code, err := client.EndOffset(ctx, p.Leader, testTopic, 2, p.LeaderEpoch); end != 7 || code != 0 || err != nil {
		t.Errorf("end offset %d, code %d, %v", end, code, err)
	}
	if _, code, err := client.EndOffset(ctx, p.Leader, "absent", 2, -1); code != 3 || err != nil {
		t.Errorf("absent topic: code %d, %v", code, err)
	}
	if err := cluster.MoveTopicPartition(testTopic, 2, (p.Leader+1)%3); err != nil {
		t.Fatal(err)
	}
	if _, _, code, err := client.EndOfEpoch(ctx, p.Leader, testTopic, 2, p.LeaderEpoch, p.LeaderEpoch); code != 6 || err != nil {
		t.Errorf("old leader: code %d, %v", code, err)
	}
	moved := topicOf(t, client, testTopic).at(2)
	if _, code, err := client.EndOffset(ctx, moved.Leader, testTopic, 2, p.LeaderEpoch); code != 74 || err != nil {
		t.Errorf("old leader epoch: code %d, %v", code, err)
	}
}

func TestProduceToTheWrongLeader(t *testing.T) {
	cluster := newCluster(t)
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	m := topicOf(t, client, testTopic)
	leader := m.at(0).Leader
	var r ProduceRequest
	r.Add(ProducePart{Topic: testTopic, TopicID: m.ID, Batch: stamped(sealed(t, None, randomRecords(testRand(t), 1)), Stamp{})})
	out, err := client.Produce((leader+1)%3, &r, nil)
	if err != nil || out[0].Code != 6 || out[0].LeaderHint != leader || out[0].LeaderEpochHint != m.at(0).LeaderEpoch {
		t.Errorf("%+v, %v; leader is %d", out, err, leader)
	}
	if VerdictOf(out[0].Code) != RetryRoute {
		t.Errorf("verdict %s", VerdictOf(out[0].Code))
	}
}

func TestWrittenTellsWhatMayHaveLeft(t *testing.T) {
	cluster := newCluster(t)
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	m := topicOf(t, client, testTopic)
	leader := m.at(0).Leader
	batch := stamped(sealed(t, None, randomRecords(testRand(t), 1)), Stamp{ProducerID: newID(t, client)})
	fill := func(r *ProduceRequest) *ProduceRequest {
		r.Reset()
		r.Add(ProducePart{Topic: testTopic, TopicID: m.ID, Batch: batch})
		return r
	}
	var r ProduceRequest

	// The broker takes the bytes and hangs up.
	cluster.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("hang up"), true })
	out, err := client.Produce(leader, fill(&r), nil)
	if err == nil || len(out) != 0 || !r.Written() {
		t.Fatalf("hang up: %+v, %v, written %v", out, err, r.Written())
	}
	if out, err = client.Produce(leader, &r, nil); err != nil || out[0].Code != 0 {
		t.Fatalf("sent again as it was: %+v, %v", out, err)
	}

	// A broker that does not exist.
	if _, err = client.Produce(99, fill(&r), nil); err == nil || r.Written() || !strings.Contains(err.Error(), "broker 99") {
		t.Errorf("unknown broker: %v, written %v", err, r.Written())
	}

	// A broker that is down, by a client without connections.
	second := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()})
	topicOf(t, second, testTopic)
	cluster.Close()
	if _, err = second.Produce(leader, fill(&r), nil); err == nil || r.Written() {
		t.Errorf("down: %v, written %v", err, r.Written())
	}
}

// faultyConn fails the first write of a produce request before a byte of it has left.
type faultyConn struct {
	net.Conn
	fail   *atomic.Bool
	writes *atomic.Int32
}

func (c faultyConn) Write(p []byte) (int, error) {
	const keyAt = 4
	if len(p) > keyAt+2 && binary.BigEndian.Uint16(p[keyAt:]) == produceKey {
		c.writes.Add(1)
		if c.fail.CompareAndSwap(true, false) {
			return 0, errors.New("injected: nothing left")
		}
	}
	return c.Conn.Write(p)
}

// kgo writes once more on a new connection if no byte left: the second AppendTo must do.
func TestProduceIsWrittenAgainIfNothingLeft(t *testing.T) {
	cluster := newCluster(t)
	var fail atomic.Bool
	var writes atomic.Int32
	client := newTestClient(t, ClientConfig{
		Brokers: cluster.ListenAddrs(),
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return faultyConn{conn, &fail, &writes}, err
		},
	})
	records := randomRecords(testRand(t), 3)
	id := newID(t, client)
	fail.Store(true)
	if o := produceOne(t, client, testTopic, 0, stamped(sealed(t, Zstd, records), Stamp{ProducerID: id})); o.Code != 0 || o.BaseOffset != 0 {
		t.Fatalf("%+v", o)
	}
	if n := writes.Load(); n != 2 {
		t.Fatalf("%d writes", n)
	}
	got := consume(t, cluster, testTopic, map[int32][]testRecord{0: records})
	checkConsumed(t, got[0], records, id, 0)
}

// Nothing but Close ends a call whose bytes have left.
func TestCloseEndsProduce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, testTopic))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := NewClient(ClientConfig{Brokers: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	m := topicOf(t, client, testTopic)
	arrived, release := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
		close(arrived)
		cluster.SleepControl(func() { <-release })
		return nil, errors.New("hang up"), true
	})
	var r ProduceRequest
	r.Add(ProducePart{Topic: testTopic, TopicID: m.ID, Batch: stamped(sealed(t, None, randomRecords(testRand(t), 1)), Stamp{})})
	done := make(chan error)
	go func() {
		_, err := client.Produce(m.at(0).Leader, &r, nil)
		done <- err
	}()
	<-arrived
	select {
	case err := <-done:
		t.Fatalf("ended by itself: %v", err)
	default:
	}
	client.Close()
	if err := <-done; err == nil || !r.Written() {
		t.Errorf("%v, written %v", err, r.Written())
	}
	close(release)
}

func TestNewClientRefusesNonsense(t *testing.T) {
	brokers := []string{"127.0.0.1:9092"}
	for want, cfg := range map[string]ClientConfig{
		"no Kafka brokers":              {},
		"unknown SASL mechanism":        {Brokers: brokers, SASL: SASL{Mechanism: "gssapi", User: "u", Password: "p"}},
		"needs a user":                  {Brokers: brokers, SASL: SASL{Mechanism: "plain", User: "u"}},
		"configure the Kafka client: ":  {Brokers: []string{"127.0.0.1:port"}},
		"plain\" \"scram-sha-256\" \"s": {Brokers: brokers, SASL: SASL{Mechanism: "PLAIN", User: "u", Password: "p"}},
	} {
		if c, err := NewClient(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v, %v", want, c, err)
		}
	}
}

func TestKgoLogIsDebug(t *testing.T) {
	cluster := newCluster(t)
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		var log bytes.Buffer
		client, err := NewClient(ClientConfig{
			Brokers: []string{cluster.ListenAddrs()[0]},
			Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})),
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, fmt.Errorf("injected: no way")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Metadata(testContext(t), nil)
		client.Close()
		if err == nil || !strings.Contains(err.Error(), "no way") {
			t.Errorf("%s: %v", level, err)
		}
		if got := strings.Contains(log.String(), "level=DEBUG msg=\"kgo: "); got != want {
			t.Errorf("%s: logged %q", level, log.String())
		}
	}
}
