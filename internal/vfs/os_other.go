//go:build unix && !linux

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync is what the Go library makes of fsync; on macOS F_FULLFSYNC, since fsync
// leaves the bytes in the cache of the drive there.
func (f osFile) Sync() error { return f.File.Sync() }

func reserve(*os.File, int64, int64) error { return errors.ErrUnsupported }

// Punch is not to be had portably.
func (osFile) Punch(int64, int64) error { return errors.ErrUnsupported }

// Usage knows no kinds of file systems here: `allow_network_fs` is not asked.
func (OS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, os.NewSyscallError("statfs", err)
	}
	u := Usage{TotalBytes: int64(st.Blocks) * int64(st.Bsize), FreeBytes: int64(st.Bavail) * int64(st.Bsize)}
	if st.Files > 0 && st.Ffree == 0 { // 0 of 0: it has no such limit
		u.FreeBytes = 0
	}
	return withPerm(u, dir)
}
