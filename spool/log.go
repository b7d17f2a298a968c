// Package spool is the one durable place of the agent: a log of record batches
// and of everything that must survive with them (lanes, files and how far they
// were read, identities, acks, gaps).
//
//	Append   group = batch frames, then one commit frame; nothing of it counts
//	         before the commit frame is intact
//	Sync     makes all groups durable, tells the readers, releases segments
//	Reader   reads batches below the durable position
//	Open     finds what is durable or whole, copies what is only whole, starts
//	         a new segment; what is damaged below that is a counted gap
//
// A Log belongs to one goroutine and starts none; a Reader belongs to one other
// goroutine. They share immutable bytes, the durable position and the table of
// segments. docs/format/spool.md describes the bytes and the recovery.
package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"shipper/internal/vfs"
)

// Log is the writing end. All of it belongs to one goroutine, except Stats and
// what is marked as shared.
type Log struct {
	fs      vfs.FS
	dir     string
	options Options
	logger  *slog.Logger
	rand    io.Reader
	lock    io.Closer
	names   vfs.Dir // of dir; open all the time, for its syncs

	segmentBytes int64 // of the next new file
	state        state
	segments     []*segment // ascending; the last is written to
	file         vfs.File   // of the last
	note         note       // how many records there are, outside of it
	durable      position   // a sync has returned up to here
	free         []freeFile
	freeNext     uint32            // number of the next free file
	totalBytes   int64             // of all files
	asked        map[uint32]uint64 // lanes that may heal: from which index on, see AckedFrom
	gapsMoved    bool              // gaps were listed or told since the last commit
	doomed       []*segment        // given up, but the directory could not be changed
	leftover     string            // path of a temporary file that could not be removed
	refsAt       map[uint32]refsAt // by lane
	settled      bool              // no ack, gap or segment since the last release
	thinDue      bool              // a segment was made since the last thinning
	noRoom       bool              // it is due because new lines find no room
	thinning     bool              // its own writes do not start another
	punchless    bool              // the file system makes no holes
	failed       error             // the final error, once there is one

	stage   []byte  // bytes of frames on their way to the file
	payload encoder // of the commit in hand

	shared shared
	stats  counters
}

// shared is what readers see: written by the owner, read by anyone.
type shared struct {
	durable atomic.Uint64 // segment<<32 | block
	table   atomic.Pointer[[]segmentID]
	moved   atomic.Pointer[map[place]movedBatch] // never changed, but replaced
}

// segmentID names a segment file; a table of them is never changed.
type segmentID struct {
	number uint32
	seed   uint64
}

// Open locks o.Dir (made with mode 0700), recovers, publishes a new segment and
// returns the log ready to append. An error is one sentence that says what to
// do; those worth telling apart are ErrInUse, ErrTooSmall, ErrNetworkFS and
// ErrNewerFormat. Damage is no error: see Recovered.
func Open(o Options) (*Log, *Recovered, error) {
	o.setUnset()
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, nil, fmt.Errorf("spool: make directory %s: %w", o.Dir, err)
	}
	usage, err := o.FS.Usage(o.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("spool: ask the volume of %s for its size: %w", o.Dir, err)
	}
	if err := o.settle(usage); err != nil {
		return nil, nil, err
	}
	for _, w := range o.warnings(usage) {
		o.Logger.Warn(w)
	}
	l := &Log{
		fs: o.FS, dir: o.Dir, options: o, logger: o.Logger, rand: o.rand,
		segmentBytes: o.segmentBytes, state: newState(), asked: map[uint32]uint64{}, refsAt: map[uint32]refsAt{},
	}
	l.stats.freeBytes.Store(usage.FreeBytes)
	lock, holder, err := o.FS.Lock(l.path(lockName), fmt.Sprintf("pid %d\n", os.Getpid()))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, nil, fmt.Errorf("%w: %s is locked by another agent (%s); stop it or give this one another spool.dir", ErrInUse, o.Dir, cmp.Or(holder, "its lock file was removed"))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("spool: lock %s: %w", o.Dir, err)
	}
	l.lock = lock
	if l.names, err = o.FS.OpenDir(o.Dir); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("spool: open %s: %w", o.Dir, err), lock.Close())
	}
	recovered, err := l.recover()
	if err != nil {
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
		err = errors.Join(err, l.note.close(), l.names.Close())
		return nil, nil, errors.Join(err, lock.Close())
	}
	return l, recovered, nil
}

// GroupBytesMax bounds what one Append writes: a quarter of a segment. See
// FrameBytes; the commit frame counts too.
func (l *Log) GroupBytesMax() int64 { return groupBytesMax(l.options.segmentBytes) }

var noCommit Commit

// Append writes one group: the batches, then a commit frame with c (which may be
// nil). It appends one Ref per batch to dst. The group is not durable before
// Sync returns, and may be read only then.
//
// ErrFull: a batch holds new lines and there is no room for it; ErrGroupTooLarge:
// see GroupBytesMax. In both cases nothing was written. Any other error is final:
// the process must exit and recover. A crash in here leaves a group without an
// intact commit, which never happened.
//
// Batches of one lane are ascending and start at its next index; a batch that
// lies wholly below it replaces what is there. Append may sync by itself.
func (l *Log) Append(dst []Ref, batches []Batch, c *Commit) ([]Ref, error) {
	if l.failed != nil {
		return dst, l.failed
	}
	if c == nil {
		c = &noCommit
	}
	newRecords := l.check(batches, c)
	groupBytes := l.encodeGroup(batches, c, newRecords)
	if groupBytes > l.GroupBytesMax() {
		return dst, fmt.Errorf("%w: %d bytes, at most %d", ErrGroupTooLarge, groupBytes, l.GroupBytesMax())
	}
	moved, err := l.makeRoom(groupBytes, newRecords > 0, c.Optional)
	if errors.Is(err, ErrFull) {
		l.stats.refused.Add(1)
		return dst, err
	}
	if err != nil {
		return dst, l.fail(err)
	}
	if moved {
		groupBytes = l.encodeGroup(batches, c, newRecords) // `durable` has moved
	}
	refs := len(dst)
	dst, err = l.writeGroup(dst, batches)
	if full := orFull(err); full != err {
		// What was written of it never counts: the next segment says that this
		// one ends before it. If there is none when all stops, and even its
		// commit is there, it is the last thing that happened.
		l.newest().closed = true
		l.stats.refused.Add(1)
		return dst[:refs], full
	}
	if err != nil {
		return dst[:refs], l.fail(fmt.Errorf("spool: write to segment %d: %w", l.newest().number, err))
	}
	if err := l.state.apply(batches, c); err != nil {
		panic("BUG: spool append: " + err.Error())
	}
	l.gapsMoved = false
	if len(c.Acks)+len(c.Gaps)+len(c.Heads) > 0 {
		l.settled = false
		l.forgetAsked(c)
	}
	l.stats.groups.Add(1)
	l.stats.batches.Add(int64(len(batches)))
	l.stats.writtenBytes.Add(groupBytes)
	return dst, nil
}

// check panics on what no caller may ask for and counts the records that get a
// number here.
func (l *Log) check(batches []Batch, c *Commit) (newRecords uint64) {
	for i := range batches {
		b := &batches[i]
		next, known := l.nextOf(b.Lane, batches[:i], c)
		switch end := b.First + uint64(b.Count); {
		case !known:
			panic(fmt.Sprintf("BUG: spool append: batch of lane %d, which no commit has named", b.Lane))
		case b.Count == 0 || b.First > next || b.First < next && end > next:
			panic(fmt.Sprintf("BUG: spool append: batch [%d, %d) of lane %d, whose next index is %d", b.First, end, b.Lane, next))
		case end > next:
			newRecords += end - next
		}
	}
	for i := range c.Acks {
		l.checkIndex("ack", c.Acks[i].Lane, c.Acks[i].Next(), batches, c)
	}
	for i := range c.Heads {
		l.checkIndex("head", c.Heads[i].Lane, c.Heads[i].Index, batches, c)
	}
	for i := range c.Gaps {
		l.checkIndex("gap", c.Gaps[i].Lane, c.Gaps[i].To, batches, c)
	}
	return newRecords
}

func (l *Log) checkIndex(what string, lane uint32, index uint64, batches []Batch, c *Commit) {
	if next, _ := l.nextOf(lane, batches, c); index > next {
		panic(fmt.Sprintf("BUG: spool append: %s of lane %d at index %d, whose next index is %d", what, lane, index, next))
	}
}

func (l *Log) nextOf(id uint32, before []Batch, c *Commit) (next uint64, known bool) {
	if lane := l.state.lanes[id]; lane != nil {
		next, known = lane.next, true
	}
	for i := range c.Lanes {
		known = known || c.Lanes[i].ID == id
	}
	for i := len(before) - 1; i >= 0; i-- {
		if before[i].Lane == id {
			return max(next, before[i].First+uint64(before[i].Count)), known
		}
	}
	return next, known
}

// encodeGroup encodes the commit's payload and returns the room of the group.
func (l *Log) encodeGroup(batches []Batch, c *Commit, newRecords uint64) int64 {
	e := &l.payload
	e.buf = e.buf[:0]
	e.buf = appendPreface(e.buf, preface{l.durable, l.endBefore()})
	e.ends(l.segments[:len(l.segments)-1])
	e.total(l.state.total + newRecords)
	if l.gapsMoved {
		e.told(&l.state)
	}
	e.commit(c)
	n := int64(0)
	for i := range batches {
		b := &batches[i]
		n += FrameBytes(len(b.Records))
		if i+1 == len(batches) || batches[i+1].Lane != b.Lane {
			e.next(b.Lane, b.First+uint64(b.Count))
		}
	}
	return n + roundUp(commitHeaderBytes+int64(len(e.buf)), blockBytes)
}

// directBytes is from where on records are written from the caller's slice
// instead of being gathered with their neighbours.
const directBytes = 32 << 10

// writeGroup writes the frames behind the tail and moves it.
func (l *Log) writeGroup(dst []Ref, batches []Batch) ([]Ref, error) {
	s := l.newest()
	l.stage = l.stage[:0]
	at := s.end // where the stage goes
	for i := range batches {
		b := &batches[i]
		position := at + int64(len(l.stage))
		l.stage = appendBatchHeader(l.stage, s.seed, position, b)
		if len(b.Records) < directBytes {
			l.stage = padToBlock(append(l.stage, b.Records...))
		} else {
			if err := l.flushStage(at); err != nil {
				return dst, err
			}
			if _, err := l.file.WriteAt(b.Records, position+batchHeaderBytes); err != nil {
				return dst, err
			}
			at = position + FrameBytes(len(b.Records))
		}
		dst = append(dst, Ref{
			First: b.First, MaxTime: b.MaxTime, Count: b.Count,
			Segment: s.number, Block: uint32(position / blockBytes), Bytes: uint32(len(b.Records)),
		})
	}
	l.stage = padToBlock(appendCommitFrame(l.stage, kindCommit, s.seed, at+int64(len(l.stage)), l.payload.buf))
	end := at + int64(len(l.stage))
	if err := l.flushStage(at); err != nil {
		return dst, err
	}
	for i := range batches {
		b := &batches[i]
		s.note(b.Lane, b.First, b.First+uint64(b.Count), FrameBytes(len(b.Records)))
	}
	s.end = end
	return dst, nil
}

var zeroBlock [blockBytes]byte

// padToBlock fills up the last block of the stage, which starts on one.
func padToBlock(stage []byte) []byte {
	return append(stage, zeroBlock[:roundUp(int64(len(stage)), blockBytes)-int64(len(stage))]...)
}

func (l *Log) flushStage(at int64) error {
	_, err := l.file.WriteAt(l.stage, at)
	l.stage = l.stage[:0]
	return err
}

// Sync makes all appended groups durable, publishes that to the readers and
// releases segments, and parts of segments, that nobody needs. An error is
// final: the kernel may have dropped the pages and a second sync would lie, so
// the process must exit and recover.
func (l *Log) Sync() error {
	if err := l.sync(); err != nil || !l.thinDue || len(l.asked) > 0 {
		return err
	}
	noRoom := l.noRoom
	l.thinDue, l.noRoom = false, false
	if err := l.thin(l.options.RetainAckedBytes, noRoom); err != nil {
		return l.fail(err)
	}
	if !l.settled {
		return l.sync()
	}
	return nil
}

// sync leaves segments as they are: it is also called when room for a group is
// already found.
func (l *Log) sync() error {
	if l.failed != nil {
		return l.failed
	}
	s := l.newest()
	if l.options.without == ruleRelease {
		if _, err := l.release(l.options.RetainAckedBytes, segmentsKept); err != nil {
			return l.fail(err)
		}
	}
	if l.durable.byte != s.end {
		if err := l.file.Sync(); err != nil {
			return l.fail(fmt.Errorf("spool: sync segment %d: %w", s.number, err))
		}
		l.setDurable(position{s.number, s.end})
		l.note.write(&l.state.spoolID, l.state.total)
		l.stats.syncs.Add(1)
	}
	if !l.settled {
		if _, err := l.release(l.options.RetainAckedBytes, segmentsKept); err != nil {
			return l.fail(err)
		}
		l.settled = true
	}
	return nil
}

// fail remembers the final error: no later call writes anything.
func (l *Log) fail(err error) error {
	if l.failed == nil {
		l.failed = err
	}
	return err
}

func (l *Log) setDurable(p position) {
	l.durable = p
	l.shared.durable.Store(uint64(p.segment)<<32 | uint64(p.byte/blockBytes))
}

// publishTable tells readers and Stats which segments there are.
func (l *Log) publishTable() {
	table := make([]segmentID, len(l.segments))
	for i, s := range l.segments {
		table[i] = segmentID{s.number, s.seed}
	}
	l.shared.table.Store(&table)
	l.stats.segments.Store(int64(len(l.segments)))
	l.stats.spares.Store(int64(len(l.free)))
	l.settled = false
}

// Close syncs what is appended and gives up the lock. Readers must be closed
// by their owners.
func (l *Log) Close() error {
	err := l.failed
	if err == nil {
		err = l.Sync()
	}
	return errors.Join(err, l.file.Close(), l.note.close(), l.names.Close(), l.lock.Close())
}
