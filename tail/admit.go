package tail

import "slices"

// Handing out what waits, in order, as far as descriptors go.
//
// At a start all files of a host may wait, and with each look a few of them are handed out for those that readers gave
// back. So a pass walks the queue only until descriptors are out: what is closed behind that stays where it is. Only if
// some of that is open, which needs no other descriptor, the pass goes on to it.

// queued is what is noted of the queue, so that no pass has to walk all of it.
type queued struct {
	fresh    []*File // came since it was put in order
	unsorted bool    // generations of one path may be in it in another order, whether or not any came
	open     []*File // those in it that were open at the last pass, or when they came
}

// pass is one walk through the queue.
type pass struct {
	full, wanted bool
	unpacks      bool    // a file waits for another to be unpacked
	behind       []*File // wait to be unpacked, one at a time for the memory that takes; so do their younger generations
	stays        map[blockPath]bool
}

// enqueue puts f at the end of the queue.
func (w *Watcher) enqueue(f *File) {
	f.src.waiting = true
	w.waiting = append(w.waiting, f)
	w.queued.fresh = append(w.queued.fresh, f)
	if f.fd >= 0 {
		w.queued.open = append(w.queued.open, f)
	}
}

// sortWaiting puts the generations of each path in order, if any of them came or a scan may have shown another order.
func (w *Watcher) sortWaiting() {
	q := &w.queued
	if q.unsorted || slices.ContainsFunc(q.fresh, w.kinWaits) {
		sortKin(w.waiting)
	}
	q.unsorted, q.fresh = false, nil
}

// kinWaits tells whether another generation of f's path is in the queue, or may be: the answer costs no more than to put it in order.
func (w *Watcher) kinWaits(f *File) bool {
	if len(w.kin[f.src.kin]) > len(w.waiting) {
		return true
	}
	for g := range w.kin[f.src.kin] {
		if g != f && g.src.waiting {
			return true
		}
	}
	return false
}

// admit hands out what waits.
func (w *Watcher) admit() {
	w.sortWaiting()
	queue, open := w.waiting, 0
	for _, f := range w.queued.open {
		if f.src.waiting && f.fd >= 0 {
			open++ // twice for one that came twice: then the pass goes on for longer than it needs
		}
	}
	w.waiting, w.queued.open = nil, nil
	p, n := pass{stays: map[blockPath]bool{}}, 0
	for ; n < len(queue) && !(p.full && open == 0); n++ {
		f := queue[n]
		if f.fd >= 0 {
			open = max(0, open-1)
		}
		if f.src.waiting {
			w.admitOne(f, &p)
		}
	}
	for _, f := range w.waiting {
		if f.fd >= 0 {
			w.queued.open = append(w.queued.open, f)
		}
	}
	w.keepBehind(queue, n)
	w.forgetFinished()
	w.unpackWanted.Store(p.unpacks)
	w.wanted.Store(p.wanted || len(w.open) > w.openMax)
	w.stats.waiting.Store(int64(len(w.waiting)))
	w.stats.open.Store(int64(len(w.open)))
	w.stats.unreadable.Store(int64(w.refused.files + len(w.refused.paths) + len(w.refused.known)))
}

// keepBehind puts what stays of the first n of the queue, or came meanwhile, before the rest of it.
func (w *Watcher) keepBehind(queue []*File, n int) {
	if n < len(queue) && len(w.waiting) <= n {
		first := n - copy(queue[n-len(w.waiting):n], w.waiting)
		clear(queue[:first])
		w.waiting = queue[first:]
		return
	}
	w.waiting = append(w.waiting, queue[n:]...)
}

// admitOne hands f out, or lets it wait on.
func (w *Watcher) admitOne(f *File, p *pass) {
	kin := f.src.kin
	if busy := f.src.packed != "" && w.mustWaitForUnpacking(f); busy || p.stays[kin] || w.mustWait(f, kin) || slices.ContainsFunc(p.behind, f.isYounger) {
		if busy {
			p.unpacks = p.unpacks || !w.rests(f)
			p.behind, p.stays[kin] = append(p.behind, f), true
		} else if f.fd < 0 && len(w.open) < w.openMax/2 {
			// Open, it can be read even if it is rotated away and deleted while it waits.
			if f.src.waiting, f = false, w.prepare(f); f == nil {
				return
			}
			f.src.waiting = true
		}
		p.stays[kin] = p.stays[kin] || f.src.missing
		w.waiting = append(w.waiting, f)
		return
	}
	if rests := w.rests(f); f.fd < 0 && (p.full && !rests || !w.mayOpen(f)) {
		p.full, p.wanted, p.stays[kin] = p.full || !rests, p.wanted || !rests, true
		w.waiting = append(w.waiting, f)
		return
	}
	f.src.waiting = false
	before, starved := f, w.starved
	if f = w.prepare(f); f == nil {
		if w.starved != starved {
			before.src.waiting, p.full, p.wanted, p.stays[kin] = true, true, true, true
			w.waiting = append(w.waiting, before)
		}
		return
	}
	w.handOut(f)
}

// handOut gives f, which is open, to a reader.
func (w *Watcher) handOut(f *File) {
	if f.unpack != nil {
		w.unpacking = append(w.unpacking, f)
		f.unpacked.Store(false)
		f.gaveWay.Store(false)
	}
	f.src.out, f.src.checked = true, f.src.st
	f.owes = f.src.owes && f.cut.Load() == nil
	f.src.owes = f.src.owes && !f.owes
	f.readTo.Store(f.cursorOffset())
	f.takenTo.Store(f.cursorOffset())
	w.mayWait(f)
	if f.block.Joins {
		f.follows = w.numberBefore(f)
	}
	f.check.Store(true)
	w.stats.reading.Add(1)
	w.handler.Open(f)
}
