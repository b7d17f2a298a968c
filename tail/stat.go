package tail

import (
	"errors"

	"golang.org/x/sys/unix"
)

// fileStat is what the package asks the kernel about a file. Times are nanoseconds since 1970.
type fileStat struct {
	dev, ino, nlink uint64
	size            int64
	mtime, ctime    int64
	born            int64 // 0: unknown
	mode            uint32
}

func (s *fileStat) regular() bool { return s.mode&unix.S_IFMT == unix.S_IFREG }
func (s *fileStat) isDir() bool   { return s.mode&unix.S_IFMT == unix.S_IFDIR }

func (s *fileStat) kind() string {
	switch s.mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "regular file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "device"
	}
	return "special file"
}

// same tells whether nothing was written, truncated, renamed or linked between two stats of one file, as far
// as the clock of the file system shows it.
func (s *fileStat) same(o *fileStat) bool {
	return s.size == o.size && s.mtime == o.mtime && s.ctime == o.ctime
}

// is tells whether two stats are of one file. An inode number alone is used again soon.
func (s *fileStat) is(o *fileStat) bool {
	return s.dev == o.dev && s.ino == o.ino && bornTogether(s.born, o.born)
}

func bornTogether(a, b int64) bool { return a == 0 || b == 0 || a == b }

// openFlags open without waiting for the other end of a FIFO and without taking a terminal.
const openFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// openRead opens a file wherever symlinks lead.
func openRead(path string) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Open(path, openFlags, 0)
		return err
	})
	return fd, err
}

// openOnce opens a file for reading, through symlinks that can be trusted.
func (w *Watcher) openOnce(path string) (fd int, err error) {
	if w.wary {
		return openTrusted(path, w.roots)
	}
	return openRead(path)
}

// pread reads up to len(buf) bytes at off; fewer only at the end of the file.
func pread(fd int, buf []byte, off int64) (n int, err error) {
	err = retry(func() error {
		n, err = unix.Pread(fd, buf, off)
		return err
	})
	return max(n, 0), err
}

// readFD is pread of fd.
func readFD(fd int) readAt {
	return func(buf []byte, off int64) (int, error) { return pread(fd, buf, off) }
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
