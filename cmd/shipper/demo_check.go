package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// delivery compares what stands in the log files with what stands in Kafka. Every line is `TAG NUMBER TEXT`; the tag is its file's,
// the number its place in that file, so each record tells which line it must equal, byte for byte.
type delivery struct {
	files map[string]*fileDelivery // by tag

	Written, Delivered, Lost, Doubled, OutOfOrder, Foreign int
}

// fileDelivery is the state of one file on disk.
type fileDelivery struct {
	path       string
	lines      [][]byte
	seen       []uint8 // times each line was delivered, at most 255
	next       int     // behind the highest line delivered
	outOfOrder int
}

// newDelivery reads the log files that match pattern.
func newDelivery(pattern string) (*delivery, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	d := &delivery{files: make(map[string]*fileDelivery)}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if len(data) == 0 {
			continue // rotated just before the writer ended
		}
		lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
		tag, number, ok := parseDemoLine(lines[0])
		if !ok || number != 0 || d.files[tag] != nil {
			return nil, fmt.Errorf("%s does not begin with line 0 of a file of its own: %q", path, lines[0])
		}
		d.files[tag] = &fileDelivery{path: path, lines: lines, seen: make([]uint8, len(lines))}
		d.Written += len(lines)
	}
	return d, nil
}

// take counts one record; records of one file come in the order of their offsets.
func (d *delivery) take(value []byte) {
	tag, number, ok := parseDemoLine(value)
	f := d.files[tag]
	if !ok || f == nil || number >= len(f.lines) || !bytes.Equal(f.lines[number], value) {
		d.Foreign++
		return
	}
	d.Delivered++
	switch {
	case f.seen[number] > 0:
		d.Doubled++
	case number < f.next:
		d.OutOfOrder++
		f.outOfOrder++
	default:
		f.next = number + 1
	}
	f.seen[number] = min(f.seen[number], 254) + 1
}

// finish counts what never came.
func (d *delivery) finish() {
	d.Lost = 0
	for _, f := range d.files {
		d.Lost += bytes.Count(f.seen, []byte{0})
	}
}

// perfect: every line of every file once, in order, and nothing else.
func (d *delivery) perfect() bool {
	return d.Written > 0 && d.Delivered == d.Written && d.Lost == 0 && d.Doubled == 0 && d.OutOfOrder == 0 && d.Foreign == 0
}

// faults describes each file that is not perfect, sorted.
func (d *delivery) faults() []string {
	var faults []string
	for _, f := range d.files {
		lost, doubled := bytes.Count(f.seen, []byte{0}), 0
		for _, times := range f.seen {
			if times > 1 {
				doubled++
			}
		}
		if lost+doubled+f.outOfOrder > 0 {
			faults = append(faults, fmt.Sprintf("%s: of %d lines %d lost (the first is number %d), %d doubled, %d out of order",
				filepath.Base(f.path), len(f.lines), lost, bytes.IndexByte(f.seen, 0), doubled, f.outOfOrder))
		}
	}
	slices.Sort(faults)
	return faults
}

func parseDemoLine(line []byte) (tag string, number int, ok bool) {
	t, rest, found := bytes.Cut(line, []byte(" "))
	digits, _, found2 := bytes.Cut(rest, []byte(" "))
	number, err := strconv.Atoi(string(digits))
	return string(t), number, found && found2 && err == nil && number >= 0
}
