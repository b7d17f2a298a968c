package pipeline

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shipper/spool"
)

// TestLedgerLines: one gap told twice has one id, whenever; one number that a
// restored spool gave to two ranges has two. A name that is not UTF-8 stays exact.
func TestLedgerLines(t *testing.T) {
	l := newLedger(t.TempDir(), [16]byte{0xd4, 0x1d})
	gap := spool.UntoldGap{Number: 17, Block: "app", Topic: "logs", Path: "/log/\xe4\xff.log", Gap: spool.Gap{Source: 3, ToByte: 100, Records: 5, Reason: spool.GapDroppedNewest}}
	other := gap
	other.Path, other.ToByte = "/log/a.log", 200
	for i, g := range []spool.UntoldGap{gap, gap, other} {
		if err := l.write([]spool.UntoldGap{g}, time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(l.path())
	if err != nil {
		t.Fatal(err)
	}
	var lines []ledgerLine
	for line := range strings.Lines(string(text)) {
		var x ledgerLine
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, x)
	}
	if len(lines) != 3 || lines[0].ID != lines[1].ID || lines[0].ID == lines[2].ID || !strings.HasPrefix(lines[0].ID, "d41d00000000-17-") || lines[0].Time.Equal(lines[1].Time) {
		t.Fatalf("lines\n%s", text)
	}
	if string(lines[0].PathBytes) != gap.Path || lines[0].Path != "" || lines[2].Path != other.Path || lines[2].PathBytes != nil {
		t.Fatalf("paths in\n%s", text)
	}
}

// TestLedgerOutage: that the ledger cannot be written is said once, and that it is over
// once; no gap is missing in it then.
func TestLedgerOutage(t *testing.T) {
	dir := t.TempDir()
	log, _, err := spool.Open(spool.Options{Dir: dir, MaxBytes: spool.BytesMin, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	var text lockedBuffer
	c := committer{log: log, ledger: newLedger(dir, [16]byte{1}), slog: slog.New(slog.NewTextHandler(&text, nil)), told: map[gapKey]uint64{}}
	now, gap := time.Unix(1e9, 0), int64(0)
	for second := range 100 {
		switch second {
		case 20, 45: // in the way
			err = errors.Join(os.RemoveAll(filepath.Join(dir, ledgerDir)), os.WriteFile(filepath.Join(dir, ledgerDir), nil, 0o600))
		case 40, 70: // for a moment, for good
			err = os.Remove(filepath.Join(dir, ledgerDir))
		}
		if second < 80 {
			gap += 2 // does not go on where the last one ended
			_, aerr := log.Append(nil, nil, &spool.Commit{Gaps: []spool.Gap{{Source: 1, FromByte: gap, ToByte: gap + 1, Records: 1, Reason: spool.GapDroppedNewest}}})
			err = errors.Join(err, aerr, log.Sync())
		}
		if err != nil {
			t.Fatal(err)
		}
		c.tellGaps(now.Add(time.Duration(second) * time.Second))
	}
	if n := strings.Count(text.String(), "\n"); n != 2 || !strings.Contains(text.String(), "level=INFO msg=\"the ledger of gaps is written again") {
		t.Errorf("%s", text.String())
	}
	told, err := os.ReadFile(c.ledger.path())
	if n := strings.Count(string(told), "\n"); err != nil || n != 35 { // those of before are gone with the directory
		t.Errorf("%d lines, %v", n, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
