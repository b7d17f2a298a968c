package pipeline

import (
	"cmp"
	"slices"
	"time"

	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// When a reader ends a batch, and what it hands over with it.

// room makes the lane's builder take one more record of n bytes: with a larger
// buffer, or with an empty one after the full batch was handed over or set
// aside. False: the budget has nothing left; it will tell.
func (r *reader) room(of *openFile, ol *openLane, n int) bool {
	most := ol.full(r.source(of).room, n)
	need := ol.builder.Bytes() + n + kafka.RecordOverheadMax
	if need > most || ol.builder.Count() == kafka.RecordsMax {
		if of.feed.keyed != nil {
			r.setAside(of.feed, ol)
		} else {
			r.sealFull(of)
		}
		need = n + kafka.RecordOverheadMax
	}
	want := min(most, max(need, ol.size, 4*cap(ol.raw), bufferBytesMin))
	if k := of.feed.keyed; k != nil && of.feed.held+heldBytes(want) > k.heldMax && r.close(of) {
		need = n + kafka.RecordOverheadMax
		want = min(most, max(need, ol.size, bufferBytesMin))
	}
	if r.grow(of.feed, ol, want, most) {
		return true
	}
	// An empty batch had better wait for a buffer of the size that its lane needs:
	// a small one would be outgrown at once, and take the place of a large one that
	// is kept, which is allocated anew when all is back.
	patient := ol.raw == nil && of.feed.keyed == nil && r.budget.flows(of.feed.block)
	if want > need && !patient && r.grow(of.feed, ol, need, most) {
		return true
	}
	// Nothing left: what this reader holds is part of the reason. It reads on
	// when there is room for a full batch, not for every buffer given back.
	r.stats.blocked.Add(1)
	r.short[of.feed.block] = min(batchMemory(most), r.budget.total/2)
	r.markCursor(of)
	r.seal(r.open)
	return false
}

// markCursor lists a file whose lines are in the open batch before its turn
// ends, so that they are handed over together.
func (r *reader) markCursor(of *openFile) {
	if _, c := of.f.Place(); c != of.cursor {
		r.touch(of, time.Now())
	}
}

func (r *reader) sealFull(of *openFile) {
	if !r.close(of) {
		panic("BUG: a full batch holds no line of a file whose cursor moved")
	}
}

// close hands over what the file's feed holds. False: it holds no record.
func (r *reader) close(of *openFile) bool {
	r.markCursor(of)
	if of.feed.listed {
		r.seal([]*feed{of.feed})
		return true
	}
	return false
}

// sealCrowd ends a group that so many files have fed that the entries of one
// more might not fit into it.
func (r *reader) sealCrowd(f *feed) {
	if f.entriesBytes > r.entriesMax(f) {
		r.seal([]*feed{f})
	}
}

// entriesMax is how many bytes of entries leave room for one more file's beside
// all batches that the feed may hold.
func (r *reader) entriesMax(f *feed) int64 {
	x := r.cfg.Sources[f.block].room
	if f.keyed != nil {
		return r.groupMax - groupOverheadBytes - max(f.keyed.heldMax, heldBytes(x.batchMax)) - pathBytesMax
	}
	return x.entriesBytes() - pathBytesMax
}

// grow moves the open batch into a buffer for size bytes, with room beside it
// for the compressed records, so that sealing never has to wait. Buffers come in
// powers of two; a batch never uses more than most of one.
func (r *reader) grow(f *feed, ol *openLane, size, most int) bool {
	room := min(int(bufferBytes(bufferClass(size))), most)
	raw, out := r.budget.pair(ol.block, size, kafka.SealBytesMax(room))
	if raw == nil {
		return false
	}
	if ol.raw == nil {
		f.filling = append(f.filling, ol)
	}
	f.held += heldBytes(room) - ol.held
	ol.held = heldBytes(room)
	ol.builder.Grow(raw[:0:room])
	r.budget.give(ol.block, ol.raw)
	r.budget.give(ol.block, ol.out)
	ol.raw, ol.out = raw, out
	return true
}

// deadline is the feed's first linger tick behind since. Ticks are multiples
// since the process started, so that slow lanes become durable together.
func (r *reader) deadline(f *feed) time.Time {
	linger := r.cfg.Sources[f.block].Linger
	return r.start.Add((f.since.Sub(r.start)/linger + 1) * linger)
}

// due says whether what the feed holds must be handed over now. While sealed
// batches wait to be sent, another small one would only make the backlog slow:
// its bytes are safe in their files, unless a file is about to go, or others wait
// for the descriptors of those that are read to their end. Cursors alone, of files
// with nothing to ship, can wait as long.
func (r *reader) due(f *feed, now time.Time) bool {
	if now.Before(r.deadline(f)) {
		return false
	}
	if now.Sub(f.since) >= fillLingerMax || f.hasIdleLane() || f.keyed != nil && f.keyed.n == 0 {
		return true
	}
	for _, of := range f.dirty {
		if of.hurry || !of.known || !of.more && of.f.Wanted() {
			return true
		}
	}
	return false
}

func (r *reader) sealDue(now time.Time) {
	var due []*feed
	for _, f := range r.open {
		if r.due(f, now) {
			due = append(due, f)
		}
	}
	r.seal(due)
}

// untilDue is how long the reader may sleep.
func (r *reader) untilDue(now time.Time) time.Duration {
	wait := pollInterval
	for _, f := range r.open {
		d := r.deadline(f).Sub(now)
		if d <= 0 { // put off: at the next tick
			linger := r.cfg.Sources[f.block].Linger
			d = linger - now.Sub(r.start)%linger
		}
		wait = min(wait, d)
	}
	for _, of := range r.files {
		if !of.paused.IsZero() && !r.stop[of.feed.block] {
			wait = min(wait, of.paused.Sub(now))
		}
		if now.Before(of.due) {
			wait = min(wait, of.due.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// seal hands over the open batches of these feeds, and the cursors of all files
// with a line in them, in as few groups as the spool takes. A group is of one
// block: blocks have room or none each by itself.
func (r *reader) seal(feeds []*feed) {
	if len(feeds) == 0 {
		return
	}
	slices.SortStableFunc(feeds, func(a, b *feed) int { return cmp.Compare(a.block, b.block) })
	g := &group{block: feeds[0].block}
	for _, f := range feeds {
		bytes := groupOverheadBytes + f.batchesBytes() + f.entriesBytes
		if g.bytes > 0 && (g.bytes+bytes > r.cfg.Sources[f.block].room.shareMax || g.block != f.block) {
			r.hand(g)
			g = &group{block: f.block}
		}
		g.bytes += bytes
		r.sealFeed(g, f)
	}
	r.hand(g)
	kept := r.open[:0]
	for _, f := range r.open {
		if f.listed {
			kept = append(kept, f)
		}
	}
	clear(r.open[len(kept):])
	r.open = kept
}

func (r *reader) sealFeed(g *group, f *feed) {
	f.addLanes(g, r.cfg.Sources[f.block].Name)
	for _, ol := range f.filling {
		r.sealLane(f, ol)
	}
	for _, b := range f.aside {
		g.records += uint64(b.count)
	}
	g.batches = append(g.batches, f.aside...)
	clear(f.filling)
	clear(f.aside)
	f.filling, f.aside, f.held = f.filling[:0], f.aside[:0], 0
	for _, of := range f.dirty {
		r.addCursor(g, of)
	}
	clear(f.dirty)
	f.dirty, f.entriesBytes, f.listed = f.dirty[:0], 0, false
}

// setAside ends a lane's open batch before its group is closed.
func (r *reader) setAside(f *feed, ol *openLane) {
	i := slices.Index(f.filling, ol)
	f.filling = slices.Delete(f.filling, i, i+1)
	f.held += heldBytes(ol.builder.Bytes()) - ol.held
	r.sealLane(f, ol)
}

// sealLane ends the lane's open batch and puts it into the hands of a
// compressor.
func (r *reader) sealLane(f *feed, ol *openLane) {
	if n := ol.builder.Count(); n > 0 {
		b := &batch{lane: ol.lane, first: ol.next, count: n, bytesMax: heldBytes(ol.builder.Bytes()), codec: r.cfg.Sources[f.block].codec, records: ol.builder, raw: ol.raw, out: ol.out, ready: make(chan struct{})}
		ol.size = ol.builder.Bytes()
		ol.next += uint64(n)
		ol.sealed = ol.next
		f.aside = append(f.aside, b)
		select {
		case r.work <- b:
		case <-r.dead:
		}
	} else {
		r.budget.give(ol.block, ol.raw)
		r.budget.give(ol.block, ol.out)
	}
	ol.builder, ol.raw, ol.out, ol.held = kafka.Builder{}, nil, nil, 0
}

func (r *reader) addCursor(g *group, of *openFile) {
	f, id := of.f, of.f.ID()
	if f.EntryChanged() || !of.known || of.moved {
		g.commit.Sources = append(g.commit.Sources, spoolSource(f, of.feed.home.id))
		of.known, of.moved = true, false
	}
	_, of.cursor = f.Place()
	of.dirty, of.hurry = false, false
	at := f.Cursor().Offset
	of.reached = at
	if of.endSpan(); len(of.spans) > 0 {
		g.spans = append(g.spans, of.spans...)
		of.spans = of.spans[:0]
	}
	of.base, of.reached = at, at
	g.commit.Cursors = append(g.commit.Cursors, spoolCursor(id, of.cursor))
}

func spoolSource(f *tail.File, lane uint32) spool.Source {
	fp, _ := f.Place()
	return spool.Source{ID: f.ID(), Block: f.Block(), Path: f.Path(), Lane: lane,
		Dev: fp.Dev, Ino: fp.Ino, Born: fp.Born, Prefix: fp.Prefix, PrefixBytes: fp.PrefixBytes}
}

func spoolCursor(id uint64, c tail.Cursor) spool.Cursor {
	part := c.Part
	if c.State == tail.Fresh {
		part = c.Note // no line begins with a part then: there is room
	}
	return spool.Cursor{Source: id, Offset: c.Offset, Anchor: c.Anchor, AnchorBytes: c.AnchorBytes, State: spool.LineState(c.State), Part: part}
}

// hand gives a group to the committer. It waits while the spool takes no more.
func (r *reader) hand(g *group) {
	select {
	case r.groups <- g:
	case <-r.dead:
	}
}
