package tail

// What directories hold beside the paths that are read, as it was listed last.

import (
	"cmp"
	"io/fs"
	"time"
)

// sibling is a regular file in a directory that was searched.
type sibling struct {
	path string
	st   fileStat
}

// listing is what a directory held at a moment.
type listing struct {
	siblings []sibling
	at       time.Time
}

// siblingsIn lists the regular files of a directory, once per look at all files or some.
func (w *Watcher) siblingsIn(dir string) []sibling {
	if l, ok := w.siblings[dir]; ok {
		return l.siblings
	}
	if w.siblings == nil {
		w.siblings = map[string]listing{}
	}
	var list []sibling
	var at time.Time
	for range listingsMax { // while names are moved, some of them are met twice and others never
		before, _ := statPath(dir)
		starved := w.starved
		at = w.now()
		if list = w.list(dir); w.starved != starved {
			return list // not what is there
		}
		if after, _ := statPath(dir); after.same(&before) {
			break
		}
	}
	w.siblings[dir] = listing{list, at}
	return list
}

// relist has directories listed anew where that was done before f was seen to be gone: without the copy that it was removed for, perhaps. A
// listing that was made since, for another file, holds: thousands may go from one directory at once.
func (w *Watcher) relist(f *File) {
	for _, dir := range w.dirsOf(f.Path()) {
		if s := &f.src; s.goneAt.IsZero() || !w.siblings[dir].at.After(s.goneAt) {
			delete(w.siblings, dir)
		}
	}
}

// openSibling opens a file that was listed, if its name still leads to it.
func (w *Watcher) openSibling(sib sibling) (fd int, err error) {
	if fd, err = w.openRead(sib.path); err == nil {
		var st fileStat
		if st, err = statFD(fd); err == nil && st.is(&sib.st) {
			return fd, nil
		}
		closeFD(fd)
		err = cmp.Or(err, error(fs.ErrNotExist))
	}
	if gone(err) {
		w.moved++ // the next scan finds both
		w.rescan = true
	}
	return -1, err
}

// listingsMax is how often a directory is listed that changes meanwhile.
const listingsMax = 3

func (w *Watcher) list(dir string) (list []sibling) {
	entries, err := w.readDir(dir)
	if err != nil && !gone(err) && !noDescriptors(err) && w.warned[dir] == "" { // that it cannot be listed is told already, perhaps
		w.warnOnce(dir, "directory cannot be searched for rotated files: "+err.Error())
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		path := join(dir, e.Name())
		if st, err := statPath(path); err == nil && st.regular() && !w.excluded[key{0, st.dev, st.ino}] {
			list = append(list, sibling{path, st})
		}
	}
	return list
}

// seeGone notes that an open file has no name any more, if that is so.
func (w *Watcher) seeGone(f *File) {
	if st, err := statFD(f.fd); err == nil {
		w.noteGone(f, &st)
	}
}

func (w *Watcher) noteGone(f *File, st *fileStat) {
	switch s := &f.src; {
	case st.nlink > 0:
		s.goneAt = time.Time{}
	case s.goneAt.IsZero():
		s.goneAt = w.now()
	}
}
