package tail

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// onlyOpener keeps the files it is handed.
type onlyOpener struct{ files []*File }

func (o *onlyOpener) Began(context.Context, []*File) {}
func (o *onlyOpener) Gone(uint64)                    {}

func (o *onlyOpener) Lost(uint64, int64, int64) {}

func (o *onlyOpener) Open(f *File) {
	if o.files = append(o.files, f); f.ID() == 0 {
		f.SetID(uint64(len(o.files)))
	}
}

// open returns a file of n lines of the given length, handed out.
func open(tb testing.TB, lines, length int) (f *File, path string) {
	path = filepath.Join(tb.TempDir(), "a.log")
	var b bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&b, "%0*d\n", length, i)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	w, err := NewWatcher(Options{NoInotify: true, Blocks: []Block{{Name: "b", Paths: []string{path}, LineBytesMax: 1 << 20}}})
	if err != nil {
		tb.Fatal(err)
	}
	o := &onlyOpener{}
	w.handler = o
	w.scan()
	w.admit()
	tb.Cleanup(w.end)
	return o.files[0], path
}

// again puts f back to its start.
func (f *File) again() { f.rd.restart(); f.pending = 0 }

func TestReadAllocatesNothing(t *testing.T) {
	f, _ := open(t, 2000, 100)
	buf := make([]byte, 64<<10)
	now := time.Now()
	lines := 0
	allocs := testing.AllocsPerRun(10, func() {
		f.again()
		for {
			n, _, err := f.Fill(buf, now)
			if err != nil || n == 0 {
				break
			}
			for _, ok := f.Next(); ok; _, ok = f.Next() {
				lines++
			}
			f.Cursor()
		}
		if f.EntryChanged() {
			f.Fingerprint()
		}
	})
	if allocs != 0 || lines != 11*2000 {
		t.Errorf("%v allocations, %d lines", allocs, lines)
	}
}

// BenchmarkSplit is Next over a filled buffer; BenchmarkIndexByte is the least that finding the same newlines
// can cost; BenchmarkRead has the system calls too.
func BenchmarkSplit(b *testing.B) {
	for _, length := range []int{20, 100, 1000} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			f, _ := open(b, 256<<10/length, length)
			buf := make([]byte, 300<<10)
			n, _, err := f.Fill(buf, time.Now())
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				f.rd.pos = 0
				for f.rd.pos < n {
					if _, ok := f.Next(); !ok {
						b.Fatal("no line")
					}
				}
			}
		})
	}
}

func BenchmarkIndexByte(b *testing.B) {
	for _, length := range []int{20, 100, 1000} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			_, path := open(b, 256<<10/length, length)
			data, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				for rest := data; len(rest) > 0; {
					rest = rest[bytes.IndexByte(rest, '\n')+1:]
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	f, _ := open(b, 100_000, 100)
	b.SetBytes(100_000 * 101)
	b.ReportAllocs()
	for b.Loop() {
		readAll(b, f)
	}
}

// BenchmarkCount counts the lines of one file in the page cache in three ways: as a file that is read here, by IndexByte
// over the same blocks, and by wc -l, whose start is part of it. Processor time is what can be compared on a busy machine.
func BenchmarkCount(b *testing.B) {
	const lines, length = 640_000, 100
	f, path := open(b, lines, length)
	ways := []struct {
		name  string
		count func() (lines int, cpu time.Duration)
	}{
		{"shipper", cpuOf(func() int { return readAll(b, f) })},
		{"IndexByte", cpuOf(func() int { return countNewlines(b, path) })},
		{"wc", func() (int, time.Duration) {
			wc := exec.Command("wc", "-l", path)
			out, err := wc.Output()
			if err != nil {
				b.Skip(err)
			}
			n, _ := strconv.Atoi(strings.Fields(string(out))[0])
			return n, wc.ProcessState.UserTime() + wc.ProcessState.SystemTime()
		}},
	}
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.SetBytes(lines * (length + 1))
			var sum time.Duration
			for b.Loop() {
				n, cpu := way.count()
				if sum += cpu; n != lines {
					b.Fatal(n, "lines")
				}
			}
			b.ReportMetric(float64(lines*(length+1))*float64(b.N)/sum.Seconds()/1e9, "GB/cpu-s")
		})
	}
}

// cpuOf adds to what count says the processor time of the thread that it took.
func cpuOf(count func() int) func() (lines int, cpu time.Duration) {
	return func() (int, time.Duration) {
		start := cpuTime()
		n := count()
		return n, cpuTime() - start
	}
}

// readAll reads f from its start and returns how many lines it has.
func readAll(b *testing.B, f *File) (lines int) {
	buf, now := make([]byte, 256<<10), time.Now()
	f.again()
	for {
		n, _, err := f.Fill(buf, now)
		if err != nil {
			b.Fatal(err)
		}
		if n == 0 {
			return lines
		}
		for _, ok := f.Next(); ok; _, ok = f.Next() {
			lines++
		}
	}
}

func countNewlines(b *testing.B, path string) (lines int) {
	fd, err := openRead(path)
	if err != nil {
		b.Fatal(err)
	}
	defer closeFD(fd)
	buf := make([]byte, 256<<10)
	for off := int64(0); ; {
		n, err := pread(fd, buf, off)
		if err != nil {
			b.Fatal(err)
		}
		if n == 0 {
			return lines
		}
		off += int64(n)
		for data := buf[:n]; ; lines++ {
			i := bytes.IndexByte(data, '\n')
			if i < 0 {
				break
			}
			data = data[i+1:]
		}
	}
}

// BenchmarkAdmit is a start: all files wait, and descriptors are there for 64, of which readers give 8 back at a time. The time a file must
// not depend on how many wait.
func BenchmarkAdmit(b *testing.B) {
	for _, files := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			var handedOut time.Duration
			dir := manyFiles(b, files)
			for b.Loop() {
				handedOut += admitAll(b, dir, files)
			}
			b.ReportMetric(float64(handedOut.Nanoseconds())/float64(b.N*files), "ns/file")
		})
	}
}

// admitAll has all files read, and returns how long it took to hand them out.
func admitAll(b *testing.B, dir string, files int) (took time.Duration) {
	w, err := NewWatcher(Options{NoInotify: true, OpenFilesMax: 64, Blocks: []Block{{Name: "b", Paths: []string{dir + "/**/*.log"}, LineBytesMax: 1 << 20}}})
	if err != nil {
		b.Fatal(err)
	}
	defer w.end()
	o := &onlyOpener{}
	w.handler = o
	w.scan()
	buf := make([]byte, FillBytesMin)
	for read := 0; read < files; {
		began := time.Now()
		w.takeBack()
		w.admit()
		took += time.Since(began)
		for _, f := range o.files[read:min(len(o.files), read+8)] {
			if _, _, err := f.Fill(buf, time.Now()); err != nil {
				b.Fatal(err)
			}
			for _, ok := f.Next(); ok; _, ok = f.Next() {
			}
			f.Release()
			read++
		}
	}
	return took
}

// manyFiles makes files of one line, a hundred in a directory.
func manyFiles(b *testing.B, files int) (dir string) {
	dir = b.TempDir()
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprint(i%(files/100)))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("%d.log", i)), []byte("x\n"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// BenchmarkIdleScan is what files at rest cost a second, full scans included, in processor time, and how long it takes
// until each of them was looked at if inotify tells nothing.
func BenchmarkIdleScan(b *testing.B) {
	for _, files := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) { idleScan(b, files) })
	}
}

func idleScan(b *testing.B, files int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := manyFiles(b, files)
	w, err := NewWatcher(Options{NoInotify: true, OpenFilesMax: 64, Blocks: []Block{{Name: "b", Paths: []string{dir + "/**/*.log"}, LineBytesMax: 1 << 20}}})
	if err != nil {
		b.Fatal(err)
	}
	o := &onlyOpener{}
	w.handler = o
	buf := make([]byte, FillBytesMin)
	for read := 0; read < files; {
		w.takeBack()
		w.scan()
		w.admit()
		for _, f := range o.files[read:] {
			if _, _, err := f.Fill(buf, time.Now()); err != nil {
				b.Fatal(err)
			}
			for _, ok := f.Next(); ok; _, ok = f.Next() {
			}
			f.Release()
		}
		read = len(o.files)
	}
	time.Sleep(2 * time.Second) // until the directories are old enough to be trusted
	ahead := time.Hour          // none is busy any more
	w.now = func() time.Time { return time.Now().Add(ahead) }
	w.takeBack()
	w.scan()
	b.ReportAllocs()
	var cpu time.Duration
	for b.Loop() {
		ahead += w.scanGap
		w.scan()
		cpu += w.scanTook
	}
	b.ReportMetric(float64(cpu)/float64(b.N)/float64(w.scanGap)*100, "%core")
	b.ReportMetric(float64(len(w.ring))/float64(w.looks)*w.scanGap.Seconds(), "s/round")
}
