package tail

// Where new files begin of which what is in them is passed over: those that the first scan finds for a block with StartAtEnd,
// and those older than their block wants.

import (
	"cmp"
	"io/fs"
	"slices"
	"time"
)

const (
	lineBackBytes    = 64 << 10 // before the end of a file, in which its last newline is looked for
	roomBackBytesMax = 1 << 30  // of written NULs at its end that are looked through
)

// old tells whether a new file is older than its block wants.
func (w *Watcher) old(f *File) bool {
	limit := f.block.IgnoreOlder
	return limit > 0 && w.now().UnixNano()-f.src.st.mtime > int64(limit)
}

// ignore passes over what is in a file. What is appended to it later is read.
func (w *Watcher) ignore(f *File) {
	w.startAtEnd(f)
	w.stats.ignoredFiles.Add(1)
	w.log.Info("file is older than ignore_older: what is in it is passed over, what is appended is read", "path", f.Path(),
		"modified", time.Unix(0, f.src.st.mtime).UTC(), "bytes", f.cur.Offset)
}

// startAtEnd puts the cursor of a file that was there before us behind its last whole line. Of one that cannot be opened only its
// size is known: the cursor has no anchor then, and firstSight looks for the line.
func (w *Watcher) startAtEnd(f *File) {
	s := &f.src
	var r reading
	err := w.loadAtEnd(f, &r)
	if err != nil {
		w.cannot(f.Path(), err)
		f.cur = Cursor{Offset: s.st.size}
	} else {
		f.begin(&r)
	}
	s.passed = f.cur.Offset
}

func (w *Watcher) loadAtEnd(f *File, r *reading) error {
	fd, err := w.openRead(f.Path())
	if err != nil {
		return err
	}
	defer closeFD(fd)
	st, err := statFD(fd)
	if err != nil || !st.is(&f.src.st) {
		return cmp.Or(err, error(fs.ErrNotExist)) // the name leads elsewhere now
	}
	return f.loadBehindLines(fd, r, st.size)
}

// begin makes the place of r that of f.
func (f *File) begin(r *reading) {
	f.cur = r.cursor()
	f.fp.Prefix, f.fp.PrefixBytes = r.prefix()
}

// unseen tells whether f was passed over by its size alone.
func (f *File) unseen() bool { return f.cur.Offset > 0 && f.cur.AnchorBytes == 0 }

// resume loads r for the cursor of f and tells whether reading may go on there.
func (f *File) resume(fd int, r *reading) (bool, error) {
	same, err := r.resume(readFD(fd), f.fp, f.cur)
	if err == nil && same && f.unseen() {
		return f.firstSight(fd, r)
	}
	return same, err
}

// firstSight is for an unseen file that is open now. It tells whether what was passed over can still be there.
func (f *File) firstSight(fd int, r *reading) (bool, error) {
	if f.shrunk.Load() > 0 {
		return false, nil
	}
	if err := f.loadBehindLines(fd, r, f.cur.Offset); err != nil {
		return false, err
	}
	f.begin(r)
	f.src.passed = f.cur.Offset
	return true, nil
}

// loadBehindLines puts r behind the last whole line of the first size bytes. What follows them may be room that is filled later.
func (f *File) loadBehindLines(fd int, r *reading, size int64) error {
	to, err := textEnd(fd, size)
	if err != nil {
		return err
	}
	rule := f.rule
	if rule.wide {
		var head [2]byte
		n, err := pread(fd, head[:], 0)
		if err != nil {
			return err
		}
		rule.big = f.dec.order(head[:n])
		to = min(to+to&1, size) &^ 1 // a NUL may be half a unit
	}
	buf := make([]byte, min(to, lineBackBytes))
	from := to - int64(len(buf))
	n, err := pread(fd, buf, from)
	if err != nil {
		return err
	}
	c := Cursor{Offset: from}
	if end := rule.lastLine(buf[:n]); end > 0 {
		c.Offset += int64(end)
	} else if from > 0 {
		c.Offset, c.State = from+int64(n), Discard // amid a long line: what is left of it is no record
	}
	return r.load(readFD(fd), c)
}

// textEnd returns where the run of NULs begins that the first size bytes end with.
func textEnd(fd int, size int64) (int64, error) {
	to := dataEnd(fd, size)
	buf := make([]byte, min(to, lineBackBytes))
	for least := max(0, to-roomBackBytesMax); to > least; {
		part := buf[:min(to, int64(len(buf)))]
		n, err := pread(fd, part, to-int64(len(part)))
		if err != nil {
			return 0, err
		}
		to -= int64(len(part))
		if text := n - trailingNULs(part[:n]); text > 0 {
			return to + int64(text), nil
		}
	}
	return to, nil
}

// warnUnseen tells of files that a first start may not even look at. Nothing is known of them, so they are files that come later.
func (w *Watcher) warnUnseen() {
	files := 0
	for path := range w.refused.paths {
		if slices.ContainsFunc(w.blocks, func(b Block) bool { return b.StartAtEnd && firstMatch(b.Paths, path) != "" }) {
			files++
		}
	}
	if files > 0 {
		w.log.Warn("files of sources that start at the end may not be looked at: once they may, they are read from their beginning", "files", files)
	}
}
