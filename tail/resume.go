package tail

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// cutByCrash tells whether a file that is shorter than what was read of it lost its end when the machine went down: it begins
// as it did, and nothing has touched it since the boot. The cursor is then behind what is left: all of that was read. Once
// somebody has written to it, where it was cut cannot be told any more, and it is read from its start.
func (w *Watcher) cutByCrash(fd int, f *File, st fileStat) (Cursor, bool) {
	n := int64(f.fp.PrefixBytes)
	if st.size >= f.cur.Offset || n == 0 || st.size < n || max(st.mtime, st.ctime) >= w.bootedAt.UnixNano() {
		return Cursor{}, false
	}
	var head [prefixBytesMax]byte
	if m, err := pread(fd, head[:n], 0); err != nil || int64(m) < n || xxhash.Sum64(head[:n]) != f.fp.Prefix {
		return Cursor{}, false
	}
	var last [1]byte
	if m, err := pread(fd, last[:], st.size-1); err != nil || m < 1 {
		return Cursor{}, false
	}
	c := Cursor{Offset: st.size}
	if last[0] != '\n' {
		c.State, c.Part = Continued, 1
	}
	var r reading
	if err := r.load(readFD(fd), c); err != nil {
		return Cursor{}, false
	}
	return r.cursor(), true
}

// goOnAtEnd makes a source of f, whose end was lost.
func (w *Watcher) goOnAtEnd(f *File, c found, at Cursor) {
	w.log.Warn("file is shorter than what was read of it and was not touched since the boot: its end was lost in a crash, reading goes on behind what is left",
		"path", c.path, "source", f.ID(), "offset", f.cur.Offset, "size", c.st.size)
	w.unstray(f)
	f.cur = at
	w.enter(f, c)
}

// bootSlack is how much the clock may have been corrected since the boot.
const bootSlack = 2 * time.Second

// bootedAt is a time before which nothing was written since the machine was started; 1970 if that cannot be told. It cannot
// without a clock that runs on while the machine is off: what is written before the time is fetched would look older.
func bootedAt(now time.Time) time.Time {
	clocks, err := filepath.Glob("/sys/class/rtc/rtc*")
	if up := uptime(); err == nil && len(clocks) > 0 && up > 0 {
		return now.Add(-up - bootSlack)
	}
	return time.Unix(0, 0)
}

// copyBytesMin of a file must be as they were read before it is taken for one that has another inode now: programs begin their logs
// alike. One whose last write is older than itself was written by nobody but a program that copies, so fewer bytes will do.
const copyBytesMin = prefixBytesMax + anchorBytesMax

// adoptCopy looks for the source that was at the path of c, if its inode is gone and c has all that it had: a file restored from
// a backup, moved to another file system or copied up by an overlay while nobody watched.
func (w *Watcher) adoptCopy(c found) (f *File, ok bool) {
	least := int64(copyBytesMin)
	if c.st.born != 0 && c.st.mtime < c.st.born-clockTick {
		least = 1
	}
	if c.st.size < least {
		return nil, true
	}
	starved := w.starved
	for _, f := range w.strayPaths[blockPath{c.block, c.path}] {
		if f.src.key.block != c.block || f.unseen() || f.cur.Offset < least || f.cur.Offset > c.st.size || !slices.Contains(w.strays[f.fp.Ino], f) ||
			slices.ContainsFunc(w.siblingsIn(parent(realPath(c.path))), func(sib sibling) bool { return sib.st.ino == f.fp.Ino && bornTogether(sib.st.born, f.fp.Born) }) {
			continue
		}
		if w.starved != starved {
			return nil, false
		}
		fd, err := w.openRead(c.path)
		if err != nil {
			if w.cannot(c.path, err) {
				w.refused.known[c.path] = true
			}
			return nil, false
		}
		var r reading
		same, err := r.resume(readFD(fd), f.fp, f.cur)
		closeFD(fd)
		if err != nil {
			w.cannot(c.path, err)
			return nil, false
		}
		if same {
			w.log.Info("file has another inode than before and the same content: reading goes on in it", "path", c.path, "source", f.ID(), "offset", f.cur.Offset)
			w.unstray(f)
			w.enter(f, c)
			return f, true
		}
	}
	return nil, true
}
