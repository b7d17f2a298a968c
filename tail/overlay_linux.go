package tail

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// copiedUp tells whether the file at path, which is as st says, is the one with its inode number that was born earlier: an overlay has
// copied it up from a lower layer since. It keeps the number of what is below for that file alone, so it is enough that the one born
// earlier was below: it is older than the upper layer, as nothing is that was made there.
func copiedUp(path string, born int64, st *fileStat) bool {
	if born == 0 || st.born <= born {
		return false
	}
	upper := upperBorn(path)
	return born < upper && upper <= st.born
}

// upperBorn tells when the upper layer of the overlay was made that path is on; 0: it is on none, or that cannot be told. The root
// of an overlay shows the times of its upper layer's.
func upperBorn(path string) int64 {
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(path, &fs) }); err != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return 0
	}
	dir, err := statPath(parent(realPath(path))) // a file may have another device number than its overlay
	if err != nil {
		return 0
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0
	}
	device := fmt.Sprintf("%d:%d", unix.Major(dir.dev), unix.Minor(dir.dev))
	for line := range strings.Lines(string(mounts)) {
		// number, parent, device, root within the file system, mount point, ...
		f := strings.Fields(line)
		if len(f) < 5 || f[2] != device || f[3] != "/" {
			continue
		}
		at, err := strconv.Unquote(`"` + f[4] + `"`) // blanks are octal escapes
		if err != nil {
			continue
		}
		if root, err := statPath(at); err == nil && root.dev == dir.dev {
			return root.born
		}
	}
	return 0
}
