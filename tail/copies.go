package tail

// Copies. What was not read of a file before it was truncated (copytruncate), compressed or moved away is read from
// another file beside it that holds the same bytes: the same head, and the same bytes before the cursor. In a compressed
// copy only the head is compared here; whether the rest agrees shows when its reader has unpacked its way to the cursor.

import (
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// copySource is what a source remembers about being read from a copy.
type copySource struct {
	packed      string      // compressed with this: offsets are those of the unpacked bytes
	was         Fingerprint // what the spool knows; that of the copy counts once its content was found to be the same
	not         []key       // copies that turned out to be of other files
	younger     bool        // it is not sure that this is the copy; then others that begin like it are younger generations
	torn        bool        // the copy ends in the middle; it is tried again when it changes
	finished    bool        // it was read to its end
	delivered   bool        // and stays known as long as the file is there
	age         int64       // when what is in it was written last, if it is compressed
	metAt       int64       // wall clock when it was found as a generation that no look saw, not compressed
	told        key         // copy that was told last
	restOf      *File       // it is what was unread of this one before that was truncated
	unreadFrom  int64       // what was not read of it was not written before; 0: the first scan
	before      place       // it was truncated before the start: where it was then
	overwritten bool        // its file is there, and holds something else, which is nothing of it
	cutAt       int64       // it was truncated: what is in it now is not older; 0: it was not, as far as is known
}

// peeked is the head of a file as it was when last looked at.
type peeked struct {
	st   fileStat
	head []byte
	kind string
	none bool         // nothing is in it, for sure
	size unpackedSize // of what is in it
}

const peeksMax = 4096 // heads remembered

// headOf returns the first bytes of a sibling, unpacked, and the compression.
func (w *Watcher) headOf(sib sibling) (head []byte, kind string) {
	k := key{0, sib.st.dev, sib.st.ino}
	if p, ok := w.peeks[k]; ok && p.st.same(&sib.st) && p.st.is(&sib.st) {
		return p.head, p.kind
	}
	p, err := w.peek(sib)
	if err != nil {
		w.cannot(sib.path, err)
		return nil, ""
	}
	if len(w.peeks) >= peeksMax {
		clear(w.peeks)
	}
	w.peeks[k] = p
	return p.head, p.kind
}

// holdsNothing tells whether a sibling whose head was read is the whole copy of an empty file.
func (w *Watcher) holdsNothing(sib sibling) bool {
	return w.peeks[key{0, sib.st.dev, sib.st.ino}].none
}

// markBytesMax of a head may be a byte order mark, with which many begin.
const markBytesMax = 3

// isOlder tells whether a compressed copy was made, or what is in it written last, before a file was made at born, by the clock of
// the file system. Times in whole seconds are what some programs keep.
func isOlder(copy *fileStat, born int64) bool {
	second := int64(time.Second)
	return copy.born != 0 && copy.born < born || copy.mtime < born && (copy.mtime%second != 0 || copy.mtime/second != born/second)
}

func beginsLike(head []byte, fp Fingerprint) bool {
	n := int(fp.PrefixBytes)
	return n > 0 && n <= len(head) && xxhash.Sum64(head[:n]) == fp.Prefix
}

// copyFound is a file that holds, or may hold, what a cursor stands in.
type copyFound struct {
	found
	at    string // its own name
	kind  string // of compression, "" for none
	age   int64  // of what is in it, if it is compressed; 0: not told
	sure  bool   // no other file may be the copy
	same  bool   // all that was read was compared, or was read of it
	whole bool   // it is compressed and holds just what was read
	early bool   // it is compressed and holds the beginning of what was read
}

// findCopy looks beside path for another file with the bytes that fp and cur remember, the oldest first. One that is not
// compressed must have at least plainBytesMin of them: programs begin their logs alike.
func (w *Watcher) findCopy(block int, path string, fp Fingerprint, cur Cursor, plainBytesMin int64, not []key) (best copyFound, ok bool) {
	candidates, whole, names := 0, 0, w.namesOf(path)
	for _, dir := range w.dirsOf(path) {
		for _, sib := range w.siblingsNamed(dir, names) {
			k := key{block, sib.st.dev, sib.st.ino}
			if !namedAfter(names, sib.path, rotatedName) || slices.Contains(not, k) || w.excluded[key{0, k.dev, k.ino}] {
				continue
			}
			if g := w.sourceOf(block, &sib.st); g != nil && g.isKnown() && !w.isOverwritten(g, sib) || k.ino != fp.Ino && w.isOfStray(block, sib) {
				continue
			}
			head, kind := w.headOf(sib)
			if kind != "" && fp.PrefixBytes <= markBytesMax && k.ino != fp.Ino && isOlder(&sib.st, fp.Born) {
				continue
			}
			isOwn := k.ino == fp.Ino && fp.Born != 0 && sib.st.born == fp.Born // it was read from before
			if isOwn && fp.PrefixBytes == 0 && w.holdsNothing(sib) {
				return copyFound{found: found{candidate{block: block, path: path}, k, sib.st}, at: sib.path, kind: kind, sure: true, same: true, whole: true}, true
			}
			if !beginsLike(head, fp) || kind == "" && (cur.Offset < plainBytesMin || !w.resumes(sib, fp, cur)) {
				continue
			}
			this := copyFound{found: found{candidate{block: block, path: path}, k, sib.st}, at: sib.path, kind: kind, sure: kind == "", whole: kind != "" && w.sizeIn(sib).is(cur.Offset)}
			if this.sure || isOwn || this.whole && int64(fp.PrefixBytes) == cur.Offset { // all that it holds was compared
				this.sure, this.same = true, true
				return this, true
			}
			candidates++
			if this.whole {
				whole++
			}
			if !ok || this.whole && !best.whole || this.whole == best.whole && sib.st.mtime < best.st.mtime {
				best, ok = this, true
			}
		}
	}
	best.sure, best.whole = candidates == 1, whole == 1
	return best, ok
}

// isOfStray tells whether the spool knows a file, and reads it on once it is looked for.
func (w *Watcher) isOfStray(block int, sib sibling) bool {
	return slices.ContainsFunc(w.strays[sib.st.ino], func(f *File) bool {
		return f.src.key.block == block && !f.src.unwanted && f.fp.Born != 0 && bornTogether(f.fp.Born, sib.st.born) && !w.isOverwritten(f, sib)
	})
}

// enterCopy makes c the file that f is read from.
func (w *Watcher) enterCopy(f *File, c copyFound) {
	w.takeCopy(f, c)
	w.heat(f)
	w.rescan = true
	if f.src.told == c.key {
		return
	}
	f.src.told = c.key
	w.log.Info("what is unread of a file is read from a copy of it", "path", c.path, "copy", c.at, "source", f.ID(), "offset", f.cur.Offset)
}

// enterRest makes c the source of what was unread of a file that was truncated. That copy is complete.
func (w *Watcher) enterRest(t truncation, c copyFound) *File {
	rest := w.newFile(c.block, t.f.Path())
	rest.fp, rest.cur = t.fp, t.cur
	rest.after = t.f
	w.enterCopy(rest, c)
	if rest.src.restOf = t.f; c.kind == "" {
		rest.copyEnd = c.st.size
	}
	return rest
}

// takeCopy makes f the source of c.
func (w *Watcher) takeCopy(f *File, c copyFound) {
	if g := w.sourceOf(c.block, &c.st); g != nil && g.isKnown() {
		w.overwritten(g)
	} else if g != nil {
		w.retire(g) // it was found, but never read
	}
	if c.kind != "" && c.age == 0 {
		born := f.fp.Born
		if f.fp.Ino == c.st.ino && born == c.st.born { // of the copy itself
			born = 0
		}
		c.age = w.packedAge(blockPath{c.block, c.path}, sibling{c.at, c.st}, born)
	}
	f.src.age = c.age
	f.copy, f.src.packed, f.src.was = true, c.kind, f.fp
	w.enterAside(f, c.found)
	f.src.missing, f.src.at, f.src.lostSince = true, c.at, time.Time{}
	f.gone.Store(true)
}

// strayCopy looks for a source of the spool whose file is gone among the copies.
func (w *Watcher) strayCopy(f *File) bool {
	c, ok := w.findCopy(f.src.key.block, f.Path(), f.fp, f.cur, copyBytesMin, f.src.not)
	if !ok {
		return false
	}
	followed := w.isFollowed(f)
	if !followed {
		w.unsettle(blockPath{f.src.key.block, f.Path()}, 0)
	}
	w.unstray(f)
	isOwn := c.key.ino == f.fp.Ino && c.st.born == f.fp.Born && w.sizeIn(sibling{c.at, c.st}).mask == 0
	isWhole := c.whole && (c.sure || followed) && (c.same || w.madeInTime(f, c.st.born))
	if f.ID() != 0 && (isWhole || isOwn && followed && c.kind != "") { // else only a receiver makes it known to the spool
		w.bind(f, c)
		return true
	}
	w.enterCopy(f, c)
	f.src.younger = !c.sure || followed && !c.same // until its bytes were compared it may be a generation that nobody knows
	return true
}

// followCopy is strayCopy for a file that vanished while it was known, if it may have held more than was read.
func (w *Watcher) followCopy(f *File) bool {
	s := &f.src
	if s.packed != "" || f.ID() == 0 {
		return false
	}
	if w.keepDelivered(f) {
		return true
	}
	c, ok := w.findCopy(s.key.block, f.Path(), f.fp, f.cur, copyBytesMin, s.not)
	if !ok || f.unread(s.st.size) <= 0 && sameWrite(s.st.mtime, c.st.mtime) {
		return false // programs that compress keep the time of the last write: nothing came after it was looked at
	}
	delete(w.sources, s.key)
	w.enterCopy(f, c)
	return true
}

// sameWrite tells whether a copy has the time of the last write that a file had, or that time in whole seconds: so much some
// programs keep.
func sameWrite(file, copy int64) bool {
	return file == copy || copy%int64(time.Second) == 0 && file/int64(time.Second) == copy/int64(time.Second)
}

// settleCopy decides about a copy that a reader gave back, and tells whether that was all.
func (w *Watcher) settleCopy(f *File) bool {
	u, s := f.unpack, &f.src
	switch {
	case f.replaced && s.missing && (f.copy || w.isMoved(f)):
		w.overwritten(f)
	case f.replaced:
		f.replaced, f.whole = false, false // the next Fill starts it again
		return false
	case u == nil:
		return false
	case u.other && u.endsBefore(f.cur.Offset) && w.isEarlyCopy(f):
		w.finish(f)
	case u.other:
		w.otherCopy(f)
	case u.damage != nil:
		w.stats.lostFiles.Add(1)
		w.log.Warn("compressed copy is damaged: the rest of it is lost", "path", f.Path(), "copy", s.at, "source", f.ID(), "offset", f.cursorOffset(), "error", u.damage)
		w.finish(f)
	case u.ended && f.rd != nil && f.rd.offset()+int64(f.pending) == u.pos && f.Pending() == 0:
		w.finish(f)
	case u.torn:
		s.torn = true
		w.closeFile(f)
		return false
	default:
		return false
	}
	return true
}

// finish is for a copy that was read to its end. It is told when its successor was handed out, so that after a crash one
// of the two is still known.
func (w *Watcher) finish(f *File) {
	f.src.finished = true
	w.settleYounger(f)
	w.closeFile(f)
	w.finished = append(w.finished, f)
}

func (w *Watcher) forgetFinished() {
	for _, f := range w.finished {
		if !f.src.forgotten {
			w.leaveBehind(f)
		}
	}
	w.finished = w.finished[:0]
}

// otherCopy is for a copy whose head is that of f and whose rest is not: the next one is tried.
func (w *Watcher) otherCopy(f *File) {
	s := &f.src
	w.closeFile(f)
	delete(w.sources, s.key)
	s.not = append(s.not, s.key)
	f.fp, s.packed = s.was, ""
	w.unsettle(blockPath{s.key.block, f.Path()}, 0) // as long as it was taken for this one nobody else could be it
	if c, ok := w.findCopy(s.key.block, f.Path(), f.fp, f.cur, copyBytesMin, s.not); ok {
		w.enterCopy(f, c)
		w.queue(f)
		return
	}
	w.stray(f)
}

// numbered tells whether a file beside path is named as programs name its rotations: by number or date.
func numbered(path, other string) bool {
	rest, ok := strings.CutPrefix(other[len(parent(other)):], path[len(parent(path)):])
	return ok && len(rest) > 1 && strings.ContainsRune(".-_", rune(rest[0])) && '0' <= rest[1] && rest[1] <= '9' || tagOf(path, other) != ""
}

// copyBytesMax bounds how much of two files is compared.
const copyBytesMax = 64 << 10

// firstBytes returns the first n bytes of a file, fewer if it is shorter or cannot be read.
func (w *Watcher) firstBytes(sib sibling, n int64) []byte {
	fd, err := w.openSibling(sib)
	if err != nil {
		return nil
	}
	defer closeFD(fd)
	buf := make([]byte, n)
	m, err := pread(fd, buf, 0)
	if err != nil {
		return nil
	}
	return buf[:m]
}
