// Command micro runs the benchmarks that stand beside the code and writes one table of them: medians over several counts, with
// allocations, which are to be 0 a record from read to batch and 0 a batch from sequence to send.
//
//	go run ./benchmarks/micro -count 3 -benchtime 0.5s -results benchmarks/results
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"shipper/benchmarks/internal/report"
)

func main() {
	packages := flag.String("packages", "./tail,./spool,./sink/kafka,./pipeline", "packages, with commas")
	pattern := flag.String("bench", ".", "which benchmarks, as go test -bench takes it")
	count := flag.Int("count", 3, "runs of each; figures are medians")
	benchtime := flag.String("benchtime", "0.5s", "time or iterations of each run")
	results := flag.String("results", "", "also write the table to a file in this folder")
	flag.Parse()
	args := []string{"test", "-run", "^$", "-p", "1", "-bench", *pattern, "-benchmem", "-count", strconv.Itoa(*count), "-benchtime", *benchtime}
	args = append(args, strings.Split(*packages, ",")...)
	if err := measure(args, *results); err != nil {
		fmt.Fprintln(os.Stderr, "micro:", err)
		os.Exit(1)
	}
}

func measure(args []string, results string) error {
	result := report.Result{Name: "micro", Args: os.Args[1:], Machine: report.Machine(".")}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	benchmarks, err := parse(out)
	if err != nil {
		return err
	}
	if len(benchmarks) == 0 {
		return fmt.Errorf("no benchmark in the output of go %s", strings.Join(args, " "))
	}
	fmt.Fprintf(&result.Body, "Ran: `go %s`\n\n%s", strings.Join(args, " "), table(benchmarks))
	return result.Save(results)
}

// benchmark is one of them with every figure it printed, one value a run.
type benchmark struct {
	pkg, name string
	values    map[string][]float64 // by unit, such as ns/op
	units     []string             // in the order printed
}

// parse reads what go test -bench prints:
//
//	pkg: shipper/tail
//	BenchmarkSplit/access-2   1234   987 ns/op   12.3 MB/s   0 B/op   0 allocs/op
func parse(out []byte) ([]*benchmark, error) {
	var pkg string
	var all []*benchmark
	byName := map[string]*benchmark{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "pkg: "); ok {
			pkg = rest
			continue
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of CPUs
			name = name[:i]
		}
		b := byName[pkg+name]
		if b == nil {
			b = &benchmark{pkg: pkg, name: name, values: map[string][]float64{}}
			byName[pkg+name] = b
			all = append(all, b)
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
			}
			unit := fields[i+1]
			if b.values[unit] == nil {
				b.units = append(b.units, unit)
			}
			b.values[unit] = append(b.values[unit], v)
		}
	}
	return all, lines.Err()
}

func table(benchmarks []*benchmark) *report.Table {
	t := report.NewTable("package", "benchmark", "ns/op", "MB/s", "B/op", "allocs/op", "more")
	for _, b := range benchmarks {
		shown := map[string]string{"ns/op": "-", "MB/s": "-", "B/op": "-", "allocs/op": "-"}
		var more []string
		for _, unit := range b.units {
			figure := strconv.FormatFloat(report.Median(b.values[unit]), 'f', -1, 64)
			if _, ok := shown[unit]; ok {
				shown[unit] = figure
			} else {
				more = append(more, figure+" "+unit)
			}
		}
		t.Add(b.pkg, b.name, shown["ns/op"], shown["MB/s"], shown["B/op"], shown["allocs/op"], strings.Join(more, ", "))
	}
	return t
}
