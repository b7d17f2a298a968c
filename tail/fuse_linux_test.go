package tail

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// TestC015Fuse tails files on a FUSE file system that others write to behind its back, in name spaces of its own: no event comes, all
// of it is found by polling, and that is told once.
func TestC015Fuse(t *testing.T) {
	if os.Getenv("TAIL_TEST_FUSE") != "" {
		tailFuse(t)
		return
	}
	if _, err := os.Stat("/dev/fuse"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no /dev/fuse here")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestC015Fuse$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), "TAIL_TEST_FUSE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	log := string(out)
	if err != nil && (log == "" || strings.Contains(log, "cannot mount")) {
		t.Skip("no name spaces with file systems of our own here:", err, log)
	}
	if err != nil || strings.Count(log, "is on a network file system") != 1 || !strings.Contains(log, "kind=FUSE") || strings.Contains(log, "lost") {
		t.Errorf("%v\n%s", err, log)
	}
}

// mountFuse shows the directory behind at the directory at, through a file system that this process serves.
func mountFuse(t *testing.T, behind, at string) {
	root, err := fusefs.NewLoopbackRoot(behind)
	must(t, err)
	server, err := fusefs.Mount(at, root, &fusefs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		t.Fatal("cannot mount: ", err)
	}
	t.Cleanup(func() { must(t, server.Unmount()) })
}

func tailFuse(t *testing.T) {
	top, gap := t.TempDir(), 20*time.Millisecond
	behind, seen := filepath.Join(top, "behind"), filepath.Join(top, "seen")
	must(t, errors.Join(os.Mkdir(behind, 0o700), os.Mkdir(seen, 0o700)))
	must(t, os.MkdirAll(filepath.Join(behind, "beside"), 0o700))
	mountFuse(t, behind, seen)
	var want []string
	add := func(name string, lines ...string) {
		t.Helper()
		must(t, appendTo(filepath.Join(behind, name), strings.Join(lines, "\n")+"\n"))
		want = append(want, lines...)
	}
	var log bytes.Buffer
	r := &runner{pollGap: gap}
	w, stop := startRun(t, Options{
		ScanInterval: gap, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Blocks: []Block{{Name: "b", Paths: []string{seen + "/**/*.log"}, LineBytesMax: 100}},
	}, r, true)
	await := func() {
		t.Helper()
		if got := r.until(len(want)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
	}
	add("app.log", "1", "2")
	add("beside/w.log", "beside 1")
	await()
	add("app.log", "3") // to a file that is known
	await()
	for i := range 3 { // rotations, with a late line each
		old := fmt.Sprintf("app.log.%d", i)
		must(t, os.Rename(filepath.Join(behind, "app.log"), filepath.Join(behind, old)))
		add("app.log", fmt.Sprintf("new %d", i))
		add(old, fmt.Sprintf("late %d", i))
		await()
	}
	must(t, os.Truncate(filepath.Join(behind, "app.log"), 0))
	add("app.log", "after the cut")
	await()
	must(t, os.RemoveAll(filepath.Join(behind, "beside")))
	must(t, os.Mkdir(filepath.Join(behind, "beside"), 0o700))
	add("beside/w.log", "beside 2")
	await()
	time.Sleep(10 * gap) // for what must not come
	await()
	if s := w.Stats(); !s.Inotify || s.Watches == 0 {
		t.Errorf("the directories are not watched: %+v", s)
	}
	stop()
	var kind unix.Statfs_t
	must(t, unix.Statfs(seen, &kind))
	if kind.Type != unix.FUSE_SUPER_MAGIC {
		t.Errorf("not on FUSE but on %#x", kind.Type)
	}
	t.Log(log.String())
}
