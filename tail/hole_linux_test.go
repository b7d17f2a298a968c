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
