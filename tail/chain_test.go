package tail

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
)

var (
	chainSeed  = flag.Uint64("chain.seed", 0, "replay this seed only")
	chainSeeds = flag.Int("chain.seeds", 4, "random seeds to try")
	chainSteps = flag.Int("chain.steps", 300, "steps per seed")
	chainTimes = flag.Bool("chain.times", true, "all copies keep the times of what they were made of; else half of them do not")
)

// TestChain rotates and compresses the logs of a few containers while the watcher is killed, asleep or slow, and looks at what a
// spool would hold in the end: every line of a path once, in the order of its generations. Every step of a program that
// compresses may fall between two looks, and a crash takes back what was not durable yet. The seed is in the subtest's
// name: -run 'TestChain/seed-N$' -chain.seed N; what falls into one tick of the file system's clock may be other steps then.
func TestChain(t *testing.T) {
	seeds := []uint64{*chainSeed}
	if *chainSeed == 0 {
		seeds = seeds[:0]
		for range *chainSeeds {
			seeds = append(seeds, rand.Uint64N(1e9)+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			chain(t, seed, nil)
		})
	}
}

// container writes one log and rotates it.
type container struct {
	path    string // of the live file
	link    string // what the pattern finds
	written int    // lines
	gen     int
	dated   bool     // app.log.20261130-003 and not app.log.1
	before  bool     // app.1.log
	keeps   bool     // its compressed copies have the times of what they were made of
	rotated []string // not compressed yet, oldest first; numbered ones are told by their place
	packing []func() // what is left to do of compressing one
}

// logged is what a spool holds of one turn.
type logged struct {
	known Known // after it
	gone  uint64
	lines []string
}

// chained is the machine of this test.
type chained struct {
	*machine
	rng     *rand.Rand
	logs    []*container
	events  []logged
	durable int // events
	lines   []string
	did     []string
	steps   map[string]int
	still   bool // nothing happens during a look
	keeps   int  // rounds for which the reader keeps a file at its end, on average
	hog     *hog // nil: nobody takes descriptors
	starves bool // it does now
}

// chain is one life. Where h is not nil, descriptors are taken at random times, by h.
func chain(t *testing.T, seed uint64, h *hog) {
	x := &chained{machine: newMachine(t, false), rng: rand.New(rand.NewPCG(seed, 2)), steps: map[string]int{}, hog: h}
	x.keeps = 1 + x.rng.IntN(60)
	x.opts.Logger = slog.New(slog.NewTextHandler(notes{x}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	x.onLine = func(f *File, l Line) { x.lines = append(x.lines, string(l.Bytes)) }
	x.opts.Blocks = []Block{{Name: "b", Paths: []string{x.dir + "/links/*.log"}, LineBytesMax: 1000}}
	for i := range 1 + x.rng.IntN(6) {
		x.add(i)
	}
	x.still = true
	x.pass()
	x.read()
	x.durable = len(x.events) // of what nobody ever knew nothing can be found
	x.still = false
	for range *chainSteps {
		x.random()
	}
	x.still = true
	x.starve(false)
	rounds := 60
	for _, c := range x.logs {
		rounds = max(rounds, 30+4*c.gen) // compressed ones are read one after the other
	}
	for i := range rounds {
		for _, c := range x.logs {
			x.pack(c)
		}
		x.ahead += time.Second
		x.pass()
		x.read()
		if i == 30 {
			x.ahead += 6 * time.Minute // what is torn is given up
		}
	}
	x.compare()
	x.drop()
	for _, c := range x.logs {
		t.Logf("%s: %d generations, dated %v, before the extension %v, copies keep times %v", filepath.Base(c.link), c.gen, c.dated, c.before, c.keeps)
	}
	t.Logf("seed %d: %d paths, steps: %v", seed, len(x.logs), x.steps)
}

func (x *chained) must(err error) {
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *chained) note(format string, a ...any) {
	x.did = append(x.did, fmt.Sprintf(format, a...))
	x.steps[strings.Fields(format)[0]]++
}

// notes puts what the watcher logs among the steps.
type notes struct{ x *chained }

func (n notes) Write(b []byte) (int, error) {
	n.x.did = append(n.x.did, "    "+strings.TrimSpace(strings.ReplaceAll(string(b), n.x.dir+"/", "")))
	return len(b), nil
}

func (x *chained) add(i int) {
	dir := filepath.Join(x.dir, fmt.Sprintf("pod%d", i))
	c := &container{path: dir + "/0.log", link: fmt.Sprintf("%s/links/pod%d.log", x.dir, i), dated: x.rng.IntN(2) == 0, before: x.rng.IntN(2) == 0}
	c.keeps = *chainTimes || x.rng.IntN(2) == 0
	x.must(os.MkdirAll(dir, 0o755))
	x.must(os.MkdirAll(x.dir+"/links", 0o755))
	x.must(os.WriteFile(c.path, nil, 0o644))
	x.must(os.Symlink(c.path, c.link))
	x.logs = append(x.logs, c)
}

func (x *chained) random() {
	if x.hog != nil && x.rng.IntN(8) == 0 {
		x.starve(!x.starves)
	}
	switch n := x.rng.IntN(100); {
	case n < 55:
		x.programs(x.logs[x.rng.IntN(len(x.logs))], n)
	case n < 75:
		x.ahead += time.Duration(x.rng.IntN(1500)) * time.Millisecond
		x.pass()
	case n < 90:
		x.read()
	case n < 95:
		x.durable += x.rng.IntN(len(x.events) - x.durable + 1)
	default:
		x.crash()
	}
}

// programs does what those that log do.
func (x *chained) programs(c *container, n int) {
	if x.starves { // they have their own
		x.hog.free()
		defer x.hog.take(x.t)
	}
	switch {
	case n < 30:
		x.write(c)
	case n < 42:
		x.rotate(c)
	default:
		x.packStep(c)
	}
}

func (x *chained) write(c *container) {
	var b strings.Builder
	for range 1 + x.rng.IntN(6) {
		fmt.Fprintf(&b, "%s %06d %s\n", filepath.Base(c.link), c.written, strings.Repeat("x", x.rng.IntN(300)))
		c.written++
	}
	x.note("write %s to %d", filepath.Base(c.link), c.written)
	x.must(appendTo(c.path, b.String()))
}

// rotate moves the live file away. The generation before it is compressed from now on.
func (x *chained) rotate(c *container) {
	x.pack(c)
	time.Sleep(time.Duration(x.rng.IntN(13)) * time.Millisecond) // the file system's clock may stand still, or not
	c.gen++
	to := c.rotation(fmt.Sprintf("20261130-%03d", c.gen))
	if !c.dated {
		x.shift(c)
		to = c.rotation("1")
	}
	x.note("rotate %s, %d generations", filepath.Base(c.link), c.gen)
	x.must(os.Rename(c.path, to))
	x.must(os.WriteFile(c.path, nil, 0o644))
	c.rotated = append(c.rotated, to)
	if len(c.rotated) > 1 {
		x.startPacking(c, c.rotated[0])
		c.rotated = c.rotated[1:]
	}
}

func (c *container) rotation(tag string) string {
	if c.before {
		return strings.TrimSuffix(c.path, "log") + tag + ".log"
	}
	return c.path + "." + tag
}

// shift renames app.log.2.gz to app.log.3.gz, and so on.
func (x *chained) shift(c *container) {
	for n := c.gen; n >= 1; n-- {
		for _, suffix := range []string{"", ".gz"} {
			from, to := c.rotation(strconv.Itoa(n))+suffix, c.rotation(strconv.Itoa(n+1))+suffix
			if os.Rename(from, to) != nil {
				continue
			}
			if i := slices.Index(c.rotated, from); i >= 0 {
				c.rotated[i] = to
			}
		}
	}
}

// startPacking compresses a file as programs do: into another one, which gets its times and perhaps its name in the end.
func (x *chained) startPacking(c *container, path string) {
	data, err := os.ReadFile(path)
	x.must(err)
	st, err := os.Stat(path)
	x.must(err)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(data)
	x.must(err)
	x.must(z.Close())
	to := path + ".gz"
	if x.rng.IntN(2) == 0 {
		to = path + ".tmp"
	}
	half := b.Len() / 2
	c.packing = []func(){
		func() {
			x.must(os.WriteFile(to, b.Bytes()[:half], 0o644))
			if !c.keeps && !c.dated {
				time.Sleep(13 * time.Millisecond) // made and written in one tick, it would look as if it kept times
			}
		},
		func() { x.must(appendTo(to, string(b.Bytes()[half:]))) },
		func() {
			if c.keeps {
				x.must(os.Chtimes(to, st.ModTime(), st.ModTime()))
			}
		},
		func() { x.must(os.Rename(to, path+".gz")) },
		func() { x.must(os.Remove(path)) },
	}
}

func (x *chained) packStep(c *container) {
	if len(c.packing) > 0 {
		x.note("pack %s, %d steps left", filepath.Base(c.link), len(c.packing))
		c.packing[0]()
		c.packing = c.packing[1:]
	}
}

func (x *chained) pack(c *container) {
	for len(c.packing) > 0 {
		x.packStep(c)
	}
}

// starve has somebody take all descriptors that are left, or give them back.
func (x *chained) starve(on bool) {
	if x.hog == nil {
		return
	}
	x.note("starve %v", on)
	x.starves = on
	x.hog.free()
	if on {
		x.hog.take(x.t)
	}
}

func (x *chained) pass() {
	x.note("pass")
	if x.starves {
		x.hog.take(x.t) // what the watcher and the reader gave back
	}
	if x.w == nil {
		x.start()
		x.w.handler = x
		x.w.keep.quiet = 50 * time.Millisecond // nobody writes to what was rotated here
		now := x.w.now
		x.w.now = func() time.Time { // programs do not wait until the watcher has looked everywhere
			if !x.still && x.rng.IntN(20) == 0 {
				x.programs(x.logs[x.rng.IntN(len(x.logs))], x.rng.IntN(55))
			}
			return now()
		}
	}
	x.w.takeBack()
	x.w.scan()
	x.w.admit()
	if *chainSeed != 0 || *copiesSeed != 0 {
		x.states()
	}
}

// states notes what the watcher thinks of each source.
func (x *chained) states() {
	x.did = append(x.did, fmt.Sprintf("      | open %d of %d, reading %d, unpacking %d, look again %v, unsettled %v, moved %d", len(x.w.open), x.w.openMax, x.w.stats.reading.Load(), len(x.w.unpacking), x.w.lookAgain, x.w.unsettled, x.w.moved))
	for _, f := range x.w.sources {
		s := &f.src
		x.did = append(x.did, fmt.Sprintf("      | %s source %d size %d packed %q at %s missing %v out %v waiting %v fd %d lost %v finished %v age %d behind %v ended %v", filepath.Base(f.Path()), f.ID(), s.st.size, s.packed,
			filepath.Base(s.at), s.missing, s.out, s.waiting, f.fd, !s.lostSince.IsZero(), s.finished, f.age()/1e6%1e6, f.behind.Load(), f.ended.Load()))
	}
	for at, since := range x.w.unsettled {
		x.did = append(x.did, fmt.Sprintf("      | %s unsettled since %d, to be looked at again %v", filepath.Base(at.path), since/1e6%1e6, x.w.lookAgain[kinOf(at)]))
	}
}

// Open is the Handler's: the file has its number from here on.
func (x *chained) Open(f *File) {
	if f.ID() == 0 {
		x.lastID++
		f.SetID(x.lastID)
	}
	x.opened = append(x.opened, f)
}

// Gone comes behind the files that were handed out before.
func (x *chained) Gone(id uint64) {
	x.takeOpened()
	x.did = append(x.did, fmt.Sprintf("    source %d event %d: gone", id, len(x.events)))
	x.events = append(x.events, logged{gone: id})
}

// read is a round of the reader: of the generations of a path a younger one waits until those before it were read to their end.
func (x *chained) read() {
	x.note("read")
	if x.w == nil {
		return
	}
	x.takeOpened()
	held := x.held
	x.held = nil
	unread := map[string]bool{}
	for _, f := range held {
		family := stemOf(f.Path())
		if unread[family] {
			x.held = append(x.held, f)
			continue
		}
		more := true
		for range 1 + x.rng.IntN(4) {
			some, idle := x.machine.read(f)
			more = !idle
			if some {
				x.took(f)
			}
			if idle {
				break
			}
		}
		unread[family] = unread[family] || more
		if !more && (f.Complete() || (f.Wanted() || x.rng.IntN(x.keeps) == 0) && f.Pending() == 0) {
			f.Release()
			continue
		}
		x.held = append(x.held, f)
	}
}

func (x *chained) takeOpened() {
	for _, f := range x.opened {
		f.Attach(make(chan struct{}, 1))
		x.took(f)
	}
	x.held, x.opened = append(x.held, x.opened...), nil
}

func (x *chained) took(f *File) {
	if len(x.lines) > 0 {
		x.did = append(x.did, fmt.Sprintf("    source %d event %d: %.16s to %.16s, offset %d", f.ID(), len(x.events), x.lines[0], x.lines[len(x.lines)-1], f.Cursor().Offset))
	} else {
		x.did = append(x.did, fmt.Sprintf("    source %d event %d: offset %d", f.ID(), len(x.events), f.Cursor().Offset))
	}
	fp, cur := f.Place()
	x.events = append(x.events, logged{known: Known{ID: f.ID(), Block: f.Block(), Path: f.Path(), Fingerprint: fp, Cursor: cur}, lines: x.lines})
	x.lines = nil
}

// crash goes back to what was durable.
func (x *chained) crash() {
	x.note("crash, back to %d of %d events", x.durable, len(x.events))
	x.drop()
	x.events, x.lines = x.events[:x.durable], nil
	x.lastID = 0
	clear(x.known)
	for _, e := range x.events {
		if e.gone > 0 {
			delete(x.known, e.gone)
			continue
		}
		x.known[e.known.ID] = e.known
		x.lastID = max(x.lastID, e.known.ID)
	}
}

func (x *chained) compare() {
	next := map[string]int{}
	seen := map[string]bool{}
	bad := 0
	tell := func(format string, a ...any) {
		if bad++; bad < 10 {
			x.t.Errorf(format, a...)
		}
	}
	for i, e := range x.events {
		for _, l := range e.lines {
			w := strings.Fields(l)
			n, err := strconv.Atoi(w[1])
			x.must(err)
			switch id := w[0] + " " + w[1]; {
			case seen[id]:
				tell("doubled: %s in event %d", id, i)
			case n < next[w[0]]:
				tell("out of order: %s in event %d behind %06d", id, i, next[w[0]]-1)
				seen[id] = true
			default:
				seen[id], next[w[0]] = true, n+1
			}
		}
	}
	for _, c := range x.logs {
		for n := range c.written {
			if id := fmt.Sprintf("%s %06d", filepath.Base(c.link), n); !seen[id] {
				tell("lost: %s", id)
			}
		}
	}
	if bad > 0 {
		x.states()
		x.t.Logf("steps:\n%s", strings.Join(x.did, "\n"))
	}
}
