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

	mu   sync.Mutex // guards the rest
	free int64
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

func newBudget(bytes int64) *budget { return &budget{total: bytes, free: bytes} }

// batchMemory is what a batch of n raw bytes takes, with the room to compress it
// into.
func batchMemory(n int) int64 {
	return bufferBytes(bufferClass(n)) + bufferBytes(bufferClass(kafka.SealBytesMax(n)))
}

// has says whether n bytes are left.
func (b *budget) has(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free >= n
}

// take returns an empty buffer of capacity n or more, or nil if the budget has
// no bytes left.
func (b *budget) take(n int) []byte {
	class := bufferClass(n)
	size := bufferBytes(class)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < size {
		return nil
	}
	b.free -= size
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
func (b *budget) give(buf []byte) {
	if buf == nil {
		return
	}
	class := bufferClass(cap(buf))
	if bufferBytes(class) != int64(cap(buf)) {
		panic("BUG: the budget was given a buffer that is none of its own")
	}
	b.mu.Lock()
	b.free += bufferBytes(class)
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
