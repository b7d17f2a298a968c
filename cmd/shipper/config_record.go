// The keys of a source that say what its lines become. What they mean is checked by package record; this file gives its words
// a place in the config.
package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"shipper/pipeline/record"
)

// RecordConfig is what a source says about its records. Its zero value is lines as they are.
type RecordConfig struct {
	Format    string // raw, json
	JSON      JSONConfig
	Container string // none, auto, cri, docker
	Multiline MultilineConfig
	Filter    FilterConfig
	Redact    []record.Redact
	Key       string

	Headers       []string
	StaticHeaders []record.Field
	Timestamp     TimestampConfig
}

// JSONConfig is the envelope of format json.
type JSONConfig struct {
	Object string // text, merge, nest
	Fields []record.Field
}

// MultilineConfig says which lines are one record.
type MultilineConfig struct {
	Preset, Start, Continue string
	Indent                  bool
	Count, LinesMax         int
	Timeout                 time.Duration
}

// FilterConfig says which records are kept.
type FilterConfig struct {
	Include, Exclude []record.Match
	Sample           struct {
		OneIn int
		By    string // count, hash
	}
	RateLimit struct {
		Lines     int
		Bytes     int64
		WhenAbove string // pause, drop
	}
}

// TimestampConfig says which time a record has.
type TimestampConfig struct {
	From, Layout, Zone, After, Guard string
	MaxAge, MaxAhead                 time.Duration
}

// defaultRecord is a source's RecordConfig before `defaults` and its own keys are applied.
func defaultRecord() RecordConfig {
	c := RecordConfig{Format: "raw", Container: "none", Key: "none"}
	c.JSON.Object = "text"
	c.Multiline.Preset, c.Multiline.LinesMax, c.Multiline.Timeout = "none", 1000, 5*time.Second
	c.Filter.Sample.OneIn, c.Filter.Sample.By = 1, "count"
	c.Filter.RateLimit.WhenAbove = "pause"
	c.Timestamp = TimestampConfig{From: "read", Layout: "rfc3339", Zone: "UTC", Guard: "keep"}
	return c
}

const (
	recordListMax = 64
	yearsMax      = 100 * 365 * 24 * time.Hour
)

func (c *RecordConfig) keys() []key {
	m, f, t := &c.Multiline, &c.Filter, &c.Timestamp
	return []key{
		choice("format", &c.Format, "raw", "json"),
		mapping("json", []key{
			choice("object", &c.JSON.Object, "text", "merge", "nest"),
			fields("fields", &c.JSON.Fields),
		}),
		choice("container", &c.Container, "none", "auto", "cri", "docker"),
		mapping("multiline", []key{
			choice("preset", &m.Preset, append([]string{"none"}, record.Presets()...)...),
			text("start", &m.Start, regularExpression),
			text("continue", &m.Continue, regularExpression),
			boolean("indent", &m.Indent),
			integer("count", &m.Count, 0, 1<<20),
			integer("max_lines", &m.LinesMax, 1, 1<<20),
			duration("timeout", &m.Timeout, 100*time.Millisecond, time.Hour),
		}),
		mapping("filter", []key{
			matches("include", &f.Include),
			matches("exclude", &f.Exclude),
			mapping("sample", []key{
				integer("one_in", &f.Sample.OneIn, 1, 1_000_000_000),
				choice("by", &f.Sample.By, "count", "hash"),
			}),
			mapping("rate_limit", []key{
				integer("lines", &f.RateLimit.Lines, 0, 1_000_000_000),
				size("bytes", &f.RateLimit.Bytes, 0, 1<<40),
				choice("when_above", &f.RateLimit.WhenAbove, "pause", "drop"),
			}),
		}),
		redactions("redact", &c.Redact),
		text("key", &c.Key, notEmpty),
		words("headers", &c.Headers, record.HeaderNames()),
		fields("static_headers", &c.StaticHeaders),
		mapping("timestamp", []key{
			text("from", &t.From, notEmpty),
			text("layout", &t.Layout, notEmpty),
			text("zone", &t.Zone, notEmpty),
			text("after", &t.After, nil),
			choice("guard", &t.Guard, "keep", "clamp", "now"),
			duration("max_age", &t.MaxAge, 0, yearsMax),
			duration("max_ahead", &t.MaxAhead, 0, yearsMax),
		}),
	}
}

func regularExpression(s string) error {
	if _, err := regexp.Compile(s); err != nil {
		return fmt.Errorf("%q: %w", s, err)
	}
	return nil
}

// words is a list of words out of allowed; it may be empty.
func words(name string, dst *[]string, allowed []string) key {
	return key{name: name, read: func(v value) error {
		err := texts(name, dst, recordListMax, func(s string) error {
			if !slices.Contains(allowed, s) {
				return notAllowed(s, allowed)
			}
			return nil
		}).read(v)
		if len(*dst) == 0 {
			*dst = nil
		}
		return err
	}}
}

// fields is a mapping of names to strings, in the order of the file.
func fields(name string, dst *[]record.Field) key {
	return key{name: name, read: func(v value) error {
		list, err := v.fields(0)
		if err != nil {
			return err
		}
		var out []record.Field
		for _, f := range list {
			v.d.lines[f.path] = f.keyLine
			s, err := f.str()
			if err != nil {
				return err
			}
			out = append(out, record.Field{Name: f.name, Value: s})
		}
		*dst = out
		return nil
	}}
}

// matches is a list of texts to look for.
func matches(name string, dst *[]record.Match) key {
	var m record.Match
	keys := func() []key {
		return []key{text("contains", &m.Contains, notEmpty), text("glob", &m.Glob, notEmpty), text("regex", &m.Regex, regularExpression)}
	}
	return key{name: name, read: func(v value) error {
		var out []record.Match
		err := v.list(recordListMax, func(item value) error {
			m = record.Match{}
			err := item.mapping(keys())
			out = append(out, m)
			return err
		})
		*dst = out
		return err
	}}
}

// redactions is a list of what is replaced.
func redactions(name string, dst *[]record.Redact) key {
	var r record.Redact
	keys := func() []key {
		return []key{choice("pattern", &r.Pattern, record.RedactPatterns...), text("regex", &r.Regex, regularExpression), text("with", &r.With, nil), boolean("keep_length", &r.KeepLength)}
	}
	return key{name: name, read: func(v value) error {
		var out []record.Redact
		err := v.list(recordListMax, func(item value) error {
			r = record.Redact{}
			err := item.mapping(keys())
			out = append(out, r)
			return err
		})
		*dst = out
		return err
	}}
}

// topicTemplate: a topic, or one with attributes in braces. What the braces may hold is checked with the rest of the record.
func topicTemplate(s string) error {
	if !strings.ContainsAny(s, "{}") {
		return topicName(s)
	}
	for _, c := range regexp.MustCompile(`\{[^{}]*\}`).ReplaceAllString(s, "x") {
		if !strings.ContainsRune("{}", c) && topicName("x"+string(c)) != nil {
			return topicName(s)
		}
	}
	return nil
}

// toRecord gives the keys of a source the form that package record takes.
func (s *SourceConfig) toRecord() record.Config {
	c := &s.Record
	f, t := &c.Filter, &c.Timestamp
	r := record.Config{
		Container: record.Container(slices.Index([]string{"none", "auto", "cri", "docker"}, c.Container)),
		Timeout:   c.Multiline.Timeout,
		Multiline: record.Multiline{Start: c.Multiline.Start, Continue: c.Multiline.Continue,
			Indent: c.Multiline.Indent, Count: c.Multiline.Count, LinesMax: c.Multiline.LinesMax},
		Filter: record.Filter{Include: f.Include, Exclude: f.Exclude, SampleOneIn: f.Sample.OneIn, SampleByHash: f.Sample.By == "hash",
			LinesPerSecond: float64(f.RateLimit.Lines), BytesPerSecond: float64(f.RateLimit.Bytes), LimitDrops: f.RateLimit.WhenAbove == "drop"},
		Redact:        c.Redact,
		JSON:          record.JSON{On: c.Format == "json", Object: record.Object(slices.Index([]string{"text", "merge", "nest"}, c.JSON.Object)), Fields: c.JSON.Fields},
		Headers:       c.Headers,
		StaticHeaders: c.StaticHeaders,
		Key:           c.Key,
		Timestamp: record.Timestamp{From: t.From, Layout: t.Layout, Zone: t.Zone, After: t.After, Guard: t.Guard,
			MaxAge: t.MaxAge, MaxAhead: t.MaxAhead},
	}
	if p := c.Multiline.Preset; p != "none" {
		r.Multiline.Preset = p
	}
	return r
}

// checkEnvelope refuses what is said about an envelope that no record gets. In `defaults` it may be for some of the sources.
func (c *Config) checkEnvelope() error {
	used := slices.ContainsFunc(c.Sources, func(s SourceConfig) bool { return s.Record.Format == "json" })
	for i := range c.Sources {
		r, at := &c.Sources[i].Record, fmt.Sprintf("sources[%d].", i)
		if r.Format == "json" || r.JSON.Object == "text" && len(r.JSON.Fields) == 0 {
			continue
		}
		if at = c.whereSet(at, "json"); !used || at != "defaults.json" {
			return c.errorAt(at, "is about the object that format: json makes of a line, and the format here is raw: add format: json, or remove it")
		}
	}
	return nil
}

// checkRecord compiles what the source says about its records, to find what is wrong with it at its line.
func (c *Config) checkRecord(at string, s *SourceConfig) error {
	r := s.toRecord()
	r.Source, r.RecordBytesMax, r.Topic = s.Name, int(s.LineBytesMax), s.Topic
	_, err := record.Compile(r)
	if wrong, ok := errors.AsType[*record.ConfigError](err); ok {
		return c.errorAt(c.whereSetAbove(at, wrong.Key), "%s", wrong.Msg)
	}
	return err
}

// whereSetAbove is whereSet for a key that may be deeper than what the file gives.
func (c *Config) whereSetAbove(at, name string) string {
	for k := name; k != ""; k = parentKey(k) {
		if where := c.whereSet(at, k); c.lines[where] > 0 {
			return strings.TrimSuffix(where, k) + name
		}
	}
	return at + name
}
