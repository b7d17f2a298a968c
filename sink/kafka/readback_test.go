package kafka

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logOf fills partition 0 with batches of two producers in turn, of 1 MiB each, so that a search takes several fetches.
type logOf struct {
	client      *Client
	ours, other int64
	offsets     []int64 // where each of our batches starts; their sequences are 0, 3, 6 ...
	end         int64
	query       ReadBackQuery // for our batch 0
}

const recordsPerBatch = 3

func fillLog(t *testing.T, client *Client, batches int) *logOf {
	t.Helper()
	r := testRand(t)
	l := &logOf{client: client, ours: newID(t, client), other: newID(t, client)}
	for i := range batches {
		for _, id := range []int64{l.other, l.ours} {
			s := sealed(t, None, []testRecord{{time: testTime, value: randomBytes(r, 500_000)}, {time: testTime, value: randomBytes(r, 400_000)}, {time: testTime}})
			o := produceOne(t, client, testTopic, 0, stamped(s, Stamp{ProducerID: id, BaseSequence: int32(i * recordsPerBatch)}))
			if o.Code != 0 {
				t.Fatalf("batch %d: %+v", i, o)
			}
			if id == l.ours {
				l.offsets = append(l.offsets, o.BaseOffset)
			}
			l.end = o.BaseOffset + recordsPerBatch
		}
	}
	m := topicOf(t, client, testTopic)
	l.query = ReadBackQuery{
		Broker: m.at(0).Leader, Topic: testTopic, TopicID: m.ID, Partition: 0, CurrentEpoch: m.at(0).LeaderEpoch,
		ProducerID: l.ours, BytesMax: 256 << 20,
	}
	return l
}

// search runs a read-back that loses patience early.
func (l *logOf) search(t *testing.T, q ReadBackQuery) ReadBackResult {
	t.Helper()
	s := search{ReadBackQuery: q, c: l.client, at: q.Floor, waitMs: 1, result: ReadBackResult{BaseOffset: -1}}
	if err := s.run(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return s.result
}

func TestReadBack(t *testing.T) {
	cluster := newCluster(t)
	l := fillLog(t, newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()}), 5)
	for name, c := range map[string]struct {
		change func(q *ReadBackQuery)
		want   ReadBackState
		base   int64
		code   int16
		reason string
	}{
		"first":                  {func(q *ReadBackQuery) {}, Found, l.offsets[0], 0, ""},
		"last, several fetches":  {func(q *ReadBackQuery) { q.BaseSequence = 12 }, Found, l.offsets[4], 0, ""},
		"by topic name":          {func(q *ReadBackQuery) { q.BaseSequence = 9; q.TopicID = [16]byte{} }, Found, l.offsets[3], 0, ""},
		"floor at the batch":     {func(q *ReadBackQuery) { q.BaseSequence = 6; q.Floor = l.offsets[2] }, Found, l.offsets[2], 0, ""},
		"floor inside the batch": {func(q *ReadBackQuery) { q.BaseSequence = 6; q.Floor = l.offsets[2] + 1 }, Found, l.offsets[2], 0, ""},
		"floor behind the batch": {func(q *ReadBackQuery) { q.BaseSequence = 6; q.Floor = l.offsets[2] + 3 }, Absent, -1, 0, ""},
		"next sequence":          {func(q *ReadBackQuery) { q.BaseSequence = 15 }, Absent, -1, 0, ""},
		"sequence in a batch":    {func(q *ReadBackQuery) { q.BaseSequence = 13 }, Absent, -1, 0, ""},
		"other epoch":            {func(q *ReadBackQuery) { q.Epoch = 1 }, Absent, -1, 0, ""},
		"id that nobody has":     {func(q *ReadBackQuery) { q.ProducerID = 1 }, Absent, -1, 0, ""},
		"floor at the end":       {func(q *ReadBackQuery) { q.Floor = l.end }, Absent, -1, 0, ""},
		"floor above the end":    {func(q *ReadBackQuery) { q.Floor = l.end + 1 }, Inconclusive, -1, 0, "the log ends at 30, below offset 31"},
		"too many bytes":         {func(q *ReadBackQuery) { q.BaseSequence = 15; q.BytesMax = 5 << 20 }, Inconclusive, -1, 0, "bytes were read, up to offset"},
		"epoch not known":        {func(q *ReadBackQuery) { q.CurrentEpoch = -1 }, Inconclusive, -1, 0, "leader epoch is not known"},
		"epoch ahead":            {func(q *ReadBackQuery) { q.CurrentEpoch++ }, Inconclusive, -1, 75, "does not say where its log ends"},
		"not the leader":         {func(q *ReadBackQuery) { q.Broker = (q.Broker + 1) % 3 }, Inconclusive, -1, 6, "does not say where its log ends"},
	} {
		t.Run(name, func(t *testing.T) {
			q := l.query
			c.change(&q)
			got, err := l.client.ReadBack(testContext(t), q)
			if err != nil {
				t.Fatal(err)
			}
			if got.State != c.want || got.BaseOffset != c.base || got.Code != c.code || !strings.Contains(got.Reason, c.reason) || (got.Reason == "") != (c.want != Inconclusive) {
				t.Errorf("%s: %+v", got.State, got)
			}
			if got.State == Found && got.Count != recordsPerBatch {
				t.Errorf("%d records", got.Count)
			}
		})
	}
}

func TestReadBackBelowTheLogStart(t *testing.T) {
	cluster := newCluster(t)
	l := fillLog(t, newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()}), 2)
	if err := cluster.DeleteRecords(testTopic, 0, l.offsets[0]+3); err != nil {
		t.Fatal(err)
	}
	q := l.query
	got := l.search(t, q)
	if got.State != Inconclusive || got.Code != 1 && !strings.Contains(got.Reason, "the log starts at") {
		t.Errorf("floor below: %+v", got)
	}
	q.Floor = l.offsets[0] + 3
	if got := l.search(t, q); got.State != Absent {
		t.Errorf("floor at the log start: %+v", got)
	}
}

func TestReadBackWithoutPermission(t *testing.T) {
	write := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: testTopic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true}
	cluster := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "writer", "secret", write))
	client := newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs(), SASL: SASL{Mechanism: "plain", User: "writer", Password: "secret"}})
	l := fillLog(t, client, 1)
	if got := l.search(t, l.query); got.State != Inconclusive || got.Code != 29 || !strings.Contains(got.Reason, "refuses to be read") {
		t.Errorf("%+v", got)
	}
}

// What is appended but not replicated is not handed out, and is there all the same: not absent.
func TestReadBackStopsAtTheHighWatermark(t *testing.T) {
	cluster := newCluster(t)
	l := fillLog(t, newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()}), 1)
	cluster.ControlKey(23, func(req kmsg.Request) (kmsg.Response, error, bool) {
		r := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.Partition, p.LeaderEpoch, p.EndOffset = 0, r.Topics[0].Partitions[0].LeaderEpoch, l.end+3
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic, topic.Partitions = testTopic, append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	q := l.query
	q.BaseSequence = 99
	got := l.search(t, q)
	if got.State != Inconclusive || !strings.Contains(got.Reason, "the log goes to 9, but only up to 6 is replicated") {
		t.Errorf("%+v", got)
	}
}

func TestReadBackOfUnreadableLog(t *testing.T) {
	cluster := newCluster(t)
	l := fillLog(t, newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()}), 1)
	cluster.ControlKey(1, func(req kmsg.Request) (kmsg.Response, error, bool) {
		r := req.(*kmsg.FetchRequest)
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.RecordBatches = l.end, make([]byte, 200) // format 0
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID, topic.Partitions = testTopic, l.query.TopicID, append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if got := l.search(t, l.query); got.State != Inconclusive || !strings.Contains(got.Reason, "format 0 instead of 2") {
		t.Errorf("%+v", got)
	}
}

func TestReadBackErrorIsOfTheTransport(t *testing.T) {
	cluster := newCluster(t)
	l := fillLog(t, newTestClient(t, ClientConfig{Brokers: cluster.ListenAddrs()}), 1)
	cluster.ControlKey(1, func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("hang up"), true })
	if got, err := l.client.ReadBack(testContext(t), l.query); err == nil || !strings.Contains(err.Error(), "read back app-logs/0 from broker") || got.State != Inconclusive {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestReadBackStateNames(t *testing.T) {
	for s, want := range map[ReadBackState]string{Found: "found", Absent: "absent", Inconclusive: "inconclusive"} {
		if s.String() != want {
			t.Errorf("%d is %q", s, s.String())
		}
	}
}
