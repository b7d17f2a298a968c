package tail

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// openHeld is the file at path, handed out by a watcher that ends with the test.
func openHeld(t *testing.T, path string, known []Known, encoding string) *File {
	t.Helper()
	w, err := NewWatcher(Options{Blocks: []Block{{Name: "b", Paths: []string{path}, LineBytesMax: 1000, IdleFlush: time.Second, Encoding: encoding}}, Known: known, NoInotify: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{opened: make(chan *File, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx, r) }()
	f := <-r.opened
	if f.ID() == 0 {
		f.SetID(7)
	}
	t.Cleanup(func() {
		f.Release()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// A place that is held stays while lines are handed out, is what the cursor says, and is where the next Fill and the next
// start go on, with the note.
func TestHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("one\ntwo\nthree\nfou"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, buf, now := openHeld(t, path, nil, ""), make([]byte, FillBytesMin), time.Now()
	fill := func(want int) {
		t.Helper()
		if n, st, err := f.Fill(buf, now); n != want || err != nil || !st.EOF {
			t.Fatalf("Fill: %d, %+v, %v; want %d", n, st, err, want)
		}
	}
	next := func(want string) Line {
		t.Helper()
		l, ok := f.Next()
		if string(l.Bytes) != want || ok != (want != "") {
			t.Fatalf("Next: %q, want %q", l.Bytes, want)
		}
		return l
	}
	fill(17)
	if block, at := f.Keep(); at != 0 || len(block) != 17 {
		t.Fatalf("block of %d bytes at %d", len(block), at)
	}
	next("one")
	two := next("two")
	if c := f.Cursor(); c.Offset != 0 {
		t.Fatalf("%+v before Hold", c)
	}
	f.Hold(two.Offset, 0, 42)
	next("three")
	next("")
	held := f.Cursor()
	if held.Offset != 4 || held.Note != 42 || held.AnchorBytes != 4 {
		t.Fatalf("%+v", held)
	}
	fp := f.Fingerprint()
	if fp.PrefixBytes != 14 { // what was handed out
		t.Fatalf("%v", fp)
	}
	if n := f.Done(); n != 13 {
		t.Fatalf("%d bytes pending", n)
	}
	if f.Cursor() != held {
		t.Fatalf("%+v after Done, %+v before", f.Cursor(), held)
	}
	fill(0) // nothing new
	f.Reread()
	fill(13)
	f.Keep()
	next("two")
	next("three")
	next("")
	now = now.Add(time.Second)
	if l, ok := f.Rest(now); !ok || string(l.Bytes) != "fou" || l.Offset != 14 {
		t.Fatalf("Rest: %q %v", l.Bytes, ok)
	}
	f.HoldHere(0)
	if c := f.Cursor(); c.Offset != 17 || c.State != Continued || c.Part != 1 || c.Note != 0 {
		t.Fatalf("%+v", c)
	}
	f.Done()

	// Another life, from the cursor.
	g := openHeld(t, path, []Known{{ID: 7, Block: "b", Path: path, Fingerprint: fp, Cursor: held}}, "")
	if g.Cursor() != held {
		t.Fatalf("%+v, want %+v", g.Cursor(), held)
	}
	if n, _, err := g.Fill(buf, now); n != 13 || err != nil {
		t.Fatal(n, err)
	}
	l, _ := g.Next()
	if string(l.Bytes) != "two" || g.Cursor().Note != 0 {
		t.Fatalf("%q, note %d behind its place", l.Bytes, g.Cursor().Note)
	}
	g.Unfill()
}

// What is handed out again is counted once.
func TestHoldCountsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("a\xff\n"+string(make([]byte, 600))+"\nb\xff\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, buf := openHeld(t, path, nil, "shift_jis"), make([]byte, FillBytesMin)
	for range 3 {
		f.Reread()
		if _, _, err := f.Fill(buf, time.Now()); err != nil {
			t.Fatal(err)
		}
		if block, _ := f.Keep(); block != nil {
			t.Fatal("decoded lines are no slices of the block")
		}
		for _, ok := f.Next(); ok; _, ok = f.Next() {
		}
		f.Done()
	}
	if s := f.w.Stats(); s.ReplacedRunes != 2 || s.NULBytes != 600 {
		t.Fatalf("%d replaced, %d NUL bytes", s.ReplacedRunes, s.NULBytes)
	}
}
