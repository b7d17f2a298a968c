package tail

// New files that are copies of files that are being read: copytruncate under a pattern that finds the copies too. Such a
// copy is not sent again. It waits until its original is truncated, and gives what was unread then (copies.go); if that
// never happens, it has nothing to give.

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"
)

// copyYoung is how long a program that copies may take from making the file to writing into it.
const copyYoung = 5 * time.Second

// isBegun tells whether an empty file beside names is no generation but a copy of one that is about to be written: app.log.1.gz, and
// app.log.1.tmp beside app.log.1; not app.log.20261130.1, which a second rotation of that day is named.
func (w *Watcher) isBegun(names []string, sib sibling) bool {
	return packedName(sib.path) || slices.ContainsFunc(w.siblingsIn(parent(sib.path)), func(o sibling) bool {
		rest, ok := strings.CutPrefix(sib.path, o.path)
		return ok && len(rest) > 1 && rest[0] == '.' && !isDigit(rest[1]) && !slices.Contains(names, o.path)
	})
}

// doubt is a new file that may be the copy of one that a reader holds. It is decided when the reader has looked at its file
// once more: it would have noticed a truncation.
type doubt struct {
	fills uint64 // of the original, when that is so
	scan  uint64 // that asked last
}

// mayBeCopy tells whether c holds, or may hold, what is read from its original. What is named as compressed and still empty, or has
// no more than the first byte of a compression, may be about to.
func (w *Watcher) mayBeCopy(c found) bool {
	if c.st.size < magicBytesMax && packedName(c.path) && isMagicPart(w.firstBytes(sibling{c.path, c.st}, magicBytesMax)) { // once it was handed out, nobody would look how it begins
		w.rescan = w.rescan || young(w.wall, &c.st, int64(copyYoung))
		return true
	}
	for _, f := range w.originals(c) {
		switch {
		case c.st.born != 0 && c.st.born <= f.src.st.born:
			continue // older
		case c.st.size == 0 && young(w.wall, &c.st, int64(copyYoung)) || f.mayBeCut():
			w.rescan = true
		case w.equalSoFar(f, c):
			if own, sure := w.onItsOwn(f, c); own && sure {
				continue
			} else if own {
				w.rescan = true
				return true
			}
			w.rescan = w.rescan || young(w.wall, &c.st, int64(copyYoung))
			w.takeForCopy(f, c)
		case f.src.out:
			if w.decided(f, c) {
				continue
			}
			w.rescan = true
		case c.st.size > 0 && f.cursorOffset() > 0 && w.resumes(sibling{c.path, c.st}, f.Fingerprint(), f.Cursor()):
			f.src.checked = fileStat{} // truncated, perhaps: it is looked at
		default:
			continue
		}
		return true
	}
	return false
}

// onItsOwn tells whether c, which begins like f or is begun like by it, is nobody's copy: it is longer than f, or so short that
// programs may have begun their logs alike, and made long enough ago for f to be truncated. It is sure once f is known not to be.
func (w *Watcher) onItsOwn(f *File, c found) (own, sure bool) {
	if now, err := w.statNow(f, nil); err == nil && now.is(&f.src.st) && !now.same(&f.src.st) {
		w.note(f, now)
	}
	s := &f.src
	if c.st.size <= s.st.size && (c.st.size >= copyBytesMin || young(w.wall, &c.st, int64(copyYoung))) {
		return false, false
	}
	if !s.out {
		return true, f.cursorOffset() <= s.st.size && s.st.same(&s.checked)
	}
	return true, w.decided(f, c) && !f.mayBeCut() // its holder may have found it truncated just now
}

// heldCopy is a new file that is not read since another one begins with all that is in it.
type heldCopy struct {
	of   string // the path of that one
	told bool
}

// takeForCopy notes that c is not read because of f, and tells it once if that lasts: most originals are truncated in a moment.
func (w *Watcher) takeForCopy(f *File, c found) {
	was, is := w.wereCopies[c.key], heldCopy{of: f.Path()}
	if is.told = was.told && was.of == is.of || !young(w.wall, &c.st, int64(copyYoung)); is.told && !was.told {
		w.log.Info("a new file holds what another begins with: it is taken for a copy, and not sent as long as that is so", "path", c.path, "original", is.of)
	}
	w.copies[c.key] = is
}

// decided tells whether f, which a reader holds, was looked at since c was found.
func (w *Watcher) decided(f *File, c found) bool {
	d, asked := w.doubts[c.key]
	fills := f.fills.Load()
	if !asked {
		d.fills = fills + 2 // one may be under way
	}
	d.scan = w.scans
	w.doubts[c.key] = d
	if fills >= d.fills {
		return true
	}
	f.check.Store(true)
	f.hint()
	return false
}

// forgetDoubts drops those of files that are decided or gone.
func (w *Watcher) forgetDoubts() {
	for k, d := range w.doubts {
		if d.scan != w.scans {
			delete(w.doubts, k)
		}
	}
}

// originals lists the sources that c is named after.
func (w *Watcher) originals(c found) (list []*File) {
	dir := parent(c.path)
	base := strings.TrimLeft(c.path[len(dir):], "/")
	for i := 1; i < len(base); i++ {
		if !strings.ContainsRune(".-_", rune(base[i])) {
			continue
		}
		for j := i + 1; j <= len(base); j++ {
			if j < len(base) && base[j] != '.' {
				continue
			}
			path := join(dir, base[:i]+base[j:])
			f := w.byPath[path]
			if f != nil && f.src.key.block == c.block && f.src.key != c.key && f.Path() == path && f.ID() != 0 && f.src.packed == "" {
				list = append(list, f)
			}
		}
	}
	return list
}

// equalSoFar tells whether c and the file of f agree as far as both go, at the start and at the end of that.
func (w *Watcher) equalSoFar(f *File, c found) bool {
	n := min(c.st.size, f.src.st.size)
	if n == 0 {
		return false
	}
	other, err := w.openRead(c.path) // first: it may close f
	if err != nil {
		if gone(err) { // it has another name by now
			w.moved++
			w.rescan = true
		}
		return false
	}
	defer closeFD(other)
	fd := f.fd
	if fd < 0 {
		if fd, err = w.openRead(f.Path()); err != nil {
			return false
		}
		defer closeFD(fd)
	}
	var a, b [prefixBytesMax]byte
	return sameBytes(fd, other, a[:], b[:], 0, n) && sameBytes(fd, other, a[:anchorBytesMax], b[:anchorBytesMax], max(0, n-anchorBytesMax), n)
}

func sameBytes(fd1, fd2 int, a, b []byte, off, end int64) bool {
	n := min(end-off, int64(len(a)))
	m1, err1 := pread(fd1, a[:n], off)
	m2, err2 := pread(fd2, b[:n], off)
	return err1 == nil && err2 == nil && int64(m1) == n && int64(m2) == n && bytes.Equal(a[:n], b[:n])
}

// copied tells whether a file is the copy of another generation of the path: of a source, or of one that
// the spool knows and that is gone.
func (w *Watcher) copied(sib sibling, at blockPath, names []string) bool {
	for _, o := range w.siblingsNamed(parent(sib.path), names) {
		if w.sourceOf(at.block, &o.st) == nil || !slices.Contains(names, o.path) && !namedAfter(names, o.path, generationName) {
			continue
		}
		size := o.st.size
		if st, err := statPath(o.path); sib.st.size > size && err == nil && o.st.is(&st) {
			size = st.size // it was filled, and copied, behind the look at its name and before that at the copy's
		}
		// What has more in it than the other is no copy of that: generations begin alike, and the newest may hold no more than that yet.
		if n := min(sib.st.size, copyBytesMax); n > 0 && sib.st.size <= size && bytes.Equal(w.firstBytes(sib, n), w.firstBytes(o, n)) {
			return true
		}
	}
	for g := range w.kin[kinOf(at)] {
		if g.src.missing && g.src.packed == "" && w.copiedBeforeGone(sib, g) {
			return true
		}
	}
	return slices.ContainsFunc(w.strayKin[kinOf(at)], func(f *File) bool { // its inode may be another file's by now
		return f.Path() == at.path && w.isGone(f) && f.cur.Offset > 0 && w.resumes(sib, f.fp, f.cur)
	})
}

// copiedBeforeGone tells whether a file was copied from g before that was removed, as logrotate's renamecopy does.
func (w *Watcher) copiedBeforeGone(sib sibling, g *File) bool {
	if g.fd < 0 {
		return !g.src.lostSince.IsZero() && g.cur.Offset > 0 && w.resumes(sib, g.fp, g.cur)
	}
	st, err := statFD(g.fd)
	n := min(sib.st.size, copyBytesMax)
	if err != nil || st.nlink > 0 || n == 0 || sib.st.size > st.size {
		return false
	}
	own := make([]byte, n)
	m, err := pread(g.fd, own, 0)
	return err == nil && int64(m) == n && bytes.Equal(own, w.firstBytes(sib, n))
}

// isCopyOf tells whether a compressed file was made of a source: that was written last when the copy says, and begins like it. Of
// one that did not keep that time the head must do.
func (w *Watcher) isCopyOf(g *File, sib sibling, head []byte) bool {
	if g.src.finished {
		return false // its own was read
	}
	if g.mayBeCut() {
		return w.holdsNow(g, sib, head)
	}
	st := g.src.st
	if g.fd >= 0 {
		var err error
		if st, err = statFD(g.fd); err != nil {
			return true // nobody can say
		}
	}
	if keptTime(&sib.st) && sib.st.mtime != sib.st.born && !sameWrite(st.mtime, sib.st.mtime) && !w.isOfCopied(g, sib) && !(g.src.missing && g.src.packed == "" && isEarly(&sib.st, &st)) {
		switch { // what was truncated has the time of that
		case g.src.packed != "" || g.src.out && st.size >= g.takenTo.Load():
			return false
		case g.src.out:
			w.moved++ // its reader sees it, and the next scan knows more
			return true
		}
		return beginsLike(head, g.Fingerprint()) && w.wasCut(g)
	}
	switch {
	case g.src.packed != "" && g.src.at == "": // deleted
		return beginsLike(head, g.Fingerprint())
	case g.src.packed != "":
		own, _ := w.headOf(sibling{g.src.at, g.src.st})
		return sameHead(own, head)
	case g.fd >= 0:
		var own [prefixBytesMax]byte
		switch n, err := pread(g.fd, own[:], 0); {
		case err != nil:
			return true // nobody can say
		case n == 0 && g.offsetSeen() > 0:
			w.moved++ // truncated: the next scan knows more
			return true
		default:
			return sameHead(own[:n], head) && w.beginsWith(g.fd, sib)
		}
	case g.fp.PrefixBytes > 0 && !beginsLike(head, g.fp):
		return false
	case g.fp.PrefixBytes > 0:
		o := sibling{g.Path(), g.src.st}
		if g.src.missing {
			return true
		}
		fd, err := w.openSibling(o)
		if err != nil {
			return true // nobody can say
		}
		defer closeFD(fd)
		return w.beginsWith(fd, sib)
	case g.src.missing && g.src.at == "": // deleted, and another file may be where it was
		return g.src.st.size > 0
	}
	var own []byte
	var kind string
	if g.src.at != "" || !g.src.missing { // entered just now; else its path is another file's, or nobody's
		own, kind = w.headOf(sibling{cmp.Or(g.src.at, g.Path()), g.src.st})
	}
	if kind != "" {
		return false // a pattern finds it; it is as unknown as the other, though it may begin like that, or hold nothing
	}
	return len(own) == 0 && g.src.st.size > 0 || sameHead(own, head)
}

// isOfCopied tells whether a compressed file may be made of g, a copy, though it has another time: programs that copy, truncate and compress
// give it that of the last write to the log, before the copy was made. What it holds tells then: how much, and how it begins.
func (w *Watcher) isOfCopied(g *File, sib sibling) bool {
	s, holds := &g.src, w.sizeIn(sib)
	isCopy := s.packed == "" && (g.copy || s.metAt > 0)
	return isCopy && sib.st.mtime < s.st.born && s.st.born <= sib.st.born && (holds.is(s.st.size) || holds.mask == 0 && g.fd >= 0)
}

// holdsNow tells whether g, which may have been truncated, begins with all that is in a compressed file: nothing was, or not yet, and
// that was made, or is being made, of what is in it. Else it was made of what was in it before.
func (w *Watcher) holdsNow(g *File, sib sibling, head []byte) bool {
	if g.fd < 0 {
		return false
	}
	var own [prefixBytesMax]byte
	n, err := pread(g.fd, own[:], 0)
	return err != nil || n > 0 && sameHead(own[:n], head) && w.beginsWith(g.fd, sib)
}

const beginsWithMax = 8 << 20 // of a copy that are compared

// beginsWith tells whether an open file begins with what is in a compressed one, as far as that can be unpacked: programs
// begin their logs alike, and one that differs behind that is no copy. Where the first beginsWithMax agree, all is taken to.
func (w *Watcher) beginsWith(fd int, sib sibling) bool {
	packed, err := w.openSibling(sib)
	if err != nil {
		return true // nobody can say
	}
	defer closeFD(packed)
	_, kind := w.headOf(sib)
	u := newUnpacker(packed, kind)
	defer u.close()
	a, b := make([]byte, inputBytes), make([]byte, inputBytes)
	for off := int64(0); off < beginsWithMax; {
		n := u.more(a)
		if n == 0 {
			return true
		}
		if m, err := pread(fd, b[:n], off); err == nil && (m < n || !bytes.Equal(a[:n], b[:n])) {
			return false
		}
		off += int64(n)
	}
	return true
}
