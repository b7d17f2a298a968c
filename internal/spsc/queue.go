// Package spsc has the one lock-free type of shipper: an unbounded queue from one goroutine to another. The lane
// machines need none, since each has one owner; this is how news of a batch reaches that owner and leaves it, without
// a lock and, once warm, without an allocation.
package spsc

import "sync/atomic"

// Queue carries values from one producer to one consumer, in order. It never blocks and never drops. It keeps the memory
// of the most it ever held. New makes one.
//
// Ownership: Push belongs to the producer, Pop to the consumer; each side has fields of its own that the other never
// touches. Chunks form one list, oldest first:
//
//	first -> ... -> head -> ... -> tail
//	  done with      to be read      written
//
// The producer owns the list from first up to, not including, the chunk that `done` names, and takes chunks from there
// to write in. They share the rest, and of a chunk in it:
//
//	items[i]  is written by the producer before it stores len = i+1, and read by the consumer after it loaded len > i
//	len       only grows; stored by the producer
//	next      is stored once, by the producer, when the chunk is full
//	done      is stored by the consumer when it has left all chunks before
//
// Memory order: Go's atomics are sequentially consistent, and an atomic load that sees a store happens behind it (Go
// memory model). So what the producer wrote before it stored len or next is there for the consumer that loads it, and
// the consumer's last look at a chunk lies before the store to done that lets the producer write in it again.
//
// Why not a bounded ring: its producer would have to wait or drop when it is full, and the two goroutines that this
// queue connects must never wait for each other.
type Queue[T any] struct {
	head *chunk[T] // consumer: reads here
	at   uint32    // consumer: next item of head
	seen uint32    // consumer: items of head known to be written

	_    [48]byte // the sides in cache lines of their own
	done atomic.Pointer[chunk[T]]

	_     [56]byte
	first *chunk[T] // producer: the oldest chunk there is
	tail  *chunk[T] // producer: writes here
	n     uint32    // producer: items of tail
}

// chunkItems is how many values share one allocation.
const chunkItems = 64

type chunk[T any] struct {
	len   atomic.Uint32
	next  atomic.Pointer[chunk[T]]
	items [chunkItems]T
}

// New returns an empty queue.
func New[T any]() *Queue[T] {
	c := new(chunk[T])
	q := &Queue[T]{head: c, first: c, tail: c}
	q.done.Store(c)
	return q
}

// Push puts v behind all others. Producer only.
func (q *Queue[T]) Push(v T) {
	if q.n == chunkItems {
		q.grow()
	}
	q.tail.items[q.n] = v
	q.n++
	q.tail.len.Store(q.n)
}

// grow puts an empty chunk behind the full one.
func (q *Queue[T]) grow() {
	c := q.first
	if c == q.done.Load() {
		c = new(chunk[T])
	} else {
		q.first = c.next.Load()
		c.len.Store(0)
		c.next.Store(nil)
	}
	q.tail.next.Store(c)
	q.tail, q.n = c, 0
}

// Pop takes the oldest value; ok is false if there is none now. Consumer only.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.at == chunkItems {
		next := q.head.next.Load()
		if next == nil {
			return v, false
		}
		q.head, q.at, q.seen = next, 0, 0
		q.done.Store(next)
	}
	if q.at == q.seen {
		if q.seen = q.head.len.Load(); q.at == q.seen {
			return v, false
		}
	}
	var none T
	item := &q.head.items[q.at]
	v, *item = *item, none // what it points to is not ours any more
	q.at++
	return v, true
}
