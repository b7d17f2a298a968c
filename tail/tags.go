package tail

// Numbers and dates before an extension: app.1.log, app-2026-11-30-1.log.gz. Which file beside a log is called like its rotation, and
// when that is believed.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tagBehind is a name with the number or date that stands before its extension behind that: app.log.1.gz of app.1.log.gz.
func tagBehind(name string) string {
	stem := withoutTags(name)
	dot := extensionOf(stem)
	if dot < 0 {
		return name
	}
	tag := tagBefore(stem, dot)
	if tag < 0 {
		return name
	}
	return name[:tag] + name[dot:len(stem)] + name[tag:dot] + name[len(stem):]
}

// tagBefore is where the number or date before the extension of a name begins, which is at dot; -1: there is none.
func tagBefore(name string, dot int) int {
	tag := -1
	for i := dot - 1; i > 0 && (isDigit(name[i]) || strings.IndexByte("._-TZ", name[i]) >= 0); i-- {
		if isTag(name[i:dot]) {
			tag = i
		}
	}
	return tag
}

// ofAnother tells whether a file that is named like a rotation of a path is that of another log that is known, by more of its name:
// app.log-20261130.log, beside app.log and app.log.log.
func (w *Watcher) ofAnother(at blockPath, other string) bool {
	other = withoutTags(other)
	name := strings.LastIndexByte(other, '/') + 1
	dot := extensionOf(other[name:])
	if dot < 0 {
		return false
	}
	tag := tagBefore(other[name:], dot)
	if tag < 0 {
		return false
	}
	path := other[:name+tag] + other[name+dot:]
	f := w.byPath[path]
	return path != at.path && len(path) > len(at.path) && (f != nil && f.Path() == path || len(w.strayPaths[blockPath{at.block, path}]) > 0)
}

// isDate tells whether s begins with a date: 20261130, 2026-11.
func isDate(s string) bool {
	n := digits(s)
	return isYear(s) || n >= dateDigits && (s[:2] == "19" || s[:2] == "20")
}

// extensionOf is where the extension of a name begins; -1: it has none but a number or that of a compression.
func extensionOf(name string) int {
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 || dot == len(name)-1 || isDigit(name[dot+1]) || packedName(name) {
		return -1
	}
	for _, c := range []byte(name[dot+1:]) {
		if !isDigit(c) && (c|0x20 < 'a' || 'z' < c|0x20) {
			return -1
		}
	}
	return dot
}

// isTag tells whether s is what programs that rotate put before an extension: -1, _001, .20261130, or a date that begins with the
// year and what may be behind that: -2026-11-30T10-00-00.000, .2026-11-30_10, -2026-11-30-1; not -10.0.0.7, nor -8080.1. pm2 sets dates
// off by two: __2026-11-30_10-00-00.
func isTag(s string) bool {
	if rest, ok := strings.CutPrefix(s, "__"); ok && isDate(rest) {
		s = s[1:]
	}
	if len(s) < 2 || strings.IndexByte("._-", s[0]) < 0 {
		return false
	}
	n := 1 + digits(s[1:])
	if n == len(s) || n == 1 {
		return n > 1
	}
	if n <= yearDigits || s[1:3] != "19" && s[1:3] != "20" {
		return false
	}
	for s = strings.TrimSuffix(s[n:], "Z"); s != ""; {
		n := digits(s[1:])
		if n == 0 || strings.IndexByte("._-T", s[0]) < 0 {
			return false
		}
		s = s[1+n:]
	}
	return true
}

// tagOf is the number or date before the extension of other, a file beside path, if it is called like path otherwise, but for a
// compression: ".1" of app.1.log.gz beside app.log, "-2026-11-30" of app-2026-11-30.log. "": there is none.
func tagOf(path, other string) string {
	name, rest := path[strings.LastIndexByte(path, '/')+1:], other[strings.LastIndexByte(other, '/')+1:]
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 || len(rest) < len(name)+2 || rest[:dot] != name[:dot] || extensionOf(name) != dot {
		return ""
	}
	tag, ok := strings.CutSuffix(unpackedName(rest[dot:]), name[dot:])
	if !ok || !isTag(tag) {
		return ""
	}
	return tag
}

// countOf is the number of generations that other, a rotation of one of names, has got; -1: it has none, or a date.
func countOf(names []string, other string) int {
	for _, name := range names {
		tag := tagOf(name, other)
		if rest, ok := strings.CutPrefix(other[strings.LastIndexByte(other, '/')+1:], name[strings.LastIndexByte(name, '/')+1:]); tag == "" && ok {
			tag = unpackedName(rest)
		}
		if n := len(tag) - 1; 0 < n && n <= countDigitsMax && isTag(tag) && digits(tag[1:]) == n {
			count, _ := strconv.Atoi(tag[1:]) // so few digits are a number
			return count
		}
	}
	return -1
}

// orderBeside is byGeneration for the rotations of names that are called as sib is. Most programs give the youngest the lowest number,
// some the highest: there what has a higher number was written, or compressed, later.
func (w *Watcher) orderBeside(names []string, sib sibling) func(a, b string) int {
	type counted struct {
		n      int
		last   int64
		packed bool
	}
	style, list := styleOf(names, sib.path), []counted{}
	for _, o := range w.siblingsNamed(parent(sib.path), names) {
		if n := countOf(names, o.path); n >= 0 && styleOf(names, o.path) == style {
			list = append(list, counted{n, o.st.mtime, packedName(o.path)})
		}
	}
	slices.SortFunc(list, func(a, b counted) int { return cmp.Compare(a.n, b.n) })
	forwards := 0
	for i := range max(1, len(list)) - 1 {
		switch low, high := list[i], list[i+1]; {
		case low.n == high.n:
		case low.last < high.last && (low.packed || !high.packed): // when a copy was made its original was complete, and what is older long before
			forwards++
		case low.last > high.last && low.packed == high.packed:
			forwards--
		}
	}
	if forwards <= 0 || countOf(names, sib.path) < 0 {
		return byGeneration
	}
	return func(a, b string) int {
		n, m := countOf(names, a), countOf(names, b)
		if n < 0 || m < 0 {
			return byGeneration(a, b)
		}
		return cmp.Compare(n, m)
	}
}

// styleOf is how other, a rotation of one of names, got its name: what is put before the extension, without its numbers; "" for what
// is put behind it. The rotations of one program are alike.
func styleOf(names []string, other string) string {
	for _, name := range names {
		if tag := tagOf(name, other); tag != "" {
			return withoutNumbers(tag)
		}
	}
	return ""
}

// withoutNumbers is s with a 0 for each number in it.
func withoutNumbers(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch {
		case !isDigit(s[i]):
			out = append(out, s[i])
		case i == 0 || !isDigit(s[i-1]):
			out = append(out, '0')
		}
	}
	return string(out)
}

// stylesAt are the styles of those generations of a path that are known and have been moved, or of their copies.
func (w *Watcher) stylesAt(at blockPath, names []string) map[string]bool {
	styles := map[string]bool{}
	for _, dir := range w.dirsOf(at.path) {
		for _, sib := range w.siblingsNamed(dir, names) {
			if !namedAfter(names, sib.path, rotationName) {
				continue
			}
			known := false
			if g := w.sourceOf(at.block, &sib.st); g != nil {
				known = g.ID() != 0 && g.Path() == at.path
			} else if head, kind := w.headOf(sib); kind != "" {
				known = w.knownHead(at, sib, head)
			}
			if known {
				styles[styleOf(names, sib.path)] = true
			}
		}
	}
	return styles
}

// believes tells whether the name of a file with a number or date before its extension is believed to be a rotation's. A number before the extension may be that of another
// instance of the program, or of its port, and its log may have been made when a generation was: app-2.log, app-8080.log. So it must
// be what those generations have that are known, next to another of them, and the file must be nobody's log and not be written to any
// more; where no known one is left, it must be at rest for a while.
func (w *Watcher) believes(at blockPath, sib sibling, kind string, names []string, styles map[string]bool) bool {
	style := styleOf(names, sib.path)
	switch live := w.inPlace(at); {
	case len(styles) > 0 && !styles[style] || w.isAlone(names, sib, style):
		return false
	case kind != "":
		return true
	case w.isTailed(sib) || live != nil && sib.st.mtime > live.age()+int64(lateMax):
		return false
	case len(styles) > 0:
		return true
	}
	quiet := w.wall - sib.st.mtime
	if sib.st.size > 0 && quiet < int64(w.keep.quiet) && quiet > -int64(lateMax) && w.inPlace(at) != nil {
		w.lookAgain[kinOf(at)], w.rescan = true, true // whether somebody writes to it; then its last write is soon too late
	}
	return sib.st.size > 0 && quiet >= int64(w.keep.quiet)
}

const (
	lateMax  = time.Second      // how much later than its successor was made a generation with a number before the extension may be written last
	quietMin = 10 * time.Second // how long it must be at rest if nothing but its name speaks for it
)

// isAlone tells whether the numbers of generations go on from that of a file neither up nor down.
func (w *Watcher) isAlone(names []string, sib sibling, style string) bool {
	n := countOf(names, sib.path)
	return n > 1 && !slices.ContainsFunc(w.siblingsNamed(parent(sib.path), names), func(o sibling) bool {
		m := countOf(names, o.path)
		return (m == n-1 || m == n+1) && styleOf(names, o.path) == style
	})
}

// isTailed tells whether a pattern finds a file.
func (w *Watcher) isTailed(sib sibling) bool {
	for i := range w.blocks {
		b := &w.blocks[i]
		if f := w.sourceOf(i, &sib.st); f != nil && !f.src.missing || firstMatch(b.Paths, sib.path) != "" && firstMatch(b.Exclude, sib.path) == "" {
			return true
		}
	}
	return false
}
