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

	LinesPerSecond float64 // of all files together; 0: no limit
	BytesPerSecond float64
	LimitDrops     bool // what is too much is dropped; else files pause in turns
}

type filter struct {
	any              bool
	include, exclude []matcher
	limit            *limit // nil: none
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
	f.filter.limit = newLimit(c)
	f.filter.any = len(c.Include)+len(c.Exclude) > 0 || c.SampleOneIn > 1 || f.filter.limit != nil
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
	if f.limit == nil {
		return 0, false
	}
	if wait := s.grant.wait(f.limit, now); wait > 0 {
		if c.LimitDrops {
			return Limited, true
		}
		s.paused = now.Add(max(wait, time.Millisecond))
	}
	return 0, false
}
