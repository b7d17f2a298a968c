package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// MkdirAll syncs the parents of what it made, or a power cut could take the
// directory away with everything in it.
func (o OS) MkdirAll(dir string) error {
	var parents []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
			break // it is there; or it cannot be asked, which the next call says better
		}
		parents = append(parents, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		d, err := o.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (OS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (OS) OpenFile(name string, mode Mode) (File, error) {
	flag := os.O_RDONLY
	switch mode {
	case Write:
		flag = os.O_RDWR
	case Create:
		flag = os.O_RDWR | os.O_CREATE | os.O_EXCL
	}
	if mode != Create && !mayBeFile(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNoFile}
	}
	f, err := os.OpenFile(name, flag|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// mayBeFile is false for what to open would wait for ever or fail each time, pipes,
// sockets, directories, and for links: what these lead to is not ours to cut or write.
func mayBeFile(name string) bool {
	st, err := os.Lstat(name)
	return err != nil || st.Mode().IsRegular()
}

func (OS) Rename(from, to string) error { return os.Rename(from, to) }

func (OS) Remove(name string) error { return os.Remove(name) }

func (OS) OpenDir(dir string) (Dir, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Lock uses flock: it belongs to the open file, so a killed process leaves
// nothing behind, whatever the file says.
func (OS) Lock(name, about string) (io.Closer, string, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNoFile}
	}
	if err != nil {
		return nil, "", err
	}
	l := &dirLock{file: f}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = l.lockDir(filepath.Dir(name))
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		var buf [128]byte
		n, _ := f.ReadAt(buf[:], 0) // only a courtesy to the reader of the error
		return nil, strings.TrimSpace(string(buf[:n])), errors.Join(ErrLocked, l.Close())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(about), 0)
	}
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("lock %s: %w", filepath.Base(name), err), l.Close())
	}
	return l, "", nil
}

// dirLock is a lock file and its directory: the file may be removed, by a cleaner of old
// files or by hand, and another made in its place is not locked.
type dirLock struct{ file, dir *os.File }

// lockDir is nil too where directories cannot be locked, as on some network file systems.
func (l *dirLock) lockDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	l.dir = d
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	return nil
}

func (l *dirLock) Close() error {
	err := l.file.Close()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	return err
}

type osFile struct{ *os.File }

// Errors of what is done to an open file do not name it: it may have been renamed.

func (f osFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	return n, nameless(err)
}

func (f osFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, nameless(err)
}

func (f osFile) Truncate(size int64) error { return nameless(f.File.Truncate(size)) }

func nameless(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return os.NewSyscallError(at.Op, at.Err)
	}
	return err
}

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// DiskBytes counts what is reserved too.
func (f osFile) DiskBytes() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const unit = 512 // of st_blocks, whatever the file system's own block is
	return st.Sys().(*syscall.Stat_t).Blocks * unit, nil
}

func withPerm(u Usage, dir string) (Usage, error) {
	st, err := os.Stat(dir)
	if err == nil {
		u.Perm = st.Mode().Perm()
	}
	return u, err
}

// Allocate falls back to writing zeros where blocks cannot be reserved.
func (f osFile) Allocate(size int64) error {
	have, err := f.Size()
	if err != nil || have >= size {
		return err
	}
	err = reserve(f.File, have, size-have)
	if errors.Is(err, errors.ErrUnsupported) {
		return WriteZeros(f, have, size)
	}
	return err
}

// WriteZeros writes zeros to [from, to) of f, so that its blocks are not only
// reserved but written: a later write and sync there costs no metadata.
func WriteZeros(f File, from, to int64) error {
	zeros := make([]byte, min(max(to-from, 0), 1<<20))
	for from < to {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}
