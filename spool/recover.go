package spool

// Recovery, at every start:
//
//	1  names: temporary files are deleted, free ones kept for recycling
//	2  newest intact checkpoint, then every entry behind it
//	3  D = the highest `durable` in any intact frame. A bad frame below D is
//	   damage: skipped, its group still counts. The first bad one at or above D
//	   is a tear: it and all behind it never happened. Of a segment whose end is
//	   not known any more only the batches count: see replay.go.
//	4  headers of the older live segments: which batches are held
//	5  an index between head and next without frame or gap is damage: gap
//	6  every lane gets an identity without producer id behind the batch in doubt
//	7  a new segment: checkpoint of all this and copies of the live batches from
//	   D on, under a temporary name, synced, named. From here on the log is good.
//	8  the segment before it is cut off at D
//
// A crash before the name of 7 is durable leaves the log as it was found. What
// steps 3 and 7 do not copy stays void for ever, because the new checkpoint
// says where the old segment ends.

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// recovery is the work of one Open.
type recovery struct {
	*Log
	opened  openSegments
	found   []*foundSegment // live, ascending
	base    int             // index of the segment with the newest intact checkpoint
	last    int             // index of the newest segment that speaks: behind it there is nothing
	taken   map[uint32]bool // numbers that a segment has, or what cannot be one
	durable position        // D
	held    map[uint32]*heldLane
	void    []*segment    // nothing is in them, or another file has their number; removed when the log is good again
	recent  []recentBatch // of the segments from the base on, in order
	whole   []recentBatch // of these, those from D on: only the page cache may have them
	refs    int           // in all of held
	damage  []Damage
	// badFrames are those of damage that whoever reads all frames finds again.
	badFrames []Damage
	short     uint64    // records that the newest commit counts and nothing else shows
	cut       Damage    // the newest segment's file; Bytes 0: it has its length
	noted     note      // as it was before the first frame was read: an agent at work is ahead of it
	torn      int64     // bytes at the end
	stateLost bool      // see Recovered
	look      bool      // only look: nothing on disk changes, and acked batches are listed too
	told      time.Time // when it was said how far this is
}

// tellEvery is how often a recovery says so.
const tellEvery = 2 * time.Second

// tell logs how far a recovery is that takes long: it has read n segments.
func (r *recovery) tell(n int) {
	if time.Since(r.told) < r.options.tellEvery {
		return
	}
	r.told = time.Now()
	r.logger.Info("spool: still reading what was left", "dir", r.dir, "segments_read", n, "segments", len(r.found), "bytes", r.totalBytes)
}

type foundSegment struct {
	segment
	scanner
	opened  *segmentReader
	frames  []frame // of the segments from the base on
	limit   int64   // where the frames end, as far as a later segment says
	speaks  bool    // it has an intact checkpoint or commit
	before  int64   // if so, where that says the one before it ends
	endless bool    // no later segment says where it ends
}

type recentBatch struct {
	lane   uint32
	ref    Ref
	unsure bool // of an endless segment
}

func (l *Log) recover() (*Recovered, error) {
	start := time.Now()
	r := &recovery{Log: l, opened: openSegments{fs: l.fs}, held: map[uint32]*heldLane{}, taken: map[uint32]bool{}, last: -1, told: start}
	defer r.closeFiles()
	if err := r.readNames(); err != nil {
		return nil, err
	}
	created := len(r.found) == 0
	if created {
		if err := r.create(); err != nil {
			return nil, err
		}
	} else if err := r.read(); err != nil {
		return nil, err
	}
	r.state.gapSealed = r.state.gapNext // any of these may have been told
	lanes := r.settleLanes()
	if err := r.writeSegment(lanes); err != nil {
		return nil, err
	}
	if err := r.tidy(); err != nil {
		return nil, err
	}
	if r.options.RefsMax > 0 {
		shareRefs(lanes, r.options.RefsMax)
	}
	out := &Recovered{
		SpoolID: l.state.spoolID, Created: created, Lanes: lanes, Damage: r.damage,
		StateLost: r.stateLost, Segments: len(l.segments), Bytes: l.totalBytes, VoidBytes: r.torn,
	}
	for _, id := range slices.Sorted(maps.Keys(l.state.sources)) {
		out.Sources = append(out.Sources, SourceState{l.state.sources[id].Source, l.state.sources[id].cursor})
	}
	out.Begun = slices.Sorted(maps.Keys(l.state.begun))
	out.Took = time.Since(start)
	return out, nil
}

func (r *recovery) closeFiles() {
	for _, f := range r.found {
		if err := f.opened.Close(); err != nil {
			r.logger.Warn("spool: close a segment that was only read", "segment", f.number, "error", err)
		}
	}
}

// create starts an empty spool. Nothing is on disk before writeSegment.
func (r *recovery) create() error {
	u, err := r.fs.Usage(r.dir)
	if err != nil {
		return fmt.Errorf("spool: ask the volume of %s for its free space: %w", r.dir, err)
	}
	if err := r.options.roomForNew(u.FreeBytes + r.totalBytes); err != nil {
		return err
	}
	if _, err := io.ReadFull(r.rand, r.state.spoolID[:]); err != nil {
		return fmt.Errorf("spool: draw the spool's id: %w", err)
	}
	if r.noted != (note{}) { // it is made behind the first segment
		r.loseState("there was a spool, and all of its segments are gone")
	}
	return nil
}

// read is steps 2 to 4.
func (r *recovery) read() error {
	if err := r.readCheckpoint(); err != nil {
		return err
	}
	for _, step := range []func(){r.findDurable, r.replayFrames, r.noteUnsure, r.noteLostEnd} {
		if step(); r.opened.err != nil {
			return fmt.Errorf("spool: open a segment again: %w", r.opened.err)
		}
	}
	if r.state.minor < 4 { // which was the first to say so; a file that is known was found by a start
		for _, src := range r.state.sources {
			r.state.begun[src.Block] = true
		}
	}
	unread := 0
	for i, f := range r.found[:r.base] {
		r.tell(len(r.found) - r.base + i)
		for fr := range f.scanner.frames(0, f.limit) {
			switch {
			case fr.bad == nil && fr.kind == kindBatch:
				r.hold(f, fr)
			case fr.bad != nil && fr.at == 0:
				unread++ // never punched
			}
		}
		f.end = f.limit
	}
	if r.opened.err != nil {
		return fmt.Errorf("spool: open a segment again: %w", r.opened.err)
	}
	if unread > 0 {
		r.logger.Warn("spool: the disk has damaged checkpoints of older segments; a newer one holds all that they said, and nothing is missing for it", "dir", r.dir, "segments", unread)
	}
	for _, b := range r.recent { // behind the older ones: later frames win
		r.remember(r.lane(b.lane), b.ref)
	}
	r.recent = nil
	if r.state.spoolID == [16]byte{} && !r.look {
		// Every checkpoint that held it is gone.
		if _, err := io.ReadFull(r.rand, r.state.spoolID[:]); err != nil {
			return fmt.Errorf("spool: draw the spool's id: %w", err)
		}
	}
	return nil
}

// readCheckpoint finds the newest intact checkpoint, takes its state over and
// drops the segments it does not know: they were released.
func (r *recovery) readCheckpoint() error {
	for i := len(r.found) - 1; i >= 0; i-- {
		f := r.found[i]
		segments, err := r.loadCheckpoint(f)
		if errors.Is(err, ErrNewerFormat) || r.opened.err != nil {
			return err
		}
		if err != nil {
			r.noteBadFrame(Damage{Segment: f.number, Bytes: blockBytes, Reason: "checkpoint: " + err.Error()})
			continue
		}
		r.base = i
		if missing := r.state.fileBytes - f.fileSize; missing > 0 && i == len(r.found)-1 {
			r.cut = Damage{Segment: f.number, Position: f.fileSize, Bytes: missing} // all of it is void
		}
		return r.keepListed(segments)
	}
	// No checkpoint at all: the entries of all commits are what there is.
	r.base = 0
	r.loseState("no checkpoint is intact")
	return nil
}

// loseState tells that what was known of files is gone, but for what commits say. That
// no block is new for all that stays in the spool: nothing else says so at the next start.
func (r *recovery) loseState(why string) {
	r.stateLost = true
	for _, block := range r.options.Blocks {
		r.state.begun[block] = true
	}
	r.noteDamage(Damage{Reason: why + ": files of which nothing is known any more are read again from their beginning, and what Kafka has of them comes twice; what only the spool held is lost"})
}

func (r *recovery) loadCheckpoint(f *foundSegment) ([]segmentEnd, error) {
	h, err := f.header(0, f.fileSize)
	if err != nil {
		return nil, err
	}
	fr := frame{header: h}
	if h.kind != kindCheckpoint {
		return nil, errNoFrame
	}
	payload, err := f.payload(&fr)
	if err != nil {
		return nil, err
	}
	_, major, d := openPayload(h.kind, payload)
	if d.err == nil && major != formatMajor {
		return nil, fmt.Errorf("%w (version %d, this program knows %d): start the version that wrote it, or a later one", ErrNewerFormat, major, formatMajor)
	}
	if d.err != nil {
		return nil, d.err
	}
	st := newState()
	preamble := decoder{b: payload}
	_, st.minor = preamble.preamble()
	segments, _, err := st.replay(d.b)
	if err == nil {
		r.state = st
	}
	return segments, err
}

// keepListed keeps the segments below the base that its checkpoint lists, with
// their ends. The others were released, but for the directory's sync.
func (r *recovery) keepListed(listed []segmentEnd) error {
	ends := make(map[segmentID]segmentEnd, len(listed))
	for _, s := range listed {
		ends[segmentID{s.number, s.seed}] = s
	}
	kept := r.found[:0:0]
	for i, f := range r.found {
		s, ok := ends[segmentID{f.number, f.segment.seed}]
		switch {
		case i >= r.base:
			kept = append(kept, f)
		case ok && r.options.without == ruleEnd:
			kept = append(kept, f)
		case ok:
			f.limit, f.cut = min(s.end, f.fileSize), s.cut
			kept = append(kept, f)
		default:
			if err := f.opened.Close(); err != nil {
				return err
			}
			if r.look {
				continue
			}
			if err := r.recycle(&f.segment); err != nil {
				return fmt.Errorf("spool: release segment %d: %w", f.number, err)
			}
		}
	}
	r.base -= len(r.found) - len(kept)
	r.found = kept
	return nil
}

// findDurable lists the frames from the base on and computes D.
func (r *recovery) findDurable() {
	ends := map[uint32]int64{} // of segments, as the newest one says that has a word on it
	for i := len(r.found) - 1; i >= r.base; i-- {
		f := r.found[i]
		r.tell(len(r.found) - 1 - i)
		if i < r.last {
			r.limit(f, r.found[i+1], ends)
		}
		durable := r.listFrames(f, ends)
		if r.last < 0 && f.speaks {
			// A segment gets its name only when all before it is durable. One that says
			// nothing might as well never have been made: a start goes on as that one did.
			r.last = i
			r.durable = position{f.number, durable}
		}
	}
	if r.last < 0 {
		r.last = len(r.found) - 1
		r.durable = position{segment: r.found[r.last].number}
	}
}

// limit ends f where a later segment says: what lies behind was void when the next
// one was made.
func (r *recovery) limit(f, next *foundSegment, ends map[uint32]int64) {
	end, known := ends[f.number]
	if r.options.without == ruleEnds {
		known = false
	}
	if !known && next.speaks && next.number == f.number+1 {
		end, known = next.before, true // all that versions before 1.5 say
	}
	switch {
	case r.options.without == ruleEnd:
	case known:
		f.limit = min(f.fileSize, end)
	default:
		f.endless = r.options.without != ruleEndless
	}
}

// noteEnds adds to ends what the frames of f say of segments before it, if no later
// one has spoken of them. Of those that it has among them, but does not name, nothing
// counts: they were no part of the log any more, or not yet.
func (r *recovery) noteEnds(f *foundSegment, named, ends map[uint32]int64) {
	if len(named) == 0 {
		return
	}
	lowest := slices.Min(slices.Collect(maps.Keys(named)))
	for _, g := range r.found[r.base:] {
		if _, known := ends[g.number]; !known && lowest <= g.number && g.number < f.number {
			ends[g.number] = named[g.number]
		}
	}
}

// listFrames adds what the frames say of the ends of earlier segments, and returns the
// highest byte that one of them says is durable.
func (r *recovery) listFrames(f *foundSegment, ends map[uint32]int64) (durable int64) {
	f.frames = []frame{}
	for fr := range f.scanner.frames(0, f.limit) {
		if fr.bad == nil && fr.kind != kindBatch {
			if payload, err := f.payload(fr); err == nil {
				p, _, d := openPayload(fr.kind, payload)
				if d.err == nil && !f.speaks {
					f.speaks, f.before = true, p.before
					r.noteEnds(f, d.ends(), ends)
				}
				if d.err == nil && p.durable.segment == f.number {
					durable = max(durable, p.durable.byte)
				}
			}
		}
		f.frames = append(f.frames, *fr)
	}
	if n := len(f.frames); n > 0 && f.frames[n-1].bad != nil {
		f.frames = f.frames[:n-1] // nothing intact follows: not written yet
	}
	return durable
}

// noteDamage tells it at once: a start that fails behind this hands out nothing.
func (r *recovery) noteDamage(d Damage) {
	what := "the spool was damaged: records are missing"
	if d.Records == 0 {
		what = "the spool was damaged; no record is known to be missing"
	}
	r.tellDamage(what, d)
}

func (r *recovery) tellDamage(what string, d Damage) {
	r.damage = append(r.damage, d)
	r.logger.Error(what, "segment", d.Segment, "byte", d.Position, "bytes", d.Bytes,
		"lane", d.Lane, "from", d.From, "to", d.To, "records", d.Records, "reason", d.Reason)
}

// noteBadFrame is for bytes that should be a frame.
func (r *recovery) noteBadFrame(d Damage) {
	r.badFrames = append(r.badFrames, d)
	r.noteDamage(d)
}
