package pipeline

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shipper/pipeline/record"
)

// With encoding utf-8, a message that a run time cut within a character is whole, and only what is no text in it is replaced.
func TestCharactersCutByRunTimes(t *testing.T) {
	x := newShaped(t, record.Config{Container: record.CRI})
	x.source.Encoding = "utf-8"
	if got := x.source.fileEncoding(); got != "raw" {
		t.Fatalf("lines are decoded as %s", got)
	}
	const head = "2026-11-30T10:00:00.000000001Z stdout "
	text, log, want := "Grüße, 5 €, 🙂", "", []string{}
	for i := 1; i < len(text); i++ {
		log += head + "P " + text[:i] + "\n" + head + "F " + text[i:] + "\n"
		want = append(want, text)
	}
	log += head + "P a\xe2\x82\n" + head + "F b\xff\n" + head + "F plain\n" + "not one of theirs \xe4\n"
	want = append(want, "a\ufffd\ufffdb\ufffd", "plain", "not one of theirs \ufffd")
	if err := os.WriteFile(filepath.Join(x.dir, "a.log"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	deadline, repaired := time.Now().Add(10*time.Second), uint64(0)
	x.life(64<<20, blockBytesMin, func(r *reader) (time.Time, bool) {
		r.seal(r.open)
		repaired = r.reasons[0][record.Repaired].Load()
		return time.Now(), len(x.got()) < len(want) && time.Now().Before(deadline)
	})
	if got := x.got(); !slices.Equal(got, want) || repaired != 2 {
		t.Errorf("%d repaired, got %q", repaired, got)
	}
}
