package kafka

import (
	"testing"

	"pgregory.net/rapid"
)

func TestRefQueueIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := 0
		q := refQueue{total: &total}
		var want []uint64
		next := uint64(0)
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "op") {
			case 0, 1:
				q.push(Ref{Batch: Batch{First: next, Count: 1}})
				want = append(want, next)
				next++
			case 2, 3:
				if len(want) > 0 {
					q.pop()
					want = want[1:]
				}
			case 4:
				q.prepend([]Ref{{Batch: Batch{First: next, Count: 1}}, {Batch: Batch{First: next + 1, Count: 1}}})
				want = append([]uint64{next, next + 1}, want...)
				next += 2
			case 6:
				if len(want) == 0 {
					break
				}
				at := rapid.IntRange(0, len(want)-1).Draw(t, "at")
				n := rapid.IntRange(1, len(want)-at).Draw(t, "n")
				last := q.at(at + n - 1).Next()
				q.replaceRun(want[at], n, Ref{Batch: Batch{First: last - 1, Count: 1}})
				want = append(append(append([]uint64{}, want[:at]...), last-1), want[at+n:]...)
			case 5:
				if len(want) == 0 {
					break
				}
				var refs []Ref
				var firsts []uint64
				for range rapid.IntRange(0, 20).Draw(t, "instead") {
					refs, firsts = append(refs, Ref{Batch: Batch{First: next, Count: 1}}), append(firsts, next)
					next++
				}
				q.replaceFirst(refs)
				want = append(firsts, want[1:]...)
			}
			if q.len() != len(want) || total != len(want) {
				t.Fatalf("length %d, total %d, want %d", q.len(), total, len(want))
			}
			for i, w := range want {
				if got := q.at(i).First; got != w {
					t.Fatalf("at %d: %d, want %d", i, got, w)
				}
			}
		}
	})
}
