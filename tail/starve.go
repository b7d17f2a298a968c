package tail

// No descriptors left. What needs one cannot be told then, which is not that it is not there: it is looked at again, with the ordinary
// scans, until it can. The log files that are open give theirs back first.

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// keptForOthers is what is left to the rest of the process where its limit is low: a spool and Kafka take some per broker.
const keptForOthers = 64

// openTop bounds the log files that are open in a process that may open so many in all: half of these, and where that leaves less than
// keptForOthers, as few as a quarter.
func openTop(limit uint64) uint64 {
	return max(openFilesMin, limit/4, min(limit/2, limit-min(limit, keptForOthers)))
}

func noDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// openRead opens a file for reading, through symlinks that can be trusted.
func (w *Watcher) openRead(path string) (fd int, err error) {
	err = w.fed(func() error {
		fd, err = w.openOnce(path)
		return err
	})
	return fd, err
}

// readDir is os.ReadDir.
func (w *Watcher) readDir(path string) (list []os.DirEntry, err error) {
	err = w.fed(func() error {
		list, err = os.ReadDir(path)
		return err
	})
	return list, err
}

// fed makes a call that needs a descriptor, once more if some could be given back.
func (w *Watcher) fed(call func() error) error {
	err := call()
	if !noDescriptors(err) {
		return err
	}
	w.giveDescriptors(err)
	if err = call(); noDescriptors(err) {
		w.starved++
		w.moved++ // whoever asked looks again
		w.rescan = true
	}
	return err
}

// giveDescriptors lowers the bound, once a scan, and closes what is quiet; admit asks readers for what they do not need.
func (w *Watcher) giveDescriptors(err error) {
	now := w.now()
	if !w.starvedAt.IsZero() && now.Sub(w.starvedAt) < w.scanGap {
		return
	}
	w.starvedAt = now
	w.openMax = min(w.openMax, max(openFilesMin, len(w.open)*3/4))
	w.closeLongestQuiet()
	w.wanted.Store(len(w.open) > w.openMax)
	if w.starvedTold.IsZero() || now.Sub(w.starvedTold) >= tellAgainAfter {
		w.starvedTold = now
		w.log.Warn("the process has no file descriptors left (ulimit -n): fewer log files are kept open, and some are found and read later", "open_files_max", w.openMax, "error", err)
	}
}

// regainAfter is how long nothing may have been refused before the bound is raised by a quarter, and again.
const regainAfter = time.Minute

// regainDescriptors raises the bound that giveDescriptors lowered.
func (w *Watcher) regainDescriptors() {
	now := w.now()
	if w.openMax == w.openTop || now.Sub(w.starvedAt) < regainAfter || now.Sub(w.regainedAt) < regainAfter {
		return
	}
	w.regainedAt = now
	w.openMax = min(w.openTop, w.openMax+max(1, w.openMax/4))
}
