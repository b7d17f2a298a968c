package tail

// Descriptors while files may not be read: their block finds no room downstream (Options.Paused), so they wait,
// open, until it does. What is renamed or deleted meanwhile is read all the same, but nothing is held without end:
//
//	under its path   given back by its reader when others need the descriptor; opened again when there is room
//	renamed away     the same, if a name beside its old one leads to it
//	deleted          its descriptor is all that is left of it, and its bytes are not free until that is closed: held up
//	                 to so many bytes and files, then the oldest is given up and what was unread of it is counted

import (
	"cmp"
	"slices"
)

const (
	heldBytesDefault = 1 << 30
	heldShare        = 2 // of the descriptors may be held by deleted files
	pausedShare      = 8 // of the descriptors are not for files that may not be read
)

// GivenUp tells that the watcher wants f back, read or not.
func (f *File) GivenUp() bool { return f.givenUp.Load() }

// Missing tells that f's path names something else or nothing now.
func (f *File) Missing() bool { return f.gone.Load() }

// rests tells whether f may not be read now.
func (w *Watcher) rests(f *File) bool {
	return w.paused != nil && w.paused(w.blocks[f.src.key.block].Name)
}

// mayOpen is slot; files that may not be read leave descriptors to the others.
func (w *Watcher) mayOpen(f *File) bool {
	if w.rests(f) {
		return len(w.open) < w.openMax-w.openMax/pausedShare
	}
	return w.slot()
}

// limitHeld gives up deleted files beyond the limits, and what waits for its block and can be found again when
// others wait for descriptors.
func (w *Watcher) limitHeld() {
	var held []*File
	bytes := int64(0)
	for f := range w.open {
		switch s := &f.src; {
		case !s.missing:
		case s.st.nlink == 0:
			held = append(held, f)
			bytes += s.st.size
		case w.wanted.Load() && w.rests(f):
			if sib, ok := w.elsewhere(f); ok {
				s.at = sib.path
				w.wantBack(f)
			}
		}
	}
	w.stats.heldFiles.Store(int64(len(held)))
	w.stats.heldBytes.Store(bytes)
	if len(held) <= w.heldFilesMax && bytes <= w.heldBytesMax {
		return
	}
	slices.SortFunc(held, func(a, b *File) int { return cmp.Compare(a.src.st.mtime, b.src.st.mtime) })
	for i, f := range held {
		if len(held)-i <= w.heldFilesMax && bytes <= w.heldBytesMax {
			return
		}
		bytes -= f.src.st.size
		w.wantBack(f)
	}
}

// wantBack takes f out of its reader's hands; putAway does the rest.
func (w *Watcher) wantBack(f *File) {
	f.givenUp.Store(true)
	if f.src.out {
		f.hint()
		return
	}
	w.putAway(f)
}

// putAway closes a file that was given up. A deleted one ends here, and is told if it was not read to its end; another is followed by its name.
func (w *Watcher) putAway(f *File) {
	f.givenUp.Store(false)
	if f.src.st.nlink == 0 {
		if f.unread(f.src.st.size) <= 0 {
			w.leaveBehind(f)
		} else if w.forget(f) { // only now its reader has said how far it is
			w.stats.givenUp.Add(1)
			w.log.Warn("too much is held open of deleted files that wait to be read: the oldest was given up",
				"path", f.Path(), "source", f.ID(), "bytes", f.src.st.size, "held_files_max", w.heldFilesMax, "held_bytes_max", w.heldBytesMax)
		}
		return
	}
	w.closeFile(f)
}
