package record

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a file and a reader of it, as far as this package can tell: lines are split at line feeds, the file is read
// through a block of bounded size, reading stops and starts again wherever it likes, and the cursor is all that is kept then.
type world struct {
	tb     testing.TB
	f      *Format
	s      *Stream
	sc     Scratch
	file   []byte
	block  int         // bytes of the reader's block; it grows to the window
	copies bool        // lines are no slices of the block, as when they are decoded
	stop   func() bool // whether to stop before the next record is taken
	forget bool        // a stop is a restart
	now    time.Time

	at   Place
	out  []got
	line []byte // decoded, if copies
}

type got struct {
	value, key, headers string
	hasKey              bool
	ms                  int64
}

var testStart = time.Date(2026, 11, 29, 23, 28, 47, 0, time.UTC)

func compile(tb testing.TB, c Config) *Format {
	tb.Helper()
	if c.RecordBytesMax == 0 {
		c.RecordBytesMax = 1 << 20
	}
	c.Source, c.Host = "app", "host-1"
	f, err := Compile(c)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func newWorld(tb testing.TB, c Config, file string) *world {
	f := compile(tb, c)
	return &world{tb: tb, f: f, s: f.NewStream("/var/log/a.log"), file: []byte(file), block: 1 << 20, now: testStart}
}

// turn looks at the file once, to its end as it is now or to a stop. It says whether it stopped.
func (w *world) turn() (stopped bool) {
	size := w.block
	for {
		from := w.at.Offset
		data := w.file[from:min(len(w.file), int(from)+size)]
		eof := int(from)+len(data) == len(w.file)
		block := bytes.Clone(data)
		aliased := block
		if w.copies {
			aliased = nil
		}
		w.s.Begin(&w.sc, aliased, from, w.at)
		rest := block
		for {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			l := Line{Bytes: bytes.TrimSuffix(rest[:i], []byte("\r")), Offset: from + int64(len(block)-len(rest)), End: from + int64(len(block)-len(rest)+i+1)}
			l.Bytes = l.Bytes[:len(l.Bytes):len(l.Bytes)]
			if w.copies {
				w.line = append(w.line[:0], l.Bytes...)
				l.Bytes = w.line
			}
			w.s.Line(l)
			clear(w.line)
			rest = rest[i+1:]
			if w.take() {
				return true
			}
		}
		if eof {
			w.s.End(w.now)
		} else if len(rest) == len(block) || w.s.Stuck() {
			if size < w.f.WindowBytesMax()+1 {
				size = min(2*size, w.f.WindowBytesMax()+1)
				continue
			}
			w.s.Force()
		}
		if w.take() {
			return true
		}
		before := w.at
		w.at, _ = w.s.Place()
		if eof || w.at == before {
			return false
		}
	}
}

// take takes what there is, and leaves the place where it must go on at a stop.
func (w *world) take() (stopped bool) {
	for {
		r, ok := w.s.Peek(w.now)
		if !ok {
			return false
		}
		if w.stop != nil && w.stop() {
			w.at, _ = w.s.Place()
			if w.forget {
				w.s = w.f.NewStream("/var/log/a.log")
			}
			return true
		}
		g := got{value: string(r.Value), key: string(r.Key), hasKey: r.HasKey, ms: r.TimeMs}
		for _, h := range r.Headers {
			g.headers += fmt.Sprintf("%s=%s ", h.Name, h.Value)
		}
		w.out = append(w.out, g)
		w.s.Take()
	}
}

// all reads the file to its end, and then ends what is unfinished.
func (w *world) all() []got {
	for range 1000 {
		for w.turn() {
		}
		if w.at.Offset == int64(len(w.file)) {
			return w.out
		}
		w.now = w.now.Add(time.Minute)
	}
	w.tb.Fatalf("stands still at %+v of %d bytes", w.at, len(w.file))
	return nil
}

func values(out []got) []string {
	var v []string
	for _, g := range out {
		v = append(v, g.value)
	}
	return v
}

func (w *world) want(want ...string) {
	w.tb.Helper()
	if out := values(w.all()); !slices.Equal(out, want) {
		w.tb.Fatalf("got\n%q\nwant\n%q", out, want)
	}
}

func (w *world) count(r Reason, want uint64) {
	w.tb.Helper()
	if w.sc.Counts[r] != want {
		w.tb.Errorf("%v counted %d times, want %d", r, w.sc.Counts[r], want)
	}
}

// randomCRI is a log of interleaved streams with partial messages and damaged lines, and the messages in the order of their first byte.
// With ends none is left open.
func randomCRI(rng *rand.Rand, lines int, ends bool) (file string, want []string) {
	var b strings.Builder
	type open struct {
		at   int
		text string
	}
	var opens [streams]*open
	for i := range lines {
		if rng.IntN(40) == 0 {
			line := fmt.Sprintf("damaged line %d", i)
			b.WriteString(line + "\n")
			want = append(want, line)
			opens = [streams]*open{}
			continue
		}
		k := rng.IntN(2)
		text := fmt.Sprintf("%d-%s", i, strings.Repeat("x", rng.IntN(60)))
		partial := rng.IntN(3) > 0
		if opens[k] == nil {
			want = append(want, "")
			opens[k] = &open{at: len(want) - 1}
		}
		opens[k].text += text
		want[opens[k].at] = opens[k].text
		tag := "P"
		if !partial {
			opens[k], tag = nil, "F"
		}
		fmt.Fprintf(&b, "2026-11-29T23:28:47.%09dZ %s %s %s\n", i, streamNames[k], tag, text)
	}
	if !ends {
		return b.String(), want
	}
	return b.String() + closing(opens[stdout] != nil, opens[stderr] != nil), want
}

// closing ends what is open.
func closing(open ...bool) (s string) {
	for k, is := range open {
		if is {
			s += fmt.Sprintf("2026-11-29T23:28:48Z %s F \n", streamNames[k])
		}
	}
	return s
}

// Wherever reading stops, whatever the block holds, and whether or not the process restarts: each record once, whole, in order.
func TestStopsAndRestarts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		file, want := randomCRI(rng, 1+rng.IntN(60), false)
		w := newWorld(t, Config{Container: CRI, RecordBytesMax: ContainerLineBytesMin}, file)
		w.block, w.copies, w.forget = 100+rng.IntN(4000), rng.IntN(2) == 0, rng.IntN(2) == 0
		w.stop = func() bool { return rng.IntN(6) == 0 }
		w.want(want...)
	}
}

// The same with multiline: events of both streams.
func TestStopsAndRestartsMultiline(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var b strings.Builder
		var want []string
		at := [streams]int{-1, -1}
		for i := range 1 + rng.IntN(60) {
			k := rng.IntN(2)
			text := fmt.Sprintf("  at line %d", i)
			if at[k] < 0 || rng.IntN(3) == 0 {
				text = fmt.Sprintf("start %d", i)
				want = append(want, text)
				at[k] = len(want) - 1
			} else {
				want[at[k]] += "\n" + text
			}
			for rng.IntN(2) == 0 {
				n := rng.IntN(len(text) + 1)
				fmt.Fprintf(&b, "2026-11-29T23:28:47Z %s P %s\n", streamNames[k], text[:n])
				text = text[n:]
			}
			fmt.Fprintf(&b, "2026-11-29T23:28:47Z %s F %s\n", streamNames[k], text)
		}
		w := newWorld(t, Config{Container: Auto, RecordBytesMax: ContainerLineBytesMin, Multiline: Multiline{Start: "^start"}}, b.String())
		w.block, w.copies, w.forget = 100+rng.IntN(4000), rng.IntN(2) == 0, rng.IntN(2) == 0
		w.stop = func() bool { return rng.IntN(6) == 0 }
		w.want(want...)
	}
}

// The file grows in small steps while it is read.
func TestGrowingFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		file, want := randomCRI(rng, 40, false)
		w := newWorld(t, Config{Container: CRI, RecordBytesMax: ContainerLineBytesMin}, "")
		for i := 0; i < len(file); {
			n := min(len(file)-i, 1+rng.IntN(200))
			w.file = append(w.file, file[i:i+n]...)
			i += n
			w.turn()
		}
		w.want(want...)
	}
}
