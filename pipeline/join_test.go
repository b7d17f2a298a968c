package pipeline

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"shipper/pipeline/record"
)

// packAs compresses a file as rotations do: into a file beside it, with the time of the last write kept.
func packAs(t *testing.T, path, kind string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	must(err)
	st, err := os.Stat(path)
	must(err)
	f, err := os.Create(path + ".tmp")
	must(err)
	var z io.WriteCloser = gzip.NewWriter(f)
	if kind == ".zst" {
		z, err = zstd.NewWriter(f)
		must(err)
	}
	_, err = z.Write(data)
	must(err)
	must(z.Close())
	must(f.Close())
	must(os.Chtimes(path+".tmp", st.ModTime(), st.ModTime()))
	must(os.Rename(path+".tmp", path+kind))
	must(os.Remove(path))
}

func cri(tag, text string) string { return "2026-11-29T23:28:47.1Z stdout " + tag + " " + text + "\n" }

// Each generation ends inside a message, which ends in the next one. The first one is known when the agent stops; what each is when it
// comes back is in the name of the case, the oldest first.
func TestJoinKinds(t *testing.T) {
	for _, kinds := range []string{
		"plain plain", "gz plain", "zst plain", "plain plain plain", "gz gz plain", "gz zst gz plain plain", "plain gz plain", "gz plain plain",
	} {
		for _, pattern := range []string{"a.log", "a.log*"} {
			t.Run(strings.ReplaceAll(kinds, " ", "-")+"/"+pattern, func(t *testing.T) {
				t.Parallel()
				joinKinds(t, strings.Fields(kinds), pattern)
			})
		}
	}
}

func joinKinds(t *testing.T, kinds []string, pattern string) {
	x := newShaped(t, record.Config{Container: record.CRI, Timeout: time.Minute})
	x.pattern = pattern
	path, want := filepath.Join(x.dir, "a.log"), []string{"zero"}
	deadline := time.Now().Add(8 * time.Second)
	until := func(n int) func(r *reader) (time.Time, bool) {
		return func(r *reader) (time.Time, bool) {
			if time.Now().After(deadline) {
				t.Fatalf("got %q", x.got())
			}
			r.seal(r.open)
			return time.Now(), len(x.got()) < n
		}
	}
	appendTo(t, path, cri("F", "zero")+cri("P", "0 "))
	x.life(64<<20, blockBytesMin, until(1))
	last := len(kinds) - 1
	for i := range last {
		time.Sleep(12 * time.Millisecond) // the clock of the file system moves
		for k := range i + 1 {            // the oldest first
			from := path
			if k < i {
				from = fmt.Sprintf("%s.%d", path, i-k)
			}
			if err := os.Rename(from, fmt.Sprintf("%s.%d", path, i-k+1)); err != nil {
				t.Fatal(err)
			}
		}
		tail := cri("P", fmt.Sprint(i+1, " "))
		if i+1 == last {
			tail = cri("F", "last")
		}
		appendTo(t, path, cri("F", fmt.Sprintf("end %d", i))+cri("F", fmt.Sprintf("inside %d", i+1))+tail)
		want = append(want, fmt.Sprintf("%d end %d", i, i), fmt.Sprintf("inside %d", i+1))
	}
	want = append(want, "last")
	for i, kind := range kinds[:last] {
		if kind != "plain" {
			packAs(t, fmt.Sprintf("%s.%d", path, last-i), "."+kind)
		}
	}
	x.life(64<<20, blockBytesMin, until(len(want)))
	if got := x.got(); !slices.Equal(got, want) {
		t.Fatalf("\ngot  %q\nwant %q", got, want)
	}
}

// logOf is a log and the agent's lives. What is written is in CRI format.
type logOf struct {
	*shaped
	t    *testing.T
	path string
	end  time.Time
}

func newLog(t *testing.T, c record.Config, pattern string) *logOf {
	x := newShaped(t, c)
	x.pattern = pattern
	return &logOf{x, t, filepath.Join(x.dir, "a.log"), time.Now().Add(20 * time.Second)}
}

// read lets the agent read until these are the records.
func (l *logOf) read(want ...string) {
	l.t.Helper()
	l.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		r.seal(r.open)
		return time.Now(), len(l.got()) < len(want) && time.Now().Before(l.end)
	})
	if got := l.got(); !slices.Equal(got, want) {
		l.t.Fatalf("\ngot  %q\nwant %q", got, want)
	}
}

func (l *logOf) rename(from, to string) {
	l.t.Helper()
	time.Sleep(12 * time.Millisecond) // the clock of the file system moves
	if err := os.Rename(from, to); err != nil {
		l.t.Fatal(err)
	}
}

// The generation in between is lost: what it held is in none of its neighbours' messages.
func TestNoJoinOverAHole(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{Container: record.CRI, Timeout: 200 * time.Millisecond}, "a.log")
	appendTo(t, l.path, cri("F", "zero"))
	l.read("zero")
	appendTo(t, l.path, cri("P", "older "))
	l.rename(l.path, l.path+".1")
	appendTo(t, l.path, "")
	start := time.Now()
	l.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) { // it stops when it knows both
		r.seal(r.open)
		l.mu.Lock()
		defer l.mu.Unlock()
		return start, len(l.cursors) < 2 && time.Now().Before(l.end)
	})
	appendTo(t, l.path, cri("F", "lost"))
	l.rename(l.path, filepath.Join(t.TempDir(), "elsewhere"))
	appendTo(t, l.path, cri("F", "younger"))
	l.read("zero", "older ", "younger")
}

// A container is started anew, and its log's link leads to another file: the message that it did not end is not gone on with in that.
func TestNoJoinOfTwoRuns(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{Container: record.CRI, Timeout: 200 * time.Millisecond}, "a.log")
	pod := t.TempDir()
	link := func(to string) {
		if err := os.Symlink(filepath.Join(pod, to), l.path+"~"); err != nil {
			t.Fatal(err)
		}
		l.rename(l.path+"~", l.path)
	}
	link("0.log")
	appendTo(t, l.path, cri("F", "zero")+cri("P", "older "))
	l.read("zero")
	link("1.log")
	appendTo(t, l.path, cri("F", "younger"))
	l.read("zero", "older ", "younger")
}

// Files that are only numbered are not generations: a message of one does not end in the other.
func TestNoJoinOfNumberedFiles(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{Container: record.CRI, Timeout: 200 * time.Millisecond}, "worker-*")
	appendTo(t, filepath.Join(l.dir, "worker-1"), cri("F", "zero")+cri("P", "one "))
	l.read("zero")
	time.Sleep(12 * time.Millisecond) // the clock of the file system moves
	appendTo(t, filepath.Join(l.dir, "worker-2"), cri("F", "two"))
	l.read("zero", "one ", "two")
}

// Nothing before the place of a generation was read, only what is behind it: a record of the other stream. It was written in the tick of
// the clock in which it was made. What was handed out of it leads to its copy, when the agent died and its original is gone.
func TestJoinFindsCopyOfHeld(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{Container: record.CRI, Timeout: time.Minute}, "a.log")
	stderr := func(tag, text string) string { return strings.Replace(cri(tag, text), "stdout", "stderr", 1) }
	appendTo(t, l.path, cri("F", "zero")+stderr("P", "other "))
	l.read("zero")
	l.rename(l.path, l.path+".20260101-1")
	appendTo(t, l.path, cri("P", "one ")+stderr("F", "end"))
	l.read("zero", "other end")
	born := int64(0)
	for id, s := range l.cursors {
		if s.Cursor.Offset == 0 && s.Cursor.Part > 0 {
			born = s.Source.Born
		} else {
			delete(l.cursors, id) // as it is told when its copy was read to its end
		}
	}
	if err := os.Remove(l.path + ".20260101-1"); err != nil {
		t.Fatal(err)
	}
	if born == 0 {
		t.Skip("this file system does not tell when a file was made")
	}
	name := l.path + ".20260101-2"
	l.rename(l.path, name)
	packAs(t, name, ".gz")
	if err := os.Chtimes(name+".gz", time.Unix(0, born), time.Unix(0, born)); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l.path, cri("F", "two"))
	l.read("zero", "other end", "one two")
}

// A copy without an end ends its message: what is missing of it is not in the next file.
func TestNoJoinBehindATornCopy(t *testing.T) {
	t.Parallel()
	l := newLog(t, record.Config{Container: record.CRI, Timeout: 200 * time.Millisecond}, "a.log")
	appendTo(t, l.path, cri("F", "zero")+cri("P", "older "))
	l.read("zero")
	appendTo(t, l.path, cri("P", "more ")+cri("F", strings.Repeat("x", 100)))
	l.rename(l.path, l.path+".1")
	packAs(t, l.path+".1", ".gz")
	st, err := os.Stat(l.path + ".1.gz")
	if err == nil {
		err = os.Truncate(l.path+".1.gz", st.Size()-20)
	}
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, l.path, cri("F", "younger"))
	l.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		r.seal(r.open)
		return time.Now(), !slices.Contains(l.got(), "younger") && time.Now().Before(l.end)
	})
	if got := l.got(); !slices.Contains(got, "younger") || len(got) < 3 {
		t.Fatalf("got %q", got)
	}
}

// A message that is longer than a generation goes through all of it, and an event of many lines as well. stderr has its own.
func TestJoinOverWholeGenerations(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", ".gz"} {
		l := newLog(t, record.Config{Container: record.CRI, Multiline: record.Multiline{Start: "^start"}, Timeout: time.Minute}, "a.log")
		err := func(text string) string { return strings.Replace(cri("F", text), "stdout", "stderr", 1) }
		appendTo(t, l.path, cri("F", "start 0")+cri("F", "start 1")+err("start err"))
		l.read("start 0")
		for i, text := range []string{cri("P", "  a"), cri("P", "b") + err("  1"), cri("F", "c") + cri("F", "  d"), err("  2") + cri("F", "start 2") + err("start") + cri("F", "start 3")} {
			for k := range i + 1 {
				from := fmt.Sprint(l.path, ".", i-k, kind)
				if k == i {
					from = l.path
				}
				if to := fmt.Sprint(l.path, ".", i-k+1); k < i {
					l.rename(from, to+kind)
				} else if l.rename(from, to); kind != "" {
					packAs(t, to, kind)
				}
			}
			appendTo(t, l.path, text)
		}
		l.read("start 0", "start 1\n  abc\n  d", "start err\n  1\n  2", "start 2")
	}
}

// A kubelet rotates and compresses while messages are written in pieces, and lives end anywhere: each message once, whole, in order.
func TestJoinAcrossLives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := newLog(t, record.Config{Container: record.CRI, Timeout: time.Minute}, "a.log")
	want, open, n, rotated := []string{"first"}, map[string]int{}, 0, 0
	appendTo(t, l.path, cri("F", "first"))
	l.read("first")
	piece := func(stream string, last bool) {
		at, is := open[stream]
		if !is {
			at, want = len(want), append(want, "")
			open[stream] = at
		}
		text, tag := fmt.Sprintf("%d-%s ", n, strings.Repeat("x", rng.IntN(3000))), "P"
		if n++; last {
			delete(open, stream)
			tag = "F"
		}
		want[at] += text
		appendTo(t, l.path, strings.Replace(cri(tag, text), "stdout", stream, 1))
	}
	name := func(i int) string { return fmt.Sprintf("%s.20260101-%06d", l.path, i) }
	write := func() {
		for range 1 + rng.IntN(12) {
			piece([]string{"stdout", "stderr"}[rng.IntN(2)], rng.IntN(6) == 0)
		}
		if rng.IntN(2) == 0 {
			return
		}
		if rotated++; rotated > 1 {
			packAs(t, name(rotated-1), ".gz")
		}
		l.rename(l.path, name(rotated))
		appendTo(t, l.path, "")
	}
	for range 12 {
		steps := rng.IntN(60)
		l.life(64<<20, 5000+rng.IntN(60_000), func(r *reader) (time.Time, bool) {
			if rng.IntN(6) == 0 {
				write()
			}
			if rng.IntN(4) == 0 {
				r.seal(r.open)
			}
			steps--
			return time.Now(), steps > 0
		})
		for range rng.IntN(4) {
			write()
		}
	}
	for stream := range open {
		piece(stream, true)
	}
	pieces := func(records []string) (list []string) {
		for _, r := range records {
			for _, piece := range strings.Fields(r) {
				number, _, _ := strings.Cut(piece, "-")
				list = append(list, number)
			}
		}
		slices.Sort(list)
		return list
	}
	all := pieces(want)
	l.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		r.seal(r.open)
		return time.Now(), len(pieces(l.got())) < len(all) && time.Now().Before(l.end)
	})
	got := l.got()
	if !slices.Equal(pieces(got), all) {
		t.Fatalf("%d pieces, %d were written", len(pieces(got)), len(all))
	}
	t.Logf("%d messages, %d rotations", len(want), rotated)
	if len(got) != len(want) {
		t.Errorf("%d records, %d messages were written", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("record %d has the pieces %v, want %v", i, pieces(got[i:i+1]), pieces(want[i:i+1]))
		}
	}
}
