package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user without rights on what the tests make.
const nobody = 65534

// asNobody runs f with the file rights of nobody if we are root, whom modes do not stop. Only the file user id of one thread
// changes, and that thread ends with its goroutine.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		if os.Geteuid() == 0 {
			runtime.LockOSThread()
			if err := syscall.Setfsuid(nobody); err != nil {
				done <- err
				return
			}
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCheckNamesWhatIsNotPermitted(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "shipper-check-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(dir, "closed"), 0o755)
		_ = os.RemoveAll(dir)
	})
	write(t, 0o000, dir+"/open/secret.log", "x")
	write(t, 0o644, dir+"/open/app.log", "hello\n")
	write(t, 0o644, dir+"/closed/app.log", "hello\n")
	write(t, 0o644, dir+"/c.yaml", strings.NewReplacer(
		"/var/lib/shipper", dir+"/closed/spool",
		`["/var/log/app/**/*.log"]`, `["`+dir+`/open/*.log", "`+dir+`/closed/*.log", "`+dir+`/**/*.txt"]`,
	).Replace(minimal))
	for _, mode := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o755}, {"open", 0o755}, {"closed", 0o000}} {
		if err := os.Chmod(filepath.Join(dir, mode.name), mode.mode); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr strings.Builder
	code := 0
	asNobody(t, func() { code = run(t.Context(), []string{"check", "--config", dir + "/c.yaml"}, &stdout, &stderr) })
	for _, want := range []string{
		"warning: open DIR/open/secret.log: permission denied\n",
		"warning: DIR/closed/*.log: DIR/closed: permission denied; files below it are not found\n",
		"warning: DIR/**/*.txt: DIR/closed: permission denied; files below it are not found\n",
		"  1 files, 6 bytes\n",
	} {
		if want = strings.ReplaceAll(want, "DIR", dir); !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
	want := "shipper: " + dir + "/c.yaml:4: spool.dir: "
	if code != exitFailed || !strings.HasPrefix(stderr.String(), want) || !strings.HasSuffix(stderr.String(), "permission denied\n") {
		t.Errorf("exit code %d, error %q, want %q", code, stderr.String(), want)
	}
}

// A file in a directory that may be searched and not listed can be opened, and is not found.
func TestExplainNamesTheDirectoryThatCannotBeListed(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "shipper-explain-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write(t, 0o644, dir+"/logs/app.log", "hello\n")
	write(t, 0o644, dir+"/c.yaml", strings.NewReplacer("/var/lib/shipper", dir+"/spool", "/var/log/app", dir).Replace(minimal))
	for name, mode := range map[string]os.FileMode{"": 0o755, "logs": 0o311} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr strings.Builder
	asNobody(t, func() {
		run(t.Context(), []string{"explain", dir + "/logs/app.log", "--config", dir + "/c.yaml"}, &stdout, &stderr)
	})
	if want := "not found by a scan yet: the directory " + dir + "/logs cannot be listed, permission denied\n"; !strings.Contains(stdout.String(), want) {
		t.Errorf("no %q in\n%s%s", want, stdout.String(), stderr.String())
	}
}

// What root does not read, since somebody without the right to it made the link, is no file that will be read.
func TestCheckNamesSymlinksThatAreNotFollowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("must be root to give links away")
	}
	dir := t.TempDir()
	write(t, 0o600, dir+"/secret.txt", "secret\n")
	write(t, 0o644, dir+"/c.yaml", strings.NewReplacer("/var/lib/shipper", dir+"/spool", "/var/log/app", dir).Replace(minimal))
	if err := os.Symlink(dir+"/secret.txt", dir+"/x.log"); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(dir+"/x.log", nobody, nobody); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	run(t.Context(), []string{"check", "--config", dir + "/c.yaml"}, &stdout, &stderr)
	for _, want := range []string{"x.log was made by user 65534 and leads to ", "  0 files, 0 bytes\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s%s", want, stdout.String(), stderr.String())
		}
	}
	write(t, 0o644, dir+"/c.yaml", strings.NewReplacer("/var/lib/shipper", dir+"/spool", "/var/log/app", dir).Replace(minimal)+"symlink_roots: ["+dir+"]\n")
	stdout.Reset()
	run(t.Context(), []string{"check", "--config", dir + "/c.yaml"}, &stdout, &stderr)
	if want := "  1 files, 7 bytes\n"; !strings.Contains(stdout.String(), want) {
		t.Errorf("no %q in\n%s%s", want, stdout.String(), stderr.String())
	}
}

// The envelope makes records of the longest lines longer than a group of a small spool: `run` refuses it, so check does.
func TestCheckRefusesLinesTooLongForTheSpool(t *testing.T) {
	dir := t.TempDir()
	config := strings.NewReplacer("/var/lib/shipper", dir+"/spool", "/var/log/app/**/*.log", dir+"/*.log", "dir:", "max_bytes: 256MiB\n  dir:").Replace(minimal)
	for _, c := range []struct {
		more string
		code int
		say  string
	}{
		{"", exitOK, ""},
		{"    format: json\n", exitFailed, "spool.max_bytes: its segments take groups of 1048576 bytes, too few for the records of source app: raise spool.max_bytes, or lower max_line_bytes to "},
	} {
		write(t, 0o644, dir+"/c.yaml", config+c.more)
		var stdout, stderr strings.Builder
		if code := run(t.Context(), []string{"check", "--config", dir + "/c.yaml"}, &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.say) {
			t.Errorf("with %q: exit code %d, error %q\n%s", c.more, code, stderr.String(), stdout.String())
		}
	}
}
