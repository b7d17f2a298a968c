package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestListedOnceForAll has many logs of one directory rotated and compressed at once: it is not listed for each of them.
func TestListedOnceForAll(t *testing.T) {
	const n = 40
	m := newMachine(t, false)
	each := func(steps ...string) {
		for i := range n {
			for _, step := range steps {
				stepAll(t, m, fmt.Sprintf(step, i))
			}
		}
	}
	stepAll(t, m, "block paths=*.log")
	each("lines %[1]d.log 0 %[1]d")
	stepAll(t, m, "poll")
	each("mv %[1]d.log %[1]d.log.1", "lines %d.log 1000 1000")
	stepAll(t, m, "poll")
	each("gzip %d.log.1")
	lists, now := map[time.Time]bool{}, m.w.now
	m.w.now = func() time.Time {
		if l, ok := m.w.siblings[m.dir]; ok {
			lists[l.at] = true
		}
		return now()
	}
	stepAll(t, m, "poll", "sleep 10s", "poll")
	if m.w.delivered != n || len(lists) > n/2 {
		t.Errorf("%d of %d generations known by their copies, after %d listings", m.w.delivered, n, len(lists))
	}
}

// TestSiblingsNamed compares what is looked up in a listing with what all rules say of each file.
func TestSiblingsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "app", "app.log", "app.log.1", "app.log.1.gz", "app-1.log", "app-2026-11-30.log.gz", "app1.log", "apq.log", "ap", "app.log1764511682123456.tmp",
		".hidden", ".hidden.1", "b.log", "other.log.2", "..log", "app.log-20261130", "App.log.1", "zz"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	w := &Watcher{now: time.Now}
	all := w.siblingsIn(dir)
	for _, names := range [][]string{{"app.log"}, {"app"}, {"app-1.log"}, {".hidden"}, {"zz"}, {"app.log", "apq.log"}, {"app.log", "other.log"}, {"zzz.log"}} {
		var paths []string
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		listed := map[string]bool{}
		for _, sib := range w.siblingsNamed(dir, paths) {
			listed[sib.path] = true
		}
		for _, sib := range all {
			for i, rule := range []func(path, other string) bool{rotatedName, rotationName, numbered, generationName, setAside, func(path, other string) bool { return path == other },
				func(path, other string) bool { return countOf([]string{path}, other) >= 0 }} {
				if namedAfter(paths, sib.path, rule) && !listed[sib.path] {
					t.Errorf("%v: rule %d finds %s, which is not listed", names, i, sib.path)
				}
			}
			if with := w.siblingsWith(dir, sib.st.ino); len(with) != 1 || with[0].path != sib.path {
				t.Errorf("%s by its inode: %v", sib.path, with)
			}
		}
	}
	if n := len(w.siblingsNamed(dir, []string{filepath.Join(dir, "app.log")})); n != 9 {
		t.Errorf("%d files may be called after app.log", n)
	}
}
