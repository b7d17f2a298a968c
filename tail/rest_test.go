package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDirectoriesAtRest waits until directories are old enough to be trusted: a full scan then takes files in those that did not
// change for what they were. Whatever happens in the others is found, and so is what was written meanwhile.
func TestDirectoriesAtRest(t *testing.T) {
	for _, inotify := range []bool{false, true} {
		t.Run(fmt.Sprintf("inotify=%v", inotify), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, inotify)
			do := func(script string) {
				t.Helper()
				for line := range strings.Lines(script) {
					if err := m.step(splitWords(t, line)); err != nil {
						t.Fatal(line, err)
					}
				}
			}
			do("block paths=*/*.log\nmkdir a\nmkdir b\nwrite a/1.log \"a1\\n\"\nwrite a/2.log \"a2\\n\"\nwrite b/1.log \"b1\\n\"\nwrite b/2.log \"b2\\n\"\npoll")
			time.Sleep(time.Duration(racyNanos) + 50*time.Millisecond)
			old := time.Now().Add(-time.Hour)
			for _, path := range []string{"a/1.log", "a/2.log", "b/1.log", "b/2.log"} {
				must(t, os.Chtimes(filepath.Join(m.dir, path), old, old))
			}
			m.ahead = time.Hour // no file is busy any more
			do("poll")
			m.w.looks, m.w.looksMin, m.w.rescan = 1, 1, true
			do("poll")
			stats := 0
			for _, f := range m.w.sources {
				if f.src.seen == m.w.scans && m.w.walker.asBefore(parent(f.Path())) {
					stats++
				}
			}
			if stats != 4 {
				t.Errorf("%d files were taken for what they were, want 4", stats)
			}
			m.out.Reset()
			do("mv a/1.log a/1.old\nwrite a/1.log \"new\\n\"\nappend a/1.old \"late\\n\"\nappend b/1.log \"b1+\\n\"\nrm a/2.log\nwrite b/2.log \"short\\n\"\npoll\npoll\npoll")
			do("mv b/1.log a/3.log\nappend a/3.log \"moved\\n\"\npoll")
			want := "a/1.log 0000-0004 \"new\"\na/1.log 0003-0008 \"late\"\nb/1.log 0003-0007 \"b1+\"\nb/2.log 0000-0006 \"short\"\ntruncated b/2.log\na/3.log 0007-0013 \"moved\"\n"
			if got := strings.ReplaceAll(m.out.String(), "--\n", ""); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// A file that was at rest before it was found is not kept open: nobody could unmount what it is on.
func TestFileAtRestIsClosed(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `write a.log "one\n"`)
	m.start()
	m.w.keep.idle = 50 * time.Millisecond
	time.Sleep(2 * m.w.keep.idle)
	stepAll(t, m, `poll`, `poll`)
	if n := m.w.Stats().Open; n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// A look that is late, since the agent was stopped, the machine busy or files are many, finds a directory whose names changed long
// enough ago to be trusted. What it is now says nothing about when the path was seen last, and generations made in between are read.
func TestRotatedLongBeforeTheNextLook(t *testing.T) {
	t.Parallel()
	m := newMachine(t, false)
	stepAll(t, m, `block paths=app.log`, `lines app.log 1 1`, `poll`, `tick`)
	for _, n := range []string{"2", "3"} {
		stepAll(t, m, `mv app.log app.log-0`+n, `lines app.log `+n+` `+n, `tick`)
	}
	stepAll(t, m, `gzip app.log-03`, `mv app.log app.log-04`, `lines app.log 4 4`)
	time.Sleep(time.Duration(racyNanos) + 50*time.Millisecond)
	m.out.Reset()
	stepAll(t, m, `poll`, `poll`)
	want := "app.log 0000-0009 \"00000002\"\napp.log 0000-0009 \"00000003\"\napp.log 0000-0009 \"00000004\"\n"
	if got := strings.ReplaceAll(m.out.String(), "--\n", ""); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
