package tail

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestC013InotifyLimits runs in a user namespace whose limits are too low: everything is read by polling, one
// warning names the limit.
func TestC013InotifyLimits(t *testing.T) {
	if limit := os.Getenv("TAIL_TEST_LIMIT"); limit != "" {
		underLimit(t, limit)
		return
	}
	for limit, want := range map[string]string{
		"max_inotify_watches=2":   "fs.inotify.max_user_watches",
		"max_inotify_instances=0": "fs.inotify.max_user_instances",
	} {
		t.Run(limit, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestC013InotifyLimits$", "-test.v")
			cmd.Env = append(os.Environ(), "TAIL_TEST_LIMIT="+limit)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if errors := string(out); err != nil && (errors == "" || strings.Contains(errors, "cannot set")) {
				t.Skip("no user namespaces here:", err, errors)
			}
			if err != nil || strings.Count(string(out), want) != 1 || strings.Contains(string(out), "no space") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func underLimit(t *testing.T, limit string) {
	name, value, _ := strings.Cut(limit, "=")
	if err := os.WriteFile("/proc/sys/user/"+name, []byte(value), 0); err != nil {
		t.Fatal("cannot set", limit, err)
	}
	dir := t.TempDir()
	var log bytes.Buffer
	r := &runner{pollGap: 5 * time.Millisecond}
	w, stop := startRun(t, Options{
		ScanInterval: 5 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Blocks: []Block{{Name: "b", Paths: []string{dir + "/*/*.log"}, LineBytesMax: 100}},
	}, r, true)
	var want []string
	for i := range 10 {
		path := filepath.Join(dir, fmt.Sprint(i), "a.log")
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, appendTo(path, fmt.Sprintf("%d-a\n", i)))
		must(t, os.Rename(path, path+".1"))
		must(t, os.Rename(path+".1", path))
		must(t, appendTo(path, fmt.Sprintf("%d-b\n", i)))
		want = append(want, fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i))
	}
	if got := r.until(len(want)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if s := w.Stats(); s.Inotify {
		t.Errorf("inotify said to be complete: %+v", s)
	}
	stop()
	t.Log(log.String())
}
