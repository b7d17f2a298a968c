package record

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite what comes out in testdata/*.txt")

// Each script is a config, one setting a line, a file (-- in --) and what becomes of it (-- out --): a record a line, with
// key, headers and time where there are any, then what was counted. Settings:
//
//	container KIND       max BYTES            oversize RULE       path PATH
//	multiline KEY VALUE  (start, continue, indent, count, preset, lines)
//	json KIND            field NAME=VALUE     headers NAME ...    static NAME=VALUE
//	key KEY              redact PATTERN|/RE/ [keep|WITH]
//	include KIND TEXT    exclude KIND TEXT    (contains, glob, regex)
//	sample N [hash]      time FROM LAYOUT     zone ZONE           after TEXT      guard KIND AGE AHEAD
//	escaped              the file has Go's escapes in it
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var in []byte
			out := -1
			for i, f := range a.Files {
				switch f.Name {
				case "in":
					in = f.Data
				case "out":
					out = i
				}
			}
			if out < 0 {
				t.Fatal("no -- out --")
			}
			got := runScript(t, string(a.Comment), string(in))
			if got == string(a.Files[out].Data) {
				return
			}
			if *update {
				a.Files[out].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("got\n%swant\n%s", got, a.Files[out].Data)
		})
	}
}

func runScript(t *testing.T, settings, file string) string {
	c := Config{RecordBytesMax: 1 << 20}
	path := "/var/log/a.log"
	for _, line := range strings.Split(settings, "\n") {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "", "#":
		case "path":
			path = rest
		case "escaped":
			s, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.ReplaceAll(file, "\n", ""), `"`, `\"`) + `"`)
			if err != nil {
				t.Fatal(err)
			}
			file = s
		default:
			set(t, &c, name, rest)
		}
	}
	w := newWorld(t, c, file)
	w.s.SetPath(path)
	var b strings.Builder
	for _, g := range w.all() {
		fmt.Fprintf(&b, "%q", g.value)
		if g.hasKey {
			fmt.Fprintf(&b, " key=%q", g.key)
		}
		if g.headers != "" {
			fmt.Fprintf(&b, " %s", strings.TrimSpace(g.headers))
		}
		if c.Timestamp.From != "" {
			fmt.Fprintf(&b, " %s", time.UnixMilli(g.ms).UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		b.WriteByte('\n')
	}
	for r, n := range w.sc.Counts {
		if n > 0 {
			fmt.Fprintf(&b, "%v: %d\n", Reason(r), n)
		}
	}
	return b.String()
}

func set(t *testing.T, c *Config, name, rest string) {
	t.Helper()
	word, more, _ := strings.Cut(rest, " ")
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	index := func(names ...string) uint8 {
		for i, n := range names {
			if n == word {
				return uint8(i)
			}
		}
		t.Fatalf("%s %s: unknown", name, rest)
		return 0
	}
	pair := func() Field {
		k, v, _ := strings.Cut(rest, "=")
		return Field{k, v}
	}
	switch name {
	case "container":
		c.Container = Container(index("none", "auto", "cri", "docker"))
	case "max":
		c.RecordBytesMax = number(word)
	case "oversize":
		c.Oversize = Oversize(index("split", "cut", "skip"))
	case "json":
		c.JSON.On, c.JSON.Object = true, Object(index("text", "merge", "nest"))
	case "field":
		c.JSON.Fields = append(c.JSON.Fields, pair())
	case "headers":
		c.Headers = strings.Fields(rest)
	case "static":
		c.StaticHeaders = append(c.StaticHeaders, pair())
	case "key":
		c.Key = rest
	case "sample":
		c.Filter.SampleOneIn, c.Filter.SampleByHash = number(word), more == "hash"
	case "zone":
		c.Timestamp.Zone = rest
	case "after":
		c.Timestamp.After = rest
	case "time":
		c.Timestamp.From, c.Timestamp.Layout = word, more
	case "include", "exclude":
		m := []Match{{Contains: more}, {Glob: more}, {Regex: more}}[index("contains", "glob", "regex")]
		if name == "include" {
			c.Filter.Include = append(c.Filter.Include, m)
		} else {
			c.Filter.Exclude = append(c.Filter.Exclude, m)
		}
	case "redact":
		r := Redact{Pattern: word, KeepLength: more == "keep"}
		if strings.HasPrefix(word, "/") {
			r.Pattern, r.Regex = "", strings.Trim(word, "/")
		}
		if more != "keep" {
			r.With = more
		}
		c.Redact = append(c.Redact, r)
	case "guard":
		f := strings.Fields(rest)
		age, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(err)
		}
		ahead, err := time.ParseDuration(f[2])
		if err != nil {
			t.Fatal(err)
		}
		c.Timestamp.Guard, c.Timestamp.MaxAge, c.Timestamp.MaxAhead = f[0], age, ahead
	case "multiline":
		m := &c.Multiline
		switch word {
		case "start":
			m.Start = more
		case "continue":
			m.Continue = more
		case "indent":
			m.Indent = true
		case "preset":
			m.Preset = more
		case "count":
			m.Count = number(more)
		case "lines":
			m.LinesMax = number(more)
		}
	default:
		t.Fatalf("unknown setting %q", name)
	}
}
