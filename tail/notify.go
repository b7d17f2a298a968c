package tail

// inotify through fsnotify: hints about directories. Losing any of it costs time, never lines.

import (
	"errors"
	"log/slog"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// notifier watches directories; a nil one watches nothing. fsnotify runs one goroutine between start and close.
type notifier struct {
	log     *slog.Logger
	fs      *fsnotify.Watcher // nil: not started, or refused by the system
	dirs    map[string]key    // watched directory -> what it was then
	limited bool              // the system refused a watch
	remote  bool              // a directory on a network file system was told
}

// tellRemote says once that polling alone finds what other hosts write.
func (n *notifier) tellRemote(path string) {
	if n.remote {
		return
	}
	if kind := remoteKind(path); kind != "" {
		n.remote = true
		n.log.Warn("a directory is on a network file system, where inotify does not tell what others write: its files are polled", "path", path, "kind", kind)
	}
}

type event = fsnotify.Event

// namesChanged tells whether names may have appeared, gone or changed their meaning. known: the event is of a source's path.
func namesChanged(e event, known bool) bool {
	return e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 || e.Has(fsnotify.Chmod) && !known
}

func newNotifier(log *slog.Logger) *notifier { return &notifier{log: log, dirs: map[string]key{}} }

func (n *notifier) start() {
	if n == nil {
		return
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		what := "inotify is not to be had: files are only polled"
		if errors.Is(err, unix.EMFILE) {
			what = "the limit of inotify instances (fs.inotify.max_user_instances) or of open files is reached: files are only polled"
		}
		n.log.Warn(what, "error", err)
		return
	}
	n.fs = fs
}

func (n *notifier) close() {
	if n != nil && n.fs != nil {
		_ = n.fs.Close() // it only ever read
		n.fs = nil
	}
}

func (n *notifier) events() <-chan fsnotify.Event {
	if n == nil || n.fs == nil {
		return nil
	}
	return n.fs.Events
}

func (n *notifier) errors() <-chan error {
	if n == nil || n.fs == nil {
		return nil
	}
	return n.fs.Errors
}

func (n *notifier) state() (watches int, on bool) {
	if n == nil || n.fs == nil {
		return 0, false
	}
	return len(n.dirs), !n.limited
}

// watch makes want the set of watched directories. A path that leads to another directory than before is
// watched anew: a watch belongs to the inode.
func (n *notifier) watch(want map[string]key) {
	if n == nil || n.fs == nil {
		return
	}
	for path, was := range n.dirs {
		if is, ok := want[path]; !ok || is != was {
			_ = n.fs.Remove(path) // the kernel may have removed it with the directory
			delete(n.dirs, path)
		}
	}
	refused := false
	for path, is := range want {
		if _, ok := n.dirs[path]; ok {
			continue
		}
		switch err := n.fs.Add(path); {
		case err == nil:
			n.dirs[path] = is
			n.tellRemote(path)
		case errors.Is(err, unix.ENOSPC):
			refused = true
			if !n.limited {
				n.log.Warn("the limit of inotify watches (fs.inotify.max_user_watches) is reached: further directories are only polled",
					"watched", len(n.dirs), "directories", len(want))
			}
		}
		if refused {
			break // the rest would be refused as well; the next full walk tries again
		}
	}
	n.limited = refused
}
