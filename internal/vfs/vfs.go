// Package vfs is the file system as the spool sees it: one directory of files
// that are written at positions, synced, renamed and removed. The operating
// system implements it, and so does a memory that can lose everything that was
// not synced (Mem). Hook wraps either to count, trace or fail operations.
//
// Names are paths. Errors of all implementations answer to errors.Is with
// fs.ErrNotExist, fs.ErrExist, fs.ErrPermission and ErrNoSpace.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// ErrNoSpace is what a write, an allocation or a new name answers when the
// volume or the quota is full.
var ErrNoSpace error = syscall.ENOSPC

// IsNoSpace tells whether err means that the volume or the quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsNoDescriptor tells whether err means that the process, or the machine, has as many
// files open as it may.
func IsNoDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// ErrLocked is the answer of Lock when another process holds it.
var ErrLocked = errors.New("locked by another process")

// ErrNoFile is the answer of OpenFile and Lock to a name that is there and no regular file.
var ErrNoFile = errors.New("no regular file")

// Mode says how OpenFile opens.
type Mode uint8

const (
	Read   Mode = iota // existing file, reading only
	Write              // existing file, reading and writing
	Create             // new file, reading and writing; fs.ErrExist if there is one
)

// FS is one file system. Safe for concurrent use.
type FS interface {
	// MkdirAll creates dir (mode 0700) and what is missing above it, durably.
	MkdirAll(dir string) error
	// ReadDir lists the names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	OpenFile(name string, mode Mode) (File, error)
	// Rename moves a file. Not durable before the directory's Sync.
	Rename(from, to string) error
	// Remove unlinks a file. Not durable before the directory's Sync.
	Remove(name string) error
	// OpenDir opens dir to make its names durable: kept open, that cannot fail for
	// want of a descriptor.
	OpenDir(dir string) (Dir, error)
	// Lock takes an exclusive lock on the file name, created if missing, until
	// it is closed or the process dies. If it is taken: ErrLocked, and what the
	// holder wrote about itself.
	Lock(name, about string) (lock io.Closer, holder string, err error)
	// Usage describes the volume that holds dir.
	Usage(dir string) (Usage, error)
}

// Dir is one open directory.
type Dir interface {
	io.Closer
	// Sync makes the names in it durable. After an error nothing may be assumed.
	Sync() error
}

// File is one open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size in bytes.
	Size() (int64, error)
	// Allocate grows the file to size bytes that read as zeros and reserves
	// room for them where the file system can; ErrNoSpace if there is none.
	// A file that is larger stays as it is.
	Allocate(size int64) error
	// Truncate cuts the file to size bytes.
	Truncate(size int64) error
	// Punch makes the bytes in [from, to) read as zeros and gives whole blocks
	// among them back to the volume; the size stays. A crash before the next Sync
	// may undo it for any part. errors.ErrUnsupported: not on this file system.
	Punch(from, to int64) error
	// DiskBytes is what the file takes of its volume.
	DiskBytes() (int64, error)
	// Sync makes the content durable (fdatasync). After an error nothing may be
	// assumed about any byte since the last success: pages may be dropped.
	Sync() error
}

// Usage describes a volume.
type Usage struct {
	TotalBytes int64
	FreeBytes  int64  // for an unprivileged process; 0 also if no further file can be made (no free inode)
	Kind       string // such as "nfs", "tmpfs", "overlay"; "" if of no interest
	Network    bool   // locks and renames may not mean what they mean locally

	Perm fs.FileMode // permission bits of the directory; 0: unknown
}
