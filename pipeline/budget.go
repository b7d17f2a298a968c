package pipeline

import (
	"math/bits"
	"sync"
)

// budget bounds the bytes between read and spool. It is asked once for each
// buffer, never for a record. An empty budget makes readers wait: the files are
// the buffer then. Buffers given back are kept, so a busy pipeline allocates
// none.
type budget struct {
	mu   sync.Mutex // guards free and kept
	free int64
	kept [bufferBits + 1][][]byte // buffers given back, by the logarithm of their size

	freed []chan struct{} // one for each reader, told when bytes came back
}

const (
	bufferBitsMin = 12 // 4 KiB: a lane with little to say holds little
	bufferBits    = 31
)

// take returns an empty buffer of capacity n or more, or nil if the budget has
// no bytes left.
func (b *budget) take(n int) []byte {
	class := max(bufferBitsMin, bits.Len(uint(n-1)))
	size := int64(1) << class
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < size {
		return nil
	}
	b.free -= size
	if k := len(b.kept[class]); k > 0 {
		buf := b.kept[class][k-1]
		b.kept[class] = b.kept[class][:k-1]
		return buf
	}
	return make([]byte, 0, size)
}

// give takes a buffer of take back; nil is nothing.
func (b *budget) give(buf []byte) {
	if buf == nil {
		return
	}
	class := bits.Len(uint(cap(buf) - 1))
	b.mu.Lock()
	b.free += int64(1) << class
	b.kept[class] = append(b.kept[class], buf[:0])
	b.mu.Unlock()
	for _, ready := range b.freed {
		select {
		case ready <- struct{}{}:
		default:
		}
	}
}
