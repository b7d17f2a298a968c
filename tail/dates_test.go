package tail

import "testing"

func TestByDate(t *testing.T) {
	for _, c := range []struct {
		older, younger string
		told           bool
	}{
		{"/l/0.log.20261130-140802.gz", "/l/0.log.20261130-140803", true},
		{"/l/0.log.20261130-235959", "/l/0.log.20261201-000001.gz", true},
		{"/l/app.log-20261231", "/l/app.log-20270101.gz", true},
		{"/l/app-2026-12-31.log.gz", "/l/app-2027-01-01.log", true},
		{"/l/app.log.2026-11-09", "/l/app.log.2026-11-10", true},
		{"/l/app.log.1764511682", "/l/app.log.1764511700.gz", true},
		{"/l/app.log.2026-11-30.2", "/l/app.log.2026-11-30.10", true},
		{"/l/app.log.2", "/l/app.log.1", false},
		{"/l/app.log.2.gz", "/l/app.log", false},
		{"/l/app.log.2026-11-30", "/l/app.log", false},
		{"/k/app.log-20261130", "/l/app.log-20261201", false},
		{"/l/app.log-20261130", "/l/app.log-20261130.gz", false},
	} {
		want := 0
		if c.told {
			want = -1
		}
		if got, back := byDate(c.older, c.younger), byDate(c.younger, c.older); got != want || back != -want {
			t.Errorf("%s and %s: %d and %d", c.older, c.younger, got, back)
		}
		if c.told && !(hasDate([]string{"/l/0.log", "/l/app.log"}, c.older) && hasDate([]string{"/l/0.log", "/l/app.log"}, c.younger)) {
			t.Errorf("%s or %s has no date", c.older, c.younger)
		}
	}
	for path, other := range map[string]string{"/20261130/app.log": "/20261130/app.log.1", "/l/app.log": "/l/app.log.12345", "/l/a-20261130.log": "/l/a-20261130.log.1.gz", "/l/0.log": "/l/0.log"} {
		if hasDate([]string{path}, other) {
			t.Errorf("%s has a date", other)
		}
	}
}
