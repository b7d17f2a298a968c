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

// Blocks that take all they get and give nothing back leave each other its part.
// While they wait for room one of those that hold nothing gets a batch, whatever is
// left, and the next one when that is given back.
func TestBudgetReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := int64(rapid.IntRange(1, 4).Draw(t, "batch MiB")) << 20
		blocks := rapid.IntRange(2, 8).Draw(t, "blocks")
		greedy := rapid.IntRange(1, blocks-1).Draw(t, "greedy")
		b := newBudget(8<<20, batch, blocks)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			b.take(rapid.IntRange(0, greedy-1).Draw(t, "block"), rapid.IntRange(1, 1<<20).Draw(t, "bytes"))
		}
		if b.free < b.claims || b.claims < b.part*int64(blocks-greedy) {
			t.Fatalf("%d bytes are left of %d, of which the blocks have %d to claim", b.free, b.total, b.claims)
		}
		for block := greedy; block < blocks; block++ {
			for left := b.part; left >= 5<<10; left -= 5 << 10 {
				if b.take(block, 5<<10) == nil {
					t.Fatalf("block %d lacks %d bytes of its part of %d", block, left, b.part)
				}
			}
		}
	})
}

func TestBudgetLends(t *testing.T) {
	b := newBudget(8<<20, 4<<20, 4)
	for block := range 2 {
		for _, n := range []int{1 << 20, 100 << 10, bufferBytesMin} {
			for b.take(block, n) != nil {
			}
		}
	}
	if b.take(2, 2<<20) != nil || b.has(2, 4<<20) {
		t.Fatal("more than the part")
	}
	b.setStuck(true)
	if !b.has(2, 4<<20) {
		t.Fatal("it would wait in vain")
	}
	lent := [][]byte{b.take(2, 2<<20)}
	if lent[0] == nil || !b.has(3, 4<<20) || b.take(3, 2<<20) != nil || b.take(3, 900<<10) == nil {
		t.Fatalf("one batch is lent, to one; parts stay: %+v", b)
	}
	lent = append(lent, b.take(2, 2<<20))
	if lent[1] == nil || b.take(2, bufferBytesMin*300) != nil || b.loan+b.held[2] != 4<<20 {
		t.Fatalf("a whole batch and no more: %+v", b)
	}
	for _, buf := range lent {
		b.give(2, buf)
	}
	if b.loan != 0 || b.held[2] != 0 || b.free < b.claims || b.idle > b.free {
		t.Fatalf("%+v", b)
	}
	if b.take(3, 2<<20) == nil {
		t.Fatal("the next one gets nothing")
	}
}

// A block that has its share of the spool full would keep the loan for ever.
func TestBudgetLendsToWhomFindsRoom(t *testing.T) {
	b := newBudget(8<<20, 4<<20, 4)
	stuck := map[int]bool{0: true, 1: true, 2: true}
	b.repays = func(block int) bool { return !stuck[block] }
	for block := range 3 {
		for _, n := range []int{1 << 20, 100 << 10, bufferBytesMin} {
			for b.take(block, n) != nil {
			}
		}
	}
	b.setStuck(true)
	if b.take(2, 2<<20) != nil {
		t.Error("lent to one that does not give back")
	}
	if b.take(3, 2<<20) == nil {
		t.Error("nothing is left for the one that would")
	}
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

// A reader that gets one buffer and lacks the other has changed nothing and wakes
// nobody: woken by its own failure, it would read the same lines again at once.
func TestBudgetPair(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		b := newBudget(8<<20, 2<<20, 2)
		ready := make(chan struct{}, 1)
		b.freed = append(b.freed, ready)
		b.setStuck(stuck)
		free, claims := b.free, b.claims
		if raw, out := b.pair(1, 1<<20, 8<<20); raw != nil || out != nil {
			t.Fatal("more than there is")
		}
		if b.free != free || b.claims != claims || b.loan != 0 || b.lentTo != -1 || b.held[1] != 0 || len(ready) > 0 {
			t.Errorf("stuck %v: a failure has left %+v, %d woken", stuck, b, len(ready))
		}
		raw, out := b.pair(1, 1<<20, 1<<20)
		if raw == nil || out == nil || b.held[1] != int64(cap(raw)+cap(out)) {
			t.Fatalf("stuck %v: no pair: %+v", stuck, b)
		}
		b.give(1, raw)
		if len(ready) != 1 {
			t.Error("nobody was told that bytes came back")
		}
	}
}
