package kafkatest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Rotation is how a Writer replaces a file that is full.
type Rotation int

const (
	NoRotation       Rotation = iota
	RotateRename              // file -> file.1, a new file is made at once (logrotate create)
	RotateTruncate            // contents are copied to file.1, then the file is cut to 0 (copytruncate)
	RotateCompress            // as RotateRename, and file.1 is replaced by file.1.gz
	RotateDelete              // the file is unlinked and a new one made
	RotateRenameLate          // as RotateRename, but the new file appears with the next line only
)

// WriterOptions describe a Writer; Dir is required.
type WriterOptions struct {
	Dir         string
	Files       int      // default 1
	Name        string   // files are Name-00.log and so on; default "app"
	LineBytes   int      // least length of a line without its newline; default 100
	Rate        int      // lines per second over all files when running; default 1000
	Rotation    Rotation // what happens
	RotateLines int      // after so many lines of a file; 0 never
	KeepRotated int      // rotated generations kept per file; default 1000

	// TornWrites makes some lines reach the file in two writes, as a real program's do.
	TornWrites bool
	Seed       uint64 // of torn writes

	// BeforeLoss, if set, is called before bytes are destroyed that a reader may not
	// have read: truncation, deletion, the oldest generation falling off. path is where
	// those bytes lie. A test waits here until they have arrived, or shows that they
	// are lost. No line is written meanwhile; only Written and Lines may be called.
	BeforeLoss func(path string)
}

// Writer appends self-checking lines to files and knows what it wrote.
// Its methods are safe for concurrent use.
type Writer struct {
	tb testing.TB
	o  WriterOptions

	files []*logFile

	mu   sync.Mutex // held while files are written or rotated; guards all below
	turn int        // file that gets the next line
	rng  *rand.Rand
	buf  []byte

	runMu      sync.Mutex    // guards both below
	stop, done chan struct{} // non-nil while running
}

// logFile is one file with its rotated generations.
type logFile struct {
	tag     string
	path    string
	lines   atomic.Int64 // written in all; read without Writer.mu
	f       *os.File     // nil if it is to be made with the next line
	inFile  int          // written to the present generation
	rotated int          // generations kept
}

// NewWriter makes the directory and the first files, empty.
func NewWriter(tb testing.TB, o WriterOptions) *Writer {
	tb.Helper()
	if o.Files == 0 {
		o.Files = 1
	}
	if o.Name == "" {
		o.Name = "app"
	}
	if o.LineBytes == 0 {
		o.LineBytes = 100
	}
	if o.Rate == 0 {
		o.Rate = 1000
	}
	if o.KeepRotated == 0 {
		o.KeepRotated = 1000
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		tb.Fatalf("kafkatest: writer: %v", err)
	}
	w := &Writer{tb: tb, o: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	for i := range o.Files {
		tag := fmt.Sprintf("%s-%02d", o.Name, i)
		lf := &logFile{tag: tag, path: filepath.Join(o.Dir, tag+".log")}
		w.files = append(w.files, lf)
		if err := lf.create(); err != nil {
			tb.Fatalf("kafkatest: writer: %v", err)
		}
	}
	tb.Cleanup(w.close)
	return w
}

// Write appends n lines now, the files taking turns.
func (w *Writer) Write(n int) {
	w.tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		if err := w.writeLine(); err != nil {
			w.tb.Fatalf("kafkatest: writer: %v", err)
		}
	}
}

// Rotate rotates file i now.
func (w *Writer) Rotate(i int) {
	w.tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.rotate(w.files[i]); err != nil {
		w.tb.Fatalf("kafkatest: writer: %v", err)
	}
}

// Start writes at the rate until Stop, in small bursts.
func (w *Writer) Start() {
	w.runMu.Lock()
	defer w.runMu.Unlock()
	if w.stop != nil {
		panic("BUG: kafkatest: Writer.Start while it runs")
	}
	w.stop, w.done = make(chan struct{}), make(chan struct{})
	go w.run(w.stop, w.done)
}

// Stop ends what Start began; no-op if it does not run.
func (w *Writer) Stop() {
	w.runMu.Lock()
	stop, done := w.stop, w.done
	w.stop = nil
	w.runMu.Unlock()
	if stop != nil {
		close(stop)
		<-done
	}
}

func (w *Writer) run(stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	begin, written := time.Now(), 0
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		// A writer that cannot keep up writes as fast as it can and forgets what it is behind: catching up would
		// take longer each time, and Stop would never be seen.
		due := int(time.Since(begin).Seconds() * float64(w.o.Rate))
		written = max(written, due-w.o.Rate/5)
		for ; written < due; written++ {
			w.mu.Lock()
			err := w.writeLine()
			w.mu.Unlock()
			if err != nil {
				w.tb.Errorf("kafkatest: writer: %v", err)
				return
			}
		}
	}
}

// Written returns what was written so far: file tag -> lines in order.
func (w *Writer) Written() map[string][]string {
	all := make(map[string][]string, len(w.files))
	for _, lf := range w.files {
		lines := make([]string, lf.lines.Load())
		for n := range lines {
			lines[n] = string(AppendLine(nil, lf.tag, n, w.o.LineBytes))
		}
		all[lf.tag] = lines
	}
	return all
}

// Lines returns how many lines were written so far.
func (w *Writer) Lines() int64 {
	var n int64
	for _, lf := range w.files {
		n += lf.lines.Load()
	}
	return n
}

// Path returns the path of file i.
func (w *Writer) Path(i int) string { return w.files[i].path }

// writeLine appends the next line of the file whose turn it is.
func (w *Writer) writeLine() error {
	lf := w.files[w.turn]
	w.turn = (w.turn + 1) % len(w.files)
	if w.o.Rotation != NoRotation && w.o.RotateLines > 0 && lf.inFile >= w.o.RotateLines {
		if err := w.rotate(lf); err != nil {
			return err
		}
	}
	if lf.f == nil {
		if err := lf.create(); err != nil {
			return err
		}
	}
	w.buf = append(AppendLine(w.buf[:0], lf.tag, int(lf.lines.Load()), w.o.LineBytes), '\n')
	rest := w.buf
	if w.o.TornWrites && w.rng.IntN(4) == 0 {
		cut := 1 + w.rng.IntN(len(rest)-1)
		if _, err := lf.f.Write(rest[:cut]); err != nil {
			return err
		}
		rest = rest[cut:]
	}
	if _, err := lf.f.Write(rest); err != nil {
		return err
	}
	lf.lines.Add(1)
	lf.inFile++
	return nil
}

func (lf *logFile) create() (err error) {
	lf.f, err = os.OpenFile(lf.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return err
}

// generation is the path of the k-th newest rotated file, from 1.
func (lf *logFile) generation(k int, gz bool) string {
	if gz {
		return fmt.Sprintf("%s.%d.gz", lf.path, k)
	}
	return fmt.Sprintf("%s.%d", lf.path, k)
}

func (w *Writer) rotate(lf *logFile) error {
	if lf.f == nil {
		return nil
	}
	if w.o.Rotation == RotateDelete {
		w.beforeLoss(lf.path)
		if err := os.Remove(lf.path); err != nil {
			return err
		}
		return w.reopen(lf, true)
	}
	if err := w.shift(lf); err != nil {
		return err
	}
	lf.rotated++
	first := lf.generation(1, false)
	switch w.o.Rotation {
	case RotateTruncate:
		data, err := os.ReadFile(lf.path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(first, data, 0o644); err != nil {
			return err
		}
		w.beforeLoss(lf.path)
		lf.inFile = 0
		return lf.f.Truncate(0)
	case RotateRename, RotateRenameLate, RotateCompress:
		if err := os.Rename(lf.path, first); err != nil {
			return err
		}
		if err := w.reopen(lf, w.o.Rotation != RotateRenameLate); err != nil {
			return err
		}
		if w.o.Rotation == RotateCompress {
			return compress(first)
		}
		return nil
	default:
		panic(fmt.Sprintf("BUG: kafkatest: rotation %d", w.o.Rotation))
	}
}

// shift makes room for generation 1; the oldest beyond KeepRotated goes.
func (w *Writer) shift(lf *logFile) error {
	gz := w.o.Rotation == RotateCompress
	if lf.rotated >= w.o.KeepRotated {
		oldest := lf.generation(w.o.KeepRotated, gz)
		w.beforeLoss(oldest)
		if err := os.Remove(oldest); err != nil {
			return err
		}
		lf.rotated--
	}
	for k := lf.rotated; k >= 1; k-- {
		if err := os.Rename(lf.generation(k, gz), lf.generation(k+1, gz)); err != nil {
			return err
		}
	}
	return nil
}

// reopen lets go of the old file and makes the new one now or with the next line.
func (w *Writer) reopen(lf *logFile, now bool) error {
	if err := lf.f.Close(); err != nil {
		return err
	}
	lf.f, lf.inFile = nil, 0
	if now {
		return lf.create()
	}
	return nil
}

func (w *Writer) beforeLoss(path string) {
	if w.o.BeforeLoss != nil {
		w.o.BeforeLoss(path)
	}
}

// compress replaces a file by its gzip.
func compress(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(path+".gz", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(path)
}

func (w *Writer) close() {
	w.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lf := range w.files {
		if lf.f != nil {
			lf.f.Close()
			lf.f = nil
		}
	}
}
