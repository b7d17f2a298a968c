package spool

// Lives of a log on a disk that does all that disks do: it lies about syncs, rots,
// loses files and ends of files, is full, fails an operation. Each life ends by a
// power cut or by the death of the process.

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"shipper/internal/vfs"
)

// TestRotWalk: whatever happens, a start succeeds, no number is given to two lines
// of one producer id, and no line is gone without a count. At the end the broker
// takes all that is left.
//
//	SPOOL_SEEDS=20000 go test -run RotWalk ./spool    more of it
//	SPOOL_SEEDS=501-900 go test -run RotWalk ./spool  a part
//	SPOOL_SEED=17 go test -run RotWalk ./spool        one of them again
func TestRotWalk(t *testing.T) {
	from, to := seedsOf(t, 40)
	total := map[string]int{}
	seeds := slices.Clone(rotBugs)
	for seed := from; seed < to; seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		w := newWorld(seed)
		if err := rotWalk(w); err != nil {
			t.Fatalf("SPOOL_SEED=%d: %v", seed, err)
		}
		for what, n := range w.stats {
			total[what] += n
		}
	}
	t.Log(len(seeds), "seeds:", total)
	if to-from >= 40 {
		for _, what := range []string{"lines", "sent", "healed", "power cut", "killed", "restored", "failed", "failed start", "bit", "zeros", "cut off", "gone", "drained"} {
			if total[what] == 0 {
				t.Errorf("never happened: %s", what)
			}
		}
	}
}

// rotBugs are seeds that showed a bug once.
var rotBugs = []uint64{
	17294, // void batches stood for lost ones: two checkpoints in a row were damaged, which alone said where the segment before ended
}

func rotWalk(w *world) error {
	mem := vfs.NewMem()
	everAt := map[laneIndex][]string{}
	if err := w.open(mem); err != nil {
		return err
	}
	if err := errors.Join(w.step(), w.sync()); err != nil {
		return err
	}
	fault := &vfs.Fault{Match: func(vfs.Op) bool { return false }}
	for range 6 {
		steps := 10 + w.rng.IntN(40)
		liesFrom := w.rng.IntN(2 * steps) // to the end of this life, and now and then before
		old := mem.Kill()
		for i := range steps {
			mem.SetLying(i >= liesFrom || w.rng.IntN(4) == 0)
			err := w.step()
			w.remember(everAt)
			if err != nil && fault.Fired() {
				w.stats["failed"]++
				break // the process ends
			}
			if err != nil {
				return err
			}
		}
		for _, m := range w.possible { // what was being appended may be there too
			m.remember(everAt)
		}
		var err error
		if mem, err = w.afterLife(mem, old); err != nil {
			return err
		}
		if fault, err = w.nextLife(&mem, everAt); errors.Is(err, errUndefined) {
			w.stats["given up"]++
			return nil
		}
		if err != nil {
			return err
		}
		if lost := w.lostFor(everAt); len(lost) > 0 {
			return fmt.Errorf("lost: %v", lost)
		}
	}
	return w.drain(mem, everAt, fault)
}

// afterLife is what the end of a life leaves of the disk, and what time does to it.
// old is the disk as it was when the life began: a copy that may come back.
func (w *world) afterLife(mem, old *vfs.Mem) (*vfs.Mem, error) {
	switch w.rng.IntN(8) {
	case 0, 1:
		w.stats["killed"]++
		mem = mem.Kill()
	case 2:
		w.stats["restored"]++
		mem = old
	default:
		w.stats["power cut"]++
		mem = mem.Crash(w.rng)
	}
	names, err := segmentFiles(mem)
	if err != nil || len(names) == 0 || w.rng.IntN(2) == 0 {
		return mem, err
	}
	name := names[w.rng.IntN(len(names))]
	f, err := mem.OpenFile(name, vfs.Write)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil || size == 0 {
		return mem, errors.Join(err, f.Close())
	}
	at := w.rng.Int64N(size)
	if w.rng.IntN(2) == 0 {
		at %= 4096 // where frames are for sure
	}
	switch w.rng.IntN(8) {
	case 0:
		w.stats["gone"]++
		err = mem.Remove(name)
	case 1:
		w.stats["cut off"]++
		err = f.Truncate(at)
	case 2, 3:
		w.stats["zeros"]++
		_, err = f.WriteAt(make([]byte, min(1+w.rng.Int64N(2000), size-min(at, size-1))), min(at, size-1))
	default:
		w.stats["bit"]++
		err = flip(mem, name, at*8+w.rng.Int64N(8))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	d, derr := mem.OpenDir("/spool")
	return mem, errors.Join(err, derr, f.Sync(), d.Sync(), f.Close())
}

// nextLife starts on a disk that may fail an operation, in the start or later.
func (w *world) nextLife(mem **vfs.Mem, everAt map[laneIndex][]string) (*vfs.Fault, error) {
	errs := []error{vfs.ErrNoSpace, errors.New("broken"), &vfs.ShortWriteError{Bytes: w.rng.IntN(300), Err: vfs.ErrNoSpace}}
	fault := &vfs.Fault{Match: func(op vfs.Op) bool { return op.Changing }, At: w.rng.IntN(200), Err: errs[w.rng.IntN(len(errs))]}
	if w.rng.IntN(2) == 0 {
		fault.At = w.rng.IntN(12) // in the start
	}
	err := w.adopt(vfs.Hook{FS: *mem, Before: fault.Before}, everAt)
	if err != nil && !errors.Is(err, errUndefined) && fault.Fired() {
		w.stats["failed start"]++
		*mem = (*mem).Crash(w.rng)
		err = w.adopt(*mem, everAt)
	}
	return fault, err
}

// drain lets the broker take all that is left.
func (w *world) drain(mem *vfs.Mem, everAt map[laneIndex][]string, fault *vfs.Fault) error {
	mem.SetLying(false)
	w.stuck = 0
	for range 2000 {
		waiting := 0
		for id := uint32(1); id <= laneCount; id++ {
			live := w.now.lanes[id].live()
			waiting += len(live)
			err := w.deliver(id)
			w.remember(everAt)
			if errors.Is(err, ErrFull) || err != nil && fault.Fired() {
				w.stats["failed"]++
				return nil
			}
			if err != nil {
				return err
			}
		}
		if waiting > 0 {
			continue
		}
		if lost := w.lostFor(everAt); len(lost) > 0 {
			return fmt.Errorf("lost: %v", lost)
		}
		w.stats["drained"]++
		if err := w.close(); err != nil && !fault.Fired() {
			return err
		}
		return nil
	}
	return errors.New("it never drains")
}
