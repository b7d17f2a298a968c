package tail

// Which sources are generations of one path, and in which order. Under a pattern that finds the rotated names too each of
// them has a path of its own, so what counts is the path without what rotations put behind it.

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// kinOf is what the generations of a path have in common.
func kinOf(at blockPath) blockPath { return blockPath{at.block, stemOf(at.path)} }

func (f *File) kin() blockPath { return kinOf(blockPath{f.src.key.block, f.Path()}) }

// Family is the path whose generations f is one of, for whoever keeps their lines together and in order, each behind those before it: the path
// without what rotations put behind it, and without a date before its extension, if there is a log of that name, or was one: a program may
// make it with the first line behind a rotation. Where none is known the files may be logs of their own, written to side by side, as those
// of jobs are. It is for Handler.Open.
func (f *File) Family() string {
	stem := stemOf(f.Path())
	if len(f.w.lived[blockPath{f.src.key.block, stem}]) > 0 {
		return stem
	}
	return withoutTags(f.Path())
}

// live notes that f has, or had, the path of which its kin are the rotations.
func (w *Watcher) live(f *File) {
	s := &f.src
	w.lived.leave(s.lived, f)
	s.lived = s.kin
	w.lived.join(s.lived, f)
}

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

// stemOf is a path without a compression, the numbers and dates behind its name, and a date before its extension. A number there may be
// another instance's.
func stemOf(path string) string {
	path = withoutTags(path)
	name := strings.LastIndexByte(path, '/') + 1
	if dot := extensionOf(path[name:]); dot > 0 {
		if tag := tagBefore(path[name:], dot); tag > 0 && isDate(path[name+tag+1:]) {
			return path[:name+tag] + path[name+dot:]
		}
	}
	return path
}

// withoutTags is a path without a compression and the numbers and dates behind its name.
func withoutTags(path string) string {
	path = unpackedName(path)
	for {
		digits := len(path)
		for digits > 0 && isDigit(path[digits-1]) {
			digits--
		}
		if digits == len(path) || digits < 2 || !isBeforeTag(path[:digits]) || path[digits-2] == '/' {
			return path
		}
		path = path[:digits-1]
	}
}

// isBeforeTag tells whether path ends in what sets a number or date off; between a date and its time that may be another character, as in
// app.log.2026-11-30_10-15, Python's names.
func isBeforeTag(path string) bool {
	switch last := len(path) - 1; path[last] {
	case '.', '-':
		return true
	case '_', 'T':
		return dated(path[:last])
	}
	return false
}

// kinSet is sources by what they have in common.
type kinSet map[blockPath]map[*File]struct{}

func (k kinSet) join(at blockPath, f *File) {
	if k[at] == nil {
		k[at] = map[*File]struct{}{}
	}
	k[at][f] = struct{}{}
}

func (k kinSet) leave(at blockPath, f *File) {
	if delete(k[at], f); len(k[at]) == 0 {
		delete(k, at)
	}
}

// joinKin notes the path of f; leaveKin that it is no source any more. A pattern may find it under names that have other kin, as
// app-1.log of app.log: what is compressed of it is a copy for both.
func (w *Watcher) joinKin(f *File) {
	s, at := &f.src, f.kin()
	w.leaveKin(f)
	if s.from == (blockPath{}) && s.kin != at {
		s.from = s.kin
	}
	s.kin = at
	w.kin.join(at, f)
	if at.path == f.Path() {
		w.live(f)
	}
	if s.from != (blockPath{}) {
		w.cameFrom.join(s.from, f)
	}
}

func (w *Watcher) leaveKin(f *File) {
	w.kin.leave(f.src.kin, f)
	w.cameFrom.leave(f.src.from, f)
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
	return cmp.Or(cmp.Compare(f.age(), g.age()), byDate(f.name(), g.name()), trueFirst(f.src.packed != "", g.src.packed != ""), trueFirst(f.src.missing, g.src.missing), byGeneration(f.name(), g.name())) < 0
}

// name is the name that f has now, as far as that is known, behind symlinks.
func (f *File) name() string { return cmp.Or(f.src.at, f.src.real, f.Path()) }

// packedAge is the age of what is in a compressed file that was made of one created at born; 0: unknown. If the copy did not keep the
// time of the last write, it is between those of its neighbours: that of which it is known when they were made, else by name. Where
// the copy's times may be kept or not, dates in names are believed.
func (w *Watcher) packedAge(at blockPath, sib sibling, born int64) int64 {
	st, names := &sib.st, w.namesOf(at.path)
	isDated := hasDate(names, sib.path)
	if keptTime(st) && (st.mtime != st.born || !isDated) {
		return st.mtime
	}
	age, above := int64(0), w.madeAfter(at, born, st.mtime)
	style, order := styleOf(names, sib.path), w.orderBeside(names, sib)
	if isDated {
		order = byDate
	}
	for _, o := range w.siblingsNamed(parent(sib.path), names) {
		isLive := slices.Contains(names, o.path)
		if o.path == sib.path || (!namedAfter(names, o.path, numbered) || styleOf(names, o.path) != style) && !(isLive && w.isNewAt(at.block, o)) {
			continue
		}
		side := 1 // the live file is behind all
		if !isLive {
			side = order(o.path, sib.path)
		}
		switch made, written, ok := w.timesOf(at, o, isDated); {
		case !ok || side == 0:
		case side < 0:
			age = max(age, written)
		default:
			above = min(above, made)
		}
	}
	if age > st.mtime+clockTick && !isDated {
		age = st.mtime // whatever the numbers seem to say, what is in a copy was written before it was complete
	}
	return max(age, above)
}

// timesOf is when a neighbour of a compressed file was made, at the latest, and how old it is. !ok: unknown. Where dates tell, two of
// one age are in their order; else there is a nanosecond between them.
func (w *Watcher) timesOf(at blockPath, o sibling, isDated bool) (made, written int64, ok bool) {
	made, written = o.st.born, o.st.mtime
	g := w.sourceOf(at.block, &o.st)
	if g != nil && g.src.packed != "" {
		made, written = min(g.age(), g.made()), g.age()
	} else if head, kind := w.headOf(o); kind != "" {
		if g := w.openOriginal(at, o, head); g != nil {
			made, written = g.src.st.born, g.src.st.born
		} else if made = written; !keptTime(&o.st) || isDated && o.st.mtime == o.st.born {
			return 0, 0, false
		}
	} else if isDated {
		written = made // which is its age
	}
	if isDated {
		return made, written, true
	}
	return made - 1, written + 1, true
}

// made is when a generation was made, at the latest.
func (f *File) made() int64 {
	s := &f.src
	switch {
	case s.packed == "":
		return s.st.born
	case s.was.Born == 0 || s.was.Ino == s.st.ino && s.was.Born == s.st.born: // that of the copy
		return s.age
	}
	return s.was.Born
}

// openOriginal is the file that a compressed one was made of, if it is still being read although it was removed.
func (w *Watcher) openOriginal(at blockPath, sib sibling, head []byte) *File {
	for g := range w.kin[kinOf(at)] {
		if g.fd >= 0 && g.src.packed == "" && g.src.missing && g.src.st.born != 0 && w.isCopyOf(g, sib, head) {
			return g
		}
	}
	return nil
}

// madeAfter is when the first of the generations that are known was made after born, at most until. 0: born is unknown.
func (w *Watcher) madeAfter(at blockPath, born, until int64) int64 {
	if born == 0 {
		return until
	}
	first := func(made int64) {
		if made > born {
			until = min(until, made)
		}
	}
	for g := range w.kin[kinOf(at)] {
		first(g.made())
	}
	for _, g := range w.strayKin[kinOf(at)] {
		first(g.fp.Born)
	}
	return until
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
	if len(w.unsettled) == 0 && len(w.heldBack) == 0 {
		return false
	}
	for g := range w.kin[kin] {
		if g != f && (g.undecided() || g.behind.Load()) && g.before(f) {
			return true
		}
	}
	return false
}

// letGoOfBehind ends that files are held back of which all that came before was read, or is lost.
func (w *Watcher) letGoOfBehind() {
	if len(w.heldBack) == 0 {
		return
	}
	w.mu.Lock()
	pending := map[*File]bool{}
	for _, t := range w.truncated {
		pending[t.f] = true
	}
	w.mu.Unlock()
	for _, f := range slices.SortedFunc(maps.Keys(w.heldBack), func(a, b *File) int { return cmp.Compare(a.ID(), b.ID()) }) {
		if !pending[f] && (w.isGone(f) || !w.comesLater(f)) {
			f.letGo(w.heldBack[f])
			delete(w.heldBack, f)
		}
	}
	w.holdsBack.Store(len(w.heldBack) > 0)
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
	w.relist(f)
	if w.keepDelivered(f) {
		f.end()
		return
	}
	if !w.needed(f) {
		w.forget(f)
		return
	}
	if f.src.left = true; f.src.packed == "" {
		w.countLost(f)
		f.src.lostSince = w.now()
	}
	f.end()
	w.closeFile(f)
}

// needed tells whether a start would miss f: a younger generation is not known to the spool yet, and nothing else leads to it, or an older
// one is still known, and a start would take every younger copy that it does not know for unseen.
func (w *Watcher) needed(f *File) bool {
	kins, now := f.kins(), w.now()
	for at := range w.unsettled {
		if slices.Contains(kins, kinOf(at)) {
			return true
		}
	}
	for _, kin := range kins {
		for _, known := range []map[*File]struct{}{w.kin[kin], w.cameFrom[kin]} {
			for g := range known {
				if g != f && w.neededBeside(f, g, now) {
					return true
				}
			}
		}
	}
	older := func(g *File) bool { return w.isStray(g) && g.fp.Born <= f.age() }
	return (w.isLastKnown(f) || slices.ContainsFunc(kins, func(kin blockPath) bool { return slices.ContainsFunc(w.strayKin[kin], older) })) && w.copiesBeside(f)
}

// kins are the paths of which f is a generation: what it is named after now, and before a pattern found it renamed.
func (f *File) kins() []blockPath {
	if s := &f.src; s.from != (blockPath{}) && s.from != s.kin {
		return []blockPath{s.kin, s.from}
	}
	return []blockPath{f.src.kin}
}

// neededBeside tells whether f is needed since g, another generation, is as far as it is.
func (w *Watcher) neededBeside(f, g *File, now time.Time) bool {
	switch {
	case g.ID() == 0:
		return g.src.waiting || g.due(now)
	case !g.before(f) || !g.src.missing && g.Path() == f.Path():
		return false
	}
	return g.fd >= 0 && g.src.st.nlink == 0 || w.copiesBeside(f)
}

// isLastKnown tells whether nothing but f says that a path was ever read: no younger generation is known, and nothing is there now. Of
// a path of which nothing is known, the spool would not take what is made, rotated and compressed before the next start.
func (w *Watcher) isLastKnown(f *File) bool {
	younger := func(g *File) bool { return g != f && (!g.src.missing || f.before(g)) }
	return !slices.ContainsFunc(f.kins(), func(kin blockPath) bool {
		for g := range w.kin[kin] {
			if younger(g) {
				return true
			}
		}
		return slices.ContainsFunc(w.strayKin[kin], func(g *File) bool { return w.isStray(g) && younger(g) })
	})
}

// copiesBeside tells whether there is a compressed file that may be a generation of f's path.
func (w *Watcher) copiesBeside(f *File) bool {
	names, dirs := w.namesOfKin(f)
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return slices.ContainsFunc(w.siblingsNamed(dir, names), func(sib sibling) bool {
			if !namedAfter(names, sib.path, numbered) {
				return false
			}
			_, kind := w.headOf(sib)
			return kind != ""
		})
	})
}

// namesOfKin are the names that generations of f's path may be named after, and the directories where they may be.
func (w *Watcher) namesOfKin(f *File) (names, dirs []string) {
	dirs = w.dirsOf(f.Path())
	for _, kin := range f.kins() { // a pattern may have found f under a rotation's name
		names = append(names, w.namesOf(kin.path)...)
	}
	if real := f.src.real; real != "" {
		names, dirs = append(names, stemOf(real)), append(dirs, parent(real))
	}
	slices.Sort(dirs)
	return names, slices.Compact(dirs)
}
