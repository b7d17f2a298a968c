package record

import (
	"sync/atomic"
	"time"
)

// limit is the rate limit of a source: what all its files together may send in a second. Its readers take from it at once,
// so it is made of atomics, and a file takes a quantum at a time: per record nothing is shared.
//
// when_above: pause. A file that finds nothing left takes its quantum of what comes next, and waits for it. So files take
// turns in the order in which they asked, and none can be kept waiting by one that asks more often.
//
// when_above: drop. There is no waiting, so whoever comes first would have all. A file that takes no more than the limit
// divided by the files that write may empty the bucket; one that takes more must leave half of it.
type limit struct {
	lines, bytes bucket
	drops        bool
	start        atomic.Pointer[time.Time] // of its time, which does not step with the clock
	writing      atomic.Uint64             // files: second<<32 | in the one before<<16 | in this one
}

// bucket holds what may be sent within a second, as a point in time: what it holds is the time from there to now.
type bucket struct {
	each    float64 // ns between two tokens; 0: no limit
	quantum int64   // tokens
	next    atomic.Int64
}

const (
	limitSecond  = int64(time.Second)
	limitQuantum = limitSecond / 50
	limitKept    = limitSecond / 2 // for files below their part, when_above: drop
	limitFair    = limitSecond / 4 // how much of its part a file may save
)

func newLimit(c *Filter) *limit {
	if c.LinesPerSecond <= 0 && c.BytesPerSecond <= 0 {
		return nil
	}
	l := &limit{drops: c.LimitDrops}
	l.lines.init(c.LinesPerSecond)
	l.bytes.init(c.BytesPerSecond)
	return l
}

func (l *limit) begin(now time.Time) *time.Time {
	l.start.CompareAndSwap(nil, &now)
	return l.start.Load()
}

func (b *bucket) init(perSecond float64) {
	if perSecond > 0 {
		b.each = float64(limitSecond) / perSecond
		b.quantum = max(1, int64(float64(limitQuantum)/b.each))
		b.next.Store(-limitSecond)
	}
}

func (b *bucket) cost(tokens int64) int64 { return int64(float64(tokens) * b.each) }

// from is where the next quantum begins: no more than a second's worth is saved.
func (b *bucket) from(next, now int64) int64 {
	return max(next, now-max(0, limitSecond-b.cost(b.quantum)))
}

// take takes a quantum, which is there at the time it returns.
func (b *bucket) take(now int64) (at int64) {
	for {
		next := b.next.Load()
		at = b.from(next, now)
		if b.next.CompareAndSwap(next, at+b.cost(b.quantum)) {
			return at
		}
	}
}

// has tells whether a quantum is there, beside what must stay.
func (b *bucket) has(now, stays int64) bool {
	return b.each == 0 || b.from(b.next.Load(), now) <= now-stays
}

// grant is what a file has of its source's limit.
type grant struct {
	lines, bytes int64 // left of what it took
	at           int64 // when that is there
	part         int64 // when_above: drop; when the next quantum of its part of the limit is there
	ofPart       int64 // when_above: drop; ns of its part that what it took last was
	second       int64 // when_above: drop; the one after that in which it was counted last
}

// wait is how long the next record must wait. when_above: drop does not wait; the answer then only says that it must.
func (g *grant) wait(l *limit, now time.Time) time.Duration {
	start := l.start.Load()
	if start == nil {
		start = l.begin(now)
	}
	t := max(0, int64(now.Sub(*start)))
	if l.drops {
		g.count(l, t)
	}
	lines, bytes := l.lines.each > 0 && g.lines <= 0, l.bytes.each > 0 && g.bytes <= 0
	if lines || bytes {
		if l.drops && !g.may(l, t, lines, bytes) {
			return 1
		}
		if lines {
			g.at = max(g.at, l.lines.take(t))
			g.lines += l.lines.quantum
		}
		if bytes {
			g.at = max(g.at, l.bytes.take(t))
			g.bytes += l.bytes.quantum
		}
	}
	if g.at <= t || l.drops { // another file may have been quicker by a quantum
		return 0
	}
	return time.Duration(g.at - t)
}

// may tells whether a file may take a quantum now, of lines, of bytes or of both.
func (g *grant) may(l *limit, now int64, lines, bytes bool) bool {
	cost := int64(0)
	if lines {
		cost = l.lines.cost(l.lines.quantum)
	}
	if bytes {
		cost = max(cost, l.bytes.cost(l.bytes.quantum))
	}
	w := l.writing.Load()
	files := int64(max(1, w>>16&0xffff, w&0xffff))
	part, stays := max(g.part, now-limitFair), limitKept
	if part+files*cost <= now || files == 1 {
		stays = 0
	}
	if lines && !l.lines.has(now, stays) || bytes && !l.bytes.has(now, stays) {
		return false
	}
	if g.ofPart = 0; stays == 0 {
		g.ofPart = files * cost
		g.part = part + g.ofPart
	}
	return true
}

// count counts the file among those that write, once a second.
func (g *grant) count(l *limit, now int64) {
	second := now/limitSecond + 1
	if g.second == second {
		return
	}
	g.second = second
	for {
		w := l.writing.Load()
		at, before, n := int64(w>>32), w>>16&0xffff, w&0xffff
		switch {
		case at+1 == second:
			before, n = n, 0
		case at < second:
			before, n = 0, 0
		}
		if l.writing.CompareAndSwap(w, uint64(max(at, second))<<32|before<<16|min(n+1, 0xffff)) {
			return
		}
	}
}

// spend takes one record of n bytes. One that is larger than a quantum is paid for at once.
func (g *grant) spend(l *limit, n int) {
	g.lines--
	if g.bytes -= int64(n); g.bytes < 0 && l.bytes.each > 0 {
		l.bytes.next.Add(-l.bytes.cost(g.bytes))
		g.bytes = 0
	}
}

// giveBack gives back what is left.
func (g *grant) giveBack(l *limit) {
	left := min(l.lines.giveBack(&g.lines), l.bytes.giveBack(&g.bytes))
	g.part -= int64(left * float64(g.ofPart))
	g.ofPart = 0
}

// giveBack returns how much of a quantum it was.
func (b *bucket) giveBack(tokens *int64) (share float64) {
	if b.each == 0 {
		return 1
	}
	n := max(0, *tokens)
	*tokens = 0
	b.next.Add(-b.cost(n))
	return min(1, float64(n)/float64(b.quantum))
}
