// Package report writes what was measured: where, by which command, and as a table.
package report

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// MiB and GiB are the units of the tables; MB is a million bytes.
const (
	MB  = 1_000_000
	MiB = 1 << 20
	GiB = 1 << 30
)

// Median of an odd or even number of values; it sorts them.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		panic("BUG: median of nothing")
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Table is a markdown table under construction.
type Table struct {
	head []string
	rows [][]string
}

// NewTable names the columns.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Add adds a row.
func (t *Table) Add(cells ...string) {
	if len(cells) != len(t.head) {
		panic(fmt.Sprintf("BUG: row of %d cells in a table of %d columns", len(cells), len(t.head)))
	}
	t.rows = append(t.rows, cells)
}

func (t *Table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	line(slices.Repeat([]string{"---"}, len(t.head)))
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}

// Machine describes where a figure comes from; dir is the folder that the measured program wrote to.
func Machine(dir string) string {
	model, family := firstField("/proc/cpuinfo", "model name"), firstField("/proc/cpuinfo", "cpu family")
	kernel, _, _ := strings.Cut(firstWord("/proc/sys/kernel/osrelease"), "-")
	return fmt.Sprintf("%d x %s (family %s, model %s), %s memory, %s, Linux %s, %s, load average at the start %s",
		runtime.NumCPU(), model, family, firstField("/proc/cpuinfo", "model"), firstField("/proc/meminfo", "MemTotal"),
		fileSystem(dir), kernel, runtime.Version(), firstWord("/proc/loadavg"))
}

func firstWord(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return word
}

func firstField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func fileSystem(dir string) string {
	out, err := exec.Command("stat", "-f", "-c", "%T", dir).Output()
	if err != nil {
		return "unknown file system"
	}
	return strings.TrimSpace(string(out))
}

// Result is one run of a measuring program, kept as a file in benchmarks/results.
type Result struct {
	Name    string // of the program
	Args    []string
	Machine string
	Body    bytes.Buffer // markdown
}

// Save prints the result and, if dir is not empty, writes it to dir/DATE-NAME.md.
func (r *Result) Save(dir string) error {
	text := fmt.Sprintf("# %s, %s\n\nMachine: %s\n\nCommand: `go run ./benchmarks/%s %s`\n\n%s",
		r.Name, time.Now().Format(time.DateOnly), r.Machine, r.Name, strings.Join(r.Args, " "), r.Body.String())
	fmt.Print(text)
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, time.Now().Format("2006-01-02-150405")+"-"+r.Name+".md")
	return os.WriteFile(path, []byte(text), 0o644)
}
