package tail

// Copies and rotated files whose content is replaced in place: cp over the copy of before, cat behind it, shred. The log of a path gets new
// content when it is truncated. What was moved out of every pattern does not, nor does a copy that was made once: what was read of it
// stays read, and what is in its file now is judged like any other file beside the path.

import "strings"

const overwrittenText = "rotated file was overwritten in place: what is in it now is nothing of it"

// copied is what the holder of a file knows of what may come into its place.
type copied struct {
	copy     bool  // it is of another file, made once: what comes into its place is nothing new
	copyEnd  int64 // it was complete then: what is behind that is the next copy; 0: not known
	whole    bool  // what was read of it was still there once no pattern found it: what comes into its place is nothing new
	replaced bool  // something did
}

// within is how much of a file of that size is its own.
func (f *File) within(size int64) int64 {
	if f.copyEnd > 0 {
		return min(size, f.copyEnd)
	}
	return size
}

// overwritten is for a source that no reader holds and that no pattern finds, or whose file holds the next copy. It is gone for sure.
func (w *Watcher) overwritten(f *File) {
	s := &f.src
	s.st.size = max(f.sizeSeen, f.shrunk.Swap(0), f.cursorOffset()) // that of what is gone
	w.closeFile(f)
	f.replaced, s.overwritten, s.at = false, true, ""
	w.log.Info(overwrittenText, "path", f.Path(), "source", f.ID(), "offset", f.cur.Offset)
	w.displace(f)
}

// isOverwritten tells whether the file of g, which may be a source of the spool, holds something else: the copy of a younger generation,
// perhaps. The log itself is truncated, and what a reader holds is its to look at.
func (w *Watcher) isOverwritten(g *File, sib sibling) bool {
	s := &g.src
	if s.out || s.packed != "" || s.waiting || !(s.missing || w.isStray(g)) {
		return false
	}
	if s.overwritten {
		return true
	}
	if _, kind := w.headOf(sib); kind != "" {
		return false
	}
	fd, err := w.openSibling(sib)
	if err != nil {
		return false
	}
	defer closeFD(fd)
	var r reading
	same, err := r.resume(readFD(fd), g.Fingerprint(), g.Cursor())
	return err == nil && !same
}

// isRenamed tells whether a path is of another name than that of f. Behind a symlink that leads elsewhere now, a log may keep its name
// and be written to and truncated as before.
func (f *File) isRenamed(path string) bool {
	base := func(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
	return base(path) != base(f.Path()) && base(path) != base(f.src.real)
}

// isMoved tells whether f, which no pattern finds, is not where it was under its own name.
func (w *Watcher) isMoved(f *File) bool {
	sib, ok := w.elsewhere(f)
	return !ok || f.isRenamed(sib.path)
}

// logBeside is what is at the path of f, if that was known to the spool: f was rotated before, or is a copy.
func (w *Watcher) logBeside(f *File) *File {
	log := w.inPlace(blockPath{f.src.key.block, f.Path()})
	if log == nil || log == f || log.ID() == 0 || log.fp.Born == 0 {
		return nil
	}
	return log
}

// isReadCopy tells, at a start, whether f is a copy of what the log held before, and was read to its end: the log was read behind that. What it
// holds behind the cursor was appended since: the next copy.
func (w *Watcher) isReadCopy(f *File, sib sibling) bool {
	log := w.logBeside(f)
	if log == nil || w.scans > 1 || !f.isRenamed(sib.path) || log.fp.Born > f.fp.Born || log.ID() > f.ID() {
		return false
	}
	at := log.src.before
	if at.cur.Offset == 0 {
		at = place{log.fp, log.cur}
	}
	return at.cur.Offset > 0 && !w.resumes(sib, at.fp, at.cur)
}
