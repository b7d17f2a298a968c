package tail

// Who may write to a directory of logs can put a symlink there. An agent that reads everything must not be led by it to files
// that its author may not read. Such an agent follows a symlink only if root or its own user made it, or if its author owns
// what it leads to, or if that is below one of the allowed roots.
//
//	/var/log/containers/x.log -> /var/log/pods/...   made by root (kubelet): followed
//	/srv/app/current -> v2                           v2 belongs to who made the link: followed
//	/srv/app/log/x.log -> /etc/shadow                made by a user, root's: not followed

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const linksMax = 40 // symlinks on one path, as in the kernel

// readsEverything tells whether the process may read what others may not.
func readsEverything() bool {
	if unix.Geteuid() == 0 {
		return true
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&head, &data[0]) != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_DAC_OVERRIDE|1<<unix.CAP_DAC_READ_SEARCH) != 0
}

// openTrusted is openRead for an agent that reads everything. Nothing on the way can be exchanged between the look at it and
// its use: every step is taken from a descriptor.
func openTrusted(path string, roots []string) (fd int, err error) {
	how := unix.OpenHow{Flags: openFlags, Resolve: unix.RESOLVE_NO_SYMLINKS}
	err = retry(func() error {
		fd, err = unix.Openat2(unix.AT_FDCWD, path, &how)
		return err
	})
	if err == nil || !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	w := trustWalk{at: at, roots: roots, rest: steps(path, nil)}
	defer func() { closeFD(w.at) }()
	for len(w.rest) > 1 {
		if err := w.step(); err != nil {
			return -1, err
		}
	}
	return w.last()
}

// trustWalk is on its way along a path.
type trustWalk struct {
	at    int    // the directory reached
	real  string // where that is, without symlinks; "" is the root
	rest  []pathStep
	roots []string
	links int
}

// pathStep is one name to follow. by: the untrusted links whose targets end here.
type pathStep struct {
	name string
	by   []untrustedLink
}

func steps(path string, by []untrustedLink) (list []pathStep) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, pathStep{name: name})
		}
	}
	if len(list) == 0 {
		list = []pathStep{{name: "."}}
	}
	list[len(list)-1].by = by
	return list
}

// look opens the next name without following it.
func (w *trustWalk) look() (fd int, st unix.Stat_t, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(w.at, w.rest[0].name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	return fd, st, err
}

// step follows the next name: a directory, or a symlink, whose own names then come first.
func (w *trustWalk) step() error {
	fd, st, err := w.look()
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		defer closeFD(fd)
		return w.follow(fd, &st)
	}
	if err := w.arrive(&st); err != nil {
		closeFD(fd)
		return err
	}
	closeFD(w.at)
	w.at, w.real, w.rest = fd, w.next(), w.rest[1:]
	return nil
}

// next is where the next name is.
func (w *trustWalk) next() string {
	switch name := w.rest[0].name; name {
	case ".":
		return w.real
	case "..":
		return w.real[:max(0, strings.LastIndexByte(w.real, '/'))]
	default:
		return w.real + "/" + name
	}
}

// follow puts what a symlink says in its place.
func (w *trustWalk) follow(fd int, st *unix.Stat_t) error {
	if w.links++; w.links > linksMax {
		return unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	by := slices.Clone(w.rest[0].by)
	if st.Uid != 0 && int(st.Uid) != unix.Geteuid() {
		by = append(by, untrustedLink{link: w.next(), uid: st.Uid})
	}
	target := string(buf[:n])
	w.rest = append(steps(target, by), w.rest[1:]...)
	if !strings.HasPrefix(target, "/") {
		return nil
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	closeFD(w.at)
	w.at, w.real = root, ""
	return nil
}

// arrive compares the links whose targets end at the next name with what is there.
func (w *trustWalk) arrive(st *unix.Stat_t) error {
	real := w.next()
	for _, l := range w.rest[0].by {
		if l.uid == st.Uid || slices.ContainsFunc(w.roots, func(root string) bool {
			return real == root || strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/")
		}) {
			continue
		}
		l.target, l.owner = real, st.Uid
		return &l
	}
	return nil
}

// last opens the last name for reading, through as many symlinks as it takes.
func (w *trustWalk) last() (fd int, err error) {
	for {
		seen, st, err := w.look()
		if err != nil {
			return -1, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			err := w.follow(seen, &st)
			closeFD(seen)
			for err == nil && len(w.rest) > 1 {
				err = w.step()
			}
			if err != nil {
				return -1, err
			}
			continue
		}
		defer closeFD(seen)
		if err := w.arrive(&st); err != nil {
			return -1, err
		}
		err = retry(func() error {
			fd, err = unix.Openat(w.at, w.rest[0].name, openFlags|unix.O_NOFOLLOW, 0)
			return err
		})
		if err != nil {
			return -1, err
		}
		var is unix.Stat_t
		if err := unix.Fstat(fd, &is); err != nil || is.Dev != st.Dev || is.Ino != st.Ino {
			closeFD(fd)
			return -1, unix.ENOENT // exchanged just now: the next look finds what is there
		}
		return fd, nil
	}
}
