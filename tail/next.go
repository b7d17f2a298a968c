package tail

// Which generation of a path comes right behind which. A receiver asks that makes one record of lines on both sides of a rotation.

import "slices"

// Follows tells whether f took the place of older, and nothing is known to have been written in between: no generation that is
// lost, that may not be read or that is not found yet. Only of blocks with Joins.
func (f *File) Follows(older *File) bool { return f.follows != 0 && f.follows == older.ID() }

// Grew tells whether the file may have grown since a Fill that said EOF.
func (f *File) Grew() bool {
	if f.unpack != nil {
		return false
	}
	st, err := statFD(f.fd)
	return err != nil || st.size > f.sizeSeen
}

// LastLineEnds tells whether the unfinished last line has its end, though no newline: nobody writes to a copy that is unpacked.
func (f *File) LastLineEnds() bool { return f.Ended() && f.Pending() > 0 }

// Ended tells whether all of a compressed copy was handed out or is filled: nothing follows.
func (f *File) Ended() bool { return f.unpack != nil && f.unpack.ended }

// EndMissing tells that a compressed copy can be read only so far: it is damaged or ends in the middle.
func (f *File) EndMissing() bool { return f.unpack != nil && (f.unpack.torn || f.unpack.damage != nil) }

// numberBefore is the number of the generation right before f; 0: there is none, or it is not sure.
func (w *Watcher) numberBefore(f *File) uint64 {
	var last *File
	meet := func(g *File) {
		if g != f && g.src.skip == "" && g.before(f) && (last == nil || last.before(g)) {
			last = g
		}
	}
	for g := range w.kin[f.src.kin] {
		meet(g)
	}
	for _, g := range w.strayKin[f.src.kin] {
		if w.isStray(g) {
			meet(g)
		}
	}
	if last == nil || last.src.restOf == f || !w.tookPlace(last, f) {
		return 0
	}
	return last.ID()
}

// tookPlace tells whether f is written, or was, where old was before it was moved away. Files that are only numbered, as worker-1
// and worker-2, are written to side by side; so may be the logs of two runs, 0.log and 1.log, to which one symlink leads in turn.
func (w *Watcher) tookPlace(old, f *File) bool {
	live := f.src.kin.path
	moved := old.src.missing || old.Path() != live
	came := f.Path() == live || f.Path() == old.Path() || w.inPlace(f.src.kin) != nil
	a, b := stemOf(old.name()), stemOf(f.name())
	return moved && came && (a == b || generationName(b, a) || generationName(a, b))
}

// tellUnpacked lets the next copy be unpacked: of this one all that is left to hand out is in memory.
func (f *File) tellUnpacked() {
	u := f.unpack
	if u == nil || !u.ended || f.unpacked.Swap(true) {
		return
	}
	u.close()
	u.in, u.gz, u.zst, u.out = nil, nil, nil, nil
	f.w.unpacks.CompareAndSwap(f, nil)
	f.w.wakeUp()
}

// mayUnpack tells whether f is no copy that is unpacked, or the one that may be now.
func (f *File) mayUnpack() bool {
	switch {
	case f.unpack == nil || f.unpacked.Load():
		return true
	case f.w.unpacks.Load() == f || f.w.unpacks.CompareAndSwap(nil, f):
		f.gaveWay.Store(false)
		return true
	}
	f.w.unpackWanted.Store(true)
	return false
}

// Unpacks tells whether f is a copy in the middle, or at the start, of being unpacked.
func (f *File) Unpacks() bool { return f.unpack != nil && !f.unpacked.Load() }

// GiveWay is for a copy that Unpacks and of which nothing may be read for long: if others wait to be unpacked, they are. Its next Fill
// asks for its turn again, and unpacks what is before its place once more.
func (f *File) GiveWay() {
	u := f.unpack
	if !f.w.unpackWanted.Load() || f.gaveWay.Load() || u.other || u.torn || u.damage != nil {
		return
	}
	f.cur, f.fp = f.Cursor(), f.Fingerprint()
	f.rd = nil
	u.close()
	*u = *newUnpacker(u.fd, u.kind)
	f.gaveWay.Store(true)
	f.w.unpacks.CompareAndSwap(f, nil)
	f.w.wakeUp()
}

func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// mustWaitForUnpacking tells whether a copy is in a receiver's hands and to be unpacked that f must wait for; not for a younger
// generation of its path, which was handed out before f was found and waits for it. A receiver may hold one back for as long as the
// record before it has no end; so f does not wait if it is what the end of another one's last record may be in.
func (w *Watcher) mustWaitForUnpacking(f *File) bool {
	busy, isNext := false, false
	for _, g := range w.unpacking {
		switch same := g.src.kin == f.src.kin; {
		case !g.unpacked.Load():
			busy = busy || !same && !g.gaveWay.Load() || same && !f.before(g)
		case same && f.block.Joins:
			isNext = isNext || w.numberBefore(f) == g.ID()
		}
	}
	return busy && !isNext
}

// settleUnpacked is for copies whose content was found to be that of their source: younger generations need not wait until their
// last record is whole, since that may end in one of these.
func (w *Watcher) settleUnpacked() {
	for _, f := range w.unpacking {
		if f.unpacked.Load() {
			w.settleYounger(f)
		}
	}
}

// endUnpacking is for a copy that a reader gave back: others may be unpacked now, also while it waits.
func (w *Watcher) endUnpacking(f *File) {
	if f.unpack == nil {
		return
	}
	w.unpacking = slices.DeleteFunc(w.unpacking, func(u *File) bool { return u == f })
	if f.unpacked.Load() {
		w.settleYounger(f)
	}
}

// unpackAgain is for a copy that stays open and was not read to its end: it waits for its turn without the memory that unpacking takes.
func (f *File) unpackAgain() {
	if f.unpack == nil {
		return
	}
	f.cur, f.fp = f.Cursor(), f.Fingerprint()
	f.unpack.close()
	f.rd, f.unpack = nil, newUnpacker(f.fd, f.src.packed)
}

// settleYounger looks for the generations behind a copy, once it is known to be that of its source.
func (w *Watcher) settleYounger(f *File) {
	if s := &f.src; s.younger {
		s.younger = false
		w.unsettle(blockPath{s.key.block, f.Path()}, s.age)
		w.lookAgain[s.kin] = true // nothing is handed out before that was done
	}
}
