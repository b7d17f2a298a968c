package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImplementations: the memory answers as the operating system does.
func TestImplementations(t *testing.T) {
	for name, c := range map[string]struct {
		fs  FS
		dir string
	}{"os": {OS{}, filepath.Join(t.TempDir(), "a", "b")}, "mem": {NewMem(), "/a/b"}} {
		t.Run(name, func(t *testing.T) { testImplementation(t, name, c.fs, c.dir) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testImplementation(t *testing.T, name string, f FS, dir string) {
	must(t, f.MkdirAll(dir))
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	_, err := f.OpenFile(a, Read)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of nothing: %v", err)
	}
	file, err := f.OpenFile(a, Create)
	must(t, err)
	if _, err := f.OpenFile(a, Create); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
	must(t, file.Allocate(3000))
	_, err = file.WriteAt([]byte("hello"), 1000)
	must(t, err)
	must(t, file.Sync())
	want := make([]byte, 3000)
	copy(want[1000:], "hello")
	wantContent(t, file, want)
	must(t, file.Allocate(100)) // smaller: nothing happens
	must(t, file.Truncate(1003))
	wantContent(t, file, want[:1003])
	must(t, file.Allocate(2000)) // what was cut off is zeros
	wantContent(t, file, append(slices.Clone(want[:1003]), make([]byte, 997)...))
	if n, err := file.ReadAt(make([]byte, 10), 1995); n != 5 || err != io.EOF {
		t.Errorf("read over the end: %d, %v", n, err)
	}
	testPunch(t, file, name)
	must(t, f.Rename(a, b))
	names, err := f.OpenDir(dir)
	must(t, err)
	must(t, names.Sync())
	must(t, names.Close())
	listed, err := f.ReadDir(dir)
	if err != nil || !slices.Equal(listed, []string{"b"}) {
		t.Errorf("names %v, %v", listed, err)
	}
	must(t, file.Close())
	if err := f.Remove(a); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removal of nothing: %v", err)
	}
	must(t, f.Remove(b))
	u, err := f.Usage(dir)
	if err != nil || u.TotalBytes <= 0 || u.FreeBytes > u.TotalBytes || name == "os" && u.Perm != 0o700 {
		t.Errorf("usage %+v, %v", u, err)
	}
	lock, _, err := f.Lock(a, "pid 1")
	must(t, err)
	if _, holder, err := f.Lock(a, "pid 2"); !errors.Is(err, ErrLocked) || holder != "pid 1" {
		t.Errorf("locked twice: %q, %v", holder, err)
	}
	if name == "os" {
		must(t, f.Remove(a)) // as cleaners of old files do
	}
	if _, _, err := f.Lock(a, "pid 2"); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice when the file was removed: %v", err)
	}
	must(t, lock.Close())
	lock, _, err = f.Lock(a, "pid 3")
	must(t, err)
	must(t, lock.Close())
}

// TestLinks: whoever puts a link where the spool has a file leads it to nothing of
// somebody else's.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	must(t, os.WriteFile(target, []byte("somebody's"), 0o600))
	must(t, os.Symlink(target, link))
	if _, _, err := (OS{}).Lock(link, "pid 1"); !errors.Is(err, ErrNoFile) {
		t.Errorf("a link was locked: %v", err)
	}
	for _, mode := range []Mode{Read, Write, Create} {
		want := ErrNoFile
		if mode == Create {
			want = fs.ErrExist
		}
		if _, err := (OS{}).OpenFile(link, mode); !errors.Is(err, want) {
			t.Errorf("mode %d: %v, want %v", mode, err, want)
		}
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "somebody's" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRenamedFile: an error does not name a file as it was called when it was opened.
func TestRenamedFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "temp")
	must(t, os.WriteFile(name, nil, 0o600))
	f, err := (OS{}).OpenFile(name, Read)
	must(t, err)
	must(t, (OS{}).Rename(name, filepath.Join(dir, "final")))
	_, err = f.WriteAt([]byte("x"), 0)
	for _, err := range []error{err, f.Truncate(7)} {
		if err == nil || strings.Contains(err.Error(), "temp") {
			t.Errorf("%v", err)
		}
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	must(t, f.Close())
}

// testPunch: a hole reads as zeros, takes no room and leaves its neighbours.
func testPunch(t *testing.T, file File, name string) {
	t.Helper()
	const size = 64 << 10
	want := []byte(strings.Repeat("x", size))
	_, err := file.WriteAt(want, 0)
	must(t, err)
	must(t, file.Sync())
	before, err := file.DiskBytes()
	must(t, err)
	err = file.Punch(8192, size-8192)
	if errors.Is(err, errors.ErrUnsupported) && name == "os" {
		t.Log("holes are not to be had here")
		return
	}
	must(t, err)
	clear(want[8192 : size-8192])
	wantContent(t, file, want)
	after, err := file.DiskBytes()
	must(t, err)
	if before < size || before-after != size-2*8192 {
		t.Errorf("%d bytes on disk before, %d after", before, after)
	}
	must(t, file.Punch(100, 300)) // no whole block
	clear(want[100:300])
	wantContent(t, file, want)
}

func wantContent(t *testing.T, f File, want []byte) {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatalf("%d bytes, want %d, or other content", len(got), len(want))
	}
}

// TestMemCrash: what was synced survives every crash; of the rest, each outcome
// that the rules allow is seen, and no other.
func TestMemCrash(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		m := NewMem()
		f, err := m.OpenFile("/d/a", Create)
		must(t, err)
		old := strings.Repeat("o", 2*memBlockBytes)
		_, err = f.WriteAt([]byte(old), 0)
		must(t, err)
		must(t, f.Sync())
		names, err := m.OpenDir("/d")
		must(t, err)
		must(t, names.Sync())
		for _, version := range []string{"1", "2"} { // two versions of the first block, one of the second
			_, err = f.WriteAt([]byte(strings.Repeat(version, memBlockBytes)), 0)
			must(t, err)
		}
		_, err = f.WriteAt([]byte(strings.Repeat("3", memBlockBytes)), memBlockBytes)
		must(t, err)
		must(t, m.Rename("/d/a", "/d/b"))
		after := m.Crash(rand.New(rand.NewPCG(seed, 0)))
		listed, err := after.ReadDir("/d")
		must(t, err)
		if len(listed) != 1 {
			t.Fatalf("names %v", listed)
		}
		got, err := after.OpenFile("/d/"+listed[0], Read)
		must(t, err)
		var content [2 * memBlockBytes]byte
		_, err = got.ReadAt(content[:], 0)
		must(t, err)
		first, second := content[:memBlockBytes], content[memBlockBytes:]
		for _, block := range [][]byte{first, second} {
			if strings.Trim(string(block), string(block[:1])) != "" {
				t.Fatal("a block is torn")
			}
		}
		seen[fmt.Sprintf("%s %c%c", listed[0], first[0], second[0])]++
	}
	if len(seen) != 2*3*2 {
		t.Errorf("outcomes %v, want 12 of them", seen)
	}
}

func TestMemQuota(t *testing.T) {
	m := NewMem()
	m.SetQuota(1000)
	f, err := m.OpenFile("/a", Create)
	must(t, err)
	must(t, f.Allocate(900))
	if _, err := f.WriteAt(make([]byte, 200), 850); !IsNoSpace(err) {
		t.Errorf("write over the quota: %v", err)
	}
	if err := f.Allocate(1001); !IsNoSpace(err) {
		t.Errorf("allocation over the quota: %v", err)
	}
	if u, err := m.Usage("/"); err != nil || u.FreeBytes != 100 {
		t.Errorf("usage %+v, %v", u, err)
	}
}

func TestHook(t *testing.T) {
	var trace Trace
	fault := &Fault{Match: func(op Op) bool { return op.Kind == "write" }, At: 1, Err: &ShortWriteError{Bytes: 2, Err: ErrNoSpace}}
	h := Hook{FS: Hook{FS: NewMem(), Before: fault.Before}, Before: trace.Before}
	f, err := h.OpenFile("/d/a", Create)
	must(t, err)
	_, err = f.WriteAt([]byte("abcd"), 0)
	must(t, err)
	if n, err := f.WriteAt([]byte("efgh"), 4); n != 2 || !IsNoSpace(err) {
		t.Errorf("short write: %d, %v", n, err)
	}
	must(t, h.Rename("/d/a", "/d/b"))
	if size, err := f.Size(); size != 6 || err != nil {
		t.Errorf("size %d, %v", size, err)
	}
	if got, want := trace.Take(), "create a\nwrite a 0+4\nwrite a 4+4\nrename a b\n"; got != want {
		t.Errorf("traced\n%s, want\n%s", got, want)
	}
	if !fault.Fired() {
		t.Error("the fault has not fired")
	}
}
