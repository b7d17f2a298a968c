package record

import (
	"bytes"
	"fmt"
	"strings"
)

// Redact is one rule of what is replaced. Pattern or Regex is given.
type Redact struct {
	Pattern    string // card, email, token
	Regex      string // RE2; what its first group matches, or all of the match if it has none
	With       string // "": ***
	KeepLength bool   // so many * as there were bytes
}

type redactor struct {
	find       func(b []byte, from int) (start, end int) // the first match at or behind from; start < 0: none
	with       []byte
	keepLength bool
}

// RedactPatterns are the names that Redact.Pattern takes.
var RedactPatterns = []string{"card", "email", "token"}

func (f *Format) compileRedact() error {
	if len(f.cfg.Redact) > rulesMax {
		return wrong("redact", "has %d items; at most %d are allowed", len(f.cfg.Redact), rulesMax)
	}
	for i, c := range f.cfg.Redact {
		key := fmt.Sprintf("redact[%d]", i)
		if (c.Pattern == "") == (c.Regex == "") {
			return wrong(key, "must have exactly one of pattern and regex")
		}
		if c.KeepLength && c.With != "" {
			return wrong(key, "has both with and keep_length; with keep_length a match becomes so many *")
		}
		r := redactor{with: []byte(c.With), keepLength: c.KeepLength}
		if c.With == "" {
			r.with = []byte("***")
		}
		switch c.Pattern {
		case "card":
			r.find = findCard
		case "email":
			r.find = findEmail
		case "token":
			r.find = findToken
		case "":
			p, err := compilePattern(c.Regex)
			if err != nil {
				return wrong(key+".regex", "%v", err)
			}
			if from, _ := p.find(nil, 0); from >= 0 {
				return wrong(key+".regex", "%q matches the empty text, which is between all characters", c.Regex)
			}
			r.find = p.find
		default:
			return wrong(key+".pattern", "is %q; it is one of %s", c.Pattern, strings.Join(RedactPatterns, ", "))
		}
		f.redact = append(f.redact, r)
	}
	return nil
}

// redacted applies all rules, one behind the other.
func (s *Stream) redacted(text []byte) []byte {
	sc := s.sc
	for i := range s.f.redact {
		r := &s.f.redact[i]
		start, end := r.find(text, 0)
		if start < 0 {
			continue
		}
		s.note(Redacted)
		out := sc.spare[:0]
		at := 0
		for start >= 0 {
			out = append(out, text[at:start]...)
			if r.keepLength {
				for range end - start {
					out = append(out, '*')
				}
			} else {
				out = append(out, r.with...)
			}
			if at = end; end == start { // an empty match: on behind the next byte
				if end == len(text) {
					break
				}
				out = append(out, text[end])
				at++
			}
			start, end = r.find(text, at)
		}
		out = append(out, text[at:]...)
		// text may be in redacted, where the rule before put it.
		sc.spare, sc.redacted = sc.redacted, out
		text = out
	}
	if limit := s.f.cfg.RecordBytesMax; len(text) > limit {
		text = text[:limit] // replacements may be longer than what they replace
	}
	return text
}

// find is for redaction only: FindSubmatchIndex allocates for each match.
func (p *pattern) find(b []byte, from int) (start, end int) {
	if from > len(b) || len(p.literal) > 0 && !bytes.Contains(b[from:], p.literal) {
		return -1, -1
	}
	if p.first != nil && (from > 0 || len(b) == 0 || !p.first[b[0]]) {
		return -1, -1
	}
	m := p.re.FindSubmatchIndex(b[from:])
	if m == nil {
		return -1, -1
	}
	if len(m) > 2 && m[2] >= 0 {
		return from + m[2], from + m[3]
	}
	return from + m[0], from + m[1]
}

// Digits of a payment card.
const cardDigitsMin, cardDigitsMax = 13, 19

// findCard finds 13 to 19 digits, with single blanks or hyphens between them or without, whose check digit is right.
func findCard(b []byte, from int) (start, end int) {
	for i := from; i < len(b); i++ {
		if !digit(b[i]) || i > 0 && wordByte(b[i-1]) {
			continue
		}
		if end = cardEnd(b, i); end > 0 {
			return i, end
		}
		for i+1 < len(b) && digit(b[i+1]) {
			i++
		}
	}
	return -1, -1
}

// cardEnd is the end of the longest card number at start, 0 if there is none.
func cardEnd(b []byte, start int) (end int) {
	var digits [cardDigitsMax]byte
	n := 0
	for i := start; i < len(b) && n < cardDigitsMax; i++ {
		if !digit(b[i]) {
			if (b[i] == ' ' || b[i] == '-') && digit(b[i-1]) && i+1 < len(b) && digit(b[i+1]) {
				continue
			}
			break
		}
		digits[n] = b[i] - '0'
		n++
		if n >= cardDigitsMin && (i+1 == len(b) || !wordByte(b[i+1])) && luhn(digits[:n]) {
			end = i + 1
		}
	}
	return end
}

// luhn tells whether the last digit is the check digit of those before it.
func luhn(digits []byte) bool {
	sum := 0
	for i := range digits {
		d := int(digits[len(digits)-1-i])
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum > 0 && sum%10 == 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func wordByte(c byte) bool { return digit(c) || letter(c) || c == '_' }

// findEmail finds name@host.domain.
func findEmail(b []byte, from int) (start, end int) {
	for i := from; ; {
		at := bytes.IndexByte(b[min(i, len(b)):], '@')
		if at < 0 {
			return -1, -1
		}
		at += i
		for start = at; start > from && (wordByte(b[start-1]) || strings.IndexByte(".!#$%&'*+-/=?^`{|}~", b[start-1]) >= 0 || b[start-1] >= 0x80); {
			start--
		}
		for start < at && (b[start] == '.' || strings.IndexByte("'`{|/=&?", b[start]) >= 0) {
			start++
		}
		end = at + 1
		dot := 0 // behind the last dot of the host
		for end < len(b) && (wordByte(b[end]) || b[end] == '-' || b[end] == '.' || b[end] >= 0x80) {
			if end++; b[end-1] == '.' {
				dot = end
			}
		}
		if dot == end && dot > 0 { // a full stop behind it
			end--
			dot = bytes.LastIndexByte(b[at+1:end], '.') + at + 2
			if dot == at+1 {
				dot = 0
			}
		}
		if start < at && dot > at+2 && end-dot >= 2 {
			return start, end
		}
		i = at + 1
	}
}

// Secrets by what they begin with, and how many bytes of them are at least behind that.
var tokenPrefixes = []struct {
	prefix string
	min    int
}{
	{"AKIA", 16}, {"ASIA", 16}, // AWS access keys
	{"ghp_", 30}, {"gho_", 30}, {"ghu_", 30}, {"ghs_", 30}, {"ghr_", 30}, {"github_pat_", 30},
	{"glpat-", 16}, {"xoxb-", 16}, {"xoxp-", 16}, {"xoxa-", 16},
	{"sk_live_", 16}, {"rk_live_", 16},
	{"eyJ", 30}, // JSON web token
}

// Words that a secret stands behind.
var tokenWords = []string{"bearer ", "basic ", "token=", "password=", "passwd=", "secret=", "api_key=", "apikey="}

// findToken finds secrets: what begins as the tokens of well-known services do, and what stands behind words that say so.
func findToken(b []byte, from int) (start, end int) {
	for i := from; i < len(b); i++ {
		if !letter(b[i]) || i > 0 && wordByte(b[i-1]) && b[i-1] != '_' {
			continue
		}
		rest := b[i:]
		for _, t := range tokenPrefixes {
			if len(rest) > len(t.prefix) && string(rest[:len(t.prefix)]) == t.prefix {
				if end = tokenEnd(b, i); end-i >= len(t.prefix)+t.min {
					return i, end
				}
			}
		}
		for _, w := range tokenWords {
			if len(rest) > len(w) && rest[0]|0x20 == w[0] && strings.EqualFold(string(rest[:len(w)]), w) {
				if start = i + len(w); start < from {
					continue
				}
				if end = tokenEnd(b, start); end > start {
					return start, end
				}
			}
		}
	}
	return -1, -1
}

func tokenEnd(b []byte, i int) int {
	for i < len(b) && (wordByte(b[i]) || strings.IndexByte("-._~+/=", b[i]) >= 0) {
		i++
	}
	return i
}
