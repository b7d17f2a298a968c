package kafkatest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A hidden topic is unknown in every form of the answer, and nothing else is; then it is back.
func TestProxyHidesTopic(t *testing.T) {
	c, p := fakeCluster(t)
	if err := c.CreateTopic("other", 2, nil); err != nil {
		t.Fatal(err)
	}
	for name, versions := range map[string]*kversion.Versions{"0.11": kversion.V0_11_0(), "2.8": kversion.V2_8_0(), "newest": kversion.Stable()} {
		t.Run(name, func(t *testing.T) {
			cl := client(t, []string{p.Addr()}, kgo.MaxVersions(versions))
			want := func(code int16, partitions int) {
				t.Helper()
				req := kmsg.NewPtrMetadataRequest()
				for _, topic := range []string{"t", "other"} {
					rt := kmsg.NewMetadataRequestTopic()
					rt.Topic = &topic
					req.Topics = append(req.Topics, rt)
				}
				resp, err := req.RequestWith(t.Context(), cl)
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range resp.Topics {
					code, partitions := code, partitions
					if *x.Topic == "other" {
						code, partitions = 0, 2
					}
					if x.ErrorCode != code || len(x.Partitions) != partitions {
						t.Errorf("version %d: %s: code %d, %d partitions; want %d and %d", resp.Version, *x.Topic, x.ErrorCode, len(x.Partitions), code, partitions)
					}
				}
				if len(resp.Topics) != 2 || len(resp.Brokers) != 1 {
					t.Errorf("version %d: %d topics, %d brokers", resp.Version, len(resp.Topics), len(resp.Brokers))
				}
			}
			want(0, 1)
			p.HideTopic("t")
			want(kerr.UnknownTopicOrPartition.Code, 0)
			p.Heal()
			want(0, 1)
		})
	}
}
