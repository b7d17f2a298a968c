package tail

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
)

var (
	copiesSeed  = flag.Uint64("copies.seed", 0, "replay this seed only")
	copiesSeeds = flag.Int("copies.seeds", 6, "random seeds to try")
	copiesWide  = flag.Bool("copies.wide", false, "also patterns that find the copies")
	copiesSteps = flag.Int("copies.steps", 120, "steps per seed")
)

// TestCopytruncate copies and truncates a log at random, and compresses the copies, while the watcher looks, reads, sleeps for whole
// rotations, is stopped or killed. Nothing is written between a copy and its truncation, so every line must come once, in order. The seed is
// in the subtest's name: -run 'TestCopytruncate/seed-N$' -copies.seed N.
func TestCopytruncate(t *testing.T) {
	seeds := []uint64{*copiesSeed}
	if *copiesSeed == 0 {
		seeds = seeds[:0]
		for range *copiesSeeds {
			seeds = append(seeds, rand.Uint64N(1e9)+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			copytruncate(t, seed)
		})
	}
}

// copier is a log and the program that copies and truncates it.
type copier struct {
	*chained
	path   string
	wide   bool // a pattern finds the copies
	dated  bool // app.log-20261130-003 and not app.log.1
	packs  bool // copies are compressed
	delay  bool // one rotation later
	keeps  bool // cp -p
	calm   bool // the clock of the file system moves between two steps
	n, gen int
	copies []string // not compressed yet, oldest first
	doing  []func() // what is left of a rotation
	places map[*File]place
	holey  int // of these, so many until it is truncated
}

func copytruncate(t *testing.T, seed uint64) {
	x := &chained{machine: newMachine(t, false), rng: rand.New(rand.NewPCG(seed, 3)), steps: map[string]int{}, still: true}
	x.keeps = 1 + x.rng.IntN(10)
	x.opts.Logger = slog.New(slog.NewTextHandler(notes{x}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	x.onLine = func(_ *File, l Line) { x.lines = append(x.lines, string(l.Bytes)) }
	coin := func() bool { return x.rng.IntN(2) == 0 }
	c := &copier{chained: x, places: map[*File]place{}, path: x.dir + "/app.log", wide: coin() && *copiesWide, dated: coin(), packs: coin(), delay: coin(), keeps: x.rng.IntN(4) == 0, calm: coin()}
	x.logs = []*container{{path: c.path, link: c.path}}
	pattern := "/app.log"
	if c.wide {
		pattern = "/app.log*"
	}
	x.opts.Blocks = []Block{{Name: "b", Paths: []string{x.dir + pattern}, LineBytesMax: 1000}}
	x.note("log wide %v dated %v packs %v delay %v keeps %v calm %v, reader keeps %d", c.wide, c.dated, c.packs, c.delay, c.keeps, c.calm, x.keeps)
	x.must(os.WriteFile(c.path, nil, 0o644))
	for since := x.fileClock(); x.fileClock() <= since+clockTick; { // no log is copied that soon
		x.tick()
	}
	c.pass() // of what nobody ever knew nothing can be found
	c.write()
	c.settle()
	c.rotate()
	c.finish(0)
	c.settle()
	x.durable = len(x.events)
	for range *copiesSteps {
		c.random()
	}
	for i := range 60 + 4*c.gen {
		c.finish(0)
		x.ahead += time.Second
		c.pass()
		c.read()
		if i == 30 {
			x.ahead += 6 * time.Minute
		}
	}
	x.logs[0].written = c.n
	x.compare()
	x.drop()
	t.Logf("seed %d: %s, steps: %v", seed, x.did[0], x.steps)
}

// settle has the watcher and the reader take turns until all is read.
func (c *copier) settle() {
	for range 8 {
		c.pass()
		c.read()
	}
}

func (c *copier) random() {
	x := c.chained
	switch n := x.rng.IntN(100); {
	case n < 50:
		c.program(n)
	case n < 75:
		x.ahead += time.Duration(x.rng.IntN(1500)) * time.Millisecond
		c.pass()
	case n < 90:
		c.read()
	case n < 95:
		x.durable += x.rng.IntN(len(x.events) - x.durable + 1)
	case n < 97:
		x.note("stop")
		x.durable = len(x.events)
		x.crash()
	default:
		x.crash()
	}
}

// program does what those that log and rotate do.
func (c *copier) program(n int) {
	if c.calm {
		c.tick()
	}
	switch {
	case n < 20:
		c.write()
	case n < 30:
		c.rotate()
		if c.rng.IntN(3) > 0 {
			c.finish(0)
		}
	default:
		c.finish(max(0, len(c.doing)-1))
	}
}

// finish takes steps until so many are left.
func (c *copier) finish(left int) {
	for len(c.doing) > left {
		do := c.doing[0]
		c.doing = c.doing[1:]
		do()
	}
}

func (c *copier) write() {
	if c.holey > 0 {
		c.finish(len(c.doing) - c.holey)
	}
	var b strings.Builder
	for range 1 + c.rng.IntN(4) {
		fmt.Fprintf(&b, "app.log %06d %s\n", c.n, strings.Repeat("x", c.rng.IntN(200)))
		c.n++
	}
	c.note("write to %d", c.n)
	c.must(appendTo(c.path, b.String()))
}

// rotate begins a rotation.
func (c *copier) rotate() {
	c.finish(0)
	if st, err := os.Stat(c.path); err != nil || st.Size() == 0 && c.rng.IntN(4) > 0 {
		return
	}
	c.gen++
	do := func(f func()) { c.doing = append(c.doing, f) }
	if c.packs && c.delay {
		for _, from := range c.copies {
			c.pack(from)
		}
		c.copies = nil
	}
	to := fmt.Sprintf("%s-20261130-%03d", c.path, c.gen)
	if !c.dated {
		to = c.path + ".1"
		do(func() { c.shift() })
	}
	do(func() {
		c.note("create %s, generation %d", to[len(c.path):], c.gen)
		c.must(os.WriteFile(to, nil, 0o644))
		c.copies = append(c.copies, to)
		c.holey = 2
	})
	do(func() {
		c.note("copy to %d", c.n)
		data, err := os.ReadFile(c.path)
		c.must(err)
		c.must(appendTo(to, string(data)))
		if c.keeps {
			c.must(keepingTimes(c.path, to, func() error { return nil }))
		}
		c.holey = 1
	})
	do(func() {
		c.note("truncate")
		c.must(os.Truncate(c.path, 0))
		c.holey = 0
		if c.packs && !c.delay {
			for _, from := range c.copies {
				c.pack(from)
			}
			c.copies = nil
		}
	})
}

func (c *copier) shift() {
	for n := c.gen; n >= 1; n-- {
		for _, suffix := range []string{"", ".gz"} {
			from, to := fmt.Sprintf("%s.%d%s", c.path, n, suffix), fmt.Sprintf("%s.%d%s", c.path, n+1, suffix)
			if os.Rename(from, to) == nil {
				if i := slices.Index(c.copies, from); i >= 0 {
					c.copies[i] = to
				}
			}
		}
	}
}

// pack compresses a copy as gzip does.
func (c *copier) pack(from string) {
	half := c.rng.IntN(2) == 0
	c.doing = append(c.doing, func() {
		c.note("pack %s", from[len(c.path):])
		data, err := os.ReadFile(from)
		c.must(err)
		st, err := os.Stat(from)
		c.must(err)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err = z.Write(data)
		c.must(err)
		c.must(z.Close())
		c.must(os.WriteFile(from+".gz", b.Bytes()[:b.Len()/2], 0o644))
		rest := []func(){
			func() { c.must(appendTo(from+".gz", string(b.Bytes()[b.Len()/2:]))) },
			func() { c.must(os.Chtimes(from+".gz", st.ModTime(), st.ModTime())) },
			func() { c.must(os.Remove(from)); c.note("packed %s", from[len(c.path):]) },
		}
		if half {
			c.doing = append(rest, c.doing...)
			return
		}
		for _, f := range rest {
			f()
		}
	})
}

// read is a round of the reader. Where a file is now that was truncated comes to the spool before the rest of what was in it.
func (c *copier) read() {
	c.takeOpened()
	for _, f := range c.held {
		if fp, cur := f.Place(); c.places[f] != (place{fp, cur}) {
			c.places[f] = place{fp, cur}
			c.took(f)
		}
	}
	c.chained.read()
}

// pass has the watcher look. Programs do not wait for that.
func (c *copier) pass() {
	x := c.chained
	if x.w == nil {
		x.start()
		x.w.handler = x
		x.w.keep.quiet = 50 * time.Millisecond
		now := x.w.now
		x.w.now = func() time.Time {
			if c.rng.IntN(40) == 0 && len(c.doing) > 0 {
				c.finish(len(c.doing) - 1)
			}
			return now()
		}
	}
	x.pass()
}
