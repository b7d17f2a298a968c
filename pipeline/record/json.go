package record

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Just enough JSON to find members, take strings apart and put them together again; nothing in it allocates. A value that
// one of these functions accepts is valid JSON but for bytes of strings that are not UTF-8.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string at b[i] == '"', -1 if it has no end or is not allowed, and whether it
// has escapes.
func skipString(b []byte, i int) (end int, escaped bool) {
	for i++; ; i++ {
		if i = skipPlain(b, i); i == len(b) {
			return -1, false
		}
		if b[i] == '"' {
			return i + 1, escaped
		}
		escaped = true
		if i++; b[i-1] != '\\' || i == len(b) {
			return -1, false
		}
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if _, ok := hex4(b, i+1); !ok {
				return -1, false
			}
			i += 4
		default:
			return -1, false
		}
	}
}

// Eight bytes at a time: in each of these every byte has one bit, and a product with ones has the same byte eight times. The lowest
// flag of a test is exact; those above it may be carries.
const (
	ones  = 0x0101010101010101
	flags = 0x80 * ones
)

// below flags bytes below n, which is at most 0x80.
func below(x, n uint64) uint64 { return (x - n*ones) &^ x & flags }

// equal flags bytes that are c.
func equal(x, c uint64) uint64 { return below(x^c*ones, 1) }

// skipPlain returns the index of the first byte from i on that does not stand for itself inside the quotes of a string: a quote, a
// backslash or a control character; len(b) if there is none.
func skipPlain(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		if m := below(x, ' ') | equal(x, '"') | equal(x, '\\'); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// skipSafe is skipPlain for what is to be put between quotes: bytes above 0x7E are for the caller to look at.
func skipSafe(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		if m := below(x, ' ') | equal(x, '"') | equal(x, '\\') | equal(x, 0x7F) | x&flags; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < 0x7F && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// hex4 reads four hexadecimal digits at i.
func hex4(b []byte, i int) (r rune, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// skipValue returns the index behind the value at i, -1 if there is no valid one. Deeper than depthMax is not valid.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) || depth > depthMax {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		end, _ := skipString(b, i)
		return end
	case c == '{' || c == '[':
		return skipNested(b, i, depth)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if i+len(word) <= len(b) && string(b[i:i+len(word)]) == word {
		return i + len(word)
	}
	return -1
}

func skipNumber(b []byte, i int) int {
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	zero := i < len(b) && b[i] == '0'
	from := i
	if !digits() || zero && i-from > 1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// skipNested returns the index behind the object or array at i.
func skipNested(b []byte, i, depth int) int {
	object := b[i] == '{'
	closing := b[i] + 2 // '}' and ']' are two behind '{' and '['
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closing {
		return i + 1
	}
	for {
		if object {
			if _, i = skipName(b, i); i < 0 {
				return -1
			}
		}
		if i = skipValue(b, i, depth+1); i < 0 {
			return -1
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return -1
		}
		if b[i] == closing {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// skipName returns the index behind the member name at i, and that of the value that follows, -1 if there is none.
func skipName(b []byte, i int) (end, value int) {
	if i >= len(b) || b[i] != '"' {
		return -1, -1
	}
	if end, _ = skipString(b, i); end < 0 {
		return -1, -1
	}
	i = skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		return -1, -1
	}
	return end, skipSpace(b, i+1)
}

// member is one member of an object: where its name (with quotes) and its value are.
type member struct {
	name, nameEnd   int
	value, valueEnd int
	escaped         bool // the value is a string with escapes
}

// members walks an object's members: next(b, &i) with i behind the opening brace at first.
type members struct {
	b    []byte
	i    int
	done bool // the closing brace was met; i is behind it
	bad  bool
}

// objectMembers begins a walk over the object that b is; bad at once if it begins as none.
func objectMembers(b []byte) members {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return members{bad: true}
	}
	m := members{b: b, i: skipSpace(b, i+1)}
	if m.i < len(b) && b[m.i] == '}' {
		m.i, m.done = m.i+1, true
	}
	return m
}

// next returns the next member. After false, bad says whether the object was malformed.
func (m *members) next() (x member, ok bool) {
	if m.done || m.bad {
		return member{}, false
	}
	x.name = m.i
	if x.nameEnd, x.value = skipName(m.b, m.i); x.value < 0 {
		m.bad = true
		return member{}, false
	}
	if x.value < len(m.b) && m.b[x.value] == '"' {
		x.valueEnd, x.escaped = skipString(m.b, x.value)
	} else {
		x.valueEnd = skipValue(m.b, x.value, 1)
	}
	if x.valueEnd < 0 {
		m.bad = true
		return member{}, false
	}
	switch i := skipSpace(m.b, x.valueEnd); {
	case i < len(m.b) && m.b[i] == ',':
		m.i = skipSpace(m.b, i+1)
	case i < len(m.b) && m.b[i] == '}':
		m.i, m.done = i+1, true
	default:
		m.bad = true
		return member{}, false
	}
	return x, true
}

// isObject tells whether b is one valid JSON object and nothing else.
func isObject(b []byte) bool {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	end := skipNested(b, i, 0)
	return end > 0 && skipSpace(b, end) == len(b)
}

// appendUnescaped appends what a JSON string means; s is what stands between its quotes. Half a surrogate pair becomes U+FFFD.
func appendUnescaped(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		run := bytes.IndexByte(s[i:], '\\')
		if run < 0 {
			return append(dst, s[i:]...)
		}
		dst = append(dst, s[i:i+run]...)
		i += run + 2
		c := s[i-1]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(s, i)
			i += 4
			if r >= 0xD800 && r < 0xE000 {
				low, ok := rune(0), false
				if r < 0xDC00 && i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
					low, ok = hex4(s, i+2)
				}
				if ok && low >= 0xDC00 && low < 0xE000 {
					r = (r-0xD800)<<10 | (low - 0xDC00) + 0x10000
					i += 6
				} else {
					r = utf8.RuneError
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string with its quotes, as long as dst stays within bytesMax: the end of what
// does not fit is left out. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst, s []byte, bytesMax int) (out []byte, repaired, cut bool) {
	dst = append(dst, '"')
	const longest = 6 // bytes of an escape, and the quote behind it
	for i := 0; i < len(s); {
		run := skipSafe(s, i)
		if room := bytesMax - len(dst) - longest - 1; run-i > max(room, 0) {
			return append(append(dst, s[i:i+max(room, 0)]...), '"'), repaired, true
		}
		dst = append(dst, s[i:run]...)
		if i = run; i == len(s) {
			break
		}
		if len(dst)+longest+1 > bytesMax {
			return append(dst, '"'), repaired, true
		}
		if c := s[i]; c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && size == 1 {
			repaired = true
		}
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return append(dst, '"'), repaired, false
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendRepaired appends b with U+FFFD for bytes that are not UTF-8.
func appendRepaired(dst, b []byte) []byte {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[size:]
	}
	return dst
}

// lookUp finds the member that path names, with dots between the names of nested objects, in the object b. The first
// of several wins. raw is the value as it stands in b.
func lookUp(b []byte, path []string) (raw []byte, ok bool) {
	for depth, name := range path {
		m := objectMembers(b)
		found := false
		for x, more := m.next(); more; x, more = m.next() {
			if nameIs(b[x.name+1:x.nameEnd-1], name) {
				b, found = b[x.value:x.valueEnd], true
				break
			}
		}
		if !found {
			return nil, false
		}
		if depth == len(path)-1 {
			return b, true
		}
	}
	return nil, false
}

// nameIs tells whether a member name as it stands in JSON means name.
func nameIs(raw []byte, name string) bool {
	if string(raw) == name {
		return true
	}
	for i := range raw {
		if raw[i] == '\\' {
			var room [256]byte
			if len(raw) > len(room) {
				return false
			}
			return string(appendUnescaped(room[:0], raw)) == name
		}
	}
	return false
}
