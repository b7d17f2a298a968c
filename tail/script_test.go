package tail

// Script tests: testdata/*.txt, each run once with polling only and once with inotify on, step by step on a
// clock that the script moves. The part before "-- out --" is a script, the part behind it what it prints; -update
// rewrites it. Steps, one per line; words are split at spaces, "..." is a Go string:
//
//	block KEY=VALUE ...     before the first poll: paths= exclude= (comma lists, below the test's directory),
//	                        max= (line bytes), oversize=, encoding=, idle=, older=, end (start at end), files= (descriptors)
//	write FILE TEXT         create or replace in place (truncates)      append FILE TEXT
//	lines FILE FROM TO [PAD] append "FILE-name N PAD" lines              zeros FILE N   append a hole of N bytes
//	over FILE OFFSET TEXT   write in the middle                         truncate FILE N
//	age FILE DURATION       sets its modification time that long back
//	lchown UID FILE         gives a file or symlink away
//	mmap FILE OFFSET TEXT   write in the middle through a mapping       socket FILE
//	gzip FILE, zstd FILE    compress to FILE.gz, FILE.zst, which keeps the time of the last write; rm FILE
//	pipe FILE               zstd that does not know how much will come, and does not say how much came
//	pack FROM TO            compress FROM to TO, which has no time of what is in it, as many programs do; rm FROM
//	damage FILE N           cut a file to N bytes, keeping its times
//	touch FROM FILE         gives FILE the time of the last write of FROM
//	mv, rm, cp, ln, symlink, mkdir, mkfifo, chmod MODE FILE             reuse OLD NEW TEXT: rm OLD; write NEW on the same inode
//	poll                    scan and read everything; prints lines (path offset-end "bytes"), truncations, warnings
//	look                    scan, hand out and read nothing
//	listed STEP             what is done in the middle of the next scan, once directories are listed and something was found in them
//	found STEP              the same once a new file is found
//	unsorted                from now on polls print each log in the order of reading
//	hold on|off             whether the reader keeps files at their end
//	gone                    prints the sources that were told to be forgotten since the last time
//	tick                    waits until the clock of the file system has moved
//	sleep DURATION          moves the clock
//	restart [KEY=VALUE]     a new watcher with the cursors that were read so far
//	reboot                  a restart, with the machine started after all that was done before
//	stats                   prints counters that are not 0
//
// What one poll prints is sorted, unless told otherwise: the order between files is not promised.

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var update = flag.Bool("update", false, "rewrite the expected output of scripts")

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		for _, mode := range []string{"poll", "inotify"} {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+mode, func(t *testing.T) {
				t.Parallel()
				runScript(t, file, mode == "inotify")
			})
		}
	}
}

func runScript(t *testing.T, file string, inotify bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	script, want, ok := strings.Cut(string(text), "-- out --\n")
	if !ok {
		t.Fatal("no -- out -- in", file)
	}
	if strings.Contains("\n"+script, "\n#needs same inode") && !reusesInodes(t) {
		t.Skip("this file system does not use inode numbers again at once")
	}
	if strings.Contains("\n"+script, "\n#needs root") && (os.Geteuid() != 0 || runtime.GOOS != "linux") {
		t.Skip("must be root to give files away")
	}
	if strings.Contains("\n"+script, "\n#needs permissions") {
		obeyPermissions(t)
	}
	got, err := play(t, script, inotify)
	for tries := 0; errors.Is(err, errInodeTaken) && tries < inodeTriesMax; tries++ {
		got, err = play(t, script, inotify)
	}
	if err != nil {
		t.Fatalf("%s:%v", file, err)
	}
	if got != want {
		if *update {
			if err := os.WriteFile(file, []byte(script+"-- out --\n"+got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// play returns what comes out of a script.
func play(t *testing.T, script string, inotify bool) (out string, err error) {
	m := newMachine(t, inotify)
	for n, line := range strings.Split(script, "\n") {
		words := splitWords(t, line)
		if len(words) == 0 {
			continue
		}
		if err := m.step(words); err != nil {
			return "", fmt.Errorf("%d: %w", n+1, err)
		}
	}
	m.stop()
	return m.out.String(), nil
}

func splitWords(t *testing.T, line string) []string {
	var words []string
	for line = strings.TrimSpace(line); line != "" && line[0] != '#'; line = strings.TrimLeft(line, " ") {
		if line[0] == '"' {
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			w, _ := strconv.Unquote(q)
			words, line = append(words, w), line[len(q):]
			continue
		}
		w, rest, _ := strings.Cut(line, " ")
		words, line = append(words, w), rest
	}
	return words
}

// errInodeTaken: another program's file got the inode that one of the script was to get. The script is played again.
var errInodeTaken = errors.New("the inode was not used again")

const inodeTriesMax = 100

// reusesInodes tells whether the next file gets the number of the one just removed (ext4 does).
func reusesInodes(t *testing.T) bool {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for range inodeTriesMax {
		if err := os.WriteFile(a, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		before := inode(t, a)
		if err := errors.Join(os.Remove(a), os.WriteFile(b, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		after := inode(t, b)
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
		if after == before {
			return true
		}
	}
	return false
}

func inode(t *testing.T, path string) uint64 {
	st, err := statPath(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.ino
}

func (m *machine) block(words []string) error {
	b := Block{Name: fmt.Sprint("b", len(m.opts.Blocks)), LineBytesMax: 1000}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		var err error
		switch k {
		case "name":
			b.Name = v
		case "paths":
			b.Paths = append(b.Paths, below(m.dir, v)...)
		case "exclude":
			b.Exclude = below(m.dir, v)
		case "max":
			b.LineBytesMax, err = strconv.Atoi(v)
		case "oversize":
			b.Oversize = map[string]Oversize{"split": Split, "cut": Cut, "skip": Skip}[v]
		case "encoding":
			b.Encoding = v
		case "idle":
			b.IdleFlush, err = time.ParseDuration(v)
		case "older":
			b.IgnoreOlder, err = time.ParseDuration(v)
		case "end":
			b.StartAtEnd = true
		case "files":
			m.opts.OpenFilesMax, err = strconv.Atoi(v)
		case "roots":
			m.opts.SymlinkRoots = below(m.dir, v)
		case "not":
			m.opts.ExcludePaths = below(m.dir, v)
		default:
			err = fmt.Errorf("unknown key %q", k)
		}
		if err != nil {
			return err
		}
	}
	if len(b.Paths) == 0 {
		b.Paths = []string{m.dir + "/*.log"}
	}
	m.opts.Blocks = append(m.opts.Blocks, b)
	return nil
}

func below(dir, list string) (paths []string) {
	for _, p := range strings.Split(list, ",") {
		paths = append(paths, dir+"/"+p)
	}
	return paths
}

func (m *machine) step(words []string) error {
	verb, args := words[0], words[1:]
	path := func(i int) string { return filepath.Join(m.dir, args[i]) }
	switch verb {
	case "block":
		return m.block(args)
	case "poll":
		m.poll()
	case "look":
		m.look()
	case "listed":
		m.listed = append(m.listed, args)
	case "found":
		m.found = append(m.found, args)
	case "unsorted":
		m.unsorted = true
	case "hold":
		m.hold = args[0] == "on"
	case "tick":
		m.tick()
	case "sleep":
		d, err := time.ParseDuration(args[0])
		m.ahead += d
		return err
	case "restart":
		m.stop()
		if len(args) > 0 {
			m.opts.Blocks = nil
			return m.block(args)
		}
	case "reboot":
		m.stop()
		m.tick() // files' clock may be a tick behind
		m.bootedAt = time.Now()
		m.waitForFiles(m.bootedAt.UnixNano())
	case "stats":
		m.stats()
	case "gone":
		m.mu.Lock()
		defer m.mu.Unlock()
		slices.Sort(m.gone)
		fmt.Fprintf(&m.out, "%s\n", strings.Join(append(m.gone, "--"), "\n"))
		m.gone = nil
	case "write":
		return os.WriteFile(path(0), []byte(args[1]), 0o644)
	case "append":
		return appendTo(path(0), args[1])
	case "lines":
		return m.lines(path(0), args)
	case "zeros":
		return m.zeros(path(0), args[1])
	case "over":
		return over(path(0), args)
	case "reuse":
		return m.reuse(path(0), path(1), args[2])
	default:
		return m.command(verb, args, path)
	}
	return nil
}

// command is what a shell could do too.
func (m *machine) command(verb string, args []string, path func(int) string) error {
	switch verb {
	case "mv":
		return os.Rename(path(0), path(1))
	case "rm":
		return os.RemoveAll(path(0))
	case "cp":
		data, err := os.ReadFile(path(0))
		if err != nil {
			return err
		}
		return os.WriteFile(path(1), data, 0o644)
	case "gzip", "zstd", "pipe":
		return pack(verb, path(0))
	case "pack":
		if err := pack("gzip", path(0)); err != nil {
			return err
		}
		data, err := os.ReadFile(path(0) + ".gz")
		if err != nil {
			return err
		}
		if err := errors.Join(os.Remove(path(0)+".gz"), os.WriteFile(path(1)+".tmp", data[:len(data)/2], 0o644)); err != nil {
			return err
		}
		m.tick()
		return errors.Join(os.WriteFile(path(1)+".tmp", data, 0o644), os.Rename(path(1)+".tmp", path(1)))
	case "touch":
		return keepingTimes(path(0), path(1), func() error { return nil })
	case "damage":
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		return keepingTimes(path(0), path(0), func() error { return os.Truncate(path(0), n) })
	case "ln":
		return os.Link(path(0), path(1))
	case "symlink":
		os.Remove(path(1) + ".tmp")
		if err := os.Symlink(args[0], path(1)+".tmp"); err != nil {
			return err
		}
		return os.Rename(path(1)+".tmp", path(1))
	case "mkdir":
		return os.MkdirAll(path(0), 0o755)
	case "lchown":
		uid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return os.Lchown(path(1), uid, -1)
	case "socket":
		return socket(m.t, path(0))
	case "mmap":
		return mmapWrite(path(0), args)
	case "mkfifo":
		return mkfifo(path(0))
	case "chmod":
		mode, err := strconv.ParseUint(args[0], 8, 32)
		if err != nil {
			return err
		}
		return os.Chmod(path(1), os.FileMode(mode))
	case "age":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		at := time.Now().Add(-d)
		return os.Chtimes(path(0), at, at)
	case "truncate":
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		return os.Truncate(path(0), n)
	}
	return fmt.Errorf("unknown step %q", verb)
}

// pack compresses a file as gzip and zstd do.
func pack(with, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	to := path + ".gz"
	if with == "gzip" {
		z := gzip.NewWriter(&b)
		_, err = z.Write(data)
		err = errors.Join(err, z.Close())
	} else {
		to = path + ".zst"
		var z *zstd.Encoder
		if z, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10)); err == nil {
			_, err = z.Write(data)
			if with == "pipe" {
				err = errors.Join(err, z.Flush())
			}
			err = errors.Join(err, z.Close())
		}
	}
	if err != nil {
		return err
	}
	if err := keepingTimes(path, to, func() error { return os.WriteFile(to, b.Bytes(), 0o644) }); err != nil {
		return err
	}
	return os.Remove(path)
}

// keepingTimes gives the file at to the time of the last write that the one at from had before do.
func keepingTimes(from, to string, do func() error) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return os.Chtimes(to, st.ModTime(), st.ModTime())
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

func (m *machine) lines(path string, args []string) error {
	from, err1 := strconv.Atoi(args[1])
	to, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("lines wants numbers")
	}
	var b bytes.Buffer
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "%08d", i)
		if len(args) > 3 {
			b.WriteString(" " + args[3])
		}
		b.WriteByte('\n')
	}
	return appendTo(path, b.String())
}

func (m *machine) zeros(path, count string) error {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, st.Size()+n)
}

func over(path string, args []string) error {
	off, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte(args[2]), off)
	return err
}

func (m *machine) reuse(before, after, text string) error {
	ino := inode(m.t, before)
	if err := os.Remove(before); err != nil {
		return err
	}
	if err := os.WriteFile(after, []byte(text), 0o644); err != nil {
		return err
	}
	if got := inode(m.t, after); got != ino {
		return fmt.Errorf("%w: %d, now %d", errInodeTaken, ino, got)
	}
	return nil
}

func (m *machine) stats() {
	v := reflect.ValueOf(m.w.Stats())
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "UnreadBytes", "ScanDuration", "Scans", "BytesRead", "Watches", "Inotify", "OpenMax", "NotifyOverflows":
		default:
			if !v.Field(i).IsZero() {
				fmt.Fprintf(&m.out, "%s %v\n", name, v.Field(i))
			}
		}
	}
}
