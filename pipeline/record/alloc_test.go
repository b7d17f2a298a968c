package record

import (
	"strings"
	"testing"
)

// run is a block of lines that is looked at again and again.
type run struct {
	s     *Stream
	sc    Scratch
	block []byte
	lines []Line
	bytes int // of values
}

func newRun(tb testing.TB, c Config, line string) *run {
	r := &run{s: compile(tb, c).NewStream("/var/log/pods/shop_cart-7d9f_4b1c/web/0.log")}
	n := max(1, 64<<10/len(line))
	r.block = []byte(strings.Repeat(line, n))
	for at := 0; at < len(r.block); {
		end := at + strings.IndexByte(string(r.block[at:]), '\n')
		r.lines = append(r.lines, Line{Bytes: r.block[at:end:end], Offset: int64(at), End: int64(end + 1)})
		at = end + 1
	}
	return r
}

func (r *run) once() (records int) {
	r.s.Begin(&r.sc, r.block, 0, Place{})
	for _, l := range r.lines {
		r.s.Line(l)
		for x, ok := r.s.Peek(testStart); ok; x, ok = r.s.Peek(testStart) {
			records++
			r.bytes += len(x.Value)
			r.s.Take()
		}
	}
	return records
}

const accessLine = `10.1.3.77 - - [29/Nov/2026:23:28:47 +0000] "GET /item/4711?page=3 HTTP/1.1" 200 1834 rt=0.113`

// Each way to make a record, and what it allocates for one.
var ways = []struct {
	name   string
	c      Config
	line   string
	allocs float64
}{
	{"cri", Config{Container: CRI}, "2026-11-29T23:28:47.123456789Z stdout F " + accessLine + "\n", 0},
	{"cri-partials", Config{Container: CRI}, "2026-11-29T23:28:47.123456789Z stdout P half a line of \n2026-11-29T23:28:47.123456789Z stdout F " + accessLine + "\n", 0},
	{"cri-multiline", Config{Container: CRI, Multiline: Multiline{Start: `^10\.`}}, "2026-11-29T23:28:47.123456789Z stdout P 1\n2026-11-29T23:28:47.123456789Z stderr P  \n2026-11-29T23:28:47.123456789Z stdout F " + accessLine[1:] + "\n2026-11-29T23:28:47.123456789Z stderr F at one\n", 0},
	{"docker", Config{Container: Docker}, `{"log":"` + strings.ReplaceAll(accessLine, `"`, `\"`) + `\n","stream":"stdout","time":"2026-11-29T23:28:47.123456789Z"}` + "\n", 0},
	{"multiline-indent", Config{Multiline: Multiline{Indent: true}}, accessLine + "\n\tat one\n\tat two\n\tat three\n", 0},
	{"multiline-regex", Config{Multiline: Multiline{Start: `^\d{1,3}\.`}}, accessLine + "\n\tat one\n\tat two\n\tat three\n", 0},
	{"multiline-java", Config{Multiline: Multiline{Preset: "java"}}, accessLine + "\n\tat one\n\tat two\nCaused by: x\n", 0},
	{"json", Config{JSON: JSON{On: true, Fields: []Field{{"env", "prod"}}}}, accessLine + "\n", 0},
	{"json-merge", Config{JSON: JSON{On: true, Object: ObjectMerge}}, `{"level":"info","msg":"it is done","took":17,"user":{"id":4711}}` + "\n", 0},
	{"headers", Config{Headers: HeaderNames(), Key: "{path}"}, accessLine + "\n", 0},
	{"key-field", Config{Key: "field:user.id"}, `{"level":"info","msg":"it is done","took":17,"user":{"id":4711}}` + "\n", 0},
	{"filter", Config{Filter: Filter{Include: []Match{{Contains: "GET"}, {Regex: "^10"}}, Exclude: []Match{{Glob: "*health*"}, {Regex: `HTTP/1\.[0]`}}, SampleOneIn: 2, SampleByHash: true}}, accessLine + "\n", 0},
	{"limit", Config{Filter: Filter{LinesPerSecond: 1e9, BytesPerSecond: 1e12}}, accessLine + "\n", 0},
	{"limit-drop", Config{Filter: Filter{LinesPerSecond: 1000, LimitDrops: true}}, accessLine + "\n", 0},
	{"redact", Config{Redact: []Redact{{Pattern: "card"}, {Pattern: "email"}, {Pattern: "token"}}}, "card 4111 1111 1111 1111 of joe@example.org with password=hunter2\n", 0},
	{"time", Config{Timestamp: Timestamp{From: "line", Layout: "clf", After: "["}}, accessLine + "\n", 0},
	{"time-container", Config{Container: CRI, Timestamp: Timestamp{From: "container"}}, "2026-11-29T23:28:47.123456789Z stdout F " + accessLine + "\n", 0},
}

func TestNoAllocationPerRecord(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools of the standard library forget on purpose; make test runs this without it")
	}
	for _, w := range ways {
		r := newRun(t, w.c, w.line)
		records := r.once()
		if got := testing.AllocsPerRun(5, func() { r.once() }) / float64(max(records, 1)); got > w.allocs {
			t.Errorf("%s: %.3f allocations a record, want %v", w.name, got, w.allocs)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			r := newRun(b, w.c, w.line)
			r.once()
			b.SetBytes(int64(len(r.block)))
			b.ReportAllocs()
			for b.Loop() {
				r.once()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(r.lines)), "ns/line")
		})
	}
}

// What is held for a record that is joined of many pieces is the record, not the pieces.
func TestScratchIsReused(t *testing.T) {
	r := newRun(t, Config{Container: CRI}, "2026-11-29T23:28:47.123456789Z stdout P "+strings.Repeat("x", 1000)+"\n")
	for i := range 50 {
		r.once()
		if n := cap(r.sc.units); n > 64 {
			t.Fatalf("round %d: room for %d records", i, n)
		}
	}
}
