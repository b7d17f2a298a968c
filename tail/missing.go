package tail

// Sources that no pattern finds: rotated to a name outside, moved away, deleted, behind a symlink that points
// elsewhere now. An open one is read through its descriptor until it is quiet; a closed one is looked for
// under the other names of its directory. Cursors outlive descriptors.

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

func (w *Watcher) lookForMissing() {
	for _, f := range w.sources {
		if s := &f.src; s.seen != w.scans && !(s.delivered && s.lostSince.IsZero() && w.walker.asBefore(parent(s.at))) {
			w.miss(f)
		}
	}
	w.limitUnseen()
}

func (w *Watcher) miss(f *File) {
	s := &f.src
	if !s.missing {
		if w.scanning && s.st.born != 0 && f.ID() != 0 { // what took its place may have been moved away, too
			w.unsettle(blockPath{s.key.block, f.Path()}, w.sinceSeen(f))
		}
		s.missing, s.at, s.lostSince, s.changedAt = true, "", time.Time{}, w.now()
		f.gone.Store(true)
		if s.out {
			f.hint()
		}
	}
	if f.fd < 0 {
		w.follow(f)
		return
	}
	st, err := statFD(f.fd)
	if err != nil {
		return
	}
	w.note(f, st)
	w.followOpen(f)
	if s.out || s.waiting || f.due(w.now()) || f.Pending() > 0 && st.nlink == 0 { // a last line without its end becomes due
		return
	}
	quiet := w.now().Sub(s.changedAt)
	switch {
	case st.nlink == 0 && quiet >= 2*w.scanGap:
		w.leaveBehind(f)
	case st.nlink > 0 && quiet >= w.keep.moved:
		w.closeFile(f)
		w.follow(f)
	}
}

// followOpen looks for the name that an open source has now which was found under one: by a number that another generation has by now it
// would be taken for that, and its head looked for there.
func (w *Watcher) followOpen(f *File) {
	s := &f.src
	if s.at == "" || !w.scanning || s.st.nlink == 0 {
		return
	}
	if st, err := statPath(s.at); err == nil && s.st.is(&st) {
		return
	}
	if sib, ok := w.elsewhere(f); ok {
		s.at = sib.path
	}
}

// follow looks for a closed source under another name.
func (w *Watcher) follow(f *File) {
	s := &f.src
	if s.delivered {
		w.followDelivered(f)
		return
	}
	if s.left && !w.needed(f) {
		w.forget(f)
		return
	}
	if s.at != "" {
		if st, err := statPath(s.at); err == nil && s.st.is(&st) {
			if w.note(f, st); s.torn && w.now().Sub(s.changedAt) >= w.keep.moved {
				w.forget(f)
			}
			return
		}
		s.at = ""
	}
	starved := w.starved
	if s.lostSince.IsZero() || w.scanning {
		if sib, ok := w.elsewhere(f); ok {
			s.at, s.lostSince = sib.path, time.Time{}
			f.whole = f.whole || sib.st.mtime == s.checked.mtime && sib.st.size == s.checked.size
			w.note(f, sib.st)
			w.foundAgain(f)
			return
		}
	}
	now := w.now()
	if f.ID() != 0 && w.tellable(f) && w.hidden(f) {
		return
	}
	if s.lostSince.IsZero() {
		moved := w.moved
		if w.followCopy(f) || w.starved != starved {
			return
		}
		if w.moved != moved { // its copy may be what has another name by now
			w.lookAgain[s.kin] = true
			return
		}
		if f.ID() == 0 && s.packed == "" || s.st.born != 0 && f.neverRead() {
			w.lookAgain[s.kin] = true // it was missed while names were moved, perhaps
			w.displace(f)
			return
		}
		s.lostSince = now
		w.countLost(f)
	}
	if now.Sub(s.lostSince) >= w.keep.unseen && !s.left { // what is left is needed
		w.forget(f)
	}
}

// unread returns how many bytes of size were not read.
func (f *File) unread(size int64) int64 {
	end := f.cursorOffset() + int64(f.pending)
	if f.pending > 0 && !f.noFlush {
		end = f.cursorOffset()
	}
	return f.within(size) - max(end, f.nulTo)
}

// countLost tells a source that vanished with bytes that were seen and not read, if it did.
func (w *Watcher) countLost(f *File) bool {
	if f.src.packed != "" {
		if !f.src.finished {
			w.stats.lostFiles.Add(1)
			w.log.Warn("compressed copy could not be read to its end: the rest of it is lost", "path", f.Path(), "copy", f.src.at, "source", f.ID(), "offset", f.cursorOffset())
		}
		return !f.src.finished
	}
	lost := f.unread(f.src.st.size)
	if lost <= 0 || f.src.skip != "" {
		return false
	}
	w.stats.lostFiles.Add(1)
	w.stats.lostBytes.Add(uint64(lost))
	from, to := f.src.st.size-lost, f.src.st.size
	w.tellGone(f, from, to)
	w.log.Warn("file vanished before it was read to its end", "path", f.Path(), "source", f.ID(), "offset", f.cursorOffset(), "unread_bytes_lost", lost)
	if id := f.ID(); id != 0 {
		w.handler.Lost(id, from, to)
	}
	return true
}

// elsewhere finds the name that a missing source has now: the same path behind a moved symlink, or a sibling.
func (w *Watcher) elsewhere(f *File) (sibling, bool) {
	s := &f.src
	if st, err := statPath(s.real); err == nil && s.st.is(&st) {
		return sibling{s.real, st}, true
	}
	for _, dir := range slices.Compact(append(w.dirsOf(f.Path()), parent(s.real))) {
		for _, sib := range w.siblingsWith(dir, s.st.ino) {
			if s.st.is(&sib.st) {
				return sib, true
			}
		}
	}
	return sibling{}, false
}

// linkedDirs lists where a file of path may be since before a symlink above it was moved: of app/current/log/e.log, where
// current leads to releases/v2 by now, the directories releases/*/log, linkedDirsMax of them at most.
func (w *Watcher) linkedDirs(path string) (dirs []string) {
	dirs, ok := w.linked[parent(path)]
	if ok {
		return dirs
	}
	for at := parent(path); at != "/"; at = parent(at) {
		if st, err := os.Lstat(at); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		beside := parent(realPath(at))
		entries, _ := w.readDir(beside) // what cannot be listed is not found there
		for _, e := range entries {
			if e.IsDir() && len(dirs) < linkedDirsMax {
				dirs = append(dirs, join(beside, e.Name())+parent(path)[len(at):])
			}
		}
	}
	if w.linked == nil {
		w.linked = map[string][]string{}
	}
	w.linked[parent(path)] = dirs
	return dirs
}

const linkedDirsMax = 64

// searchStrays looks for sources of the spool that no pattern found among the siblings of the path they had,
// and enters what it finds as missing: its rest is read under the name it has now.
func (w *Watcher) searchStrays() {
	list := slices.Concat(slices.Collect(maps.Values(w.strays))...)
	slices.SortFunc(list, func(a, b *File) int { // who knows most of its head takes its copy first
		return cmp.Or(cmp.Compare(b.fp.PrefixBytes, a.fp.PrefixBytes), cmp.Compare(a.fp.Born, b.fp.Born))
	})
	for _, f := range list {
		if f.src.unwanted {
			w.bindUnwanted(f)
			continue
		}
		moved := w.moved
		if w.strayFound(f) || w.moved == moved && f.src.key.block >= 0 && (w.strayCopy(f) || w.strayNamed(f)) { // where it went is asked first
			continue
		}
		if w.moved != moved {
			w.lookAgain[f.src.kin] = true
		}
	}
}

// tellStrays is for those that are nowhere, also not among the generations that were found.
func (w *Watcher) tellStrays() {
	now := w.now()
	for _, f := range slices.Concat(slices.Collect(maps.Values(w.strays))...) {
		if w.lookAgain[f.src.kin] || f.neverRead() && w.isUndecided(f.src.kin) || w.copyInDoubt(f.src.kin) || !f.src.left && w.tellable(f) && w.hidden(f) {
			continue
		}
		w.tellStray(f)
		if st, err := statPath(f.Path()); f.src.unwanted && err == nil && st.ino == f.fp.Ino {
			continue // it goes on where it was once it is wanted
		}
		if now.Sub(f.src.lostSince) >= w.keep.unseen || f.ID() == 0 || f.src.left && w.scans > 1 && !w.needed(f) {
			w.lostStray(f)
		}
	}
}

// copyInDoubt tells whether a copy was given to a source that may not be its own: until that shows, no other source can have it.
func (w *Watcher) copyInDoubt(kin blockPath) bool {
	for f := range w.kin[kin] {
		if s := &f.src; s.packed != "" && s.younger && !s.torn && !s.finished {
			return true
		}
	}
	return false
}

// tellStray says once that a file of the spool is nowhere.
func (w *Watcher) tellStray(f *File) {
	if !f.src.lostSince.IsZero() {
		return
	}
	f.src.lostSince = w.now()
	if f.src.unwanted {
		w.log.Info("no pattern of its source finds the path of a file any more, or one excludes it: it is not read on", "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	} else if f.unread(f.src.st.size) > 0 {
		w.countLost(f)
	} else if f.src.overwritten {
		w.log.Info(overwrittenText, "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	} else if w.isFollowed(f) {
		w.log.Info("an older generation of a file is gone, with its copy if it had one: it had been read to its end", "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	} else if f.src.key.block >= 0 {
		w.stats.vanished.Add(1)
		w.tellGone(f, 0, 0)
		w.log.Warn("file vanished while it was not watched: what was written to it after the offset is lost, if anything was", "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	}
}

// lostStray forgets a file of the spool.
func (w *Watcher) lostStray(f *File) {
	w.tellStray(f)
	w.unstray(f)
	kin := f.src.kin
	list := slices.DeleteFunc(w.strayKin[kin], func(g *File) bool { return g == f })
	if w.strayKin[kin] = list; len(list) == 0 {
		delete(w.strayKin, kin)
	}
	if id := f.ID(); id != 0 {
		w.handler.Gone(id)
	}
}

func (w *Watcher) strayFound(f *File) bool {
	block := f.src.key.block
	if block < 0 {
		return false // its block is gone from the config: only a pattern can find it
	}
	for _, sib := range w.withInode(f) {
		k := key{block, sib.st.dev, sib.st.ino}
		if !bornTogether(sib.st.born, f.fp.Born) || f.src.overwritten {
			continue
		}
		if w.sourceOf(block, &sib.st) != nil {
			f.src.overwritten = f.fp.Born != 0 // as what it is now it was found
			continue
		}
		if f.cur.AnchorBytes == 0 && f.fp.Born == 0 && !namedAfter(w.namesOf(f.Path()), sib.path, rotatedName) {
			continue // nothing but an inode number speaks for it
		}
		if _, kind := w.headOf(sib); kind != "" {
			continue // strayCopy looks into it
		}
		fd, err := w.openSibling(sib)
		if err != nil {
			w.cannot(sib.path, err)
			continue
		}
		var r reading
		same, err := r.resume(readFD(fd), f.fp, f.cur)
		closeFD(fd)
		c := found{candidate{block: block, path: f.Path()}, k, sib.st}
		s := &f.src
		switch {
		case err == nil && same:
			if w.isReadCopy(f, sib) { // asked before f is entered, for its path as well
				f.copy, f.copyEnd = true, f.cur.Offset
			}
			w.unstray(f)
			w.enterAside(f, c)
			s.checked, f.whole = sib.st, true
		case err == nil && f.fp.Born != 0 && f.isRenamed(sib.path) && w.logBeside(f) != nil:
			s.overwritten, s.left = true, true
			continue
		case err == nil && f.fp.Born != 0 && sib.st.born != 0:
			w.startOver(f, c) // born together: truncated, then renamed
		default:
			continue
		}
		s.missing, s.at = true, sib.path
		f.gone.Store(true)
		return true
	}
	return false
}

// forget drops a source that is gone. What was unread is counted.
func (w *Watcher) forget(f *File) (lost bool) {
	s := &f.src
	if s.out {
		panic("BUG: tail: forget of a file that a reader holds")
	}
	if s.lostSince.IsZero() {
		lost = w.countLost(f)
	}
	w.retire(f)
	return lost
}

// retire drops a source that has nothing more to give.
func (w *Watcher) retire(f *File) {
	w.drop(f)
	if id := f.ID(); id != 0 {
		w.handler.Gone(id)
	}
}

// drop takes f out of everything that knows it.
func (w *Watcher) drop(f *File) {
	s := &f.src
	f.end()
	w.closeFile(f)
	w.dequeue(f)
	s.forgotten, w.recount = true, true
	if s.delivered {
		w.delivered--
	}
	w.admitted(f)
	w.leaveKin(f)
	w.lived.leave(s.lived, f)
	if w.sources[s.key] == f {
		delete(w.sources, s.key)
	}
	for _, p := range []string{f.Path(), s.real} {
		if w.byPath[p] == f {
			delete(w.byPath, p)
		}
	}
}

// displace is for a source whose file is gone for sure, since its inode number was used again, or of which nothing was read.
func (w *Watcher) displace(f *File) {
	s := &f.src
	if s.delivered {
		if !w.needed(f) {
			w.retire(f)
			return
		}
		s.delivered = false
		w.delivered--
	}
	switch at := (blockPath{s.key.block, f.Path()}); {
	case s.st.born == 0:
	case f.neverRead():
		w.unsettle(at, s.st.born)
	case !s.missing:
		w.unsettle(at, w.sinceSeen(f))
	}
	if f.ID() == 0 && (s.packed != "" || s.st.born == 0) {
		w.forget(f) // nothing would lead to it again
		return
	}
	if s.left = true; s.lostSince.IsZero() && f.unread(s.st.size) <= 0 {
		s.lostSince = w.now()
	}
	w.stray(f)
}

// stray makes a source one whose file is looked for.
func (w *Watcher) stray(f *File) {
	f.end()
	w.dequeue(f)
	w.admitted(f)
	w.leaveKin(f)
	if w.sources[f.src.key] == f {
		delete(w.sources, f.src.key)
	}
	w.strays[f.fp.Ino] = append(w.strays[f.fp.Ino], f)
	if kin := f.src.kin; !slices.Contains(w.strayKin[kin], f) {
		w.strayKin[kin] = append(w.strayKin[kin], f)
	}
	w.rescan = true
}

// dequeue takes f out of the queue.
func (w *Watcher) dequeue(f *File) {
	if f.src.waiting {
		f.src.waiting = false
		w.waiting = slices.DeleteFunc(w.waiting, func(q *File) bool { return q == f })
	}
}

// limitUnseen forgets the sources unseen for longest when there are too many: thousands at once, where a tree was removed.
func (w *Watcher) limitUnseen() {
	var unseen []*File
	for _, f := range w.sources {
		if !f.src.lostSince.IsZero() {
			unseen = append(unseen, f)
		}
	}
	if len(unseen) <= unseenMax {
		return
	}
	slices.SortFunc(unseen, func(a, b *File) int { return a.src.lostSince.Compare(b.src.lostSince) })
	for _, f := range unseen[:len(unseen)-unseenMax] {
		w.forget(f)
	}
}
