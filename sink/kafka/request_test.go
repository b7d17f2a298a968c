package kafka

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

var (
	_ kmsg.Request        = (*ProduceRequest)(nil)
	_ kmsg.TimeoutRequest = (*ProduceRequest)(nil)
)

func idOf(topic string) (id [16]byte) {
	copy(id[:], "id of "+topic)
	return id
}

// asKmsg builds the same request with the generated encoder.
func asKmsg(parts []ProducePart, timeoutMs int32) *kmsg.ProduceRequest {
	k := kmsg.NewPtrProduceRequest()
	k.Acks, k.TimeoutMillis = -1, timeoutMs
	for _, p := range parts {
		i := slices.IndexFunc(k.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == p.Topic })
		if i < 0 {
			i = len(k.Topics)
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.Topic, p.TopicID
			k.Topics = append(k.Topics, t)
		}
		kp := kmsg.NewProduceRequestTopicPartition()
		kp.Partition, kp.Records = p.Partition, p.Batch
		k.Topics[i].Partitions = append(k.Topics[i].Partitions, kp)
	}
	return k
}

// drawParts draws parts of up to four topics, each partition once, in any order.
func drawParts(t *rapid.T) []ProducePart {
	keys := rapid.SliceOfNDistinct(rapid.IntRange(0, 799), 0, 40, rapid.ID[int]).Draw(t, "partitions")
	topics := []string{"a", "app-logs", string(bytes.Repeat([]byte("long"), 50)), "_é"}
	var parts []ProducePart
	for _, k := range keys {
		topic := topics[k%4]
		size := rapid.SampledFrom([]int{0, 61, 126, 127, 128, 16383, 16384, 20000}).Draw(t, "bytes")
		parts = append(parts, ProducePart{
			Topic: topic, TopicID: idOf(topic), Partition: int32(k / 4),
			Batch: bytes.Repeat([]byte{byte(k)}, size),
		})
	}
	return parts
}

func TestAppendToIsWhatKmsgWrites(t *testing.T) {
	var r ProduceRequest // reused, as a sender does
	rapid.Check(t, func(t *rapid.T) {
		parts := drawParts(t)
		r.Reset()
		r.TimeoutMs = rapid.SampledFrom([]int32{0, 5000}).Draw(t, "timeout")
		for _, p := range parts {
			r.Add(p)
		}
		if r.Len() != len(parts) || r.Written() {
			t.Fatalf("%d parts, written %v", r.Len(), r.Written())
		}
		want := asKmsg(parts, max(r.TimeoutMs, ProduceTimeoutMs*(1-min(r.TimeoutMs, 1))))
		for version := int16(3); version <= produceVersionByID; version++ {
			r.SetVersion(version)
			want.SetVersion(version)
			if r.GetVersion() != version || r.IsFlexible() != want.IsFlexible() || r.Key() != want.Key() || r.Timeout() != want.Timeout() {
				t.Fatalf("v%d: version %d, flexible %v, key %d, timeout %d", version, r.GetVersion(), r.IsFlexible(), r.Key(), r.Timeout())
			}
			prefix := []byte("header")
			got := r.AppendTo(slices.Clone(prefix))
			if !bytes.Equal(got, want.AppendTo(prefix)) {
				t.Fatalf("v%d: %d parts:\n got %.200x\nwant %.200x", version, len(parts), got, want.AppendTo(prefix))
			}
			if n := len(got) - len(prefix); n > r.Bytes() {
				t.Fatalf("v%d: %d bytes, Bytes says at most %d", version, n, r.Bytes())
			}
			if again := r.AppendTo(slices.Clone(prefix)); !bytes.Equal(again, got) {
				t.Fatalf("v%d: the second AppendTo wrote something else", version)
			}
			if !r.Written() {
				t.Fatalf("v%d: not written", version)
			}
			if resp := r.ResponseKind(); resp.GetVersion() != version || resp.Key() != 0 {
				t.Fatalf("v%d: response of version %d, key %d", version, resp.GetVersion(), resp.Key())
			}
		}
	})
}

func TestMaxVersionNeedsAllTopicIDs(t *testing.T) {
	var r ProduceRequest
	if v := r.MaxVersion(); v != 13 {
		t.Errorf("empty: %d", v)
	}
	r.Add(ProducePart{Topic: "a", TopicID: idOf("a")})
	if v := r.MaxVersion(); v != 13 {
		t.Errorf("all ids known: %d", v)
	}
	r.Add(ProducePart{Topic: "b"})
	if v := r.MaxVersion(); v != 12 {
		t.Errorf("one id unknown: %d", v)
	}
	r.Reset()
	if v := r.MaxVersion(); v != 13 || r.Len() != 0 || r.Written() {
		t.Errorf("after Reset: version %d, %d parts, written %v", v, r.Len(), r.Written())
	}
}

// Brokers answer once for a partition that is named twice and drop one of the batches.
func TestAddPanicsOnASecondBatchForAPartition(t *testing.T) {
	for name, second := range map[string]ProducePart{
		"same":                        {Topic: "a", TopicID: idOf("a"), Partition: 7},
		"recreated topic":             {Topic: "a", TopicID: idOf("other"), Partition: 7},
		"id not known":                {Topic: "a", Partition: 7},
		"other name for the same id":  {Topic: "b", TopicID: idOf("a"), Partition: 7},
		"behind another topic's part": {Topic: "c", TopicID: idOf("c"), Partition: 1},
	} {
		var r ProduceRequest
		r.Add(ProducePart{Topic: "a", TopicID: idOf("a"), Partition: 7})
		r.Add(ProducePart{Topic: "c", TopicID: idOf("c"), Partition: 1})
		r.Add(ProducePart{Topic: "a", TopicID: idOf("a"), Partition: 8})
		mustPanic(t, "BUG: partition "+fmt.Sprint(second.Partition)+" of topic "+second.Topic+" is in the produce request twice", func() {
			r.Add(second)
			t.Log(name)
		})
	}
}

// One name with two ids: each part keeps the id it was given, so that a broker can refuse the old one.
func TestTwoIDsOfOneName(t *testing.T) {
	var r ProduceRequest
	parts := []ProducePart{{"a", idOf("old"), 1, nil}, {"a", idOf("new"), 2, nil}, {"a", idOf("old"), 3, nil}, {"b", idOf("b"), 1, nil}}
	for _, p := range parts {
		r.Add(p)
	}
	for _, version := range []int16{12, 13} {
		r.SetVersion(version)
		k := kmsg.NewPtrProduceRequest()
		k.SetVersion(version)
		if err := k.ReadFrom(r.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, topic := range k.Topics {
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprintf("%s %s %d", topic.Topic, topic.TopicID, p.Partition))
			}
		}
		for _, i := range []int{0, 2, 1, 3} {
			name, id := parts[i].Topic, parts[i].TopicID
			if version == 13 {
				name = ""
			} else {
				id = [16]byte{}
			}
			want = append(want, fmt.Sprintf("%s %s %d", name, id, parts[i].Partition))
		}
		if !slices.Equal(got, want) {
			t.Errorf("v%d: %q, want %q", version, got, want)
		}
	}
}

func TestProduceRequestAllocatesNothing(t *testing.T) {
	var r ProduceRequest
	batch := make([]byte, 100_000)
	buf := make([]byte, 0, 5_000_000)
	topics := []string{"a", "b", "c"}
	ids := [][16]byte{idOf("a"), idOf("b"), idOf("c")}
	fill := func() {
		r.Reset()
		for i := range 30 {
			r.Add(ProducePart{Topic: topics[i%3], TopicID: ids[i%3], Partition: int32(i), Batch: batch})
		}
		for version := int16(8); version <= 13; version++ {
			r.SetVersion(version)
			r.AppendTo(buf)
		}
	}
	fill()
	if n := testing.AllocsPerRun(20, fill); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// A sender asks Written while kgo's goroutine may be in AppendTo; the race detector watches.
func TestWrittenFromAnotherGoroutine(t *testing.T) {
	var r ProduceRequest
	r.Add(ProducePart{Topic: "a"})
	var wg sync.WaitGroup
	wg.Go(func() { r.AppendTo(nil) })
	for !r.Written() {
	}
	wg.Wait()
}

func TestReadFromRefuses(t *testing.T) {
	if err := new(ProduceRequest).ReadFrom(nil); err == nil {
		t.Error("a produce request was read")
	}
}

// response builds what a broker sends and passes it through the wire encoding of version.
func response(t *testing.T, version int16, topics ...kmsg.ProduceResponseTopic) *kmsg.ProduceResponse {
	t.Helper()
	var r, decoded kmsg.ProduceResponse
	r.Version, r.Topics = version, topics
	decoded.Version = version
	if err := decoded.ReadFrom(r.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return &decoded
}

func answerTopic(topic string, partitions ...kmsg.ProduceResponseTopicPartition) kmsg.ProduceResponseTopic {
	a := kmsg.NewProduceResponseTopic()
	a.Topic, a.TopicID, a.Partitions = topic, idOf(topic), partitions
	return a
}

func answerPartition(partition int32, code int16, base int64) kmsg.ProduceResponseTopicPartition {
	a := kmsg.NewProduceResponseTopicPartition()
	a.Partition, a.ErrorCode, a.BaseOffset = partition, code, base
	return a
}

func unanswered() PartOutcome {
	return PartOutcome{BaseOffset: -1, LogAppendTime: -1, LeaderHint: -1, LeaderEpochHint: -1}
}

func TestOutcomesInOrderOfAdd(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 12, 13} {
		var r ProduceRequest
		for _, p := range []ProducePart{{Topic: "a", Partition: 5}, {Topic: "b", Partition: 0}, {Topic: "a", Partition: 1}, {Topic: "b", Partition: 9}} {
			p.TopicID = idOf(p.Topic)
			r.Add(p)
		}
		appended := answerPartition(5, 0, 1000)
		duplicate := answerPartition(1, 0, 42)
		duplicate.LogAppendTime = testTime
		moved := answerPartition(0, 6, -1)
		moved.CurrentLeader.LeaderID, moved.CurrentLeader.LeaderEpoch = 3, 17
		resp := response(t, version,
			answerTopic("stranger", answerPartition(5, 0, 1)),
			answerTopic("b", moved, answerPartition(77, 0, 1)), // 77 was not asked, 9 is not answered
			answerTopic("a", duplicate, appended, answerPartition(5, 99, 99)),
		)
		want := []PartOutcome{unanswered(), unanswered(), unanswered(), unanswered()}
		want[0].Answered, want[0].BaseOffset = true, 1000
		want[1].Answered, want[1].Code = true, 6
		if version >= 9 { // a tagged field; brokers set it from version 10 on
			want[1].LeaderHint, want[1].LeaderEpochHint = 3, 17
		}
		want[2].Answered, want[2].BaseOffset, want[2].LogAppendTime = true, 42, testTime

		r.SetVersion(version)
		dst := []PartOutcome{{Code: 1234}}
		got := r.Outcomes(dst, resp)
		if len(got) != 5 || got[0].Code != 1234 {
			t.Fatalf("v%d: Outcomes did not append: %+v", version, got)
		}
		if !slices.EqualFunc(got[1:], want, equalOutcome) {
			t.Errorf("v%d:\n got %+v\nwant %+v", version, got[1:], want)
		}
	}
}

func equalOutcome(a, b PartOutcome) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

func TestOutcomesNameBadRecords(t *testing.T) {
	var r ProduceRequest
	r.Add(ProducePart{Topic: "a", Partition: 1})
	r.Add(ProducePart{Topic: "a", Partition: 2})
	first, second := answerPartition(1, 87, -1), answerPartition(2, 87, -1)
	whole, one := "one or more records were rejected", "record has no key"
	first.ErrorMessage = &whole
	first.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 3, ErrorMessage: &one}, {RelativeOffset: 8}}
	second.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 0}, {RelativeOffset: 1, ErrorMessage: &one}}
	got := r.Outcomes(nil, response(t, 8, answerTopic("a", first, second)))
	if o := got[0]; o.ErrorMessage != whole || !slices.Equal(o.RecordErrors, []int32{3, 8}) || o.Code != 87 {
		t.Errorf("first: %+v", o)
	}
	if o := got[1]; o.ErrorMessage != one || !slices.Equal(o.RecordErrors, []int32{0, 1}) {
		t.Errorf("second: %+v", o)
	}
}

func TestOutcomesOfNoResponse(t *testing.T) {
	var r ProduceRequest
	r.Add(ProducePart{Topic: "a"})
	for _, resp := range []kmsg.Response{nil, kmsg.NewPtrFetchResponse(), response(t, 12)} {
		if got := r.Outcomes(nil, resp); len(got) != 1 || !equalOutcome(got[0], unanswered()) {
			t.Errorf("%T: %+v", resp, got)
		}
	}
}

func BenchmarkAppendTo(b *testing.B) {
	var r ProduceRequest
	for i := range 4 {
		r.Add(ProducePart{Topic: "app-logs", TopicID: idOf("app-logs"), Partition: int32(i), Batch: make([]byte, 256<<10)})
	}
	r.SetVersion(13)
	dst := make([]byte, 0, r.Bytes())
	b.SetBytes(int64(r.Bytes()))
	b.ReportAllocs()
	for b.Loop() {
		r.AppendTo(dst)
	}
}
