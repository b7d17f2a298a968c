package tail

import (
	"strings"
	"testing"
)

// unpacksAt is a machine whose reader is done with the file at before when the one at path is handed out.
type unpacksAt struct {
	*machine
	before, path string
}

func (u unpacksAt) Open(f *File) {
	if u.rel(f.Path()) == u.path {
		for _, g := range u.opened {
			for u.rel(g.Path()) == u.before && !g.unpacked.Load() {
				u.number(g)
				u.read(g)
			}
		}
	}
	u.machine.Open(f)
}

// TestOpenedCopyIsNotUnpacked: a copy that waits behind another, and is opened so that it may be deleted meanwhile, keeps nobody from being
// unpacked: the other may wait for that.
func TestOpenedCopyIsNotUnpacked(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=*.log", `write a.log "1\n"`, `write app.log "1\n"`, `write app-b.log "1\n"`, "poll")
	for _, f := range []string{"a", "app", "m", "app-b"} { // in this order they are queued
		stepAll(t, m, `append `+f+`.log "2\n"`, "tick")
		if f != "m" {
			stepAll(t, m, "mv "+f+".log "+f+".log.1", "gzip "+f+".log.1")
		}
	}
	stepAll(t, m, "restart paths=*.log")
	m.start()
	m.w.handler = unpacksAt{m, "a.log", "m.log"}
	m.look()
	if n := len(m.w.open); n != 3 {
		t.Fatalf("%d files are open", n)
	}
	out := stepAll(t, m, "poll")
	for _, want := range []string{"a.log", "app.log", "app-b.log", "m.log"} {
		if !strings.Contains(out, want+" 0002-0004 \"2\"") && !strings.Contains(out, want+" 0000-0002 \"2\"") {
			t.Errorf("%s was not read:\n%s", want, out)
		}
	}
}
