package tail

// A full scan: paths -> stats -> sources. What has unread bytes is queued; admit hands it out. Between two of them
// look.go sees to the files.

import (
	"cmp"
	"slices"
	"time"
)

// source is Run's side of a File.
type source struct {
	key      key
	st       fileStat // as seen last
	checked  fileStat // as it was when a reader was last told to look (or the content was compared)
	out      bool     // a reader holds it
	waiting  bool     // queued
	wasBlock string   // the block that the spool names, if that is gone from the config
	unwanted bool     // the spool knows it under a path that its block excludes now, or does not find: it is remembered, and not looked for
	skip     string   // compressed with this; looked at again when it changes

	seen       uint64 // full scan that found it under a pattern
	seenAt     int64  // wall clock then, nanoseconds
	candidate  string // the path it was found at; becomes the path when the scan ends
	real       string // path without symlinks
	link       bool   // the name itself may be a symlink: where it leads can change without a change of its directory
	hot        bool   // in Watcher.hot
	turn       bool   // a full scan looks at it although its directory did not change
	listed     bool   // in Watcher.ring
	forgotten  bool   // no source any more
	opened     string // path it was open under last
	missing    bool   // no pattern finds it
	passed     int64  // bytes that were passed over when it was found: it is new, and starts at the end or is older than its block wants
	at         string // missing and closed: the name it has outside the patterns
	denied     bool   // could not be opened for lack of permission
	deniedAs   int64  // its change time then: another one may mean that it can
	deniedFor  time.Duration
	retryAt    time.Time
	changedAt  time.Time
	roomAt     time.Time // when a reader gave it back last, or its room was looked into
	goneAt     time.Time // when it was first seen that it has no name any more
	lostSince  time.Time // missing and closed: no name was found since then
	left       bool      // it was deleted and read to its end, and is only remembered as long as it is needed
	owes       bool      // it was truncated or its directory moved, and the spool may hold where it was before that: it is handed out once more
	kin, lived blockPath // generations of one path; of the path that was its own
	from       blockPath // those of the path where it was found first, if they are others
	copySource
}

// found is a file no source is known for yet.
type found struct {
	candidate
	key key
	st  fileStat
}

// scanAll looks at every path that the patterns find.
func (w *Watcher) scanAll() {
	w.scans++
	w.rescan = false
	w.wall = time.Now().UnixNano()
	w.startedAt = cmp.Or(w.startedAt, w.wall)
	w.refreshExcludes()
	w.candidates = w.walker.walk(w.wall)
	clear(w.refused.paths)
	clear(w.refused.known)
	w.lookAnew()
	w.realDirs, w.homes = map[string]string{}, map[int]map[uint64][]sibling{}
	clear(w.lookAgain)
	for range min(w.looks, len(w.ring)) {
		w.nextAtRest().src.turn = true
	}
	fresh := w.lookAt(w.candidates)
	w.unsettleRotated(fresh)
	w.allWall = w.wall
	w.settlePaths()
	w.resolve(fresh)
	if len(w.strays) > 0 {
		w.searchStrays()
	}
	w.lookForMissing()
	if w.scans == 1 {
		w.unsettleMoved()
	}
	w.settle()
	w.tellStrays()
	w.notify.watch(w.watchable())
	w.queueDue()
	w.closeQuiet()
	w.sortOut()
}

// lookAt stats every candidate and returns those that belong to no source.
func (w *Watcher) lookAt(list []candidate) []found {
	var fresh []found
	met := map[key]bool{}
	for _, c := range list {
		if w.sightAsBefore(c) {
			continue
		}
		st, err := statPath(c.path)
		if err != nil {
			if w.cannot(c.path, err) {
				w.refused.paths[c.path] = true
			}
			continue
		}
		if w.excluded[key{0, st.dev, st.ino}] {
			continue
		}
		if !st.regular() {
			if w.warnOnce(c.path, "skipped: it is a "+st.kind()+", not a regular file") {
				w.stats.skippedFiles.Add(1)
			}
			continue
		}
		k := key{c.block, st.dev, st.ino}
		if f := w.sources[k]; f != nil {
			if f.src.st.is(&st) || w.bornAnew(f, c.path, &st) {
				w.sight(f, c, st)
				continue
			}
			w.displace(f)
		}
		if !met[k] {
			met[k] = true
			fresh = append(fresh, found{c, k, st})
		}
	}
	return fresh
}

// sightAsBefore is sight of a file at rest that the last full scan found at the same path, in a directory that did not change
// since: without a stat, unless it is its turn to be looked at.
func (w *Watcher) sightAsBefore(c candidate) bool {
	f := w.byPath[c.path]
	if f == nil || c.link {
		return false
	}
	s := &f.src
	turn := s.turn
	if s.turn = false; turn || s.key.block != c.block || s.candidate != c.path || s.seen != w.scans-1 || s.missing || s.hot || f.Path() != c.path || !w.walker.asBefore(parent(c.path)) ||
		w.excluded[key{0, s.key.dev, s.key.ino}] {
		return false
	}
	s.seen, s.seenAt = w.scans, w.wall
	return true
}

// sight notes that the scan found f at path. Of several names (hard links, symlinks) the one it had stays. A compressed copy stays
// a generation of its path whether a pattern finds its name or not: that may be one of other kin, as app.1.log.gz of app.log.
func (w *Watcher) sight(f *File, c candidate, st fileStat) {
	s := &f.src
	if s.packed != "" {
		return
	}
	if s.seen != w.scans {
		s.seen, s.seenAt, s.candidate, s.link = w.scans, w.wall, c.path, c.link
		w.note(f, st)
	} else if c.path == f.Path() {
		s.candidate, s.link = c.path, c.link
	}
}

// note takes a new stat of f and tells the reader that holds it.
func (w *Watcher) note(f *File, st fileStat) {
	s := &f.src
	if !st.same(&s.st) {
		s.changedAt = w.now()
		w.heat(f)
	}
	w.noteGone(f, &st)
	if st.size < s.st.size {
		f.shrunk.Store(s.st.size)
	}
	if st.size == 0 && s.st.size == 0 && st.mtime != s.st.mtime && f.ID() != 0 && f.offsetSeen() == 0 && s.packed == "" && !f.copy {
		f.touched.Store(true)
	}
	if st.born == 0 {
		st.born = s.st.born
	}
	if s.st = st; w.roomFilled(f) {
		s.checked = fileStat{}
	}
	if s.out && !st.same(&s.checked) {
		s.checked = st
		f.check.Store(true)
		f.hint()
	}
}

// settlePaths gives every source that was found the path it was found at.
func (w *Watcher) settlePaths() {
	for _, f := range w.sources {
		s := &f.src
		if s.seen != w.scans {
			continue
		}
		if s.missing {
			w.cameBack(f)
		}
		if s.candidate != f.Path() || s.real == "" {
			w.setPath(f, s.candidate)
		}
	}
}

func (w *Watcher) setPath(f *File, path string) {
	f.src.owes = f.src.owes || f.ID() != 0 && parent(path) != parent(f.Path())
	f.path.Store(&path)
	f.src.real = w.realPath(path, f.src.link)
	w.byPath[path] = f
	w.byPath[f.src.real] = f
	w.joinKin(f)
}

// realPath is where a path leads. Of a name that is no symlink only the directory is looked up, once per scan.
func (w *Watcher) realPath(path string, link bool) string {
	if link {
		return realPath(path)
	}
	dir := parent(path)
	real, ok := w.realDirs[dir]
	if !ok {
		real = realPath(dir)
		w.realDirs[dir] = real
	}
	if real == dir {
		return path
	}
	return join(real, path[len(dir)+1:])
}

// resolve finds out what the fresh files are: known from the spool, or new.
func (w *Watcher) resolve(fresh []found) {
	var others []found
	for _, c := range fresh {
		f, ok := w.adopt(c)
		if !ok {
			continue // cannot be told yet: the next scan finds it again
		}
		if f == nil {
			others = append(others, c)
			continue
		}
		f.src.seen, f.src.seenAt = w.scans, w.wall
		w.buryReused(c)
	}
	w.settleTruncated()
	w.copies, w.wereCopies = map[key]heldCopy{}, w.copies
	for _, c := range others {
		if f := w.sources[c.key]; f != nil {
			w.sight(f, c.candidate, c.st) // found as a copy just now
			continue
		}
		starved, moved := w.starved, w.moved
		if w.mayBeCopy(c) || w.starved != starved || w.moved != moved {
			continue // it waits for its original, or cannot be told yet
		}
		f := w.newFile(c.block, c.path)
		if w.enter(f, c); c.st.size > 0 {
			f.foundAs = c.st.mtime
		}
		switch {
		case w.blocks[c.block].StartAtEnd && w.scans == 1:
			w.startAtEnd(f)
			w.beginning = append(w.beginning, f)
		case w.old(f):
			w.ignore(f)
		}
		f.src.seen, f.src.seenAt = w.scans, w.wall
		w.buryReused(c)
	}
	w.forgetDoubts()
}

// buryReused forgets what the spool knew under the inode that now is c for sure.
func (w *Watcher) buryReused(c found) {
	for _, f := range w.strayFor(c) {
		if f.src.key.block == c.key.block && f.fp.Dev == c.key.dev {
			w.bury(f)
		}
	}
	for _, f := range slices.Clone(w.strays[c.key.ino]) {
		if f.fp.Dev == c.key.dev && !bornTogether(f.fp.Born, c.st.born) {
			w.bury(f)
		}
	}
}

// bury is for a file of the spool that is gone for sure: only a copy can be left of it.
func (w *Watcher) bury(f *File) {
	if f.src.key.block < 0 || f.src.unwanted || !w.strayCopy(f) {
		f.src.left = true
	}
}

// sourceOf is the source that reads a file, nil if none does; one whose inode number the file has got does not.
func (w *Watcher) sourceOf(block int, st *fileStat) *File {
	if f := w.sources[key{block, st.dev, st.ino}]; f != nil && f.src.st.is(st) {
		return f
	}
	return nil
}

// enter makes f a source for sure.
func (w *Watcher) enter(f *File, c found) {
	if old := w.sources[c.key]; old != nil && old != f {
		w.displace(old)
	}
	f.block = &w.blocks[c.key.block]
	f.dec = newDecoder(f.block.Encoding)
	f.rule = f.dec.rule(f.block)
	f.fp.Dev, f.fp.Ino, f.fp.Born = c.st.dev, c.st.ino, c.st.born
	f.src.key, f.src.st, f.src.changedAt = c.key, c.st, w.now()
	f.src.opened, f.src.link = c.path, c.link
	f.src.left, f.src.lostSince = false, time.Time{}
	w.sources[c.key] = f
	w.setPath(f, c.path)
	w.foundAgain(f)
}

// enterAside is enter for one that another source may have taken the path of.
func (w *Watcher) enterAside(f *File, c found) {
	owner := w.byPath[c.path]
	w.enter(f, c)
	if owner != nil && owner != f && !owner.src.forgotten {
		w.byPath[c.path], w.byPath[f.src.real], w.byPath[owner.src.real] = owner, owner, owner
	}
}

// adopt looks for the source that the spool knows a file by: same inode, and the bytes that its cursor
// remembers. A device number changes at boot, a block can be renamed: both are only preferred. nil: none.
// ok == false: the file could not be compared, so it must not be taken for new either.
func (w *Watcher) adopt(c found) (f *File, ok bool) {
	list := w.strayFor(c)
	if len(list) == 0 {
		return w.adoptCopy(c)
	}
	fd, err := w.openRead(c.path)
	if err != nil {
		if w.cannot(c.path, err) {
			w.refused.known[c.path] = true
		}
		return nil, false
	}
	defer closeFD(fd)
	if st, err := statFD(fd); err != nil || !st.is(&c.st) {
		return nil, false // replaced since it was looked at
	}
	if _, kind := w.headOf(sibling{c.path, c.st}); kind != "" {
		return nil, true // buryReused looks whether it is the copy that the spool knows
	}
	for _, f := range list {
		var r reading
		same, err := r.resume(readFD(fd), f.fp, f.cur)
		if err != nil {
			w.cannot(c.path, err)
			return nil, false
		}
		if same && !(f.unseen() && f.fp.Born == 0 && f.Path() != c.path) { // or nothing but an inode number speaks for it
			w.unstray(f)
			w.enter(f, c)
			f.src.checked = c.st
			return f, true
		}
	}
	for _, f := range list {
		if at, cut := w.cutByCrash(fd, f, c.st); cut && f.Path() == c.path {
			w.goOnAtEnd(f, c, at)
			return f, true
		}
	}
	f = list[0]
	if f.src.key.block != c.key.block || f.fp.Dev != c.key.dev || f.Path() != c.path {
		return nil, true
	}
	w.startOver(f, c)
	return f, true
}

// startOver makes a source of the spool one whose content was replaced in place. It keeps its number.
func (w *Watcher) startOver(f *File, c found) {
	w.stats.startedOver.Add(1)
	w.stats.truncations.Add(1)
	w.log.Warn("file was truncated or rewritten while it was not watched: it is read again from its start", "path", c.path, "source", f.ID(), "offset", f.cur.Offset)
	w.unstray(f)
	w.leave(truncation{f: f, fp: f.fp, cur: f.cur, size: c.st.size})
	f.src.before, f.cur, f.fp, f.restarted = place{f.fp, f.cur}, Cursor{}, Fingerprint{}, true
	w.enter(f, c)
}

// strayFor returns the strays that can be c, the likeliest first.
func (w *Watcher) strayFor(c found) []*File {
	var list []*File
	for _, f := range w.strays[c.key.ino] {
		if b := f.src.key.block; (b == c.key.block || b < 0) && (bornTogether(f.fp.Born, c.st.born) || copiedUp(c.path, f.fp.Born, &c.st)) {
			list = append(list, f)
		}
	}
	unlike := func(f *File) (n int) {
		if f.src.key.block != c.key.block {
			n += 4
		}
		if f.fp.Dev != c.key.dev {
			n += 2
		}
		if f.Path() != c.path {
			n++
		}
		return n
	}
	slices.SortStableFunc(list, func(a, b *File) int { return cmp.Compare(unlike(a), unlike(b)) })
	return list
}

// unstray takes f out of the strays; its fingerprint must still be the spool's.
func (w *Watcher) unstray(f *File) {
	ino := f.fp.Ino
	list := slices.DeleteFunc(w.strays[ino], func(s *File) bool { return s == f })
	if w.strays[ino] = list; len(list) == 0 {
		delete(w.strays, ino)
	}
}

// due tells whether a reader should look at f.
func (f *File) due(now time.Time) bool {
	s := &f.src
	switch {
	case s.out || s.waiting:
		return false
	case s.skip != "":
		return !s.st.same(&s.checked)
	case s.st.ctime == s.deniedAs && now.Before(s.retryAt):
		return false
	case s.packed != "":
		return !s.finished && !(s.torn && s.st.same(&s.checked))
	case f.ID() == 0:
		return true // even if empty: once handed out it has a number, and is found again if it is renamed while we are away
	case f.restarted, s.owes && f.cut.Load() == nil:
		return true // so that the spool forgets the cursor in what is gone
	case s.st.size == 0 && f.cursorOffset() == 0:
		return f.shrunk.Load() > 0 || f.touched.Load()
	case !s.st.same(&s.checked):
		return true
	case f.within(s.st.size) > max(f.cursorOffset()+int64(f.pending), f.nulTo):
		return true
	}
	return f.Pending() > 0 && now.Sub(f.grewAt) >= f.block.IdleFlush
}

func (f *File) cursorOffset() int64 {
	if f.rd != nil {
		return f.rd.offset()
	}
	return f.cur.Offset
}

// queueDue queues what has something to read, the oldest first: a rotated file before its successor.
func (w *Watcher) queueDue() {
	now := w.now()
	first := len(w.waiting)
	w.queued.unsorted = true
	for _, f := range w.sources {
		if f.due(now) && !(f.src.missing && f.fd < 0 && f.src.at == "") {
			w.enqueue(f)
		}
	}
	slices.SortFunc(w.waiting[first:], func(a, b *File) int {
		return cmp.Or(cmp.Compare(a.src.st.mtime, b.src.st.mtime), trueFirst(a.src.missing, b.src.missing), cmp.Compare(a.src.st.born, b.src.st.born), byGeneration(a.Path(), b.Path()), cmp.Compare(a.src.key.block, b.src.key.block))
	})
}

// queue queues one file if it is due.
func (w *Watcher) queue(f *File) {
	if f.due(w.now()) && !(f.src.missing && f.fd < 0 && f.src.at == "") {
		w.enqueue(f)
	}
}

// watchable returns the directories whose changes matter: those of the patterns and those that symlinks lead to.
func (w *Watcher) watchable() map[string]key {
	want := map[string]key{}
	for path, d := range w.walker.dirs {
		if !d.missing {
			want[path] = key{0, d.stat.dev, d.stat.ino}
		}
	}
	for _, f := range w.sources {
		if s := &f.src; !s.missing && s.real != f.Path() {
			if dir := parent(s.real); want[dir] == (key{}) {
				if st, err := statPath(dir); err == nil {
					want[dir] = key{0, st.dev, st.ino}
				}
			}
		}
	}
	return want
}
