package tail

import "slices"

// around is where other generations of a path may be, and what they may be named after. Symlinks are followed once for all that is
// asked in one look.
type around struct{ dirs, names []string }

func (w *Watcher) around(path string) around {
	a, ok := w.arounds[path]
	if !ok {
		real := realPath(path)
		a.dirs = []string{parent(path), parent(real), realPath(parent(path))}
		slices.Sort(a.dirs)
		a.dirs = slices.Clip(slices.Compact(a.dirs))
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

// dirsOf lists the directories where other generations of path may be.
func (w *Watcher) dirsOf(path string) []string { return w.around(path).dirs }

// namesOf are the names that rotations of path may be named after: its own and, behind a symlink, that of what it leads to.
func (w *Watcher) namesOf(path string) []string { return slices.Clip(w.around(path).names) }

// lookAnew forgets what directories held and where symlinks led.
func (w *Watcher) lookAnew() {
	w.siblings, w.arounds, w.linked = nil, nil, nil
}
