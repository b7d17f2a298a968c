package kafka

import (
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/internal/kafkatest"
)

// What only a real broker can say, with SHIPPER_REAL_KAFKA=1 (some 10 s): that Kafka's own Java libraries read every
// codec, and that the answers mean what this package takes them to mean.
func TestRealKafka(t *testing.T) {
	if os.Getenv("SHIPPER_REAL_KAFKA") != "1" {
		t.Skip("set SHIPPER_REAL_KAFKA=1 to run it")
	}
	cluster := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
	// The records' times are long past: a broker's first look at what to delete, half a minute after its start, would find them.
	cluster.CreateTopic(testTopic, 1, 1, map[string]string{"retention.ms": "-1"})
	cluster.CreateTopic("as-sent", len(allCodecs), 1, map[string]string{"max.message.bytes": "8000000", "retention.ms": "-1"})
	// Here the broker takes every batch apart and writes it anew.
	cluster.CreateTopic("rewritten", len(allCodecs), 1, map[string]string{"max.message.bytes": "8000000", "compression.type": "uncompressed", "retention.ms": "-1"})
	client := newTestClient(t, ClientConfig{Brokers: cluster.Bootstrap()})

	t.Run("codecs", func(t *testing.T) { realCodecs(t, cluster, client) })
	t.Run("read back", func(t *testing.T) { realReadBack(t, client) })
	t.Run("refusals", func(t *testing.T) { realRefusals(t, client) })
}

func realCodecs(t *testing.T, cluster *kafkatest.Cluster, client *Client) {
	r := testRand(t)
	for _, topic := range []string{"as-sent", "rewritten"} {
		for i, codec := range allCodecs {
			// Several blocks of every format.
			records := append(linesAsRecords(logLines(r, 4_500_000)), randomRecords(r, 50)...)
			s := sealed(t, codec, records)
			id := newID(t, client)
			batch := stamped(s, Stamp{ProducerID: id, ShiftMs: -60_000})
			if o := produceOne(t, client, topic, int32(i), batch); o.Code != 0 || o.BaseOffset != 0 || o.LogAppendTime != -1 {
				t.Fatalf("%s: %d bytes: %+v", codec, len(batch), o)
			}
			if o := produceOne(t, client, topic, int32(i), batch); o.Code != 0 || o.BaseOffset != 0 || o.LogAppendTime != s.MaxTime-60_000 {
				t.Fatalf("%s: as a duplicate: %+v", codec, o)
			}
			checkConsumed(t, consumeOne(t, cluster, topic, int32(i), len(records)), records, id, -60_000)
		}
	}
}

func consumeOne(t *testing.T, cluster *kafkatest.Cluster, topic string, partition int32, n int) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.Bootstrap()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var got []*kgo.Record
	for len(got) < n {
		fetches := cl.PollFetches(testContext(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

func realReadBack(t *testing.T, client *Client) {
	m := topicOf(t, client, "rewritten")
	p := m.at(0)
	id := newID(t, client)
	batch := stamped(sealed(t, Zstd, linesAsRecords(logLines(testRand(t), 5000))), Stamp{ProducerID: id, Epoch: 2})
	o := produceOne(t, client, "rewritten", 0, batch)
	if o.Code != 0 {
		t.Fatalf("%+v", o)
	}
	q := ReadBackQuery{Broker: p.Leader, Topic: m.Name, TopicID: m.ID, CurrentEpoch: p.LeaderEpoch, ProducerID: id, Epoch: 2, BytesMax: 1 << 28}
	if got, err := client.ReadBack(testContext(t), q); err != nil || got.State != Found || got.BaseOffset != o.BaseOffset {
		t.Errorf("%+v, %v; want it at %d", got, err, o.BaseOffset)
	}
	q.TopicID, q.BaseSequence = [16]byte{}, 1
	if got, err := client.ReadBack(testContext(t), q); err != nil || got.State != Absent {
		t.Errorf("never sent: %+v, %v", got, err)
	}
	if end, code, err := client.EndOffset(testContext(t), p.Leader, m.Name, 0, p.LeaderEpoch); end <= o.BaseOffset || code != 0 || err != nil {
		t.Errorf("end offset %d, code %d, %v", end, code, err)
	}
	if _, _, code, err := client.EndOfEpoch(testContext(t), p.Leader, m.Name, 0, p.LeaderEpoch, p.LeaderEpoch+1); code != 75 || err != nil {
		t.Errorf("future leader epoch: code %d, %v", code, err)
	}
}

func realRefusals(t *testing.T, client *Client) {
	m := topicOf(t, client, testTopic)
	leader := m.at(0).Leader
	id := newID(t, client)
	records := linesAsRecords(logLines(testRand(t), 300))
	var r ProduceRequest
	send := func(topicID [16]byte, batch []byte) PartOutcome {
		t.Helper()
		r.Reset()
		r.Add(ProducePart{Topic: testTopic, TopicID: topicID, Batch: batch})
		out, err := client.Produce(leader, &r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	s := sealed(t, LZ4, records)
	damaged := stamped(s, Stamp{ProducerID: id})
	damaged[len(damaged)-1] ^= 1
	noise := sealed(t, LZ4, []testRecord{{time: testTime, value: randomBytes(testRand(t), 2<<20)}})
	stale, staleCode := send(idOf("stale"), stamped(s, Stamp{ProducerID: newID(t, client)})), int16(100)
	if r.GetVersion() < produceVersionByID { // before 4.1 topics go by name, and nothing is wrong
		staleCode = 0
	}
	for name, c := range map[string]struct {
		o    PartOutcome
		code int16
	}{
		"damaged":              {send(m.ID, damaged), 2},
		"too large":            {send(m.ID, stamped(noise, Stamp{ProducerID: id})), 10},
		"gap in the sequences": {send(m.ID, stamped(s, Stamp{ProducerID: id, Epoch: 1, BaseSequence: 5})), 0}, // no state: any sequence goes
		"next gap":             {send(m.ID, stamped(s, Stamp{ProducerID: id, Epoch: 1, BaseSequence: 500})), 45},
		"old epoch":            {send(m.ID, stamped(s, Stamp{ProducerID: id})), 47},
		"negative sequence":    {send(m.ID, stamped(s, Stamp{ProducerID: id, BaseSequence: -1})), 87},
		"stale topic id":       {stale, staleCode},
	} {
		if c.o.Code != c.code || !c.o.Answered || (c.code != 0) != (c.o.BaseOffset == -1) {
			t.Errorf("%s: %+v", name, c.o)
		}
	}
}
