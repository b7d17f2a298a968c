package pipeline

import (
	"math/bits"
	"sync"

	"shipper/sink/kafka"
)

// budget bounds the bytes between read and spool. It is asked once for each
// buffer, never for a record. An empty budget makes readers wait: the files are
// the buffer then. Buffers given back are kept, so a busy pipeline allocates
// none.
type budget struct {
	total int64

	reserve int64 // left alone by blocks that hold more than a batch
	part    int64 // of the reserve, of each block: nobody else takes it
	batch   int64 // the most that one batch takes

	repays func(block int) bool // a batch of the block will find room in the spool; nil: all will

	mu     sync.Mutex              // guards the rest
	free   int64                   // never less than claims
	held   []int64                 // by block, but for the loan
	claims int64                   // what blocks have not taken of their parts
	stuck  bool                    // groups wait for room in the spool
	loan   int64                   // what one block holds beyond total, of one batch at most
	lentTo int                     // that block; -1: none
	kept   [bufferClasses][][]byte // buffers given back, by class
	idle   int64                   // bytes of kept, never more than free: what is held and kept is within total

	freed []chan struct{} // one for each reader, told when bytes came back
}

// Buffers come in classes of four to a doubling, from 4 KiB on: a lane with
// little to say holds little, and no buffer wastes more than a quarter.
const (
	bufferBytesMin = 4 << 10
	bufferClasses  = 4 * 19 // up to 2 GiB
)

// bufferClass is the smallest class that holds n bytes.
func bufferClass(n int) int {
	n = max(n, bufferBytesMin)
	doubling := bits.Len(uint(n)) - bits.Len(bufferBytesMin)
	for class := 4 * doubling; ; class++ {
		if bufferBytes(class) >= int64(n) {
			return class
		}
	}
}

func bufferBytes(class int) int64 {
	base := int64(bufferBytesMin) << (class / 4)
	return base + base/4*int64(class%4)
}

// reserveShare of the budget, or one batch if that is more, is kept for blocks
// that hold little, in equal parts. A block whose lines find no room holds what
// it has: without it, the others would wait with it, for ever if a lane is stuck.
const reserveShare = 4

// newBudget divides bytes among so many source blocks, of which a batch takes
// batchMax at most.
func newBudget(bytes, batchMax int64, blocks int) *budget {
	b := &budget{total: bytes, free: bytes, batch: batchMax, held: make([]int64, blocks), lentTo: -1}
	if blocks > 1 {
		b.reserve = max(bytes/reserveShare, batchMax)
		b.part = b.reserve / int64(blocks)
		b.claims = b.part * int64(blocks)
	}
	return b
}

// batchMemory is what a batch of n raw bytes takes, with the room to compress it
// into.
func batchMemory(n int) int64 {
	return bufferBytes(bufferClass(n)) + bufferBytes(bufferClass(kafka.SealBytesMax(n)))
}

// has says whether n bytes are left for a block. One that holds nothing while
// groups wait for room might wait in vain for as much as it wants: it takes what
// it can get.
func (b *budget) has(block int, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok, _ := b.may(block, n)
	return ok || b.stuck && b.held[block] == 0 && b.lentTo != block
}

// flows says that a block holds bytes which come back by themselves: no group waits
// for room in the spool.
func (b *budget) flows(block int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.stuck && b.held[block] > 0
}

// may tells whether a block may take n bytes: what leaves the reserve alone, or,
// up to one batch, what leaves the others their parts of it. A part may be too
// small for a long line: while groups wait for room, one block at a time is lent
// what it lacks of one batch, beyond the budget; none that might wait with it for
// room that never comes, and the others for the loan.
func (b *budget) may(block int, n int64) (ok, lend bool) {
	if b.free-n >= b.reserve {
		return true, false
	}
	held := b.held[block] + n
	if b.free-n >= b.claims-b.claim(b.held[block])+b.claim(held) && held <= max(b.batch, b.part) {
		return true, false
	}
	if b.lentTo == block {
		held += b.loan
	}
	return b.stuck && (b.loan == 0 && (b.repays == nil || b.repays(block)) || b.lentTo == block) && held <= b.batch, true
}

// claim is what a block that holds so much may still take of its part.
func (b *budget) claim(held int64) int64 { return max(0, b.part-held) }

// hold changes what a block holds.
func (b *budget) hold(block int, n int64) {
	b.claims -= b.claim(b.held[block])
	b.held[block] += n
	b.claims += b.claim(b.held[block])
	b.free -= n
}

// setStuck says whether groups wait for room in the spool.
func (b *budget) setStuck(stuck bool) {
	b.mu.Lock()
	b.stuck = stuck
	b.mu.Unlock()
}

// take returns an empty buffer of capacity n or more, or nil if the budget has
// no bytes left for this block.
func (b *budget) take(block, n int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.get(block, n)
}

// pair takes two buffers or none: what cannot be used alone is not given back
// behind a failure, which would wake readers that try the same again.
func (b *budget) pair(block, n, m int) (first, second []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first = b.get(block, n); first == nil {
		return nil, nil
	}
	if second = b.get(block, m); second == nil {
		b.put(block, first)
		return nil, nil
	}
	return first, second
}

func (b *budget) get(block, n int) []byte {
	class := bufferClass(n)
	size := bufferBytes(class)
	ok, lend := b.may(block, size)
	switch {
	case !ok:
		return nil
	case lend:
		b.lentTo, b.loan = block, b.loan+size
	default:
		b.hold(block, size)
	}
	if k := len(b.kept[class]); k > 0 {
		buf := b.kept[class][k-1]
		b.kept[class] = b.kept[class][:k-1]
		b.idle -= size
		b.trim()
		return buf
	}
	b.trim()
	return make([]byte, 0, size)
}

// trim lets go of kept buffers that the budget does not cover any more.
func (b *budget) trim() {
	for class := range b.kept {
		for k := len(b.kept[class]); k > 0 && b.idle > b.free; k-- {
			b.kept[class][k-1] = nil
			b.kept[class] = b.kept[class][:k-1]
			b.idle -= bufferBytes(class)
		}
	}
}

// give takes a buffer of take back; nil is nothing.
func (b *budget) give(block int, buf []byte) {
	if buf == nil {
		return
	}
	b.mu.Lock()
	b.put(block, buf)
	b.mu.Unlock()
	for _, ready := range b.freed {
		select {
		case ready <- struct{}{}:
		default:
		}
	}
}

func (b *budget) put(block int, buf []byte) {
	class := bufferClass(cap(buf))
	if bufferBytes(class) != int64(cap(buf)) {
		panic("BUG: the budget was given a buffer that is none of its own")
	}
	size := bufferBytes(class)
	if b.lentTo == block { // first of all it pays back
		paid := min(size, b.loan)
		b.hold(block, paid-size)
		if b.loan -= paid; b.loan == 0 {
			b.lentTo = -1
		}
	} else {
		b.hold(block, -size)
	}
	b.idle += size
	b.kept[class] = append(b.kept[class], buf[:0])
	b.trim()
}
