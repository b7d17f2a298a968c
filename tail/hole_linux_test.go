package tail

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that stays mapped into memory is written without a new time as long as the page is dirty.
func TestMappedFileIsWrittenWithoutATrace(t *testing.T) {
	m := newMachine(t, false)
	path := filepath.Join(m.dir, "a.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	copy(mem, "one\n")
	stepAll(t, m, `poll`)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(mem[4:], "two\n")
	stepAll(t, m, `sleep 2s`, `poll`)
	copy(mem[8:], "three\n")
	got := stepAll(t, m, `sleep 10m`, `poll`)
	if after, err := os.Stat(path); err != nil || after.ModTime() != before.ModTime() {
		t.Skip("the kernel wrote the page out meanwhile: ", err)
	}
	if want := "a.log 0000-0004 \"one\"\n--\na.log 0004-0008 \"two\"\n--\na.log 0008-0014 \"three\"\n--\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Nothing is unread in a file that ends with reserved room, whether a reader holds it, or nobody.
func TestRoomIsNotUnread(t *testing.T) {
	m := newMachine(t, false)
	stepAll(t, m, `write whole.log "one\n"`, `zeros whole.log 200000`, `write half.log "one\nhalf"`, `zeros half.log 3000000`)
	m.hold = true
	check := func(when string) {
		t.Helper()
		for name, unread := range map[string]int64{"whole.log": 0, "half.log": 4} {
			v := m.w.explain(filepath.Join(m.dir, name)).Blocks[0].File
			if got := v.Size - v.Offset - v.Room; got != unread {
				t.Errorf("%s, %s: %d of %d bytes read, %d reserved, so %d unread; want %d", when, name, v.Offset, v.Size, v.Room, got, unread)
			}
		}
		if got := m.w.Stats().UnreadBytes; got != 4 {
			t.Errorf("%s: %d bytes unread, want 4", when, got)
		}
	}
	stepAll(t, m, `poll`, `poll`)
	check("held")
	m.hold = false
	stepAll(t, m, `poll`)
	check("released")
	stepAll(t, m, `over whole.log 4 "two\n"`, `poll`)
	check("written to")
}
