package tail

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noStatx is set once the kernel (or a seccomp filter) has refused statx: creation times are unknown then.
var noStatx atomic.Bool

// statPath follows symlinks.
func statPath(path string) (fileStat, error) { return statAt(unix.AT_FDCWD, path, 0) }

// openPlace opens a directory only to look names up from there, which needs no right to list it; -1: it cannot.
func openPlace(dir string) (fd int) {
	err := retry(func() (err error) {
		fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1
	}
	return fd
}

// statIn is statPath of a name in a directory that is open.
func statIn(dir int, name string) (fileStat, error) { return statAt(dir, name, 0) }

func statFD(fd int) (fileStat, error) { return statAt(fd, "", unix.AT_EMPTY_PATH) }

func statAt(fd int, path string, flags int) (fileStat, error) {
	if !noStatx.Load() {
		var x unix.Statx_t
		err := statx(fd, path, flags, &x)
		if err == nil {
			s := fileStat{
				dev: unix.Mkdev(x.Dev_major, x.Dev_minor), ino: x.Ino, size: int64(x.Size), nlink: uint64(x.Nlink), mode: uint32(x.Mode),
				mtime: nanos(x.Mtime.Sec, int64(x.Mtime.Nsec)), ctime: nanos(x.Ctime.Sec, int64(x.Ctime.Nsec)),
			}
			if x.Mask&unix.STATX_BTIME != 0 {
				s.born = nanos(x.Btime.Sec, int64(x.Btime.Nsec))
			}
			return s, nil
		}
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return fileStat{}, err
		}
		noStatx.Store(true)
	}
	var s unix.Stat_t
	err := retry(func() error {
		if flags&unix.AT_EMPTY_PATH != 0 {
			return unix.Fstat(fd, &s)
		}
		return unix.Fstatat(fd, path, &s, 0)
	})
	return fileStat{
		dev: s.Dev, ino: s.Ino, size: s.Size, nlink: uint64(s.Nlink), mode: s.Mode,
		mtime: nanos(s.Mtim.Sec, s.Mtim.Nsec), ctime: nanos(s.Ctim.Sec, s.Ctim.Nsec),
	}, err
}

// nanos is a time of a file in nanoseconds since 1970. Those that are too far away for that, before 1677 or after 2262, are the last
// that is not: a file from the year 2300 must not look like one from 1715.
func nanos(sec, nsec int64) int64 {
	const most = math.MaxInt64/1_000_000_000 - 1
	return max(-most, min(sec, most))*1e9 + nsec
}

// statx is unix.Statx without a copy of the path on the heap: it is called for every file, again and again.
func statx(fd int, path string, flags int, x *unix.Statx_t) error {
	var room [256]byte
	name := room[:0]
	if strings.IndexByte(path, 0) >= 0 {
		return unix.EINVAL
	}
	name = append(append(name, path...), 0)
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&name[0])), uintptr(flags),
			unix.STATX_BASIC_STATS|unix.STATX_BTIME, uintptr(unsafe.Pointer(x)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// seekData returns the first offset at or behind from that is not in a hole; size if only a hole follows.
func seekData(fd int, from, size int64) int64 {
	p, err := unix.Seek(fd, from, unix.SEEK_DATA)
	switch {
	case err == nil:
		return p
	case errors.Is(err, unix.ENXIO):
		return size
	}
	return from
}

// extentsMax is how many pieces of a file dataEnd asks for.
const extentsMax = 1024

// dataEnd returns where the hole begins that the first size bytes of a file end with; size if that cannot be told.
func dataEnd(fd int, size int64) int64 {
	end := int64(0)
	for range extentsMax {
		from, err := unix.Seek(fd, end, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO) || err == nil && from >= size:
			return end
		case err != nil:
			return size
		}
		if end, err = unix.Seek(fd, from, unix.SEEK_HOLE); err != nil || end >= size {
			return size
		}
	}
	return size
}

// uptime is how long the machine has run; 0: unknown.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// cpuTime is what the calling thread has used of a processor. Run is locked to its thread, so the difference of two
// is the cost of what is between them, however busy the machine.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
