package kafka

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Hashes of Kafka's own tests of murmur2 (UtilsTest).
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

// Every length and byte goes where a client that is known to agree with the Java client sends it.
func TestKeyPartition(t *testing.T) {
	for _, n := range []int32{1, 2, 3, 7, 12, 50, 1000} {
		other := kgo.StickyKeyPartitioner(nil).ForTopic("t")
		for i := range 2000 {
			key := binary.BigEndian.AppendUint64(nil, uint64(i)*0x9e37_79b9_7f4a_7c15)
			key = append(key, fmt.Sprint(i)...)[:1+i%11]
			if got, want := KeyPartition(key, n), other.Partition(&kgo.Record{Key: key}, int(n)); int(got) != want {
				t.Fatalf("key %x of %d partitions goes to %d, want %d", key, n, got, want)
			}
		}
	}
}
