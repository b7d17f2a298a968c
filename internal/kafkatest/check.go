package kafkatest

import (
	"fmt"
	"strings"
)

// A self-checking line is
//
//	<file tag> <8-digit number> <padding>
//
// The tag names the file (it holds no blank), the number counts its lines from 0 without
// a gap across rotations, and the padding follows from both, so that a line that was cut
// or mixed up with another is known by itself.

// offendersMax bounds the examples a Report keeps of each kind.
const offendersMax = 5

// AppendLine appends line number n of a tag without its newline, at least bytes long.
func AppendLine(dst []byte, tag string, n, bytes int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	start := len(dst)
	dst = fmt.Appendf(dst, "%s %08d ", tag, n)
	x := uint64(n)*0x9e3779b97f4a7c15 + 1
	for i := range tag {
		x = (x ^ uint64(tag[i])) * 0x100000001b3
	}
	for len(dst)-start < bytes {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		dst = append(dst, letters[x%uint64(len(letters))])
	}
	return dst
}

// parseLine returns tag and number of a self-checking line.
func parseLine(line string) (tag string, n int, ok bool) {
	tag, rest, ok := strings.Cut(line, " ")
	if !ok || tag == "" || len(rest) < 9 || rest[8] != ' ' {
		return "", 0, false
	}
	for _, d := range []byte(rest[:8]) {
		if d < '0' || d > '9' {
			return "", 0, false
		}
		n = n*10 + int(d-'0')
	}
	return tag, n, true
}

// Report is the verdict of Check. Counts are of lines.
type Report struct {
	Files     int
	Written   int
	Delivered int // distinct written lines that arrived
	Lost      int // written, never arrived
	Doubled   int // arrivals of a line beyond its first
	Disorder  int // first arrivals behind one with a higher number of the same file and partition
	Foreign   int // records that are no written line, byte for byte

	// Spread counts files whose lines arrived in more than one partition. Order is
	// judged inside a partition only, so a test that promises one lane checks it.
	Spread int

	LostRanges []string // first few of each kind, for a person
	Examples   []string
}

// OK tells whether every line arrived exactly once and in order, and nothing else did.
func (r Report) OK() bool { return r.Lost+r.Doubled+r.Disorder+r.Foreign == 0 }

// Error describes what is wrong with the first offenders of each kind; it is empty if
// the report is OK.
func (r Report) Error() string {
	if r.OK() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines of %d files written, %d delivered, %d lost, %d doubled, %d out of order, %d foreign",
		r.Written, r.Files, r.Delivered, r.Lost, r.Doubled, r.Disorder, r.Foreign)
	for _, s := range r.LostRanges {
		b.WriteString("\n  lost " + s)
	}
	for _, s := range r.Examples {
		b.WriteString("\n  " + s)
	}
	return b.String()
}

// Err returns the report as an error, nil if it is OK.
func (r Report) Err() error {
	if r.OK() {
		return nil
	}
	return r
}

// fileCheck is what Check knows of one file.
type fileCheck struct {
	lines   []string
	arrived []int32         // per line, how often
	highest map[int32]int   // per partition, the highest number so far
	at      map[int32]int64 // per partition, where that was
}

// Check compares what was written (file tag -> its self-checking lines in order) with
// what lies in a topic. Records must be in log order inside each partition, as ReadTopic
// returns them.
func Check(written map[string][]string, got []Record) Report {
	rep := Report{Files: len(written)}
	files := make(map[string]*fileCheck, len(written))
	for tag, lines := range written {
		rep.Written += len(lines)
		files[tag] = &fileCheck{
			lines: lines, arrived: make([]int32, len(lines)),
			highest: make(map[int32]int), at: make(map[int32]int64),
		}
	}
	kinds := make(map[string]int)
	example := func(kind, format string, args ...any) {
		if kinds[kind]++; kinds[kind] <= offendersMax {
			rep.Examples = append(rep.Examples, kind+" "+fmt.Sprintf(format, args...))
		}
	}
	for _, rec := range got {
		value := string(rec.Value)
		tag, n, ok := parseLine(value)
		f := files[tag]
		if !ok || f == nil || n >= len(f.lines) || f.lines[n] != value {
			rep.Foreign++
			example("foreign", "at partition %d offset %d: %.80q", rec.Partition, rec.Offset, value)
			continue
		}
		if f.arrived[n]++; f.arrived[n] > 1 {
			rep.Doubled++
			example("doubled", "%s line %d, again at partition %d offset %d (producer %d epoch %d sequence %d)",
				tag, n, rec.Partition, rec.Offset, rec.ProducerID, rec.ProducerEpoch, rec.Sequence)
			continue
		}
		rep.Delivered++
		if high, seen := f.highest[rec.Partition]; seen && n < high {
			rep.Disorder++
			example("out of order", "%s line %d at partition %d offset %d, behind line %d at offset %d",
				tag, n, rec.Partition, rec.Offset, high, f.at[rec.Partition])
			continue
		}
		f.highest[rec.Partition], f.at[rec.Partition] = n, rec.Offset
	}
	for tag, f := range files {
		rep.addLost(tag, f)
		if len(f.highest) > 1 {
			rep.Spread++
		}
	}
	return rep
}

// addLost counts the lines of a file that never arrived and names their ranges.
func (r *Report) addLost(tag string, f *fileCheck) {
	for n := 0; n < len(f.lines); n++ {
		if f.arrived[n] > 0 {
			continue
		}
		first := n
		for n+1 < len(f.lines) && f.arrived[n+1] == 0 {
			n++
		}
		r.Lost += n - first + 1
		if len(r.LostRanges) < offendersMax {
			r.LostRanges = append(r.LostRanges, fmt.Sprintf("%s lines %d to %d of %d", tag, first, n, len(f.lines)))
		}
	}
}
