package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
)

// The figures of different releases are only comparable while the corpora stay the same bytes.
func TestCorpusIsTheSameEverywhere(t *testing.T) {
	for _, c := range []struct {
		kind             Kind
		lineMin, lineMax float64
		sha              string
	}{
		{Access, 215, 235, "a20577111e2f0a89"},
		{JSON, 425, 455, "23e72f3f203e7284"},
		{Syslog, 88, 102, "c03d8e9599d776a6"},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			var out bytes.Buffer
			totals, err := New(Options{Kind: c.kind, Seed: 1}).WriteTo(&out, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if totals.Bytes != int64(out.Len()) || totals.Bytes > 1<<20 || totals.Bytes < 1<<20-4096 {
				t.Errorf("%d bytes said, %d written, 1 MiB asked", totals.Bytes, out.Len())
			}
			if n := uint64(bytes.Count(out.Bytes(), []byte{'\n'})); n != totals.Lines || out.Bytes()[out.Len()-1] != '\n' {
				t.Errorf("%d newlines, %d lines, last byte %q", n, totals.Lines, out.Bytes()[out.Len()-1])
			}
			if mean := float64(totals.Bytes) / float64(totals.Lines); mean < c.lineMin || mean > c.lineMax {
				t.Errorf("%.1f bytes a line, want %.0f to %.0f", mean, c.lineMin, c.lineMax)
			}
			if sum := sha256.Sum256(out.Bytes()); hex.EncodeToString(sum[:8]) != c.sha {
				t.Errorf("sha256 begins %x, want %s", sum[:8], c.sha)
			}
		})
	}
}

func TestNumberedLines(t *testing.T) {
	g := New(Options{Kind: Syslog, Seed: 7, Tag: "f03"})
	for i := range 20 {
		line := g.AppendLine(nil)
		if want := fmt.Sprintf("f03 %010d <", i); !bytes.HasPrefix(line, []byte(want)) {
			t.Fatalf("line %d is %q, want it to begin %q", i, line, want)
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	a, b := New(Options{Seed: 1}), New(Options{Seed: 2})
	if bytes.Equal(a.AppendLine(nil), b.AppendLine(nil)) {
		t.Error("two seeds gave the same first line")
	}
}

func TestParseKind(t *testing.T) {
	if _, err := ParseKind("apache"); err == nil {
		t.Error("an unknown kind was taken")
	}
}
