package tail

// Between two full scans most files are at rest, and looking at each of them every second would cost more than all the
// rest of an idle agent. A scan looks at what was busy within the last minute, and, in turn, at as many of the others as
// a small share of a core allows: all of them while they are few. Whatever it cannot explain asks for a full scan.
//
// inotify makes none of this slower or rarer: it only tells of changes sooner.

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	busyFor   = time.Minute // a file that changed so lately is looked at by every scan
	looksMin  = 200         // files and directories at rest, per scan
	looksMax  = 20_000
	restShare = 400 // looking at what is at rest takes one part in so many of one core
	nearMin   = 3   // files in a row in one directory for which it is worth its opening
)

// scan looks at some files or, if anything asks for it, at all.
func (w *Watcher) scan() {
	start := cpuTime()
	w.stats.scans.Add(1)
	all := w.scanSome()
	if all {
		w.scanning = true
		w.scanAll()
		w.scanning = false
		w.allTook = cpuTime() - start
		w.allAt = w.now().Add(min(max(rewalkEvery*w.scanGap, scanAllPart*w.allTook), scanAllMax))
	}
	w.limitHeld()
	w.regainDescriptors()
	w.scanTook = cpuTime() - start
	w.credit = w.creditNow() - w.scanTook
	w.creditedAt = w.now()
	w.tellDenied(w.creditedAt)
	w.gauges(all || w.recount)
}

// creditNow is the processor time that scans may take now.
func (w *Watcher) creditNow() time.Duration {
	if w.creditedAt.IsZero() {
		return scanCredit
	}
	return min(scanCredit, w.credit+w.now().Sub(w.creditedAt)/scanShare)
}

// pause is how long a scan that takes cost must wait for credit.
func (w *Watcher) pause(cost time.Duration) time.Duration {
	return min(max(0, cost-w.creditNow())*scanShare, scanGapMax)
}

// scanSome looks at what is busy and some of what is at rest, and tells whether a full scan is needed.
func (w *Watcher) scanSome() (all bool) {
	if w.rescan || w.scans == 0 || !w.now().Before(w.allAt) {
		return true
	}
	w.wall = time.Now().UnixNano()
	w.lookAnew()
	changed, left := w.walker.changed(w.wall, (w.looks+1)/2)
	if changed {
		return true
	}
	left += w.looks / 2
	now := w.now()
	w.hot, w.wasHot = w.wasHot[:0], w.hot
	for _, f := range w.wasHot {
		f.src.hot = false
		all = w.look(f, nil) || all
		if w.busy(f, now) {
			w.heat(f)
		}
	}
	return w.lookAround(min(left, len(w.ring)), now) || all
}

// lookAround looks at the next n files at rest.
func (w *Watcher) lookAround(n int, now time.Time) (moved bool) {
	start := cpuTime()
	place := near{fd: -1}
	defer place.leave()
	for range n {
		if f := w.nextAtRest(); !f.src.hot {
			moved = w.look(f, &place) || moved
			w.closeIfQuiet(f, now)
		}
	}
	w.planLooks(n, cpuTime()-start)
	return moved
}

// nextAtRest is the file whose turn it is.
func (w *Watcher) nextAtRest() *File {
	w.ringAt %= len(w.ring)
	w.ringAt++
	return w.ring[w.ringAt-1]
}

// planLooks sets how much of what is at rest the next scan looks at, from what a look cost lately. The cost is averaged and not the
// number: few dear looks among many cheap ones would take more than their share.
func (w *Watcher) planLooks(looked int, took time.Duration) {
	if looked < looksMin/2 || took <= 0 {
		return
	}
	cost := took / time.Duration(looked)
	if w.lookCost == 0 {
		w.lookCost = cost
	}
	w.lookCost = max(1, (7*w.lookCost+cost)/8)
	w.looks = max(w.looksMin, min(int(w.scanGap/restShare/w.lookCost), looksMax))
}

// near stats paths of which neighbours are in one directory: from the third in a row on it is looked up only once. A nil one looks up
// every path.
type near struct {
	dir   string // with a slash at its end
	inRow int    // paths in dir, one behind the other
	fd    int    // of dir, -1: none
}

func (n *near) stat(path string) (fileStat, error) {
	if n == nil {
		return statPath(path)
	}
	cut := strings.LastIndexByte(path, '/') + 1
	if path[:cut] != n.dir {
		n.leave()
		n.dir, n.inRow = path[:cut], 0
	}
	if n.inRow++; n.inRow == nearMin {
		n.fd = openPlace(n.dir)
	}
	if n.fd < 0 || cut == len(path) {
		return statPath(path)
	}
	return statIn(n.fd, path[cut:])
}

func (n *near) leave() {
	if n.fd >= 0 {
		closeFD(n.fd)
		n.fd = -1
	}
}

// look sees how one file is and queues it if it has something to read. It tells whether it is not where it was.
func (w *Watcher) look(f *File, place *near) (moved bool) {
	s := &f.src
	if s.forgotten || s.delivered || w.isGone(f) {
		return false
	}
	if s.missing {
		w.miss(f)
	} else {
		st, err := w.statNow(f, place)
		if err != nil || !s.st.is(&st) && !w.bornAnew(f, f.Path(), &st) {
			return true
		}
		s.seenAt = w.wall
		w.note(f, st)
	}
	if !s.forgotten {
		w.queue(f)
	}
	return false
}

// bornAnew tells whether f, found at path, has another time of creation than before. An overlay gives a file of a lower layer that of
// its copy when it is changed for the first time. While it is open its inode number is no other file's.
func (w *Watcher) bornAnew(f *File, path string, st *fileStat) bool {
	s := &f.src
	if s.packed != "" || st.dev != s.st.dev || st.ino != s.st.ino {
		return false
	}
	if f.fd < 0 {
		if !copiedUp(path, s.st.born, st) {
			return false
		}
		s.st.born, f.fp.Born = st.born, st.born
		return true
	}
	if now, err := statFD(f.fd); err != nil || now.dev != st.dev || now.ino != st.ino || now.born != st.born {
		return false
	}
	s.st.born = st.born
	f.born.Store(st.born)
	return true
}

// statNow asks by descriptor where that tells as much as the path: a rename or a removal shows in the inode's own
// change time or count of names.
func (w *Watcher) statNow(f *File, place *near) (fileStat, error) {
	s := &f.src
	if f.fd >= 0 && !s.link {
		st, err := statFD(f.fd)
		if err == nil && st.nlink > 0 && (st.ctime == s.st.ctime || st.ctime == st.mtime) {
			return st, nil
		}
	}
	return place.stat(f.Path())
}

// seenAt is when f was last known to be at its path, by the wall clock in nanoseconds: when it was looked at there, or when
// its directory was seen not to have changed since.
func (w *Watcher) seenAt(f *File) int64 {
	if d := w.walker.dirs[parent(f.Path())]; d != nil && !f.src.link && !d.racy {
		return max(f.src.seenAt, d.seenAt)
	}
	return f.src.seenAt
}

// busy tells whether every scan should look at f.
func (w *Watcher) busy(f *File, now time.Time) bool {
	s := &f.src
	switch {
	case s.forgotten, s.delivered:
		return false
	case s.missing:
		return f.fd >= 0 || now.Sub(s.changedAt) < busyFor
	case s.out:
		return false // its reader looks at it
	}
	return f.pending > 0 || young(now.UnixNano(), &s.st, int64(busyFor))
}

// young tells whether the times of s are less than within nanoseconds from now, on either side: a clock may be set back.
func young(now int64, s *fileStat, within int64) bool {
	age := now - max(s.mtime, s.ctime)
	return -within < age && age < within
}

// heat makes every scan look at f for a while.
func (w *Watcher) heat(f *File) {
	if s := &f.src; !s.hot && !s.forgotten {
		s.hot = true
		w.hot = append(w.hot, f)
	}
}

// sortOut sets up what the next scans look at: after a full one.
func (w *Watcher) sortOut() {
	now := w.now()
	w.looks = max(w.looks, w.looksMin)
	kept, at := w.ring[:0], w.ringAt
	for i, f := range w.ring {
		if !f.src.forgotten && !f.src.delivered {
			kept = append(kept, f)
			continue
		}
		f.src.listed = false
		if i < at {
			w.ringAt--
		}
	}
	clear(w.ring[len(kept):])
	w.ring, w.hot = kept, w.hot[:0]
	known := len(w.ring)
	for _, f := range w.sources {
		if !f.src.listed && !f.src.delivered {
			f.src.listed = true
			w.ring = append(w.ring, f)
		}
		if f.src.hot = w.busy(f, now); f.src.hot {
			w.hot = append(w.hot, f)
		}
	}
	slices.SortFunc(w.ring[known:], func(a, b *File) int { return cmp.Compare(a.Path(), b.Path()) }) // for near
}
