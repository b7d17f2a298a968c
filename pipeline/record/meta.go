package record

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Labels are what the path of a container's log says.
type Labels struct{ Namespace, Pod, Container string }

// LabelsOf takes labels from the two forms of paths that a kubelet makes:
//
//	.../pods/NAMESPACE_POD_UID/CONTAINER/N.log, also with what rotation puts behind it
//	.../POD_NAMESPACE_CONTAINER-ID.log, wherever /var/log/containers is found
func LabelsOf(path string) (l Labels) {
	dir, file := filepath.Split(path)
	parts := strings.Split(strings.Trim(dir, "/"), "/")
	if n := len(parts); n >= 3 && parts[n-3] == "pods" {
		names := strings.Split(parts[n-2], "_")
		if len(names) == 3 && file != "" && digit(file[0]) {
			return Labels{Namespace: names[0], Pod: names[1], Container: parts[n-1]}
		}
	}
	name, _, _ := strings.Cut(file, ".log")
	names := strings.Split(name, "_")
	if len(names) != 3 {
		return Labels{}
	}
	const idBytes = 64
	container, id, ok := cutLast(names[2], '-')
	if !ok || len(id) != idBytes || strings.Trim(id, "0123456789abcdef") != "" {
		return Labels{}
	}
	return Labels{Namespace: names[1], Pod: names[0], Container: container}
}

// cutLast is strings.Cut at the last sep.
func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// attrs are what is the same for all records of a path.
type attrs struct {
	path    string
	labels  Labels
	fixed   []fixed  // of the envelope
	own     uint     // members of memberNames that a field of the config replaces, a set
	headers []Header // those that do not depend on the record
}

// SetPath tells where the file is now.
func (s *Stream) SetPath(path string) {
	if s.attrs.path == path && path != "" {
		return
	}
	s.attrs = attrs{path: path, labels: LabelsOf(path)}
	a := &s.attrs
	for i, name := range memberNames {
		if slices.ContainsFunc(s.f.cfg.JSON.Fields, func(x Field) bool { return x.Name == name }) {
			a.own |= 1 << i
		}
	}
	if s.f.envelope != nil {
		a.fixed = s.fixedMembers()
	}
	add := func(name, value string) {
		if value != "" {
			a.headers = append(a.headers, Header{Name: []byte(name), Value: []byte(value[:min(len(value), attrBytesMax)])})
		}
	}
	for _, h := range s.f.headers {
		if h < headersOfRecord {
			continue
		}
		add(headerNames[h], s.attr(headerNames[h]))
	}
	for _, x := range s.f.cfg.StaticHeaders {
		a.headers = append(a.headers, Header{Name: []byte(x.Name), Value: []byte(x.Value)})
	}
}

// attr is an attribute of the file by name.
func (s *Stream) attr(name string) string {
	switch name {
	case "host":
		return s.f.cfg.Host
	case "source":
		return s.f.cfg.Source
	case "path":
		return s.attrs.path
	case "namespace":
		return s.attrs.labels.Namespace
	case "pod":
		return s.attrs.labels.Pod
	case "container":
		return s.attrs.labels.Container
	}
	return ""
}

// headerKind is an index into headerNames: first those that differ from record to record.
type headerKind int

const (
	headerOffset headerKind = iota
	headerStream
	headerTime
	headersOfRecord
)

var headerNames = []string{"offset", "stream", "time", "host", "path", "source", "namespace", "pod", "container"}

// HeaderNames are the names that Config.Headers takes.
func HeaderNames() []string { return slices.Clone(headerNames) }

// originalTime is the header of a record whose time was not kept.
var originalTime = []byte("original_time")

func (f *Format) compileHeaders() error {
	for _, name := range f.cfg.Headers {
		i := slices.Index(headerNames, name)
		if i < 0 {
			return wrong("headers", "%q is unknown; known: %s", name, strings.Join(headerNames, ", "))
		}
		f.headers = append(f.headers, headerKind(i))
	}
	return checkFields("static_headers", f.cfg.StaticHeaders)
}

// headerBytesMax is the most bytes that headers take in a record.
func (f *Format) headerBytesMax() int {
	const lengths = 10
	n := 0
	for range f.headers {
		n += lengths + len("container") + 256
	}
	if slices.ContainsFunc(f.headers, func(h headerKind) bool { return headerNames[h] == "path" }) {
		n += attrBytesMax
	}
	for _, x := range f.cfg.StaticHeaders {
		n += lengths + len(x.Name) + len(x.Value)
	}
	if f.time.guards {
		n += lengths + len(originalTime) + 32
	}
	return n
}

// makeHeaders appends the headers of u. found is the time that its line says, in ms, and told if it was moved.
func (s *Stream) makeHeaders(u *unit, found int64, moved bool) {
	if len(s.f.headers) == 0 && len(s.f.cfg.StaticHeaders) == 0 && !moved {
		return
	}
	sc := s.sc
	sc.headers, sc.numbers = append(sc.headers[:0], s.attrs.headers...), sc.numbers[:0]
	contained := u.stream < streams && s.f.cfg.Container != NoContainer
	for _, h := range s.f.headers {
		switch {
		case h == headerOffset:
			from := len(sc.numbers)
			sc.numbers = strconv.AppendInt(sc.numbers, u.start, 10)
			sc.headers = append(sc.headers, Header{headerBytes[h], sc.numbers[from:]})
		case h == headerStream && contained:
			sc.headers = append(sc.headers, Header{headerBytes[h], streamNames[u.stream]})
		case h == headerTime && contained && len(u.time) > 0:
			sc.headers = append(sc.headers, Header{headerBytes[h], u.time[:min(len(u.time), 64)]})
		}
	}
	if moved {
		from := len(sc.numbers)
		sc.numbers = time.UnixMilli(found).UTC().AppendFormat(sc.numbers, time.RFC3339Nano)
		sc.headers = append(sc.headers, Header{originalTime, sc.numbers[from:]})
	}
	s.rec.Headers = sc.headers
}

var headerBytes = func() (b [headersOfRecord][]byte) {
	for i := range b {
		b[i] = []byte(headerNames[i])
	}
	return b
}()

// template is text with attributes in braces, in parts.
type template []segment

type segment struct {
	text  string   // as it is, if attr is ""
	attr  string   // an attribute of the file, or stream
	field []string // path of a JSON field; attr is "field" then
}

// parseTemplate reads s; attributes are the names that may stand in braces, and field:NAME if fields.
func parseTemplate(key, s string, attributes []string, fields bool) (t template, err error) {
	if len(s) > templateMax {
		return nil, wrong(key, "has %d bytes; at most %d are allowed", len(s), templateMax)
	}
	for s != "" {
		text, rest, open := strings.Cut(s, "{")
		if strings.Contains(text, "}") {
			return nil, wrong(key, "has a closing brace without an opening one")
		}
		if text != "" {
			t = append(t, segment{text: text})
		}
		if !open {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		s = after
		path, isField := strings.CutPrefix(name, "field:")
		switch {
		case !closed:
			return nil, wrong(key, "has an opening brace without a closing one")
		case isField && fields && path != "":
			t = append(t, segment{attr: "field", field: strings.Split(path, ".")})
		case slices.Contains(attributes, name):
			t = append(t, segment{attr: name})
		default:
			return nil, wrong(key, "{%s} is unknown; known: {%s}", name, strings.Join(attributes, "}, {"))
		}
	}
	return t, nil
}

func (f *Format) compileKey() (err error) {
	attributes := []string{"host", "path", "source", "stream", "namespace", "pod", "container"}
	k := f.cfg.Key
	switch {
	case k == "" || k == "none":
		return nil
	case strings.HasPrefix(k, "field:") || slices.Contains(attributes, k):
		k = "{" + k + "}"
	case !strings.Contains(k, "{"):
		return wrong("key", "is %q; it is none, field:NAME, one of %s, or a template of these in braces", k, strings.Join(attributes, ", "))
	}
	f.key, err = parseTemplate("key", k, attributes, true)
	return err
}

// makeKey makes the key. Without a field that it names, or with null in it, there is none; an empty text is a key like any other.
func (s *Stream) makeKey(u *unit, text []byte) {
	sc := s.sc
	sc.key = sc.key[:0]
	for i := range s.f.key {
		switch g := &s.f.key[i]; g.attr {
		case "":
			sc.key = append(sc.key, g.text...)
		case "field":
			raw, ok := lookUp(text, g.field)
			if !ok || string(raw) == "null" {
				s.note(NoKey)
				return
			}
			if raw[0] == '"' {
				sc.key = appendUnescaped(sc.key, raw[1:len(raw)-1])
			} else {
				sc.key = append(sc.key, raw...)
			}
		case "stream":
			if u.stream < streams && s.f.cfg.Container != NoContainer {
				sc.key = append(sc.key, streamNames[u.stream]...)
			}
		default:
			sc.key = append(sc.key, s.attr(g.attr)...)
		}
	}
	s.rec.Key, s.rec.HasKey = sc.key[:min(len(sc.key), keyBytesMax)], true
}

// What a template may make a topic of. A path tells them, and who may make files there; never what is in a line.
var topicAttributes = []string{"host", "source", "namespace", "pod", "container"}

const topicBytesMax = 249

func (f *Format) compileTopic() (err error) {
	f.topic, err = parseTemplate("topic", f.cfg.Topic, topicAttributes, false)
	return err
}

// Topic is the topic of a file. What a topic may not hold becomes a hyphen, and a name that is too long ends in a hash of
// itself. An attribute that the path does not tell is "unknown".
func (f *Format) Topic(path string) string {
	s := Stream{f: f, attrs: attrs{path: path, labels: LabelsOf(path)}}
	var b strings.Builder
	for _, g := range f.topic {
		text := g.text
		if g.attr != "" {
			if text = s.attr(g.attr); text == "" {
				text = "unknown"
			}
		}
		b.WriteString(text)
	}
	name := []byte(b.String())
	for i, c := range name {
		if !letter(c) && !digit(c) && c != '.' && c != '_' && c != '-' {
			name[i] = '-'
		}
	}
	if len(name) > topicBytesMax {
		sum := strconv.FormatUint(xxhash.Sum64(name), 16)
		name = append(append(name[:topicBytesMax-1-len(sum)], '-'), sum...)
	}
	if topic := string(name); topic != "." && topic != ".." {
		return topic
	}
	return "-"
}

// TopicIsTemplate tells whether files may have different topics.
func (f *Format) TopicIsTemplate() bool {
	return slices.ContainsFunc(f.topic, func(g segment) bool { return g.attr != "" })
}
