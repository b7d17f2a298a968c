package broker

import (
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Each step is one batch against one partition's memory of one producer id.
func TestProducerSequences(t *testing.T) {
	type step struct {
		epoch       int16
		first, last int32
		want        string // "append", "dup" or Kafka's error
	}
	const top = math.MaxInt32
	for name, steps := range map[string][]step{
		"in sequence":                  {{0, 0, 9, "append"}, {0, 10, 10, "append"}, {0, 11, 20, "append"}},
		"unknown id, any sequence":     {{3, 77, 79, "append"}, {3, 80, 80, "append"}},
		"gap":                          {{0, 0, 9, "append"}, {0, 11, 12, "OUT_OF_ORDER_SEQUENCE_NUMBER"}, {0, 10, 12, "append"}},
		"other bounds are no repeat":   {{0, 0, 9, "append"}, {0, 0, 8, "OUT_OF_ORDER_SEQUENCE_NUMBER"}, {0, 5, 9, "OUT_OF_ORDER_SEQUENCE_NUMBER"}},
		"lower epoch, even repeated":   {{1, 0, 9, "append"}, {0, 0, 9, "INVALID_PRODUCER_EPOCH"}},
		"higher epoch begins at 0":     {{0, 0, 9, "append"}, {1, 10, 10, "OUT_OF_ORDER_SEQUENCE_NUMBER"}, {1, 0, 4, "append"}, {0, 10, 10, "INVALID_PRODUCER_EPOCH"}},
		"higher epoch forgets batches": {{0, 0, 9, "append"}, {1, 0, 4, "append"}, {1, 0, 9, "OUT_OF_ORDER_SEQUENCE_NUMBER"}, {1, 0, 4, "dup"}},
		"wrap between batches":         {{0, top - 1, top, "append"}, {0, 0, 1, "append"}, {0, top - 1, top, "dup"}},
		"wrap inside a batch":          {{0, top, 1, "append"}, {0, top, 1, "dup"}, {0, 2, 2, "append"}},
		"five are remembered": {
			{0, 0, 0, "append"}, {0, 1, 1, "append"}, {0, 2, 2, "append"}, {0, 3, 3, "append"}, {0, 4, 4, "append"}, {0, 5, 5, "append"},
			{0, 0, 0, "OUT_OF_ORDER_SEQUENCE_NUMBER"}, {0, 1, 1, "dup"}, {0, 5, 5, "dup"}, {0, 6, 6, "append"}, {0, 1, 1, "OUT_OF_ORDER_SEQUENCE_NUMBER"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p *producer
			offsets := map[[2]int32]int64{}
			end := int64(100)
			for i, s := range steps {
				count := int32((int64(s.last)-int64(s.first))&0x7fffffff) + 1
				h := batchHeader{producerID: 1, epoch: s.epoch, baseSequence: s.first, count: count}
				dup, code := p.admit(h)
				got := "append"
				switch {
				case code != 0:
					got = kerr.TypedErrorForCode(code).Message
				case dup != nil:
					got = "dup"
					if want := offsets[[2]int32{s.first, s.last}]; dup.base != want {
						t.Errorf("step %d: repeat answered with offset %d, stored at %d", i, dup.base, want)
					}
				default:
					if p == nil {
						p = &producer{epoch: h.epoch}
					}
					offsets[[2]int32{s.first, s.last}] = end
					p.appended(h, end)
					end += int64(count)
				}
				if got != s.want {
					t.Errorf("step %d, epoch %d sequences %d..%d: %s, want %s", i, s.epoch, s.first, s.last, got, s.want)
				}
			}
		})
	}
}
