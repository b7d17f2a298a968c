package tail

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReleaseCrash moves current -> v1 to v2 while no watcher runs, and then kills the next one at each step between finding the old
// release's file and having read both to their ends, with each number of its commits durable. While it is dead current may be moved again.
func TestReleaseCrash(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		steps, most := releases(t, again, 1<<30, 0)
		if most < 7 {
			t.Fatalf("only %d commits: the test does not cut where files are read", most)
		}
		for crashAt := range steps {
			_, commits := releases(t, again, crashAt, 0)
			for durable := 1; durable <= commits; durable++ {
				releases(t, again, crashAt, durable)
			}
		}
	}
}

// releases returns after how many steps nothing came any more, and the number of commits by then.
func releases(t *testing.T, again bool, crashAt, durable int) (steps, commits int) {
	x := &chained{machine: newMachine(t, false), rng: rand.New(rand.NewPCG(1, 1)), steps: map[string]int{}, still: true, keeps: 1}
	x.opts.Logger = slog.New(slog.NewTextHandler(notes{x}, nil))
	x.onLine = func(f *File, l Line) { x.lines = append(x.lines, string(l.Bytes[:8])) }
	x.opts.Blocks = []Block{{Name: "b", Paths: []string{x.dir + "/current/log/*.log"}, LineBytesMax: 1000}}
	var want []string
	write := func(release string, lines int) {
		x.must(os.MkdirAll(x.dir+"/"+release+"/log", 0o755))
		for range lines {
			line := fmt.Sprintf("%s %05d", release, len(want))
			x.must(appendTo(x.dir+"/"+release+"/log/e.log", line+strings.Repeat(".", 990)+"\n"))
			want = append(want, line[:8])
		}
	}
	link := func(release string) {
		x.must(x.command("symlink", []string{release, "current"}, func(i int) string { return x.dir + "/" + []string{release, "current"}[i] }))
	}
	write("v1", 6)
	link("v1")
	x.rounds(1 << 30)
	began := len(x.events)
	x.durable = began
	x.crash()
	write("v1", 12)
	write("v2", 12)
	link("v2")
	steps = x.rounds(crashAt)
	commits = len(x.events) - began
	x.durable = min(began+durable, len(x.events))
	x.crash()
	newSeen := x.known[2].ID == 2
	if again {
		write("v2", 6)
		write("v3", 3)
		link("v3")
	}
	x.rounds(1 << 30)
	var got []string
	for _, e := range x.events {
		got = append(got, e.lines...)
	}
	x.drop()
	for _, release := range []string{"v1", "v2", "v3"} {
		if release == "v2" && again && !newSeen {
			continue // a release that nobody ever saw is looked for by no name
		}
		of := func(list []string) []string {
			return slices.DeleteFunc(slices.Clone(list), func(l string) bool { return !strings.HasPrefix(l, release) })
		}
		if a, b := of(got), of(want); !slices.Equal(a, b) {
			t.Fatalf("moved again %v, crash after %d steps with %d commits durable: got %q\nwant %q\n%s", again, crashAt, durable, a, b, strings.Join(x.did, "\n"))
		}
	}
	t.Log(strings.Join(x.did, "\n"))
	return steps, commits
}
