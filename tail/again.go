package tail

import "time"

// told is what was said of a file that was nowhere.
type told struct {
	born, from, to int64 // from == to: that nobody knows whether something is lost
}

// toldMax bounds the files that are remembered as lost.
const toldMax = 4096

// tellGone notes that [from, to) of f was told as lost, or that f is gone. Its file may be there again later, under a new source.
func (w *Watcher) tellGone(f *File, from, to int64) {
	if f.fp.Born == 0 {
		return // nothing would tell it from another one with its inode number
	}
	if len(w.told) >= toldMax {
		clear(w.told)
	}
	w.told[w.toldKey(f)] = told{f.fp.Born, from, to}
}

func (w *Watcher) toldKey(f *File) key { return key{f.src.key.block, f.fp.Dev, f.fp.Ino} }

// foundAgain takes back that f is gone, if that was told and its file is there with all that was lost. It was moved to where nobody
// looks, and back. A gap that was told has its number, and stays: the log and the counters say that it was read.
func (w *Watcher) foundAgain(f *File) {
	k := w.toldKey(f)
	x, is := w.told[k]
	if !is || x.born != f.fp.Born || f.src.st.size < x.to {
		return
	}
	delete(w.told, k)
	if f.restarted {
		return // what is in it now is something else
	}
	w.stats.againFiles.Add(1)
	w.stats.againBytes.Add(uint64(x.to - x.from))
	w.log.Warn("file that was told as gone is there again: it is read on, and nothing of it is lost", "path", f.Path(), "source", f.ID(), "offset", f.cursorOffset(), "bytes_found", x.to-x.from)
}

// cameBack is for a source that a pattern finds again.
func (w *Watcher) cameBack(f *File) {
	s := &f.src
	s.missing, s.at, s.lostSince = false, "", time.Time{}
	f.gone.Store(false)
	w.foundAgain(f)
}
