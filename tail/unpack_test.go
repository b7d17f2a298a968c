package tail

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzUnpack packs data and reads it back at random places, forwards and back, as readAt promises: like pread. Bytes that
// were never packed, behind a true head, end somewhere, and nothing more.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("a line\nand another\n"), uint64(1), false)
	f.Add(bytes.Repeat([]byte("0123456789"), 20_000), uint64(2), true)
	f.Add([]byte{}, uint64(3), true)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, zstd bool) {
		path := filepath.Join(t.TempDir(), "a")
		with, packed := "gzip", path+".gz"
		if zstd {
			with, packed = "zstd", path+".zst"
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := pack(with, path); err != nil {
			t.Fatal(err)
		}
		checkUnpacked(t, packed, with, data, seed)

		text, err := os.ReadFile(packed)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(packed, append(text[:len(text)/2:len(text)/2], data...), 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := openRead(packed)
		if err != nil {
			t.Fatal(err)
		}
		defer closeFD(fd)
		u := newUnpacker(fd, with)
		defer u.close()
		buf := make([]byte, 4096)
		for off := int64(0); ; {
			n, _ := u.readAt(buf, off)
			if n == 0 {
				break
			}
			off += int64(n)
		}
		if !u.ended && !u.torn && u.damage == nil {
			t.Fatal("no end, and no reason for none")
		}
	})
}

func checkUnpacked(t *testing.T, packed, with string, data []byte, seed uint64) {
	fd, err := openRead(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(fd)
	u := newUnpacker(fd, with)
	defer u.close()
	rng := rand.New(rand.NewPCG(seed, 1))
	off := 0
	for range 30 {
		buf := make([]byte, 1+rng.IntN(5000))
		if rng.IntN(4) == 0 {
			off = rng.IntN(len(data) + 10)
		}
		n, err := u.readAt(buf, int64(off))
		want := data[min(off, len(data)):min(off+len(buf), len(data))]
		if err != nil || !bytes.Equal(buf[:n], want) {
			t.Fatalf("%d bytes at %d: got %d, %v", len(buf), off, n, err)
		}
		off += rng.IntN(n + 1)
	}
	if u.damage != nil || u.torn {
		t.Fatalf("damage %v, torn %v", u.damage, u.torn)
	}
}

// FuzzNames gives names of every legal byte to what guesses rotations from them: a rotated name is found again by each
// way of guessing, and no other file of the directory is.
func FuzzNames(f *testing.F) {
	f.Add("app.log", uint16(1))
	f.Add("\xff\xfe-\n.", uint16(20))
	f.Fuzz(func(t *testing.T, name string, number uint16) {
		if name == "" || len(name) > 200 || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
			return
		}
		path := join("/var/log", name)
		rotated := path + "." + string(rune('0'+number%10))
		if !generationName(path, rotated) || !numbered(path, rotated) {
			t.Fatalf("%q is a generation of %q", rotated, path)
		}
		if stem, _, _ := strings.Cut(name, "."); stem != "" && !rotatedName(path, rotated) {
			t.Fatalf("%q may be a generation of %q", rotated, path)
		}
		if dot := extensionOf(name); dot > 0 {
			before := join("/var/log", name[:dot]) + rotated[len(path):] + name[dot:]
			if !generationName(path, before) || !rotationName(path, before+".gz") || generationName(before, path) {
				t.Fatalf("%q is a generation of %q", before, path)
			}
		}
		if generationName(path, path) || numbered(path, path) || generationName(rotated, path) {
			t.Fatalf("%q is no generation of itself", path)
		}
	})
}

// TestCopyBegunInTheTick compresses a generation that no look saw: the copy is made, still empty, in the tick in which the live file is,
// is seen like that, and has taken the place of its original before that was opened.
func TestCopyBegunInTheTick(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, "block paths=app.log", `write app.log "one\n"`, "poll", "unsorted",
		"mv app.log app.log-20261121", "tick", `write app.log "two\n"`, "tick", "cp app.log spare", "gzip spare", "tick",
		"mv app.log app.log-20261122", `write app.log "three\n"`, `write app.log-20261122.tmp ""`)
	m.w.takeBack()
	m.w.scan()
	stepAll(t, m, "cp spare.gz app.log-20261122.tmp", "mv app.log-20261122.tmp app.log-20261122.gz", "rm app.log-20261122")
	m.w.admit()
	out := stepAll(t, m, "poll", "sleep 1s", "poll")
	if _, rest, _ := strings.Cut(out, "--\n"); !strings.HasPrefix(rest, "app.log 0000-0004 \"two\"\napp.log 0000-0006 \"three\"\n") || strings.Count(out, "two") != 1 {
		t.Error(out)
	}
}

// TestKnownAsLongAsAnOlderOne lets a pattern find all names of generations that are renamed to app.log.x2, no rotation's name, and then
// compressed to app.log.2.gz. The second is read to its end before a scan has found that name, and an older one is still known then: were it
// forgotten, the next start would take its copy for a generation that nobody saw.
func TestKnownAsLongAsAnOlderOne(t *testing.T) {
	m := newMachine(t, false)
	pack := func(no string) []string {
		return []string{"cp app.log.x" + no + " other", "gzip other", "cp other.gz app.log." + no + ".gz", "rm app.log.x" + no, "rm other.gz", "tick"}
	}
	stepAll(t, m, "block paths=app*", "lines app.log 10 12", "poll", "tick", "mv app.log app.log.x1", "tick", "lines app.log 20 22", "tick")
	stepAll(t, m, pack("1")...)
	stepAll(t, m, "poll", "mv app.log app.log.x2", "tick", "restart paths=app*", "poll", "tick", "lines app.log 30 32", "tick")
	stepAll(t, m, pack("2")...)
	readBetweenLooks(t, m)
	out := stepAll(t, m, "poll", "sleep 2s", "poll", "mv app.log app.log.x3", "tick", "restart paths=app*", "poll", "lines app.log 40 42", "poll")
	wantOnce(t, out, 4)
}

// TestUnseenKnownAsLongAsAnOlderOne has a generation rotated and compressed while no agent runs, to a name that the pattern finds, with a
// number before the extension. It is read to its end while the copy of an older one is known, and so it must stay: else the next start would
// take it for a generation that nobody saw.
func TestUnseenKnownAsLongAsAnOlderOne(t *testing.T) {
	m := newMachine(t, false)
	rotate := func(no string) []string {
		name := "app.2026-11-30." + no + ".log"
		return []string{"tick", "mv app.log " + name, "gzip " + name, "tick", "lines app.log " + no + "0 " + no + "2"}
	}
	stepAll(t, m, "block paths=app*", "lines app.log 10 12", "poll")
	stepAll(t, m, append(rotate("2"), "poll", "restart paths=app*")...)
	stepAll(t, m, slices.Concat(rotate("3"), rotate("4"))...)
	readBetweenLooks(t, m)
	stepAll(t, m, "poll", "restart paths=app*")
	out := stepAll(t, m, append(rotate("5"), "poll", "poll", "sleep 10s", "poll")...)
	wantOnce(t, out, 5)
	if out = stepAll(t, m, "gone"); strings.Contains(out, "gone app.log") {
		t.Error("forgotten while there is a copy of it:", out)
	}
	for no := range 4 {
		stepAll(t, m, fmt.Sprintf("rm app.2026-11-30.%d.log.gz", no+2))
	}
	if out = stepAll(t, m, "poll", "sleep 10s", "poll", "gone"); strings.Count(out, "gone app.log") != 4 {
		t.Error("what is needed no more is not forgotten:", out)
	}
}

// readBetweenLooks lets the readers read everything after one look, before the next.
func readBetweenLooks(t *testing.T, m *machine) {
	stepAll(t, m, "look")
	for m.turn() || len(m.held) > 0 {
		m.w.takeBack()
		m.w.admit()
	}
}

// wantOnce wants the lines 10 to 12, 20 to 22, and so on, of n generations once each.
func wantOnce(t *testing.T, out string, n int) {
	t.Helper()
	for no := range n {
		for line := range 3 {
			if want := fmt.Sprintf("%08d\"", 10*(no+1)+line); strings.Count(out, want) != 1 {
				t.Errorf("%q came %d times in\n%s", want, strings.Count(out, want), out)
			}
		}
	}
}

// TestGiveWayInTheMiddle lets a copy give way far into it, with a line in the buffer that is not whole: on the way back to its place there
// is no such line, and everything comes once.
func TestGiveWayInTheMiddle(t *testing.T) {
	const lines, perLine = 3 * unpackSliceBytes / 100, 100
	m := newMachine(t, false)
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "%0*d\n", perLine-1, i)
	}
	stepAll(t, m, "block paths=app.log")
	next := 0
	m.onLine = func(_ *File, l Line) {
		if string(l.Bytes) != fmt.Sprintf("%0*d", perLine-1, next) {
			t.Fatalf("line %d is %q", next, l.Bytes)
		}
		next++
	}
	must(t, appendTo(m.dir+"/app.log", text.String()[:50*perLine]))
	stepAll(t, m, "poll", "tick", "restart paths=app.log")
	must(t, appendTo(m.dir+"/app.log", text.String()[50*perLine:]))
	stepAll(t, m, "mv app.log app.log.1", "gzip app.log.1", `write app.log ""`)
	m.look()
	m.take()
	i := slices.IndexFunc(m.held, func(f *File) bool { return f.Unpacks() })
	if i < 0 {
		t.Fatal("no copy is unpacked")
	}
	f := m.held[i]
	for next < 2*lines/3 {
		m.read(f)
	}
	if f.pending == 0 {
		t.Fatal("no line is cut by the end of the buffer")
	}
	f.GiveWay() // nobody waits
	if f.w.unpacks.Load() != f {
		t.Error("it gave way to nobody")
	}
	f.w.unpackWanted.Store(true)
	f.GiveWay()
	if f.w.unpacks.Load() != nil {
		t.Error("it did not give way")
	}
	for f.Unpacks() {
		m.read(f)
	}
	stepAll(t, m, "poll", "poll")
	if next != lines {
		t.Errorf("%d lines, want %d", next, lines)
	}
}
