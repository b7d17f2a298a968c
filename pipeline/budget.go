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
	batch   int64 // the most that one batch takes

	mu   sync.Mutex // guards the rest
	free int64
	held []int64                 // by block
	kept [bufferClasses][][]byte // buffers given back, by class
	idle int64                   // bytes of kept, never more than free: what is held and kept is within total

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
// that hold little. A block whose lines find no room holds what it has: without
// it, the others would wait with it.
const reserveShare = 4

// newBudget divides bytes among so many source blocks, of which a batch takes
// batchMax at most.
func newBudget(bytes, batchMax int64, blocks int) *budget {
	b := &budget{total: bytes, free: bytes, batch: batchMax, held: make([]int64, blocks)}
	if blocks > 1 {
		b.reserve = max(bytes/reserveShare, batchMax)
	}
	return b
}

// batchMemory is what a batch of n raw bytes takes, with the room to compress it
// into.
func batchMemory(n int) int64 {
	return bufferBytes(bufferClass(n)) + bufferBytes(bufferClass(kafka.SealBytesMax(n)))
}

// has says whether n bytes are left for a block.
func (b *budget) has(block int, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.may(block, n)
}

// may tells whether a block may take n bytes: the first for one batch, or what
// leaves the reserve alone.
func (b *budget) may(block int, n int64) bool {
	return b.free-n >= b.reserve || b.free >= n && b.held[block]+n <= b.batch
}

// take returns an empty buffer of capacity n or more, or nil if the budget has
// no bytes left for this block.
func (b *budget) take(block, n int) []byte {
	class := bufferClass(n)
	size := bufferBytes(class)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.may(block, size) {
		return nil
	}
	b.free -= size
	b.held[block] += size
	if k := len(b.kept[class]); k > 0 {
		buf := b.kept[class][k-1]
		b.kept[class] = b.kept[class][:k-1]
		b.idle -= size
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
	class := bufferClass(cap(buf))
	if bufferBytes(class) != int64(cap(buf)) {
		panic("BUG: the budget was given a buffer that is none of its own")
	}
	b.mu.Lock()
	b.free += bufferBytes(class)
	b.held[block] -= bufferBytes(class)
	b.idle += bufferBytes(class)
	b.kept[class] = append(b.kept[class], buf[:0])
	b.mu.Unlock()
	for _, ready := range b.freed {
		select {
		case ready <- struct{}{}:
		default:
		}
	}
}
