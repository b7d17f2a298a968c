package tail

import (
	"path/filepath"
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
		{"/l/app.log.2026-12-31.gz", "/l/app.log.2027-01-01", "/l/app.log"},
		{"/l/app-2.log", "/l/app-1.log"},
		{"/l/app.10.log.gz", "/l/app.9.log.gz", "/l/app.1.log", "/l/app.log"},
		{"/l/app_002.log", "/l/app_001.log", "/l/app.log"},
		{"/l/app-2026-11-29-2.log.gz", "/l/app-2026-11-30-1.log.gz", "/l/app-2026-11-30-2.log", "/l/app-2026-11-30-10.log", "/l/app.log"},
		{"/l/app.2026-11-29.1.log", "/l/app.2026-11-30.0.log.gz", "/l/app.log"},
		{"/l/app-2026-11-30T10-00-00.000.log.gz", "/l/app-2026-11-30T10-00-00.500.log", "/l/app.log"},
		{"/l/my_2.log.2.gz", "/l/my_2.log.1", "/l/my_2.log"},
		{"/l/my-2.log-20261129", "/l/my-2.log-20261130", "/l/my-2.log"},
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

// What is believed to be a rotation of app.log, since it is read though no look ever saw it at its path, and how it got its name.
func TestRotationNames(t *testing.T) {
	for _, x := range []struct{ path, other, style string }{
		{"app.log", "app.log.1", ""},
		{"app.log", "app.log.1.gz", ""},
		{"app.log", "app.log-20261130", ""},
		{"app.log", "app.log.old", ""},
		{"app.log", "app.1.log", ".0"},
		{"app.log", "app.12.log.gz", ".0"},
		{"app.log", "app-1.log", "-0"},
		{"app.log", "app_001.log", "_0"},
		{"app.log", "app-2026-11-30.log", "-0-0-0"},
		{"app.log", "app-2026-11-30-1.log.gz", "-0-0-0-0"},
		{"app.log", "app.2026-11-30.0.log.gz", ".0-0-0.0"},
		{"app.log", "app.2026-11-30_14.log", ".0-0-0_0"},
		{"app.log", "app-20261130.log.zst", "-0"},
		{"app.log", "app-2026-11-30T10-00-00.000.log", "-0-0-0T0-0-0.0"},
		{"app-out.log", "app-out__2026-11-30_10-00-00.log", "__0-0-0_0-0-0"},
		{"app.json.log", "app.json.3.log", ".0"},
		{"app-2.log", "app-2.1.log", ".0"},
		{"app-2026-11-30.log", "app-2026-11-30-1.log", "-0"},
		{"localhost_access_log.txt", "localhost_access_log.2026-11-30.txt", ".0-0-0"},
		{"my\n.log", "my\n-3.log", "-0"},
		{"app.log", "app.log1764511682123456.tmp", ""},
	} {
		if !rotationName("/l/"+x.path, "/l/"+x.other) || !generationName("/l/"+x.path, "/l/"+x.other) {
			t.Errorf("%s is no rotation of %s", x.other, x.path)
		}
		if style := styleOf([]string{"/m/other", "/l/" + x.path}, "/l/"+x.other); style != x.style {
			t.Errorf("the style of %s beside %s is %q, want %q", x.other, x.path, style, x.style)
		}
	}
	for _, x := range [][2]string{
		{"app.log", "app.log"},
		{"app.log", "app.log.wf"},
		{"app.log", "app.wf.log"},
		{"app.log", "app-access.log"},
		{"app.log", "app2.log"}, // a number must be set off
		{"app.log", "app-2a.log"},
		{"app.log", "app__2.log"},
		{"app.log", "app-v2.log"},
		{"app.log", "app-2.1.log"},      // of app-2.log
		{"app.log", "app-2.log.1"},      // of app-2.log
		{"app.log", "app-2.log.1.gz"},   // of app-2.log
		{"app.log", "app-8080.1.log"},   // of the log of a port
		{"app.log", "app-10.0.0.7.log"}, // of a host
		{"app.log", "app-2026-11-30.txt"},
		{"app.log", "app-1.log.tmp"},
		{"app.log", "app.log1.tmp"},
		{"app.log", "app.log1764511682123456.tmp.1"},
		{"app.log", "app.1.log.bz"},
		{"app.log", "my-app-1.log"},
		{"app.log", "1.log"},
		{"app.gz", "app.1.gz"},
	} {
		if rotationName("/l/"+x[0], "/l/"+x[1]) {
			t.Errorf("%s is taken for a rotation of %s", x[1], x[0])
		}
	}
}

func TestOfAnother(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=*", `write app.log "1\n"`, `write app.log.log "2\n"`, `write access "3\n"`, `write access.log "4\n"`, "poll")
	for other, want := range map[string]string{
		"app.log.1":                "app.log",
		"app.log-20261130.log.gz":  "app.log.log",
		"app.log.1.log":            "app.log.log",
		"app-1.log":                "app.log",
		"app.log.1.txt":            "app.log", // there is no app.log.txt
		"access-2026-11-30.log.gz": "access.log",
		"access.1":                 "access",
	} {
		for _, path := range []string{"app.log", "app.log.log", "access", "access.log"} {
			at := blockPath{0, filepath.Join(m.dir, path)}
			if is := filepath.Join(m.dir, other); rotationName(at.path, is) && m.w.ofAnother(at, is) == (path == want) {
				t.Errorf("%s beside %s: of another is %v", other, path, path == want)
			}
		}
	}
}

// A sort needs a total order: of any three names, too.
func TestByGenerationIsAnOrder(t *testing.T) {
	names := []string{"a", "a.1", "a.2", "a.10", "a.1.gz", "a.2.gz", "a-20261130", "a-20261129", "a-20261130.gz", "a.", "a.000003", "a.3", "a-2026-01-31", "a-2026-02-01", "a-2026-1", "a-20261130-1", "a-20261130-2", "a.0", "a.00", "a.x", "a1", "a12", "a.log", "a.1.log", "a_1.log", "a-2.log.gz", "a.x.log", "a_1.log.1", "a-2026-11-30.log", "a-2026-11-30-1.log.gz", "a.log.1", "a.log_1", "a.log.2.gz", "a.1.gz.1", "a123456", "a1234567", "b", "1", "2", "12", ""}
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
