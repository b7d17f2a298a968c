package tail

import (
	"cmp"
	"path/filepath"
	"strings"
)

// byGeneration orders paths for which times do not tell which was made first: app.log.2, app.log.1, app.log, and app.log-20261129
// before app.log-20261130 before app.log. Rotation in a loop makes several generations within one tick of the file system's clock.
// A number or date before the extension is one behind the name: app.1.log is app.log.1.
func byGeneration(a, b string) int {
	dirA, nameA := filepath.Split(a)
	dirB, nameB := filepath.Split(b)
	if dirA != dirB {
		return cmp.Compare(a, b)
	}
	return cmp.Or(byNumber(tagBehind(nameA), tagBehind(nameB)), cmp.Compare(a, b))
}

func byNumber(nameA, nameB string) int {
	switch { // a name that goes on is that of a generation that was moved away
	case nameA != nameB && strings.HasPrefix(nameA, nameB):
		return -1
	case nameA != nameB && strings.HasPrefix(nameB, nameA):
		return 1
	}
	same := 0
	for same < len(nameA) && same < len(nameB) && nameA[same] == nameB[same] {
		same++
	}
	for same > 0 && isDigit(nameA[same-1]) { // to the begin of the number in which they differ
		same--
	}
	numA, numB := leadingDigits(nameA[same:]), leadingDigits(nameB[same:])
	if same == 0 || numA == "" || numB == "" {
		return cmp.Compare(nameA, nameB)
	}
	order := cmp.Or(cmp.Compare(len(numA), len(numB)), cmp.Compare(numA, numB))
	if !dated(nameA[:same]) && !(isYear(nameA[same:]) && isYear(nameB[same:])) { // numbers count backwards, dates and times forwards
		countA, countB := digits(nameA[same:]) <= countDigitsMax, digits(nameB[same:]) <= countDigitsMax
		switch {
		case countA != countB:
			order = trueFirst(countA, countB)
		case countA:
			order = -order
		}
	}
	return cmp.Or(order, cmp.Compare(nameA, nameB))
}

const (
	countDigitsMax = 5 // of a number of generations; what is longer is taken for a date or a time
	yearDigits     = 4 // a number that begins with so many, and other numbers behind it, is a date
	dateDigits     = 8 // of a date in one number
)

// dated tells whether a name ends in the beginning of a date: what follows, parts of it or a number behind it, counts forwards.
func dated(name string) bool {
	for end := len(name); end > 0; {
		start := end
		for start > 0 && isDigit(name[start-1]) {
			start--
		}
		if end-start >= yearDigits {
			return true
		}
		if start == 0 || !strings.ContainsRune(".-_T", rune(name[start-1])) {
			return false
		}
		end = start - 1
	}
	return false
}

// digits is how many there are at the start of s.
func digits(s string) (n int) {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// leadingDigits are the digits at the start of s without leading zeros; "0" if they are all zeros.
func leadingDigits(s string) string {
	n := digits(s)
	num := strings.TrimLeft(s[:n], "0")
	if num == "" && n > 0 {
		return "0"
	}
	return num
}

// rotationName tells whether a file beside path is certainly named as its rotations are, since it is read unseen: app.log.1,
// app.log-20240131, app.log.old, app.1.log; not app.log.lock, and not app.log.wf, which is a log of its own.
func rotationName(path, other string) bool {
	if numbered(path, other) || setAside(path, other) {
		return true
	}
	rest, _ := strings.CutPrefix(other[len(parent(other)):], path[len(parent(path)):])
	return len(rest) > 1 && strings.ContainsRune(".-_", rune(rest[0])) && (rest[1:] == "old" || rest[1:] == "bak")
}

// generationName tells whether a file beside path may be one of its rotations, or what somebody made of one: app.log.1, app.log.saved.
func generationName(path, other string) bool {
	rest, ok := strings.CutPrefix(other[len(parent(other)):], path[len(parent(path)):])
	return ok && rest != "" && strings.ContainsRune(".-_", rune(rest[0])) || tagOf(path, other) != "" || setAside(path, other)
}

// setAside tells whether a file beside path has the name that logback gives the log until its copy is done: app.log1764511682123456.tmp,
// with the time since the start of the machine, which no date can be compared with. Nobody writes to it.
func setAside(path, other string) bool {
	rest, ok := strings.CutPrefix(other, path)
	number, isTmp := strings.CutSuffix(rest, ".tmp")
	return ok && isTmp && len(number) > countDigitsMax && digits(number) == len(number)
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
