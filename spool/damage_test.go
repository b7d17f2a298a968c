package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shipper/internal/vfs"
)

// What people and disks do to a spool while no agent runs, each thing by its
// name. The walks over seeds meet all of them too, in any order.

const damageBatches = 90

// damageLog is a log of many segments with one lane that is not acked, and the
// file system that holds it.
func damageLog(t *testing.T) (mem *vfs.Mem, names []string) {
	t.Helper()
	mem = vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1, Block: "app", Topic: "t"}},
		Identities: []Identity{{Lane: 1, From: 0, ProducerID: 77, Topic: "t"}}})
	for i := range uint64(damageBatches) {
		mustAppend(t, l, []Batch{testBatch(1, i, 1, 1000)}, nil)
		mustSync(t, l)
	}
	mem = mem.Kill()
	names, err := segmentFiles(mem)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 5 {
		t.Fatalf("only %d segments", len(names))
	}
	return mem, names
}

func zero(t *testing.T, mem *vfs.Mem, name string, from, to int64) {
	t.Helper()
	f, err := mem.OpenFile(name, vfs.Write)
	if err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); err != nil || to > size {
		to = size
	}
	if _, err := f.WriteAt(make([]byte, to-from), from); err != nil {
		t.Fatal(err)
	}
}

// wantSettled looks at a start behind damage: what is readable is what was
// written, what is not is counted, the number of the next record was never used,
// and a new identity begins. Another start finds no new damage.
func wantSettled(t *testing.T, mem *vfs.Mem, lostMin, lostMax uint64) {
	t.Helper()
	l, r := mustOpen(t, memOptions(mem))
	lost := uint64(0)
	for _, d := range r.Damage {
		lost += d.Records
	}
	if lost < lostMin || lost > lostMax {
		t.Errorf("%d records are told to be lost, want %d to %d: %+v", lost, lostMin, lostMax, r.Damage)
	}
	lane := r.Lanes[0]
	rd := l.NewReader()
	for _, ref := range lane.Batches {
		wantBatch(t, rd, ref, testBatch(1, ref.First, 1, 1000))
	}
	if got := uint64(len(lane.Batches)) + lost; got < lane.Next {
		t.Errorf("%d batches are held and %d told to be lost, of %d", len(lane.Batches), lost, lane.Next)
	}
	if last := lane.Identities[len(lane.Identities)-1]; last.ProducerID != -1 || last.From > lane.Next {
		t.Errorf("the identity goes on: %+v", last)
	}
	mustAppend(t, l, []Batch{testBatch(1, lane.Next, 1, 1000)}, nil)
	mustSync(t, l)
	_, again := mustOpen(t, memOptions(mem.Kill()))
	if len(again.Damage) != 0 || again.Lanes[0].Next != lane.Next+1 || len(again.Lanes[0].Batches) != len(lane.Batches)+1 {
		t.Errorf("the next start: %d batches, next %d, damage %+v", len(again.Lanes[0].Batches), again.Lanes[0].Next, again.Damage)
	}
}

func TestRecoveryOfDamage(t *testing.T) {
	last := func(names []string) string { return names[len(names)-1] }
	for _, c := range []struct {
		name             string
		lostMin, lostMax uint64
		damage           func(t *testing.T, mem *vfs.Mem, names []string)
	}{
		{"nothing", 0, 0, func(*testing.T, *vfs.Mem, []string) {}},
		{"segment missing in the middle", 5, 20, func(t *testing.T, mem *vfs.Mem, names []string) {
			if err := mem.Remove(names[len(names)/2]); err != nil {
				t.Fatal(err)
			}
		}},
		{"segment header damaged in the middle", 0, 20, func(t *testing.T, mem *vfs.Mem, names []string) {
			zero(t, mem, names[len(names)/2], 0, 64)
		}},
		{"segment zeroed in the middle", 5, 20, func(t *testing.T, mem *vfs.Mem, names []string) {
			zero(t, mem, names[len(names)/2], 0, testSegmentBytes)
		}},
		{"segment cut short in the middle", 1, 20, func(t *testing.T, mem *vfs.Mem, names []string) {
			f, err := mem.OpenFile(names[len(names)/2], vfs.Write)
			if err == nil {
				err = f.Truncate(testSegmentBytes / 2)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"checkpoint of the newest segment zeroed", 0, 20, func(t *testing.T, mem *vfs.Mem, names []string) {
			zero(t, mem, last(names), 0, 2048)
		}},
		{"tail of the newest segment zeroed", 0, 20, func(t *testing.T, mem *vfs.Mem, names []string) {
			zero(t, mem, last(names), 6*1024, testSegmentBytes)
		}},
		{"foreign files", 0, 0, func(t *testing.T, mem *vfs.Mem, names []string) {
			for _, name := range []string{"/spool/notes.txt", "/spool/segment-", "/spool/segment-zz.log", "/spool/core"} {
				f, err := mem.OpenFile(name, vfs.Create)
				if err == nil {
					_, err = f.WriteAt([]byte(strings.Repeat("not ours ", 100)), 0)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem, names := damageLog(t)
			c.damage(t, mem, names)
			wantSettled(t, mem, c.lostMin, c.lostMax)
		})
	}
}

// TestOldCheckpoint: the checkpoint of an older segment is damaged. Nothing is missing,
// but the disk is not to be trusted: one sentence at each start, as long as it is there.
func TestOldCheckpoint(t *testing.T) {
	mem, names := damageLog(t)
	for _, name := range names[1:3] {
		zero(t, mem, name, 0, 64)
	}
	for range 2 {
		var text strings.Builder
		o := memOptions(mem)
		o.Logger = slog.New(slog.NewTextHandler(&text, nil))
		l, r := mustOpen(t, o)
		if len(r.Damage) > 0 || len(r.Lanes[0].Batches) != damageBatches {
			t.Errorf("%d batches, %+v", len(r.Lanes[0].Batches), r.Damage)
		}
		if n := strings.Count(text.String(), "damaged checkpoints of older segments"); n != 1 || !strings.Contains(text.String(), "segments=2") {
			t.Errorf("told %d times:\n%s", n, text.String())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A spool that was cloned, and one that was rolled back to a copy while no agent
// ran: neither start goes on under the producer id that the other may use.
func TestCloneAndRollback(t *testing.T) {
	mem, _ := damageLog(t)
	older := mem.Kill()
	l, r := mustOpen(t, memOptions(mem))
	id := Identity{Lane: 1, From: r.Lanes[0].Next, ProducerID: 78, Topic: "t"}
	mustAppend(t, l, []Batch{testBatch(1, r.Lanes[0].Next, 1, 1000)}, &Commit{Identities: []Identity{id}})
	mustSync(t, l)
	for i, fs := range []*vfs.Mem{mem.Kill(), mem.Kill(), older} {
		_, r := mustOpen(t, memOptions(fs))
		lane := r.Lanes[0]
		open := slices.IndexFunc(lane.Identities, func(x Identity) bool { return x.ProducerID == -1 })
		if open < 0 || open != len(lane.Identities)-1 {
			t.Fatalf("copy %d: %+v", i, lane.Identities)
		}
		// Only the batch in doubt keeps the id it may have been sent under.
		if from := lane.Identities[open].From; from > lane.Head+uint64(lane.Batches[0].Count) {
			t.Errorf("copy %d: %s", i, fmt.Sprintf("batches up to %d go out under the old id, the head is %d", from, lane.Head))
		}
	}
}

// Names that look like ours and are no files: to open some of them waits for ever.
func TestNoFilesAmongOurs(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory":      func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"link":           func(path string) error { return os.Symlink("/", path) },
		"link to no one": func(path string) error { return os.Symlink("/nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: t.TempDir(), MaxBytes: 16 * testSegmentBytes, MinFreeBytes: 1, segmentBytes: testSegmentBytes}
			l, _ := mustOpen(t, o)
			mustAppend(t, l, []Batch{testBatch(1, 0, 10, 300)}, &Commit{Lanes: []Lane{{ID: 1}}})
			mustSync(t, l)
			err := l.Close()
			for _, file := range []string{segmentName(2, 1), "free-0000000007", tempName(2)} {
				err = errors.Join(err, make(filepath.Join(o.Dir, file)))
			}
			if err != nil {
				t.Fatal(err)
			}
			in, err := Inspect(o)
			if err != nil || len(in.Damage) != 1 || in.Lanes[0].Next != 10 {
				t.Fatalf("%+v, %v", in, err)
			}
			l, r := mustOpen(t, o)
			number, damage := uint32(3), 2
			if name == "directory" { // that of a temporary file cannot be removed, the others are
				damage = 3
			}
			if len(r.Damage) != damage || r.Lanes[0].Next != 10 || l.newest().number != number {
				t.Errorf("next %d, segment %d, %+v", r.Lanes[0].Next, l.newest().number, r.Damage)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Names of files that no spool has made: whatever number they have, that of the next
// segment follows the one before it, and they go, told if they look like segments. A
// version that never was is no name of ours.
func TestForeignNames(t *testing.T) {
	for name, want := range map[string]struct{ damage, stays bool }{
		segmentName(9, 1):                        {damage: true},
		segmentName(numberLimit-1, 1):            {damage: true},
		segmentName(1<<32-1, 1):                  {damage: true},
		tempName(numberLimit - 1):                {},
		tempName(1<<32 - 1):                      {},
		freeName(numberLimit - 1):                {},
		freeName(1<<32 - 1):                      {},
		"segment-0000000009-0000000000000001.v0": {stays: true},
		"segment-4294967296-0000000000000001.v1": {stays: true},
	} {
		mem := vfs.NewMem()
		l, _ := mustOpen(t, memOptions(mem))
		mustAppend(t, l, []Batch{testBatch(1, 0, 10, 300)}, &Commit{Lanes: []Lane{{ID: 1}}})
		mustSync(t, l)
		f, err := mem.OpenFile(l.path(name), vfs.Create)
		if err == nil {
			_, err = f.WriteAt(make([]byte, testSegmentBytes), 0)
			err = errors.Join(err, f.Close(), l.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		for number := uint32(2); number < 5; number++ {
			l, r := mustOpen(t, memOptions(mem))
			if want.damage != (len(r.Damage) > 0) || r.Lanes[0].Next != 10 || l.newest().number != number {
				t.Errorf("%s: segment %d is next, want %d, %+v", name, l.newest().number, number, r)
			}
			want.damage = false
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		names, err := mem.ReadDir("/spool")
		if err != nil || slices.Contains(names, name) != want.stays {
			t.Errorf("%s: left are %q, %v", name, names, err)
		}
	}
	// One that holds intact frames and has no number behind it.
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	s := l.newest()
	err := mem.Rename(l.path(s.name()), l.path(segmentName(numberLimit, s.seed)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(memOptions(mem)); err == nil || !strings.Contains(err.Error(), "has a higher number than a spool ever reaches") {
		t.Errorf("a segment without a number behind it: %v", err)
	}
}

// TestStateLost: nothing is left that tells of all files. It is said, once.
func TestStateLost(t *testing.T) {
	for _, c := range []struct {
		says   string
		damage func(vfs.FS, string) error
	}{
		{"no checkpoint is intact", func(mem vfs.FS, path string) error {
			f, err := mem.OpenFile(path, vfs.Write)
			if err == nil {
				_, err = f.WriteAt(make([]byte, 64), 0)
			}
			return err
		}},
		{"all of its segments are gone", func(mem vfs.FS, path string) error { return mem.Remove(path) }},
	} {
		mem := vfs.NewMem()
		l, r := mustOpen(t, memOptions(mem))
		if r.StateLost {
			t.Error("a new spool has lost its state")
		}
		mustAppend(t, l, []Batch{testBatch(1, 0, 10, 300)}, &Commit{Lanes: []Lane{{ID: 1}}, Begun: []string{"app"}})
		mustSync(t, l)
		path := l.path(l.newest().name())
		if err := errors.Join(l.Close(), c.damage(mem, path)); err != nil {
			t.Fatal(err)
		}
		o := memOptions(mem)
		o.Blocks = []string{"new"}
		l, r = mustOpen(t, o)
		if !r.StateLost || !slices.Contains(r.Begun, "new") || !slices.ContainsFunc(r.Damage, func(d Damage) bool { return strings.Contains(d.Reason, c.says) }) {
			t.Errorf("%s: %v, %+v", c.says, r.StateLost, r)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		o.Blocks = append(o.Blocks, "newer")
		if l, r = mustOpen(t, o); r.StateLost || len(r.Damage) > 0 || !slices.Contains(r.Begun, "new") || slices.Contains(r.Begun, "newer") {
			t.Errorf("%s, once more: %v, %+v", c.says, r.StateLost, r)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVerifyWithoutNewest: the newest segment is empty, or no segment at all. That
// is said, and nothing of the unused end of the segment before it.
func TestVerifyWithoutNewest(t *testing.T) {
	for _, emptied := range []bool{true, false} {
		mem := vfs.NewMem()
		l, _ := mustOpen(t, memOptions(mem))
		mustAppend(t, l, []Batch{testBatch(1, 0, 10, 300)}, &Commit{Lanes: []Lane{{ID: 1}}})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		number := l.newest().number + 1
		f, err := mem.OpenFile(l.path(segmentName(number, 7)), vfs.Create)
		if err == nil && !emptied {
			_, err = f.WriteAt([]byte("not a segment"), 0)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		in, err := Verify(memOptions(mem))
		if err != nil || len(in.Damage) != 1 || in.Damage[0].Segment != number {
			t.Errorf("emptied %v: segment %d, %+v, %v", emptied, number, in.Damage, err)
		}
	}
}
