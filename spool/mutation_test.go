package spool

import (
	"errors"
	"fmt"
	"testing"

	"shipper/internal/vfs"
)

// TestEveryRuleIsNeeded leaves out one rule of the log after the other: one of
// the random tests must find something wrong, within the seeds that are named, all
// of which pass with every rule in place. What is printed says what the rule is
// there for.
func TestEveryRuleIsNeeded(t *testing.T) {
	provers := map[string]func(w *world, seed uint64) error{
		"crash at every operation": func(w *world, seed uint64) error { return crashEverywhere(w, seed, new(int)) },
		"crash at every release":   func(w *world, _ uint64) error { return crashReleases(w) },
		"stale frames":             func(w *world, _ uint64) error { return staleFrames(w) },
		"rot walk":                 func(w *world, _ uint64) error { return rotWalk(w) },
		"bit flips":                func(w *world, _ uint64) error { return flipBits(w, 64, map[string]int{}) },
		"stale end":                func(w *world, starts uint64) error { return staleEnd(w, int(starts)) },
	}
	for _, c := range []struct {
		name   string
		rule   rule
		prover string
		seeds  uint64
	}{
		{"a batch counts only with the commit of its group", ruleGroup, "crash at every operation", 2},
		{"the first bad frame from D on ends the log", ruleTear, "crash at every operation", 2},
		{"a bad frame below D costs only itself", ruleDurable, "bit flips", 2},
		{"each life of a file has a seed of its own", ruleSeed, "stale frames", 1},
		{"a later segment says where the one before it ends", ruleEnd, "crash at every operation", 4},
		{"later ones say so too", ruleEnds, "stale end", 2},
		{"of a segment whose end is not known only batches count, and are told", ruleEndless, "stale end", endsRepeated + 1},
		{"a segment is synced before it gets its name", ruleName, "crash at every operation", 2},
		{"the segment before it is synced first", ruleOrder, "crash at every operation", 12},
		{"only what a synced commit has released goes", ruleRelease, "crash at every release", 20},
		{"every start ends every identity", ruleIdentity, "rot walk", 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed <= c.seeds; seed++ {
				w := newWorld(seed)
				w.without = c.rule
				if err := orPanic(func() error { return provers[c.prover](w, seed) }); err != nil {
					t.Logf("%s, seed %d: %v", c.prover, seed, err)
					return
				}
			}
			t.Errorf("%d seeds of the %s found nothing", c.seeds, c.prover)
		})
	}
}

// orPanic makes an error of a panic: what a broken log runs into.
func orPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// crashReleases acks a batch when three segments lie behind it and keeps nothing to
// heal, so that each ack of a segment's last batch releases it, and cuts the power
// around each change of a name.
func crashReleases(w *world) error {
	const lag = 12
	w.retain = 1
	mem := vfs.NewMem()
	crashes, failure := 0, error(nil)
	l, _, err := Open(w.options(vfs.Hook{FS: mem, Before: func(o vfs.Op) error {
		if failure != nil || o.Kind != "rename" && o.Kind != "remove" && o.Kind != "syncdir" {
			return nil
		}
		crashes++
		after, r, err := Open(w.options(mem.Crash(w.rng)))
		if err == nil {
			err = after.Close()
		}
		if err == nil && len(r.Damage) > 0 {
			err = fmt.Errorf("power cut before %v: %+v", o, r.Damage)
		}
		failure = err
		return nil
	}}))
	if err != nil {
		return err
	}
	c := &Commit{Lanes: []Lane{{ID: 1}}}
	for first := uint64(0); first < 40 && failure == nil; first++ {
		if _, err := l.Append(nil, []Batch{testBatch(1, first, 1, 3500)}, c); err != nil {
			return err
		}
		if err := l.Sync(); err != nil {
			return err
		}
		c = nil
		if first >= lag {
			c = &Commit{Acks: []Ack{{Lane: 1, First: first - lag, Count: 1}}}
		}
	}
	if crashes < 20 && failure == nil {
		return fmt.Errorf("only %d crashes", crashes)
	}
	return errors.Join(failure, l.Close())
}

// TestCrashAtEveryRelease is that with every rule in place.
func TestCrashAtEveryRelease(t *testing.T) {
	from, to := seedsOf(t, 5)
	for seed := from; seed < to; seed++ {
		if err := crashReleases(newWorld(seed)); err != nil {
			t.Fatalf("SPOOL_SEED=%d: %v", seed, err)
		}
	}
}
