package kafkatest

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// contents returns the lines of a file, oldest generation first, each once.
func contents(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for k := 20; k >= 0; k-- {
		name := path
		if k > 0 {
			name = fmt.Sprintf("%s.%d", path, k)
		}
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) && k > 0 {
			f, err := os.Open(name + ".gz")
			if err != nil {
				continue
			}
			z, err := gzip.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			if data, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		for l := range strings.Lines(string(data)) {
			all = append(all, strings.TrimSuffix(l, "\n"))
		}
	}
	return all
}

// Whatever the rotation, the generations together hold exactly what Written says.
func TestWriterRotations(t *testing.T) {
	for _, r := range []Rotation{NoRotation, RotateRename, RotateTruncate, RotateCompress, RotateRenameLate} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			w := NewWriter(t, WriterOptions{
				Dir: t.TempDir(), Files: 2, LineBytes: 60, Rotation: r, RotateLines: 7, TornWrites: true, Seed: 1,
			})
			w.Write(50)
			written := w.Written()
			if got := slices.Sorted(maps.Keys(written)); !slices.Equal(got, []string{"app-00", "app-01"}) || w.Lines() != 50 {
				t.Fatalf("tags %v, %d lines", got, w.Lines())
			}
			for i, tag := range []string{"app-00", "app-01"} {
				if got := contents(t, w.Path(i)); !slices.Equal(got, written[tag]) || len(got) != 25 {
					t.Errorf("%s: the files hold %d lines, written were %d", tag, len(got), len(written[tag]))
				}
			}
			rotated, err := filepath.Glob(w.Path(0) + ".*")
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{true: 0, false: 3}[r == NoRotation]; len(rotated) != want {
				t.Errorf("%d generations %v, want %d", len(rotated), rotated, want)
			}
		})
	}
}

// Before bytes are destroyed the test is asked, and it may look at the writer then.
func TestWriterAsksBeforeLoss(t *testing.T) {
	for _, tt := range []struct {
		r    Rotation
		keep int
		want string
	}{
		{RotateDelete, 0, "app-00.log app-00.log"},
		{RotateTruncate, 1, "app-00.log app-00.log.1 app-00.log"},
		{RotateRename, 1, "app-00.log.1"},
		{RotateCompress, 1, "app-00.log.1.gz"},
	} {
		var asked []string
		var w *Writer
		w = NewWriter(t, WriterOptions{
			Dir: t.TempDir(), Rotation: tt.r, KeepRotated: tt.keep,
			BeforeLoss: func(path string) {
				if w.Lines() != int64(len(w.Written()["app-00"])) {
					t.Error("writer contradicts itself")
				}
				if _, err := os.Stat(path); err != nil {
					t.Errorf("asked too late: %v", err)
				}
				asked = append(asked, filepath.Base(path))
			},
		})
		w.Write(3)
		w.Rotate(0)
		w.Write(3)
		w.Rotate(0)
		if got := strings.Join(asked, " "); got != tt.want {
			t.Errorf("rotation %d asked for %q, want %q", tt.r, got, tt.want)
		}
	}
}

func TestWriterRuns(t *testing.T) {
	w := NewWriter(t, WriterOptions{Dir: t.TempDir(), Rate: 5000})
	w.Start()
	for deadline := time.Now().Add(10 * time.Second); w.Lines() < 100 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	w.Stop()
	w.Stop()
	n := w.Lines()
	if got := contents(t, w.Path(0)); n < 100 || int64(len(got)) != n || !slices.Equal(got, w.Written()["app-00"]) {
		t.Errorf("%d lines counted, %d in the file", n, len(got))
	}
}
