package tail

// Two rotations between two scans: the path named A, then B, now C, and only A and C were ever seen there. If
// the patterns do not cover rotated names, B would be lost without a trace. It is looked for beside C: a name
// that begins like the path, made after A was last seen at the path and before C, with other content than
// either. If B is compressed already, its copy must keep the time of the last write. Without creation times nothing is guessed.

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// rotation is a path that names another file than before.
type rotation struct {
	after found
	since int64   // a generation in between was made after this; 0: after the youngest that the spool knows
	known []*File // by the spool at this path, when nothing was found yet: some may be gone
}

// blockPath is a path as one block sees it.
type blockPath struct {
	block int
	path  string
}

// clockTick is how much earlier than the clock the file system's times may be.
const clockTick = int64(20e6)

// rotationsOf returns the paths among fresh that belonged to a source until now. At the first scan those are
// the spool's.
func (w *Watcher) rotationsOf(fresh []found) []rotation {
	var list []rotation
	strays := map[blockPath][]*File{}
	if w.scans == 1 {
		for _, same := range w.strays {
			for _, f := range same {
				at := blockPath{f.src.key.block, f.Path()}
				strays[at] = append(strays[at], f)
			}
		}
	}
	for _, c := range fresh {
		if c.st.born == 0 {
			continue
		}
		if f := w.byPath[c.path]; f != nil && f.src.key.block == c.block && f.Path() == c.path && f.src.seenAt > 0 {
			list = append(list, rotation{after: c, since: max(w.seenAt(f)-clockTick, f.src.st.born+1)})
		} else if known := strays[blockPath{c.block, c.path}]; len(known) > 0 {
			list = append(list, rotation{after: c, known: known})
		}
	}
	return list
}

// rescue enters the generations in between as sources under the name they have now.
func (w *Watcher) rescue(list []rotation) {
	for _, r := range list {
		if w.sources[r.after.key] == nil {
			continue // not entered: the next scan finds it again
		}
		since := r.since
		if since == 0 {
			since = w.youngest(r) + 1
		}
		if since == 1 {
			continue // when the one before was made is not known
		}
		names := namesOf(r.after.path)
		for _, sib := range w.siblingsIn(parent(names[len(names)-1])) {
			k := key{r.after.block, sib.st.dev, sib.st.ino}
			g := w.sources[k]
			if g != nil && (!g.src.st.is(&sib.st) || g.ID() != 0 || g.src.out || g.src.missing) {
				continue // it is known; a compressed file that a pattern found just now is not
			}
			if sib.st.born < since || w.mayBeStray(sib) || !namedAfter(names, sib.path, rotationName) {
				continue
			}
			if head, kind := w.headOf(sib); kind != "" {
				if r.since > 0 && sib.st.mtime >= since && w.packedBetween(r.after, sib, names, head) {
					w.rescueCopy(r.after, sib, head, kind)
				}
				continue
			}
			if g != nil || sib.st.born > r.after.st.born || w.copied(sib, r.after, names) || w.copyOfGone(sib, r.known) {
				continue
			}
			f := w.newFile(k.block, r.after.path)
			w.enter(f, found{candidate{block: k.block, path: r.after.path}, k, sib.st})
			w.byPath[r.after.path] = w.sources[r.after.key]
			f.src.missing, f.src.at = true, sib.path
			f.gone.Store(true)
			w.stats.rescued.Add(1)
			w.log.Info("the path was rotated more than once since the last look: the file between is read too", "path", r.after.path, "found_at", sib.path)
		}
	}
}

// packedBetween tells whether a compressed file that was made since the last look is an unseen generation, and not the copy of one
// that is known: that was written last when the copy says, or begins like it. Only a copy that keeps the time of the last write
// is believed; of one that does not, or that is still being made, nobody can say.
func (w *Watcher) packedBetween(c found, sib sibling, names []string, head []byte) bool {
	if sib.st.mtime >= sib.st.born || len(head) == 0 {
		return false
	}
	for _, g := range w.sources {
		if k := g.src.key; k.block != c.block || k == c.key || k == (key{c.block, sib.st.dev, sib.st.ino}) || g.Path() != c.path && !namedAfter(names, g.Path(), generationName) {
			continue
		}
		st := g.src.st
		if g.fd >= 0 {
			var err error
			if st, err = statFD(g.fd); err != nil {
				return false
			}
		}
		if sameWrite(st.mtime, sib.st.mtime) || g.fd < 0 && w.headIs(g, head) {
			return false
		}
	}
	return true
}

// headIs tells whether a closed source begins as head does, as far as anybody knows.
func (w *Watcher) headIs(g *File, head []byte) bool {
	if g.fp.PrefixBytes > 0 {
		return beginsLike(head, g.fp)
	}
	own, _ := w.headOf(sibling{cmp.Or(g.src.at, g.Path()), g.src.st}) // entered just now
	n := min(len(own), len(head))
	return n == 0 || bytes.Equal(own[:n], head[:n])
}

// rescueCopy enters an unseen generation that is read from sib, perhaps a compressed one.
func (w *Watcher) rescueCopy(c found, sib sibling, head []byte, kind string) {
	f := w.newFile(c.block, c.path)
	if kind != "" {
		f.fp.Prefix, f.fp.PrefixBytes = xxhash.Sum64(head), uint32(len(head))
	}
	w.enterCopy(f, copyFound{found{c.candidate, key{c.block, sib.st.dev, sib.st.ino}, sib.st}, sib.path, kind, true})
	w.stats.rescued.Add(1)
}

// youngest returns when the last generation before r.after that the spool knows was made, be it there or gone, 0 if that is
// not known.
func (w *Watcher) youngest(r rotation) (born int64) {
	c := r.after
	for k, f := range w.sources {
		if b := f.src.st.born; k.block == c.block && k != c.key && f.Path() == c.path && b < c.st.born {
			born = max(born, b)
		}
	}
	for _, f := range r.known {
		if b := f.fp.Born; w.isGone(f) && b < c.st.born {
			born = max(born, b)
		}
	}
	return born
}

// isGone tells whether a file of the spool was not found.
func (w *Watcher) isGone(f *File) bool { return w.sources[f.src.key] != f }

// copyOfGone tells whether a file holds what was read of one of known that is gone: its inode may be another file's by now, and
// then it is no stray any more.
func (w *Watcher) copyOfGone(sib sibling, known []*File) bool {
	return slices.ContainsFunc(known, func(f *File) bool {
		return w.isGone(f) && f.cur.Offset > 0 && w.resumes(sib.path, f.fp, f.cur)
	})
}

// rotationName tells whether a file beside path is certainly named as its rotations are, since it is read unseen: app.log.1,
// app.log-20240131, app.log.old; not app.log.lock, and not app.log.wf, which is a log of its own.
func rotationName(path, other string) bool {
	if numbered(path, other) {
		return true
	}
	rest, _ := strings.CutPrefix(other[len(parent(other)):], path[len(parent(path)):])
	return len(rest) > 1 && strings.ContainsRune(".-_", rune(rest[0])) && (rest[1:] == "old" || rest[1:] == "bak")
}

// generationName tells whether a file beside path may be one of its rotations, or what somebody made of one: app.log.1, app.log.saved.
func generationName(path, other string) bool {
	rest, ok := strings.CutPrefix(other[len(parent(other)):], path[len(parent(path)):])
	return ok && rest != "" && strings.ContainsRune(".-_", rune(rest[0]))
}

// mayBeStray tells whether the spool may know a file by another number.
func (w *Watcher) mayBeStray(sib sibling) bool {
	return slices.ContainsFunc(w.strays[sib.st.ino], func(f *File) bool { return bornTogether(f.fp.Born, sib.st.born) })
}

// copied tells whether a file is the copy of another generation of the path: of a source, or of one that
// the spool knows and that is gone.
func (w *Watcher) copied(sib sibling, c found, names []string) bool {
	for _, o := range w.siblingsIn(parent(sib.path)) {
		if w.sources[key{c.block, o.st.dev, o.st.ino}] == nil || !slices.Contains(names, o.path) && !namedAfter(names, o.path, generationName) {
			continue
		}
		if n := min(sib.st.size, o.st.size, copyBytesMax); n > 0 && bytes.Equal(w.firstBytes(sib.path, n), w.firstBytes(o.path, n)) {
			return true
		}
	}
	for _, same := range w.strays {
		for _, f := range same {
			if f.Path() == c.path && f.cur.Offset > 0 && w.resumes(sib.path, f.fp, f.cur) {
				return true
			}
		}
	}
	return false
}

// resumes tells whether the file at path holds what fp and cur remember.
func (w *Watcher) resumes(path string, fp Fingerprint, cur Cursor) bool {
	fd, err := w.openRead(path)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	var r reading
	same, err := r.resume(readFD(fd), fp, cur)
	return err == nil && same
}

// copyBytesMax bounds how much of two files is compared.
const copyBytesMax = 64 << 10

// firstBytes returns the first n bytes of a file, fewer if it is shorter or cannot be read.
func (w *Watcher) firstBytes(path string, n int64) []byte {
	fd, err := w.openRead(path)
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
