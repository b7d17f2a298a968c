package tail

// Files that may not be read. Each is told once, many of them by a summary a minute; each is tried again when its
// permissions change, and now and then since what forbids it may lie elsewhere (a directory, an access list).

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

const (
	retryMin         = time.Second
	retryMax         = 30 * time.Second
	deniedTellMax    = 10 // paths told one by one in a period
	deniedTellPeriod = time.Minute
)

// untrustedLink is a symlink that is not followed.
type untrustedLink struct {
	link, target string
	uid, owner   uint32
}

func (e *untrustedLink) Error() string {
	return fmt.Sprintf("symlink %s was made by user %d and leads to %s of user %d: an agent that may read everything follows it only if symlink_roots allows it",
		e.link, e.uid, e.target, e.owner)
}

// Is makes it an error of permissions.
func (e *untrustedLink) Is(target error) bool { return target == fs.ErrPermission }

// refused is what permissions keep from being read, and what of it was told.
type refused struct {
	files int             // sources
	paths map[string]bool // that could not even be looked up, by the last full scan
	known map[string]bool // that may be those of files that the spool knows, and could not be opened to see that

	since  time.Time // of the period
	told   int
	untold int
	path   string // one of the untold
}

// cannot tells a path that could not be looked at or opened, and says whether permission was denied.
func (w *Watcher) cannot(path string, err error) (denied bool) {
	if gone(err) || noDescriptors(err) {
		return false
	}
	if _, link := errors.AsType[*untrustedLink](err); link || !errors.Is(err, fs.ErrPermission) {
		w.warnOnce(path, "file cannot be read: "+err.Error())
		return link
	}
	const what = "file cannot be read: permission denied (it is tried again)"
	if w.warned[path] == what {
		return true
	}
	w.stats.permissionErrors.Add(1)
	r := &w.refused
	if now := w.now(); r.told == 0 || now.Sub(r.since) >= deniedTellPeriod {
		w.tellDenied(now)
		r.since, r.told = now, 0
	}
	if r.told++; r.told <= deniedTellMax {
		w.warnOnce(path, what)
		return true
	}
	w.remember(path, what)
	r.untold++
	r.path = path
	return true
}

// tellDenied sums up what was not told one by one, when its period is over.
func (w *Watcher) tellDenied(now time.Time) {
	r := &w.refused
	if r.untold > 0 && now.Sub(r.since) >= deniedTellPeriod {
		w.log.Warn("more files cannot be read: permission denied (they are tried again)", "files", r.untold, "path", r.path)
		r.untold = 0
	}
}

// deny puts off the next try of a source that could not be opened.
func (w *Watcher) deny(f *File) {
	s := &f.src
	if !s.denied {
		s.denied = true
		w.refused.files++
	}
	s.deniedFor = min(max(retryMin, 2*s.deniedFor), retryMax)
	s.deniedAs, s.retryAt = s.st.ctime, w.now().Add(s.deniedFor)
}

// admitted takes note that nothing forbids f any more.
func (w *Watcher) admitted(f *File) {
	s := &f.src
	if s.denied {
		w.refused.files--
	}
	s.denied, s.deniedAs, s.deniedFor, s.retryAt = false, 0, 0, time.Time{}
}

// tellable tells whether it is time to say that f, which no name was found for, is gone, or to forget it.
func (w *Watcher) tellable(f *File) bool {
	return f.src.lostSince.IsZero() || w.now().Sub(f.src.lostSince) >= w.keep.unseen
}

// hidden tells whether f cannot be said to be gone: what is at its path, or the names beside it, may not be looked at now. However
// long that takes, it goes on where it was then.
func (w *Watcher) hidden(f *File) bool {
	for _, path := range []string{f.Path(), parent(f.Path())} {
		st, err := statPath(path)
		if err == nil && (st.regular() || st.isDir()) { // to open a device may do something
			var fd int
			if fd, err = w.openRead(path); err == nil {
				closeFD(fd)
			}
		}
		if err != nil && !gone(err) {
			return true
		}
	}
	return false
}
