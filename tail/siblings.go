package tail

// What directories hold beside the paths that are read, as it was listed last.

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// sibling is a regular file in a directory that was searched.
type sibling struct {
	path string
	st   fileStat
}

// listing is what a directory held at a moment.
type listing struct {
	siblings []sibling // in the order of their names
	inodes   map[uint64][]sibling
	at       time.Time
}

// siblingsIn lists the regular files of a directory, once per look at all files or some.
func (w *Watcher) siblingsIn(dir string) []sibling {
	if l, ok := w.siblings[dir]; ok {
		return l.siblings
	}
	if w.siblings == nil {
		w.siblings = map[string]*listing{}
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
	w.siblings[dir] = &listing{siblings: list, at: at}
	return list
}

// siblingsNamed lists the regular files of a directory that may be one of names or called after it, whatever the rule (namedAfter): up to
// its first dot they are called as it is.
func (w *Watcher) siblingsNamed(dir string, names []string) []sibling {
	list, stem := w.siblingsIn(dir), ""
	for i, name := range names {
		of, _, _ := strings.Cut(baseOf(name), ".")
		if i == 0 {
			stem = of
		}
		for !strings.HasPrefix(of, stem) {
			stem = stem[:len(stem)-1]
		}
	}
	from, _ := slices.BinarySearchFunc(list, stem, func(s sibling, stem string) int { return cmp.Compare(baseOf(s.path), stem) })
	to, _ := slices.BinarySearchFunc(list[from:], stem, func(s sibling, stem string) int {
		if strings.HasPrefix(baseOf(s.path), stem) {
			return -1
		}
		return 1
	})
	return list[from : from+to]
}

// siblingsWith lists the regular files of a directory that have an inode number.
func (w *Watcher) siblingsWith(dir string, ino uint64) (found []sibling) {
	list := w.siblingsIn(dir)
	l := w.siblings[dir]
	if l == nil { // it could not be listed
		return slices.DeleteFunc(slices.Clone(list), func(s sibling) bool { return s.st.ino != ino })
	}
	if l.inodes == nil {
		l.inodes = make(map[uint64][]sibling, len(list))
		for _, s := range list {
			l.inodes[s.st.ino] = append(l.inodes[s.st.ino], s)
		}
	}
	return l.inodes[ino]
}

func baseOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// relist has directories listed anew where that was done before f was seen to be gone: without the copy that it was removed for, perhaps. A
// listing that was made since, for another file, holds: thousands may go from one directory at once.
func (w *Watcher) relist(f *File) {
	for _, dir := range w.dirsOf(f.Path()) {
		if l := w.siblings[dir]; l != nil && (f.src.goneAt.IsZero() || !l.at.After(f.src.goneAt)) {
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
