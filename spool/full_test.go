package spool

import (
	"errors"
	"fmt"
	"log/slog"
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
		{"tiny volume", vfs.Usage{TotalBytes: 4 << 20, FreeBytes: gib}, Options{}, ErrTooSmall, "smallest spool takes 33554432"},
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
		if _, cerr := Check(c.o, c.o.Dir); cerr == nil || cerr.Error() != err.Error() {
			t.Errorf("%s: Check says %v, Open %v", c.what, cerr, err)
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
	p, err := Check(o, "/")
	if err != nil || p.MaxBytes != gib/4 || p.SegmentBytes != segmentBytesLow || p.MinFreeBytes != gib/20 || p.TotalBytes != gib || len(p.Warnings) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestWarnings: directories that can be used, but hardly should. Check and Open
// say the same.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		usage vfs.Usage
		want  []string
	}{
		{vfs.Usage{}, nil},
		{vfs.Usage{Perm: 0o700, Kind: "fuse"}, nil},
		{vfs.Usage{Perm: 0o500}, nil},
		{vfs.Usage{Perm: 0o750}, []string{"mode 0750"}},
		{vfs.Usage{Perm: 0o701, Kind: "tmpfs"}, []string{"in memory (tmpfs)", "mode 0701"}},
		{vfs.Usage{Kind: "overlay"}, []string{"container's own layer"}},
	} {
		c.usage.TotalBytes, c.usage.FreeBytes = 1<<30, 1<<30
		var logged strings.Builder
		o := Options{Dir: "/spool", FS: volume{vfs.NewMem(), c.usage}, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
		p, err := Check(o, "/spool")
		if err != nil || len(p.Warnings) != len(c.want) {
			t.Fatalf("%+v: %q, %v", c.usage, p.Warnings, err)
		}
		l, _ := mustOpen(t, o)
		for i, want := range c.want {
			if !strings.Contains(p.Warnings[i], want) || !strings.Contains(logged.String(), want) {
				t.Errorf("no %q in %q and\n%s", want, p.Warnings[i], logged.String())
			}
		}
		if n := strings.Count(logged.String(), "level=WARN"); n != len(c.want) {
			t.Errorf("%d warnings:\n%s", n, logged.String())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
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

// TestDropNewest is the spool's side of when_full: drop_newest. New lines find no
// room, so their bytes are dropped and counted: a commit with the cursor behind
// them and a gap without indexes. However many of these come, they find room.
func TestDropNewest(t *testing.T) {
	mem := vfs.NewMem()
	o := memOptions(mem)
	o.MaxBytes = 8 * testSegmentBytes
	l, _ := mustOpen(t, o)
	mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}})
	next := fill(t, l, 0)
	mem.SetQuota(8 * testSegmentBytes)
	dropped := uint64(0)
	for i := range int64(3000) { // twenty segments of them
		g := Gap{Source: 1, FromByte: 100 * i, ToByte: 100 * (i + 1), Records: 7, Reason: GapDroppedNewest}
		mustAppend(t, l, nil, &Commit{Cursors: []Cursor{{Source: 1, Offset: g.ToByte}}, Gaps: []Gap{g}})
		if dropped += g.Records; i%10 == 0 {
			mustSync(t, l)
		}
		if i%500 == 0 {
			if got := fill(t, l, next); got != next {
				t.Fatal("new lines got into a spare")
			}
		}
	}
	if s := l.Stats(); s.BytesUsed > o.MaxBytes {
		t.Fatalf("%+v", s)
	}
	mustSync(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, r := mustOpen(t, o)
	if len(r.Damage) > 0 || len(r.Lanes[0].Batches) != int(next) || r.Lanes[0].Next != next || r.Sources[0].Offset != 300_000 {
		t.Fatalf("%d batches of %d, next %d, cursor %d, %+v", len(r.Lanes[0].Batches), next, r.Lanes[0].Next, r.Sources[0].Offset, r.Damage)
	}
	drain(t, l, 0, next)
	mem.SetQuota(0)
	if got := fill(t, l, next); got < next+10 {
		t.Fatalf("only %d batches fit after draining", got-next)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVolumeFullGoesRound: others fill the volume when the spool has only its first
// files. As long as all is acked new lines go on, through the same files; what is
// pending drains, with no byte free, also after some starts.
func TestVolumeFullGoesRound(t *testing.T) {
	for _, quick := range []bool{true, false} { // acks in the segment of their batches, and in one of their own
		mem := vfs.NewMem()
		o := memOptions(mem)
		l, _ := mustOpen(t, o)
		mustAppend(t, l, nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}})
		mem.SetQuota(20 * testSegmentBytes)
		filler, err := mem.OpenFile("/spool/filler", vfs.Create)
		if err == nil {
			u, _ := mem.Usage("/spool")
			err = errors.Join(filler.Allocate(u.FreeBytes), filler.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		next := uint64(0)
		for round := range 10 {
			from := next
			if !quick {
				next = fill(t, l, next)
			}
			for range 20 {
				if quick {
					mustAppend(t, l, []Batch{testBatch(1, next, 1, 3000)}, nil)
					next++
					mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: next - 1, Count: 1}}})
				}
			}
			if next == from {
				t.Fatalf("quick %v, round %d: all %d are acked, and new lines find no room: %+v", quick, round, next, l.Stats())
			}
			if s := l.Stats(); s.Spares < sparesMin {
				t.Fatalf("quick %v, round %d: new lines left %d spares", quick, round, s.Spares)
			}
			starts := round % 3 // two leave no file less; after more, lines wait, but start and drain it does
			if round == 9 {
				starts = 7
			}
			for range starts {
				mem = mem.Kill()
				o.FS = mem
				var r *Recovered
				if l, r = mustOpen(t, o); len(r.Damage) > 0 || r.Lanes[0].Next != next || !quick && r.Lanes[0].Head != from {
					t.Fatalf("quick %v, round %d: a start finds %+v", quick, round, r)
				}
			}
			if !quick {
				drain(t, l, from, next)
			}
		}
		if s := l.Stats(); s.BytesUsed > 3*testSegmentBytes {
			t.Fatalf("%+v", s)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
