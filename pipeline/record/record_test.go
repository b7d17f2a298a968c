package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// C074: an endless chain of partial messages is bounded by the longest record, by each rule.
func TestC074EndlessPartials(t *testing.T) {
	var b strings.Builder
	piece := strings.Repeat("y", 16<<10)
	for range 100 {
		b.WriteString("2026-11-29T23:28:47.1Z stdout P " + piece + "\n")
	}
	b.WriteString("2026-11-29T23:28:47.1Z stdout F end\n2026-11-29T23:28:47.1Z stdout F normal\n")
	const limit = 200 << 10
	for _, x := range []struct {
		rule    Oversize
		records int
		reason  Reason
	}{{Split, 10, OversizeSplit}, {Cut, 2, OversizeCut}, {Skip, 1, OversizeSkip}} {
		for i := range 4 {
			forget, c := i%2 == 1, Config{Container: CRI, RecordBytesMax: limit, Oversize: x.rule}
			if i >= 2 {
				c.Multiline.Start = "^normal"
			}
			w := newWorld(t, c, b.String())
			w.block, w.forget = 32<<10, forget
			stops := 0
			w.stop = func() bool { stops++; return forget && stops%2 == 1 }
			out := w.all()
			if len(out) != x.records || out[len(out)-1].value != "normal" {
				t.Fatalf("rule %d: %d records, the last %.40q", x.rule, len(out), out[len(out)-1].value)
			}
			for _, g := range out {
				if len(g.value) > limit {
					t.Fatalf("rule %d: a record of %d bytes", x.rule, len(g.value))
				}
			}
			if w.sc.Counts[x.reason] == 0 {
				t.Errorf("rule %d: not counted", x.rule)
			}
			if cap(w.sc.joined) > 2*limit || cap(w.sc.message) > 2*limit {
				t.Errorf("rule %d: %d and %d bytes held", x.rule, cap(w.sc.joined), cap(w.sc.message))
			}
		}
	}
}

// An unfinished message holds the other stream back until the window is full, not for ever.
func TestWindowFull(t *testing.T) {
	var b strings.Builder
	b.WriteString("2026-11-29T23:28:47.1Z stdout P begun \n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "2026-11-29T23:28:47.1Z stderr F line %d\n", i)
	}
	b.WriteString("2026-11-29T23:28:47.1Z stdout F ended\n")
	w := newWorld(t, Config{Container: CRI, RecordBytesMax: ContainerLineBytesMin}, b.String())
	w.block = 4 << 10
	out := values(w.all())
	if len(out) != 20_002 || out[0] != "begun " || out[20_001] != "ended" {
		t.Fatalf("%d records, from %q to %q", len(out), out[0], out[len(out)-1])
	}
	w.count(WindowFull, 1)
}

// C069: the writer stalls longer than the timeout inside a trace.
func TestC069Stall(t *testing.T) {
	w := newWorld(t, Config{Multiline: Multiline{Start: "^start"}}, "start 1\n a\n")
	w.turn()
	if len(w.out) != 0 {
		t.Fatalf("%q is out before its time", values(w.out))
	}
	if due := w.s.Due(); !due.Equal(testStart.Add(timeoutDefault)) {
		t.Fatalf("due %v", due)
	}
	w.now = w.now.Add(timeoutDefault)
	w.turn()
	w.file = append(w.file, " b\n c\nstart 2\n"...)
	w.want("start 1\n a", " b\n c", "start 2")
}

// What grows is not timed out, whoever else is quiet.
func TestTimeoutSinceGrowth(t *testing.T) {
	w := newWorld(t, Config{Multiline: Multiline{Start: "^start"}}, "start\n")
	for i := range 10 {
		w.turn()
		w.now = w.now.Add(timeoutDefault / 2)
		w.file = fmt.Appendf(w.file, " %d\n", i)
	}
	w.turn()
	if len(w.out) != 0 {
		t.Fatalf("%q", values(w.out))
	}
	w.want("start\n 0\n 1\n 2\n 3\n 4\n 5\n 6\n 7\n 8\n 9")
}

// A line that was split is never joined with anything.
func TestPartsOfLines(t *testing.T) {
	f := compile(t, Config{Multiline: Multiline{Indent: true}})
	s, sc := f.NewStream("/a"), &Scratch{}
	s.Begin(sc, nil, 0, Place{})
	s.Line(Line{Bytes: []byte("begins"), Offset: 0, End: 6})
	s.Line(Line{Bytes: []byte(" goes on"), Offset: 6, End: 15, Part: 1})
	for _, want := range []string{"begins", " goes on"} {
		r, ok := s.Peek(testStart)
		if !ok || string(r.Value) != want {
			t.Fatalf("%q %v, want %q", r.Value, ok, want)
		}
		if p, _ := s.Place(); want == " goes on" && p != (Place{Offset: 6, Part: 1}) {
			t.Fatalf("%+v", p)
		}
		s.Take()
	}
}

func TestSampleByHash(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "line %d\n", i%1000)
	}
	w := newWorld(t, Config{Filter: Filter{SampleOneIn: 4, SampleByHash: true}}, b.String())
	out := values(w.all())
	if len(out)%3 != 0 || len(out) < 600 || len(out) > 900 {
		t.Fatalf("%d of 3000", len(out))
	}
	if third := len(out) / 3; !slices.Equal(out[:third], out[third:2*third]) {
		t.Error("the same lines are not always kept")
	}
}

func TestTopic(t *testing.T) {
	f := compile(t, Config{Topic: "logs-{namespace}.{container}-{source}"})
	for path, want := range map[string]string{
		"/var/log/pods/shop_cart-7d9f_4b1c-11/web/0.log":                          "logs-shop.web-app",
		"/var/log/pods/shop_cart-7d9f_4b1c-11/web/0.log.20261129-232847":          "logs-shop.web-app",
		"/var/log/containers/cart_shop_web-a-" + strings.Repeat("0", 64) + ".log": "logs-shop.web-a-app",
		"/var/log/app.log":                  "logs-unknown.unknown-app",
		"/x/pods/sh op\n_cart_1/w{}é/0.log": "logs-sh-op-.w-----app",
	} {
		if got := f.Topic(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
	long := f.Topic("/pods/" + strings.Repeat("n", 300) + "_p_u/c/0.log")
	other := f.Topic("/pods/" + strings.Repeat("n", 301) + "_p_u/c/0.log")
	if len(long) != topicBytesMax || len(other) != topicBytesMax || long == other {
		t.Errorf("%d and %d bytes", len(long), len(other))
	}
	if got := compile(t, Config{Topic: "{namespace}"}).Topic("/pods/.._p_u/c/0.log"); got != "-" {
		t.Errorf("%q", got)
	}
	if compile(t, Config{Topic: "fixed"}).TopicIsTemplate() || !f.TopicIsTemplate() {
		t.Error("what is a template?")
	}
}

func TestConfigErrors(t *testing.T) {
	for want, c := range map[string]Config{
		"multiline: has more than one":                           {Multiline: Multiline{Start: "a", Indent: true}},
		"multiline.start: error parsing regexp":                  {Multiline: Multiline{Start: "("}},
		"multiline.preset: is \"cobol\"":                         {Multiline: Multiline{Preset: "cobol"}},
		"multiline.count: is 2000":                               {Multiline: Multiline{Count: 2000}},
		"multiline.max_lines: is -1":                             {Multiline: Multiline{Indent: true, LinesMax: -1}},
		"max_line_bytes: is 1000":                                {Container: CRI, RecordBytesMax: 1000},
		"filter.include[0]: must have exactly one":               {Filter: Filter{Include: []Match{{}}}},
		"filter.exclude[0].regex: error parsing":                 {Filter: Filter{Exclude: []Match{{Regex: "["}}}},
		"redact[0].regex: \"x*\" matches the empty text":         {Redact: []Redact{{Regex: "x*"}}},
		"redact[0]: must have exactly one":                       {Redact: []Redact{{}}},
		"redact[0].pattern: is \"iban\"":                         {Redact: []Redact{{Pattern: "iban"}}},
		"redact[0]: has both with and keep_length":               {Redact: []Redact{{Pattern: "card", With: "x", KeepLength: true}}},
		"json.fields: \"message\" is the name":                   {JSON: JSON{On: true, Fields: []Field{{"message", "x"}}}},
		"headers: \"hots\" is unknown":                           {Headers: []string{"hots"}},
		"key: is \"path2\"":                                      {Key: "path2"},
		"key: {nam} is unknown":                                  {Key: "{nam}"},
		"key: has an opening brace":                              {Key: "x{path"},
		"topic: {path} is unknown":                               {Topic: "x-{path}"},
		"topic: {field:a} is unknown":                            {Topic: "{field:a}"},
		"topic: has a closing brace":                             {Topic: "x}"},
		"timestamp.from: is container, but":                      {Timestamp: Timestamp{From: "container"}},
		"timestamp.from: is \"file\"":                            {Timestamp: Timestamp{From: "file"}},
		"timestamp.layout: \"%H:%M\" tells no time":              {Timestamp: Timestamp{From: "line", Layout: "%H:%M"}},
		"timestamp.layout: \"15:04:05\" tells no day and month":  {Timestamp: Timestamp{From: "line", Layout: "15:04:05"}},
		"timestamp.layout: \"02 15:04\" tells no day and month":  {Timestamp: Timestamp{From: "line", Layout: "02 15:04"}},
		"timestamp.layout: \"2006-01-02 15:04:05 MST\" tells":    {Timestamp: Timestamp{From: "line", Layout: "2006-01-02 15:04:05 MST"}},
		"timestamp.zone: \"Mars/Base\"":                          {Timestamp: Timestamp{From: "line", Zone: "Mars/Base"}},
		"timestamp.guard: is clamp, but neither":                 {Timestamp: Timestamp{From: "line", Guard: "clamp"}},
		"static_headers: has 5000 bytes of names and values; at": {StaticHeaders: []Field{{"a", strings.Repeat("x", 4999)}}},
	} {
		if c.RecordBytesMax == 0 {
			c.RecordBytesMax = 1 << 20
		}
		_, err := Compile(c)
		var wrong *ConfigError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The two cheap questions before a regular expression never change its answer.
func FuzzPattern(f *testing.F) {
	for _, e := range []string{`^\d{4}-`, `^(a|bc)+x`, `(?i)^error`, `foo.*bar`, `^`, `^a?b`, `^[^a]`, `x$`, `(?s)^.`, `^(?:\s|$)`, `k`, `(?i)k`, `^é`, `\bfoo\b`, `(?m)^a`, `^a*`, `a{0}b`, `^a{2,3}`} {
		f.Add(e, []byte("2026-11-29 foo bar error\n"))
		f.Add(e, []byte("\xff\xfebx"))
		f.Add(e, []byte(""))
	}
	f.Fuzz(func(t *testing.T, expr string, text []byte) {
		re, err := regexp.Compile(expr)
		if err != nil || len(expr) > 100 {
			return
		}
		p, err := compilePattern(expr)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.match(text), re.Match(text); got != want {
			t.Fatalf("%q on %q: %v, want %v", expr, text, got, want)
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("*a?c*", []byte("xxabcyy"))
	f.Add(`\*a`, []byte("*a"))
	f.Fuzz(func(t *testing.T, pattern string, text []byte) {
		var re strings.Builder
		re.WriteString(`(?s)^`)
		for i := 0; i < len(pattern); i++ {
			c := pattern[i]
			switch {
			case c >= utf8.RuneSelf:
				return
			case c == '*':
				re.WriteString(`.*`)
				continue
			case c == '?':
				re.WriteString(`.`)
				continue
			case c == '\\' && i+1 < len(pattern):
				i++
				if c = pattern[i]; c >= utf8.RuneSelf {
					return
				}
			}
			re.WriteString(regexp.QuoteMeta(string(rune(c))))
		}
		for _, c := range text {
			if c >= utf8.RuneSelf {
				return // a rune for one, a byte for the other
			}
		}
		if len(pattern) > 50 {
			return
		}
		if got, want := globMatch(pattern, text), regexp.MustCompile(re.String()+`$`).Match(text); got != want {
			t.Fatalf("%q on %q: %v, want %v", pattern, text, got, want)
		}
	})
}

// What we take for JSON is JSON, but for bytes that are not UTF-8 and for depth.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,-0.5e+3,true,null,"\ud83d\ude00x"]}`, `[1,2`, `{"a":01}`, `"\u12"`, "\"a\nb\"", `{"a":1,}`, `-`, `1.`, `tru`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		i := skipSpace(b, 0)
		end := skipValue(b, i, 0)
		ours := end > 0 && skipSpace(b, end) == len(b)
		depth := 0
		for _, c := range b {
			if c == '{' || c == '[' {
				depth++
			}
		}
		if theirs := json.Valid(b); ours != theirs && depth <= depthMax {
			t.Fatalf("%q: %v, want %v", b, ours, theirs)
		}
		if ours && b[i] == '"' {
			var want string
			if err := json.Unmarshal(b, &want); err != nil {
				t.Fatal(err)
			}
			got := appendUnescaped(nil, b[i+1:end-1])
			if string(appendRepaired(nil, got)) != want {
				t.Fatalf("%q means %q, want %q", b, got, want)
			}
		}
	})
}

func FuzzString(f *testing.F) {
	f.Add([]byte("a\"\\\n\x00\xff\xe2\x28\xa1é"), 100)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		out, repaired, cut := appendString(nil, b, limit)
		var s string
		if err := json.Unmarshal(out, &s); err != nil || !utf8.Valid(out) {
			t.Fatalf("%q: %v", out, err)
		}
		if limit >= 2 && len(out) > limit {
			t.Fatalf("%d bytes, at most %d", len(out), limit)
		}
		want := string(bytes.ToValidUTF8(b, nil))
		if !cut && !repaired && s != want || !strings.HasPrefix(string(appendRepaired(nil, b)), s) {
			t.Fatalf("%q: %q", b, s)
		}
	})
}

// Any bytes, any settings: every record is bounded, JSON is JSON, and all of the file is read.
func FuzzStream(f *testing.F) {
	f.Add([]byte("2026-11-29T23:28:47.1Z stdout P a\n2026-11-29T23:28:47.1Z stderr F b\n"), uint8(0xff), uint16(100))
	f.Add([]byte("{\"log\":\"a\\n\",\"stream\":\"stdout\"}\n{\"log\":\"\\u\"}\n"), uint8(0x13), uint16(30))
	f.Add([]byte("4111 1111 1111 1111 a@b.cc password=x\n\n \n"), uint8(0x7c), uint16(10))
	f.Fuzz(func(t *testing.T, file []byte, settings uint8, block uint16) {
		if len(file) == 0 || len(file) > 1<<16 {
			return
		}
		if file[len(file)-1] != '\n' {
			file = append(file[:len(file):len(file)], '\n')
		}
		c := Config{Container: Container(settings & 3), RecordBytesMax: ContainerLineBytesMin, Oversize: Oversize(settings >> 2 % 3)}
		if settings&8 != 0 {
			c.Multiline.Preset = "python"
		}
		if settings&16 != 0 {
			c.JSON = JSON{On: true, Object: Object(settings % 3)}
		}
		if settings&32 != 0 {
			c.Redact = []Redact{{Pattern: "card"}, {Pattern: "email"}, {Pattern: "token", KeepLength: true}, {Regex: "a+"}}
		}
		if settings&64 != 0 {
			c.Key, c.Headers, c.Timestamp = "field:a.b", HeaderNames(), Timestamp{From: "line"}
		}
		w := newWorld(t, c, string(file))
		w.block, w.copies = 1+int(block), settings&128 != 0
		for _, g := range w.all() {
			if len(g.value)+len(g.key)+len(g.headers) > w.f.RecordBytesMax() {
				t.Fatalf("a record of %d bytes", len(g.value))
			}
			if c.JSON.On && (!json.Valid([]byte(g.value)) || !utf8.ValidString(g.value)) {
				t.Fatalf("not JSON: %q", g.value)
			}
		}
	})
}
