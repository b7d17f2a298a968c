package tail

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// machine is a watcher and a reader that keeps what a spool would keep.
type machine struct {
	t       *testing.T
	dir     string
	inotify bool
	opts    Options
	out     strings.Builder

	w     *Watcher
	begun time.Time     // the clock of the watcher is slow from here on
	ahead time.Duration // and was moved forward by

	mu     sync.Mutex
	opened []*File // handed over, not taken yet
	told   []string
	gone   []string

	held   []*File
	buf    []byte
	known  map[uint64]Known
	lastID uint64
	onLine func(*File, Line)

	onTruncated func(*File)
	hold        bool // read but do not release
	bootedAt    time.Time
	unsorted    bool
	listed      [][]string // steps that are due once a directory is listed
	found       [][]string // and once there are more sources
	kill        *kill
	polls       int
	sources     int // when the scan began
}

func newMachine(t *testing.T, inotify bool) *machine {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, begun: time.Now(), dir: dir, inotify: inotify, buf: make([]byte, FillBytesMin), known: map[uint64]Known{}}
	m.opts = Options{ScanInterval: time.Second, NoInotify: !inotify, Logger: slog.New(warnings{m})}
	m.onLine = m.printLine
	m.onTruncated = func(f *File) { m.say("truncated %s", m.rel(f.Path())) }
	t.Cleanup(m.stop)
	return m
}

// Began gives the files numbers and makes them known, as the receiver must before any file is handed out.
func (m *machine) Began(_ context.Context, files []*File) {
	for _, f := range files {
		m.number(f)
		m.remember(f)
	}
}

func (m *machine) number(f *File) {
	if f.ID() == 0 {
		m.lastID++
		f.SetID(m.lastID)
	}
}

// Open, Lost and Gone are the Handler.
func (m *machine) Open(f *File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = append(m.opened, f)
}

func (m *machine) Lost(id uint64, from, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = append(m.gone, fmt.Sprintf("lost %s %04d-%04d", m.rel(m.known[id].Path), from, to))
}

func (m *machine) Gone(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = append(m.gone, fmt.Sprintf("gone %s", m.rel(m.known[id].Path)))
	delete(m.known, id)
}

func (m *machine) rel(path string) string { return strings.TrimPrefix(path, m.dir+"/") }

// warnings is a slog.Handler that prints warnings as part of the output.
type warnings struct{ m *machine }

func (h warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h warnings) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h warnings) WithGroup(string) slog.Handler                { return h }
func (h warnings) Handle(_ context.Context, r slog.Record) error {
	path := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "path" {
			path = h.m.rel(a.Value.String())
		}
		return true
	})
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	h.m.told = append(h.m.told, fmt.Sprintf("warning %s: %s", path, strings.ReplaceAll(r.Message, h.m.dir+"/", "")))
	return nil
}

func (m *machine) start() {
	if m.w != nil {
		return
	}
	if len(m.opts.Blocks) == 0 {
		if err := m.block(nil); err != nil {
			m.t.Fatal(err)
		}
	}
	m.opts.Known = nil
	for _, id := range slices.Sorted(maps.Keys(m.known)) {
		m.opts.Known = append(m.opts.Known, m.known[id])
	}
	w, err := NewWatcher(m.opts)
	if err != nil {
		m.t.Fatal(err)
	}
	// A busy machine may take seconds for one poll: what waits for a time waits for the script's steps, not for that.
	w.now = func() time.Time {
		if len(m.w.siblings) > 0 {
			m.steps(&m.listed)
		}
		if len(m.w.sources) > m.sources {
			m.steps(&m.found)
		}
		return m.begun.Add(time.Since(m.begun)/100 + m.ahead)
	}
	if !m.bootedAt.IsZero() {
		w.bootedAt = m.bootedAt
	}
	m.w = w
	w.handler = m
	w.notify.start()
}

// tick waits until files get other times than before. Their clock moves every few milliseconds, and stands still for longer while the
// processor that keeps it does something else.
func (m *machine) tick() {
	before := m.fileClock()
	time.Sleep(12 * time.Millisecond)
	m.waitForFiles(before)
}

func (m *machine) waitForFiles(behind int64) {
	for tries := 0; m.fileClock() <= behind; tries++ {
		if tries == 10_000 {
			m.t.Fatal("the clock of the file system stands still")
		}
		time.Sleep(time.Millisecond)
	}
}

// fileClock is the time that a new file gets.
func (m *machine) fileClock() int64 {
	f, err := os.CreateTemp(filepath.Dir(m.dir), "clock")
	if err != nil {
		m.t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		m.t.Fatal(err)
	}
	return st.ModTime().UnixNano()
}

// steps takes those that are due in the middle of a scan.
func (m *machine) steps(due *[][]string) {
	list := *due
	*due = nil
	for _, words := range list {
		if err := m.step(words); err != nil {
			m.t.Error(err)
		}
	}
}

func (m *machine) stop() {
	if m.w == nil {
		return
	}
	m.take()
	for _, f := range m.held {
		m.number(f)
		m.remember(f)
		f.Release()
	}
	m.w.takeBack()
	m.w.end()
	if n := m.w.Stats().Open; n != 0 {
		m.t.Errorf("%d descriptors left open", n)
	}
	m.held, m.w = nil, nil
}

// events hands what inotify has to say within a moment to the watcher, as Run does.
func (m *machine) events() {
	for {
		select {
		case ev := <-m.w.notify.events():
			m.w.onEvents(ev)
		case err := <-m.w.notify.errors():
			m.t.Error(err)
		case <-time.After(5 * time.Millisecond):
			return
		}
	}
}

func (m *machine) take() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.opened {
		f.Attach(make(chan struct{}, 1))
	}
	m.held = append(m.held, m.opened...)
	m.opened = nil
}

// poll reads until nothing comes any more.
func (m *machine) poll() {
	m.start()
	if k := m.kill; k != nil && k.poll == m.polls {
		m.die(k)
		m.start()
	}
	m.polls++
	for quiet, passes := 0, 0; quiet < 4; passes++ {
		if m.inotify {
			m.events()
		}
		waiting := len(m.w.waiting)
		m.look()
		if m.turn() || len(m.w.waiting) < waiting || len(m.w.unpacking) > 0 && passes < 200 {
			quiet = 0
		} else {
			quiet++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unsorted {
		slices.SortStableFunc(m.told, func(a, b string) int { return cmp.Compare(logOf(a), logOf(b)) })
	} else {
		slices.Sort(m.told)
	}
	for _, s := range m.told {
		m.out.WriteString(s + "\n")
	}
	m.told = nil
	m.out.WriteString("--\n")
}

// logOf is what the generations of a log that something was told of have in common.
func logOf(told string) string {
	path, rest, _ := strings.Cut(told, " ")
	if path == "truncated" || path == "warning" {
		path = rest
	}
	if end := strings.IndexAny(baseOf(path), ".-_"); end > 0 {
		return path[:len(path)-len(baseOf(path))+end]
	}
	return path
}

// look is what Run does each time it wakes; nothing is read.
func (m *machine) look() {
	m.start()
	m.w.siblings, m.sources = nil, len(m.w.sources) // for steps
	m.w.takeBack()
	m.w.scan()
	if m.w.scans == 1 {
		m.w.began(context.Background())
	}
	m.w.admit()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.opened {
		m.number(f)
	}
}

// turn reads every file held once and releases those at their end; it tells whether there was anything.
func (m *machine) turn() (some bool) {
	m.take()
	held := m.held
	m.held = nil
	for _, f := range held {
		m.number(f)
		got, idle := m.read(f)
		some = some || got
		m.remember(f)
		if idle && !m.hold && (f.Pending() == 0 || f.Wanted() || f.Complete()) {
			f.Release()
		} else {
			m.held = append(m.held, f)
		}
	}
	return some
}

func (m *machine) read(f *File) (some, idle bool) {
	n, st, err := f.Fill(m.buf, m.w.now())
	if err != nil {
		m.t.Fatal(err)
	}
	if st.Truncated {
		m.onTruncated(f)
	}
	if st.NeedBytes > len(m.buf) {
		f.Unfill()
		m.buf = make([]byte, st.NeedBytes)
		return true, false
	}
	for l, ok := f.Next(); ok; l, ok = f.Next() {
		m.onLine(f, l)
		some = true
	}
	if n > 0 {
		return some, false
	}
	l, ok, err := f.Flush(m.buf, m.w.now())
	if err != nil {
		m.t.Fatal(err)
	}
	if ok {
		m.onLine(f, l)
	}
	return ok, !ok && st.EOF
}

func (m *machine) say(format string, a ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, fmt.Sprintf(format, a...))
}

func (m *machine) printLine(f *File, l Line) {
	text := strconv.Quote(string(l.Bytes))
	if len(l.Bytes) > 60 {
		text = fmt.Sprintf("%q...%q (%d)", l.Bytes[:20], l.Bytes[len(l.Bytes)-20:], len(l.Bytes))
	}
	// Offsets have leading zeros to sort.
	s := fmt.Sprintf("%s %04d-%04d %s", m.rel(f.Path()), l.Offset, l.End, text)
	if l.Part > 0 {
		s += fmt.Sprintf(" part %d", l.Part)
	}
	if l.Cut {
		s += " cut"
	}
	m.say("%s", s)
}

func (m *machine) remember(f *File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fp, cur := f.Place()
	if k, ok := m.known[f.ID()]; ok && k.Cursor == cur && k.Fingerprint.Prefix == fp.Prefix {
		return // an entry is written with what was read
	}
	m.known[f.ID()] = Known{ID: f.ID(), Block: f.Block(), Path: f.Path(), Fingerprint: fp, Cursor: cur}
}

// stepAll takes the steps and returns what came out up to now.
func stepAll(t *testing.T, m *machine, lines ...string) string {
	t.Helper()
	for _, line := range lines {
		if err := m.step(splitWords(t, line)); err != nil {
			t.Fatal(err)
		}
	}
	return strings.TrimPrefix(m.out.String(), "\n")
}
