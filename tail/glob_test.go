package tail

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What keeps a directory from being listed may pass without a change of the directory: a disk or a server that had trouble.
func TestListingThatFailedIsTriedAgain(t *testing.T) {
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "a.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	w := newWalker([]Block{{Paths: []string{path + "/*.log"}}})
	w.skipDir = func(*fileStat) bool { return false }
	now := time.Now().Add(time.Hour).UnixNano() // nothing is too young to tell
	if got := w.walk(now); len(got) != 1 || w.dirs[path] == nil {
		t.Fatalf("found %v", got)
	}
	if yes, _ := w.changed(now, 100); yes {
		t.Fatal("a directory at rest seems to have changed")
	}
	d := w.dirs[path]
	d.err, d.entries, d.retryIn, d.retryAt = unix.EIO, nil, int64(time.Second), now+int64(time.Second)
	w.plan(now)
	if yes, _ := w.changed(now, 100); yes {
		t.Error("it is tried again at once")
	}
	for _, later := range []int64{now + int64(time.Second), now - int64(24*time.Hour)} {
		if yes, _ := w.changed(later, 100); !yes {
			t.Error("it is not tried again at", time.Unix(0, later))
		}
	}
	if got := w.walk(now); !slices.ContainsFunc(got, func(c candidate) bool { return c.path == path+"/a.log" }) {
		t.Errorf("found %v after the trouble", got)
	}
}

func TestAnErrorThatLastsIsToldNowAndThen(t *testing.T) {
	f, at := &File{}, time.Unix(1e9, 0)
	for i, c := range []struct {
		err   error
		after time.Duration
		want  bool
	}{
		{unix.EIO, 0, true},
		{unix.EIO, time.Second, false},
		{unix.ESTALE, 2 * time.Second, true},
		{unix.ESTALE, tellAgainAfter, false},
		{unix.ESTALE, tellAgainAfter + 2*time.Second, true},
	} {
		if got := f.Tells(c.err, at.Add(c.after)); got != c.want {
			t.Errorf("%d: %v after %v is told: %v", i, c.err, c.after, got)
		}
	}
}
