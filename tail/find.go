package tail

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Find lists the paths that an absolute pattern finds now, in the way of a Watcher: symlinks are followed, loops and
// repetitions are not. Paths of directories are among them. The error is the first thing that kept it from looking
// everywhere; what was found is returned all the same.
func Find(pattern string) (paths []string, err error) {
	w := newWalker([]Block{{Paths: []string{pattern}}})
	w.skipDir = func(*fileStat) bool { return false }
	w.warn = func(path, what string) {
		if err == nil {
			if i := strings.LastIndex(what, ": "); i >= 0 {
				what = what[i+2:] // the cause
			}
			err = errors.New(path + ": " + what)
		}
	}
	for _, c := range w.walk(time.Now().UnixNano()) {
		paths = append(paths, c.path)
	}
	return paths, err
}

// Readable opens a file as a Watcher of this process with these Options.SymlinkRoots would, and closes it. The error names
// the path if the call that failed does not.
func Readable(path string, symlinkRoots []string) error {
	w := Watcher{wary: readsEverything(), roots: symlinkRoots}
	fd, err := w.openOnce(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	closeFD(fd)
	return nil
}
