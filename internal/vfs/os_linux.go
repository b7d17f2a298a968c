package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// Sync is fdatasync: the times of the file are not written, its size is if it
// changed.
func (f osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

func reserve(f *os.File, offset, length int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, offset, length)
		if err != unix.EINTR {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// Punch keeps the size, so offsets behind the hole stay where they are.
func (f osFile) Punch(from, to int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
		if err != unix.EINTR {
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// fsKinds are the magic numbers of statfs(2) that change what we do or say.
var fsKinds = map[uint32]Usage{
	0x00006969: {Kind: "nfs", Network: true},
	0x0000517b: {Kind: "smb", Network: true},
	0xfe534d42: {Kind: "smb2", Network: true},
	0xff534d42: {Kind: "cifs", Network: true},
	0x01021997: {Kind: "9p", Network: true},
	0x00c36400: {Kind: "ceph", Network: true},
	0x5346414f: {Kind: "afs", Network: true},
	0x0bd00bd0: {Kind: "lustre", Network: true},
	0x47504653: {Kind: "gpfs", Network: true},
	0x65735546: {Kind: "fuse"},
	0x01021994: {Kind: "tmpfs"},
	0x858458f6: {Kind: "ramfs"},
	0x794c7630: {Kind: "overlay"},
}

func (OS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, os.NewSyscallError("statfs", err)
	}
	u := fsKinds[uint32(st.Type)]
	u.TotalBytes = int64(st.Blocks) * st.Bsize
	u.FreeBytes = int64(st.Bavail) * st.Bsize
	if st.Files > 0 && st.Ffree == 0 { // 0 of 0: it has no such limit
		u.FreeBytes = 0
	}
	return withPerm(u, dir)
}
