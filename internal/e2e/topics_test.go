package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// A topic by labels of a container's path: what Kafka does not take in a name becomes hyphens, and a topic that refuses the
// agent, or that is not there, holds up nobody but its own lanes.
func TestTopicsFromPaths(t *testing.T) {
	const shop, odd, denied, missing = "logs-shop.web", "logs-sh---p.web", "logs-denied.web", "logs-missing.web"
	b := embedded(t, 1, kfake.SeedTopics(1, shop, odd, denied))
	var allowed atomic.Bool
	b.refuse(denied, kerr.TopicAuthorizationFailed.Code, &allowed)
	dir := t.TempDir()
	config := b.config(filepath.Join(dir, "spool"), []source{{name: "k8s", glob: filepath.Join(dir, "pods", "*", "*", "*.log"), topic: "logs-{namespace}.{container}"}})
	agent := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: config + "    container: cri\n"})
	want := map[string][]string{}
	write := func(namespace, topic string) {
		t.Helper()
		pod := filepath.Join(dir, "pods", namespace+"_cart_4b1c", "web")
		err := os.MkdirAll(pod, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(pod, "0.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for range 20 {
			line := fmt.Sprintf("%s {topic} %d", namespace, len(want[topic]))
			want[topic] = append(want[topic], line)
			if _, err := fmt.Fprintf(f, "2026-11-29T23:28:47.1Z stdout F %s\n", line); err != nil {
				t.Fatal(err)
			}
		}
	}
	arrive := func(topics ...string) {
		t.Helper()
		for _, topic := range topics {
			b.read.Within = deliverMax
			kafkatest.AwaitRecords(t, b.bootstrap, topic, int64(len(want[topic])), b.read)
			records, _ := kafkatest.ReadTopic(t, b.bootstrap, topic, b.read)
			var got []string
			for _, r := range records {
				got = append(got, string(r.Value))
			}
			if !slices.Equal(got, want[topic]) {
				t.Fatalf("%s: got %q\nwant %q", topic, got, want[topic])
			}
		}
	}
	all := func() {
		write("shop", shop)
		write("sh öp", odd)
		write("denied", denied)
		write("missing", missing)
	}
	all()
	agent.Start()
	arrive(shop, odd)
	agent.WaitLog(denied, 30*time.Second)
	agent.WaitLog(missing, 30*time.Second)
	for range 3 {
		all()
		arrive(shop, odd)
	}
	if records, _ := kafkatest.ReadTopic(t, b.bootstrap, denied, b.read); len(records) > 0 {
		t.Errorf("%d records in %s", len(records), denied)
	}
	allowed.Store(true)
	if err := b.fake.CreateTopic(missing, 1, nil); err != nil {
		t.Fatal(err)
	}
	arrive(denied, missing)
	if code := agent.Stop(stopMax); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// refuse makes the brokers answer what is sent to a topic with an error, until it is allowed. Other topics of the request are served.
func (b *brokers) refuse(topic string, code int16, allowed *atomic.Bool) {
	id := b.fake.TopicInfo(topic).TopicID
	b.fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		p := req.(*kmsg.ProduceRequest)
		is := func(t kmsg.ProduceRequestTopic) bool { return t.Topic == topic || t.TopicID == id }
		if allowed.Load() || !slices.ContainsFunc(p.Topics, is) {
			return nil, nil, false
		}
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range p.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, part := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.BaseOffset, rp.ErrorCode = part.Partition, -1, code
				if !is(t) {
					rp.ErrorCode = kerr.NotLeaderForPartition.Code // a broker that could do half of it would; this one has that sent again
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}
