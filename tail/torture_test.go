package tail

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	tortureSeed  = flag.Uint64("torture.seed", 0, "replay this seed only")
	tortureSeeds = flag.Int("torture.seeds", 6, "random seeds to try")
	tortureSteps = flag.Int("torture.steps", 150, "steps per seed")
)

// TestTorture rotates files in every way that loses nothing, in random order, with restarts and crashes
// between, and compares what came out with what was written: every byte of every generation of a file once and
// in order, nothing else. The seed is in the subtest's name: -run 'TestTorture/seed-N' -torture.seed N.
func TestTorture(t *testing.T) {
	seeds := []uint64{*tortureSeed}
	if *tortureSeed == 0 {
		seeds = seeds[:0]
		for range *tortureSeeds {
			seeds = append(seeds, rand.Uint64N(1e9)+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { torture(t, seed) })
	}
}

// content is what one life of a source gave: from its start, or from a truncation, on.
type content struct {
	id   uint64
	life int
}

// torturer writes and compares.
type torturer struct {
	*machine
	rng *rand.Rand

	live    []*generation // one per name, being written
	rotated []*generation // renamed, perhaps still written
	all     []*generation
	names   int

	got   map[content][]string
	lives map[uint64]int
	saved saved
	did   []string
}

// saved is what survives a crash.
type saved struct {
	known map[uint64]Known
	got   map[content][]string
	lives map[uint64]int
}

type generation struct {
	path    string
	written strings.Builder
	polled  bool // a scan has passed since it was made
	known   bool // and what it found was saved
	late    bool // written to after it was renamed
	read    int  // bytes written when a poll passed last
	saved   int  // and when what that found was saved
}

func torture(t *testing.T, seed uint64) {
	x := newTorturer(t, seed)
	x.opts.Blocks = []Block{{Name: "b", Paths: []string{x.dir + "/*.log"}, LineBytesMax: 40 + x.rng.IntN(200)}}
	if x.rng.IntN(2) == 0 {
		x.opts.Blocks[0].Paths = []string{x.dir + "/*.log*"}
	}
	if x.rng.IntN(2) == 0 {
		x.opts.OpenFilesMax = 4
	}
	for range 1 + x.rng.IntN(4) {
		x.create(filepath.Join(x.dir, fmt.Sprintf("f%d.log", len(x.live))))
	}
	x.save()
	for range *tortureSteps {
		x.random()
	}
	x.settle()
	x.compare()
	steps := map[string]int{}
	for _, did := range x.did {
		steps[strings.Fields(did)[0]]++
	}
	t.Logf("seed %d: %d generations, steps: %v", seed, len(x.all), steps)
}

func newTorturer(t *testing.T, seed uint64) *torturer {
	x := &torturer{
		machine: newMachine(t, seed%2 == 0), rng: rand.New(rand.NewPCG(seed, 1)),
		got: map[content][]string{}, lives: map[uint64]int{},
	}
	x.onLine = x.take1
	x.onTruncated = func(f *File) { x.lives[f.ID()]++ }
	return x
}

func (x *torturer) take1(f *File, l Line) {
	c := content{f.ID(), x.lives[f.ID()]}
	if l.Part > 0 && len(x.got[c]) > 0 {
		x.got[c][len(x.got[c])-1] += string(l.Bytes)
		return
	}
	x.got[c] = append(x.got[c], string(l.Bytes))
}

func (x *torturer) create(path string) {
	g := &generation{path: path}
	x.must(os.WriteFile(path, nil, 0o644))
	x.live = append(x.live, g)
	x.all = append(x.all, g)
}

func (x *torturer) must(err error) {
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *torturer) random() {
	g := x.live[x.rng.IntN(len(x.live))]
	switch n := x.rng.IntN(100); {
	case n < 40:
		x.write(g)
	case n < 48 && len(x.rotated) > 0:
		late := x.rotated[x.rng.IntN(len(x.rotated))]
		late.late = true
		x.write(late)
	case n < 68:
		x.pollAll()
	case n < 76:
		x.rename(g)
	case n < 80:
		x.ahead += time.Duration(x.rng.IntN(20)) * time.Second
	case n < 82:
		x.note("10m")
		x.ahead += 10 * time.Minute
	case n < 86:
		x.copyTruncate(g)
	case n < 88:
		x.copyTruncateUnread(g)
	case n < 90 && len(x.rotated) > 0:
		x.compress(x.rng.IntN(len(x.rotated)))
	case n < 91 && len(x.rotated) > 0:
		x.remove(x.rng.IntN(len(x.rotated)))
	case n < 94:
		x.note("restart")
		x.stop()
	case n < 97:
		x.crash()
	default:
		x.save()
	}
}

// write appends lines, and sometimes only a part of one.
func (x *torturer) write(g *generation) {
	var b strings.Builder
	for range 1 + x.rng.IntN(20) {
		fmt.Fprintf(&b, "%06d-%s-%d-%s\n", slices.Index(x.all, g), filepath.Base(g.path), g.written.Len()+b.Len(), strings.Repeat("x", x.rng.IntN(90)))
	}
	text := b.String()
	if x.rng.IntN(3) == 0 {
		text = text[:max(6, x.rng.IntN(len(text)))] // two lives of a file that begin alike cannot be told apart
	}
	g.written.WriteString(text)
	x.note("write %s %d", x.rel(g.path), len(text))
	x.must(appendTo(g.path, text))
}

func (x *torturer) pollAll() {
	x.note("poll")
	x.poll()
	for _, g := range x.all {
		g.polled, g.read = true, g.written.Len()
	}
}

// rename moves g to another name and makes a new file. A file that is not known to the spool is only renamed
// to a name that the pattern finds.
func (x *torturer) rename(g *generation) {
	if !g.known && !strings.HasSuffix(x.opts.Blocks[0].Paths[0], "*") {
		return
	}
	x.names++
	path := g.path
	g.path = fmt.Sprintf("%s.%d", path, x.names)
	x.note("rename %s %s", x.rel(path), x.rel(g.path))
	x.must(os.Rename(path, g.path))
	x.rotated = append(x.rotated, g)
	x.live = slices.DeleteFunc(x.live, func(l *generation) bool { return l == g })
	x.create(path)
}

// copyTruncate is done when all was read and is durable; then nothing is lost.
func (x *torturer) copyTruncate(g *generation) {
	x.settle()
	x.note("truncate %s", x.rel(g.path))
	x.must(os.Truncate(g.path, 0))
	x.live = slices.DeleteFunc(x.live, func(l *generation) bool { return l == g })
	next := &generation{path: g.path, polled: true, known: true}
	x.live = append(x.live, next)
	x.all = append(x.all, next)
}

// copyTruncateUnread copies and truncates while some may be unread: that must come from the copy, which is known by what
// was read before it.
func (x *torturer) copyTruncateUnread(g *generation) {
	if !bytes.Contains([]byte(g.written.String()[:g.saved]), []byte("\n")) {
		return
	}
	x.names++
	path := fmt.Sprintf("%s.%d", g.path, x.names)
	x.note("copytruncate %s %s", x.rel(g.path), x.rel(path))
	data, err := os.ReadFile(g.path)
	x.must(err)
	x.must(os.WriteFile(path, data, 0o644))
	if x.rng.IntN(3) == 0 {
		x.pollAll()
	}
	x.must(os.Truncate(g.path, 0))
	if x.rng.IntN(3) == 0 && x.oldest(path) < 0 {
		x.must(pack([]string{"gzip", "zstd"}[x.rng.IntN(2)], path))
	}
	x.live = slices.DeleteFunc(x.live, func(l *generation) bool { return l == g })
	next := &generation{path: g.path, polled: true, known: true}
	x.live = append(x.live, next)
	x.all = append(x.all, next)
	x.pollAll() // a generation that comes and goes between two polls cannot be told from its copy alone
	x.settle()
}

// oldest is the first rotated file of those that began at one path, -1 if there is none. They are compressed in that order.
func (x *torturer) oldest(path string) int {
	base, _, _ := strings.Cut(path, ".log")
	return slices.IndexFunc(x.rotated, func(g *generation) bool { return strings.HasPrefix(g.path, base+".log") })
}

// compress packs a rotated file of which something was read, and which nobody writes to any more.
func (x *torturer) compress(i int) {
	i = x.oldest(x.rotated[i].path)
	g := x.rotated[i]
	if g.late {
		return // the time of its last write does not tell it from a younger generation
	}
	if !bytes.Contains([]byte(g.written.String()[:g.saved]), []byte("\n")) {
		return
	}
	with := []string{"gzip", "zstd"}[x.rng.IntN(2)]
	x.note("%s %s", with, x.rel(g.path))
	x.must(pack(with, g.path))
	x.rotated = slices.Delete(x.rotated, i, i+1)
}

func (x *torturer) remove(i int) {
	x.settle()
	x.note("remove %s", x.rel(x.rotated[i].path))
	x.must(os.Remove(x.rotated[i].path))
	x.rotated = slices.Delete(x.rotated, i, i+1)
}

// settle reads everything, unfinished last lines too, and makes it durable.
func (x *torturer) settle() {
	x.pollAll()
	x.ahead += 6 * time.Second
	x.pollAll()
	x.save()
}

func (x *torturer) save() {
	x.note("save")
	x.saved = saved{known: maps.Clone(x.known), got: map[content][]string{}, lives: maps.Clone(x.lives)}
	for c, lines := range x.got {
		x.saved.got[c] = slices.Clone(lines)
	}
	for _, g := range x.all {
		g.known, g.saved = g.polled, g.read
	}
}

// crash goes back to what was saved last.
func (x *torturer) crash() {
	x.note("crash")
	x.stop()
	s := x.saved
	for _, g := range x.all {
		g.polled, g.read = g.known, g.saved
	}
	x.known, x.got, x.lives = s.known, s.got, s.lives
	s.known, s.got, s.lives = maps.Clone(s.known), map[content][]string{}, maps.Clone(s.lives)
	for c, lines := range x.got {
		s.got[c] = slices.Clone(lines)
	}
	x.saved = s
}

func (x *torturer) compare() {
	var got []string
	for _, lines := range x.got {
		got = append(got, strings.Join(lines, "\n"))
	}
	failed := false
	for _, g := range x.all {
		want := strings.TrimSuffix(g.written.String(), "\n")
		if g.written.Len() == 0 {
			continue
		}
		if i := slices.Index(got, want); i >= 0 {
			got = slices.Delete(got, i, i+1)
			continue
		}
		if i, j, ok := twoPieces(got, want); ok {
			got = slices.Delete(got, max(i, j), max(i, j)+1)
			got = slices.Delete(got, min(i, j), min(i, j)+1)
			continue
		}
		failed = true
		x.t.Errorf("%s (last name): its %d bytes did not come out as written", x.rel(g.path), len(want))
		for _, s := range got {
			if n := samePrefix(s, want); n > 30 {
				x.t.Logf("nearest: %d bytes, equal up to %d\nwant %.80q\ngot  %.80q", len(s), n, want[n:], s[n:])
			}
		}
	}
	for _, s := range got {
		failed = true
		x.t.Errorf("read and not written like that: %d bytes %.200q", len(s), s)
	}
	if failed {
		x.t.Logf("steps:\n%s\nwarnings:\n%s", strings.Join(x.did, "\n"), x.out.String())
	}
}

// twoPieces finds what was read of a file and of its copy.
func twoPieces(got []string, want string) (i, j int, ok bool) {
	for i, a := range got {
		rest, ok := strings.CutPrefix(want, a)
		if !ok || a == "" {
			continue
		}
		for _, tail := range []string{rest, strings.TrimPrefix(rest, "\n")} {
			if j := slices.Index(got, tail); j >= 0 && j != i {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}

func samePrefix(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func (x *torturer) note(format string, a ...any) { x.did = append(x.did, fmt.Sprintf(format, a...)) }
