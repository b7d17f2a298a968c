package pipeline

import (
	"time"

	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// When a reader ends a batch, and what it hands over with it.

// room makes the lane's builder take one more record of n bytes: with a larger
// buffer, or with an empty one after the full batch was handed over. False: the
// budget has nothing left; it will tell.
func (r *reader) room(of *openFile, n int) bool {
	ol := of.lane
	most := batchBytes(r.source(of).LineBytesMax, r.groupMax)
	need := ol.builder.Bytes() + n + kafka.RecordOverheadMax
	if need > most || ol.builder.Count() == kafka.RecordsMax {
		r.sealFull(of)
		need = n + kafka.RecordOverheadMax
	}
	want := min(most, max(need, ol.size, 4*cap(ol.raw), bufferBytesMin))
	if r.grow(ol, want, most) || want > need && r.grow(ol, need, most) {
		return true
	}
	// Nothing left: what this reader holds is part of the reason. It reads on
	// when there is room for a full batch, not for every buffer given back.
	r.stats.blocked.Add(1)
	r.short = min(batchMemory(most), r.budget.total/2)
	r.markCursor(of)
	r.seal(r.open)
	return false
}

// markCursor lists a file whose lines are in the open batch before its turn
// ends, so that they are handed over together.
func (r *reader) markCursor(of *openFile) {
	if of.f.Cursor() != of.cursor {
		r.touch(of, time.Now())
	}
}

func (r *reader) sealFull(of *openFile) {
	r.markCursor(of)
	if !of.lane.listed {
		panic("BUG: a full batch holds no line of a file whose cursor moved")
	}
	r.seal([]*openLane{of.lane})
}

// sealCrowd ends a batch that so many files have fed that the entries of one
// more might not fit into its group.
func (r *reader) sealCrowd(ol *openLane) {
	if ol.filesBytes > filesBytes(r.cfg.Sources[ol.block].LineBytesMax, r.groupMax)-pathBytesMax {
		r.seal([]*openLane{ol})
	}
}

// grow moves the open batch into a buffer for size bytes, with room beside it
// for the compressed records, so that sealing never has to wait. Buffers come in
// powers of two; a batch never uses more than most of one.
func (r *reader) grow(ol *openLane, size, most int) bool {
	raw := r.budget.take(size)
	if raw == nil {
		return false
	}
	room := min(cap(raw), most)
	out := r.budget.take(kafka.SealBytesMax(room))
	if out == nil {
		r.budget.give(raw)
		return false
	}
	ol.builder.Grow(raw[:0:room])
	r.budget.give(ol.raw)
	r.budget.give(ol.out)
	ol.raw, ol.out = raw, out
	return true
}

// deadline is the lane's first linger tick behind since. Ticks are multiples
// since the process started, so that slow lanes become durable together.
func (r *reader) deadline(ol *openLane) time.Time {
	linger := r.cfg.Sources[ol.block].Linger
	return r.start.Add((ol.since.Sub(r.start)/linger + 1) * linger)
}

// due says whether the lane's batch must be handed over now. While sealed
// batches of the lane wait to be sent, another small one would only make the
// backlog slow: its bytes are safe in their files, unless a file is about to
// go. Cursors alone, of files with nothing to ship, can wait as long.
func (r *reader) due(ol *openLane, now time.Time) bool {
	if now.Before(r.deadline(ol)) {
		return false
	}
	if now.Sub(ol.since) >= fillLingerMax {
		return true
	}
	if ol.builder.Count() > 0 && ol.sealed <= ol.sentNext.Load() {
		return true
	}
	for _, of := range ol.dirty {
		if of.hurry || !of.known {
			return true
		}
	}
	return false
}

func (r *reader) sealDue(now time.Time) {
	var due []*openLane
	for _, ol := range r.open {
		if r.due(ol, now) {
			due = append(due, ol)
		}
	}
	r.seal(due)
}

// untilDue is how long the reader may sleep.
func (r *reader) untilDue(now time.Time) time.Duration {
	wait := pollInterval
	for _, ol := range r.open {
		d := r.deadline(ol).Sub(now)
		if d <= 0 { // put off: at the next tick
			linger := r.cfg.Sources[ol.block].Linger
			d = linger - now.Sub(r.start)%linger
		}
		wait = min(wait, d)
	}
	return max(wait, time.Millisecond)
}

// seal hands over the open batches of these lanes, and the cursors of all files
// with a line in them, in as few groups as the spool takes.
func (r *reader) seal(lanes []*openLane) {
	if len(lanes) == 0 {
		return
	}
	g := &group{}
	for _, ol := range lanes {
		bytes := groupOverheadBytes + int64(kafka.SealBytesMax(ol.builder.Bytes())) + ol.filesBytes
		if g.bytes > 0 && g.bytes+bytes > r.groupMax {
			r.hand(g)
			g = &group{}
		}
		g.bytes += bytes
		r.sealLane(g, ol)
	}
	r.hand(g)
	kept := r.open[:0]
	for _, ol := range r.open {
		if ol.listed {
			kept = append(kept, ol)
		}
	}
	clear(r.open[len(kept):])
	r.open = kept
}

func (r *reader) sealLane(g *group, ol *openLane) {
	if !ol.known {
		ol.known = true
		g.lanes = append(g.lanes, ol.lane)
		g.commit.Lanes = append(g.commit.Lanes, spool.Lane{ID: ol.id, Block: r.cfg.Sources[ol.block].Name, Topic: ol.topic, Slot: ol.slot})
	}
	if n := ol.builder.Count(); n > 0 {
		b := &batch{lane: ol.lane, first: ol.next, records: ol.builder, raw: ol.raw, out: ol.out, ready: make(chan struct{})}
		ol.size = ol.builder.Bytes()
		ol.next += uint64(n)
		ol.sealed = ol.next
		g.batches = append(g.batches, b)
		g.records += uint64(n)
	} else {
		r.budget.give(ol.raw)
		r.budget.give(ol.out)
	}
	ol.builder, ol.raw, ol.out = kafka.Builder{}, nil, nil
	for _, of := range ol.dirty {
		r.addCursor(g, of)
	}
	clear(ol.dirty)
	ol.dirty, ol.filesBytes, ol.listed = ol.dirty[:0], 0, false
}

func (r *reader) addCursor(g *group, of *openFile) {
	f, id := of.f, of.f.ID()
	if f.FingerprintChanged() || !of.known {
		fp := f.Fingerprint()
		g.commit.Sources = append(g.commit.Sources, spool.Source{ID: id, Block: f.Block(), Path: f.Path(), Lane: of.lane.id,
			Dev: fp.Dev, Ino: fp.Ino, Born: fp.Born, Prefix: fp.Prefix, PrefixBytes: fp.PrefixBytes})
		of.known = true
	}
	of.cursor, of.dirty, of.hurry = f.Cursor(), false, false
	g.commit.Cursors = append(g.commit.Cursors, spoolCursor(id, of.cursor))
}

func spoolCursor(id uint64, c tail.Cursor) spool.Cursor {
	return spool.Cursor{Source: id, Offset: c.Offset, Anchor: c.Anchor, AnchorBytes: c.AnchorBytes, State: spool.LineState(c.State), Part: c.Part}
}

// hand gives a group to the committer, and its batches to the compressors
// first. It waits while the spool takes no more.
func (r *reader) hand(g *group) {
	for _, b := range g.batches {
		select {
		case r.work <- b:
		case <-r.dead:
			return
		}
	}
	select {
	case r.groups <- g:
	case <-r.dead:
	}
}
