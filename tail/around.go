package tail

import (
	"slices"
	"strings"
)

// around is where other generations of a path may be, and what they may be named after. Symlinks are followed once for all that is
// asked in one look.
type around struct{ dirs, names []string }

func (w *Watcher) around(path string) around {
	a, ok := w.arounds[path]
	if !ok {
		real := realPath(path)
		a.dirs = dirsBeside(path, real)
		a.names = []string{path}
		if real != path {
			a.names = []string{path, real}
		}
		if w.arounds == nil {
			w.arounds = map[string]around{}
		}
		w.arounds[path] = a
	}
	return a
}

// dirsBeside lists the directories where other generations of path, which leads to real, may be.
func dirsBeside(path, real string) []string {
	dirs := []string{parent(path), parent(real), realPath(parent(path))}
	slices.Sort(dirs)
	return slices.Clip(slices.Compact(dirs))
}

// dirsOf lists the directories where other generations of path may be.
func (w *Watcher) dirsOf(path string) []string { return w.around(path).dirs }

// namesOf are the names that rotations of path may be named after: its own and, behind a symlink, that of what it leads to.
func (w *Watcher) namesOf(path string) []string { return slices.Clip(w.around(path).names) }

// lookAnew forgets what directories held and where symlinks led.
func (w *Watcher) lookAnew() {
	w.siblings, w.arounds, w.linked = nil, nil, nil
}

// namedAfter tells whether any of names has other for a rotation, by the rule is.
func namedAfter(names []string, other string, is func(path, other string) bool) bool {
	return slices.ContainsFunc(names, func(name string) bool { return is(name, other) })
}

// rotatedName tells whether a file at path may have been renamed to other by a rotation: app.log becomes
// app.log.1, app.log-20240131, app.1.log, app-2024-01-31.log.
func rotatedName(path, other string) bool {
	stem, _, _ := strings.Cut(strings.TrimLeft(path[len(parent(path)):], "/"), ".")
	return stem != "" && strings.HasPrefix(strings.TrimLeft(other[len(parent(other)):], "/"), stem)
}

// parent is the directory part of an absolute path.
func parent(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}
