package kafka

import (
	"fmt"
	"sync"
	"testing"

	"shipper/internal/spsc"
)

// carrier takes values from one goroutine to another and wakes it.
type carrier[T any] struct {
	push func(T)
	pop  func() (T, bool)
	wake chan struct{}
}

func (c *carrier[T]) send(v T) {
	c.push(v)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// carriers are what may stand between committer and sink: what does, and what would without it.
func carriers[T any]() map[string]func() *carrier[T] {
	return map[string]func() *carrier[T]{
		"queue": func() *carrier[T] {
			q := spsc.New[T]()
			return &carrier[T]{q.Push, q.Pop, make(chan struct{}, 1)}
		},
		"mutex": func() *carrier[T] {
			var mu sync.Mutex
			var list, spare []T
			at := 0
			return &carrier[T]{func(v T) {
				mu.Lock()
				list = append(list, v)
				mu.Unlock()
			}, func() (v T, ok bool) {
				if at == len(spare) {
					mu.Lock()
					list, spare, at = spare[:0], list, 0
					mu.Unlock()
				}
				if at < len(spare) {
					v, ok = spare[at], true
					at++
				}
				return v, ok
			}, make(chan struct{}, 1)}
		},
		"channel": func() *carrier[T] {
			ch := make(chan T, 4096)
			return &carrier[T]{func(v T) { ch <- v }, func() (v T, ok bool) {
				select {
				case v = <-ch:
					return v, true
				default:
					return v, false
				}
			}, make(chan struct{}, 1)}
		},
	}
}

// besideLoop is a journal whose committer is another goroutine: it makes entries durable at once and offers the lane's next
// batch with the notice that the ack before is.
type besideLoop struct {
	*loop
	entries *carrier[Notice] // sink -> committer
	notices *carrier[Notice] // committer -> sink
	next    []uint64         // committer
	want    uint64           // acks
}

func (l *besideLoop) Ack(lane uint32, _ AckedBatch, _ bool) {
	l.entries.send(Notice{Kind: NoticeAckKept, ID: lane})
}

func (l *besideLoop) Identity(lane uint32, _ IdentityRecord) {
	l.entries.send(Notice{Kind: NoticeIdentityKept, ID: lane})
}

// commit is the committer: batches in all, dealt to the lanes.
func (l *besideLoop) commit(batches int) {
	offer := func(lane int) {
		l.notices.send(Notice{Kind: NoticeBatch, ID: uint32(lane), Ref: l.ref(l.next[lane])})
		l.next[lane] += 100
		batches--
	}
	for lane := range l.lanes {
		offer(lane)
	}
	for range l.entries.wake {
		for e, ok := l.entries.pop(); ok; e, ok = l.entries.pop() {
			l.notices.send(e)
			if e.Kind == NoticeAckKept && batches > 0 {
				offer(int(e.ID))
			}
		}
	}
}

// run is Sink.Run until so many more acks are durable.
func (l *besideLoop) run(acks int) {
	s := l.sink
	for l.want += uint64(acks); l.done < l.want; {
		s.dispatch()
		select {
		case <-l.notices.wake:
			for n, ok := l.notices.pop(); ok; n, ok = l.notices.pop() {
				if n.Kind == NoticeAckKept {
					l.done++
				}
				s.take(&n)
			}
		case j := <-s.done:
			s.settle(j)
		case p := <-s.replies:
			s.takeReply(p)
		case <-l.tick.C:
			s.wake()
		}
	}
}

// BenchmarkHandOver is the way of a batch from its durable frame to its durable ack - offer, step, stamp, outcome, ack -
// with a committer on a goroutine of its own, over what stands between the two. Each lane has one batch under way.
func BenchmarkHandOver(b *testing.B) {
	for _, lanes := range []int{1, 8, 64} {
		for _, name := range []string{"queue", "mutex", "channel"} {
			b.Run(fmt.Sprintf("lanes=%d/%s", lanes, name), func(b *testing.B) {
				l := &besideLoop{loop: newLoop(lanes), entries: carriers[Notice]()[name](), notices: carriers[Notice]()[name](), next: make([]uint64, lanes)}
				l.sink.cfg.Journal = l
				ended := make(chan struct{})
				go func() { l.commit(b.N + lanes); close(ended) }()
				l.run(lanes) // the identities, and one batch of each
				b.ReportAllocs()
				b.ResetTimer()
				l.run(b.N)
				b.StopTimer()
				close(l.entries.wake)
				<-ended
			})
		}
	}
}
