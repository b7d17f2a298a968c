package tail

// Two rotations between two scans: the path named A, then B, now C, and only A and C were ever seen there. If
// the patterns do not cover rotated names, B would be lost without a trace. It is looked for beside C: a name
// that begins like the path, made after A was last seen at the path and before C, with other content than
// either. If B is compressed already, its copy must keep the time of the last write. Without creation times nothing is guessed.

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// rotation is a path that names another file than before.
type rotation struct {
	after found
	since int64 // a generation in between was made after this; 0: after the youngest that the spool knows
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
	strays := map[blockPath]bool{}
	if w.scans == 1 {
		for _, same := range w.strays {
			for _, f := range same {
				strays[blockPath{f.src.key.block, f.Path()}] = true
			}
		}
	}
	for _, c := range fresh {
		if c.st.born == 0 {
			continue
		}
		if f := w.byPath[c.path]; f != nil && f.src.key.block == c.block && f.Path() == c.path && f.src.seenAt > 0 {
			list = append(list, rotation{c, max(w.seenAt(f)-clockTick, f.src.st.born+1)})
		} else if strays[blockPath{c.block, c.path}] {
			list = append(list, rotation{after: c})
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
			since = w.youngest(r.after) + 1
		}
		if since == 1 {
			continue // when the one before was made is not known
		}
		names := namesOf(r.after.path)
		for _, sib := range w.siblingsIn(parent(names[len(names)-1])) {
			k := key{r.after.block, sib.st.dev, sib.st.ino}
			if sib.st.born < since || w.sources[k] != nil || w.mayBeStray(sib) || !namedAfter(names, sib.path, generationName) {
				continue
			}
			if head, kind := w.headOf(sib); kind != "" {
				if r.since > 0 && sib.st.mtime >= since && w.packedBetween(r.after, sib, names, head) {
					w.rescueCopy(r.after, sib, head, kind)
				}
				continue
			}
			if sib.st.born > r.after.st.born || w.copied(sib, r.after, names) {
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
		if g.src.key.block != c.block || g.src.key == c.key || g.Path() != c.path && !namedAfter(names, g.Path(), generationName) {
			continue
		}
		st := g.src.st
		if g.fd >= 0 {
			var err error
			if st, err = statFD(g.fd); err != nil {
				return false
			}
		}
		if sameWrite(st.mtime, sib.st.mtime) || g.fd < 0 && (g.fp.PrefixBytes == 0 || beginsLike(head, g.fp)) {
			return false
		}
	}
	return true
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

// youngest returns when the last generation before c that the spool knows was made, 0 if that is not known.
func (w *Watcher) youngest(c found) (born int64) {
	for k, f := range w.sources {
		if b := f.src.st.born; k.block == c.block && k != c.key && f.Path() == c.path && b < c.st.born {
			born = max(born, b)
		}
	}
	return born
}

// generationName tells whether a file beside path is named as its rotations are: app.log.1, app.log-20240131.
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
