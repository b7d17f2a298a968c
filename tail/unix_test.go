package tail

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// socket listens on a unix socket until the test ends. The address is made short enough by way of a short link.
func socket(t *testing.T, path string) error {
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		return err
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	if err := os.Symlink(filepath.Dir(path), short+"/d"); err != nil {
		return err
	}
	l, err := net.Listen("unix", short+"/d/"+filepath.Base(path))
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return err
}

// mmapWrite is `over` by a writer that maps the file.
func mmapWrite(path string, args []string) error {
	off, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	text := args[2]
	m, err := unix.Mmap(int(f.Fd()), 0, off+len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m[off:], text)
	return unix.Munmap(m)
}
