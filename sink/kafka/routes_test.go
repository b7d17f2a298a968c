package kafka

import (
	"encoding/binary"
	"testing"
)

// Hosts spread over partitions: every host with four lanes of equal load. `go test -v -run PartitionLoad` prints the table
// of benchmarks/README.md.
func TestPartitionLoad(t *testing.T) {
	for _, c := range []struct {
		hosts, partitions int
		worst             float64 // load of the busiest partition over the mean
	}{
		{10, 12, 2.5}, {100, 12, 1.5}, {100, 100, 3}, {10_000, 100, 1.2}, {10_000, 1000, 2},
	} {
		load := make([]int, c.partitions)
		for h := range c.hosts {
			var host [16]byte
			binary.LittleEndian.PutUint64(host[:], uint64(h)*0x9e37_79b9_7f4a_7c15)
			seen := map[int32]bool{}
			for slot := range uint32(4) {
				p := PlaceLane(host, "app-logs", slot, int32(c.partitions))
				if seen[p] {
					t.Fatalf("two lanes of one host are on partition %d of %d", p, c.partitions)
				}
				seen[p] = true
				load[p]++
			}
		}
		most, idle := 0, 0
		for _, n := range load {
			most = max(most, n)
			if n == 0 {
				idle++
			}
		}
		mean := float64(4*c.hosts) / float64(c.partitions)
		t.Logf("%6d hosts, %4d partitions: mean %6.1f lanes a partition, busiest %4d (%.2f x), idle partitions %d", c.hosts, c.partitions, mean, most, float64(most)/mean, idle)
		if float64(most) > c.worst*mean {
			t.Errorf("the busiest partition has %.2f x the mean, want at most %.2f x", float64(most)/mean, c.worst)
		}
	}
}

// A broker that is cut off from its controller tells of leaders that are none any more.
func TestLowerEpochs(t *testing.T) {
	id := IdentityRecord{ClusterID: "c", Topic: "t", TopicID: [16]byte{1}, ProducerID: 1}
	at := func(leader, epoch int32) Metadata {
		return Metadata{ClusterID: "c", Topics: []TopicMeta{{Name: "t", ID: id.TopicID, Partitions: []PartitionMeta{{Leader: leader, LeaderEpoch: epoch}}}}}
	}
	var r routes
	wants := func(want Route) {
		t.Helper()
		if got := r.of(&id); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	r.expect(&id, 3) // an ack from before this start counts under epoch 3
	r.replace(at(1, 2), 1_000)
	wants(Route{State: RouteUnknown, Leader: -1, Epoch: -1})
	r.replace(at(2, 4), 2_000)
	wants(Route{State: RouteOK, Leader: 2, Epoch: 4, AskedAt: 2_000})
	r.replace(at(1, 3), 3_000)
	wants(Route{State: RouteOK, Leader: 2, Epoch: 4, AskedAt: 2_000})
	r.replace(Metadata{ClusterID: "c", Topics: []TopicMeta{{Name: "t", Code: codeUnknownTopic}}}, 4_000)
	r.replace(at(-1, 3), 5_000)
	wants(Route{State: RouteOK, Leader: 2, Epoch: 4, AskedAt: 2_000})

	// But not if nothing else is said for long: the epochs of this cluster went back.
	r.replace(at(1, 3), 3_000+lowerEpochMaxMs+1)
	wants(Route{State: RouteOK, Leader: 1, Epoch: 3, AskedAt: 3_000 + lowerEpochMaxMs + 1})

	// A topic that was created again begins anew.
	id.TopicID = [16]byte{2}
	r.replace(at(1, 0), 70_000)
	wants(Route{State: RouteOK, Leader: 1, Epoch: 0, AskedAt: 70_000})
	if len(r.newest) != 1 {
		t.Errorf("%d partitions are remembered", len(r.newest))
	}
}
