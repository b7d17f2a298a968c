package tail

// Which sources are generations of one path, and in which order. Under a pattern that finds the rotated names too each of
// them has a path of its own, so what counts is the path without what rotations put behind it.

import (
	"cmp"
	"slices"
	"strings"
)

// kinOf is what the generations of a path have in common.
func kinOf(at blockPath) blockPath { return blockPath{at.block, stemOf(at.path)} }

func (f *File) kin() blockPath { return kinOf(blockPath{f.src.key.block, f.Path()}) }

var compressedNames = []string{".gz", ".zst", ".bz2", ".xz", ".lz4"}

// packedName tells whether a file is named as compressed.
func packedName(path string) bool {
	return slices.ContainsFunc(compressedNames, func(suffix string) bool { return strings.HasSuffix(path, suffix) })
}

// unpackedName is a path without the ending of a compression.
func unpackedName(path string) string {
	for _, suffix := range compressedNames {
		if rest, ok := strings.CutSuffix(path, suffix); ok {
			return rest
		}
	}
	return path
}

// stemOf is a path without a compression and the numbers and dates behind its name.
func stemOf(path string) string {
	path = unpackedName(path)
	for {
		digits := len(path)
		for digits > 0 && isDigit(path[digits-1]) {
			digits--
		}
		if digits == len(path) || digits < 2 || path[digits-1] != '.' && path[digits-1] != '-' || path[digits-2] == '/' {
			return path
		}
		path = path[:digits-1]
	}
}

// joinKin notes the path of f; leaveKin that it is no source any more.
func (w *Watcher) joinKin(f *File) {
	at := f.kin()
	w.leaveKin(f)
	f.src.kin = at
	if w.kin[at] == nil {
		w.kin[at] = map[*File]struct{}{}
	}
	w.kin[at][f] = struct{}{}
}

func (w *Watcher) leaveKin(f *File) {
	at := f.src.kin
	if delete(w.kin[at], f); len(w.kin[at]) == 0 {
		delete(w.kin, at)
	}
}

// age orders the generations of a path: when a file was made, or what is in a compressed copy was written last. What is in a file
// that was truncated in place is younger than the copies that were made of it before.
func (f *File) age() int64 {
	s := &f.src
	switch {
	case s.packed != "":
		return s.age
	case s.st.born != 0:
		return max(s.st.born, s.cutAt)
	}
	return s.st.mtime
}

// before tells whether f is an older generation than g.
func (f *File) before(g *File) bool {
	if f.src.restOf == g || g.src.restOf == f {
		return f.src.restOf == g
	}
	return cmp.Or(cmp.Compare(f.age(), g.age()), trueFirst(f.src.packed != "", g.src.packed != ""), trueFirst(f.src.missing, g.src.missing), byGeneration(f.name(), g.name())) < 0
}

// name is the name that f has now, as far as that is known, behind symlinks.
func (f *File) name() string { return cmp.Or(f.src.at, f.src.real, f.Path()) }

// packedAge is the age of what is in a compressed file. If that did not keep the time of the last write, it is between those of its
// neighbours by name. The last of these is the file at the path itself, if it is new there: one that is known may be what was
// copied and truncated.
func (w *Watcher) packedAge(at blockPath, sib sibling) int64 {
	if keptTime(&sib.st) {
		return sib.st.mtime
	}
	age, above, names := int64(0), sib.st.mtime, namesOf(at.path)
	style, order := styleOf(names, sib.path), w.orderBeside(names, sib)
	for _, o := range w.siblingsIn(parent(sib.path)) {
		if o.path == sib.path || (!namedAfter(names, o.path, numbered) || styleOf(names, o.path) != style) && !(slices.Contains(names, o.path) && w.isNewAt(at.block, o)) {
			continue
		}
		made, written := o.st.born, o.st.mtime
		if g := w.sourceOf(at.block, &o.st); g != nil && g.src.packed != "" {
			made, written = g.age(), g.age()
		} else if _, kind := w.headOf(o); kind != "" {
			if !keptTime(&o.st) {
				continue
			}
			made = written
		}
		if !slices.Contains(names, o.path) && order(o.path, sib.path) < 0 {
			age = max(age, written+1)
		} else {
			above = min(above, made-1)
		}
	}
	return max(age, above)
}

// isNewAt tells whether the spool does not know a file, under no name, and when it was made is known.
func (w *Watcher) isNewAt(block int, sib sibling) bool {
	g := w.sourceOf(block, &sib.st)
	return sib.st.born != 0 && (g == nil || g.ID() == 0) && !w.mayBeStray(sib)
}

// undecided tells whether younger generations must wait for f although it is not queued: it was not handed out yet, it may not be
// what it seems, or it is still being written.
func (f *File) undecided() bool {
	s := &f.src
	switch {
	case s.forgotten || s.finished || s.denied || !s.lostSince.IsZero() || s.skip != "":
		return false
	case s.packed != "" && (s.younger || s.torn):
		return true
	}
	return f.ID() == 0 && s.missing && !s.out
}

// mustWait tells whether an older generation of the path of f comes first.
func (w *Watcher) mustWait(f *File, kin blockPath) bool {
	if w.lookAgain[kin] {
		return true
	}
	if len(w.unsettled) == 0 {
		return false
	}
	for g := range w.kin[kin] {
		if g != f && g.undecided() && g.before(f) {
			return true
		}
	}
	return false
}

// sortKin puts the generations of each path in order, in the places that they have in the queue.
func sortKin(queue []*File) {
	places := map[blockPath][]int{}
	for i, f := range queue {
		places[f.src.kin] = append(places[f.src.kin], i)
	}
	for _, at := range places {
		if len(at) < 2 {
			continue
		}
		files := make([]*File, len(at))
		for i, p := range at {
			files[i] = queue[p]
		}
		slices.SortFunc(files, func(a, b *File) int {
			switch {
			case a.before(b):
				return -1
			case b.before(a):
				return 1
			}
			return 0
		})
		for i, p := range at {
			queue[p] = files[i]
		}
	}
}

// leaveBehind is for a file that is gone and was read to its end. It is forgotten, unless it is still needed.
func (w *Watcher) leaveBehind(f *File) {
	for _, dir := range dirsOf(f.Path()) {
		delete(w.siblings, dir) // it was listed before f went, perhaps: without the copy that f was removed for
	}
	if !w.needed(f) {
		w.forget(f)
		return
	}
	if f.src.left = true; f.src.packed == "" {
		w.countLost(f)
		f.src.lostSince = w.now()
	}
	f.letNext()
	w.closeFile(f)
}

// needed tells whether a start would miss f: a younger generation is not known to the spool yet, and nothing else leads to it, or an older
// one is still known, and a start would take every younger copy that it does not know for unseen.
func (w *Watcher) needed(f *File) bool {
	kin := f.src.kin
	for at := range w.unsettled {
		if kinOf(at) == kin {
			return true
		}
	}
	now := w.now()
	for g := range w.kin[kin] {
		switch {
		case g == f:
		case g.ID() == 0:
			if g.src.waiting || g.due(now) {
				return true
			}
		case f.src.packed != "":
			if f.src.lostSince.IsZero() && (g.age() < f.age() || g.before(f) || g.src.cutAt != 0) { // its copy is still there; g may be what was truncated
				return true
			}
		case !g.before(f):
		case !g.src.missing && g.Path() == f.Path():
		case g.fd >= 0 && g.src.st.nlink == 0, w.copiesBeside(f):
			return true
		}
	}
	return slices.ContainsFunc(w.strayKin[kin], func(g *File) bool { return w.isStray(g) && g.fp.Born <= f.age() }) && w.copiesBeside(f)
}

// copiesBeside tells whether there is a compressed file that may be a generation of f's path.
func (w *Watcher) copiesBeside(f *File) bool {
	names, dirs := namesOf(f.src.kin.path), dirsOf(f.Path()) // a pattern may have found f under a rotation's name
	if real := f.src.real; real != "" {
		names, dirs = append(names, stemOf(real)), append(dirs, parent(real))
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return slices.ContainsFunc(w.siblingsIn(dir), func(sib sibling) bool {
			if !namedAfter(names, sib.path, numbered) {
				return false
			}
			_, kind := w.headOf(sib)
			return kind != ""
		})
	})
}
