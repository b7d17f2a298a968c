package spool

import (
	"io/fs"
	"syscall"
	"testing"

	"shipper/internal/vfs"
)

// counted refuses to have more than max files open, or to open the one with number refuse, 0: none.
type counted struct {
	max, open      int
	opened, refuse int
}

func (c *counted) before(op vfs.Op) error {
	switch op.Kind {
	case "open", "create":
		c.opened++
		if c.open == c.max || c.opened == c.refuse {
			return &fs.PathError{Op: "open", Path: op.Name, Err: syscall.EMFILE}
		}
		c.open++
	case "close":
		c.open--
	}
	return nil
}

// TestMoreSegmentsThanDescriptors is a start that finds many more segments than it may open, and one that is refused any one of its
// openings: a segment that cannot be opened is not damaged. Such a start fails and leaves the spool as it was.
func TestMoreSegmentsThanDescriptors(t *testing.T) {
	mem := vfs.NewMem()
	s := newStuck(t, mem)
	for range 90 {
		s.group(0, testSegmentBytes/6)
	}
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
	c, refused := &counted{}, 0
	for fails := true; fails; {
		refused++
		c = &counted{max: 8, refuse: refused}
		var err error
		var r *Recovered
		s.log, r, err = Open(stuckOptions(vfs.Hook{FS: mem, Before: c.before}))
		if fails = c.opened >= c.refuse; fails && err == nil {
			_ = s.log.Close() // it could do without that file
			continue
		}
		switch {
		case fails && !IsNoDescriptor(err):
			t.Fatalf("opening %d refused: %v", refused, err)
		case !fails && err != nil:
			t.Fatal(err)
		case !fails && (r.Segments < 15 || len(r.Damage) > 0 || len(r.Lanes[0].Batches) != len(s.want)):
			t.Fatalf("%d segments, damage %v, lane %+v", r.Segments, r.Damage, r.Lanes[0])
		case !fails:
			s.held = r.Lanes[0].Batches
		}
	}
	if refused < 20 {
		t.Errorf("only %d openings", refused)
	}
	c.max, c.refuse = 100, 0 // a reader keeps files open
	s.wantHeld()
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
}
