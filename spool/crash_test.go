package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// seedsOf is how many seeds a randomised test runs: few by default, as many as
// the variable says otherwise: "200", or "501-900" for a part.
func seedsOf(t testing.TB, few int) (from, to uint64) {
	if s := os.Getenv("SPOOL_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n, n + 1
	}
	from, to = 1, uint64(few)
	if s := os.Getenv("SPOOL_SEEDS"); s != "" {
		first, last, part := strings.Cut(s, "-")
		var err error
		if part {
			from, err = strconv.ParseUint(first, 10, 64)
			first = last
		}
		n, err2 := strconv.ParseUint(first, 10, 64)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		to = n
	}
	return from, to + 1
}

// TestCrashAtEveryOperation runs a random script and, before each operation that
// changes the disk, cuts the power: any part of what is not synced survives. What
// is then recovered must be a state that the model allows: nothing that a Sync
// covered is missing, groups are whole, in order, under their numbers. The
// recovery is crashed at every operation too.
//
//	SPOOL_SEEDS=200 go test -run CrashAtEvery ./spool   more of it
//	SPOOL_SEED=17   go test -run CrashAtEvery ./spool   one of them again
func TestCrashAtEveryOperation(t *testing.T) {
	from, to := seedsOf(t, 2)
	for seed := from; seed < to; seed++ {
		crashes := 0
		if err := crashEverywhere(newWorld(seed), seed, &crashes); err != nil {
			t.Fatalf("SPOOL_SEED=%d: %v", seed, err)
		}
		if crashes < 100 {
			t.Fatalf("SPOOL_SEED=%d: only %d crashes", seed, crashes)
		}
	}
}

func crashEverywhere(w *world, seed uint64, crashes *int) error {
	mem := vfs.NewMem()
	rng := rand.New(rand.NewPCG(seed, 2))
	op := 0
	hook := vfs.Hook{FS: mem, Before: func(o vfs.Op) error {
		if !o.Changing || w.log == nil || w.failure != nil {
			return nil
		}
		op++
		for range 2 {
			*crashes++
			if err := w.recoverCrash(mem.Crash(rng), rng, op%16 == 0, crashes); err != nil {
				w.failure = fmt.Errorf("power cut before operation %d (%v): %w", op, o, err)
			}
		}
		return nil
	}}
	if err := w.open(hook); err != nil {
		return err
	}
	for range 60 {
		if err := w.step(); err != nil {
			return err
		}
		if w.failure != nil {
			return w.failure
		}
	}
	return w.close()
}

// recoverCrash opens what a crash left. With again, that recovery is crashed
// before each of its operations too.
func (w *world) recoverCrash(mem *vfs.Mem, rng *rand.Rand, again bool, crashes *int) error {
	var inner error
	var fs vfs.FS = mem
	if again {
		op := 0
		fs = vfs.Hook{FS: mem, Before: func(o vfs.Op) error {
			if o.Changing && inner == nil {
				op++
				*crashes++
				if err := w.recoverCrash(mem.Crash(rng), rng, false, crashes); err != nil {
					inner = fmt.Errorf("again before operation %d (%v) of the recovery: %w", op, o, err)
				}
			}
			return nil
		}}
	}
	o := w.options(fs)
	o.rand = rand.NewChaCha8([32]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), 1})
	l, r, err := Open(o)
	if err != nil {
		return err
	}
	if _, err := findState(l, r, w.possible); err != nil {
		return err
	}
	if inner != nil {
		return inner
	}
	return l.Close()
}

// TestCrashWalk goes on after each crash: lives of random length, ended by a
// power cut, by the death of the process or by Close, in one history with one
// broker. No line may be lost and no number given to two lines.
func TestCrashWalk(t *testing.T) {
	from, to := seedsOf(t, 20)
	total := map[string]int{}
	for seed := from; seed < to; seed++ {
		w := newWorld(seed)
		if err := walk(w); err != nil {
			t.Fatalf("SPOOL_SEED=%d: %v", seed, err)
		}
		for what, n := range w.stats {
			total[what] += n
		}
	}
	if to-from >= 20 {
		for _, what := range []string{"lines", "sent", "dead letter", "cut again", "merged", "healed", "power cut", "killed", "closed"} {
			if total[what] == 0 {
				t.Errorf("never happened: %s", what)
			}
		}
	}
	t.Log(total)
}

func walk(w *world) error {
	mem := vfs.NewMem()
	for range 6 {
		stop := w.rng.IntN(700)
		ops := 0
		var crashed *vfs.Mem
		var atCrash []*model
		kill := w.rng.IntN(3) == 0
		hook := vfs.Hook{FS: mem, Before: func(o vfs.Op) error {
			if ops++; o.Changing && ops >= stop && crashed == nil {
				atCrash = append([]*model{}, w.possible...)
				if kill {
					crashed = mem.Kill()
				} else {
					crashed = mem.Crash(w.rng)
				}
				return errPowerCut
			}
			if crashed != nil {
				return errPowerCut
			}
			return nil
		}}
		err := w.open(hook)
		for err == nil && ops < 600 {
			err = w.step()
		}
		if err == nil {
			err = errors.Join(w.sync(), w.close())
		}
		switch {
		case crashed == nil && err != nil:
			return err
		case crashed == nil:
			w.stats["closed"]++
			continue
		case kill:
			w.stats["killed"]++
		default:
			w.stats["power cut"]++
		}
		mem, w.possible = crashed, atCrash
	}
	if err := w.open(mem); err != nil {
		return err
	}
	if lost := w.lost(); len(lost) > 0 {
		return fmt.Errorf("lost: %v", lost)
	}
	return w.close()
}

type powerCut struct{}

func (powerCut) Error() string { return "power cut" }

var errPowerCut error = powerCut{}
