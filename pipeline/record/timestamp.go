package record

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Timestamp says which time a record has.
type Timestamp struct {
	From   string // "", read: when the line was read. line, field:NAME, container: what stands there
	Layout string // Go's, or one of rfc3339, unix, unix_ms, clf, syslog; "": rfc3339
	Zone   string // of times that name none; "": UTC
	After  string // line: the time stands behind the first of these; "": at the start

	Guard    string        // what becomes of a time outside MaxAge and MaxAhead: "", keep, clamp (the nearest inside), now
	MaxAge   time.Duration // 0: any
	MaxAhead time.Duration
}

type timeFrom uint8

const (
	timeRead timeFrom = iota
	timeLine
	timeField
	timeContainer
)

type timeRule struct {
	from   timeFrom
	field  []string
	layout string
	unit   int64 // of a number: so many make a second; 0: not a number
	words  int   // of layout, between blanks
	noYear bool
	named  bool // layout tells the zone by a name alone
	zone   *time.Location
	after  []byte
	guards bool
	clamp  bool
}

var layouts = map[string]string{"": time.RFC3339Nano, "rfc3339": time.RFC3339Nano, "clf": "02/Jan/2006:15:04:05 -0700", "syslog": time.Stamp}

func (f *Format) compileTime() error {
	c, r := &f.cfg.Timestamp, &f.time
	name, isField := strings.CutPrefix(c.From, "field:")
	switch {
	case c.From == "" || c.From == "read":
	case c.From == "line":
		r.from = timeLine
	case c.From == "container":
		if r.from = timeContainer; f.cfg.Container == NoContainer {
			return wrong("timestamp.from", "is container, but the source has no container format")
		}
	case isField && name != "":
		r.from, r.field = timeField, strings.Split(name, ".")
	default:
		return wrong("timestamp.from", "is %q; it is read, line, container or field:NAME", c.From)
	}
	switch c.Layout {
	case "unix":
		r.unit = 1
	case "unix_ms":
		r.unit = 1000
	default:
		r.layout = c.Layout
		if l, ok := layouts[c.Layout]; ok {
			r.layout = l
		}
		r.noYear = !strings.Contains(r.layout, "06")
		if err := checkLayout(r.layout); err != nil {
			return err
		}
	}
	r.words = len(strings.Fields(r.layout))
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return wrong("timestamp.zone", "%q is not a time zone that this host knows; as in Europe/Berlin, UTC or Local", c.Zone)
	}
	r.zone, r.after = zone, []byte(c.After)
	if r.named = strings.Contains(r.layout, "MST") && !strings.Contains(r.layout, "07"); r.named && zone == time.UTC {
		return wrong("timestamp.layout", "%q tells the zone by a name, and which offset CST has is anybody's guess; "+
			"set timestamp.zone to a zone that goes by these names, as Europe/Berlin for CET and CEST, or have -0700 in the times and the layout", r.layout)
	}
	switch c.Guard {
	case "", "keep":
	case "clamp", "now":
		r.guards, r.clamp = true, c.Guard == "clamp"
		if c.MaxAge == 0 && c.MaxAhead == 0 {
			return wrong("timestamp.guard", "is %s, but neither max_age nor max_ahead is given", c.Guard)
		}
	default:
		return wrong("timestamp.guard", "is %q; it is keep, clamp or now", c.Guard)
	}
	return nil
}

// checkLayout refuses a layout that does not tell the hour, the day and the month: without them a time would be made up.
func checkLayout(layout string) error {
	says := func(month time.Month, day, hour int) string {
		return time.Date(2007, month, day, hour, 11, 12, 0, time.UTC).Format(layout)
	}
	const how = "write it as this moment would be written: 2006-01-02 15:04:05, or name one of rfc3339, unix, unix_ms, clf, syslog"
	at := says(time.August, 9, 10)
	switch {
	case at == says(time.August, 9, 21):
		return wrong("timestamp.layout", "%q tells no time of day; %s", layout, how)
	case at == says(time.August, 10, 10) || at == says(time.September, 9, 10):
		return wrong("timestamp.layout", "%q tells no day and month, and they would be made up; %s", layout, how)
	}
	return nil
}

// timeOf is the record's time in ms; found is what it says itself, which was not kept if moved.
func (s *Stream) timeOf(u *unit, text []byte, now time.Time) (ms, found int64, moved bool) {
	r := &s.f.time
	read := now.UnixMilli()
	if r.from == timeRead {
		return read, read, false
	}
	var at []byte
	switch r.from {
	case timeLine:
		at = text
		if len(r.after) > 0 {
			i := bytes.Index(at, r.after)
			at = at[max(0, i+len(r.after)):]
			if i < 0 {
				at = nil
			}
		}
	case timeField:
		at, _ = lookUp(text, r.field)
		at = bytes.Trim(at, `"`)
	case timeContainer:
		at = u.time
	}
	found, ok := r.parse(at, now)
	kept := found
	if c := &s.f.cfg.Timestamp; ok && r.guards {
		if c.MaxAge > 0 {
			kept = max(kept, read-c.MaxAge.Milliseconds())
		}
		if c.MaxAhead > 0 {
			kept = min(kept, read+c.MaxAhead.Milliseconds())
		}
	}
	if !ok || kept < timeMin || kept >= timeMax {
		s.note(NoTime)
		return read, read, false
	}
	if kept == found {
		return found, found, false
	}
	s.note(TimeClamped)
	if !r.clamp {
		kept = read
	}
	return kept, found, true
}

const timeBytesMax = 64

// Times that a record may have, in ms: of the years 1971 to 2999. What is outside, and what no guard moves, is no time but garbage.
var timeMin, timeMax = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// parse reads the time at the start of b.
func (r *timeRule) parse(b []byte, now time.Time) (ms int64, ok bool) {
	b = bytes.TrimLeft(b, " ")
	if r.unit > 0 {
		return r.parseNumber(b)
	}
	end, words := 0, 0
	for end < len(b) && end < timeBytesMax {
		if b[end] == ' ' && end > 0 && b[end-1] != ' ' {
			if words++; words == r.words {
				break
			}
		}
		end++
	}
	for end > 0 && bytes.IndexByte([]byte("]),;:|\"\t"), b[end-1]) >= 0 {
		end--
	}
	if end == 0 || !digit(b[end-1]) && !letter(b[end-1]) || !digit(b[0]) && !letter(b[0]) {
		return 0, false
	}
	t, err := time.ParseInLocation(r.layout, string(b[:end]), r.zone)
	if err != nil || r.named && !r.knows(t) {
		return 0, false
	}
	if r.noYear {
		t = lastOf(t, now.In(r.zone))
	}
	return t.UnixMilli(), true
}

// knows tells whether the zone that t names is ours or UTC: of others the name says no offset, and t has none.
func (r *timeRule) knows(t time.Time) bool {
	name, _ := t.Zone()
	return t.Location() == r.zone || t.Location() == time.UTC || strings.HasPrefix(name, "GMT")
}

// lastOf gives t, which is of the year 0, the last year that has its day and in which it is no more than a day ahead of now. The
// year before is not always one: a 29th of February would become a 1st of March.
func lastOf(t, now time.Time) time.Time {
	const leapYears = 8 // from one to the next, where a century stands between them
	for year := now.Year() + 1; year >= now.Year()-leapYears; year-- {
		if at := t.AddDate(year, 0, 0); at.Day() == t.Day() && !at.After(now.Add(24*time.Hour)) {
			return at
		}
	}
	return t
}

// unitMsMax is in the year 10000: more than that is no time, guard or not.
const unitMsMax = 253_402_300_800_000

func (r *timeRule) parseNumber(b []byte) (ms int64, ok bool) {
	end := 0
	for end < len(b) && end < timeBytesMax && (digit(b[end]) || b[end] == '.') {
		end++
	}
	if end == 0 || end < len(b) && letter(b[end]) { // 1e30
		return 0, false
	}
	x, err := strconv.ParseFloat(string(b[:end]), 64)
	if err != nil {
		return 0, false
	}
	if x = x * 1000 / float64(r.unit); x > unitMsMax {
		return 0, false
	}
	return int64(x), true
}
