package tail

// Files that were truncated in place. What was unread of one is looked for beside it before its new content is read: in the copy that
// holds what was read (copies.go), or, if nothing was, in those that were made of it since it is known (rescue.go).

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// truncation is a file whose content went while (perhaps) some of it was unread.
type truncation struct {
	f     *File
	fp    Fingerprint
	cur   Cursor
	lost  int64 // bytes known to have been there behind the cursor
	size  int64 // of the file, as its holder saw it then
	since int64 // its copies are not older; 0: not looked for yet
	found bool  // one was
}

// startAgain is for content that was replaced in place: truncated, or truncated and grown past the offset.
func (f *File) startAgain() {
	off := f.rd.offset()
	lost := max(f.sizeSeen, f.shrunk.Swap(0)) - off
	size := int64(0)
	if st, err := statFD(f.fd); err == nil {
		size = st.size
	}
	f.w.stats.truncations.Add(1)
	f.w.log.Info("file was truncated: it is read again from its start", "path", f.Path(), "source", f.ID(), "offset", off)
	f.w.leave(truncation{f: f, fp: f.Fingerprint(), cur: f.Cursor(), lost: lost, size: size})
	f.rd.restart()
	f.pending, f.nulTo, f.sizeSeen, f.countedTo = 0, 0, 0, 0
}

// cutUnread tells whether f, of which nothing was taken yet, lost what was in it. No byte before the offset shows that, only that it
// had more than its size now, or -1 if it fills the buffer. A writer that gives back reserved room, in which nothing was written, takes
// nothing away.
func (f *File) cutUnread(size int64) bool {
	if f.rd.base > 0 || f.unpack != nil || f.copy {
		return false
	}
	if f.nulTo > 0 {
		f.shrunk.Store(0)
		return false
	}
	return f.shrunk.Load() > 0 || size >= 0 && size < f.sizeSeen
}

// truncatedClosed is startAgain for a file that was not open.
func (w *Watcher) truncatedClosed(f *File, r *reading) {
	lost := max(f.sizeSeen, f.shrunk.Swap(0)) - f.cur.Offset
	w.stats.truncations.Add(1)
	w.log.Info("file was truncated: it is read again from its start", "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	w.leave(truncation{f: f, fp: f.fp, cur: f.cur, lost: lost, size: f.src.st.size})
	r.restart()
	f.cur = Cursor{}
	f.pending, f.nulTo, f.sizeSeen, f.restarted = 0, 0, 0, true
}

// leave notes that the content of f went. f is held back until what was unread has been looked for, and read.
func (w *Watcher) leave(t truncation) {
	if t.cur.Offset > 0 {
		t.f.cut.CompareAndSwap(nil, &place{t.fp, t.cur})
	}
	t.f.behind.Store(true)
	w.mu.Lock()
	w.truncated = append(w.truncated, t)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// countTruncated tells what is lost for sure.
func (w *Watcher) countTruncated(t truncation) {
	if t.lost > 0 {
		w.stats.lostBytes.Add(uint64(t.lost))
		w.log.Warn("file was truncated before it was read to its end, and no copy was found", "path", t.f.Path(), "source", t.f.ID(), "offset", t.cur.Offset, "unread_bytes_lost", t.lost)
	}
}

// settleTruncated looks for the copies of files that were truncated.
func (w *Watcher) settleTruncated() {
	w.mu.Lock()
	list := w.truncated
	w.truncated = nil
	w.mu.Unlock()
	if len(list) > 0 {
		w.lookAnew()
	}
	for _, t := range list {
		block, s := t.f.src.key.block, &t.f.src
		if t.since == 0 {
			t.since = max(s.st.born, max(s.cutAt, w.startedAt)-clockTick)
			s.st.size = t.size // only what is cut from now on is another truncation
			t.f.shrunk.Store(0)
		}
		if s.missing {
			s.cutAt = s.st.mtime // what took its place since then is younger
		} else {
			s.cutAt = time.Now().UnixNano()
		}
		if t.cur.Offset == 0 {
			w.settleUnread(t)
			continue
		}
		s.owes = true
		starved, moved := w.starved, w.moved
		c, ok := w.findCopy(block, t.f.Path(), t.fp, t.cur, 1, nil)
		if !ok {
			if w.starved != starved || w.moved != moved {
				w.settleLater(t)
				continue
			}
			w.countTruncated(t)
			t.f.letGo()
			continue
		}
		rest := w.newFile(block, t.f.Path())
		rest.fp, rest.cur = t.fp, t.cur
		rest.after = t.f
		w.enterCopy(rest, c)
		rest.src.restOf = t.f
		if rest.src.younger = !c.sure; c.sure {
			w.unsettle(blockPath{block, t.f.Path()}, rest.age())
		}
		w.queue(rest)
	}
}

// settleLater is for what cannot be told yet.
func (w *Watcher) settleLater(t truncation) {
	w.mu.Lock()
	w.truncated = append(w.truncated, t)
	w.mu.Unlock()
}

// settleUnread looks for what was in a file that was truncated before anything was taken from it. Nothing tells its copies but their
// place: they are unseen generations of its path. There are several if it was cut more than once.
func (w *Watcher) settleUnread(t truncation) {
	at, moved := blockPath{t.f.src.key.block, t.f.Path()}, w.moved
	var last *File
	if t.f.src.st.born != 0 {
		for _, g := range w.findUnseen(at, t.since) {
			w.queue(g)
			last = g
		}
	}
	if last != nil {
		last.after, t.found = t.f, true
	}
	switch {
	case w.moved != moved || w.lookAgain[kinOf(at)]: // one may be in the making: the next look tells
		w.rescan = true
		w.settleLater(t)
	case !t.found:
		if !w.mayHold(at, t) {
			w.countTruncated(t)
		}
		t.f.letGo()
	}
}

// mayHold tells whether a generation that was found before, by a pattern, may be the copy of what was unread.
func (w *Watcher) mayHold(at blockPath, t truncation) bool {
	for g := range w.kin[kinOf(at)] {
		if s := &g.src; g != t.f && s.st.born >= t.since && (s.packed != "" || s.st.size >= t.lost) {
			return true
		}
	}
	return false
}

// isCut tells whether a file was truncated and what was in it is looked for: a copy that begins like it is of that.
func (w *Watcher) isCut(block int, st *fileStat) bool {
	f := w.sourceOf(block, st)
	return f != nil && f.behind.Load()
}

// letGo ends that f is held back for what comes before it.
func (f *File) letGo() {
	f.cut.Store(nil)
	f.behind.Store(false)
	f.check.Store(true)
	f.hint()
}

// letNext lets go of the file that waits for this one.
func (f *File) letNext() {
	if f.after != nil {
		f.after.letGo()
		f.after = nil
	}
}

// findCut finds the files that were truncated in place before this start: those that are older than others that the spool knows by
// the same path, or as rotations of it, which are their copies then. One of which nothing was read since may have been filled, copied
// and truncated again while nobody watched, and looks as it did: its path may have copies behind the youngest that is known.
func (w *Watcher) findCut() {
	for at, known := range w.strayPaths {
		f := w.inPlace(at)
		if f == nil || f.src.st.born == 0 {
			continue
		}
		copied, listed := w.youngestBehind(f, known), int64(0)
		if kin := kinOf(at); kin == at {
			listed = w.youngestBehind(f, w.strayKin[kin]) // found by the pattern, as others are that nobody knows yet
		}
		isUnread := f.ID() != 0 && f.cursorOffset() == 0
		if isUnread && copied == 0 && w.hasCopy(f) {
			copied = f.src.st.born
		}
		switch {
		case copied == 0 && listed == 0:
		case isUnread:
			if f.src.cutAt = w.wall; copied > 0 {
				w.unsettle(at, copied+1)
			}
		default:
			f.src.cutAt = max(copied, listed) + 1
		}
	}
}

// youngestBehind is when the youngest of known was made that is younger than f; 0: none is.
func (w *Watcher) youngestBehind(f *File, known []*File) (youngest int64) {
	for _, g := range known {
		made := g.made() // not the file that it is read from: a copy is compressed after the file that is next was made
		if g != f && made > f.src.st.born {
			youngest = max(youngest, made)
		}
	}
	return youngest
}

// hasCopy tells whether a file beside f that the spool does not know is named as its rotation and was made, and written to, after it: a
// copy. One that got back the times of something older, as what is unpacked does, says nothing.
func (w *Watcher) hasCopy(f *File) bool {
	isCopy := func(name string, sib sibling) bool {
		if sib.st.size == 0 || sib.st.born <= f.src.st.born || sib.st.mtime < sib.st.born || !rotationName(name, sib.path) {
			return false
		}
		if g := w.sourceOf(f.src.key.block, &sib.st); g != nil && g.ID() != 0 || w.mayBeStray(sib) {
			return false
		}
		_, kind := w.headOf(sib)
		return kind == ""
	}
	for _, name := range slices.Compact([]string{f.Path(), f.src.real}) {
		dir := parent(name)
		begin := name // of all that is named after it
		if dot := extensionOf(name[len(dir):]); dot > 0 {
			begin = name[:len(dir)+dot]
		}
		list := w.siblingsIn(dir) // in the order of names
		at, _ := slices.BinarySearchFunc(list, begin, func(sib sibling, begin string) int { return cmp.Compare(sib.path, begin) })
		for ; at < len(list) && strings.HasPrefix(list[at].path, begin); at++ {
			if isCopy(name, list[at]) {
				return true
			}
		}
	}
	return false
}
