package broker

import (
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Topic is the one the benchmarks write to.
const Topic = "bench"

// Kfake is franz-go's in-memory broker with the same counters, as far as it has them. It keeps every record in memory.
type Kfake struct{ cluster *kfake.Cluster }

// ListenKfake uses Addr and Partitions of the options.
func ListenKfake(o Options) (*Kfake, error) {
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ClusterID(clusterID),
		kfake.SeedTopics(int32(o.Partitions), Topic),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, o.Addr) }),
	)
	if err != nil {
		return nil, fmt.Errorf("start kfake: %w", err)
	}
	return &Kfake{cluster}, nil
}

// Addr is where clients connect.
func (k *Kfake) Addr() string { return k.cluster.ListenAddrs()[0] }

// Totals has records and bytes only.
func (k *Kfake) Totals() Totals {
	var t Totals
	for _, p := range k.cluster.PartitionInfos(Topic) {
		t.Records += p.HighWatermark
		t.BatchBytes += p.NumBytes
	}
	return t
}

// Close ends the cluster.
func (k *Kfake) Close() { k.cluster.Close() }
