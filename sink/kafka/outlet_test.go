package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

// outletBench is a sink whose senders and questions are under the test's hand.
type outletBench struct {
	*Sink
	ms      int64
	flights map[uint8]*job // by connection
	story   []string
	pings   []func()
	alive   error
}

func newOutletBench() *outletBench {
	b := &outletBench{flights: map[uint8]*job{}}
	b.Sink = NewSink(SinkConfig{Logger: slog.New(slog.DiscardHandler), Transport: Transport{
		Ping: func(context.Context, int32, uint8) error { return b.alive }}})
	b.now = func() int64 { return b.ms }
	b.open = func(*sender) {}
	b.hand = func(x *sender, j *job) {
		b.flights[x.key.conn] = j
		parts := ""
		for i := range j.items {
			parts += fmt.Sprint(" ", j.items[i].part)
		}
		b.tell("connection %d:%s", x.key.conn, parts)
	}
	b.question = func(f func(ctx context.Context) reply) {
		b.tell("ping")
		b.pings = append(b.pings, func() { p := f(context.Background()); b.takeReply(p) })
	}
	return b
}

func (b *outletBench) tell(format string, args ...any) {
	b.story = append(b.story, fmt.Sprintf(format, args...))
}

// lane puts up a batch for a partition whose acks wait for followers. A second
// lane of the same partition has its number plus 100.
func (b *outletBench) lane(n int32, followers uint64) {
	r := &row{info: LaneInfo{ID: uint32(n), Topic: "t", SentNext: new(atomic.Uint64)}, queue: refQueue{total: new(int)}}
	r.queue.push(Ref{Batch: Batch{Count: 1}})
	b.enqueue(r, Action{Kind: ActSend, Batch: Batch{Count: 1}, Identity: Identity{PID: 1, Partition: n % 100},
		Route: Route{State: RouteOK, Leader: 1, Followers: followers}})
	b.dispatch()
}

// pass lets time go by, waking where the sink wants to.
func (b *outletBench) pass(ms int64) {
	for end := b.ms + ms; ; {
		due := max(b.outlet(1).dueAt, b.ms+1)
		if due > end {
			b.ms = end
			return
		}
		b.ms = due
		b.dispatch()
	}
}

// pong has the broker answer, or not, what it was asked.
func (b *outletBench) pong(err error) {
	b.alive = err
	for _, f := range b.pings {
		f()
	}
	b.pings = nil
	b.dispatch()
}

// answer gives a request back. Its lanes have nothing else to send.
func (b *outletBench) answer(conn uint8, code int16) {
	j := b.flights[conn]
	delete(b.flights, conn)
	j.outcomes = j.outcomes[:0]
	for range j.items {
		j.outcomes = append(j.outcomes, PartOutcome{Answered: true, Code: code})
	}
	j.from.out.returned(j, b.ms)
	for i := range j.items {
		b.noteStarved(&j.items[i], code)
	}
	b.flying--
	b.dispatch()
}

// What one partition waits for holds up nobody who does not wait for the same.
func TestOutlet(t *testing.T) {
	const a, b, c = 1 << 1, 1 << 2, 1 << 3 // followers
	unreachable := errors.New("unreachable")
	for _, x := range []struct {
		name string
		run  func(*outletBench)
		want string
	}{
		{"one request for those that wait for the same", func(o *outletBench) {
			o.lane(1, a) // the first is sent at once
			o.lane(2, b)
			o.lane(3, a)
			o.lane(4, b)
			o.answer(0, 0)
			o.answer(0, 0)
		}, "connection 0: 1; connection 0: 2 4; connection 0: 3"},
		{"a partition once", func(o *outletBench) {
			o.lane(1, a)
			o.lane(2, b)
			o.lane(102, b)
			o.answer(0, 0)
			o.answer(0, 0)
		}, "connection 0: 1; connection 0: 2; connection 0: 2"},
		{"overdue, and the broker answers", func(o *outletBench) {
			o.lane(1, a)
			o.lane(2, b)
			o.pass(overdueMinMs - 1)
			o.tell("late")
			o.pass(1)
			o.pong(nil)
			o.answer(1, 0)
			o.lane(3, 0) // asked once for what waits
		}, "connection 0: 1; late; ping; connection 1: 2; connection 1: 3"},
		{"not once nobody waits", func(o *outletBench) {
			o.lane(1, a)
			o.pass(60_000)
		}, "connection 0: 1"},
		{"overdue, and the broker does not answer", func(o *outletBench) {
			o.lane(1, a)
			o.lane(2, b)
			o.pass(overdueMinMs)
			o.pass(20_000)
			o.pong(unreachable)
			o.pass(aliveRetryMs - 1)
			o.tell("again")
			o.pass(1)
		}, "connection 0: 1; ping; again; ping"},
		{"a slow broker is not overdue", func(o *outletBench) {
			for range 40 {
				o.lane(1, a)
				o.pass(2_000)
				o.answer(0, 0)
			}
			o.story = nil
			o.lane(1, a)
			o.lane(2, b)
			o.pass(7_000)
			o.tell("late")
			o.pass(1_000)
		}, "connection 0: 1; late; ping"},
		{"an answer that waited for replicas says nothing of the usual", func(o *outletBench) {
			o.lane(1, a)
			o.pass(10_000)
			o.answer(0, 7)
			o.lane(2, b)
			o.lane(3, c)
			o.pass(overdueMinMs)
			o.pong(nil)
		}, "connection 0: 1; connection 0: 2; ping; connection 1: 3"},
		{"the last is for those that share nothing with the overdue", func(o *outletBench) {
			o.lane(1, a|b)
			o.lane(2, a|c)
			o.pass(overdueMinMs)
			o.pong(nil)
			o.lane(3, a)
			o.lane(4, a|b)
			o.lane(5, b|c)
			o.pass(overdueMinMs)
			o.pong(nil)
			o.lane(6, 0)
			o.answer(2, 0)
			o.tell("starved")
			o.answer(0, 7)
		}, "connection 0: 1; ping; connection 1: 2; ping; connection 2: 5; connection 2: 6; starved; connection 0: 3"},
		{"nothing follows its own partition", func(o *outletBench) {
			o.lane(1, a)
			o.lane(101, a)
			o.pass(overdueMinMs)
			o.pong(nil)
			o.lane(2, a)
		}, "connection 0: 1; ping; connection 1: 2"},
		{"apart, one at a time, and for ever", func(o *outletBench) {
			o.lane(1, a)
			o.lane(101, a)
			o.answer(0, 20)
			o.lane(1, a)
			o.lane(2, a)
			o.pass(60_000)
			o.answer(3, 0)
		}, "connection 0: 1; connection 3: 1; connection 0: 2; connection 3: 1"},
		{"no more than so many", func(o *outletBench) {
			for n := range int32(8) {
				o.lane(n, 1<<n)
				o.pass(60_000)
				o.pong(nil)
			}
		}, "connection 0: 0; ping; connection 1: 1; ping; connection 2: 2"},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := newOutletBench()
			x.run(o)
			if got := strings.Join(o.story, "; "); got != x.want {
				t.Errorf("got  %s\nwant %s", got, x.want)
			}
		})
	}
}

func TestFollowers(t *testing.T) {
	for _, c := range []struct {
		leader int32
		inSync []int32
		want   uint64
	}{{0, []int32{0}, 0}, {0, []int32{0, 2}, 1 << 2}, {1, []int32{65, 1, 3}, 1<<1 | 1<<3}, {-1, nil, 0}} {
		if got := followers(c.leader, c.inSync); got != c.want {
			t.Errorf("leader %d, in sync %v: %b, want %b", c.leader, c.inSync, got, c.want)
		}
	}
}
