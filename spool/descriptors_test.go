package spool

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"

	"shipper/internal/vfs"
)

// starving is a file system that opens one file in two at most, while others take the descriptors.
type starving struct {
	now     bool
	rnd     *rand.Rand
	refused int
}

func (s *starving) on(under vfs.FS) vfs.FS {
	return vfs.Hook{FS: under, Before: func(op vfs.Op) error {
		switch op.Kind {
		case "open", "create", "opendir", "readdir", "lock":
			if s.now && s.rnd.IntN(2) == 0 {
				s.refused++
				return &fs.PathError{Op: "open", Path: op.Name, Err: syscall.EMFILE}
			}
		}
		return nil
	}}
}

// TestNoDescriptors is a log that may open nothing for random times, beside a lane that is stuck: segments begin, are thinned, copied and
// read meanwhile. Groups wait then and nothing is final; what was appended is there.
func TestNoDescriptors(t *testing.T) {
	const groups = 1200
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, holes := range []bool{true, false} {
		rnd := rand.New(rand.NewPCG(seed, 0))
		starve := starving{rnd: rnd}
		under := starve.on(vfs.NewMem())
		if !holes {
			under = noHoles(under)
		}
		s := newStuck(t, under)
		waited, failed := 0, 0
		add := func(batches []Batch, c *Commit) []Ref {
			t.Helper()
			for {
				refs, err := s.log.Append(nil, batches, c)
				if err == nil {
					return refs
				}
				if !starve.now || !errors.Is(err, ErrFull) || !IsNoDescriptor(err) {
					t.Fatal(err)
				}
				waited++
			}
		}
		for i := range groups {
			starve.now = rnd.IntN(3) == 0
			batches := []Batch{testBatch(2, s.next, 1, 200)}
			s.next++
			if i%12 == 0 {
				batches = append(batches, testBatch(1, uint64(len(s.want)), 1, 300))
				s.want = append(s.want, batches[1])
			}
			refs := add(batches, nil)
			s.held = append(s.held, refs[1:]...)
			mustSync(t, s.log)
			add(nil, &Commit{Acks: []Ack{{Lane: 2, First: s.next - 1, Count: 1}}})
			if _, err := s.log.AckedFrom(2, s.next-1); err != nil {
				failed++
				if !starve.now || !IsNoDescriptor(err) {
					t.Fatal(err)
				}
			}
			clear(s.log.asked)
		}
		starve.now = false
		s.wantHeld()
		if starve.refused == 0 || waited == 0 || failed == 0 || s.log.Stats().BytesCarried == 0 {
			t.Errorf("%d refused, %d groups waited, %d lists failed, %+v", starve.refused, waited, failed, s.log.Stats())
		}
		if err := s.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
