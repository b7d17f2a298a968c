package tail

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTruncatedCrash truncates a file of which some was read, kills the watcher when it has found that and read both the rest, from the
// copy, and what is new, and starts another one from each number of commits that may be durable by then: of those before the look
// for the copy, between that and the first commit of its rest, and so on. Nothing is lost, comes twice or in another order.
func TestTruncatedCrash(t *testing.T) {
	for _, c := range []cutCase{
		{name: "narrow", paths: "app.log"},
		{name: "wide", paths: "app.log*"},
		{name: "packed", paths: "app.log", packed: true},
		{name: "packed-wide", paths: "app.log*", packed: true},
		{name: "again", paths: "app.log", again: true},
		{name: "again-wide", paths: "app.log*", again: true},
		{name: "moved", paths: "app.log", moved: true},
		{name: "unread", paths: "app.log", unread: true},
		{name: "unread-wide", paths: "app.log*", unread: true},
		{name: "down", paths: "app.log", down: true},
		{name: "down-unread", paths: "app.log", down: true, unread: true},
		{name: "down-wide", paths: "app.log*", down: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for c.rounds = range 3 {
				if c.unread && !c.down && c.rounds == 0 {
					continue // what nobody saw, of a file of which nothing is known, leaves no trace
				}
				commits := c.run(t, 0)
				if commits < 4 {
					t.Fatalf("only %d commits: the test does not cut where files are read", commits)
				}
				for durable := 1; durable <= commits; durable++ {
					c.run(t, durable)
				}
			}
		})
	}
}

// TestTruncatedCrashAtOnce kills the watcher when the reader has found a file truncated, and nobody has looked for the copy yet. What the
// spool holds still leads to it, and tells how much of it was read.
func TestTruncatedCrashAtOnce(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `block paths=app.log`, `hold on`, `lines app.log 1 3`, `poll`, `lines app.log 4 4`, `cp app.log app.log.1`, `truncate app.log 0`)
	m.turn()
	m.out.Reset()
	stepAll(t, m, `restart`, `hold off`, `lines app.log 5 5`, `poll`, `restart`, `poll`)
	want := "app.log 0000-0009 \"00000005\"\napp.log 0027-0036 \"00000004\"\n"
	if got := strings.ReplaceAll(m.out.String(), "--\n", ""); !strings.Contains(got, want) || strings.Contains(got, "0000003") {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// cutCase is what befalls a file beside the crash.
type cutCase struct {
	name, paths string
	rounds      int  // of the watcher or the reader between the last lines and the cut
	packed      bool // the copy is compressed while the watcher is dead
	again       bool // the file is copied and truncated once more meanwhile
	moved       bool // the copy gets the next number meanwhile
	unread      bool // nothing of the file was durable when it was truncated
	down        bool // it was truncated while no watcher ran, but copied before
}

// run returns the number of commits since the cut.
func (c cutCase) run(t *testing.T, durable int) (commits int) {
	x := &chained{machine: newMachine(t, false), rng: rand.New(rand.NewPCG(1, 1)), steps: map[string]int{}, still: true, keeps: 1}
	x.opts.Logger = slog.New(slog.NewTextHandler(notes{x}, nil))
	x.onLine = func(f *File, l Line) { x.lines = append(x.lines, string(l.Bytes[:5])) }
	x.opts.Blocks = []Block{{Name: "b", Paths: below(x.dir, c.paths), LineBytesMax: 1000}}
	var want []string
	path := x.dir + "/app.log"
	do := func(steps ...string) { t.Helper(); stepAll(t, x.machine, steps...) }
	write := func(lines int) {
		for range lines {
			line := fmt.Sprintf("%05d", len(want))
			x.must(appendTo(path, line+strings.Repeat(".", 990)+"\n"))
			want = append(want, line)
		}
	}
	x.must(os.WriteFile(path, nil, 0o644))
	x.rounds(1 << 30)
	if !c.unread {
		write(6)
		x.rounds(1 << 30)
	}
	x.durable = len(x.events)
	write(12)
	x.rounds(c.rounds)
	do("tick")
	began := x.durable
	do("cp app.log app.log.1")
	if c.down {
		x.rounds(c.rounds)
		x.crash()
	}
	do("truncate app.log 0")
	write(9)
	x.rounds(1 << 30)
	commits = len(x.events) - began
	x.durable = min(began+durable, len(x.events))
	x.crash()
	if c.moved || c.again {
		do("mv app.log.1 app.log.2")
	}
	if c.packed {
		do("gzip app.log.1")
	}
	if c.again {
		write(3)
		do("tick", "cp app.log app.log.1", "truncate app.log 0")
		write(3)
	}
	x.rounds(1 << 30)
	var got []string
	for _, e := range x.events {
		got = append(got, e.lines...)
	}
	x.drop()
	if !slices.Equal(got, want) {
		t.Errorf("cut after %d rounds, crash with %d of %d commits durable: got %q\nwant %q\n%s", c.rounds, durable, commits, got, want, strings.Join(x.did, "\n"))
	}
	return commits
}

// rounds has the watcher and the reader take turns, at most so many, until nothing comes any more.
func (x *chained) rounds(most int) (n int) {
	for quiet := 0; quiet < 4 && n < most; n++ {
		before := len(x.events)
		if n%2 == 0 {
			x.pass()
		} else {
			x.read()
		}
		if quiet++; len(x.events) > before {
			quiet = 0
		}
	}
	return n
}

// TestAskedWithoutCredit has a reader ask about a log while scans must wait for credit: its directory, which may be large and change all the
// time, is not listed for that before the next scan.
func TestAskedWithoutCredit(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `block paths=app.log`, `write app.log ""`, `poll`)
	w := m.w
	f := w.byPath[below(m.dir, "app.log")[0]]
	for _, credit := range []time.Duration{-time.Hour, scanCredit} {
		w.credit, w.creditedAt, w.allTook = credit, w.now(), time.Millisecond
		w.lookAnew()
		f.ask(true)
		w.settleTruncated()
		if isListed, waits := len(w.siblings) > 0, len(w.truncated) > 0; isListed != (credit > 0) || waits == isListed {
			t.Errorf("with a credit of %v: listed %v, waits for the next scan %v", credit, isListed, waits)
		}
	}
}

// TestTurnLooksForNothing has a file wait for its turn only: what was made beside it before that is asked for when the turn has come.
func TestTurnLooksForNothing(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `lines a.log 1 3`, `look`)
	m.take()
	f := m.held[0]
	f.aloneAt = 1
	f.ask(false)
	m.w.settleTruncated()
	if f.behind.Load() || f.aloneAt != 1 {
		t.Errorf("held back: %v, looked for what is beside it at %d", f.behind.Load(), f.aloneAt)
	}
}

// TestCopiesWithinATick truncates a log twice within a tick of the file system's clock behind a start: the first copy is compressed when the
// pattern finds the second, and a third is about to be written.
func TestCopiesWithinATick(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `block paths=app.log*`, `unsorted`, `lines app.log 1 2`, `poll`, `tick`, `cp app.log app.log-20261130-001`, `truncate app.log 0`, `tick`, `poll`, `restart`, `poll`)
	m.w.inPlace(blockPath{0, m.dir + "/app.log"}).src.cutAt = time.Now().Add(time.Second).UnixNano() // the clock is ahead of the file system's
	m.out.Reset()
	got := stepAll(t, m, `lines app.log 3 4`, `cp app.log app.log-20261130-002`, `truncate app.log 0`, `lines app.log 5 6`, `cp app.log app.log-20261130-003`, `truncate app.log 0`,
		`gzip app.log-20261130-002`, `lines app.log 7 8`, `write app.log-20261130-004 ""`, `look`, `poll`, `append app.log-20261130-004 "00000007\n00000008\n"`, `truncate app.log 0`, `poll`, `poll`)
	want := `app.log 0000-0009 "00000003"
app.log 0009-0018 "00000004"
app.log-20261130-003 0000-0009 "00000005"
app.log-20261130-003 0009-0018 "00000006"
app.log 0000-0009 "00000007"
app.log 0009-0018 "00000008"
--
truncated app.log
--
--
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
