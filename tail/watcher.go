package tail

// The loop. One pass: take back what readers released, scan if it is time, queue what has unread bytes, hand
// it out as far as descriptors go. Everything here runs on the goroutine of Run, but for giveBack and Stats.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hintDelay   = 20 * time.Millisecond // from a hint about a directory to the scan that it asks for
	eventPause  = 10 * time.Millisecond // between two looks at inotify: the kernel joins equal events meanwhile
	eventsMax   = 4096                  // events taken at one look
	scanShare   = 50                    // scans may take one part in so many of one core: 2 %
	scanCredit  = time.Second           // of processor time that scans may save up for when much happens at once
	scanGapMax  = 30 * time.Second      // longest pause for the sake of that share
	scanAllMax  = 10 * time.Minute      // longest time between two full scans
	scanAllPart = 2000                  // full scans that nothing asked for take at most one part in so many of one core
	warningsMax = 16384                 // paths whose warning is remembered
)

// key names a source among those that are known for sure. Two blocks may read one file: each has its cursor.
type key struct {
	block    int
	dev, ino uint64
}

// Watcher finds files. All fields but those of the last group belong to Run's goroutine.
type Watcher struct {
	blocks  []Block
	scanGap time.Duration
	paused  func(block string) bool
	log     *slog.Logger
	walker  *walker
	notify  *notifier // nil: polling only
	handler Handler
	now     func() time.Time

	sources    map[key]*File
	strays     map[uint64][]*File    // by inode: known from the spool, their file not found yet; without a number, and until the next look: seen, and gone unread
	strayPaths map[blockPath][]*File // the same at the start, by the path they had
	candidates []candidate
	byPath     map[string]*File      // for hints; an entry may be out of date
	kin        kinSet                // sources that may be generations of one path
	cameFrom   kinSet                // those that have another name by now, which has other kin
	lived      kinSet                // those that were the log of their kin
	strayKin   map[blockPath][]*File // the same of strays; some are none any more
	unsettled  map[blockPath]int64   // paths of which generations may be there that nobody knows, not older than this
	unlooked   map[blockPath]bool    // those of them where none were looked for since that was noted
	lookAgain  map[blockPath]bool    // kin of which one vanished or was moved since the last scan
	moved      uint64                // files whose name led elsewhere when they were to be opened, or that found no descriptor
	waiting    []*File               // unread, in the order they are handed out
	queued     queued
	excludes   []string
	excluded   map[key]bool // block is 0
	warned     map[string]string
	told       map[key]told // files that were told as gone
	refused    refused
	siblings   map[string]*listing
	arounds    map[string]around
	linked     map[string][]string          // see linkedDirs, by the directory of the path
	homes      map[int]map[uint64][]sibling // of blocks, while the spool's sources are searched; one full scan
	peeks      map[key]peeked               // heads of files that may be copies; block is 0
	unpacking  []*File                      // compressed ones that readers hold
	delivered  int                          // sources that are delivered
	finished   []*File                      // compressed ones that were read to their end
	heldBack   map[*File]int64              // files that wait for what came before them, and when that was looked for
	doubts     map[key]doubt
	copies     map[key]heldCopy // by the last full scan
	wereCopies map[key]heldCopy // and the one before it
	beginning  []*File          // found by the first scan for blocks that start at the end

	scans     uint64    // full ones
	wall      int64     // clock at the start of the last scan, nanoseconds
	allWall   int64     // that clock at the start of the last full scan
	startedAt int64     // and of the first one
	recount   bool      // a source was forgotten: Stats.Files is out of date
	rescan    bool      // something asks for a full scan
	scanning  bool      // it is a full one
	allAt     time.Time // when the next full scan comes by itself
	realDirs  map[string]string

	hot      []*File // busy lately: every scan looks at them
	wasHot   []*File // its other half
	ring     []*File // all: scans look at some of them in turn
	ringAt   int
	looks    int // at files and directories at rest, the next scan
	looksMin int
	lookCost time.Duration // of processor time, on average lately

	scanTook   time.Duration // processor time of the last scan
	allTook    time.Duration // of the last full one
	credit     time.Duration // of processor time for scans, as of creditedAt
	creditedAt time.Time
	passes     uint64 // of the loop
	keep       keepTimes
	open       map[*File]struct{} // with a descriptor
	openMax    int
	openTop    int // what it is while there are descriptors

	starved     uint64    // calls that found no descriptor
	starvedAt   time.Time // when some were given back last
	regainedAt  time.Time // when the bound was raised again last
	starvedTold time.Time

	asked        chan question
	heldBytesMax int64
	heldFilesMax int

	bootedAt time.Time // the machine

	wary  bool     // symlinks must be trusted
	roots []string // where they may lead whoever made them

	wanted       atomic.Bool
	unpacks      atomic.Pointer[File] // the copy that is being unpacked: one at a time, for the memory that takes
	unpackWanted atomic.Bool          // others wait for that
	holdsBack    atomic.Bool          // any of heldBack
	stats        counters

	mu        sync.Mutex
	released  []*File
	truncated []truncation
	ended     bool
	wake      chan struct{}
}

type keepTimes struct{ idle, moved, unseen, quiet time.Duration }

// counters are written by Run and by readers.
type counters struct {
	scans, bytesRead, truncations, lostBytes, lostFiles, againBytes, againFiles, givenUp, startedOver, skippedFiles, ignoredFiles, permissionErrors atomic.Uint64
	oversizeBytes, nulBytes, idleFlushes, rescued, overflows, replaced, vanished                                                                    atomic.Uint64
	oversize                                                                                                                                        [3]atomic.Uint64

	files, open, reading, waiting, heldFiles, heldBytes, missing, unreadable, unread, openMax, watches atomic.Int64
	inotify                                                                                            atomic.Bool
	scanNanos                                                                                          atomic.Int64
}

func newWatcher(o Options) (*Watcher, error) {
	w := &Watcher{
		blocks: o.Blocks, scanGap: o.ScanInterval, log: o.Logger, walker: newWalker(o.Blocks), now: time.Now,
		sources: map[key]*File{}, strays: map[uint64][]*File{}, strayPaths: map[blockPath][]*File{}, byPath: map[string]*File{}, kin: kinSet{}, cameFrom: kinSet{}, lived: kinSet{}, strayKin: map[blockPath][]*File{}, unsettled: map[blockPath]int64{}, unlooked: map[blockPath]bool{}, lookAgain: map[blockPath]bool{}, excludes: o.ExcludePaths,
		warned: map[string]string{}, told: map[key]told{}, peeks: map[key]peeked{}, doubts: map[key]doubt{}, heldBack: map[*File]int64{}, copies: map[key]heldCopy{}, refused: refused{paths: map[string]bool{}, known: map[string]bool{}},
		open: map[*File]struct{}{}, keep: keepTimes{idleKeep, movedKeep, unseenKeep, quietMin},
		openMax: o.OpenFilesMax, wake: make(chan struct{}, 1), asked: make(chan question), bootedAt: bootedAt(time.Now()), looksMin: looksMin, wary: readsEverything(), roots: o.SymlinkRoots, paused: o.Paused,
		heldBytesMax: cmp.Or(o.HeldBytesMax, heldBytesDefault), heldFilesMax: o.HeldFilesMax,
	}
	w.walker.readDir = w.readDir
	w.walker.warn = func(path, what string) { w.warnOnce(path, what) }
	w.walker.skipDir = func(s *fileStat) bool { return w.excluded[key{0, s.dev, s.ino}] }
	if !o.NoInotify {
		w.notify = newNotifier(w.log)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && openTop(uint64(limit.Cur)) < uint64(w.openMax) {
		w.openMax = int(openTop(uint64(limit.Cur)))
		w.log.Warn("the process may open too few files (ulimit -n): fewer log files are kept open", "limit", uint64(limit.Cur), "open_files_max", w.openMax, "wanted", o.OpenFilesMax)
	}
	w.openTop = w.openMax
	if top := w.openMax / heldShare; w.heldFilesMax == 0 || w.heldFilesMax > top {
		w.heldFilesMax = top
	}
	byName := map[string]int{}
	for i, b := range w.blocks {
		byName[b.Name] = i
	}
	ids, known := map[uint64]bool{}, knownOf(o.Known)
	for _, k := range o.Known {
		if k.ID == 0 || ids[k.ID] {
			return nil, fmt.Errorf("known source %s has the id %d, which is zero or used twice", k.Path, k.ID)
		}
		ids[k.ID] = true
		f := w.newFile(-1, k.Path)
		if i, ok := byName[k.Block]; ok {
			f.src.key.block = i
		} else {
			f.src.key.block, f.src.wasBlock = w.heirOf(k, known), k.Block
		}
		f.id.Store(k.ID)
		f.fp, f.fpTold, f.cur, f.dirTold = k.Fingerprint, k.Fingerprint, k.Cursor, parent(k.Path)
		f.src.st.born = k.Fingerprint.Born
		w.strays[k.Fingerprint.Ino] = append(w.strays[k.Fingerprint.Ino], f)
		at := blockPath{f.src.key.block, k.Path}
		f.src.kin = kinOf(at)
		if b := f.src.key.block; b >= 0 && (firstMatch(w.blocks[b].Exclude, k.Path) != "" || firstMatch(w.blocks[b].Paths, k.Path) == "") {
			f.src.unwanted = true
			continue // nor are its generations
		}
		if f.src.kin == at {
			w.live(f)
		}
		w.strayPaths[at] = append(w.strayPaths[at], f)
		w.strayKin[f.src.kin] = append(w.strayKin[f.src.kin], f)
	}
	w.gauges(true)
	return w, nil
}

func (w *Watcher) newFile(block int, path string) *File {
	f := &File{w: w, fd: -1}
	f.path.Store(&path)
	f.src.key.block = block
	return f
}

func (w *Watcher) run(ctx context.Context, h Handler) error {
	w.handler = h
	runtime.LockOSThread() // for cpuTime
	defer runtime.UnlockOSThread()
	defer w.end()
	w.notify.start()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var (
		next      = w.now() // of the scan that comes by itself
		hinted    time.Time // when the scan that a hint asked for is due; zero: none is
		listenAt  time.Time
		listening = w.notify.events()
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		case q := <-w.asked:
			q.answer <- w.explain(q.path)
			continue
		case ev := <-listening:
			if w.onEvents(ev) {
				w.rescan = true
				if hinted.IsZero() {
					hinted = w.now().Add(w.hintPause())
				}
			}
			listening, listenAt = nil, w.now().Add(eventPause)
		case err := <-w.notify.errors():
			w.stats.overflows.Add(1)
			w.log.Debug("inotify lost events; the next scan finds what they told", "error", err)
			w.rescan, hinted = true, w.now()
		case <-timer.C:
		}
		w.takeBack()
		now := w.now()
		if !now.Before(next) || !hinted.IsZero() && !now.Before(hinted) {
			w.scan()
			if w.passes == 0 {
				w.began(ctx)
			}
			next, hinted = w.now().Add(max(w.scanGap, w.pause(w.scanTook))), time.Time{}
		}
		if ctx.Err() != nil {
			return nil
		}
		w.admit()
		if listening == nil && !w.now().Before(listenAt) {
			listening = w.notify.events()
		}
		at := next
		if !hinted.IsZero() && hinted.Before(at) {
			at = hinted
		}
		if listening == nil && w.notify.events() != nil && listenAt.Before(at) {
			at = listenAt
		}
		timer.Reset(at.Sub(w.now()))
		w.passes++
	}
}

// hintPause is the time from a hint about a directory to the scan that it asks for.
func (w *Watcher) hintPause() time.Duration {
	if !w.starvedAt.IsZero() && w.now().Sub(w.starvedAt) < w.scanGap {
		return w.scanGap // without descriptors it would find nothing
	}
	return max(hintDelay, min(w.pause(w.allTook), w.scanGap))
}

// began tells of the first scan. Run may end meanwhile; then nothing is handed out any more.
func (w *Watcher) began(ctx context.Context) {
	if slices.ContainsFunc(w.blocks, func(b Block) bool { return b.StartAtEnd }) {
		w.warnUnseen()
		w.handler.Began(ctx, w.beginning)
	}
	w.beginning = nil
}

// end closes what no reader holds. Released files close themselves from now on.
func (w *Watcher) end() {
	w.notify.close()
	w.mu.Lock()
	w.ended = true
	defer w.mu.Unlock()
	back := w.released
	w.released = nil
	for _, f := range back {
		f.src.out = false
	}
	w.lookAnew()
	for f := range w.open {
		if !f.src.out {
			f.tellDeleted()
			w.closeFile(f)
		}
	}
	w.gauges(true)
}

// giveBack is Release; any goroutine.
func (w *Watcher) giveBack(f *File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		f.tellDeleted()
		f.letGoOfFD()
		return
	}
	w.released = append(w.released, f)
	w.wakeUp()
}

// takeBack queues released files again that still have something to read.
func (w *Watcher) takeBack() {
	w.mu.Lock()
	back := w.released
	w.released = nil
	w.mu.Unlock()
	for _, f := range back {
		if f.GivenUp() { // which of them went is seen before a directory is listed for one
			w.seeGone(f)
		}
	}
	for _, f := range back {
		f.src.out, f.src.roomAt = false, w.now()
		w.stats.reading.Add(-1)
		if st, err := statFD(f.fd); err == nil {
			w.note(f, st)
		}
		w.endUnpacking(f)
		if f.GivenUp() {
			w.putAway(f)
			continue
		}
		if w.settleCopy(f) {
			continue
		}
		f.unpackAgain()
		if w.wanted.Load() && !f.src.missing {
			w.closeFile(f) // others wait for its descriptor: if it has more to read, it waits behind them
		}
		w.queue(f)
	}
	w.settleUnpacked()
	w.settleTruncated()
}

// onEvents takes what inotify has to say, at most eventsMax events, and tells whether a directory changed.
func (w *Watcher) onEvents(ev event) (dirty bool) {
	for range eventsMax {
		f := w.byPath[ev.Name]
		if namesChanged(ev, f != nil) {
			dirty = true
		} else if f != nil {
			w.touched(f, ev.Name)
		}
		select {
		case ev = <-w.notify.events():
		default:
			return dirty
		}
	}
	return dirty
}

// touched looks at one file that was written to.
func (w *Watcher) touched(f *File, name string) {
	s := &f.src
	if name != f.Path() && name != s.real {
		delete(w.byPath, name)
		return
	}
	if s.out {
		f.hint()
		return
	}
	if st, err := statPath(name); err == nil && !s.missing && s.st.is(&st) {
		w.note(f, st)
		w.queue(f)
	}
}

// hint wakes the reader that holds f.
func (f *File) hint() {
	if f.ready.Swap(true) {
		return
	}
	if c := f.notify.Load(); c != nil {
		select {
		case *c <- struct{}{}:
		default:
		}
	}
}

// warnOnce logs what about a path, once until it changes, and tells whether it did.
func (w *Watcher) warnOnce(path, what string) bool {
	if w.warned[path] == what {
		return false
	}
	w.remember(path, what)
	w.log.Warn(what, "path", path)
	return true
}

// remember notes that what was told about a path.
func (w *Watcher) remember(path, what string) {
	if len(w.warned) >= warningsMax {
		clear(w.warned)
	}
	w.warned[path] = what
}

// Stats may be called from any goroutine.
func (w *Watcher) Stats() Stats {
	c := &w.stats
	return Stats{
		Files: c.files.Load(), Open: c.open.Load(), Reading: c.reading.Load(), WaitingOpen: c.waiting.Load(), HeldFiles: c.heldFiles.Load(), HeldBytes: c.heldBytes.Load(), Missing: c.missing.Load(),
		Unreadable: c.unreadable.Load(), OpenMax: c.openMax.Load(), UnreadBytes: c.unread.Load(), Watches: c.watches.Load(), Inotify: c.inotify.Load(),
		ScanDuration: time.Duration(c.scanNanos.Load()),

		Scans: c.scans.Load(), BytesRead: c.bytesRead.Load(), Truncations: c.truncations.Load(), LostBytes: c.lostBytes.Load(),
		LostFiles: c.lostFiles.Load(), FoundAgainBytes: c.againBytes.Load(), FoundAgainFiles: c.againFiles.Load(), GivenUp: c.givenUp.Load(), StartedOver: c.startedOver.Load(), IgnoredFiles: c.ignoredFiles.Load(), SkippedFiles: c.skippedFiles.Load(), PermissionErrors: c.permissionErrors.Load(),
		OversizeSplit: c.oversize[Split].Load(), OversizeCut: c.oversize[Cut].Load(), OversizeSkipped: c.oversize[Skip].Load(),
		OversizeBytes: c.oversizeBytes.Load(), NULBytes: c.nulBytes.Load(), IdleFlushes: c.idleFlushes.Load(),
		GenerationsRescued: c.rescued.Load(), NotifyOverflows: c.overflows.Load(), ReplacedRunes: c.replaced.Load(), VanishedFiles: c.vanished.Load(),
	}
}

// gauges publishes what only Run knows; all: also what takes a look at every source.
func (w *Watcher) gauges(all bool) {
	c := &w.stats
	if all {
		missing, strays := 0, 0
		for _, f := range w.sources {
			if f.src.missing && !f.src.delivered {
				missing++
			}
		}
		for _, list := range w.strays {
			strays += len(list)
		}
		c.files.Store(int64(len(w.sources) - w.delivered + strays))
		c.missing.Store(int64(missing + strays))
		w.recount = false
	}
	unread := int64(0)
	for f := range w.open {
		unread += f.unreadSeen()
	}
	for _, f := range w.waiting {
		if f.fd < 0 {
			unread += f.unreadSeen()
		}
	}
	c.unread.Store(unread)
	c.open.Store(int64(len(w.open)))
	c.openMax.Store(int64(w.openMax))
	c.scanNanos.Store(int64(w.scanTook))
	watches, on := w.notify.state()
	c.watches.Store(int64(watches))
	c.inotify.Store(on)
}

// refreshExcludes looks up what the excluded paths are now.
func (w *Watcher) refreshExcludes() {
	w.excluded = map[key]bool{}
	for _, p := range w.excludes {
		if s, err := statPath(p); err == nil {
			w.excluded[key{0, s.dev, s.ino}] = true
		} else if !os.IsNotExist(err) {
			w.warnOnce(p, "excluded path cannot be looked up: "+err.Error())
		}
	}
}
