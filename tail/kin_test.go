package tail

import (
	"strings"
	"testing"
)

func TestStemOf(t *testing.T) {
	for path, want := range map[string]string{
		"/l/app.log":                           "/l/app.log",
		"/l/app.log.1":                         "/l/app.log",
		"/l/app.log-20261130.gz":               "/l/app.log",
		"/l/app.log-20261130-2.zst":            "/l/app.log",
		"/l/app.log.2026-11-30_10":             "/l/app.log",
		"/l/app.log.2026-11-30_10-15-59.gz":    "/l/app.log",
		"/l/app.log.2026-11-30T10-15-59":       "/l/app.log",
		"/l/app.log-20261130_101559":           "/l/app.log",
		"/l/app.log.2026-11-29.3":              "/l/app.log",
		"/l/app.log.12.gz":                     "/l/app.log",
		"/l/app_20261130.log":                  "/l/app.log",
		"/l/app-8080-2026-11-30.log":           "/l/app-8080.log",
		"/l/2026-11-30.log":                    "/l/2026-11-30.log",
		"/pods/u/c/0.log":                      "/pods/u/c/0.log",
		"/pods/u/c/0.log.20261129-1030":        "/pods/u/c/0.log",
		"/l/worker_1":                          "/l/worker_1",
		"/l/app_log.PORT8080":                  "/l/app_log.PORT8080",
		"/l/app-2026-11-30T10-15-59.000.log.1": "/l/app.log",
		"/l/app-2026-11-30-1.log.gz":           "/l/app.log",
		"/l/app.20261130.log":                  "/l/app.log",
		"/l/app-2026.log":                      "/l/app-2026.log",
		"/l/app-1.log":                         "/l/app-1.log",
		"/l/app-1234567.log":                   "/l/app-1234567.log",
		"/l/app-10.0.0.7.log":                  "/l/app-10.0.0.7.log",
		"/l/1":                                 "/l/1",
	} {
		if got := stemOf(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// TestFamilyWithoutLiveLog: a program that makes its log with the first line behind a rotation leaves no log of that name for a while.
// What is found then, after a start or not, belongs to the log all the same; without one that is known each is a log of its own.
func TestFamilyWithoutLiveLog(t *testing.T) {
	for _, begin := range [][]string{
		{`write app.log "1\n"`, "poll", "tick", "mv app.log app-2026-11-30-1.log", `write app-2026-11-30-2.log "2\n"`, "poll"},
		{`write app.log "1\n"`, "poll", "restart", "mv app.log app-2026-11-30-1.log", `write app-2026-11-30-2.log "2\n"`, "poll"},
		{`write app-2026-11-30-1.log "1\n"`, "poll", `write app-2026-11-30-2.log "2\n"`, "poll"},
	} {
		m := newMachine(t, false)
		m.opts.Blocks = []Block{{Name: "b", Paths: []string{m.dir + "/*.log*"}, LineBytesMax: 100}}
		families := map[string]string{}
		m.onLine = func(f *File, line Line) { families[string(line.Bytes)] = m.rel(f.Family()) }
		stepAll(t, m, begin...)
		want := "app.log"
		if strings.Contains(begin[0], "2026") {
			want = "app-2026-11-30-2.log"
		}
		if families["2"] != want {
			t.Errorf("%q: %v", begin, families)
		}
	}
}
