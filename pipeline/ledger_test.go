package pipeline

import (
	"encoding/json"
	"os"
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
