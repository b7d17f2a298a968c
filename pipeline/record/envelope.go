package record

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Object says what becomes of a line that is a JSON object itself, in an envelope.
type Object uint8

const (
	ObjectText  Object = iota // it is the message, a string like any other line
	ObjectMerge               // its members stand beside ours; where both have a name, the line's stays
	ObjectNest                // it is the value of the member json
)

// JSON says that values are JSON objects around the lines.
//
//	{"@timestamp":"2026-11-29T23:28:47.120Z","host":"h","path":"/var/log/a.log","source":"app","offset":4096,"message":"..."}
//
// A container's lines have stream and time too, and namespace, pod and container where the path tells them.
type JSON struct {
	On     bool
	Object Object
	Fields []Field
}

type envelope struct {
	object Object
}

// Members whose value is not known before the record is.
const (
	memberTime = iota
	memberOffset
	memberStream
	memberContainerTime
	membersOfRecord
)

var memberNames = [membersOfRecord]string{"@timestamp", "offset", "stream", "time"}

// The members of ObjectText and ObjectNest.
const messageName, objectName = "message", "json"

func (f *Format) compileEnvelope() error {
	c := &f.cfg.JSON
	if !c.On {
		return nil
	}
	if err := checkFields("json.fields", c.Fields); err != nil {
		return err
	}
	for _, x := range c.Fields {
		if x.Name == messageName || x.Name == objectName {
			return wrong("json.fields", "%q is the name of what the line says", x.Name)
		}
	}
	f.envelope = &envelope{object: c.Object}
	return nil
}

func checkFields(key string, fields []Field) error {
	if len(fields) > headersMax {
		return wrong(key, "has %d items; at most %d are allowed", len(fields), headersMax)
	}
	bytes := 0
	for _, x := range fields {
		if x.Name == "" || !utf8.ValidString(x.Name) || !utf8.ValidString(x.Value) {
			return wrong(key, "%q: a name is not empty, and name and value are UTF-8", x.Name)
		}
		bytes += len(x.Name) + len(x.Value)
	}
	if bytes > staticBytesMax {
		return wrong(key, "has %d bytes of names and values; at most %d are allowed", bytes, staticBytesMax)
	}
	return nil
}

// fixed is one member that is the same for all records of a path, as it stands in the envelope with its comma.
type fixed struct {
	name string
	text []byte
}

// fixedMembers are made anew when the path changes.
func (s *Stream) fixedMembers() []fixed {
	a := &s.attrs
	var out []fixed
	add := func(name, value string) {
		for i := range out {
			if out[i].name == name {
				return
			}
		}
		text := append([]byte(nil), ',')
		text, _, _ = appendString(text, []byte(name), staticBytesMax)
		text, _, _ = appendString(append(text, ':'), []byte(value), len(text)+2*attrBytesMax)
		out = append(out, fixed{name, text})
	}
	for _, x := range s.f.cfg.JSON.Fields { // first: they win over what else has their name
		add(x.Name, x.Value)
	}
	add("host", s.f.cfg.Host)
	add("path", a.path)
	add("source", s.f.cfg.Source)
	for _, x := range []Field{{"namespace", a.labels.Namespace}, {"pod", a.labels.Pod}, {"container", a.labels.Container}} {
		if x.Value != "" {
			add(x.Name, x.Value)
		}
	}
	return out
}

// wrap makes the envelope.
func (s *Stream) wrap(u *unit, text []byte) []byte {
	sc := s.sc
	limit := s.f.valueBytesMax()
	if s.f.envelope.object != ObjectText && isObject(text) {
		repair := !utf8.Valid(text)
		if s.f.envelope.object == ObjectMerge {
			sc.value = s.merge(sc.value[:0], u, text, repair)
		} else {
			sc.value = s.members(sc.value[:0], u, nil)
			sc.value = append(sc.value, `,"`+objectName+`":`...)
			sc.value = append(appendObject(sc.value, text, repair), '}')
		}
		if len(sc.value) <= limit {
			if repair {
				s.note(Repaired)
			}
			return sc.value
		}
	}
	sc.value = s.members(sc.value[:0], u, nil)
	sc.value = append(sc.value, `,"`+messageName+`":`...)
	var repaired, cut bool
	sc.value, repaired, cut = appendString(sc.value, text, limit-1)
	if repaired {
		s.note(Repaired)
	}
	if cut {
		s.note(EnvelopeCut)
	}
	sc.value = append(sc.value, '}')
	return sc.value
}

func appendObject(dst, object []byte, repair bool) []byte {
	if repair {
		return appendRepaired(dst, object)
	}
	return append(dst, object...)
}

// merge writes our members that the object does not have, then those of the object.
func (s *Stream) merge(dst []byte, u *unit, object []byte, repair bool) []byte {
	m := objectMembers(object)
	from := m.i
	s.sc.names = s.sc.names[:0]
	for x, ok := m.next(); ok; x, ok = m.next() {
		s.sc.names = append(s.sc.names, object[x.name+1:x.nameEnd-1])
	}
	dst = s.members(dst, u, s.sc.names)
	if len(s.sc.names) > 0 {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = appendObject(dst, object[from:m.i-1], repair)
	}
	return append(dst, '}')
}

// members writes a brace and our members but those in taken.
func (s *Stream) members(dst []byte, u *unit, taken [][]byte) []byte {
	free := func(member int) bool {
		return s.attrs.own>>member&1 == 0 && !isTaken(taken, memberNames[member])
	}
	dst = append(dst, '{')
	if free(memberTime) {
		dst = s.sc.appendTime(dst, s.rec.TimeMs)
	}
	for i := range s.attrs.fixed {
		x := &s.attrs.fixed[i]
		if !isTaken(taken, x.name) {
			dst = append(dst, x.text...)
		}
	}
	if free(memberOffset) {
		dst = append(dst, `,"offset":`...)
		dst = strconv.AppendInt(dst, u.start, 10)
	}
	if u.stream < streams && s.f.cfg.Container != NoContainer {
		if free(memberStream) {
			dst = append(append(append(dst, `,"stream":"`...), streamNames[u.stream]...), '"')
		}
		if len(u.time) > 0 && free(memberContainerTime) {
			dst, _, _ = appendString(append(dst, `,"time":`...), u.time, len(dst)+attrBytesMax)
		}
	}
	if len(dst) > 1 && dst[1] == ',' {
		dst = append(dst[:1], dst[2:]...)
	}
	return dst
}

// appendTime appends the member of a time. Most records have that of the one before, and to write it is dear.
func (sc *Scratch) appendTime(dst []byte, ms int64) []byte {
	if len(sc.timeMember) == 0 || sc.timeMs != ms {
		sc.timeMs = ms
		sc.timeMember = time.UnixMilli(ms).UTC().AppendFormat(append(sc.timeMember[:0], `"@timestamp":"`...), `2006-01-02T15:04:05.000Z"`)
	}
	return append(dst, sc.timeMember...)
}

func isTaken(taken [][]byte, name string) bool {
	for _, raw := range taken {
		if nameIs(raw, name) {
			return true
		}
	}
	return false
}
