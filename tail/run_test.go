package tail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// runner reads what Run hands out on a goroutine of its own, as a reader of the pipeline does: it sleeps until
// a hint comes or pollGap has passed.
type runner struct {
	t       *testing.T
	opened  chan *File
	notify  chan struct{}
	pollGap time.Duration

	mu    sync.Mutex
	lines []string
}

func (r *runner) Open(f *File)              { r.opened <- f }
func (r *runner) Lost(uint64, int64, int64) {}

func (r *runner) Began(context.Context, []*File) {}

func (r *runner) Gone(uint64) {}

func (r *runner) read(ctx context.Context, release bool) {
	buf := make([]byte, 64<<10)
	var held []*File
	id := uint64(0)
	for ctx.Err() == nil {
		select {
		case f := <-r.opened:
			if f.ID() == 0 {
				id++
				f.SetID(id)
			}
			f.Attach(r.notify)
			held = append(held, f)
		case <-r.notify:
		case <-time.After(r.pollGap):
		case <-ctx.Done():
		}
		held = slices.DeleteFunc(held, func(f *File) bool {
			f.TakeReady()
			for {
				n, st, err := f.Fill(buf, time.Now())
				if err != nil {
					r.t.Error(err)
				}
				for l, ok := f.Next(); ok; l, ok = f.Next() {
					r.mu.Lock()
					r.lines = append(r.lines, string(l.Bytes))
					r.mu.Unlock()
				}
				if n == 0 && st.EOF || err != nil {
					break
				}
			}
			if release || f.Wanted() {
				f.Release()
				return true
			}
			return false
		})
	}
	for _, f := range held {
		f.Release()
	}
}

// until waits for n lines and returns them sorted.
func (r *runner) until(n int) []string {
	deadline := time.Now().Add(20 * time.Second)
	for {
		r.mu.Lock()
		lines := slices.Clone(r.lines)
		r.mu.Unlock()
		if len(lines) >= n || time.Now().After(deadline) {
			slices.Sort(lines)
			return lines
		}
		time.Sleep(time.Millisecond)
	}
}

func startRun(t *testing.T, o Options, r *runner, release bool) (w *Watcher, stop func()) {
	w, err := NewWatcher(o)
	if err != nil {
		t.Fatal(err)
	}
	r.t, r.opened, r.notify = t, make(chan *File, 100), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.Run(ctx, r); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() { r.read(ctx, release) })
	return w, func() { cancel(); all.Wait() }
}

// TestHints lets inotify alone find everything: the next scan by itself would come in an hour.
func TestHints(t *testing.T) {
	for _, release := range []bool{true, false} {
		t.Run(fmt.Sprintf("release=%v", release), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			dir := t.TempDir()
			path := filepath.Join(dir, "a.log")
			must(t, os.WriteFile(path, []byte("1\n"), 0o600))
			r := &runner{pollGap: time.Hour}
			w, stop := startRun(t, Options{ScanInterval: time.Hour, Blocks: []Block{{Name: "b", Paths: []string{dir + "/**/*.log"}, LineBytesMax: 100}}}, r, release)
			defer stop()
			r.until(1)
			must(t, appendTo(path, "2\n"))
			r.until(2)
			must(t, os.Rename(path, path+".1"))
			must(t, os.WriteFile(path, []byte("3\n"), 0o600))
			r.until(3)
			must(t, os.Truncate(path, 0))
			must(t, appendTo(path, "4\n"))
			r.until(4)
			must(t, os.Mkdir(filepath.Join(dir, "new"), 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "new", "b.log"), []byte("5\n"), 0o600))
			if got := strings.Join(r.until(5), " "); got != "1 2 3 4 5" {
				t.Errorf("got %q", got)
			}
			if s := w.Stats(); !s.Inotify || s.Watches == 0 {
				t.Errorf("no inotify: %+v", s)
			}
		})
	}
}

// TestManyWriters has more busy files than descriptors: all are served, with inotify and without.
func TestManyWriters(t *testing.T) {
	for _, polling := range []bool{true, false} {
		t.Run(fmt.Sprintf("polling=%v", polling), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			dir := t.TempDir()
			r := &runner{pollGap: 5 * time.Millisecond}
			w, stop := startRun(t, Options{
				ScanInterval: 5 * time.Millisecond, NoInotify: polling, OpenFilesMax: 4,
				Blocks: []Block{{Name: "b", Paths: []string{dir + "/*.log"}, LineBytesMax: 100}},
			}, r, false)
			const files, rounds = 12, 20
			var want []string
			for i := range rounds {
				for j := range files {
					line := fmt.Sprintf("%02d-%03d", j, i)
					want = append(want, line)
					must(t, appendTo(filepath.Join(dir, fmt.Sprintf("%d.log", j)), line+"\n"))
				}
			}
			slices.Sort(want)
			if got := r.until(len(want)); !slices.Equal(got, want) {
				t.Errorf("%d lines, want %d: %+v", len(got), len(want), w.Stats())
			}
			stop()
			if n := w.Stats().Reading; n < 0 {
				t.Errorf("%d files being read", n)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	block := func(change func(*Block)) Options {
		b := Block{Name: "app", Paths: []string{"/var/log/*.log"}, LineBytesMax: 1000}
		change(&b)
		return Options{Blocks: []Block{b}}
	}
	for want, o := range map[string]Options{
		`source block "app": pattern "log/*.log" is not absolute`:                      block(func(b *Block) { b.Paths = []string{"log/*.log"} }),
		`source block "app": pattern "/var/log/[" is malformed`:                        block(func(b *Block) { b.Paths = []string{"/var/log/["} }),
		`source block "app": pattern "/x{" is malformed`:                               block(func(b *Block) { b.Exclude = []string{"/x{"} }),
		`source block "app": no paths`:                                                 block(func(b *Block) { b.Paths = nil }),
		`source block "app": longest line of 1 bytes is not between 16 and 1073741824`: block(func(b *Block) { b.LineBytesMax = 1 }),
		`source block "app": negative idle flush -1s`:                                  block(func(b *Block) { b.IdleFlush = -time.Second }),
		`source block "app": unknown oversize rule 3`:                                  block(func(b *Block) { b.Oversize = 3 }),
		`two source blocks are named "a"`: {Blocks: []Block{
			{Name: "a", Paths: []string{"/x"}, LineBytesMax: 100}, {Name: "a", Paths: []string{"/y"}, LineBytesMax: 100},
		}},
		`limit of 1 open files is below 4`:                          {OpenFilesMax: 1},
		`scan interval 1ns is below 1ms`:                            {ScanInterval: 1},
		`known source /x has the id 0, which is zero or used twice`: {Known: []Known{{Path: "/x"}}},
	} {
		if _, err := NewWatcher(o); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestReadError is an error that a reader sees and retries: the file became unreadable under it.
func TestReadError(t *testing.T) {
	f, path := open(t, 1, 10)
	fd := f.fd
	f.fd = -1
	_, _, err := f.Fill(make([]byte, FillBytesMin), time.Now())
	f.fd = fd
	if err == nil || !strings.HasPrefix(err.Error(), "read "+path+" at offset 0: ") || errors.Unwrap(err) == nil {
		t.Fatalf("got %v", err)
	}
	if n, _, err := f.Fill(make([]byte, FillBytesMin), time.Now()); n != 11 || err != nil {
		t.Errorf("after the error: %d bytes, %v", n, err)
	}
}

// TestBugs are uses that the contract forbids.
func TestBugs(t *testing.T) {
	f, _ := open(t, 10, 10)
	buf := make([]byte, FillBytesMin)
	for name, misuse := range map[string]func(){
		"a small buffer":   func() { f.Fill(buf[:10], time.Now()) },
		"another id":       func() { f.SetID(99) },
		"fill before end":  func() { f.Fill(buf, time.Now()); f.Next(); f.Fill(buf, time.Now()) },
		"forget while out": func() { f.w.forget(f) },
	} {
		func() {
			defer func() {
				if s := fmt.Sprint(recover()); !strings.HasPrefix(s, "BUG: tail: ") {
					t.Errorf("%s: %v", name, s)
				}
			}()
			misuse()
		}()
	}
}

// TestGiantLine reads a line of many buffers under each rule in bounded memory.
func TestGiantLine(t *testing.T) {
	for _, rule := range []Oversize{Split, Cut, Skip} {
		t.Run(rule.String(), func(t *testing.T) {
			f, path := open(t, 1, 10)
			f.rule = rulerOf(rule)
			must(t, appendTo(path, strings.Repeat("y", 10_000_000)+"\nend\n"))
			buf := make([]byte, FillBytesMin)
			var total, parts int
			last := ""
			for {
				n, st, err := f.Fill(buf, time.Now())
				must(t, err)
				if st.NeedBytes > 0 {
					buf = make([]byte, st.NeedBytes)
					continue
				}
				if n == 0 {
					break
				}
				for l, ok := f.Next(); ok; l, ok = f.Next() {
					total, parts, last = total+len(l.Bytes), parts+1, string(l.Bytes)
				}
			}
			want := map[Oversize][2]int{Split: {10 + 10_000_000 + 3, 2 + 200}, Cut: {10 + 50_000 + 3, 3}, Skip: {13, 2}}[rule]
			if total != want[0] || parts != want[1] || last != "end" || len(buf) > 50_000+1000 {
				t.Errorf("%d bytes in %d records, last %.10q, buffer of %d", total, parts, last, len(buf))
			}
		})
	}
}

func rulerOf(o Oversize) rule { return rule{bytesMax: 50_000, oversize: o} }
