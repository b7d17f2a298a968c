package e2e

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"shipper/internal/kafkatest"
)

// Cases from the field about finding and reading files, all under one agent: each has a directory, a source and a topic. They go
// through the agent's life together, and all that a stage adds has arrived before the next one begins:
//
//	before   the first start
//	live     it runs
//	frozen   it is stopped in the middle, so that all happens between two looks
//	down     it was asked to stop, and starts again
//	after    it runs again
type fileCase struct {
	id, keys, paths                   string // keys: further lines of the source; paths: below its directory, *.log if empty
	before, live, frozen, down, after stage
}

type stage struct {
	do   func(d caseDir)
	adds [][]string // what arrives of it: each list in its order
}

// caseDir is where a case lives. A failure of the file system ends the test.
type caseDir struct {
	t   *testing.T
	dir string
}

func (d caseDir) path(name string) string { return filepath.Join(d.dir, name) }

func (d caseDir) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d caseDir) add(name, text string)       { d.t.Helper(); appendTo(d.t, d.path(name), text) }
func (d caseDir) mv(from, to string)          { d.t.Helper(); d.must(os.Rename(d.path(from), d.path(to))) }
func (d caseDir) rm(name string)              { d.t.Helper(); d.must(os.RemoveAll(d.path(name))) }
func (d caseDir) ln(from, to string)          { d.t.Helper(); d.must(os.Link(d.path(from), d.path(to))) }
func (d caseDir) mkdir(name string)           { d.t.Helper(); d.must(os.MkdirAll(d.path(name), 0o755)) }
func (d caseDir) cut(name string, size int64) { d.t.Helper(); d.must(os.Truncate(d.path(name), size)) }

func (d caseDir) cp(from, to string) {
	d.t.Helper()
	data, err := os.ReadFile(d.path(from))
	d.must(err)
	d.must(os.WriteFile(d.path(to), data, 0o644))
}

// link makes or moves a symlink at once.
func (d caseDir) link(to, name string) {
	d.t.Helper()
	d.must(os.Symlink(to, d.path(name+".new")))
	d.mv(name+".new", name)
}

// age sets the time of the last write back.
func (d caseDir) age(name string, by time.Duration) {
	d.t.Helper()
	at := time.Now().Add(-by)
	d.must(os.Chtimes(d.path(name), at, at))
}

func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }

func one(list ...string) [][]string { return [][]string{list} }

// TestTailMatrix runs all of them; -run TestTailMatrix/C038 shows one.
func TestTailMatrix(t *testing.T) {
	cases := slices.Concat(discoveryCases(), rotationCases(), encodingCases())
	var topics []string
	for _, c := range cases {
		topics = append(topics, c.id)
	}
	b := embedded(t, 1, kfake.SeedTopics(1, topics...))
	root := t.TempDir()
	var sources strings.Builder
	for _, c := range cases {
		if err := os.Mkdir(filepath.Join(root, c.id), 0o755); err != nil {
			t.Fatal(err)
		}
		paths := c.paths
		if paths == "" {
			paths = "*.log"
		}
		fmt.Fprintf(&sources, "  - name: %s\n    paths: [%q]\n    topic: %s\n    lanes: 1\n%s", c.id, filepath.Join(root, c.id, paths), c.id, cmp.Or(c.keys, "    idle_flush: 1h\n"))
	}
	config := b.config(filepath.Join(root, "spool"), nil) + sources.String()
	agent := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: config})
	b.read.Within = deliverMax
	want := make([][][]string, len(cases))
	run := func(of func(*fileCase) *stage) (wait func()) {
		for i := range cases {
			s := of(&cases[i])
			if s.do != nil {
				s.do(caseDir{t, filepath.Join(root, cases[i].id)})
			}
			want[i] = append(want[i], s.adds...)
		}
		return func() {
			for i := range cases {
				kafkatest.AwaitRecords(t, b.bootstrap, cases[i].id, int64(len(slices.Concat(want[i]...))), b.read)
			}
		}
	}
	wait := run(func(c *fileCase) *stage { return &c.before })
	agent.Start()
	wait()
	run(func(c *fileCase) *stage { return &c.live })()
	agent.Signal(syscall.SIGSTOP)
	wait = run(func(c *fileCase) *stage { return &c.frozen })
	agent.Signal(syscall.SIGCONT)
	wait()
	if code := agent.Stop(stopMax); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
	wait = run(func(c *fileCase) *stage { return &c.down })
	agent.Start()
	wait()
	run(func(c *fileCase) *stage { return &c.after })()
	time.Sleep(1500 * time.Millisecond) // for what must not come: a scan and a linger
	if code := agent.Stop(stopMax); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
	for i := range cases {
		t.Run(cases[i].id, func(t *testing.T) {
			got, _ := kafkatest.ReadTopic(t, b.bootstrap, cases[i].id, b.read)
			checkCase(t, got, want[i])
		})
	}
}

// checkCase wants each record of want and no other, each list in its order.
func checkCase(t *testing.T, records []kafkatest.Record, want [][]string) {
	t.Helper()
	var got []string
	for _, r := range records {
		got = append(got, string(r.Value))
	}
	if a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(slices.Concat(want...))); !slices.Equal(a, b) {
		t.Fatalf("got %.2000q\nwant %.2000q", got, want)
	}
	for _, list := range want {
		at := 0
		for _, v := range list {
			i := slices.Index(got[at:], v)
			if i < 0 {
				t.Fatalf("%.80q is out of order: got %.2000q\nwant %.2000q", v, got, list)
			}
			at += i + 1
		}
	}
}

func discoveryCases() []fileCase {
	banner := strings.Repeat("the same banner ", 256)
	names := []string{"with space.log", "tab\tx.log", "new\nline.log", "br[1].log", "star*.log", "q'\".log", "co,mma;.log", "-dash.log", "{a,b}.log", "uni-日本-🙂.log",
		"e\u0301.log", "\u00e9.log", "\xff.log", strings.Repeat("x", 251) + ".log"}
	toAll := func(n int) stage {
		var adds [][]string
		for i := range names {
			adds = append(adds, []string{fmt.Sprintf("file %d line %d", i, n)})
		}
		return stage{func(d caseDir) {
			for i, name := range names {
				d.add(name, lines(adds[i]...))
			}
		}, adds}
	}
	return []fileCase{{
		id: "C003_small_files",
		before: stage{func(d caseDir) {
			d.add("empty.log", "")
			d.add("newline.log", "\n")
			d.add("h1.log", "hello world\n")
			d.add("h2.log", "hello world\n")
		}, [][]string{{""}, {"hello world"}, {"hello world"}}},
		down: stage{func(d caseDir) {
			for _, name := range []string{"empty", "newline", "h1", "h2"} {
				d.add(name+".log", name+"\n")
			}
		}, [][]string{{"empty"}, {"newline"}, {"h1"}, {"h2"}}},
	}, {
		id: "C004_identical_banner", paths: "*.log*",
		before: stage{func(d caseDir) { d.add("a.log", lines(banner, "a1")); d.add("b.log", lines(banner, "b1")) }, [][]string{{banner, "a1"}, {banner, "b1"}}},
		live: stage{func(d caseDir) {
			d.mv("a.log", "a.log.1")
			d.add("a.log.1", "a2\n")
			d.add("a.log", lines(banner, "c1"))
		}, [][]string{{"a2"}, {banner, "c1"}}},
		down: stage{func(d caseDir) { d.add("a.log", "c2\n"); d.add("b.log", "b2\n"); d.add("a.log.1", "a3\n") }, [][]string{{"c2"}, {"b2"}, {"a3"}}},
	}, {
		id: "C006_odd_files",
		before: stage{func(d caseDir) {
			d.must(syscall.Mkfifo(d.path("p.log"), 0o644))
			d.must(os.Symlink("/dev/zero", d.path("d.log")))
			d.mkdir("x.log")
			d.add("n.log", lines("n1", "n2"))
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path("s.log"), Net: "unix"})
			d.must(err)
			d.t.Cleanup(func() { l.Close() })
		}, one("n1", "n2")},
		live: stage{func(d caseDir) { d.add("m.log", "m1\n") }, one("m1")},
	}, {
		id: "C007_names", before: toAll(1), live: toAll(2), down: toAll(3),
	}, {
		id: "C008_directory_again", paths: "sub/*.log",
		before: stage{func(d caseDir) { d.mkdir("sub"); d.add("sub/a.log", "1\n") }, one("1")},
		live:   stage{func(d caseDir) { d.rm("sub"); d.mkdir("sub"); d.add("sub/a.log", "2\n") }, one("2")},
		frozen: stage{func(d caseDir) { d.rm("sub"); d.mkdir("sub"); d.add("sub/a.log", "3\n") }, one("3")},
		down:   stage{func(d caseDir) { d.rm("sub"); d.mkdir("sub"); d.add("sub/a.log", "4\n") }, one("4")},
	}, {
		id:     "C010_hard_links",
		before: stage{func(d caseDir) { d.add("x.log", "1\n"); d.ln("x.log", "y.log") }, one("1")},
		live:   stage{func(d caseDir) { d.add("y.log", "2\n"); d.add("x.log", "3\n") }, one("2", "3")},
		frozen: stage{func(d caseDir) { d.rm("x.log"); d.add("y.log", "4\n") }, one("4")},
		down:   stage{func(d caseDir) { d.add("y.log", "5\n") }, one("5")},
	}, {
		id: "C012_symlink_swap", paths: "current/log/*.log",
		before: stage{func(d caseDir) {
			d.mkdir("v1/log")
			d.mkdir("v2/log")
			d.add("v1/log/e.log", "old 1\n")
			d.link("v1", "current")
		}, one("old 1")},
		live: stage{func(d caseDir) {
			d.add("v2/log/e.log", "new 1\n")
			d.link("v2", "current")
			d.add("v1/log/e.log", "old 2\n")
		}, [][]string{{"new 1"}, {"old 2"}}},
		frozen: stage{func(d caseDir) { d.link("v1", "current"); d.add("v1/log/e.log", "old 3\n") }, one("old 3")},
		down:   stage{func(d caseDir) { d.add("v1/log/e.log", "old 4\n") }, one("old 4")},
	}, {
		id:     "C015_no_events", // for the directory: the writer has another name for the file, in a directory that nobody watches
		before: stage{func(d caseDir) { d.mkdir("beside"); d.add("w.log", "1\n"); d.ln("w.log", "beside/w") }, one("1")},
		live:   stage{func(d caseDir) { d.add("beside/w", "2\n") }, one("2")},
		after:  stage{func(d caseDir) { d.add("beside/w", "3\n") }, one("3")},
	}, {
		id:     "C019_old_times",
		live:   stage{func(d caseDir) { d.add("a.log", "1\n"); d.age("a.log", 72*time.Hour) }, one("1")},
		frozen: stage{func(d caseDir) { d.add("a.log", "2\n"); d.age("a.log", 72*time.Hour) }, one("2")},
	}, {
		id: "C019_ignore_older", keys: "    ignore_older: 1h\n",
		before: stage{func(d caseDir) { d.add("a.log", "passed over\n"); d.age("a.log", 72*time.Hour); d.add("b.log", "b1\n") }, one("b1")},
		live:   stage{func(d caseDir) { d.add("a.log", "a1\n") }, one("a1")},
		down:   stage{func(d caseDir) { d.add("a.log", "a2\n"); d.age("a.log", 72*time.Hour) }, one("a2")},
	}}
}
