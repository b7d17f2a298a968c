package spool

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// fill appends groups of new lines until the spool is full and returns how many
// records lane 1 got.
func fill(t *testing.T, l *Log, next uint64) uint64 {
	t.Helper()
	for range 10000 {
		before := l.Stats()
		_, err := l.Append(nil, []Batch{testBatch(1, next, 1, 3000)}, nil)
		if errors.Is(err, ErrFull) {
			if after := l.Stats(); after.BytesWritten != before.BytesWritten || after.Refused != before.Refused+1 {
				t.Fatalf("a refused group wrote something: %+v, %+v", before, after)
			}
			return next
		}
		if err != nil {
			t.Fatal(err)
		}
		next++
	}
	t.Fatal("never full")
	return 0
}

// drain acks all below next, one commit a batch, and lets Sync release.
func drain(t *testing.T, l *Log, from, next uint64) {
	t.Helper()
	for i := from; i < next; i++ {
		mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: i, Count: 1}}})
		if i%5 == 0 {
			mustSync(t, l)
		}
	}
	mustSync(t, l)
}

// TestFull fills the spool to MaxBytes. New lines wait; commits, batches that are
// cut again and a restart go on, from the spares; acks make room again.
func TestFull(t *testing.T) {
	mem := vfs.NewMem()
	o := memOptions(mem)
	o.MaxBytes = 8 * testSegmentBytes
	l, _ := mustOpen(t, o)
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}})
	next := fill(t, l, 0)
	if s := l.Stats(); s.BytesUsed > o.MaxBytes || s.Spares != sparesMin {
		t.Fatalf("full: %+v", s)
	}
	mem.SetQuota(8 * testSegmentBytes) // and the volume has nothing left either
	for i := range 100 {
		mustAppend(t, l, nil, &Commit{Cursors: []Cursor{{Source: 1, Offset: int64(i)}}})
	}
	if s := l.Stats(); s.Spares != sparesMin-1 {
		t.Fatalf("100 commits of 128 bytes should need one spare: %+v", s)
	}
	mustAppend(t, l, []Batch{testBatch(1, next-1, 1, 100)}, nil) // cut again
	if got := fill(t, l, next); got != next {
		t.Fatal("new lines got into a spare")
	}
	mustSync(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each start needs a segment, and gives one back
		l, r, err := Open(o)
		if err != nil {
			t.Fatalf("restart of a full spool: %v", err)
		}
		if len(r.Lanes[0].Batches) != int(next) || r.Lanes[0].Next != next || r.Sources[0].Offset != 99 || len(r.Damage) > 0 {
			t.Fatalf("recovered %d batches of %d, cursor %d, %+v", len(r.Lanes[0].Batches), next, r.Sources[0].Offset, r.Damage)
		}
		if got := fill(t, l, next); got != next {
			t.Fatal("new lines got into a spare")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l, _ = mustOpen(t, o)
	drain(t, l, 0, next)
	if s := l.Stats(); s.Segments > 6 || s.Spares < sparesMin {
		t.Fatalf("drained: %+v", s)
	}
	mem.SetQuota(0)
	if got := fill(t, l, next); got < next+10 {
		t.Fatalf("only %d batches fit after draining", got-next)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVolumeFull is the same with another program that eats the volume, or with
// the floor of free bytes reached.
func TestVolumeFull(t *testing.T) {
	for _, floor := range []int64{1, 12 * testSegmentBytes} {
		mem := vfs.NewMem()
		o := memOptions(mem)
		o.MinFreeBytes = floor
		mem.SetQuota(20 * testSegmentBytes)
		l, _ := mustOpen(t, o)
		mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
		if floor == 1 {
			mem.SetQuota(6*testSegmentBytes + 7)
		}
		next := fill(t, l, 0)
		if used := l.Stats().BytesUsed; used > 8*testSegmentBytes {
			t.Fatalf("floor %d: %d segments are used", floor, used/testSegmentBytes)
		}
		drain(t, l, 0, next)
		if got := fill(t, l, next); got < next+5 {
			t.Fatalf("only %d batches fit after draining", got-next)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrashLoop: a thousand starts must not fill the spool or the directory.
func TestCrashLoop(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, &Commit{Lanes: []Lane{{ID: 1}}})
	mustSync(t, l)
	for range 100 {
		mem = mem.Kill()
		var r *Recovered
		l, r = mustOpen(t, memOptions(mem))
		if len(r.Lanes[0].Batches) != 1 || len(r.Damage) > 0 {
			t.Fatalf("%+v", r)
		}
	}
	if s := l.Stats(); s.Segments > 3+emptyRetainedMax || s.BytesUsed > 4*testSegmentBytes {
		t.Fatalf("after 100 starts: %+v", s)
	}
}

// TestStuckLane: a lane that cannot send keeps its segment, and only that.
func TestStuckLane(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 1, 100)}, &Commit{Lanes: []Lane{{ID: 1}, {ID: 2}}})
	for i := range uint64(200) {
		mustAppend(t, l, []Batch{testBatch(2, i, 1, 3000)}, nil)
		mustSync(t, l)
		mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 2, First: i, Count: 1}}})
	}
	mustSync(t, l)
	if s := l.Stats(); s.Segments > 6 {
		t.Fatalf("a stuck lane holds %d segments", s.Segments)
	}
	if l.segments[0].number != 1 {
		t.Fatal("the segment of the stuck lane is gone")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, r := mustOpen(t, memOptions(mem))
	if len(r.Damage) > 0 || len(r.Lanes[0].Batches) != 1 {
		t.Fatalf("%+v", r)
	}
	rd := l.NewReader()
	wantBatch(t, rd, r.Lanes[0].Batches[0], testBatch(1, 0, 1, 100))
	if err := errors.Join(rd.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// volume is a file system that says something else about its volume.
type volume struct {
	vfs.FS
	usage vfs.Usage
}

func (v volume) Usage(string) (vfs.Usage, error) { return v.usage, nil }

func TestRefusals(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		what  string
		usage vfs.Usage
		o     Options
		want  error
		says  string
	}{
		{"small volume", vfs.Usage{TotalBytes: 100 << 20, FreeBytes: gib}, Options{}, ErrTooSmall, "at least 33554432"},
		{"small limit", vfs.Usage{TotalBytes: gib, FreeBytes: gib}, Options{MaxBytes: 1 << 20}, ErrTooSmall, "spool.max_bytes"},
		{"nothing free", vfs.Usage{TotalBytes: gib, FreeBytes: 1000}, Options{}, ErrTooSmall, "it needs 33554432"},
		{"above the floor", vfs.Usage{TotalBytes: gib, FreeBytes: 40 << 20}, Options{}, ErrTooSmall, "min_free_bytes"},
		{"network", vfs.Usage{TotalBytes: gib, FreeBytes: gib, Kind: "nfs", Network: true}, Options{}, ErrNetworkFS, "nfs"},
	} {
		c.o.Dir, c.o.FS = "/spool", volume{vfs.NewMem(), c.usage}
		_, _, err := Open(c.o)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
	}
	o := Options{Dir: "/spool", FS: volume{vfs.NewMem(), vfs.Usage{TotalBytes: gib, FreeBytes: gib, Kind: "nfs", Network: true}}, AllowNetworkFS: true}
	l, _ := mustOpen(t, o)
	if l.segmentBytes != segmentBytesLow || l.options.MaxBytes != gib/4 || l.options.MinFreeBytes != gib/20 || l.options.RetainAckedBytes != gib/16 {
		t.Errorf("defaults on 1 GiB: segments of %d, %+v", l.segmentBytes, l.options)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNewerFormat refuses what a later major version wrote, by its file names
// and by its checkpoints, and reads what a later minor version wrote.
func TestNewerFormat(t *testing.T) {
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 3, Block: "b"}}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	later := func(major, minor byte) *vfs.Mem {
		m := mem.Kill()
		s := l.newest()
		e := encoder{buf: appendPreamble(nil)}
		e.buf[len(formatMagic)], e.buf[len(formatMagic)+2] = major, minor
		e.buf = appendPreface(e.buf, preface{durable: position{s.number, 4096}})
		e.begin(200) // an entry nobody knows yet
		e.uint(77)
		e.end()
		l.state.appendState(&e, nil)
		f, err := m.OpenFile(l.path(s.name()), vfs.Write)
		if err == nil {
			_, err = f.WriteAt(appendCommitFrame(nil, kindCheckpoint, s.seed, 0, e.buf), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, _, err := Open(memOptions(later(2, 0))); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("major 2: %v", err)
	}
	l2, r, err := Open(memOptions(later(1, 9)))
	if err != nil || len(r.Lanes) != 1 || r.Lanes[0].ID != 3 {
		t.Errorf("minor 9: %+v, %v", r, err)
	} else if err := l2.Close(); err != nil {
		t.Error(err)
	}
	m := mem.Kill()
	if err := m.Rename(l.path(l.newest().name()), fmt.Sprintf("/spool/segment-%010d-%016x.v2", 9, 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(memOptions(m)); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("name of major 2: %v", err)
	}
}

// TestFailedSyncIsFinal: no sync is tried again, and nothing is written behind it.
func TestFailedSyncIsFinal(t *testing.T) {
	broken := errors.New("broken")
	armed := false
	fault := &vfs.Fault{Match: func(op vfs.Op) bool { return armed && op.Kind == "sync" }, Err: broken}
	var trace vfs.Trace
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(vfs.Hook{FS: vfs.Hook{FS: mem, Before: fault.Before}, Before: trace.Before}))
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}})
	armed = true
	if err := l.Sync(); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	trace.Take()
	_, err := l.Append(nil, nil, nil)
	if !errors.Is(err, broken) || !errors.Is(l.Sync(), broken) || !errors.Is(l.Close(), broken) {
		t.Error("the log works on after a failed sync")
	}
	if ops := trace.Take(); ops != "" {
		t.Errorf("after a failed sync: %s", ops)
	}
}

// TestFaultAtEveryOperation fails each operation in turn, writes in part, and
// goes on as the agent would: exit and recover.
func TestFaultAtEveryOperation(t *testing.T) {
	for _, noSpace := range []bool{false, true} {
		for at := 0; ; at++ {
			fired, err := faultAt(at, noSpace)
			if err != nil {
				t.Fatalf("operation %d fails, no space %v: %v", at, noSpace, err)
			}
			if !fired {
				if at < 30 {
					t.Fatalf("only %d operations", at)
				}
				break
			}
		}
	}
}

func faultAt(at int, noSpace bool) (fired bool, err error) {
	w := newWorld(3)
	mem := vfs.NewMem()
	fault := &vfs.Fault{Match: func(op vfs.Op) bool { return op.Changing }, At: at, Err: &vfs.ShortWriteError{Bytes: 100, Err: errors.New("broken")}}
	if noSpace {
		fault.Err = vfs.ErrNoSpace
		fault.Match = func(op vfs.Op) bool {
			return op.Changing && (op.Kind == "create" || op.Kind == "allocate" || op.Kind == "write")
		}
	}
	err = w.open(vfs.Hook{FS: mem, Before: fault.Before})
	for i := 0; err == nil && i < 80; i++ {
		err = w.step()
	}
	if err == nil {
		err = errors.Join(w.sync(), w.close())
	}
	if err == nil {
		return fault.Fired(), nil
	}
	if !fault.Fired() {
		return false, err
	}
	for _, left := range []*vfs.Mem{mem.Kill(), mem.Crash(w.rng)} {
		l, r, err := Open(memOptions(left))
		if err != nil {
			return true, err
		}
		possible := w.possible
		if len(possible) == 0 {
			possible = []*model{w.now}
		}
		if _, err := findState(l, r, possible); err != nil {
			return true, err
		}
		if err := l.Close(); err != nil {
			return true, err
		}
	}
	return true, nil
}
