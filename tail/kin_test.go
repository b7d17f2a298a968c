package tail

import "testing"

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
