// Skips reads what `go test -json` prints, shows what a person wants to see of it, and fails if a test was skipped that is
// not in the list of those that may be:
//
//	make test TESTFLAGS=-json | go run ./internal/skips .ci/skips
//
// A line of the list is a package, a test, and why it may be skipped; an asterisk ends the name of several. A test that
// was skipped in one run and passed in another (without the race detector, say) was not skipped.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const lineBytesMax = 16 << 20

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | skips LIST")
		os.Exit(2)
	}
	list, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = run(os.Stdin, os.Stdout, string(list))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// event is what test2json prints; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

type testName struct{ pkg, test string }

// results are what became of the tests so far.
type results struct {
	out     map[testName]*strings.Builder // of those that run
	passed  map[testName]bool
	skipped map[testName]string // why
}

// run copies in to out, shortened, and returns an error that names each test that was skipped and may not be.
func run(in io.Reader, out io.Writer, list string) error {
	r := results{map[testName]*strings.Builder{}, map[testName]bool{}, map[testName]string{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var e event
		text := lines.Text() + "\n"
		if strings.HasPrefix(text, "{") && json.Unmarshal(lines.Bytes(), &e) == nil && e.Action != "" {
			text = r.take(e)
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	var wrong []string
	for name, why := range r.skipped {
		if !r.passed[name] && !mayBeSkipped(list, name) {
			wrong = append(wrong, fmt.Sprintf("skipped, and not in the list: %s %s\n%s", name.pkg, name.test, why))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("%s", strings.Join(wrong, ""))
	}
	return nil
}

// take notes an event and returns what is to be shown.
func (r *results) take(e event) string {
	name := testName{e.Package, e.Test}
	switch {
	case e.Action == "output" && e.Test != "":
		if r.out[name] == nil {
			r.out[name] = &strings.Builder{}
		}
		r.out[name].WriteString(e.Output)
		return ""
	case e.Action == "output" && (e.Output == "PASS\n" || strings.HasPrefix(e.Output, "=== ")):
		return ""
	case e.Action == "output" || e.Action == "build-output":
		return e.Output
	case e.Test == "" || e.Action != "pass" && e.Action != "skip" && e.Action != "fail":
		return ""
	}
	said := ""
	if b := r.out[name]; b != nil {
		said = b.String()
		delete(r.out, name)
	}
	switch e.Action {
	case "pass":
		r.passed[name] = true
	case "skip":
		r.skipped[name] = said
	case "fail":
		return said
	}
	return ""
}

func mayBeSkipped(list string, name testName) bool {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != name.pkg {
			continue
		}
		prefix, several := strings.CutSuffix(f[1], "*")
		if f[1] == name.test || several && strings.HasPrefix(name.test, prefix) {
			return true
		}
	}
	return false
}
