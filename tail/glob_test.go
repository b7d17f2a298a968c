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

// What a pattern finds it must also match: a start leaves files alone that the spool knows under paths which their patterns do not match.
func TestFoundIsMatched(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"d/a.log", "d/.hidden.log", "d/x y.log", "d/[a].log", "d/{a,b}.log", "d/st*r.log", "d/\xff.log", "d/é.log", "d/e/f/a.log", "d/q?.log", `d/b\k.log`, "-dash.log"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(top, name), nil, 0o600))
	}
	must(t, os.Symlink("d", filepath.Join(top, "link")))
	for pattern, least := range map[string]int{
		"*/*.log": 10, "**/*.log": 11, "**": 12, "d/**": 10, "d/*": 10, "./d/*.log": 10, "d/../d/*.log": 10, "d//*.log": 10, "{d,link}/*.log": 10, "{d/e,d}/**/a.log": 1, "link/*": 10, "d/[a-z].log": 1, `d/\[a\].log`: 1,
		"d/?.log": 3, "d/\xff*": 1, "d/{a,é}.log": 2, `d/st\*r.log`: 1, "**/e/**/*.log": 1, "-*": 1, "d/*{.log,.txt}": 10, `d/b\\k.log`: 1, "d/[^a].log": 2,
	} {
		pattern = top + "/" + pattern
		paths, err := Find(pattern)
		if err != nil || len(paths) < least {
			t.Errorf("%s finds %q, %v", pattern, paths, err)
		}
		for _, path := range paths {
			if firstMatch([]string{pattern}, path) == "" {
				t.Errorf("%s finds %q and does not match it", pattern, path)
			}
		}
	}
}
