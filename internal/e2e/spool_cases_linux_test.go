package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shipper/internal/kafkatest"
)

const envOwnMounts = "SHIPPER_TEST_OWN_MOUNTS"

// inOwnMounts runs the calling test in a process that is root of name spaces of its own, which may mount what nobody else
// sees. There it returns true, here false: the test is over.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envOwnMounts) != "" {
		return true
	}
	takeTurn(t, embeddedTurns)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), envOwnMounts+"=1", "SHIPPER_BINARY="+kafkatest.AgentBinary(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var path *os.PathError
	switch {
	case errors.As(err, &path), err == nil && strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("no name spaces of our own here: %v\n%s", err, out)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// mountTmpfs puts a file system of so many bytes at the spool directory, until the test ends.
func (w *world) mountTmpfs(size string) {
	w.t.Helper()
	err := os.MkdirAll(w.spoolDir(), 0o700)
	if err == nil {
		err = unix.Mount("none", w.spoolDir(), "tmpfs", 0, "mode=700,size="+size)
	}
	if errors.Is(err, os.ErrPermission) {
		w.t.Skip(err)
	}
	if err != nil {
		w.t.Fatal(err)
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
	if !inOwnMounts(t) {
		return
	}
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, LineBytes: 1000})
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
	if !inOwnMounts(t) {
		return
	}
	w := spoolWorld(t, embedded(t, 1), kafkatest.WriterOptions{})
	w.mountTmpfs("4m")
	w.wantExit1("has 4194304 bytes", "the smallest spool takes 33554432")
}

// The spool directory cannot be written to at the start, then while the agent runs, then again.
func TestC097SpoolNotWritable(t *testing.T) {
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, LineBytes: 1000})
	w.agent = kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: w.config(w.spoolDir(), w.sources), ObeyPermissions: true})
	if err := os.MkdirAll(w.spoolDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	writable := func(yes bool) {
		t.Helper()
		mode := os.FileMode(0o500)
		if yes {
			mode = 0o700
		}
		if err := os.Chmod(w.spoolDir(), mode); err != nil {
			t.Fatal(err)
		}
	}
	writable(false)
	w.wantExit1(w.spoolDir(), "permission denied")

	writable(true)
	w.first(2_000)
	// The agent goes on with the segment that is open, then waits and says why, and
	// ships the rest when it can.
	writable(false)
	w.writer.Write(20_000) // more than that segment takes
	w.agent.WaitLog("the spool is full", 20*time.Second)
	if log := w.agent.Log(); !strings.Contains(log, "permission denied") {
		t.Errorf("the agent does not say why:\n%s", log)
	}
	time.Sleep(time.Second)
	if s := w.stats(); s["spool_full_seconds"] == 0 || s["lines_acked"] < 2_000 {
		t.Errorf("%v", s)
	}
	writable(true)
	w.check()

	// Killed meanwhile, it says why it cannot start, and nothing is lost.
	writable(false)
	w.writer.Write(20_000)
	w.agent.Kill9()
	w.wantExit1("permission denied")
	writable(true)
	w.agent.Start()
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("errors:\n%s", log)
	}
}

// The volume comes back read-only, as after an error of its disk: the agent says so and
// leaves; when it may write again it goes on. (Beside an agent that holds files open for
// writing nobody can make it read-only but the kernel: TestRefusedForAWhile.)
func TestC097VolumeReadOnly(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	b := embedded(t, 2)
	b.maxBytes, b.spool = "40MiB", "  min_free_bytes: 4MiB\n"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 500})
	w.mountTmpfs("64m")
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("none", w.spoolDir(), "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.cut()
	w.agent.Start()
	w.writer.Write(3_000)
	w.awaitSpooled()
	w.agent.Kill9()
	remount(unix.MS_RDONLY)
	w.wantExit1("read-only file system")
	remount(0)
	w.agent.Start()
	w.writer.Write(3_000)
	w.heal()
	w.check()
	w.stop()
}

// Another program fills the volume while the agent runs, and frees it: reading
// pauses, what is spooled is delivered meanwhile, reading resumes by itself.
func TestC090VolumeFilledAndFreed(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	b := embedded(t, 2)
	b.maxBytes, b.spool = "48MiB", "  min_free_bytes: 4MiB\n"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 1000})
	w.mountTmpfs("64m")
	w.cut()
	w.agent.Start()
	w.writer.Write(5_000)
	w.awaitSpooled()
	filler := w.fillVolume()
	w.writer.Write(40_000)
	w.agent.WaitLog("the spool is full", 30*time.Second)
	w.heal()
	w.awaitStat("lines_acked", 5_000) // with no byte free
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") || strings.Count(log, "the spool is full") > 3 {
		t.Errorf("errors, or too many words:\n%s", log)
	}
}

// Another program fills the volume of a young spool, which has only its first files, and Kafka takes lines: they all go
// through these, also when new lines would be dropped, across a kill, and nothing is freed.
func TestC090VolumeFullWhileKafkaTakesLines(t *testing.T) {
	volumeFullWhileKafkaTakesLines(t, "block")
}

func TestC090VolumeFullDropNewest(t *testing.T) { volumeFullWhileKafkaTakesLines(t, "drop_newest") }

func volumeFullWhileKafkaTakesLines(t *testing.T, whenFull string) {
	if !inOwnMounts(t) {
		return
	}
	b := embedded(t, 2)
	b.maxBytes, b.spool = "40MiB", "  min_free_bytes: 1MiB\n  retain_acked: 1MiB\n  when_full: "+whenFull+"\n"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 1000})
	w.mountTmpfs("64m")
	w.first(1_000)
	w.fillVolume()
	for range 3 {
		w.writer.Write(8_000)
		w.check()
		w.agent.Kill9()
		w.agent.Start()
	}
	w.writer.Write(8_000)
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, "until its volume has space again") {
		t.Errorf("errors, or no word of the volume:\n%s", log)
	}
}

// No inode is free beside the first files of a young spool, whatever the bytes: all lines go through these files, also after kills.
func TestC090InodesUsedUp(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	b := embedded(t, 2)
	b.maxBytes = "40MiB"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 1000})
	w.mountTmpfs("64m,nr_inodes=20")
	w.first(1_000)
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(w.spoolDir(), fmt.Sprint("filler", i)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for range 2 {
		w.cut()
		w.writer.Write(8_000)
		w.agent.WaitLog("the spool is full", 20*time.Second)
		w.agent.Kill9()
		w.agent.Start()
		w.heal()
		w.check()
	}
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, "no free inode") {
		t.Errorf("errors, or no word of inodes:\n%s", log)
	}
}

// The floor of free bytes is reached, not the end of the volume: reading pauses
// above it, and goes on when lines were delivered.
func TestMinFreeBytes(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	const floor = 20 << 20
	b := embedded(t, 2)
	b.maxBytes, b.spool = "60MiB", "  min_free_bytes: 20MiB\n"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 1000})
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
