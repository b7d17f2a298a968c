package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// TestFixtures reads spools that versions 1.0 to 1.5 wrote: two segments with one
// of every entry. The files must never be written anew for the same version, or
// nobody would notice that an old spool cannot be read any more.
func TestFixtures(t *testing.T) {
	for _, version := range []string{"v1", "v1.1", "v1.2", "v1.3", "v1.4", "v1.5"} {
		t.Run(version, func(t *testing.T) { testFixture(t, filepath.Join("testdata", version)) })
	}
}

func testFixture(t *testing.T, dir string) {
	golden := dir + ".txt"
	if _, err := os.Stat(dir); *update && errors.Is(err, os.ErrNotExist) {
		writeFixture(t, dir)
	}
	mem := vfs.NewMem()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		f, err := mem.OpenFile("/spool/"+name.Name(), vfs.Create)
		if err == nil {
			_, err = f.WriteAt(data, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	in, err := Inspect(memOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	delivered, err := in.Deliveries()
	if err != nil {
		t.Fatal(err)
	}
	l, r := mustOpen(t, memOptions(mem))
	var got strings.Builder
	fmt.Fprintf(&got, "spool %x\ndamage %+v\n", r.SpoolID, r.Damage)
	for lane := uint32(1); lane <= 2; lane++ {
		if at, ok := delivered.Time(lane, 0); ok {
			fmt.Fprintf(&got, "lane %d: record 0 was delivered at %d\n", lane, at)
		}
	}
	rd := l.NewReader()
	for _, lane := range r.Lanes {
		fmt.Fprintf(&got, "lane %+v next %d head %d\nlast ack %+v\n", lane.Lane, lane.Next, lane.Head, lane.LastAck)
		for _, id := range lane.Identities {
			fmt.Fprintf(&got, "identity %+v\n", id)
		}
		for _, g := range lane.Gaps {
			fmt.Fprintf(&got, "gap %+v\n", g)
		}
		for _, ref := range lane.Batches {
			data, err := rd.ReadBatch(nil, ref)
			fmt.Fprintf(&got, "batch [%d, %d) time %d: %q, %v\n", ref.First, ref.Next(), ref.MaxTime, data[HeaderBytes:], err)
		}
	}
	for _, s := range r.Sources {
		fmt.Fprintf(&got, "source %s\ncursor %+v\n", strconv.QuoteToASCII(fmt.Sprintf("%+v", s.Source)), s.Cursor)
	}
	if len(r.Begun) > 0 {
		fmt.Fprintf(&got, "begun %q\n", r.Begun)
	}
	for _, u := range l.Untold() {
		fmt.Fprintf(&got, "untold %+v\n", u)
	}
	if err := errors.Join(rd.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s reads as\n%s\nwant\n%s", dir, got.String(), want)
	}
}

func writeFixture(t *testing.T, dir string) {
	t.Helper()
	mem := vfs.NewMem()
	l, _ := mustOpen(t, memOptions(mem))
	mustAppend(t, l, []Batch{testBatch(1, 0, 3, 50), testBatch(1, 3, 2, 50), testBatch(2, 0, 4, 50)}, &Commit{
		Lanes: []Lane{{1, "app", "logs", 0}, {2, "app", "logs", 3}},
		Sources: []Source{
			{ID: 1, Block: "app", Path: "/var/log/app.log", Lane: 1, Encoding: "utf-8", Dev: 64769, Ino: 1 << 40, Prefix: 1 << 63, PrefixBytes: 1024},
			{ID: 2, Block: "app", Path: "/var/log/\xff\n.log", Lane: 2, Encoding: "utf-16le", Dev: 1, Ino: 2, Prefix: 3, PrefixBytes: 4},
			{ID: 3, Block: "app", Path: "/gone", Lane: 2},
		},
		Cursors: []Cursor{{Source: 1, Offset: 500, Anchor: 1 << 62, AnchorBytes: 64}, {Source: 2, Offset: 1 << 33, State: Continued, Part: 7}},
		Identities: []Identity{
			{Lane: 1, ClusterID: "cluster", Topic: "logs", TopicID: [16]byte{1, 2, 3}, Partition: 4, ProducerID: 1 << 50, Epoch: 9, Floor: 1 << 41, FloorEpoch: 11, Reason: IdentityFirst},
			{Lane: 2, Topic: "logs", Partition: -1, ProducerID: -1, Floor: -1, FloorEpoch: -1, Reason: IdentityFirst},
		},
		Begun: []string{"app"},
	})
	mustSync(t, l)
	mustAppend(t, l, nil, &Commit{
		Sources: []Source{{ID: 3, Gone: true}},
		Acks:    []Ack{{Lane: 1, First: 0, Count: 3, BaseOffset: 1 << 40, LeaderEpoch: 12}, {Lane: 2, First: 0, Count: 4, BaseOffset: 5, LeaderEpoch: 1}},
		Gaps:    []Gap{{Source: 1, FromByte: 500, ToByte: 900, Records: 4, Reason: GapFiltered}},
		Time:    1_790_000_000_000,
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, memOptions(mem)) // a checkpoint with all of it
	l.Told(1)
	mustAppend(t, l, []Batch{testBatch(1, 5, 2, 50), testBatch(1, 7, 3, 50)}, &Commit{
		Cursors: []Cursor{{Source: 1, Offset: 1000, State: Discard}},
		Heads:   []Head{{Lane: 2, Index: 0, Top: 1}},
	})
	mustAppend(t, l, nil, &Commit{Gaps: []Gap{{Lane: 1, From: 5, To: 7, Records: 2, Reason: GapRefused, DeadLetter: "dead/1"}}, Begun: []string{"other"}})
	mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 2, First: 0, Count: 4, BaseOffset: 5, LeaderEpoch: 1}}, Time: 1_790_000_001_000})
	l.Untold()
	mustAppend(t, l, nil, nil)
	mustSync(t, l)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.segments {
		f, err := mem.OpenFile(l.path(s.name()), vfs.Read)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, size)
		if err := readFull(f, data, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, s.name()), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
