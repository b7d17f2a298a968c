package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	if got := Median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("odd: %v", got)
	}
	if got := Median([]float64{4, 1, 2, 9}); got != 3 {
		t.Errorf("even: %v", got)
	}
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	r := Result{Name: "e2e", Args: []string{"-runs", "3"}, Machine: Machine(dir)}
	table := NewTable("a", "b")
	table.Add("1", "2")
	r.Body.WriteString(table.String())
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*-e2e.md"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"`go run ./benchmarks/e2e -runs 3`", "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", "go1."} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
