//go:build linux

package run

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DropCache takes the files in dir out of the page cache, so that the next look at them reads the disk. What is not written yet is
// written first.
func DropCache(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}
