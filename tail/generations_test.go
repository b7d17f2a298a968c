package tail

import (
	"slices"
	"testing"
)

func TestByGeneration(t *testing.T) {
	for _, oldestFirst := range [][]string{
		{"/l/app.log.10", "/l/app.log.9", "/l/app.log.2", "/l/app.log.1", "/l/app.log"},
		{"/l/app.log.3.gz", "/l/app.log.2.gz", "/l/app.log.1", "/l/app.log"},
		{"/l/app.log-20261129", "/l/app.log-20261130", "/l/app.log"},
		{"/l/app.log-20261130-1796025149", "/l/app.log-20261130-1796025150", "/l/app.log"},
		{"/l/app.log.02", "/l/app.log.01", "/l/app.log.00"},
		{"/l/app.log.2026-01-31", "/l/app.log.2026-02-01", "/l/app.log"},
		{"/l/app.log-20261130-002", "/l/app.log-20261130-003", "/l/app.log-20261130-010", "/l/app.log"},
		{"/l/app.log.20261130-000405", "/l/app.log.20261130-000910.gz", "/l/app.log.20261130-101010", "/l/app.log"},
		{"/k/app.log", "/l/app.log.1", "/l/app.log"},
		{"/l/a.log", "/l/b.log"},
		{"/l/app-2.log", "/l/app-1.log"},
		{"/l/10.log", "/l/11.log"}, // numbers that are the whole name count no generations
	} {
		got := slices.Clone(oldestFirst)
		for range oldestFirst { // each rotation of the list is another start
			got = append(got[1:], got[0])
			sorted := slices.SortedFunc(slices.Values(got), byGeneration)
			if !slices.Equal(sorted, oldestFirst) {
				t.Fatalf("got %q, want %q", sorted, oldestFirst)
			}
		}
	}
}

// A sort needs a total order: of any three names, too.
func TestByGenerationIsAnOrder(t *testing.T) {
	names := []string{"a", "a.1", "a.2", "a.10", "a.1.gz", "a.2.gz", "a-20261130", "a-20261129", "a-20261130.gz", "a.", "a.000003", "a.3", "a-2026-01-31", "a-2026-02-01", "a-2026-1", "a-20261130-1", "a-20261130-2", "a.0", "a.00", "a.x", "a1", "a12", "a123456", "a1234567", "b", "1", "2", "12", ""}
	for _, x := range names {
		for _, y := range names {
			if xy, yx := byGeneration(x, y), byGeneration(y, x); xy != -yx || (xy == 0) != (x == y) {
				t.Errorf("%q against %q is %d, and %d the other way", x, y, xy, yx)
			}
			for _, z := range names {
				if byGeneration(x, y) < 0 && byGeneration(y, z) < 0 && byGeneration(x, z) >= 0 {
					t.Errorf("%q < %q < %q, but not the first before the last", x, y, z)
				}
			}
		}
	}
}

// Two compressed generations were written last in one tick of the clock. The younger one is not forgotten before the older one.
func TestNeededInOneTick(t *testing.T) {
	w, err := NewWatcher(Options{Blocks: []Block{{Name: "b", Paths: []string{"/logs/app.log"}, LineBytesMax: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	packed := func(id uint64, at string) *File {
		f := w.newFile(0, "/logs/app.log")
		f.id.Store(id)
		f.src.packed, f.src.at, f.src.age, f.src.missing = "gzip", at, 7, true
		w.joinKin(f)
		return f
	}
	older, younger := packed(1, "/logs/app.log.2.gz"), packed(2, "/logs/app.log.1.gz")
	if w.needed(older) || !w.needed(younger) {
		t.Errorf("older needed: %v, younger needed: %v", w.needed(older), w.needed(younger))
	}
}
