package spool

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"shipper/internal/vfs"
)

// TestRefsMax recovers a backlog with few references at a time and asks for the
// rest: all of them, in order, however the calls cut them.
func TestRefsMax(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}, {ID: 3}}})
	next := [4]uint64{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		lane := uint32(1 + rng.IntN(2))
		n := uint32(1 + rng.IntN(5))
		mustAppend(t, l, []Batch{testBatch(lane, next[lane], n, 200)}, nil)
		next[lane] += uint64(n)
	}
	mustAppend(t, l, []Batch{testBatch(3, 0, 9, 200)}, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 20}}})
	// Cut again, far behind where it was; and a gap in the middle.
	mustAppend(t, l, nil, &Commit{Gaps: []Gap{{Lane: 2, From: 50, To: 60, Records: 10}}})
	mustSync(t, l)
	whole, _, err := l.Refs(1, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	big := whole[3]
	if big.Count < 2 {
		big = whole[4]
	}
	mustAppend(t, l, []Batch{testBatch(1, big.First, 1, 50), testBatch(1, big.First+1, big.Count-1, 50)}, nil)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, all := mustOpen(t, memOptions(mem.Kill()))
	for _, lane := range all.Lanes {
		if lane.More {
			t.Fatalf("lane %d: more, without a bound", lane.ID)
		}
	}
	for _, refsMax := range []int{1, 3, 50, 150, 10000} {
		o := memOptions(mem.Kill())
		o.RefsMax = refsMax
		l, r := mustOpen(t, o)
		sum := 0
		for i, lane := range r.Lanes {
			want := all.Lanes[i].Batches
			sum += len(lane.Batches)
			if len(lane.Batches) == 0 || lane.More != (len(lane.Batches) < len(want)) {
				t.Fatalf("at most %d: lane %d has %d of %d, more %v", refsMax, lane.ID, len(lane.Batches), len(want), lane.More)
			}
			got := lane.Batches
			for more := lane.More; more; {
				var refs []Ref
				if refs, more, err = l.Refs(lane.ID, got[len(got)-1].Next(), refsMax); err != nil {
					t.Fatal(err)
				}
				if len(refs) > refsMax {
					t.Fatalf("%d references, at most %d were asked for", len(refs), refsMax)
				}
				got = append(got, refs...)
			}
			if len(got) != len(want) {
				t.Fatalf("at most %d: lane %d has %d batches in all, want %d", refsMax, lane.ID, len(got), len(want))
			}
			for j := range got { // places differ: what was not durable was copied
				if got[j].First != want[j].First || got[j].Count != want[j].Count {
					t.Fatalf("at most %d: batch %d of lane %d is %+v, want %+v", refsMax, j, lane.ID, got[j], want[j])
				}
			}
		}
		if sum > max(refsMax, len(r.Lanes)) {
			t.Errorf("%d references were handed out, at most %d may be", sum, refsMax)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// What is not durable is not listed: its notice comes behind its sync.
	before, _, err := l.Refs(1, 0, 1000)
	mustAppend(t, l, []Batch{testBatch(1, next[1], 1, 50)}, nil)
	after, more, err2 := l.Refs(1, 0, 1000)
	if err = errors.Join(err, err2); err != nil || more || len(after) != len(before) {
		t.Errorf("%d batches before the append, %d behind it, %v", len(before), len(after), err)
	}
	if refs, more, err := l.Refs(77, 0, 10); refs != nil || more || err != nil {
		t.Errorf("an unknown lane: %v, %v, %v", refs, more, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRefsNameWhatIsMissing: a header that rots while the agent runs is no gap
// that somebody wrote; the batch is listed, cannot be read, and is not passed
// over. So is one at the end.
func TestRefsNameWhatIsMissing(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	refs := []Ref{}
	for i := range uint64(10) {
		r, err := l.Append(nil, []Batch{testBatch(1, 3*i, 3, 100)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, r...)
	}
	mustAppend(t, l, nil, &Commit{Gaps: []Gap{{Lane: 1, From: 12, To: 15, Records: 3}}})
	mustSync(t, l)
	for _, i := range []int{2, 3, 9} {
		f, err := mem.OpenFile(l.path(l.newest().name()), vfs.Write)
		if err == nil {
			_, err = f.WriteAt([]byte("rot"), int64(refs[i].Block)*blockBytes+20)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, refsMax := range []int{1, 2, 5, 100} {
		at, rd := uint64(0), l.NewReader()
		for more := true; more; {
			var got []Ref
			var err error
			if got, more, err = l.Refs(1, at, refsMax); err != nil {
				t.Fatal(err)
			}
			for _, r := range got {
				if r.First != at && (at != 12 || r.First != 15) {
					t.Fatalf("at most %d: [%d, %d) behind %d", refsMax, r.First, r.Next(), at)
				}
				_, err := rd.ReadBatch(nil, r)
				if gone := r.First == 6 || r.First == 27; gone != isDamage(err) {
					t.Errorf("at most %d: [%d, %d): %v", refsMax, r.First, r.Next(), err)
				}
				at = r.Next()
			}
		}
		if at != 30 {
			t.Errorf("at most %d: the list ends at %d of 30", refsMax, at)
		}
		if err := rd.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// countReads counts the bytes that are read of segments.
type countReads struct {
	vfs.FS
	bytes *int64
}

type countFile struct {
	vfs.File
	bytes *int64
}

func (c countReads) OpenFile(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, mode)
	return countFile{f, c.bytes}, err
}

func (f countFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	*f.bytes += int64(n)
	return n, err
}

// TestRefsGoOn: asking for all batches in small steps reads the log once, not
// once for each step.
func TestRefsGoOn(t *testing.T) {
	read := int64(0)
	o := memOptions(vfs.NewMem())
	o.FS = countReads{o.FS, &read}
	o.segmentBytes, o.MaxBytes = 1<<20, 64<<20
	l, _ := mustOpen(t, o)
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	const batches = 20_000
	for i := range uint64(batches) {
		mustAppend(t, l, []Batch{testBatch(1, i, 1, 60)}, nil)
	}
	mustSync(t, l)
	bytes := int64(0)
	for _, s := range l.segments {
		bytes += s.end
	}
	read = 0
	at := uint64(0)
	for more := true; more; {
		var got []Ref
		var err error
		if got, more, err = l.Refs(1, at, 1000); err != nil || len(got) == 0 {
			t.Fatal(len(got), err)
		}
		at = got[len(got)-1].Next()
	}
	if at != batches {
		t.Fatalf("the list ends at %d of %d", at, batches)
	}
	// A step looks through the segment in which it ends, to its end.
	if most := bytes / int64(len(l.segments)) * batches / 1000; read > bytes+most {
		t.Errorf("read %d bytes of %d", read, bytes)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHeldUntilTheLaneDecides: batches that were listed to heal stay until the
// lane has moved its head, or until new lines need the room.
func TestHeldUntilTheLaneDecides(t *testing.T) {
	for _, needed := range []bool{false, true} {
		o := memOptions(vfs.NewMem())
		o.RetainAckedBytes = 1
		l, _ := mustOpen(t, o)
		mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}, Identities: []Identity{{Lane: 1, ProducerID: 5}}})
		mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, nil)
		mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 1}}})
		held, err := l.AckedFrom(1, 0)
		if err != nil || len(held) != 1 {
			t.Fatalf("%+v, %v", held, err)
		}
		next := uint64(0)
		busy := func() error {
			_, err := l.Append(nil, []Batch{testBatch(2, next, 1, 3000)}, nil)
			next++
			return errors.Join(err, l.Sync())
		}
		for range 30 {
			if err := busy(); err != nil {
				t.Fatal(err)
			}
			if !needed {
				mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 2, First: next - 1, Count: 1}}})
			}
		}
		for needed {
			if err := busy(); errors.Is(err, ErrFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, l, nil, &Commit{Heads: []Head{{Lane: 1, Index: 0}}})
		mustSync(t, l)
		rd := l.NewReader()
		if _, err := rd.ReadBatch(nil, held[0].Ref); needed == (err == nil) {
			t.Errorf("room needed %v: %v", needed, err)
		}
		if err := errors.Join(rd.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecoveryTells: a recovery that takes long says how far it is.
func TestRecoveryTells(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	for i := range uint64(20) {
		mustAppend(t, l, []Batch{testBatch(1, i, 1, 3000)}, nil)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, every := range []time.Duration{time.Nanosecond, time.Hour} {
		var logged strings.Builder
		o := memOptions(mem)
		o.tellEvery, o.Logger = every, slog.New(slog.NewTextHandler(&logged, nil))
		l, r := mustOpen(t, o)
		told := strings.Count(logged.String(), "still reading")
		if want := r.Segments - 1; every == time.Hour && told != 0 || every < time.Hour && told != want {
			t.Errorf("every %v: told %d times, %d segments:\n%s", every, told, want, logged.String())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// skipRecords is a file system that leaves out writes of n bytes: a spool of
// headers, which is all that a recovery reads of older segments.
type skipRecords struct {
	vfs.FS
	n int
}

func (s skipRecords) OpenFile(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, mode)
	if err != nil {
		return nil, err
	}
	return skipFile{f, s.n}, nil
}

type skipFile struct {
	vfs.File
	n int
}

func (f skipFile) WriteAt(p []byte, at int64) (int, error) {
	if len(p) == f.n {
		return len(p), nil
	}
	return f.File.WriteAt(p, at)
}

// BenchmarkRecover opens a spool of 100,000 batches in 10 GiB, none of them
// acked, and hands out all references or the usual number.
func BenchmarkRecover(b *testing.B) {
	const frames, recordBytes, perGroup = 100_000, 104_000, 10
	o := Options{Dir: filepath.Join(b.TempDir(), "spool"), MaxBytes: 16 << 30, MinFreeBytes: 1, FS: skipRecords{vfs.OS{}, recordBytes}}
	l, _ := mustOpen(b, o)
	c := &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}}}
	batches := make([]Batch, perGroup)
	records := make([]byte, recordBytes)
	for i := range uint64(frames / perGroup) {
		for j := range batches {
			batches[j] = testBatch(uint32(i%4)+1, i/4*perGroup+uint64(j), 1, 1)
			batches[j].Records, batches[j].RecordsCRC = records, crc32.Checksum(records, castagnoli)
		}
		mustAppend(b, l, batches, c)
		c = nil
	}
	mustSync(b, l)
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for _, refsMax := range []int{0, 10_000} {
		b.Run(fmt.Sprint("refs", refsMax), func(b *testing.B) {
			o.RefsMax = refsMax
			b.ReportAllocs()
			for b.Loop() {
				l, r, err := Open(o)
				if err != nil {
					b.Fatal(err)
				}
				refs := 0
				for _, lane := range r.Lanes {
					refs += len(lane.Batches)
				}
				if refsMax == 0 && refs != frames || refsMax > 0 && refs != refsMax || r.Bytes < 10_400_000_000 {
					b.Fatalf("%d batches in %d bytes", refs, r.Bytes)
				}
				b.ReportMetric(float64(r.Took.Milliseconds()), "ms/recovery")
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestHealAcrossDeadLetter: records that a gap dropped are not offered again, and
// are no hole in what is held. Moving the head to them moves it behind them.
func TestHealAcrossDeadLetter(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 3, 100), testBatch(1, 3, 1, 100), testBatch(1, 4, 2, 100), testBatch(1, 6, 1, 100)},
		&Commit{Lanes: []Lane{{ID: 1}}, Identities: []Identity{{Lane: 1, ProducerID: 7}}})
	dead := []Gap{
		{Lane: 1, From: 3, To: 4, Records: 1, Reason: GapRefused, DeadLetter: "x"},
		{Lane: 1, From: 6, To: 7, Records: 1, Reason: GapTooLarge, DeadLetter: "y"},
	}
	mustSync(t, l) // or they could not have been sent
	mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 3}}})
	mustAppend(t, l, nil, &Commit{Gaps: dead[:1]})
	mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: 4, Count: 2}}})
	mustAppend(t, l, nil, &Commit{Gaps: dead[1:]})
	mustSync(t, l)
	for range 2 { // before and after a restart
		acked, err := l.AckedFrom(1, 0)
		if err != nil || len(acked) != 2 || acked[0].First != 0 || acked[0].To != 4 || acked[1].First != 4 || acked[1].To != 7 {
			t.Fatalf("%+v, %v", acked, err)
		}
		if rest := l.Undropped(1, 2, 7); !reflect.DeepEqual(rest, []Gap{{Lane: 1, From: 2, To: 3, Records: 1}, {Lane: 1, From: 4, To: 6, Records: 2}}) {
			t.Fatalf("%+v", rest)
		}
		l, _ = mustOpen(t, memOptions(mem.Kill()))
	}
	mustAppend(t, l, nil, &Commit{Heads: []Head{{Lane: 1, Index: 3, Top: 7}}})
	if lane := l.state.lanes[1]; lane.head != 4 || !reflect.DeepEqual(lane.gaps, dead) {
		t.Fatalf("head %d, gaps %+v", lane.head, lane.gaps)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRecoveryForgets: a recovery that may remember few batches gives the same
// lists, piece by piece, and the same damage as one that remembers all; also of
// batches that were cut again or merged, and of those that no sync has reached.
func TestRecoveryForgets(t *testing.T) {
	from, to := seedsOf(t, 8)
	for seed := from; seed < to; seed++ {
		w := newWorld(seed)
		mem := vfs.NewMem()
		err := w.open(mem)
		for i := 0; err == nil && i < 150; i++ {
			if err = w.step(); i == 100 {
				w.stuck = 1 + uint32(seed%laneCount)
			}
		}
		if err != nil {
			t.Fatalf("SPOOL_SEED=%d: %v", seed, err)
		}
		rot := mem.Kill()
		if names, err := segmentFiles(rot); err != nil || flip(rot, names[w.rng.IntN(len(names))], 4096+w.rng.Int64N(4096)) != nil {
			t.Fatal("no bit to flip", err)
		}
		all, allDamage := backlogOf(t, rot.Kill(), 0)
		for _, refsMax := range []int{1, 5, 40} {
			some, damage := backlogOf(t, rot.Kill(), refsMax)
			if fmt.Sprint(some) != fmt.Sprint(all) || damage != allDamage {
				t.Fatalf("SPOOL_SEED=%d: at most %d: %v, damage %d\nwithout a bound: %v, damage %d", seed, refsMax, some, damage, all, allDamage)
			}
		}
	}
}

// backlogOf opens a spool and lists the identities and batches of each lane, and how
// many records are missing.
func backlogOf(t *testing.T, fs vfs.FS, refsMax int) (lanes map[uint32][]string, missing uint64) {
	t.Helper()
	o := memOptions(fs)
	o.RefsMax = refsMax
	l, r := mustOpen(t, o)
	for _, d := range r.Damage {
		missing += d.Records
	}
	lanes = map[uint32][]string{}
	for _, lane := range r.Lanes {
		lanes[lane.ID] = append(lanes[lane.ID], fmt.Sprint(lane.Head, lane.Next, lane.Identities))
		refs := lane.Batches
		for more := lane.More; more; {
			var next []Ref
			var err error
			at := lane.Head
			if len(refs) > 0 {
				at = refs[len(refs)-1].Next()
			}
			if next, more, err = l.Refs(lane.ID, at, refsMax); err != nil {
				t.Fatal(err)
			}
			refs = append(refs, next...)
		}
		rd := l.NewReader()
		for _, ref := range refs {
			if ref.Segment == 0 {
				missing += uint64(ref.Count)
				continue
			}
			_, err := rd.ReadBatch(nil, ref)
			if err != nil && !isDamage(err) {
				t.Fatal(err)
			}
			lanes[lane.ID] = append(lanes[lane.ID], fmt.Sprint(ref.First, ref.Next(), isDamage(err)))
		}
		if err := rd.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return lanes, missing
}
