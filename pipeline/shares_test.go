package pipeline

import (
	"math/rand/v2"
	"slices"
	"testing"

	"shipper/spool"
)

func TestShares(t *testing.T) {
	s := newShares([]int{30, 0, 0}, nil, 1000)
	if s.kept[0] != 300 || s.kept[1] != 175 || s.kept[2] != 175 {
		t.Fatalf("kept %v", s.kept)
	}
	s.room = 1000
	if !s.fits(1, 525) || s.fits(1, 526) {
		t.Error("a block takes its own and what nobody has claimed, no more")
	}
	s.took(1, 525)
	if s.fits(1, 1) || !s.fits(0, 300) || s.fits(0, 301) || !s.fits(2, 175) {
		t.Errorf("%+v", s)
	}
	if one := newShares([]int{0}, nil, 1000); !one.fits(0, 0) {
		t.Error("a block alone")
	} else if one.room = 1000; !one.fits(0, 1000) {
		t.Error("a block alone takes all")
	}
	if claims := newShares([]int{60, 40, 0}, nil, 1000); claims.kept[2] != 0 {
		t.Errorf("kept %v", claims.kept)
	}
}

// Lines longer than a part: one block at a time has a turn, if all of it was
// delivered so far.
func TestSharesTurn(t *testing.T) {
	s := newShares([]int{0, 0, 0, 0}, []int64{300, 300, 10, 10}, 1000)
	if s.turn != 300 || s.kept[0] != 87 {
		t.Fatalf("turn %d, kept %v", s.turn, s.kept)
	}
	s.room = 561 // others have the rest
	if s.fits(0, 300) {
		t.Error("a turn for a block that may never deliver")
	}
	s.delivered[0], s.delivered[1] = true, true
	if !s.fits(0, 300) || !s.fits(1, 300) || s.fits(0, 301) {
		t.Errorf("%+v", s)
	}
	s.took(0, 300)
	if s.fits(1, 300) || s.fits(0, 1) || !s.fits(1, 87) || !s.fits(2, 87) || !s.fits(3, 87) {
		t.Errorf("one at a time: %+v", s)
	}
	s.measure(561) // delivered
	if !s.fits(1, 300) {
		t.Errorf("the next: %+v", s)
	}
	s.measure(900) // room for all: nobody's turn
	if s.took(0, 300); !s.turnFree() {
		t.Errorf("%+v", s)
	}
}

// Whatever the others write, a block gets what is kept for it.
func TestSharesHold(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		percent := make([]int, 1+rng.IntN(6))
		for i, left := 0, 100; i < len(percent); i++ {
			if rng.IntN(2) == 0 {
				percent[i] = rng.IntN(left/2 + 1)
				left -= percent[i]
			}
		}
		s := newShares(percent, nil, 100_000)
		s.room = 100_000
		for range 2000 {
			if b, n := rng.IntN(len(percent)), rng.Int64N(2000); s.fits(b, n) {
				s.took(b, n)
			}
			for b := range percent {
				if left := s.kept[b] - s.used[b]; left > 0 && (!s.fits(b, left) || s.room < left) {
					t.Fatalf("block %d of %v does not get its last %d bytes: %+v", b, percent, left, s)
				}
			}
		}
	}
}

// The source of gap records takes little of anybody's part: one source beside it has
// what it has alone, but for that.
func TestGapsTakeLittle(t *testing.T) {
	source := Source{Name: "app", Topic: "t", LineBytesMax: 1 << 20, Oversize: "split"}
	for _, maxBytes := range []int64{32 << 20, 64 << 20, 10 << 30} {
		for _, sources := range []int{1, 2, 50} {
			cfg := &Config{Sources: slices.Repeat([]Source{source}, sources), Spool: Spool{RetainAckedBytes: 64 << 20}}
			plan := &spool.Plan{MaxBytes: maxBytes, SegmentBytes: max(4<<20, min(maxBytes/64, 64<<20))}
			without := KeptBytes(cfg, plan)
			cfg.Spool.GapTopic = "gaps"
			for i, kept := range KeptBytes(cfg, plan) {
				if without[i]-kept > ownBytes {
					t.Errorf("%d sources of %d bytes: %d are kept for each, %d beside gap records", sources, maxBytes, without[i], kept)
				}
			}
			all := *cfg
			all.Sources = slices.Concat(cfg.Sources, gapSource(cfg))
			s := dividedSpool(&all, plan.MaxBytes, plan.SegmentBytes)
			gaps := s.kept[sources]
			if gaps > ownBytes || gaps < all.Sources[sources].longest() {
				t.Errorf("%d sources of %d bytes: %d are kept for gap records", sources, maxBytes, gaps)
			}
			if s.room = maxBytes; sources == 1 && (!s.fits(0, maxBytes-gaps) || s.fits(0, maxBytes-gaps+1)) {
				t.Errorf("one source of %d bytes beside gap records does not get all but %d", maxBytes, gaps)
			}
		}
	}
}
