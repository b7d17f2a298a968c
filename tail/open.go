package tail

// Descriptors: opening with the content compared, a bound on their number, closing.

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// isYounger tells whether f may be a later generation of what old is one of.
func (f *File) isYounger(old *File) bool {
	a, b := old.Path(), f.Path()
	return f.src.key.block == old.src.key.block && parent(a) == parent(b) && (rotatedName(a, b) || rotatedName(b, a))
}

// slot tells whether a descriptor is free, closing quiet files if need be. One above the bound is, where all that are open wait: for
// what is not, and would wait for them for ever.
func (w *Watcher) slot() bool {
	if len(w.open) >= w.openMax {
		w.closeLongestQuiet()
	}
	return len(w.open) < w.openMax || w.stats.reading.Load() == 0
}

// closeLongestQuiet closes a quarter of the files that no reader holds and that can be found again.
func (w *Watcher) closeLongestQuiet() {
	var quiet []*File
	for f := range w.open {
		s := &f.src
		if !s.out && !s.waiting && !(s.missing && s.st.nlink == 0) {
			quiet = append(quiet, f)
		}
	}
	slices.SortFunc(quiet, func(a, b *File) int { return a.src.changedAt.Compare(b.src.changedAt) })
	for _, f := range quiet[:(len(quiet)+3)/4] {
		w.closeFile(f)
	}
}

// prepare opens f if it is closed and returns what to hand out: f, a new source if the inode now belongs to
// another file, or nil.
func (w *Watcher) prepare(f *File) *File {
	if f.fd >= 0 {
		return f
	}
	s := &f.src
	path := f.Path()
	if s.missing {
		path = s.at
	}
	fd, err := w.openRead(path)
	if err != nil {
		if w.cannot(path, err) {
			w.deny(f)
		} else if gone(err) {
			w.lookAgain[s.kin], w.rescan = true, true
		}
		return nil
	}
	w.admitted(f)
	st, err := statFD(fd)
	if err != nil || !st.regular() || st.dev != s.key.dev || st.ino != s.key.ino || !bornTogether(st.born, s.st.born) {
		closeFD(fd) // renamed or replaced since the scan: the next one finds both
		w.lookAgain[s.kin], w.rescan = true, true
		return nil
	}
	if s.packed != "" {
		f.fd, f.unpack = fd, newUnpacker(fd, s.packed)
		w.open[f] = struct{}{}
		return f
	}
	r := &reading{}
	same, err := f.resume(fd, r)
	if err != nil {
		closeFD(fd)
		w.cannot(path, err)
		return nil
	}
	w.note(f, st)
	if !same {
		switch {
		case s.missing && (f.copy || f.whole && f.isRenamed(path)):
			closeFD(fd)
			w.overwritten(f)
			return nil
		case s.missing && (st.born == 0 || s.st.born == 0):
			// Perhaps not the file any more: it went, and its number was used again.
			closeFD(fd)
			s.at = ""
			return nil
		case s.missing || s.opened == path:
			w.truncatedClosed(f, r)
		default:
			w.forget(f)
			c := found{candidate{s.key.block, path, s.link}, s.key, st}
			f = w.newFile(s.key.block, path)
			w.enter(f, c)
			f.src.seen, f.src.seenAt, r = w.scans, w.wall, &reading{}
		}
	}
	f.whole = same && s.missing
	if w.odd(f, fd, path) {
		closeFD(fd)
		return nil
	}
	delete(w.warned, path)
	f.fd, f.rd, f.src.opened = fd, r, path
	w.open[f] = struct{}{}
	return f
}

// odd looks at the first bytes of a file that is about to be read from 0 and tells whether to leave it alone.
func (w *Watcher) odd(f *File, fd int, path string) bool {
	if f.cur.Offset != 0 {
		return false
	}
	var head [8]byte
	n, err := pread(fd, head[:], 0)
	if err != nil {
		w.cannot(path, err)
		return true
	}
	was := f.src.skip
	f.src.skip = compressed(head[:n])
	if f.src.skip != "" {
		f.src.checked = f.src.st
		if f.src.missing { // it was found beside its path, empty: now it may be the copy of an unseen generation
			w.unsettle(blockPath{f.src.key.block, f.Path()}, 0)
			w.retire(f)
			return true
		}
		if was == "" {
			w.stats.skippedFiles.Add(1)
			w.log.Info("skipped: the file is compressed", "path", path, "compression", f.src.skip)
		}
		return true
	}
	if f.dec == nil && (bytes.HasPrefix(head[:n], markLittle) || bytes.HasPrefix(head[:n], markBig)) {
		w.warnOnce(path, "the file begins like UTF-16, but its source has no encoding: its bytes are passed on as they are, cut at every newline byte")
	}
	return false
}

// closeFile closes a file that no reader holds; its cursor stays.
func (w *Watcher) closeFile(f *File) {
	if f.fd < 0 {
		return
	}
	f.letGoOfFD()
	delete(w.open, f)
}

// tellDeleted counts what is lost with the descriptor of a deleted file: at the end of Run. What a compressed copy holds the next start
// reads there. The caller has w.mu, since readers give files back while others end.
func (f *File) tellDeleted() {
	st, err := statFD(f.fd)
	if err != nil || st.nlink > 0 || f.unpack != nil {
		return
	}
	if lost := f.unread(st.size); lost > 0 && !f.w.isHeldByCopy(f, st.size) {
		f.w.stats.lostFiles.Add(1)
		f.w.stats.lostBytes.Add(uint64(lost))
		f.w.log.Warn("deleted file could not be read to its end before the agent stopped", "path", f.Path(), "source", f.ID(), "offset", f.cursorOffset(), "unread_bytes_lost", lost)
	}
}

// isHeldByCopy tells whether a compressed file beside an open one that was deleted holds as much as that, and begins alike.
func (w *Watcher) isHeldByCopy(f *File, size int64) bool {
	var own [prefixBytesMax]byte
	n, err := pread(f.fd, own[:], 0)
	if err != nil {
		return false
	}
	names, dirs := w.namesOfKin(f)
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return slices.ContainsFunc(w.siblingsNamed(dir, names), func(sib sibling) bool {
			if !namedAfter(names, sib.path, rotatedName) {
				return false
			}
			head, kind := w.headOf(sib)
			return kind != "" && w.sizeIn(sib).is(size) && sameHead(own[:n], head)
		})
	})
}

// letGoOfFD closes what is open; its cursor stays.
func (f *File) letGoOfFD() {
	f.cur, f.fp = f.Cursor(), f.Fingerprint()
	if f.unpack != nil {
		f.unpack.close()
	}
	f.rd, f.unpack = nil, nil
	closeFD(f.fd)
	f.fd = -1
}

// closeFD closes a descriptor that was only read from: an error means nothing.
func closeFD(fd int) { _ = unix.Close(fd) }

// closeQuiet closes files under a pattern that did not change for long, of which a part may be over when they are found: an open
// file keeps what it is on from being unmounted.
func (w *Watcher) closeQuiet() {
	now := w.now()
	for f := range w.open {
		w.closeIfQuiet(f, now)
	}
}

func (w *Watcher) closeIfQuiet(f *File, now time.Time) {
	s := &f.src
	if f.fd >= 0 && !s.out && !s.waiting && !s.missing && (now.Sub(s.changedAt) >= w.keep.idle || !young(w.wall, &s.st, int64(w.keep.idle))) {
		w.closeFile(f)
	}
}
