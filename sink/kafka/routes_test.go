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
