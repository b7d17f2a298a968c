package tail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A new file that another one begins with waits for a truncation of that: for a while if it is so short that programs may
// have begun their logs alike, else as long as it is so, and explain says why.
func TestCopyOrOnItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		after time.Duration
		waits bool
	}{
		"short, just made": {copyBytesMin - 1, time.Second, true},
		"short":            {copyBytesMin - 1, copyYoung + time.Second, false},
		"long, just made":  {copyBytesMin, time.Second, true},
		"long":             {copyBytesMin, copyYoung + time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log, other := filepath.Join(dir, "app.log"), filepath.Join(dir, "app-2.log")
			w, err := NewWatcher(Options{NoInotify: true, Blocks: []Block{{Name: "b", Paths: []string{dir + "/*"}, LineBytesMax: 1000}}})
			if err != nil {
				t.Fatal(err)
			}
			w.realDirs = map[string]string{}
			see := func(path, text string) found {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				st, err := statPath(path)
				if err != nil {
					t.Fatal(err)
				}
				return found{candidate{path: path}, key{0, st.dev, st.ino}, st}
			}
			text := strings.Repeat("banner\n", 2*copyBytesMin)
			f := w.newFile(0, log)
			w.enter(f, see(log, text))
			f.SetID(1)
			f.cur.Offset, f.src.checked = int64(len(text)), f.src.st
			twin := see(other, text[:c.bytes])
			twin.st.born = f.src.st.born + 1 // both are made within a tick of the file system's clock
			w.wall = twin.st.ctime + int64(c.after)
			if waits := w.mayBeCopy(twin); waits != c.waits {
				t.Errorf("waits: %v", waits)
			}
			original := ""
			if c.waits {
				original = log
			}
			if e := w.explain(other); e.Blocks[0].CopyOf != original {
				t.Errorf("explained as a copy of %q", e.Blocks[0].CopyOf)
			}
		})
	}
}

// A directory is listed name by name: a log may be filled and copied behind the look at its own name and before that at its copy's. What
// it holds since decides whether that is the copy of what is in it.
func TestCopiedBetweenTwoNames(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "app.log")
	write := func(path, text string) fileStat {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		st, err := statPath(path)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	for text, want := range map[string]bool{"1\n2\n": true, "": false, "3\n4\n": false} {
		w, err := NewWatcher(Options{NoInotify: true, Blocks: []Block{{Name: "b", Paths: []string{log}, LineBytesMax: 1000}}})
		if err != nil {
			t.Fatal(err)
		}
		w.realDirs = map[string]string{}
		st := write(log, "")
		f := w.newFile(0, log)
		w.enter(f, found{candidate{path: log}, key{0, st.dev, st.ino}, st})
		f.SetID(1)
		w.siblingsIn(dir)
		copied := sibling{log + ".1", write(log+".1", "1\n2\n")}
		write(log, text)
		if got := w.copied(copied, blockPath{0, log}, []string{log}); got != want {
			t.Errorf("with %q in the log: a copy of it: %v", text, got)
		}
		if err := os.Remove(log + ".1"); err != nil {
			t.Fatal(err)
		}
	}
}

// A copy is no unseen generation while a reader has taken what is in it from a log that was truncated since, and does not know that yet.
func TestCutSinceListed(t *testing.T) {
	log := filepath.Join(t.TempDir(), "app.log")
	w, err := NewWatcher(Options{NoInotify: true, Blocks: []Block{{Name: "b", Paths: []string{log}, LineBytesMax: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	w.realDirs = map[string]string{}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(log, "1\n2\n")
	st, err := statPath(log)
	if err != nil || st.born == 0 {
		t.Skip("the file system does not tell when files were made")
	}
	f := w.newFile(0, log)
	w.enter(f, found{candidate{path: log}, key{0, st.dev, st.ino}, st})
	f.SetID(1)
	if f.fd, err = w.openRead(log); err != nil {
		t.Fatal(err)
	}
	defer closeFD(f.fd)
	f.src.out, f.src.cutAt = true, st.born+int64(time.Hour) // what is in it is younger than the copy
	f.takenTo.Store(st.size)
	write(log+".1", "1\n2\n")
	write(log, "")
	at := blockPath{0, log}
	if list := w.findUnseen(at, st.born); len(list) > 0 || !w.lookAgain[kinOf(at)] {
		t.Errorf("%d generations, to be looked at again: %v", len(list), w.lookAgain[kinOf(at)])
	}
	f.takenTo.Store(0)
	if list := w.findUnseen(at, st.born); len(list) != 1 {
		t.Errorf("%d generations when nothing had been taken", len(list))
	}
}

// A compressed copy that nobody has looked into yet is told by its log; a file of another name, or beside a log that was never read, by nothing.
func TestExplainsCopyBeforeItIsLookedInto(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `block paths=app.log`, `lines app.log 1 3`, `poll`, `mv app.log app.log.1`, `lines app.log 4 4`, `poll`, `pack app.log.1 app.log.1.gz`)
	for name, want := range map[string]string{"app.log.1.gz": "app.log", "app.log.lock": "", "other.log.1.gz": "", "app.log": ""} {
		if want != "" {
			want = below(m.dir, want)[0]
		}
		if b := m.w.explain(below(m.dir, name)[0]).Blocks[0]; b.Beside != want {
			t.Errorf("%s: beside %q", name, b.Beside)
		}
	}
}
