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
	filler, err := os.Create(filepath.Join(w.spoolDir(), "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1 << 20; n > 0; {
		if _, err = filler.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := errors.Join(filler.Close(), unix.Statfs(w.spoolDir(), &st)); err != nil || st.Bavail != 0 {
		t.Fatalf("%d blocks are free, %v", st.Bavail, err)
	}
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
	setImmutable(t, w.spoolDir(), true)
	w.writer.Write(20_000) // more than the segment that is open takes
	if code := w.agent.WaitExit(20 * time.Second); code != 1 {
		t.Fatalf("exit code %d, want 1", code)
	}
	if log := w.agent.Log(); !strings.Contains(log, "not permitted") {
		t.Errorf("the agent does not say why:\n%s", log)
	}
	w.wantExit1("not permitted") // and none of that is lost
	setImmutable(t, w.spoolDir(), false)
	w.agent.Start()
	w.check()
	w.stop()
}
