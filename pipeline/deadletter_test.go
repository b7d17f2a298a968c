package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"shipper/sink/kafka"
	"shipper/spool"
)

func TestDeadLetters(t *testing.T) {
	dir := t.TempDir()
	l := deadLetters{dir}
	day := time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
	write := func(at time.Time, d kafka.DeadLetter) string {
		t.Helper()
		place, err := l.write(7, &d, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	first := write(day, kafka.DeadLetter{Source: "app", Topic: "logs", Partition: 3, Slot: 1, Index: 41, Time: 5, Value: []byte("\xff\nno text"), Headers: []kafka.RecordHeader{{Key: []byte("path"), Value: []byte("/a\xff")}}, Reason: "too large"})
	if first != "dead-letter/2026-11-30.jsonl:0" {
		t.Errorf("place %q", first)
	}
	path := filepath.Join(dir, "dead-letter", "2026-11-30.jsonl")
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// A crash in the middle of a line: the next one stands for itself.
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, text[:20]...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	second := write(day, kafka.DeadLetter{Index: 42, HasKey: true})
	write(day.Add(time.Hour), kafka.DeadLetter{Index: 43})
	text, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 4 || lines[3] != "" {
		t.Fatalf("%d lines", len(lines))
	}
	if want := len(lines[0]) + 1 + len(lines[1]) + 1; !strings.HasSuffix(second, ":"+strconv.Itoa(want)) {
		t.Errorf("place %q, want byte %d", second, want)
	}
	var a, b deadLetterLine
	if err := json.Unmarshal([]byte(lines[0]), &a); err != nil {
		t.Fatal(err)
	}
	if string(a.Value) != "\xff\nno text" || a.Key != nil || a.Lane != 7 || a.Index != 41 || a.Partition != 3 || a.TimeMs != 5 || len(a.Headers) != 1 || a.Headers[0].Name != "path" || string(a.Headers[0].Value) != "/a\xff" || !a.Refused.Equal(day) {
		t.Errorf("%+v", a)
	}
	if err := json.Unmarshal([]byte(lines[2]), &b); err != nil || b.Index != 42 || b.Key == nil || len(b.Key) != 0 {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := l.write(7, &kafka.DeadLetter{Value: make([]byte, 2000)}, day, 2000); err == nil || !strings.Contains(err.Error(), "move some away") {
		t.Errorf("a directory that is full: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(text) {
		t.Error("what did not fit was written")
	}
}

// What replaces a batch is one commit: batches of the same indexes and their identity, or a gap and the one behind it.
func TestReplacementIsOneCommit(t *testing.T) {
	id := kafka.IdentityRecord{From: 11, Topic: "logs", ProducerID: 5, Epoch: 1, Partition: 3, Reason: kafka.ReasonRefused}
	x := replacement{lane: 7, new: &kafka.Replacement{Dead: &kafka.DeadLetter{Index: 10, TooLarge: true}, Identity: &id}}
	batches, c := x.group("there:0")
	if len(batches) != 0 || len(c.Gaps) != 1 || c.Gaps[0] != (spool.Gap{Lane: 7, From: 10, To: 11, Records: 1, Reason: spool.GapTooLarge, DeadLetter: "there:0"}) {
		t.Errorf("%+v", c.Gaps)
	}
	if len(c.Identities) != 1 || c.Identities[0] != (spool.Identity{Lane: 7, From: 11, Topic: "logs", ProducerID: 5, Epoch: 1, Partition: 3, Reason: spool.IdentityRefused}) {
		t.Errorf("%+v", c.Identities)
	}
	x.new = &kafka.Replacement{Batches: []kafka.CutBatch{{First: 10, Sealed: kafka.Sealed{Count: 2, MaxTime: 9}}, {First: 12, Sealed: kafka.Sealed{Count: 1}}}}
	batches, c = x.group("")
	if len(batches) != 2 || batches[0].Lane != 7 || batches[0].First != 10 || batches[0].Count != 2 || batches[0].MaxTime != 9 || batches[1].First != 12 {
		t.Errorf("%+v", batches)
	}
	if len(c.Gaps)+len(c.Identities) > 0 {
		t.Errorf("%+v", c)
	}
}
