package tail

// Generations that were delivered and of which a compressed file is left. What is in such a file is not inferred from times and names,
// which many programs that compress do not keep: the source stays known, as that file, as long as that is there.
//
//	bound   what was read to its end, and its copy: a file that begins like it and says that it holds as many bytes. It is
//	        followed by its inode, not opened, and not unpacked; after a start it is found by its head and size again.
//	free    when the file is gone, or when deliveredPathMax younger ones of the path are bound.
//
// So an unseen generation is a file that no known one is bound to, whatever its times are. Copies that agree in head and size are
// told apart by their last bytes, which means to unpack them (copies.go); so is, after a start, the copy of a file that may not have
// been read to its end, if another begins like it. A crash leaves the spool's entry as it was when the file was read: of one that was
// not compressed then, with the inode that is gone.

import (
	"slices"
	"time"
)

const (
	deliveredPathMax = 64      // of one path
	deliveredMax     = 100_000 // of all
)

// sizeIn is how many bytes a sibling whose head was read holds, if it is compressed.
func (w *Watcher) sizeIn(sib sibling) unpackedSize {
	return w.peeks[key{0, sib.st.dev, sib.st.ino}].size
}

// keepDelivered binds f, which is gone and was read to its end, to the compressed file that holds it, if there is one.
func (w *Watcher) keepDelivered(f *File) bool {
	s := &f.src
	switch {
	case s.delivered || f.ID() == 0:
		return s.delivered
	case s.packed != "":
		w.closeFile(f)
		w.bound(f)
		return true
	case s.st.born == 0 || f.unread(s.st.size) > 0: // where creation times are unknown nothing is taken for unseen
		return false
	}
	f.fp = f.Fingerprint()
	switch c, n := w.wholeCopy(f); {
	case n == 0:
		return false
	case s.st.size > 0 && (n == 1 && (c.whole || c.early) || sameWrite(s.st.mtime, c.st.mtime)):
		w.bind(f, c)
	default: // its last bytes tell; of an empty one nothing does but that its copy was read, which the spool is to know
		w.closeFile(f)
		delete(w.sources, s.key)
		w.enterCopy(f, c)
		s.younger = s.st.size > 0
		w.queue(f)
	}
	return true
}

// bindUnwanted looks for the copy of a file of the spool that is not read on, since no pattern finds it any more. It may be a generation of
// one that is: a copy that a log was copied to before it was truncated, and that was found as a file of its own.
func (w *Watcher) bindUnwanted(f *File) {
	if w.scans > 1 && w.walker.asBefore(parent(f.Path())) || f.fp.Born == 0 {
		return
	}
	if st, err := statPath(f.Path()); err == nil && st.dev == f.fp.Dev && st.ino == f.fp.Ino {
		return
	}
	if c, ok := w.findCopy(f.src.key.block, f.Path(), f.fp, f.cur, copyBytesMin, f.src.not); ok && c.whole && c.sure {
		f.src.unwanted = false
		w.unstray(f)
		w.bind(f, c)
	}
}

// heldElsewhere tells whether a compressed file beside a path holds what was read of a file that has other kin: a pattern found that under
// the name of a rotation before it was compressed.
func (w *Watcher) heldElsewhere(at blockPath, sib sibling, head []byte) bool {
	dir, names, holds := parent(sib.path), w.namesOf(at.path), w.sizeIn(sib)
	isOf := func(g *File) bool {
		s := &g.src
		if s.key.block != at.block || s.packed != "" || s.kin == kinOf(at) || parent(g.Path()) != dir || !namedAfter(names, g.Path(), rotatedName) {
			return false
		}
		size := s.st.size
		if s.st.mode == 0 { // nobody looked at it
			size = g.cur.Offset
		}
		return holds.is(size) && g.offsetSeen() > 0 && !slices.Contains(s.not, key{at.block, sib.st.dev, sib.st.ino}) && w.isCopyOf(g, sib, head)
	}
	for _, g := range w.sources {
		if isOf(g) {
			return true
		}
	}
	for _, list := range w.strays {
		if slices.ContainsFunc(list, isOf) {
			return true
		}
	}
	return false
}

// wholeCopy looks for the compressed file that holds f, all of which was read, and tells how many it may be, with those that do not
// tell how much they hold. Of an empty one it is the
// oldest that was made since and holds nothing.
func (w *Watcher) wholeCopy(f *File) (best copyFound, n int) {
	names, dirs := w.namesOfKin(f)
	for _, dir := range dirs {
		for _, sib := range w.siblingsNamed(dir, names) {
			k := key{f.src.key.block, sib.st.dev, sib.st.ino}
			if !namedAfter(names, sib.path, rotatedName) || slices.Contains(f.src.not, k) || w.excluded[key{0, k.dev, k.ino}] {
				continue
			}
			if g := w.sourceOf(k.block, &sib.st); g != nil && g.isKnown() {
				continue
			}
			head, kind := w.headOf(sib)
			holds := w.sizeIn(sib)
			whole, early := holds.is(f.src.st.size), holds.mask != 0 && holds.n < uint64(f.src.st.size) && isEarly(&sib.st, &f.src.st)
			switch isEmpty := f.src.st.size == 0; {
			case kind == "", !isEmpty && (!beginsLike(head, f.fp) || !whole && !early && holds.mask != 0):
				continue
			case isEmpty && (!w.holdsNothing(sib) || sib.st.born < f.src.st.born || n > 0 && byDate(sib.path, best.at) > 0):
				continue
			}
			if n++; n == 1 || sameWrite(f.src.st.mtime, sib.st.mtime) {
				best = copyFound{found: found{candidate{block: k.block, path: f.Path()}, k, sib.st}, at: sib.path, kind: kind, sure: true, whole: whole, early: early}
			}
		}
	}
	return best, n
}

// bind makes f the source of c, which holds it and is not read.
func (w *Watcher) bind(f *File, c copyFound) {
	w.closeFile(f)
	if w.sources[f.src.key] == f {
		delete(w.sources, f.src.key)
	}
	w.takeCopy(f, c)
	f.src.checked = f.src.st
	w.bound(f)
	w.log.Debug("generation was delivered: its copy is known", "path", f.Path(), "copy", c.at, "source", f.ID())
}

// bound notes that the file that f is holds it.
func (w *Watcher) bound(f *File) {
	s := &f.src
	s.finished, s.delivered, s.left, s.younger, s.lostSince = true, true, true, false, time.Time{}
	w.delivered++
	w.recount = true
	n, oldest := 0, f
	for g := range w.kin[s.kin] {
		if g.src.delivered {
			n++
			if g.turn() < oldest.turn() {
				oldest = g
			}
		}
	}
	if n > deliveredPathMax || w.delivered > deliveredMax {
		w.retire(oldest)
	}
}

// followDelivered looks whether the file that f is bound to is still there, under whatever name.
func (w *Watcher) followDelivered(f *File) {
	s := &f.src
	if st, err := statPath(s.at); err == nil && s.st.is(&st) {
		s.lostSince = time.Time{}
		return
	}
	if sib, ok := w.elsewhere(f); ok {
		s.at, s.lostSince = sib.path, time.Time{}
		return
	}
	switch now := w.now(); {
	case s.lostSince.IsZero():
		s.lostSince = now // while names are moved it may be met under none
	case w.scanning && now.Sub(s.lostSince) >= 2*w.scanGap && !w.hidden(f):
		if !w.needed(f) { // or a start would take younger ones of which nothing was read yet for ones that were there before
			w.retire(f)
		}
		return
	}
	w.rescan = true
}

// madeInTime tells whether a copy made at born is older than the second generation behind f, as one of a generation behind it that
// nobody knows is not.
func (w *Watcher) madeInTime(f *File, born int64) bool {
	var next, second int64
	meet := func(made int64) {
		switch {
		case made <= f.fp.Born || made == next:
		case next == 0 || made < next:
			next, second = made, next
		case second == 0 || made < second:
			second = made
		}
	}
	for g := range w.kin[f.src.kin] {
		meet(g.made())
	}
	for _, g := range w.strayKin[f.src.kin] {
		if w.isStray(g) {
			meet(g.fp.Born)
		}
	}
	return born < second
}

// isFollowed tells whether a generation behind f was read from: so f was read to its end before.
func (w *Watcher) isFollowed(f *File) bool {
	isBehind := func(g *File) bool {
		return g != f && g.ID() > f.ID() && g.src.key.block == f.src.key.block && g.offsetSeen() > 0 && f.made() > 0 && g.made() >= f.made()
	}
	for g := range w.kin[f.src.kin] {
		if isBehind(g) {
			return true
		}
	}
	return slices.ContainsFunc(w.strayKin[f.src.kin], func(g *File) bool { return w.isStray(g) && isBehind(g) })
}

// isEarly tells whether what is in a compressed copy was written last while a file was still written to: as generations take turns, it is of no
// other, and of its beginning.
func isEarly(copy, file *fileStat) bool {
	return file.born != 0 && keptTime(copy) && file.born < copy.mtime && copy.mtime < file.mtime
}

// isEarlyCopy tells whether the compressed file that f is read from, which begins like it and holds less than was read, was made of it
// before its last lines were written: a writer that opens its log late adds them to the file that is compressed meanwhile. Generations may
// begin alike, but they take turns: what the copy holds was written last after f was made, and one that nobody knows is younger than all that
// was read. So it is f's if one behind f that was read was made later than that, or still is the log.
func (w *Watcher) isEarlyCopy(f *File) bool {
	s, born := &f.src, f.src.was.Born
	if born == 0 || s.st.born == 0 || !keptTime(&s.st) || isOlder(&s.st, born) {
		return false
	}
	saysSo := func(g *File, isLog bool) bool {
		return g.ID() > f.ID() && g.offsetSeen() > 0 && g.made() > born && (isLog || s.st.mtime < g.made())
	}
	for g := range w.kin[s.kin] {
		if saysSo(g, !g.src.missing && g.Path() == f.Path() && g.src.cutAt == 0 && g.src.st.size >= g.offsetSeen()) {
			return true
		}
	}
	return slices.ContainsFunc(w.strayKin[s.kin], func(g *File) bool { return w.isStray(g) && saysSo(g, false) })
}
