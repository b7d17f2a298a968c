package tail

// Generations that no look saw. The files that took turns at one path are a sequence, and this is its rule:
//
//	A generation is handed out only when every older one was read to its end, is being read, is named lost, or may not be
//	read; and it is forgotten only when every older one is.
//
// So what the spool knows of a path is one piece of the sequence without holes, and a file that is named like a rotation, is
// younger than the oldest of that piece and is not in it was never seen: it is read. When that has to be looked for, the path
// is unsettled. A compressed copy of what was read is in that piece by what it holds (delivered.go). Of the others, which no look
// saw or which are older than all that is known, times tell: what is in a file that is there as it was written was made when the
// file was; what is in a compressed copy was written last when the copy says, if the program that made it kept the time, else its
// name tells (kin.go).
//
// Where creation times are unknown, nothing is guessed. A file that was truncated in place is as old as it was: copies that
// were made of it before it was known look younger than it, and come twice once it is renamed.

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// blockPath is a path as one block sees it.
type blockPath struct {
	block int
	path  string
}

// clockTick is how much earlier than the clock the file system's times may be.
const clockTick = int64(20e6)

// unsettle notes that generations of a path may be there that nobody knows: not older than since; 0: than the oldest that is
// known. A path that is rotated right behind a write has both in one tick of the file system's clock.
func (w *Watcher) unsettle(at blockPath, since int64) {
	if old, ok := w.unsettled[at]; ok {
		since = min(since, old)
	}
	w.unsettled[at], w.unlooked[at] = since, true
	w.rescan = true
}

// newPathsMax is how many paths, new in one scan, are looked at for generations from before it. Each costs a look at its directory.
const newPathsMax = 256

// unsettleRotated is for paths that name another file than before: a generation in between was made after the one before was
// seen there last. Where none was seen, it was made after the last scan that found nothing there; but one that the spool knows may
// have been moved away during the first scan, between the look at its name and the opening.
func (w *Watcher) unsettleRotated(fresh []found) {
	for _, c := range fresh {
		at := blockPath{c.block, c.path}
		if live := w.inPlace(kinOf(at)); live != nil && live.Path() != at.path && w.scans > 1 && live.ID() != 0 && live.offsetSeen() == 0 && c.st.born != 0 {
			w.unsettle(kinOf(at), w.aloneSince(live)) // it is a copy, perhaps, and those that were made before may be compressed by now
		}
		switch f := w.seenLast(at); {
		case c.st.born == 0:
		case f != nil:
			w.unsettle(at, w.sinceSeen(f))
		case w.scans == 1:
		case len(w.strayPaths[at]) > 0 && w.oldestKnown(at) > 0:
			w.unsettle(at, 0)
		case len(fresh) <= newPathsMax:
			w.unsettle(at, w.allWall-clockTick)
		}
	}
}

// sinceSeen is when f was seen at its path last: what was made there after it is not older.
func (w *Watcher) sinceSeen(f *File) int64 { return max(w.seenAt(f)-clockTick, f.src.st.born) }

// seenLast is the source that was seen at a path last, nil if none was.
func (w *Watcher) seenLast(at blockPath) (last *File) {
	for f := range w.kin[kinOf(at)] {
		if f.src.seenAt > 0 && f.Path() == at.path && (last == nil || f.src.seenAt > last.src.seenAt) {
			last = f
		}
	}
	return last
}

// unsettleMoved is for the paths of the spool whose file is not there any more at the start.
func (w *Watcher) unsettleMoved() {
	w.findCut()
	for at, known := range w.strayPaths {
		for _, f := range known {
			if s := &f.src; at.block >= 0 && !(s.delivered && w.isFollowed(f)) && (w.isGone(f) || s.missing || f.Path() != at.path) {
				w.unsettle(at, 0)
				if kin := kinOf(at); kin != at && w.inPlace(kin) != nil {
					w.unsettle(kin, 0) // a copy that a pattern finds is named after its log once it is compressed
				}
				break
			}
		}
	}
}

// oldestKnown is when the oldest generation that is known was made, or written last if it is compressed; 0: unknown.
func (w *Watcher) oldestKnown(at blockPath) (age int64) {
	older := func(a int64) {
		if a > 0 && (age == 0 || a < age) {
			age = a
		}
	}
	for f := range w.kin[kinOf(at)] {
		if f.ID() != 0 {
			older(f.age())
		}
	}
	for _, f := range w.strayKin[kinOf(at)] {
		if f.ID() != 0 && w.isStray(f) {
			older(max(f.fp.Born, f.src.cutAt))
		}
	}
	return age
}

// settle looks for unseen generations of the paths where there may be some.
func (w *Watcher) settle() {
	for at, since := range w.unsettled {
		moved := w.moved
		delete(w.unlooked, at)
		w.findUnseen(at, since)
		if w.moved != moved {
			w.lookAgain[kinOf(at)] = true
		}
		if w.isSettled(at) {
			delete(w.unsettled, at)
		} else {
			w.rescan = true
		}
	}
}

// isSettled tells whether all generations of a path were handed out that are to come before a new one.
func (w *Watcher) isSettled(at blockPath) bool {
	return !w.lookAgain[kinOf(at)] && !w.isUndecided(kinOf(at))
}

func (w *Watcher) isUndecided(kin blockPath) bool {
	for f := range w.kin[kin] {
		if f.undecided() {
			return true
		}
	}
	return false
}

// findUnseen enters the unseen generations of a path as sources under the name they have now, and returns them, the oldest first.
func (w *Watcher) findUnseen(at blockPath, since int64) (entered []*File) {
	if since == 0 {
		if since = w.oldestKnown(at); since == 0 {
			return nil // when it was made is not known
		}
	}
	list := w.listUnseen(at, since)
	if len(list) > 0 && w.isCutSince(at) {
		w.lookAgain[kinOf(at)], w.rescan = true, true
		return nil
	}
	for _, u := range w.pairByDate(at, list) {
		entered = append(entered, w.enterUnseen(u))
	}
	switch live := w.inPlace(at); {
	case live == nil || len(entered) == 0:
	case live.mayBeCut():
		live.src.cutAt = time.Now().UnixNano() // all that is found now is older
	case live.src.cutAt > 0 && live.offsetSeen() == 0 && w.isListedInPlace(live): // nor was it renamed since what is in that was written
		for _, g := range entered {
			live.src.cutAt = max(live.src.cutAt, g.age()+1)
		}
	}
	return entered
}

// isCutSince tells whether a file of a path was truncated, and what was read of it before is not looked for yet: the copy of that looks
// like a generation that nobody saw.
func (w *Watcher) isCutSince(at blockPath) bool {
	for g := range w.kin[kinOf(at)] {
		if s := &g.src; !s.out || s.packed != "" || g.fd < 0 || w.rests(g) {
			continue
		}
		if st, err := statFD(g.fd); err == nil && st.size < g.takenTo.Load() {
			g.check.Store(true)
			g.hint()
			return true
		}
		w.mu.Lock()
		isPending := slices.ContainsFunc(w.truncated, func(t truncation) bool { return t.f == g && t.cur.Offset > 0 })
		w.mu.Unlock()
		if isPending {
			return true
		}
	}
	return false
}

// listUnseen lists the unseen generations of a path, the oldest first. Where a file could not be looked into, since names were moved, the
// compressed ones wait for the next look: which source of the spool one of them is shows only beside the others.
func (w *Watcher) listUnseen(at blockPath, since int64) (list []unseen) {
	names := w.namesOf(at.path)
	movedBefore := w.moved
	var styles map[string]bool
	for _, dir := range w.dirsOf(at.path) {
		for _, sib := range w.siblingsNamed(dir, names) {
			k := key{at.block, sib.st.dev, sib.st.ino}
			g := w.sourceOf(at.block, &sib.st)
			if g != nil && (g.isKnown() || g.src.missing) || !namedAfter(names, sib.path, rotationName) || w.excluded[key{0, k.dev, k.ino}] || w.ofAnother(at, sib.path) {
				continue // it is known; a compressed file that a pattern found just now is not
			}
			c := found{candidate{block: at.block, path: at.path}, k, sib.st}
			style := styleOf(names, sib.path)
			if style != "" && styles == nil {
				styles = w.stylesAt(at, names)
			}
			moved := w.moved
			head, kind := w.headOf(sib)
			switch {
			case w.moved != moved: // what it is cannot be told: it has another name by now
			case kind == "" && isMagicPart(head) && w.isBegun(names, sib): // something is about to be written to it
				if young(w.wall, &sib.st, int64(copyYoung)) {
					w.lookAgain[kinOf(at)], w.rescan = true, true
				}
			case style != "" && !w.believes(at, sib, kind, names, styles):
			case kind != "":
				if age, ok := w.packedUnseen(at, sib, since, head); ok {
					list = append(list, unseen{copyFound{found: c, at: sib.path, kind: kind, age: age, sure: true}, head})
				}
			case g == nil && w.plainUnseen(at, sib, since, names):
				list = append(list, unseen{copyFound{found: c, at: sib.path, age: sib.st.born}, nil})
			}
		}
	}
	if w.moved != movedBefore {
		list = slices.DeleteFunc(list, func(u unseen) bool { return u.kind != "" })
	}
	slices.SortFunc(list, func(a, b unseen) int {
		return cmp.Or(cmp.Compare(a.age, b.age), byDate(a.at, b.at), trueFirst(a.kind != "", b.kind != ""), byGeneration(a.at, b.at))
	})
	return list
}

// isKnown tells whether a file is, or may be, one of which something was read. One that was empty when it was handed out and holds
// something compressed since is not.
func (f *File) isKnown() bool { return f.src.out || f.ID() != 0 && f.src.skip == "" }

// isBehindByName tells whether a compressed file is younger than one that is known and was written last in the same tick of the clock.
func (w *Watcher) isBehindByName(at blockPath, path string, age int64) bool {
	for g := range w.kin[kinOf(at)] {
		if s := &g.src; s.packed != "" && g.ID() != 0 && s.age == age && byGeneration(s.at, path) < 0 {
			return true
		}
	}
	return false
}

// isOfVanished tells whether a compressed file may be what was made of one that vanished before anything of it was read, and was written
// only in the tick of the clock in which it was made. The one before it may have been written last in that tick too, but was
// compressed before: it stays known as long as a younger one waits to be read.
func (w *Watcher) isOfVanished(at blockPath, sib sibling, age int64) bool {
	return slices.ContainsFunc(w.strayKin[kinOf(at)], func(g *File) bool {
		seen := cmp.Or(g.src.seenAt, g.src.metAt)
		return w.isStray(g) && g.neverRead() && g.fp.Born == age && seen > 0 && sib.st.born > seen-clockTick
	})
}

// unseen is a generation that no look saw, and how it begins if it is compressed.
type unseen struct {
	copyFound
	head []byte
}

// packedUnseen tells whether a compressed file is an unseen generation, and its age.
func (w *Watcher) packedUnseen(at blockPath, sib sibling, since int64, head []byte) (age int64, ok bool) {
	age = w.packedAge(at, sib, 0)
	if len(head) == 0 {
		return age, w.isOfEmpty(at, sib)
	}
	if age < since || age == since && !w.isBehindByName(at, sib.path, age) && !w.isOfVanished(at, sib, age) {
		return 0, false
	}
	// Where a name led elsewhere the listing is of before the copy was done, perhaps, and so is its time: the next look tells.
	moved := w.moved
	return age, !w.originalBeside(at, sib, head) && !w.knownHead(at, sib, head) && !w.heldElsewhere(at, sib, head) && w.moved == moved
}

// plainUnseen tells whether a file that is not compressed is an unseen generation.
func (w *Watcher) plainUnseen(at blockPath, sib sibling, since int64, names []string) bool {
	live := w.inPlace(at)
	if sib.st.born < since || live != nil && !live.mayBeCut() && sib.st.born > live.age() {
		return false
	}
	if s := sib.st; s.size == 0 && live != nil && (live.src.cutAt > 0 && s.born > live.src.cutAt-clockTick || (live.src.cutAt > 0 || live.mayBeCut()) && young(w.wall, &s, int64(copyYoung))) {
		return false // it may be the next copy, about to be written
	}
	return !w.mayBeStray(sib) && !w.copied(sib, at, names)
}

// inPlace is the source that a path names now, nil if it names none.
func (w *Watcher) inPlace(at blockPath) *File {
	for f := range w.kin[kinOf(at)] {
		if !f.src.missing && f.Path() == at.path {
			return f
		}
	}
	return nil
}

// enterUnseen makes an unseen generation a source, or the source of the spool that it must be: one of which nothing was read.
func (w *Watcher) enterUnseen(u unseen) *File {
	w.stats.rescued.Add(1)
	c := u.found
	if u.kind == "" {
		f := w.newFile(c.block, c.path)
		w.enterAside(f, c)
		f.foundAs = c.st.mtime
		f.src.missing, f.src.at, f.src.metAt = true, u.at, w.wall
		f.gone.Store(true)
		w.log.Info("the path was rotated more than once since the last look: the file between is read too", "path", c.path, "found_at", u.at)
		return f
	}
	f := w.unreadStray(blockPath{c.block, c.path}, u.age)
	if f == nil {
		f = w.newFile(c.block, c.path)
	}
	w.enterUnread(f, u)
	return f
}

// enterUnread makes a copy that of a source of which nothing was read.
func (w *Watcher) enterUnread(f *File, u unseen) {
	f.fp.Prefix, f.fp.PrefixBytes = xxhash.Sum64(u.head), uint32(len(u.head))
	w.enterCopy(f, u.copyFound)
}

// unreadStray takes the source of the spool of which nothing was read and that a copy of that age holds: the youngest that was made
// before it.
func (w *Watcher) unreadStray(at blockPath, age int64) (youngest *File) {
	for _, f := range w.unreadStrays(at) {
		if f.fp.Born <= age {
			youngest = f
		}
	}
	if youngest != nil {
		w.unstray(youngest)
	}
	return youngest
}

// originalBeside tells whether what a compressed file was made of is still there: then it is no generation of its own. Generations may
// begin alike, with a header or a hole: a rotation that was written last at another time than the copy says, which is done then, is not it.
func (w *Watcher) originalBeside(at blockPath, sib sibling, head []byte) bool {
	names, told := w.namesOf(at.path), sib.st.born != 0 && sib.st.mtime < sib.st.born
	return slices.ContainsFunc(w.siblingsNamed(parent(sib.path), names), func(o sibling) bool {
		if told && !slices.Contains(names, o.path) && !sameWrite(o.st.mtime, sib.st.mtime) && !w.sizeIn(sib).is(o.st.size) {
			return false
		}
		isNamed := slices.Contains(names, o.path) || namedAfter(names, o.path, generationName)
		if o.st.ino == sib.st.ino || w.isCut(at.block, &o.st) || !isNamed && !(w.sizeIn(sib).is(o.st.size) && namedAfter(names, o.path, rotatedName)) {
			return false
		}
		if own, kind := w.headOf(o); kind != "" || !sameHead(own, head) || isOlder(&sib.st, o.st.born) {
			return false
		}
		fd, err := w.openSibling(o)
		if err != nil {
			return true // nobody can say
		}
		defer closeFD(fd)
		return w.beginsWith(fd, sib)
	})
}

// sameHead tells whether two heads agree as far as both go, and begin at all.
func sameHead(a, b []byte) bool {
	n := min(len(a), len(b))
	return n > 0 && bytes.Equal(a[:n], b[:n])
}

// knownHead tells whether a compressed file is, or may be, the copy of a generation that is known by another name. Compressed files that a
// pattern found, and that are skipped, are known by their names only.
func (w *Watcher) knownHead(at blockPath, sib sibling, head []byte) bool {
	k, kin := key{at.block, sib.st.dev, sib.st.ino}, kinOf(at)
	for _, known := range []map[*File]struct{}{w.kin[kin], w.cameFrom[kin]} {
		for g := range known {
			if s := &g.src; s.key != k && s.skip == "" && !slices.Contains(s.not, k) && (s.younger && beginsLike(head, s.was) || w.isCopyOf(g, sib, head)) {
				return true
			}
		}
	}
	for _, g := range w.strayKin[kinOf(at)] {
		if w.isStray(g) && beginsLike(head, g.fp) && !slices.Contains(g.src.not, k) {
			return true
		}
	}
	return false
}

// wasCut tells whether a file that no reader holds does not hold any more what was read of it. One that is not where it was is not
// asked.
func (w *Watcher) wasCut(g *File) bool {
	fd := g.fd
	if fd < 0 {
		var err error
		if fd, err = w.openRead(cmp.Or(g.src.at, g.Path())); err != nil {
			return false
		}
		defer closeFD(fd)
		if st, err := statFD(fd); err != nil || !st.is(&g.src.st) {
			return false
		}
	}
	var r reading
	same, err := r.resume(readFD(fd), g.Fingerprint(), g.Cursor())
	return err == nil && !same
}

// keptTime tells whether a compressed file has the time of the last write of what is in it, or may have: one that was made and written
// within a tick of the file system's clock has one time for both.
func keptTime(st *fileStat) bool { return st.born == 0 || st.mtime <= st.born }

// neverRead tells whether no head leads to the copy of f, only its place in the sequence.
func (f *File) neverRead() bool {
	return f.src.packed == "" && f.cur.AnchorBytes == 0 && f.fp.PrefixBytes == 0
}

// isGone tells whether a file of the spool was not found.
func (w *Watcher) isGone(f *File) bool { return w.sources[f.src.key] != f }

// isStray tells whether a file of the spool was not found yet.
func (w *Watcher) isStray(f *File) bool { return slices.Contains(w.strays[f.fp.Ino], f) }

// mayBeStray tells whether the spool may know a file by another number.
func (w *Watcher) mayBeStray(sib sibling) bool {
	return slices.ContainsFunc(w.strays[sib.st.ino], func(f *File) bool { return bornTogether(f.fp.Born, sib.st.born) })
}

// resumes tells whether a file holds what fp and cur remember.
func (w *Watcher) resumes(sib sibling, fp Fingerprint, cur Cursor) bool {
	fd, err := w.openSibling(sib)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	var r reading
	same, err := r.resume(readFD(fd), fp, cur)
	return err == nil && same
}
