// Package shipper_test holds the rules of the house that a machine can check (CONTRIBUTING.md says why each is there).
// It reads source only: go/parser, no type checking.
package shipper_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	fileLinesMax     = 500
	functionLinesMax = 70
)

// Ratchets: what is longer than the rule says, by how much at most, and why. A number here may go down, never up;
// an entry that is no longer needed is an error too.
var (
	longFiles     = map[string]int{}
	longFunctions = map[string]int{}
)

// mayImport are the arrows between our packages: who may import whom, beside the standard library.
// cmd/shipper asks leaves for Config, Stats and inspection only.
var mayImport = map[string][]string{
	"cmd/shipper":     {"pipeline", "pipeline/record", "tail", "spool", "sink/kafka"},
	"pipeline":        {"pipeline/record", "tail", "spool", "sink/kafka", "internal/spsc", "internal/steady"},
	"pipeline/record": {},
	"spool":           {"internal/vfs"},
	"tail":            {},
	"sink/kafka":      {"internal/spsc", "internal/steady"},
	"internal/vfs":    {},
	"internal/spsc":   {},
	"internal/skips":  {},
	"internal/steady": {},
}

// homes says in which files an outside module may be imported by code that is not a test. Tests and harness may use any.
// A module that is not listed may be imported nowhere: a new dependency is a decision, made here.
var homes = map[string][]string{
	"github.com/fsnotify/fsnotify":        {"tail/*"},
	"github.com/bmatcuk/doublestar/v4":    {"tail/*", "cmd/shipper/check.go", "cmd/shipper/config_values.go"},
	"github.com/cespare/xxhash/v2":        {"tail/*", "spool/*", "pipeline/*", "pipeline/record/*", "sink/kafka/routes.go"},
	"github.com/twmb/franz-go/pkg/kgo":    {"sink/kafka/client.go", "sink/kafka/links.go", "sink/kafka/replay.go", "sink/kafka/trouble.go", "cmd/shipper/demo*.go"},
	"github.com/twmb/franz-go/pkg/kmsg":   {"sink/kafka/*", "cmd/shipper/demo*.go"},
	"github.com/twmb/franz-go/pkg/kerr":   {"sink/kafka/*"},
	"github.com/twmb/franz-go/pkg/kfake":  {"cmd/shipper/demo*.go"},
	"github.com/twmb/franz-go/pkg/sasl":   {"sink/kafka/client.go"},
	"github.com/klauspost/compress":       {"sink/kafka/*", "tail/unpack.go"},
	"github.com/pierrec/lz4/v4":           {"sink/kafka/*"},
	"gopkg.in/yaml.v3":                    {"cmd/shipper/config*.go"},
	"github.com/spf13/cobra":              {"cmd/shipper/main.go", "cmd/shipper/explain.go", "cmd/shipper/admin*.go", "cmd/shipper/fix*.go", "cmd/shipper/spool*.go"},
	"github.com/prometheus/client_golang": {"cmd/shipper/admin*.go"},
	"golang.org/x/sys/unix":               {"tail/*", "spool/*", "internal/vfs/*", "internal/steady/*", "cmd/shipper/check.go", "sink/kafka/hungup_linux.go"},
	"golang.org/x/text":                   {"tail/*"},
	"golang.org/x/time/rate":              {"tail/*", "pipeline/*"},
}

// pureFiles decide and never act: no clock, no goroutine, no lock. What they decide can be replayed from their input alone.
var pureFiles = []string{
	"sink/kafka/lane.go", "sink/kafka/lane_ack.go", "sink/kafka/lane_resolve.go", "sink/kafka/lane_refused.go", "sink/kafka/event.go", "sink/kafka/verdict.go", "sink/kafka/cut.go", "sink/kafka/batch.go", "sink/kafka/crc.go",
	"pipeline/record/container.go", "pipeline/record/envelope.go", "pipeline/record/filter.go", "pipeline/record/join.go", "pipeline/record/json.go", "pipeline/record/meta.go", "pipeline/record/multiline.go", "pipeline/record/pattern.go",
	"pipeline/record/record.go", "pipeline/record/redact.go", "pipeline/record/stream.go", "pipeline/record/take.go", "pipeline/record/timestamp.go",
	"spool/frame.go", "spool/codec.go", "spool/entries.go", "tail/split.go",
}

// sourceFile is one parsed file of ours.
type sourceFile struct {
	path  string // relative to the module, with slashes
	text  string
	ast   *ast.File
	fset  *token.FileSet
	lines int
}

func (f *sourceFile) pkg() string { return path.Dir(f.path) }

func (f *sourceFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// harness lists the trees of test support and measurements, which are free in what they import.
var harness = []string{"internal/kafkatest/", "internal/e2e/", "benchmarks/"}

func (f *sourceFile) isHarness() bool {
	return f.isTest() || slices.ContainsFunc(harness, func(tree string) bool { return strings.HasPrefix(f.path, tree) })
}

func (f *sourceFile) imports() []string {
	var paths []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

func sourceFiles(t *testing.T) []*sourceFile {
	t.Helper()
	files, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found: the test does not see the tree", len(files))
	}
	return files
}

// parseTree reads the tree once for all tests.
var parseTree = sync.OnceValues(func() (files []*sourceFile, err error) {
	err = filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, &sourceFile{filepath.ToSlash(p), string(text), parsed, fset, strings.Count(string(text), "\n")})
		return nil
	})
	return files, err
})

func TestImportArrows(t *testing.T) {
	for _, f := range sourceFiles(t) {
		if f.isHarness() {
			continue
		}
		allowed, known := mayImport[f.pkg()]
		if !known {
			t.Errorf("%s: package %s has no line in mayImport; decide who may import whom", f.path, f.pkg())
		}
		for _, p := range f.imports() {
			if rel, ours := strings.CutPrefix(p, "shipper/"); ours && !slices.Contains(allowed, rel) {
				t.Errorf("%s imports %s; %s may import %v", f.path, p, f.pkg(), allowed)
			}
		}
	}
}

// Tests of a leaf stay inside their leaf too, or they would need the whole program to compile.
func TestLeavesDoNotKnowEachOther(t *testing.T) {
	leaves := []string{"tail", "spool", "sink/kafka"}
	for _, f := range sourceFiles(t) {
		if !slices.Contains(leaves, f.pkg()) {
			continue
		}
		for _, p := range f.imports() {
			rel, ours := strings.CutPrefix(p, "shipper/")
			if ours && rel != f.pkg() && (rel == "pipeline" || slices.Contains(leaves, rel)) {
				t.Errorf("%s imports %s", f.path, p)
			}
		}
	}
}

func TestOutsideModulesHaveOneHome(t *testing.T) {
	for _, f := range sourceFiles(t) {
		if f.isHarness() {
			continue
		}
		for _, p := range f.imports() {
			if host, _, _ := strings.Cut(p, "/"); !strings.Contains(host, ".") {
				continue // the standard library, or ours
			}
			if !atHome(f.path, p) {
				t.Errorf("%s imports %s, which is at home in %v", f.path, p, homes[homeOf(p)])
			}
		}
	}
}

// homeOf is the longest key of homes that p is or lies below.
func homeOf(p string) string {
	for p != "." {
		if _, ok := homes[p]; ok {
			return p
		}
		p = path.Dir(p)
	}
	return ""
}

func atHome(file, imported string) bool {
	return slices.ContainsFunc(homes[homeOf(imported)], func(pattern string) bool {
		ok, err := path.Match(pattern, file)
		return ok && err == nil
	})
}

func TestNoJunkDrawerPackages(t *testing.T) {
	for _, f := range sourceFiles(t) {
		for _, part := range strings.Split(f.pkg(), "/") {
			if slices.Contains([]string{"util", "utils", "common", "types", "helpers", "misc", "shared"}, part) {
				t.Errorf("%s: a package named %s says nothing about what is in it", f.path, part)
			}
		}
	}
}

func TestFileAndFunctionLength(t *testing.T) {
	files, functions := map[string]int{}, map[string]int{}
	for _, f := range sourceFiles(t) {
		if f.lines > fileLinesMax && !f.isTest() {
			files[f.path] = f.lines
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || f.isTest() {
				continue
			}
			if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > functionLinesMax {
				functions[f.path+" "+fn.Name.Name] = n
			}
		}
	}
	checkRatchet(t, "file", files, longFiles, fileLinesMax)
	checkRatchet(t, "function", functions, longFunctions, functionLinesMax)
}

func checkRatchet(t *testing.T, kind string, found, allowed map[string]int, rule int) {
	t.Helper()
	for name, n := range found {
		if n > max(allowed[name], rule) {
			t.Errorf("%s %s has %d lines; at most %d", kind, name, n, max(allowed[name], rule))
		}
	}
	for name := range allowed {
		if found[name] == 0 {
			t.Errorf("%s %s keeps the rule of %d lines now: drop its exception", kind, name, rule)
		}
	}
}

func TestPureFilesOnlyDecide(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range sourceFiles(t) {
		if !slices.Contains(pureFiles, f.path) {
			continue
		}
		seen[f.path] = true
		for _, p := range f.imports() {
			if slices.Contains([]string{"sync", "sync/atomic", "os", "net", "context", "log/slog", "math/rand", "math/rand/v2", "crypto/rand"}, p) {
				t.Errorf("%s is pure but imports %s", f.path, p)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: pure, but starts a goroutine", f.fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
					t.Errorf("%s: pure, but asks the clock: time.%s", f.fset.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
	for _, p := range pureFiles {
		if !seen[p] {
			t.Errorf("%s is listed as pure but is not there", p)
		}
	}
}

// Libraries start nothing by themselves: their callers own the goroutines.
func TestLeavesStartNoGoroutines(t *testing.T) {
	for _, f := range sourceFiles(t) {
		if f.isTest() || !slices.Contains([]string{"tail", "spool", "internal/vfs"}, f.pkg()) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: package %s starts a goroutine", f.fset.Position(n.Pos()), f.pkg())
			}
			return true
		})
	}
}

// Unfinished work does not enter the tree.
func TestNoUnfinishedWork(t *testing.T) {
	marks := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for _, f := range sourceFiles(t) {
		for i, line := range strings.Split(f.text, "\n") {
			if marks.MatchString(line) {
				t.Errorf("%s:%d: %s", f.path, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// A linter is silenced for a reason that stands beside it.
func TestNolintHasAReason(t *testing.T) {
	directive := regexp.MustCompile(`//no` + `lint(:[a-z,]+)? // .{8,}`)
	for _, f := range sourceFiles(t) {
		for i, line := range strings.Split(f.text, "\n") {
			if strings.Contains(line, "//no"+"lint") && !directive.MatchString(line) {
				t.Errorf("%s:%d: give the linter and the reason: //no%s:name // why", f.path, i+1, "lint")
			}
		}
	}
}

// What is promised names a test in each row, and each of them exists.
func TestContractIsTested(t *testing.T) {
	tests := map[string]bool{}
	for _, f := range sourceFiles(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				tests[fn.Name.Name] = true
			}
		}
	}
	for _, doc := range []string{"docs/contract.md", "docs/spool.md", "docs/records.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| event") || strings.HasPrefix(line, "| point") {
				continue
			}
			rows++
			names := regexp.MustCompile(`(Test|Fuzz)[A-Z0-9]\w*`).FindAllString(line, -1)
			if len(names) == 0 {
				t.Errorf("%s: no test in: %s", doc, line)
			}
			for _, name := range names {
				if !tests[name] {
					t.Errorf("%s names %s, which does not exist", doc, name)
				}
			}
		}
		if rows < 20 {
			t.Errorf("%s: %d rows were read", doc, rows)
		}
	}
}
