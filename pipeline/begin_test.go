package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"shipper/spool"
	"shipper/tail"
)

// What the first scan found takes several groups. Lanes, and the note that the source has begun, are in the last ones: a crash
// between them leaves a start that does not count. No file is handed out before all of them are durable.
func TestBeginningsInSeveralGroups(t *testing.T) {
	const files = 100
	dir := t.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("a line\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x := newBench(t, "none", 8<<20)
	x.keep = true
	x.r.cfg.Sources[0].StartAtEnd = true
	x.r.groupMax = groupOverheadBytes + 4<<10
	w, err := tail.NewWatcher(tail.Options{Blocks: []tail.Block{{Name: "app", Paths: []string{dir + "/*"}, LineBytesMax: 1000, StartAtEnd: true}}, NoInotify: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx, x.d) }()
	<-x.r.notify
	x.r.takeMail(time.Now())
	stop() // nobody said that they are durable
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if x.r.takeMail(time.Now()); len(x.r.files) > 0 {
		t.Errorf("%d files were handed out", len(x.r.files))
	}
	x.drain()
	checkBeginnings(t, x, files)
}

func checkBeginnings(t *testing.T, x *bench, files int) {
	t.Helper()
	if len(x.groups) < 3 {
		t.Fatalf("%d groups", len(x.groups))
	}
	ids, lanes := map[uint64]bool{}, map[uint32]bool{}
	for i, g := range x.groups {
		c := &g.commit
		if g.bytes > x.r.groupMax {
			t.Errorf("group %d may take %d bytes", i, g.bytes)
		}
		if last := i == len(x.groups)-1; (len(c.Begun) == 1) != last || (g.durable != nil) != last {
			t.Errorf("group %d of %d: begun %v", i, len(x.groups), c.Begun)
		}
		for n, s := range c.Sources {
			if len(lanes) > 0 || c.Cursors[n].Source != s.ID || c.Cursors[n].Offset != 7 {
				t.Errorf("source %d behind %d lanes has the cursor %+v", s.ID, len(lanes), c.Cursors[n])
			}
			ids[s.ID] = true
		}
		for _, l := range c.Lanes {
			lanes[l.ID] = true
		}
	}
	if len(ids) != files || len(lanes) != lanesAuto {
		t.Errorf("%d sources and %d lanes, want %d and %d", len(ids), len(lanes), files, lanesAuto)
	}
}

// A source that has sent something has had its first start, whatever it began with.
func TestBegun(t *testing.T) {
	had := begun{}
	had.note([]string{"noted"})
	had.lane(spool.Lane{Block: "sent"}, 7)
	had.lane(spool.Lane{Block: "sent"}, 0)
	had.lane(spool.Lane{Block: "nothing sent"}, 0)
	if got := fmt.Sprint(had["noted"], had["sent"], had["nothing sent"]); got != "true true false" {
		t.Error(got)
	}
}
