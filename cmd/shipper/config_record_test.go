package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"shipper/pipeline/record"
)

// Every key that says what lines become reaches its place in package record.
func TestRecordKeys(t *testing.T) {
	c := mustParse(t, strings.Replace(minimal, "app-logs", `"app-{namespace}"
    format: json
    json: {object: merge, fields: {env: prod, "odd name": "7"}}
    container: auto
    multiline: {start: '^\d', max_lines: 7, timeout: 2s}
    filter:
      include: [{contains: a}, {glob: "b*"}]
      exclude: [{regex: "c+"}]
      sample: {one_in: 3, by: hash}
      rate_limit: {lines: 10, bytes: 1MiB, when_above: drop}
    redact: [{pattern: card, keep_length: true}, {regex: "x(y)", with: z}]
    key: "{namespace}/{pod}"
    headers: [host, offset]
    static_headers: {team: shop}
    timestamp: {from: container, layout: rfc3339, zone: Europe/Berlin, guard: clamp, max_age: 7d, max_ahead: 1h}`, 1))
	want := record.Config{
		Container: record.Auto,
		Timeout:   2 * time.Second,
		Multiline: record.Multiline{Start: `^\d`, LinesMax: 7},
		Filter: record.Filter{Include: []record.Match{{Contains: "a"}, {Glob: "b*"}}, Exclude: []record.Match{{Regex: "c+"}},
			SampleOneIn: 3, SampleByHash: true, LinesPerSecond: 10, BytesPerSecond: 1 << 20, LimitDrops: true},
		Redact:        []record.Redact{{Pattern: "card", KeepLength: true}, {Regex: "x(y)", With: "z"}},
		JSON:          record.JSON{On: true, Object: record.ObjectMerge, Fields: []record.Field{{Name: "env", Value: "prod"}, {Name: "odd name", Value: "7"}}},
		Headers:       []string{"host", "offset"},
		StaticHeaders: []record.Field{{Name: "team", Value: "shop"}},
		Key:           "{namespace}/{pod}",
		Timestamp:     record.Timestamp{From: "container", Layout: "rfc3339", Zone: "Europe/Berlin", Guard: "clamp", MaxAge: 7 * 24 * time.Hour, MaxAhead: time.Hour},
	}
	if got := c.Sources[0].toRecord(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	m := mustParse(t, strings.Replace(minimal, "topic", "multiline: {preset: java}\n    topic", 1)).Sources[0].toRecord().Multiline
	if want := (record.Multiline{Preset: "java", LinesMax: 1000}); m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

// What is wrong about records is told at its line, also in `defaults`.
func TestRecordRefusals(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"topic", "multiline: {start: '('}\n    topic", "x.yaml:8: sources[0].multiline.start: \"(\": error parsing regexp: missing closing ): `(`"},
		{"topic", "multiline: {start: a, indent: true}\n    topic", `x.yaml:8: sources[0].multiline: has more than one of preset, start, continue, indent and count; one of them says what a record is`},
		{"topic", "multiline:\n      preset: jav\n    topic", `x.yaml:9: sources[0].multiline.preset: is "jav"; allowed: none, dotnet, go, java, python, ruby; did you mean "java"?`},
		{"topic", "filter:\n      include:\n        - {regexp: a}\n    topic", `x.yaml:10: sources[0].filter.include[0].regexp: unknown key; did you mean "regex"?`},
		{"topic", "filter:\n      include:\n        - {regex: a, glob: b}\n    topic", `x.yaml:10: sources[0].filter.include[0]: must have exactly one of contains, glob and regex`},
		{"topic", "redact:\n      - {pattern: cards}\n    topic", `x.yaml:9: sources[0].redact[0].pattern: is "cards"; allowed: card, email, token; did you mean "card"?`},
		{"topic", "headers: [hots]\n    topic", `x.yaml:8: sources[0].headers[0]: is "hots"; allowed: offset, stream, time, host, path, source, namespace, pod, container; did you mean "host"?`},
		{"topic", "static_headers: {a: 7}\n    topic", `x.yaml:8: sources[0].static_headers.a: must be a string; write it in quotes, as in "7"`},
		{"topic", "key: nmae\n    topic", `x.yaml:8: sources[0].key: is "nmae"; it is none, field:NAME, one of host, path, source, stream, namespace, pod, container, or a template of these in braces`},
		{"topic", "container: cri\n    max_line_bytes: 64KiB\n    topic", `x.yaml:9: sources[0].max_line_bytes: is 65536; with a container format it is at least 131072`},
		{"app-logs", `"app-{path}"`, `x.yaml:8: sources[0].topic: {path} is unknown; known: {host}, {source}, {namespace}, {pod}, {container}`},
		{"app-logs", `"app {host}"`, `x.yaml:8: sources[0].topic: is "app {host}"; a Kafka topic is not . or .. and has 1 to 249 characters out of a-z A-Z 0-9 . _ -`},
		{"topic", "timestamp:\n      zone: Mars\n    topic", `x.yaml:9: sources[0].timestamp.zone: "Mars" is not a time zone that this host knows; as in Europe/Berlin, UTC or Local`},
		{"topic", "timestamp:\n      layout: Jan _2 15:04:05 MST\n    topic", `x.yaml:9: sources[0].timestamp.layout: "Jan _2 15:04:05 MST" tells the zone by a name, and which offset CST has is anybody's guess; ` +
			`set timestamp.zone to a zone that goes by these names, as Europe/Berlin for CET and CEST, or have -0700 in the times and the layout`},
		{"topic", "json: {fields: {env: prod}}\n    topic", `x.yaml:8: sources[0].json: is about the object that format: json makes of a line, and the format here is raw: add format: json, or remove it`},
		{"", "defaults:\n  json:\n    object: merge\n", `x.yaml:10: defaults.json: is about the object that format: json makes of a line, and the format here is raw: add format: json, or remove it`},
		{"", "defaults:\n  timestamp:\n    from: lines\n", `x.yaml:11: defaults.timestamp.from: is "lines"; it is read, line, container or field:NAME`},
	} {
		text := minimal + c.new
		if c.old != "" {
			text = strings.Replace(minimal, c.old, c.new, 1)
		}
		_, err := parseConfig("x.yaml", []byte(text), func(string) (string, bool) { return "", false })
		if err == nil || err.Error() != c.want {
			t.Errorf("for %q\ngot  %v\nwant %s", c.new, err, c.want)
		}
	}
}
