package tail

// Files that were truncated in place. What was unread of one is looked for beside it before its new content is read: in the copy that
// holds what was read (copies.go), or, if nothing was, in those that were made of it since it is known (rescue.go).

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// truncation is a file whose content went while (perhaps) some of it was unread.
type truncation struct {
	f      *File
	fp     Fingerprint
	cur    Cursor
	lost   int64 // bytes known to have been there behind the cursor
	size   int64 // of the file, as its holder saw it then
	since  int64 // its copies are not older; 0: not looked for yet
	found  bool  // one was
	asked  bool  // whether anything was cut is not known
	inTurn bool  // asked, and nothing was cut
	at     int64 // wall clock when it was noticed
}

// headSeen is how a file began of which nothing was taken yet.
type headSeen struct {
	sum   uint64
	bytes int // 0: nothing was seen
}

const (
	beginKnown = iota // go on
	beginOther        // it is not what was seen
	beginAsked        // the watcher looks for what was before it
)

// lookAtBegin is for what is read first of a file. Nothing in it tells whether the file was filled, copied and truncated since it was
// looked at and nothing was in it: the watcher is asked, and after that what was seen must still be there.
func (f *File) lookAtBegin(data []byte) int {
	bytes := len(data) - trailingNULs(data)
	touched := f.touched.Swap(false)
	switch {
	case f.headSeen.bytes > 0 || bytes > 0:
	case touched && f.isBeside():
		f.ask(true)
		return beginAsked
	default:
		return beginKnown
	}
	if n := f.headSeen.bytes; n > 0 {
		if n > bytes || xxhash.Sum64(data[:n]) != f.headSeen.sum {
			return beginOther
		}
		return beginKnown
	}
	n := min(bytes, prefixBytesMax)
	f.headSeen = headSeen{xxhash.Sum64(data[:n]), n}
	st, err := statFD(f.fd)
	if err == nil && st.mtime == f.foundAs || !f.isBeside() {
		return beginKnown
	}
	f.ask(true)
	return beginAsked
}

// isBeside tells whether a copy of f, or what took its place, may be beside it: something there was changed.
func (f *File) isBeside() bool {
	if f.aloneAt == 0 {
		return true
	}
	path := f.Path()
	return slices.ContainsFunc(dirsBeside(path, realPath(path)), func(dir string) bool {
		st, err := statPath(dir)
		return err != nil || st.mtime > f.aloneAt
	})
}

// aloneSince is when what is in f may have been written first: no copy that was made before is of that.
func (w *Watcher) aloneSince(f *File) int64 {
	return max(f.src.st.born, cmp.Or(f.src.unreadFrom, w.startedAt-clockTick))
}

// mayWait notes, for f that is handed out, what it may have to wait for before it is read.
func (w *Watcher) mayWait(f *File) {
	s := &f.src
	// A new file is followed by its directory, and by no copy within a tick.
	if f.aloneAt = max(w.aloneSince(f), s.st.born+clockTick); s.missing {
		f.aloneAt = math.MaxInt64 // the others of its path are known
	}
	f.elders = nil
	for g := range w.kin[s.kin] {
		if g.src.out && g != f && g.before(f) {
			f.elders = append(f.elders, g)
		}
	}
}

// mustAskForTurn tells whether one of the older generations that were being read when f was handed out is held back since, or was
// and has not been read to its end: f, of which nothing was taken yet, would overtake it.
func (f *File) mustAskForTurn() bool {
	if f.rd != nil && f.rd.offset() > f.cur.Offset {
		f.elders = nil
	}
	return slices.ContainsFunc(f.elders, func(g *File) bool { return g.late.Load() })
}

// ask has the watcher wait for what comes before the content of f, and look for it if it may not be known yet.
func (f *File) ask(mayBeCut bool) {
	f.elders, f.left = nil, true // what is older is the watcher's to say
	f.w.leave(truncation{f: f, asked: true, inTurn: !mayBeCut})
}

// place is what a spool remembers of a file.
type place struct {
	fp  Fingerprint
	cur Cursor
}

// Place is what the spool should remember: Fingerprint and Cursor, but for a file that was truncated what they were before, until the
// copy of its old content has come into a receiver's hands or none was found. With the new ones nothing would tell a start how much of
// that copy was read.
func (f *File) Place() (Fingerprint, Cursor) {
	if p := f.cut.Load(); p != nil {
		return p.fp, p.cur
	}
	return f.Fingerprint(), f.Cursor()
}

// startAgain is for content that was replaced in place: truncated, or truncated and grown past the offset.
func (f *File) startAgain() {
	off := f.rd.offset()
	lost := max(f.sizeSeen, f.shrunk.Swap(0)) - off
	size := int64(0)
	if st, err := statFD(f.fd); err == nil {
		size = st.size
	}
	f.w.stats.truncations.Add(1)
	f.w.log.Info("file was truncated: it is read again from its start", "path", f.Path(), "source", f.ID(), "offset", off)
	t := truncation{f: f, fp: f.Fingerprint(), cur: f.Cursor(), lost: lost, size: size}
	f.rd.restart()
	f.pending, f.nulTo, f.sizeSeen, f.countedTo, f.headSeen, f.foundAs, f.aloneAt = 0, 0, 0, 0, headSeen{}, 0, 0
	f.left = true
	f.w.leave(t)
}

// cutUnread tells whether f, of which nothing was taken yet, lost what was in it. No byte before the offset shows that, only that it
// had more than its size now, or -1 if it fills the buffer. A writer that gives back reserved room, in which nothing was written, takes
// nothing away.
func (f *File) cutUnread(size int64) bool {
	if f.rd.base > 0 || f.unpack != nil || f.copy {
		return false
	}
	if f.nulTo > 0 {
		f.shrunk.Store(0)
		return false
	}
	return f.shrunk.Load() > 0 || size >= 0 && size < f.sizeSeen
}

// truncatedClosed is startAgain for a file that was not open.
func (w *Watcher) truncatedClosed(f *File, r *reading) {
	lost := max(f.sizeSeen, f.shrunk.Swap(0)) - f.cur.Offset
	w.stats.truncations.Add(1)
	w.log.Info("file was truncated: it is read again from its start", "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	w.leave(truncation{f: f, fp: f.fp, cur: f.cur, lost: lost, size: f.src.st.size})
	r.restart()
	f.cur = Cursor{}
	f.pending, f.nulTo, f.sizeSeen, f.headSeen, f.foundAs, f.aloneAt, f.restarted = 0, 0, 0, headSeen{}, 0, 0, true
}

// leave notes that the content of f went. f is held back until what was unread has been looked for, and read.
func (w *Watcher) leave(t truncation) {
	if t.cur.Offset > 0 {
		t.f.cut.CompareAndSwap(nil, &place{t.fp, t.cur})
	}
	t.f.isWhole.Store(t.inTurn)
	t.f.behind.Store(true)
	t.f.late.Store(true)
	t.at = time.Now().UnixNano()
	w.mu.Lock()
	w.truncated = append(w.truncated, t)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// countTruncated tells what is lost for sure.
func (w *Watcher) countTruncated(t truncation) {
	if t.lost > 0 {
		w.stats.lostBytes.Add(uint64(t.lost))
		w.log.Warn("file was truncated before it was read to its end, and no copy was found", "path", t.f.Path(), "source", t.f.ID(), "offset", t.cur.Offset, "unread_bytes_lost", t.lost)
	}
}

// settleTruncated looks for the copies of files that were truncated.
func (w *Watcher) settleTruncated() {
	w.mu.Lock()
	list := w.truncated
	w.truncated = nil
	w.mu.Unlock()
	now, start := time.Now().UnixNano(), cpuTime()
	if len(list) > 0 {
		w.lookAnew()
	}
	for _, t := range list {
		block, s := t.f.src.key.block, &t.f.src
		if t.since == 0 {
			t.since = w.aloneSince(t.f)
			if !t.asked {
				s.st.size = t.size // only what is cut from now on is another truncation
				t.f.shrunk.Store(0)
			}
		}
		w.heldBack[t.f] = t.lookedAt(now)
		if t.asked {
			w.readFirst(t.f)
			if !t.inTurn && !w.scanning && w.pause(w.allTook) > 0 { // where files are made all the time: to list them is what takes long
				w.rescan = true
				w.settleLater(t)
				continue
			}
			if t.inTurn || !w.isListedInPlace(t.f) {
				t.f.isWhole.Store(true) // it was renamed: a copy of it is no generation of its own
				continue
			}
		}
		before := s.cutAt
		if s.missing {
			s.cutAt = s.st.mtime // what took its place since then is younger
		} else {
			s.cutAt = time.Now().UnixNano()
		}
		if t.cur.Offset == 0 {
			if w.settleUnread(t); t.asked {
				s.cutAt = w.cutBehind(t.f, before)
			}
			continue
		}
		s.owes, s.unreadFrom = true, t.at-clockTick
		starved, moved := w.starved, w.moved
		c, ok := w.findCopy(block, t.f.Path(), t.fp, t.cur, 1, nil)
		if !ok {
			if w.starved != starved || w.moved != moved {
				w.settleLater(t)
				continue
			}
			w.countTruncated(t)
			continue
		}
		rest := w.enterRest(t, c)
		s.unreadFrom = max(s.unreadFrom, rest.age())
		w.queue(rest)
		if rest.src.younger = !c.sure; c.sure {
			w.findBehind(rest)
		}
	}
	w.letGoOfBehind()
	if len(list) > 0 && !w.scanning {
		w.credit, w.creditedAt = w.creditNow()-(cpuTime()-start), w.now()
	}
}

// lookedAt is since when anything beside the file is new. For one that waits for its turn only nothing is looked for now.
func (t *truncation) lookedAt(now int64) int64 {
	if t.inTurn {
		return t.f.aloneAt
	}
	return now - clockTick
}

// isListedInPlace tells whether a file is still at its path now that what is beside it was listed: then all of that which was made
// after it is copies, and not what took its place.
func (w *Watcher) isListedInPlace(f *File) bool {
	for _, dir := range w.dirsOf(f.Path()) {
		w.siblingsIn(dir)
	}
	st, err := statPath(f.Path())
	return err == nil && f.src.st.is(&st)
}

// findBehind looks for the generations between a copy and the file that was truncated, which may have been filled, copied and truncated again.
// A scan does that once all that the spool knows was found.
func (w *Watcher) findBehind(rest *File) {
	at, moved := blockPath{rest.src.key.block, rest.Path()}, w.moved
	if !w.scanning {
		for _, g := range w.findUnseen(at, rest.age()) {
			w.queue(g)
		}
	}
	if w.scanning || w.moved != moved || w.lookAgain[kinOf(at)] {
		w.unsettle(at, rest.age())
	}
}

// settleLater is for what cannot be told yet.
func (w *Watcher) settleLater(t truncation) {
	w.mu.Lock()
	w.truncated = append(w.truncated, t)
	w.mu.Unlock()
}

// settleUnread looks for what was in a file that was truncated before anything was taken from it. Nothing tells its copies but their
// place: they are unseen generations of its path. There are several if it was cut more than once.
func (w *Watcher) settleUnread(t truncation) {
	at, moved := blockPath{t.f.src.key.block, t.f.Path()}, w.moved
	if t.f.src.st.born != 0 {
		for _, g := range w.findUnseen(at, t.since) {
			w.queue(g)
			t.found = true
		}
	}
	switch {
	case w.moved != moved || w.lookAgain[kinOf(at)]: // one may be in the making: the next look tells
		w.rescan = true
		w.settleLater(t)
	case !t.found:
		if !w.mayHold(at, t) {
			w.countTruncated(t)
		}
	}
}

// cutBehind is cutAt of f, in place and unread, that was cut before: behind all that is known and named as its rotation.
func (w *Watcher) cutBehind(f *File, before int64) int64 {
	names, at := w.namesOf(f.Path()), before
	for g := range w.kin[f.src.kin] {
		if age := g.age(); g != f && age >= max(f.src.st.born, at) && namedAfter(names, g.name(), rotationName) {
			at = age + 1
		}
	}
	return at
}

// mayHold tells whether a generation that was found before, by a pattern, may be the copy of what was unread.
func (w *Watcher) mayHold(at blockPath, t truncation) bool {
	for g := range w.kin[kinOf(at)] {
		if s := &g.src; g != t.f && s.st.born >= t.since && (s.packed != "" || s.st.size >= t.lost) {
			return true
		}
	}
	return false
}

// isCut tells whether a file was truncated, perhaps, and what was in it is looked for: a copy that begins like it is of that.
func (w *Watcher) isCut(block int, st *fileStat) bool {
	f := w.sourceOf(block, st)
	return f != nil && f.mayBeCut()
}

// mayBeCut tells whether f is held back for what was in it before, and not only for an older generation.
func (f *File) mayBeCut() bool { return f.behind.Load() && !f.isWhole.Load() }

// letGo ends that f is held back for what comes before it, which was looked for at since.
func (f *File) letGo(since int64) {
	f.cut.Store(nil)
	f.aloneAt = since
	if s := &f.src; !s.out {
		s.checked = fileStat{}
	}
	f.ended.Store(false)
	f.behind.Store(false)
	f.check.Store(true)
	f.hint()
}

// end notes that f was read to its end once: what is held back for that may go.
func (f *File) end() {
	f.late.Store(false)
	if !f.ended.Swap(true) && f.w.holdsBack.Load() {
		select {
		case f.w.wake <- struct{}{}:
		default:
		}
	}
}

// readFirst has readers look again at the older generations of the path of f that have grown.
func (w *Watcher) readFirst(f *File) {
	for g := range w.kin[f.src.kin] {
		if !g.src.out || g == f || g.unpack != nil || !g.before(f) {
			continue
		}
		if st, err := statFD(g.fd); err == nil && st.size > g.filledTo.Load() {
			g.ended.Store(false)
			g.hint()
		}
	}
}

// comesLater tells whether an older generation of the path of f is to be read before it, or may be there.
func (w *Watcher) comesLater(f *File) bool {
	kin, now := f.src.kin, w.now()
	if w.unlooked[blockPath{f.src.key.block, f.Path()}] || w.lookAgain[kin] {
		return true
	}
	for g := range w.kin[kin] {
		if s := &g.src; g != f && !s.torn && g.before(f) && (s.out && !g.isRead(f) || s.waiting || g.undecided() || g.due(now) && g.ID() == 0) {
			return true
		}
	}
	return false
}

// isRead tells whether g, which a reader holds, was read as far as f, a younger generation, waits for that: a record that begins at the end
// of a copy may need what is in f.
func (g *File) isRead(f *File) bool {
	return g.ended.Load() && !g.behind.Load() || f.block.Joins && g.unpacked.Load() && g.src.restOf != f
}

// findCut finds the files that were truncated in place before this start: those that are older than others that the spool knows by
// the same path, or as rotations of it, which are their copies then. One of which nothing was read since may have been filled, copied
// and truncated again while nobody watched, and looks as it did: its path may have copies behind the youngest that is known.
func (w *Watcher) findCut() {
	for at, known := range w.strayPaths {
		f := w.inPlace(at)
		if f == nil || f.src.st.born == 0 {
			continue
		}
		copied, listed := w.youngestBehind(f, known), int64(0)
		if kin := kinOf(at); kin == at {
			listed = w.youngestBehind(f, w.strayKin[kin]) // found by the pattern
		}
		isUnread := f.ID() != 0 && f.cursorOffset() == 0
		if isUnread && copied == 0 && w.hasCopy(f) {
			copied = f.src.st.born
		}
		switch {
		case copied == 0 && listed == 0:
		case isUnread:
			f.src.cutAt, f.src.unreadFrom = w.wall, max(copied, listed)
			w.unsettle(at, f.src.unreadFrom+1)
		default:
			f.src.cutAt = max(copied, listed) + 1
		}
	}
}

// youngestBehind is when the youngest of known was made that is younger than f; 0: none is.
func (w *Watcher) youngestBehind(f *File, known []*File) (youngest int64) {
	for _, g := range known {
		made := g.made() // not the file that it is read from: a copy is compressed after the file that is next was made
		if g != f && made > f.src.st.born {
			youngest = max(youngest, made)
		}
	}
	return youngest
}

// hasCopy tells whether a file beside f that the spool does not know is named as its rotation and was made, and written to, after it: a
// copy. One that got back the times of something older, as what is unpacked does, says nothing.
func (w *Watcher) hasCopy(f *File) bool {
	isCopy := func(name string, sib sibling) bool {
		if sib.st.size == 0 || sib.st.born <= f.src.st.born || sib.st.mtime < sib.st.born || !rotationName(name, sib.path) {
			return false
		}
		if g := w.sourceOf(f.src.key.block, &sib.st); g != nil && g.ID() != 0 || w.mayBeStray(sib) {
			return false
		}
		_, kind := w.headOf(sib)
		return kind == ""
	}
	for _, name := range slices.Compact([]string{f.Path(), f.src.real}) {
		dir := parent(name)
		begin := name // of all that is named after it
		if dot := extensionOf(name[len(dir):]); dot > 0 {
			begin = name[:len(dir)+dot]
		}
		list := w.siblingsIn(dir) // in the order of names
		at, _ := slices.BinarySearchFunc(list, begin, func(sib sibling, begin string) int { return cmp.Compare(sib.path, begin) })
		for ; at < len(list) && strings.HasPrefix(list[at].path, begin); at++ {
			if isCopy(name, list[at]) {
				return true
			}
		}
	}
	return false
}
