package tail

// Rotations that are named by date, and compressed by a program that keeps no times, as a kubelet does. When what is in such a copy was
// written is not known, only that it was before the next one. But dates run forward, so the names are in order, and what the spool knows
// is one piece of the sequence: between two generations that are known there is none that is not.

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// hasDate tells whether a file beside names has a date or a time in what rotations put into its name: then the names say which generation
// is older, and no clock does it better: app.log-20261130, 0.log.20261130-140802, app-2026-11-30.log, app.log.1764511682.
func hasDate(names []string, path string) bool {
	same := 0
	for _, name := range names {
		same = max(same, commonBytes(name, path))
	}
	for rest := path[max(same, len(parent(path))):]; rest != ""; rest = rest[max(1, digits(rest)):] {
		if digits(rest) > countDigitsMax || isYear(rest) {
			return true
		}
	}
	return false
}

// commonBytes is how far two paths agree.
func commonBytes(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// isYear tells whether s begins with a year and goes on with a month.
func isYear(s string) bool {
	return digits(s) == yearDigits && (s[:2] == "19" || s[:2] == "20") && len(s) > yearDigits+1 && strings.ContainsRune(".-_", rune(s[yearDigits])) && isDigit(s[yearDigits+1])
}

// byDate orders two generations by the dates in their names. 0: those do not tell.
func byDate(a, b string) int {
	if a == b || parent(a) != parent(b) {
		return 0
	}
	same := commonBytes(a, b)
	for same > 0 && isDigit(a[same-1]) {
		same--
	}
	restA, restB := a[same:], b[same:]
	n := min(digits(restA), digits(restB))
	if n > countDigitsMax || isYear(restA) && isYear(restB) || n > 0 && dated(a[len(parent(a)):same]) {
		numA, numB := leadingDigits(restA), leadingDigits(restB)
		return cmp.Or(cmp.Compare(len(numA), len(numB)), cmp.Compare(numA, numB))
	}
	return 0
}

// anchor is a generation that is known: its name, "" for the live file, which is behind all of them, and its turn.
type anchor struct {
	name string
	turn uint64
}

// turn orders the generations of a path that the spool knows: they were handed out, and got their numbers, the oldest first. Those that
// were not yet come behind them.
func (f *File) turn() uint64 { return f.ID() - 1 }

// pairByDate gives the generations of the spool of which nothing was read, and that are gone, the copies that are theirs by the order
// of their names, and returns the others, without those that are older than what is known. Only of copies that kept no times.
func (w *Watcher) pairByDate(at blockPath, list []unseen) (others []unseen) {
	var copies []unseen
	names := w.namesOf(at.path)
	for _, u := range list {
		switch {
		case u.kind == "" || !hasDate(names, u.at):
			others = append(others, u)
		case u.st.mtime < u.st.born:
			return list // the program keeps times
		default:
			copies = append(copies, u)
		}
	}
	slices.SortStableFunc(copies, func(a, b unseen) int { return byDate(a.at, b.at) })
	strays := w.unreadStrays(at)
	if len(strays) > 0 && len(copies) > 0 {
		copies = w.pairStrays(at, append(strays, w.knownEmpty(at)...), copies)
	}
	oldest := w.oldestDated(at)
	for _, u := range copies {
		if len(u.head) > 0 && !(oldest != nil && u.isOlder(oldest, names)) {
			u.age = w.packedAge(at, sibling{u.at, u.st}, 0)
			others = append(others, u)
		}
	}
	slices.SortStableFunc(others, func(a, b unseen) int { return cmp.Or(cmp.Compare(a.age, b.age), byDate(a.at, b.at)) })
	return others
}

// pairStrays gives copies to strays, among which are known generations that were empty and have copies too, and returns the others.
func (w *Watcher) pairStrays(at blockPath, strays []*File, copies []unseen) []unseen {
	slices.SortStableFunc(strays, func(a, b *File) int { return cmp.Compare(a.turn(), b.turn()) })
	names := w.namesBeside(at)
	for len(strays) > 0 && len(copies) > 0 {
		older, younger := w.anchors(at, strays[0].turn(), names)
		n := 1 // strays between the two
		for n < len(strays) && strays[n].turn() < younger.turn {
			n++
		}
		from, to := between(copies, older.name, younger.name)
		if older.name == "" && younger.turn < math.MaxUint64 && to-from > n { // they end at the younger one, and those before were read
			copies = copies[to-n:]
			from, to = 0, n
		}
		next := from
		for _, f := range strays[:n] {
			for next < to && len(copies[next].head) == 0 && f.src.st.size > 0 { // that of another, which is forgotten
				next++
			}
			switch {
			case next == to:
			case !w.isStray(f):
				if len(copies[next].head) == 0 {
					next++
				}
			default:
				u := copies[next]
				next++
				w.unstray(f)
				w.stats.rescued.Add(1)
				u.age = 0 // that is told by what is known of it
				w.enterUnread(f, u)
			}
		}
		copies = slices.Delete(copies, from, next)
		strays = strays[n:]
	}
	return copies
}

// knownEmpty are the generations that are known, were empty and are deleted: they may have copies, which hold nothing.
func (w *Watcher) knownEmpty(at blockPath) (list []*File) {
	for g := range w.kin[kinOf(at)] {
		if s := &g.src; g.ID() != 0 && g.neverRead() && s.missing && s.at == "" && s.st.size == 0 {
			list = append(list, g)
		}
	}
	return list
}

// namesBeside are the names that known generations have by now which are followed by their descriptors, or were read and deleted: then
// those of their copies, where heads tell.
func (w *Watcher) namesBeside(at blockPath) map[*File]string {
	found, own, names := map[*File]string{}, map[*File]string{}, w.namesOf(at.path)
	var several []*File
	for _, dir := range w.dirsOf(at.path) {
		for _, sib := range w.siblingsNamed(dir, names) {
			if !namedAfter(names, sib.path, rotationName) || !hasDate(names, sib.path) {
				continue
			}
			if g := w.sourceOf(at.block, &sib.st); g != nil {
				own[g] = sib.path
				continue
			}
			head, kind := w.headOf(sib)
			if kind == "" {
				continue
			}
			var of []*File
			for g := range w.kin[kinOf(at)] {
				if s := &g.src; g.ID() != 0 && s.packed == "" && s.missing && s.at == "" && beginsLike(head, g.Fingerprint()) {
					of = append(of, g)
				}
			}
			if len(of) != 1 || found[of[0]] != "" {
				several = append(several, of...)
				continue
			}
			found[of[0]] = sib.path
		}
	}
	for _, g := range several {
		delete(found, g)
	}
	maps.Copy(found, own)
	return found
}

// oldestDated is the oldest generation that the spool knows: what is older was forgotten. nil: that one is not found yet, or its name does not
// order it.
func (w *Watcher) oldestDated(at blockPath) (oldest *File) {
	older := func(g *File) {
		if g.ID() != 0 && g.src.lostSince.IsZero() && (oldest == nil || g.turn() < oldest.turn()) {
			oldest = g
		}
	}
	for g := range w.kin[kinOf(at)] {
		older(g)
	}
	for _, g := range w.strayKin[kinOf(at)] {
		if w.isStray(g) {
			older(g)
		}
	}
	if oldest == nil || w.isStray(oldest) || !hasDate(w.namesOf(at.path), oldest.name()) {
		return nil
	}
	return oldest
}

// isOlder tells whether what is in a copy is older than g: by date, or since it was made before g was set aside to be compressed.
func (u *unseen) isOlder(g *File, names []string) bool {
	if namedAfter(names, g.name(), setAside) {
		return u.st.born != 0 && u.st.born < g.src.st.ctime
	}
	return byDate(u.at, g.name()) < 0
}

// between tells which of copies, which are in order, are behind older and before younger; no name: all.
func between(copies []unseen, older, younger string) (from, to int) {
	for older != "" && from < len(copies) && byDate(copies[from].at, older) < 0 {
		from++
	}
	for to = from; to < len(copies) && (younger == "" || byDate(copies[to].at, younger) < 0); {
		to++
	}
	return from, to
}

// unreadStrays are the sources of the spool that are gone and of which nothing was read, the oldest first.
func (w *Watcher) unreadStrays(at blockPath) (list []*File) {
	for _, f := range w.strayKin[kinOf(at)] {
		if w.isStray(f) && f.Path() == at.path && f.neverRead() && f.fp.Born != 0 {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *File) int { return cmp.Compare(a.fp.Born, b.fp.Born) })
	return list
}

// anchors are the known generations before and behind one; no name: there is none before it, or the live file is behind it. The turn of
// none behind it is the last possible. beside are names of those of which none is kept.
func (w *Watcher) anchors(at blockPath, turn uint64, beside map[*File]string) (older, younger anchor) {
	names := w.namesOf(at.path)
	younger.turn = math.MaxUint64
	for g := range w.kin[kinOf(at)] {
		if g.ID() == 0 || !g.src.lostSince.IsZero() && beside[g] == "" {
			continue
		}
		a := anchor{cmp.Or(beside[g], g.name()), g.turn()}
		if isLive := !g.src.missing && g.Path() == at.path; isLive {
			a.name = ""
		} else if !hasDate(names, a.name) {
			continue
		}
		switch {
		case a.turn < turn && a.name != "" && (older.name == "" || a.turn > older.turn):
			older = a
		case a.turn > turn && a.turn < younger.turn:
			younger = a
		}
	}
	return older, younger
}

// isOfEmpty tells whether a compressed file holds nothing and is the copy of a generation of the spool: that is no hole then. Nothing was
// written to that after it was made, so its time says so; where no times are kept the order of dates does.
func (w *Watcher) isOfEmpty(at blockPath, sib sibling) bool {
	original, alone := unpackedName(sib.path), true
	for _, o := range w.siblingsIn(parent(sib.path)) {
		if o.path == original { // or the copy has another name until it is whole
			return false
		}
		alone = alone && (o.path == sib.path || o.st.mtime != sib.st.mtime)
	}
	if !w.holdsNothing(sib) {
		return false
	}
	strays := w.unreadStrays(at)
	if sib.st.mtime >= sib.st.born {
		return hasDate(w.namesOf(at.path), sib.path) && len(strays) > 0
	}
	return alone && slices.ContainsFunc(strays, func(g *File) bool { return g.fp.Born == sib.st.mtime })
}

// strayNamed looks for the copy of a source of the spool of which nothing was read and that is gone, if a pattern found it under a
// rotation's name with a date: that stays, so the copy has it too.
func (w *Watcher) strayNamed(f *File) bool {
	path, block := f.Path(), f.src.key.block
	if !f.neverRead() || f.fp.Born == 0 || !hasDate([]string{stemOf(path)}, path) {
		return false
	}
	for _, sib := range w.siblingsIn(parent(path)) {
		k := key{block, sib.st.dev, sib.st.ino}
		g := w.sourceOf(block, &sib.st)
		if sib.path == path || unpackedName(sib.path) != path || g != nil && g.isKnown() || w.excluded[key{0, k.dev, k.ino}] || sib.st.born < f.fp.Born {
			continue
		}
		if head, kind := w.headOf(sib); kind != "" && len(head) > 0 {
			w.unstray(f)
			w.enterUnread(f, unseen{copyFound{found: found{candidate{block: block, path: path}, k, sib.st}, at: sib.path, kind: kind, sure: true}, head})
			return true
		}
	}
	return false
}
