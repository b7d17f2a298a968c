package record

import (
	"bytes"
	"fmt"
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"
)

func lowest(set uint32) int { return bits.TrailingZeros32(set) }

// Match describes texts; exactly one of its fields is given.
type Match struct {
	Contains string // the text holds it
	Glob     string // the whole text is so: * any bytes, ? one byte
	Regex    string // RE2, anywhere in the text
}

// Filter says which records are kept.
type Filter struct {
	Include []Match // if there are any, a record must match one of them
	Exclude []Match // a record must match none of them

	SampleOneIn  int  // keep one record in so many; 0, 1: all
	SampleByHash bool // the same text is always kept or always dropped; else every n-th record of a file is kept

	LinesPerSecond float64 // of each file; 0: no limit
	BytesPerSecond float64
	LimitDrops     bool // what is too much is dropped; else reading of the file pauses
}

type filter struct {
	any              bool
	include, exclude []matcher
}

type matcher struct {
	contains []byte
	glob     string
	re       *pattern
}

func (f *Format) compileFilter() error {
	c := &f.cfg.Filter
	for _, list := range []struct {
		key string
		in  []Match
		out *[]matcher
	}{{"filter.include", c.Include, &f.filter.include}, {"filter.exclude", c.Exclude, &f.filter.exclude}} {
		if len(list.in) > rulesMax {
			return wrong(list.key, "has %d items; at most %d are allowed", len(list.in), rulesMax)
		}
		for i, m := range list.in {
			x, err := compileMatch(fmt.Sprintf("%s[%d]", list.key, i), m)
			if err != nil {
				return err
			}
			*list.out = append(*list.out, x)
		}
	}
	if c.SampleOneIn < 0 {
		return wrong("filter.sample.one_in", "is negative")
	}
	if c.LinesPerSecond < 0 || c.BytesPerSecond < 0 {
		return wrong("filter.rate_limit", "is negative")
	}
	f.filter.any = len(c.Include)+len(c.Exclude) > 0 || c.SampleOneIn > 1 || c.LinesPerSecond > 0 || c.BytesPerSecond > 0
	return nil
}

func compileMatch(key string, m Match) (matcher, error) {
	given := 0
	for _, s := range []string{m.Contains, m.Glob, m.Regex} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return matcher{}, wrong(key, "must have exactly one of contains, glob and regex")
	}
	x := matcher{contains: []byte(m.Contains), glob: m.Glob}
	if m.Regex != "" {
		re, err := compilePattern(m.Regex)
		if err != nil {
			return matcher{}, wrong(key+".regex", "%v", err)
		}
		x.re = re
	}
	return x, nil
}

func (m *matcher) match(b []byte) bool {
	switch {
	case m.re != nil:
		return m.re.match(b)
	case m.glob != "":
		return globMatch(m.glob, b)
	}
	return bytes.Contains(b, m.contains)
}

func matchAny(list []matcher, b []byte) bool {
	for i := range list {
		if list[i].match(b) {
			return true
		}
	}
	return false
}

// judge says whether a record is dropped, and why. If a rate limit says wait, paused is set.
func (s *Stream) judge(text []byte, now time.Time) (why Reason, drop bool) {
	f, c := &s.f.filter, &s.f.cfg.Filter
	if !f.any {
		return 0, false
	}
	if len(f.include) > 0 && !matchAny(f.include, text) || matchAny(f.exclude, text) {
		return Excluded, true
	}
	if n := uint64(c.SampleOneIn); n > 1 {
		key := s.count
		if c.SampleByHash {
			key = xxhash.Sum64(text)
		}
		if key%n != 0 {
			return Sampled, true
		}
	}
	if wait := s.limit.wait(c, now); wait > 0 {
		if c.LimitDrops {
			return Limited, true
		}
		s.paused = now.Add(wait)
	}
	return 0, false
}

// limiter is two token buckets, of one second each.
type limiter struct {
	lines, bytes float64 // left; bytes may be below zero: one record may be larger than the bucket
	at           time.Time
}

// wait is how long the next record must wait.
func (l *limiter) wait(c *Filter, now time.Time) time.Duration {
	if c.LinesPerSecond <= 0 && c.BytesPerSecond <= 0 {
		return 0
	}
	passed := max(0, now.Sub(l.at).Seconds())
	if l.at.IsZero() {
		passed = 1
	}
	l.at = now
	l.lines = min(l.lines+passed*c.LinesPerSecond, max(1, c.LinesPerSecond))
	l.bytes = min(l.bytes+passed*c.BytesPerSecond, c.BytesPerSecond)
	seconds := 0.0
	if c.LinesPerSecond > 0 && l.lines < 1 {
		seconds = (1 - l.lines) / c.LinesPerSecond
	}
	if c.BytesPerSecond > 0 && l.bytes <= 0 {
		seconds = max(seconds, (1-l.bytes)/c.BytesPerSecond)
	}
	if seconds == 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(seconds*float64(time.Second)))
}

// spend takes one record of n bytes.
func (l *limiter) spend(n int) {
	l.lines--
	l.bytes -= float64(n)
}
