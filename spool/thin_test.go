package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shipper/internal/vfs"
)

// noHoles is a file system that cannot punch.
func noHoles(fs vfs.FS) vfs.FS {
	return vfs.Hook{FS: fs, Before: func(op vfs.Op) error {
		if op.Kind == "punch" {
			return errors.ErrUnsupported
		}
		return nil
	}}
}

// stuck is a log in which lane 1 cannot send and lane 2 is acked at once.
type stuck struct {
	t      *testing.T
	log    *Log
	held   []Ref // of lane 1, as they were handed out
	want   []Batch
	next   uint64 // of lane 2
	tidied int    // the most bytes used
}

// group appends a batch of each lane; busyBytes or stuckBytes 0: none.
func (s *stuck) group(busyBytes, stuckBytes int) {
	s.t.Helper()
	var batches []Batch
	if stuckBytes > 0 {
		batches = append(batches, testBatch(1, uint64(len(s.want)), 1, stuckBytes))
		s.want = append(s.want, batches[0])
	}
	if busyBytes > 0 {
		batches = append(batches, testBatch(2, s.next, 1, busyBytes))
		s.next++
	}
	refs := mustAppend(s.t, s.log, batches, nil)
	if stuckBytes > 0 {
		s.held = append(s.held, refs[0])
	}
	mustSync(s.t, s.log)
	if busyBytes > 0 {
		mustAppend(s.t, s.log, nil, &Commit{Acks: []Ack{{Lane: 2, First: s.next - 1, Count: 1}}})
	}
	s.tidied = max(s.tidied, int(s.log.Stats().BytesUsed))
}

// wantHeld reads all of lane 1 by the places that were handed out first.
func (s *stuck) wantHeld() {
	s.t.Helper()
	rd := s.log.NewReader()
	for i, ref := range s.held {
		wantBatch(s.t, rd, ref, s.want[i])
	}
	if err := rd.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func stuckOptions(fs vfs.FS) Options {
	o := memOptions(fs)
	o.MaxBytes = 48 * testSegmentBytes
	return o
}

func newStuck(t *testing.T, fs vfs.FS) *stuck {
	s := &stuck{t: t}
	s.log, _ = mustOpen(t, stuckOptions(fs))
	mustAppend(t, s.log, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}})
	return s
}

// TestStuckLaneDay is a day of two lanes that commit every ten seconds; one of
// them is never acked. What it keeps on disk is its own batches, not the day: the
// other one writes more than five times what the spool may take.
func TestStuckLaneDay(t *testing.T) {
	const commits = 24 * 360
	for _, c := range []struct {
		name    string
		every   int // commits between two batches of the stuck lane
		bytes   int
		holes   bool
		punched bool
		carried bool
		perLive int64 // disk for a live byte
	}{
		{"few", 400, 200, true, true, true, 2},
		{"many", 12, 300, true, true, false, 3}, // a hole begins and ends at a block
		{"few, no holes", 400, 200, false, false, true, 2},
		{"many, no holes", 30, 300, false, false, true, carryShareAlone},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem()
			var fs vfs.FS = mem
			if !c.holes {
				fs = noHoles(mem)
			}
			s := newStuck(t, fs)
			live := int64(0)
			for i := range commits {
				stuckBytes := 0
				if i%c.every == 0 {
					stuckBytes = c.bytes
				}
				s.group(200, stuckBytes)
			}
			for _, b := range s.want {
				live += FrameBytes(len(b.Records))
			}
			// The newest two, what is retained (whole, and in segments that are kept), files
			// for recycling, and one that waits for the next thinning.
			const fixed = (2 + 2 + 2 + freeKeepMax + 1) * testSegmentBytes
			bound := fixed + live*c.perLive
			st := s.log.Stats()
			t.Logf("%d live bytes, %d written, at most %d on disk (bound %d), %d segments; punched %d, copied %d", live, st.BytesWritten, s.tidied, bound, st.Segments, st.BytesPunched, st.BytesCarried)
			if int64(s.tidied) > bound || st.BytesWritten < 5*s.log.options.MaxBytes {
				t.Errorf("at most %d bytes on disk of %d written, bound %d", s.tidied, st.BytesWritten, bound)
			}
			if (st.BytesPunched > 0) != c.punched || c.carried && st.BytesCarried == 0 {
				t.Errorf("punched %d bytes, copied %d", st.BytesPunched, st.BytesCarried)
			}
			if st.BytesCarried > st.BytesWritten/4 {
				t.Errorf("%d bytes copied for %d written", st.BytesCarried, st.BytesWritten)
			}
			s.wantHeld()
			s.reopen(mem.Kill())
			s.wantHeld()
			if err := s.log.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// reopen recovers what the process left and wants the stuck lane whole, and the
// account of bytes to be what the file system says.
func (s *stuck) reopen(mem *vfs.Mem) {
	s.t.Helper()
	l, r := mustOpen(s.t, stuckOptions(mem))
	if len(r.Damage) > 0 || len(r.Lanes[0].Batches) != len(s.want) {
		s.t.Fatalf("%d batches of %d, damage %+v", len(r.Lanes[0].Batches), len(s.want), r.Damage)
	}
	s.log, s.held = l, r.Lanes[0].Batches
	wantAccount(s.t, l, mem, 0)
}

// wantAccount compares Stats with the files, each of which may take up to
// slackBytes more than it needs.
func wantAccount(t *testing.T, l *Log, fs vfs.FS, slackBytes int64) {
	t.Helper()
	names, err := fs.ReadDir(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, name := range names {
		if name == noteName {
			continue
		}
		f, err := fs.OpenFile(l.path(name), vfs.Read)
		if err != nil {
			t.Fatal(err)
		}
		n, err := f.DiskBytes()
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if used := l.Stats().BytesUsed; sum < used || sum > used+slackBytes*int64(len(names)) {
		t.Errorf("the log counts %d bytes, its files take %d", used, sum)
	}
}

// TestFullOfStuckLane: the spool is full of one lane's acked batches that a
// stuck lane pins, and no segment is made any more. New lines find room again.
func TestFullOfStuckLane(t *testing.T) {
	for _, holes := range []bool{true, false} {
		t.Run(fmt.Sprint("holes ", holes), func(t *testing.T) {
			mem := vfs.NewMem()
			var fs vfs.FS = mem
			if !holes {
				fs = noHoles(mem)
			}
			s := newStuck(t, fs)
			full := false
			for !full { // no acks: nothing can be thinned before it is full
				batches := []Batch{testBatch(1, uint64(len(s.want)), 1, 200), testBatch(2, s.next, 1, 3000)}
				refs, err := s.log.Append(nil, batches, nil)
				if full = errors.Is(err, ErrFull); full {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				s.want, s.held = append(s.want, batches[0]), append(s.held, refs[0])
				s.next++
			}
			mustAppend(t, s.log, nil, &Commit{Acks: []Ack{{Lane: 2, First: s.next - 1, Count: 1}}})
			for range 50 {
				s.group(3000, 0)
			}
			s.wantHeld()
			wantAccount(t, s.log, mem, 0)
			s.reopen(mem.Kill())
			s.wantHeld()
			if err := s.log.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestThinKeepsTheNewerCut: a batch was cut again, and the segment of the first
// cut is thinned. Copying the first cut would put it behind the second.
func TestThinKeepsTheNewerCut(t *testing.T) {
	mem := vfs.NewMem()
	s := newStuck(t, mem)
	mustAppend(t, s.log, []Batch{testBatch(1, 0, 10, 300), testBatch(1, 10, 2, 300)}, nil)
	for s.log.newest().number < 2 {
		s.group(1000, 0)
	}
	halves := []Batch{testBatch(1, 0, 5, 150), testBatch(1, 5, 5, 150)}
	mustAppend(t, s.log, halves, nil)
	mustSync(t, s.log)
	mustAppend(t, s.log, nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 5}}})
	for s.log.newest().number < 40 {
		s.group(1000, 0)
	}
	if s.log.Stats().BytesCarried == 0 {
		t.Fatal("nothing was copied")
	}
	s.log, _ = mustOpen(t, memOptions(mem.Kill()))
	refs, more, err := s.log.Refs(1, 0, 10)
	if err != nil || more || len(refs) != 2 || refs[0].First != 5 || refs[1].First != 10 {
		t.Fatalf("%+v, %v", refs, err)
	}
	rd := s.log.NewReader()
	wantBatch(t, rd, refs[0], halves[1])
	wantBatch(t, rd, refs[1], testBatch(1, 10, 2, 300))
	if err := errors.Join(rd.Close(), s.log.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPunchOnDisk does on a real file system what the others do in memory: the
// volume gets the blocks back.
func TestPunchOnDisk(t *testing.T) {
	o := Options{Dir: t.TempDir(), MaxBytes: 64 << 20, MinFreeBytes: 1, RetainAckedBytes: 1 << 20}
	s := &stuck{t: t}
	s.log, _ = mustOpen(t, o)
	mustAppend(t, s.log, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}})
	for range 40 {
		s.group(700<<10, 100<<10)
	}
	if s.log.punchless {
		t.Skip("this file system makes no holes")
	}
	st := s.log.Stats()
	if st.BytesPunched == 0 {
		t.Fatalf("nothing was punched: %+v", st)
	}
	wantAccount(t, s.log, vfs.OS{}, 4096)
	s.wantHeld()
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
	l, r := mustOpen(t, o)
	if len(r.Damage) > 0 || len(r.Lanes[0].Batches) != len(s.want) {
		t.Fatalf("%d batches of %d, %+v", len(r.Lanes[0].Batches), len(s.want), r.Damage)
	}
	s.log, s.held = l, r.Lanes[0].Batches
	s.wantHeld()
	wantAccount(t, s.log, vfs.OS{}, 4096)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCrashWhileThinning cuts the power before each operation of every thinning
// and before some behind it, with and without holes. A lane cannot send, and
// nothing is kept to heal, so that there is much to thin. What is recovered must
// be a state that the model allows, without damage.
func TestCrashWhileThinning(t *testing.T) {
	from, to := seedsOf(t, 4)
	total := map[string]int{}
	crashes := 0
	for seed := from; seed < to; seed++ {
		w := newWorld(seed)
		w.stuck = 1 + uint32(seed/2%2)
		if err := crashThinning(w, seed%2 == 0, &crashes); err != nil {
			t.Fatalf("SPOOL_SEED=%d: %v", seed, err)
		}
		for what, n := range w.stats {
			total[what] += n
		}
	}
	t.Log(crashes, total)
	if to-from >= 4 && (total["punched"] == 0 || total["copied"] == 0 || crashes < 200) {
		t.Errorf("%d crashes, %v", crashes, total)
	}
}

func crashThinning(w *world, holes bool, crashes *int) error {
	w.retain = 1
	mem := vfs.NewMem()
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 3))
	behind := 0 // operations since the last thinning
	var fs vfs.FS = mem
	if !holes {
		fs = noHoles(mem)
	}
	hook := vfs.Hook{FS: fs, Before: func(o vfs.Op) error {
		if !o.Changing || w.log == nil || w.failure != nil {
			return nil
		}
		if behind++; w.log.thinning {
			behind = 0
		}
		if behind >= 4 {
			return nil
		}
		*crashes++
		if err := w.recoverCrash(mem.Crash(rng), rng, *crashes%64 == 0, crashes); err != nil {
			w.failure = fmt.Errorf("power cut before %v: %w", o, err)
		}
		return nil
	}}
	if err := w.open(hook); err != nil {
		return err
	}
	for range 450 {
		if err := errors.Join(w.step(), w.failure); err != nil {
			return err
		}
	}
	if err := errors.Join(w.sync(), w.failure); err != nil {
		return err
	}
	if lost := w.lost(); len(lost) > 0 {
		return fmt.Errorf("lost: %v", lost)
	}
	return w.close()
}

// BenchmarkThinPause is the longest Sync beside a stuck lane, with the segments of a
// 4 GiB spool on disk: behind a new segment it copies the few live batches of old
// ones, or punches. The committer stands still for that long.
func BenchmarkThinPause(b *testing.B) {
	for _, c := range []struct {
		name       string
		stuckEvery int
	}{{"copy", 20}, {"punch", 4}} {
		b.Run(c.name, func(b *testing.B) {
			l, _ := mustOpen(b, Options{Dir: b.TempDir(), MaxBytes: 4 << 30, MinFreeBytes: 1, RetainAckedBytes: 1})
			mustAppend(b, l, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}})
			busy, stuck := testBatch(2, 0, 1, 1<<20), testBatch(1, 0, 1, 1<<20)
			longest, plain, n := time.Duration(0), []time.Duration(nil), 0
			for b.Loop() {
				n++
				batch := &busy
				if n%c.stuckEvery == 0 {
					batch = &stuck
				}
				mustAppend(b, l, []Batch{*batch}, nil)
				batch.First++
				before, start := l.Stats(), time.Now()
				mustSync(b, l)
				took, after := time.Since(start), l.Stats()
				if after.BytesCarried > before.BytesCarried || after.BytesPunched > before.BytesPunched {
					longest = max(longest, took)
				} else {
					plain = append(plain, took)
				}
				if busy.First > 0 {
					mustAppend(b, l, nil, &Commit{Acks: []Ack{{Lane: 2, First: busy.First - 1, Count: 1}}})
				}
			}
			slices.Sort(plain)
			st := l.Stats()
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
			b.ReportMetric(float64(plain[len(plain)/2].Microseconds())/1000, "ms-sync")
			b.ReportMetric(float64(st.BytesCarried>>20), "MiB-copied")
			b.ReportMetric(float64(st.BytesPunched>>20), "MiB-punched")
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestTinyFramesOfStuckLane: what a stuck lane keeps lies in frames so small, and so
// close to each other, that punching frees next to nothing between them. As long as
// it is less than half of what the spool has left for it, the other lane finds room.
func TestTinyFramesOfStuckLane(t *testing.T) {
	for _, busyBytes := range []int{200, 500, 900, 1500} {
		t.Run(fmt.Sprint(busyBytes), func(t *testing.T) {
			mem := vfs.NewMem()
			o := memOptions(mem)
			o.MaxBytes, o.punchUnit = 16*testSegmentBytes, 1024
			s := &stuck{t: t}
			s.log, _ = mustOpen(t, o)
			mustAppend(t, s.log, nil, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}})
			most := (o.MaxBytes - o.MaxBytes/4 - 5*testSegmentBytes) / 2
			for live := int64(0); s.log.Stats().BytesWritten < 10*o.MaxBytes; {
				stuckBytes := 0
				if live+FrameBytes(10) <= most {
					stuckBytes = 10
					live += FrameBytes(stuckBytes)
				}
				s.group(busyBytes, stuckBytes)
			}
			s.wantHeld()
			wantAccount(t, s.log, mem, 0)
			if st := s.log.Stats(); st.BytesCarried > st.BytesWritten/4 {
				t.Errorf("%d bytes copied for %d written", st.BytesCarried, st.BytesWritten)
			}
			if err := s.log.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
