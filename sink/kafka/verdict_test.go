package kafka

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Codes that brokers can answer a batch with, by what follows from them; the lists are those of Kafka's sources, written
// down again on purpose.
var (
	testUntouched = []int16{2, 10, 17, 18, 19, 21, 29, 31, 32, 33, 34, 35, 43, 44, 45, 47, 58, 59, 76, 87}
	testProof     = []int16{2, 10, 17, 18, 19, 21, 29, 31, 32, 33, 34, 35, 43, 58, 76, 87}
	testSlow      = []int16{5, 7, 19, 20}

	testVerdicts = map[Verdict][]int16{
		Acked:     {0, 46},
		Refused:   {45, 47, 59, 90},
		Retry:     {7, 19, 20, 89},
		TooLarge:  {10, 18},
		BadTime:   {32},
		BadRecord: {2, 87},
		Denied:    {29, 31, 33, 34, 58},
		Hold:      {17, 21, 35, 40, 42, 43, 44, 76},
	}
)

func TestVerdictOfEveryCode(t *testing.T) {
	want := map[int16]Verdict{}
	for verdict, codes := range testVerdicts {
		for _, code := range codes {
			want[code] = verdict
		}
	}
	known := 0
	for i := -32768; i <= 32767; i++ { // all of kerr, and everything that a future broker may invent
		code := int16(i)
		if code == 0 || !errors.Is(kerr.ErrorForCode(code), kerr.UnknownServerError) {
			known++
		}
		if got := VerdictOf(code); got != want[code] {
			t.Errorf("code %d (%v): %s, want %s", code, kerr.ErrorForCode(code), got, want[code])
		}
		for name, c := range map[string]struct {
			got  bool
			want []int16
		}{
			"AppendedNothing": {AppendedNothing(code), testUntouched},
			"NotPersisted":    {NotPersisted(code), testProof},
			"Slow":            {Slow(code), testSlow},
		} {
			if c.got != slices.Contains(c.want, code) {
				t.Errorf("%s(%d) (%v) = %v", name, code, kerr.ErrorForCode(code), c.got)
			}
		}
		waits := VerdictOf(code) == Denied || VerdictOf(code) == Hold
		if (Advice(code) != "") != waits {
			t.Errorf("code %d, %s: advice %q", code, VerdictOf(code), Advice(code))
		}
	}
	if known < 100 {
		t.Errorf("kerr knows %d codes only", known)
	}
}

// What kerr calls retriable must not be given up: a data error is permanent, a permission waits.
func TestRetriableCodesAreNotGivenUp(t *testing.T) {
	for code := int16(-1); code < 200; code++ {
		if !kerr.IsRetriable(kerr.ErrorForCode(code)) {
			continue
		}
		switch VerdictOf(code) {
		case Retry, RetryRoute, Refused:
		case BadRecord:
			if code != 2 { // CORRUPT_MESSAGE: the lane sends it again before it gives a record up
				t.Errorf("retriable code %d (%v) is %s", code, kerr.ErrorForCode(code), VerdictOf(code))
			}
		default:
			t.Errorf("retriable code %d (%v) is %s", code, kerr.ErrorForCode(code), VerdictOf(code))
		}
	}
}

func TestZeroVerdictIsSafe(t *testing.T) {
	var v Verdict
	if v != RetryRoute || v.String() != "retry-route" {
		t.Errorf("zero verdict is %s", v)
	}
	if got := verdictCount.String(); got != "verdict 9" {
		t.Errorf("beyond the last: %q", got)
	}
	for v := range verdictCount {
		if v.String() == "" {
			t.Errorf("verdict %d has no name", v)
		}
	}
}
