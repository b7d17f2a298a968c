//go:build !linux

package tail

import (
	"time"

	"golang.org/x/sys/unix"
)

// statPath follows symlinks. Creation times are not asked for.
func statPath(path string) (fileStat, error) {
	var s unix.Stat_t
	err := retry(func() error { return unix.Stat(path, &s) })
	return fromStat(&s), err
}

// openPlace opens a directory only to look names up from there; -1: it cannot.
func openPlace(dir string) (fd int) {
	err := retry(func() (err error) {
		fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1
	}
	return fd
}

// statIn is statPath of a name in a directory that is open.
func statIn(dir int, name string) (fileStat, error) {
	var s unix.Stat_t
	err := retry(func() error { return unix.Fstatat(dir, name, &s, 0) })
	return fromStat(&s), err
}

func statFD(fd int) (fileStat, error) {
	var s unix.Stat_t
	err := retry(func() error { return unix.Fstat(fd, &s) })
	return fromStat(&s), err
}

func fromStat(s *unix.Stat_t) fileStat {
	return fileStat{
		dev: uint64(s.Dev), ino: uint64(s.Ino), size: s.Size, nlink: uint64(s.Nlink), mode: uint32(s.Mode),
		mtime: s.Mtim.Nano(), ctime: s.Ctim.Nano(),
	}
}

// seekData knows nothing of holes: they are read as NULs.
func seekData(_ int, from, _ int64) int64 { return from }

// dataEnd knows nothing of holes either.
func dataEnd(_ int, size int64) int64 { return size }

// uptime is how long the machine has run; 0: unknown.
func uptime() time.Duration { return 0 }

var started = time.Now()

// cpuTime stands in wall time for the thread's processor time.
func cpuTime() time.Duration { return time.Since(started) }
