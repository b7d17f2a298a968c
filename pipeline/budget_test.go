package pipeline

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBudget(8 << 20)
		var held [][]byte
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if n := rapid.IntRange(1, 2<<20).Draw(t, "bytes"); rapid.Bool().Draw(t, "take") {
				buf := b.take(n)
				if buf == nil {
					if b.has(int64(n)*5/4) && n >= bufferBytesMin {
						t.Fatalf("no buffer of %d bytes though %d are free", n, b.free)
					}
					continue
				}
				if cap(buf) < n || cap(buf) > max(bufferBytesMin, n*5/4+1) {
					t.Fatalf("%d bytes for %d", cap(buf), n)
				}
				held = append(held, buf)
			} else if len(held) > 0 {
				b.give(held[0])
				held = held[1:]
			}
			sum := int64(0)
			for _, h := range held {
				sum += int64(cap(h))
			}
			if sum+b.free != b.total || b.idle > b.free {
				t.Fatalf("%d held, %d free and %d kept of %d", sum, b.free, b.idle, b.total)
			}
		}
	})
}
