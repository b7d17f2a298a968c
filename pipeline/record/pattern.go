package record

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"strings"
)

// pattern is a regular expression (RE2) behind two cheap questions that most texts fail: may a match begin with the first
// byte, and is a literal there that every match holds.
type pattern struct {
	re      *regexp.Regexp
	first   *[256]bool // bytes that a text which matches may begin with; nil: any, or an empty text may match
	literal []byte     // part of every match; empty: none is known
	whole   bool       // the literal is all there is to find
}

func compilePattern(expr string) (*pattern, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	p := &pattern{re: re}
	parsed = parsed.Simplify()
	if parsed.Op == syntax.OpLiteral && parsed.Flags&syntax.FoldCase == 0 {
		p.whole = true
	}
	p.literal = []byte(requiredLiteral(parsed))
	var first [256]bool
	if anchored(parsed) && firstBytes(parsed, &first) {
		p.first = &first
	}
	return p, nil
}

// match allocates nothing.
func (p *pattern) match(b []byte) bool {
	if p.first != nil && (len(b) == 0 || !p.first[b[0]]) {
		return false
	}
	if len(p.literal) > 0 {
		if !bytes.Contains(b, p.literal) {
			return false
		}
		if p.whole {
			return true
		}
	}
	return p.re.Match(b)
}

// anchored tells whether every match begins where the text begins.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return anchored(re.Sub[0])
	case syntax.OpAlternate:
		for _, s := range re.Sub {
			if !anchored(s) {
				return false
			}
		}
		return true
	}
	return false
}

// firstBytes adds to set the bytes that a match may begin with. False: a match may be empty, or it cannot be told.
func firstBytes(re *syntax.Regexp, set *[256]bool) bool {
	switch re.Op {
	case syntax.OpLiteral:
		addRune(set, re.Rune[0], re.Rune[0])
		if re.Flags&syntax.FoldCase != 0 {
			for _, r := range strings.ToLower(string(re.Rune[:1])) + strings.ToUpper(string(re.Rune[:1])) {
				addRune(set, r, r)
			}
			// Further foldings, as of k and the Kelvin sign, are beyond ASCII.
			addRune(set, 0x80, 0x10FFFF)
		}
		return true
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			addRune(set, re.Rune[i], re.Rune[i+1])
		}
		return len(re.Rune) > 0
	case syntax.OpCapture, syntax.OpPlus:
		return firstBytes(re.Sub[0], set)
	case syntax.OpRepeat:
		return re.Min > 0 && firstBytes(re.Sub[0], set)
	case syntax.OpAlternate:
		for _, s := range re.Sub {
			if !firstBytes(s, set) {
				return false
			}
		}
		return true
	case syntax.OpConcat:
		for _, s := range re.Sub {
			switch s.Op {
			case syntax.OpBeginText:
				continue
			case syntax.OpStar, syntax.OpQuest:
				if !firstBytes(s.Sub[0], set) {
					return false
				}
				continue // or what follows it
			}
			return firstBytes(s, set)
		}
	}
	return false
}

// addRune adds the first bytes of the runes from lo to hi. Bytes that are not UTF-8 match as U+FFFD.
func addRune(set *[256]bool, lo, hi rune) {
	for c := lo; c <= min(hi, 0x7F); c++ {
		set[c] = true
	}
	if hi >= 0x80 {
		for c := 0x80; c < 256; c++ {
			set[c] = true
		}
	}
}

// requiredLiteral is the longest text that is known to be in every match.
func requiredLiteral(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return requiredLiteral(re.Sub[0])
	case syntax.OpConcat:
		best := ""
		for _, s := range re.Sub {
			if l := requiredLiteral(s); len(l) > len(best) {
				best = l
			}
		}
		return best
	}
	return ""
}

// globMatch tells whether b is what pattern describes: * any bytes, ? one byte, a backslash takes the next byte as it is.
// Linear in b for each star.
func globMatch(pattern string, b []byte) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(b) {
		if p < len(pattern) {
			switch c := pattern[p]; {
			case c == '*':
				star, mark = p, i
				p++
				continue
			case c == '\\' && p+1 < len(pattern):
				if pattern[p+1] == b[i] {
					p, i = p+2, i+1
					continue
				}
			case c == '?' || c == b[i]:
				p, i = p+1, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
