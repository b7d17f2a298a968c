package pipeline

import (
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"shipper/spool"
	"shipper/tail"
)

// A reader owns its open files and the open batches of its lanes. It reads a
// block, appends each line to its lane's batch (the only copy before
// compression), and hands over sealed batches in groups:
//
//	files --Fill--> block --Next--> line --Append--> open batch --seal--> group
//
// One number per file is all there is to resume from: a group's cursors are
// taken when its batches are sealed, and every line below them is in a batch
// of this group or of one before it.
type reader struct {
	cfg      *Config
	log      *slog.Logger
	n        int // number of this reader
	start    time.Time
	budget   *budget
	work     chan<- *batch
	groups   chan<- *group
	dead     <-chan struct{} // the committer has ended: nothing more is taken
	groupMax int64
	ids      *atomic.Uint32 // the last lane's
	intakes  []intake
	mail     mailbox
	notify   chan struct{} // a file has grown, mail has come or the budget has bytes again
	stats    readStats

	block   []byte
	scratch scratch
	reasons []reasonCounts   // by source block
	short   []int64          // by block: bytes that the budget had not; 0: it had
	stop    []bool           // by block, in this round: its files are left alone
	round   uint64           // of turns
	feeds   map[uint32]*feed // by the id of their home lane
	files   []*openFile
	late    []farewell // kept back
	open    []*feed    // those that hold records or moved cursors
}

// generations are the files that took turns at one path. The watcher hands them
// over oldest first, and a younger one waits until those before it have been
// read to their end: so the lines of a path stay in order through rotations.
type generations struct {
	name   string
	hash   [8]byte // of name: the key of records without one
	open   int     // files in the reader's hands
	unread uint64  // round in which an older one had bytes left
	waits  uint64  // round in which an older one had an unfinished record

	waiting *openFile // that one
}

func newGenerations(name string) *generations {
	g := &generations{name: name}
	binary.BigEndian.PutUint64(g.hash[:], xxhash.Sum64String(name))
	return g
}

// openFile is a file in this reader's hands.
type openFile struct {
	f      *tail.File
	feed   *feed
	line   *generations
	cursor tail.Cursor // as of the last group
	known  bool        // the spool has its Source entry
	moved  bool        // that may name another lane
	owes   bool        // the spool is told where it is once its feed may be read, if it is not read before
	dirty  bool        // in feed.dirty
	more   bool        // the last turn left bytes unread
	hurry  bool        // gone from its path or cut short: what was read of it is nowhere else for long
	grewAt time.Time
	readAt time.Time
	stuck  time.Time // a copy that is unpacked may not be read since then; zero: it may

	base    int64  // where the lines not handed over begin
	reached int64  // where they end
	lines   uint64 // so many
	spans   []span // of content that was replaced meanwhile

	recordState
}

// readStats are written by one reader and read by anyone.
type readStats struct {
	lines, bytes, blocked atomic.Uint64
}

const (
	blockBytesMin = 256 << 10 // one read
	turnBytesMax  = 1 << 20   // of one file before the next file's turn
	fillLingerMax = 10 * time.Second
	releaseAfter  = time.Second // idle beyond the idle flush before a file is given back
	pollInterval  = time.Second
	unpackPause   = 20 * time.Millisecond // between two looks at a compressed copy that waits for another one to be unpacked
	giveWayAfter  = time.Second           // a copy that may not be read keeps others from being unpacked
)

// mailbox carries files from the watcher to a reader and never blocks either.
type mailbox struct {
	mu    sync.Mutex // guards the rest
	files []handover
	gone  []farewell
	first []*group // where files begin that the first scan found: durable before any file comes
}

// farewell is what the watcher has to say about a file that is not there any
// more: bytes lost, or that it can be forgotten.
type farewell struct {
	block int
	id    uint64
	lost  span // to > from: only that

	elders []elder // it is remembered until they are through
}

type handover struct {
	f         *tail.File
	family    string
	fileKnown bool
	moved     bool // the spool knew it in another lane
	handed
	siblings []handed // the first time, by key: the other lanes of the block and topic
	elders   []elder
}

// handed is a lane that a reader does not have yet.
type handed struct {
	lane  *lane
	next  uint64
	known bool // to the spool
}

func (r *reader) run(ctx context.Context) {
	r.block = make([]byte, blockBytesMin)
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		r.takeMail(now)
		busy := r.turns(ctx, now)
		r.sealDue(time.Now())
		if busy {
			continue
		}
		timer.Reset(r.untilDue(time.Now()))
		select {
		case <-r.notify:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	r.seal(r.open)
	for _, of := range r.files {
		of.f.Release()
	}
}

func (r *reader) takeMail(now time.Time) {
	r.mail.mu.Lock()
	files, gone, first := r.mail.files, r.mail.gone, r.mail.first
	r.mail.files, r.mail.gone, r.mail.first = nil, nil, nil
	r.mail.mu.Unlock()
	for _, g := range first {
		r.hand(g)
	}
	for _, h := range files {
		f := r.feeds[h.lane.id]
		if f == nil {
			f = r.newFeed(&h)
			r.feeds[h.lane.id] = f
		}
		if f.keyed != nil && len(f.unknown) > 0 {
			// The sink asks for a topic of which it has a lane. A file that was read into another topic brings no entry before
			// something is read of it, and nothing is.
			r.list(f, now)
		}
		of := &openFile{f: h.f, feed: f, line: f.line(h.family), known: h.fileKnown, moved: h.moved, more: true, grewAt: now}
		of.base, of.reached = of.f.Cursor().Offset, of.f.Cursor().Offset
		_, of.cursor = h.f.Place()
		switch {
		case of.known && h.f.Owes() && inherited(f.elders):
			of.owes = true // under the name of now, nothing would lead a start to them
		case !of.known || h.f.Owes():
			// Also an empty one: if it is renamed or grows while the agent is
			// down, this is how it is known again.
			r.touch(of, now)
			r.sealCrowd(f)
		}
		if format := r.source(of).format; format != nil {
			of.stream = format.NewStream(h.f.Path())
		}
		r.link(of)
		h.f.Attach(r.notify)
		r.files = append(r.files, of)
	}
	r.sayFarewell(r.takeLeave(gone))
}

// takeLeave keeps back what is still needed: sources that lead a start to lanes of a block that is gone from the config.
func (r *reader) takeLeave(gone []farewell) (now []farewell) {
	if len(gone)+len(r.late) == 0 {
		return nil
	}
	gone, r.late = append(r.late, gone...), nil
	for _, x := range gone {
		if inherited(x.elders) {
			r.late = append(r.late, x)
		} else {
			now = append(now, x)
		}
	}
	return now
}

// sayFarewell hands the news over, in order: a loss before the end of its file.
func (r *reader) sayFarewell(gone []farewell) {
	if len(gone) > 0 {
		r.seal(r.open) // a file may be known by what comes after it only; that is durable first
	}
	for len(gone) > 0 {
		g, lost, n := &group{block: gone[0].block}, gone[0].lost.to > 0, 0
		for ; n < len(gone) && gone[n].block == g.block && (gone[n].lost.to > 0) == lost; n++ {
			if x := &gone[n]; lost {
				g.commit.Gaps = append(g.commit.Gaps, spool.Gap{Source: x.id, FromByte: x.lost.from, ToByte: x.lost.to, Reason: spool.GapSourceLost})
			} else {
				g.commit.Sources = append(g.commit.Sources, spool.Source{ID: x.id, Gone: true})
			}
		}
		r.hand(g)
		gone = gone[n:]
	}
}

// touch notes that a file's cursor has moved since the last group. It must not
// be called while lines are taken from another file of the feed.
func (r *reader) touch(of *openFile, now time.Time) {
	f := of.feed
	if !of.dirty {
		of.dirty = true
		f.dirty = append(f.dirty, of)
		f.entriesBytes += fileEntriesBytes + int64(len(of.f.Path())+len(of.f.Block()))
	}
	r.list(f, now)
}

// list notes that the feed holds something to hand over.
func (r *reader) list(f *feed, now time.Time) {
	if !f.listed {
		f.listed, f.since = true, now
		r.open = append(r.open, f)
	}
}

// turns gives each file with something to read its turn, and says whether any
// has more.
func (r *reader) turns(ctx context.Context, now time.Time) (busy bool) {
	kept := r.files[:0]
	for i := range r.stop {
		if r.short[i] > 0 && r.budget.has(i, r.short[i]) {
			r.short[i] = 0
		}
		r.stop[i] = r.short[i] > 0 || r.intakes[i].paused.Load()
	}
	r.round++
	for _, of := range r.files {
		block := of.feed.block
		of.more = of.f.TakeReady() || of.more || now.Sub(of.readAt) >= pollInterval || of.pauseEnds(now) || of.recordEnds(now)
		switch head := of.head(); {
		case head == nil:
			of.more = of.more || of.isHeldBack() // the one before it may have ended without anything new in this one
		case of.more: // it is looked at with that one
			of.readAt, of.more, head.more, busy = now, false, true, busy || !r.stop[block]
		}
		may := of.more && !r.stop[block] && r.ready(of.feed, now) && !r.mustWait(of, now)
		of.giveWay(r.stop[block] || of.more && !may, now)
		if may && ctx.Err() == nil && of.line.unread != r.round {
			of.readAt = now
			r.stop[block] = r.turn(of, now)
		}
		if of.more || !of.paused.IsZero() || of.isHeldBack() {
			of.line.unread = r.round
			busy = busy || of.more && may && !r.stop[block]
		}
		if of.waits() {
			of.line.waits, of.line.waiting = r.round, of
		}
		if !of.dirty && r.canGo(of, now) {
			r.release(of)
			continue
		}
		kept = append(kept, of)
	}
	clear(r.files[len(kept):])
	r.files = kept
	return busy
}

// canGo says whether a file is better given back: it has been quiet, the
// watcher gave it up, or others wait for its descriptor. For those even one that
// has more to read goes while its block may not be read, unless only its
// descriptor leads to it or a younger one of its line would be read before it.
func (r *reader) canGo(of *openFile, now time.Time) bool {
	switch {
	case of.f.GivenUp():
		return true
	case !of.more:
		// One that is not begun is not at rest: given back, it would wait from the start for the one before it.
		atRest := (of.stream == nil || of.begun) && now.Sub(of.grewAt) > r.source(of).IdleFlush+releaseAfter
		return !of.waits() && (of.f.Complete() || of.f.Wanted() || atRest)
	}
	return r.intakes[of.feed.block].paused.Load() && of.f.Wanted() && !of.f.Missing() && of.line.open == 1
}

// release gives a file back that has nothing unread and nothing not handed over.
func (r *reader) release(of *openFile) {
	of.unlinkNext()
	if of.prev != nil {
		of.prev.unlinkNext()
	}
	if of.line.open--; of.line.open == 0 {
		delete(of.feed.families, of.line.name)
	}
	of.f.Release()
}

func (r *reader) source(of *openFile) *Source { return &r.cfg.Sources[of.feed.block] }

// cannotRead tells why a file cannot be read, and not each time that it is tried.
func (r *reader) cannotRead(of *openFile, err error, now time.Time) {
	if of.f.Tells(err, now) {
		r.log.Warn("cannot read a file (it is tried again)", "path", of.f.Path(), "error", err)
	}
}

// turn reads one file for a while. It says whether the budget ran out: then the
// lines not taken are read again later.
func (r *reader) turn(of *openFile, now time.Time) (blocked bool) {
	switch {
	case of.heads():
		return r.turnJoined(of, now)
	case of.stream != nil:
		blocked = r.turnRecords(of, now)
		of.more = of.more || of.heads()
		return blocked
	}
	of.more = false
	if now.Before(of.paused) {
		return false
	}
	of.paused = time.Time{}
	for left := turnBytesMax; ; {
		n, st, err := of.f.Fill(r.block, now)
		if err != nil {
			r.cannotRead(of, err, now)
			return false
		}
		if st.Waits {
			of.paused = now.Add(unpackPause)
			return false
		}
		if st.Truncated {
			of.endSpan()
		}
		of.hurry = of.hurry || st.Truncated || st.Shrunk || st.Gone && st.EOF
		if st.NeedBytes > len(r.block) {
			r.block = make([]byte, st.NeedBytes)
			continue
		}
		if n > 0 {
			of.grewAt = now
			blocked = r.takeLines(of, now)
		} else {
			blocked = r.takeUnfinished(of, now)
		}
		if blocked {
			of.f.Unfill()
			of.more = true
		}
		r.advance(of, st.Truncated)
		if _, c := of.f.Place(); c != of.cursor || st.Truncated {
			r.touch(of, now)
			r.sealCrowd(of.feed)
		}
		left -= n
		if blocked || st.EOF && !(n > 0 && of.f.LastLineEnds()) { // the generation behind it is read next
			return blocked
		}
		if n == 0 || left <= 0 { // n == 0: in the middle of a hole
			of.more = true
			return false
		}
	}
}

// advance notes how far the file's lines are taken. A line that has no end yet is filled again each time that the file grows, and counts
// once it is taken.
func (r *reader) advance(of *openFile, truncated bool) {
	from := of.reached
	if truncated {
		from = 0
	}
	of.reached = of.f.Cursor().Offset
	r.stats.bytes.Add(uint64(max(0, of.reached-from)))
}

// takeLines appends what is filled to the lane's batch. A line that does not
// fit is put back first, so that the cursors of the group that is handed over
// are before it.
func (r *reader) takeLines(of *openFile, now time.Time) (blocked bool) {
	ms, lines := now.UnixMilli(), uint64(0)
	for {
		line, ok := of.f.Next()
		if !ok {
			break
		}
		ol := r.laneOf(of, nil, false)
		if ol == nil || !ol.builder.Fits(0, len(line.Bytes)) {
			of.f.Back(line)
			of.lines += lines
			r.stats.lines.Add(lines)
			lines = 0
			if ol == nil {
				r.sealFull(of)
				continue
			}
			if blocked = !r.room(of, ol, len(line.Bytes)); blocked {
				break
			}
			continue
		}
		ol.builder.Append(ms, nil, line.Bytes, false)
		lines++
	}
	of.lines += lines
	r.stats.lines.Add(lines)
	return blocked
}

// takeUnfinished takes a last line without newline that has been idle long
// enough.
func (r *reader) takeUnfinished(of *openFile, now time.Time) (blocked bool) {
	n := of.f.Pending()
	if n == 0 {
		return false
	}
	ol := r.laneOf(of, nil, false)
	if ol == nil {
		r.sealFull(of)
		ol = r.laneOf(of, nil, false)
	}
	if !ol.builder.Fits(0, n) && !r.room(of, ol, n) {
		return true
	}
	line, ok, err := of.f.Flush(r.block, now)
	if err != nil {
		r.cannotRead(of, err, now)
	}
	if ok {
		ol.builder.Append(now.UnixMilli(), nil, line.Bytes, false)
		of.lines++
		r.stats.lines.Add(1)
	}
	return false
}

// endSpan notes what was read of content that is not there any more.
func (of *openFile) endSpan() {
	if of.lines > 0 {
		of.spans = append(of.spans, span{of.f.ID(), of.base, of.reached, of.lines})
	}
	of.base, of.reached, of.lines = 0, 0, 0
}

// wake makes the reader look at its mail and its files.
func (r *reader) wake() {
	select {
	case r.notify <- struct{}{}:
	default:
	}
}
