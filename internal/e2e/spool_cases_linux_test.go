package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shipper/internal/kafkatest"
)

// mountTmpfs puts a file system of so many bytes at the spool directory, until the test ends.
func (w *world) mountTmpfs(size string) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("mounting a small file system needs root")
	}
	if err := os.MkdirAll(w.spoolDir(), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Mount("none", w.spoolDir(), "tmpfs", 0, "mode=700,size="+size); err != nil {
		w.t.Skip("no mount here: ", err)
	}
	w.t.Cleanup(func() {
		w.agent.Kill9()
		if err := unix.Unmount(w.spoolDir(), unix.MNT_DETACH); err != nil {
			w.t.Error(err)
		}
	})
}

// The volume is filled to its last byte while the spool is full of lines; it must drain with no byte free.
func TestC090VolumeFull(t *testing.T) {
	w := spoolWorld(t, kafkatest.WriterOptions{Files: 2, LineBytes: 1000}, 2)
	w.mountTmpfs("64m")
	w.cut()
	w.agent.Start()
	w.writer.Write(70_000)
	w.agent.WaitLog("the spool is full", 30*time.Second)
	w.fillVolume()
	w.agent.Kill9() // a start needs no free byte either
	w.agent.Start()
	w.heal()
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("errors:\n%s", log)
	}
}

func TestC090VolumeTooSmall(t *testing.T) {
	w := spoolWorld(t, kafkatest.WriterOptions{}, 1)
	w.mountTmpfs("4m")
	w.wantExit1("has 4194304 bytes", "the smallest spool takes 33554432")
}

// setImmutable lets nobody, not even root, make, rename or remove files in a directory.
func setImmutable(t *testing.T, dir string, on bool) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		const immutable = 0x10 // FS_IMMUTABLE_FL
		if flags &^= immutable; on {
			flags |= immutable
		}
		err = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if err != nil && on {
		t.Skip("a directory cannot be made unchangeable here: ", err)
	}
	if err != nil {
		t.Error(err)
	}
}

// The spool directory cannot be written to at the start, then while the agent runs, then again.
func TestC097SpoolNotWritable(t *testing.T) {
	w := spoolWorld(t, kafkatest.WriterOptions{Files: 2, LineBytes: 1000}, 2)
	if err := os.MkdirAll(w.spoolDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { setImmutable(t, w.spoolDir(), false) })
	setImmutable(t, w.spoolDir(), true)
	w.wantExit1(w.spoolDir(), "not permitted")

	setImmutable(t, w.spoolDir(), false)
	w.agent.Start()
	w.writer.Write(2_000)
	w.check()
	// The agent goes on with the segment that is open, then waits and says why, and
	// ships the rest when it can.
	setImmutable(t, w.spoolDir(), true)
	w.writer.Write(20_000) // more than that segment takes
	w.agent.WaitLog("the spool is full", 20*time.Second)
	if log := w.agent.Log(); !strings.Contains(log, "operation not permitted") {
		t.Errorf("the agent does not say why:\n%s", log)
	}
	time.Sleep(time.Second)
	if s := w.stats(); s["spool_full_seconds"] == 0 || s["lines_acked"] < 2_000 {
		t.Errorf("%v", s)
	}
	setImmutable(t, w.spoolDir(), false)
	w.check()

	// Killed meanwhile, it says why it cannot start, and nothing is lost.
	setImmutable(t, w.spoolDir(), true)
	w.writer.Write(20_000)
	w.agent.Kill9()
	w.wantExit1("not permitted")
	setImmutable(t, w.spoolDir(), false)
	w.agent.Start()
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("errors:\n%s", log)
	}
}

// Another program fills the volume while the agent runs, and frees it: reading
// pauses, what is spooled is delivered meanwhile, reading resumes by itself.
func TestC090VolumeFilledAndFreed(t *testing.T) {
	w := spoolWorld(t, kafkatest.WriterOptions{Files: 2, LineBytes: 1000}, 2, "max_bytes: 32MiB", "max_bytes: 48MiB\n  min_free_bytes: 4MiB")
	w.mountTmpfs("64m")
	w.cut()
	w.agent.Start()
	w.writer.Write(5_000)
	w.awaitSpooled()
	filler := w.fillVolume()
	w.writer.Write(40_000)
	w.agent.WaitLog("the spool is full", 30*time.Second)
	w.heal()
	w.awaitRead("lines_acked", 5_000) // with no byte free
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") || strings.Count(log, "the spool is full") > 3 {
		t.Errorf("errors, or too many words:\n%s", log)
	}
}

// The floor of free bytes is reached, not the end of the volume: reading pauses
// above it, and goes on when lines were delivered.
func TestMinFreeBytes(t *testing.T) {
	const floor = 20 << 20
	w := spoolWorld(t, kafkatest.WriterOptions{Files: 2, LineBytes: 1000}, 2, "max_bytes: 32MiB", "max_bytes: 60MiB\n  min_free_bytes: 20MiB")
	w.mountTmpfs("64m")
	w.cut()
	w.agent.Start()
	w.writer.Write(60_000)
	w.agent.WaitLog("the spool is full", 30*time.Second)
	time.Sleep(500 * time.Millisecond)
	var st unix.Statfs_t
	if err := unix.Statfs(w.spoolDir(), &st); err != nil {
		t.Fatal(err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < floor || free > floor+8<<20 {
		t.Errorf("%d bytes are free, the floor is %d", free, floor)
	}
	w.heal()
	w.check()
	w.stop()
}

// fillVolume writes a file until no byte of the spool's volume is free.
func (w *world) fillVolume() (path string) {
	w.t.Helper()
	path = filepath.Join(w.spoolDir(), "filler")
	f, err := os.Create(path)
	if err != nil {
		w.t.Fatal(err)
	}
	for n := 1 << 20; n > 0; {
		if _, err = f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		w.t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := errors.Join(f.Close(), unix.Statfs(w.spoolDir(), &st)); err != nil || st.Bavail != 0 {
		w.t.Fatalf("%d blocks are free, %v", st.Bavail, err)
	}
	return path
}
