package spsc

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestOrder(t *testing.T) {
	q := New[int]()
	next, want := 0, 0
	for round := range 3000 {
		for range round % 150 {
			q.Push(next)
			next++
		}
		for range round % 149 {
			v, ok := q.Pop()
			if ok != (want < next) || ok && v != want {
				t.Fatalf("popped %d, %t; want %d of %d", v, ok, want, next)
			}
			if ok {
				want++
			}
		}
	}
}

// Under the race detector this is the proof that every access is ordered.
func TestBesideEachOther(t *testing.T) {
	const n = 200_000
	q := New[[2]int]()
	go func() {
		for i := range n {
			q.Push([2]int{i, -i})
			if i%1000 == 0 {
				runtime.Gosched()
			}
		}
	}()
	for want := 0; want < n; {
		v, ok := q.Pop()
		if !ok {
			runtime.Gosched()
			continue
		}
		if v != [2]int{want, -want} {
			t.Fatalf("popped %v, want %d", v, want)
		}
		want++
	}
}

type op struct {
	push bool
	v    int // pushed
}

type result struct {
	v  int
	ok bool
}

// What two goroutines saw is what a queue could have done at some instant within each call.
func TestLinearizable(t *testing.T) {
	model := porcupine.Model{
		Init: func() any { return [2]int{} }, // next to push, next to pop
		Step: func(state, input, output any) (bool, any) {
			s, in := state.([2]int), input.(op)
			if in.push {
				return in.v == s[0], [2]int{s[0] + 1, s[1]}
			}
			out := output.(result)
			if !out.ok {
				return s[0] == s[1], s
			}
			return s[1] < s[0] && out.v == s[1], [2]int{s[0], s[1] + 1}
		},
		Equal: func(a, b any) bool { return a == b },
	}
	for round := range 20 {
		q := New[int]()
		const n = 400
		start := time.Now()
		var pushes, pops []porcupine.Operation
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				call := time.Since(start).Nanoseconds()
				q.Push(i)
				pushes = append(pushes, porcupine.Operation{ClientId: 0, Input: op{true, i}, Call: call, Output: result{}, Return: time.Since(start).Nanoseconds()})
				if i%(7+round) == 0 {
					runtime.Gosched()
				}
			}
		})
		wg.Go(func() {
			for i := range 2 * n {
				call := time.Since(start).Nanoseconds()
				v, ok := q.Pop()
				pops = append(pops, porcupine.Operation{ClientId: 1, Input: op{}, Call: call, Output: result{v, ok}, Return: time.Since(start).Nanoseconds()})
				if i%(5+round) == 0 {
					runtime.Gosched()
				}
			}
		})
		wg.Wait()
		if got := porcupine.CheckOperationsTimeout(model, append(pushes, pops...), 20*time.Second); got != porcupine.Ok {
			t.Fatalf("round %d: %v", round, got)
		}
	}
}

// Once warm nothing is allocated, bursts included.
func TestNoAllocation(t *testing.T) {
	q := New[[16]uint64]()
	turn := func() {
		for range 5 * chunkItems / 2 {
			q.Push([16]uint64{})
		}
		for _, ok := q.Pop(); ok; _, ok = q.Pop() {
		}
	}
	for range 8 {
		turn()
	}
	if per := testing.AllocsPerRun(1000, turn); per != 0 {
		t.Fatalf("%v allocations a turn", per)
	}
}

// message is as big as a notice to the sink.
type message [12]uint64

// The queue beside what would stand in its place, in one run: a slice under a lock that the consumer swaps for an
// empty one, and a channel. Each value goes to the other goroutine, bursts at a time, as after a commit.
func BenchmarkHandOver(b *testing.B) {
	for _, burst := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("burst=%d/queue", burst), func(b *testing.B) {
			q := New[message]()
			handOver(b, burst, func(m message) { q.Push(m) }, func() int {
				n := 0
				for _, ok := q.Pop(); ok; _, ok = q.Pop() {
					n++
				}
				return n
			})
		})
		b.Run(fmt.Sprintf("burst=%d/mutex", burst), func(b *testing.B) {
			var mu sync.Mutex
			var list, spare []message
			handOver(b, burst, func(m message) {
				mu.Lock()
				list = append(list, m)
				mu.Unlock()
			}, func() int {
				mu.Lock()
				list, spare = spare[:0], list
				mu.Unlock()
				return len(spare)
			})
		})
		b.Run(fmt.Sprintf("burst=%d/channel", burst), func(b *testing.B) {
			ch := make(chan message, 4096)
			handOver(b, burst, func(m message) { ch <- m }, func() int {
				n := 0
				for {
					select {
					case <-ch:
						n++
					default:
						return n
					}
				}
			})
		})
	}
}

// handOver times values from push on one goroutine to take on another; at most 1,000 are under way.
func handOver(b *testing.B, burst int, push func(message), take func() int) {
	b.ReportAllocs()
	acked := make(chan int, 1024)
	stop := make(chan struct{})
	go func() {
		for {
			if n := take(); n > 0 {
				acked <- n
				continue
			}
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	flying := 0
	for b.Loop() {
		for range burst {
			push(message{})
		}
		for flying += burst; flying > 1000; {
			flying -= <-acked
		}
	}
	for flying > 0 {
		flying -= <-acked
	}
	close(stop)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/value")
}

// One job there and back, as between the sink and a sender that sleeps while it has none: channels, which the agent
// uses here; two queues, which need channels beside them to wake; a lock with a condition. What a queue saves is a
// fraction of a microsecond for a request of up to 2 MiB, so the simplest stays.
func BenchmarkJobThereAndBack(b *testing.B) {
	type job [8]int
	b.Run("channel", func(b *testing.B) {
		in, done := make(chan *job, 1), make(chan *job, 256)
		go func() {
			for j := range in {
				done <- j
			}
		}()
		b.ReportAllocs()
		j := &job{}
		for b.Loop() {
			in <- j
			j = <-done
		}
		close(in)
	})
	b.Run("queue", func(b *testing.B) {
		in, done := New[*job](), New[*job]()
		wakeIn, wakeDone := make(chan struct{}, 1), make(chan struct{}, 1)
		go func() {
			for range wakeIn {
				if j, ok := in.Pop(); ok {
					done.Push(j)
					wakeDone <- struct{}{}
				}
			}
		}()
		b.ReportAllocs()
		j := &job{}
		for b.Loop() {
			in.Push(j)
			wakeIn <- struct{}{}
			<-wakeDone
			j, _ = done.Pop()
		}
		close(wakeIn)
	})
	b.Run("mutex", func(b *testing.B) {
		var mu sync.Mutex
		moved := sync.NewCond(&mu)
		var in, done *job
		ended := false
		go func() {
			mu.Lock()
			defer mu.Unlock()
			for !ended {
				if in != nil {
					in, done = nil, in
					moved.Broadcast()
				}
				moved.Wait()
			}
		}()
		b.ReportAllocs()
		j := &job{}
		mu.Lock()
		for b.Loop() {
			in, done = j, nil
			moved.Broadcast()
			for done == nil {
				moved.Wait()
			}
		}
		ended = true
		moved.Broadcast()
		mu.Unlock()
	})
}
