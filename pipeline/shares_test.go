package pipeline

import (
	"math/rand/v2"
	"testing"
)

func TestShares(t *testing.T) {
	s := newShares([]int{30, 0, 0}, 1000)
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
	if one := newShares([]int{0}, 1000); !one.fits(0, 0) {
		t.Error("a block alone")
	} else if one.room = 1000; !one.fits(0, 1000) {
		t.Error("a block alone takes all")
	}
	if claims := newShares([]int{60, 40, 0}, 1000); claims.kept[2] != 0 {
		t.Errorf("kept %v", claims.kept)
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
		s := newShares(percent, 100_000)
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
