package pipeline

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBudget(8<<20, 0, 1)
		var held [][]byte
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if n := rapid.IntRange(1, 2<<20).Draw(t, "bytes"); rapid.Bool().Draw(t, "take") {
				buf := b.take(0, n)
				if buf == nil {
					if b.has(0, int64(n)*5/4) && n >= bufferBytesMin {
						t.Fatalf("no buffer of %d bytes though %d are free", n, b.free)
					}
					continue
				}
				if cap(buf) < n || cap(buf) > max(bufferBytesMin, n*5/4+1) {
					t.Fatalf("%d bytes for %d", cap(buf), n)
				}
				held = append(held, buf)
			} else if len(held) > 0 {
				b.give(0, held[0])
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

// Blocks that take all they get and give nothing back leave a batch for each
// other, as long as that is not in hand twice.
func TestBudgetReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := int64(rapid.IntRange(1, 4).Draw(t, "batch MiB")) << 20
		blocks := rapid.IntRange(2, 5).Draw(t, "blocks")
		b := newBudget(8<<20, batch, blocks)
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			b.take(rapid.IntRange(0, blocks-2).Draw(t, "block"), rapid.IntRange(1, 1<<20).Draw(t, "bytes"))
		}
		greedy := 0
		for _, held := range b.held[:blocks-1] {
			if held > batch {
				greedy++
			}
		}
		if greedy == blocks-1 && b.free < b.reserve-batch*int64(blocks-1) || b.free < 0 {
			t.Fatalf("%d bytes are left of %d, the reserve is %d", b.free, b.total, b.reserve)
		}
		if b.free >= batch && b.take(blocks-1, int(batch)) == nil {
			t.Fatalf("%d bytes are free and a block with nothing gets none", b.free)
		}
	})
}

// One that floods and gives nothing back leaves the reserve alone.
func TestBudgetFlood(t *testing.T) {
	b := newBudget(16<<20, 2<<20, 2)
	for b.take(0, 100<<10) != nil {
	}
	if b.free < 4<<20 || b.free > 5<<20 {
		t.Errorf("%d bytes are left", b.free)
	}
	for held := int64(0); held < 2<<20; held += 256 << 10 {
		if b.take(1, 256<<10) == nil {
			t.Fatalf("the quiet one got only %d bytes", held)
		}
	}
}
