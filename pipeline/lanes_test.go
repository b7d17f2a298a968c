package pipeline

import "testing"

func TestFamily(t *testing.T) {
	for path, want := range map[string]string{
		"/l/app.log":                    "/l/app.log",
		"/l/app.log.1":                  "/l/app.log",
		"/l/app.log.12.gz":              "/l/app.log",
		"/l/app.log-20261129":           "/l/app.log",
		"/l/app.log-20261129-1.zst":     "/l/app.log",
		"/l/app.log.2026-11-29.3":       "/l/app.log",
		"/l/app-01.log":                 "/l/app-01.log",
		"/pods/u/c/0.log":               "/pods/u/c/0.log",
		"/pods/u/c/0.log.20261129-1030": "/pods/u/c/0.log",
	} {
		if got := family(path); got != want {
			t.Errorf("family(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestSlotsOfBlocksDiffer(t *testing.T) {
	got := slotsOf([]Source{{Topic: "a"}, {Topic: "b"}, {Topic: "a"}, {Topic: "a", Lanes: 7}})
	want := []slots{{0, 1}, {0, 4}, {1, 1}, {2, 7}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("block %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// Another number of slots moves only the paths that the new slot takes.
func TestSlotIsStable(t *testing.T) {
	moved, n := 0, 2000
	for i := range n {
		path := "/var/log/" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		before, after := slots{0, 4}.of(path), slots{0, 5}.of(path)
		if after != before {
			if after != 4 {
				t.Fatalf("%s moved from slot %d to old slot %d", path, before, after)
			}
			moved++
		}
	}
	if moved < n/10 || moved > n/3 {
		t.Fatalf("%d of %d paths moved to the fifth slot", moved, n)
	}
}
