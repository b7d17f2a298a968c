package spool

// Segment files: their names, how one is made and how it goes.
//
//	temp-NNNNNNNNNN             being made; deleted at the next start
//	segment-NNNNNNNNNN-SEED.v1  live: number and random seed
//	free-NNNNNNNNNN             to be recycled; the content means nothing
//
//	make     free or new file -> temp name -> checkpoint -> sync -> segment
//	         name -> sync of the directory; only behind a sync of the segment
//	         before it. A crash on the way leaves a temp file and a complete log
//	         without it.
//	release  all in it is durably acked, dropped or superseded -> free name or
//	         removed -> sync of the directory. A crash on the way leaves a
//	         segment that no checkpoint needs.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"shipper/internal/vfs"
)

// segment is one live file of the log. Owned by the writer goroutine.
type segment struct {
	number    uint32
	seed      uint64
	fileSize  int64
	diskBytes int64 // what it takes of the volume: less than fileSize once it is thinned
	residue   int64 // dead bytes that the last thinning could not free
	spared    int64 // dead bytes that it left, to heal, in a segment that a lane keeps
	end       int64 // bytes of frames; grows while it is the newest
	closed    bool  // a write behind its end failed: nothing more is appended
	cut       bool  // see segmentEnd
	lanes     map[uint32]laneSpan
	blocker   uint32 // the lane that kept it alive when that was asked last
}

// span holds the lowest and the highest index (exclusive) of a lane's frames
// in a segment.
type span struct{ from, to uint64 }

// laneSpan adds what these frames take.
type laneSpan struct {
	span
	bytes int64
}

// note takes a frame of frameBytes with the indexes [from, to) into the count.
func (s *segment) note(lane uint32, from, to uint64, frameBytes int64) {
	if have, ok := s.lanes[lane]; ok {
		from, to = min(from, have.from), max(to, have.to)
		frameBytes += have.bytes
	}
	s.lanes[lane] = laneSpan{span{from, to}, frameBytes}
}

// room is what may be appended.
func (s *segment) room() int64 {
	if s.closed {
		return 0
	}
	return s.fileSize - s.end
}

func newSegment(number uint32, seed uint64, fileSize, end int64) *segment {
	return &segment{number: number, seed: seed, fileSize: fileSize, diskBytes: fileSize, end: end, lanes: map[uint32]laneSpan{}}
}

func (s *segment) name() string { return segmentName(s.number, s.seed) }

func segmentName(number uint32, seed uint64) string {
	return fmt.Sprintf("segment-%010d-%016x.v%d", number, seed, formatMajor)
}

func tempName(number uint32) string { return fmt.Sprintf("temp-%010d", number) }
func freeName(number uint32) string { return fmt.Sprintf("free-%010d", number) }

const lockName = "lock"

// numberLimit is more than the files that a spool makes in its life: a number from
// there on is no spool's own.
const numberLimit = 1 << 31

// fileName is what a name in the directory says.
type fileName struct {
	kind   string // "segment", "temp", "free"; "" if not ours
	number uint32
	seed   uint64
	major  int
}

func parseFileName(name string) fileName {
	var f fileName
	kind, rest, _ := strings.Cut(name, "-")
	switch kind {
	case "segment":
		if n, err := fmt.Sscanf(rest, "%d-%x.v%d", &f.number, &f.seed, &f.major); n != 3 || err != nil {
			return fileName{}
		}
		if f.major < 1 { // there never was such a version
			return fileName{}
		}
		if f.major == formatMajor && segmentName(f.number, f.seed) != name {
			return fileName{}
		}
	case "temp", "free":
		if n, err := fmt.Sscanf(rest, "%d", &f.number); n != 1 || err != nil {
			return fileName{}
		}
		if fmt.Sprintf("%s-%010d", kind, f.number) != name {
			return fileName{}
		}
	default:
		return fileName{}
	}
	f.kind = kind
	return f
}

// freeFile is a file that waits to be recycled.
type freeFile struct {
	number   uint32
	fileSize int64
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

func (l *Log) newSeed() (uint64, error) {
	if l.options.without == ruleSeed {
		return 0, nil
	}
	var b [8]byte
	if _, err := io.ReadFull(l.rand, b[:]); err != nil {
		return 0, fmt.Errorf("spool: draw a seed: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// roomForFile tells whether one more file of n bytes keeps within MaxBytes and
// above MinFreeBytes.
func (l *Log) roomForFile(n int64) (bool, error) {
	if l.totalBytes+n > l.options.MaxBytes {
		return false, nil
	}
	u, err := l.fs.Usage(l.dir)
	if err != nil {
		return false, fmt.Errorf("spool: ask the volume of %s for its free space: %w", l.dir, err)
	}
	l.stats.freeBytes.Store(u.FreeBytes)
	return u.FreeBytes-n >= l.options.MinFreeBytes, nil
}

// ensureSpares writes spare files until there are enough or no room is left;
// ok says which. They are written, not only reserved, so that a commit on a
// full volume needs nothing from it.
func (l *Log) ensureSpares() (ok bool, err error) {
	for len(l.free) < sparesMin {
		room, err := l.roomForFile(l.segmentBytes)
		if err != nil || !room {
			return false, err
		}
		number := l.freeNext
		l.freeNext++
		err = l.makeFile(freeName(number), func(f vfs.File) error {
			if err := vfs.WriteZeros(f, 0, l.segmentBytes); err != nil {
				return err
			}
			return f.Sync()
		})
		if vfs.IsNoSpace(err) {
			return false, nil
		}
		if err != nil {
			return false, orFull(fmt.Errorf("spool: write a spare segment: %w", err))
		}
		l.free = append(l.free, freeFile{number, l.segmentBytes})
		l.addBytes(l.segmentBytes)
		l.stats.spares.Store(int64(len(l.free)))
	}
	return true, nil
}

// makeFile creates a file and fills it; on an error there is none.
func (l *Log) makeFile(name string, fill func(vfs.File) error) error {
	f, err := l.fs.OpenFile(l.path(name), vfs.Create)
	if err != nil {
		return err
	}
	if err = errors.Join(fill(f), f.Close()); err != nil {
		return errors.Join(err, l.fs.Remove(l.path(name)))
	}
	return nil
}

// takeFile gives the next segment a file under its temporary name with at least
// needBytes bytes: a free one beyond the spares, else a new one, else a spare
// unless keepSpares are to stay. ErrFull: none of these.
func (l *Log) takeFile(number uint32, needBytes int64, keepSpares int) (vfs.File, int64, error) {
	size := max(l.segmentBytes, needBytes)
	if err := l.removeLeftover(); err != nil {
		return nil, 0, orFull(err)
	}
	if len(l.free) <= sparesMin {
		f, err := l.createSegmentFile(number, size)
		if !errors.Is(err, ErrFull) || len(l.free) <= keepSpares {
			return f, size, err
		}
	}
	free := l.free[len(l.free)-1]
	if err := l.fs.Rename(l.path(freeName(free.number)), l.path(tempName(number))); err != nil {
		return nil, 0, orFull(fmt.Errorf("spool: recycle a segment: %w", err))
	}
	f, err := l.openRecycled(&free, number, size, needBytes)
	if err != nil {
		if rerr := l.fs.Rename(l.path(tempName(number)), l.path(freeName(free.number))); rerr != nil {
			return nil, 0, fmt.Errorf("%w; and it could not be put back: %w", err, rerr)
		}
		return nil, 0, orFull(err)
	}
	l.free = l.free[:len(l.free)-1]
	return f, free.fileSize, nil
}

// removeLeftover deletes what an attempt to make a segment left behind.
func (l *Log) removeLeftover() error {
	if l.leftover == "" {
		return nil
	}
	if err := l.fs.Remove(l.leftover); err != nil {
		return fmt.Errorf("spool: make a segment: %w", err)
	}
	l.leftover = ""
	return nil
}

func (l *Log) openRecycled(free *freeFile, number uint32, size, needBytes int64) (vfs.File, error) {
	f, err := l.fs.OpenFile(l.path(tempName(number)), vfs.Write)
	if err != nil {
		return nil, fmt.Errorf("spool: recycle a segment: %w", err)
	}
	if free.fileSize < size {
		err := f.Allocate(size)
		switch {
		case err == nil:
			l.addBytes(size - free.fileSize)
			free.fileSize = size
		case !vfs.IsNoSpace(err) || free.fileSize < needBytes:
			return nil, errors.Join(fmt.Errorf("spool: grow segment %d to %d bytes: %w", number, size, err), f.Close())
		}
	}
	return f, nil
}

// createSegmentFile makes a new file; ErrFull if there is no room for it.
func (l *Log) createSegmentFile(number uint32, size int64) (vfs.File, error) {
	room, err := l.roomForFile(size)
	if err != nil {
		return nil, err
	}
	if !room {
		return nil, ErrFull
	}
	return l.makeSegmentFile(number, size)
}

// makeSegmentFile makes a new file whatever the limits say; ErrFull if the
// volume has no room.
func (l *Log) makeSegmentFile(number uint32, size int64) (vfs.File, error) {
	name := l.path(tempName(number))
	f, err := l.fs.OpenFile(name, vfs.Create)
	if err == nil {
		if err = f.Allocate(size); err != nil {
			l.leftover = name
			err = errors.Join(err, f.Close(), l.removeLeftover())
		}
	}
	if vfs.IsNoSpace(err) {
		return nil, ErrFull
	}
	if err != nil {
		return nil, orFull(fmt.Errorf("spool: make segment %d: %w", number, err))
	}
	l.addBytes(size)
	return f, nil
}

// publish syncs a segment written under its temporary name, gives it its name
// and makes it the newest. An error here is final.
func (l *Log) publish(f vfs.File, s *segment) error {
	if l.options.without != ruleName {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("spool: sync new segment %d: %w", s.number, err)
		}
	}
	if err := l.fs.Rename(l.path(tempName(s.number)), l.path(s.name())); err != nil {
		return fmt.Errorf("spool: name new segment %d: %w", s.number, err)
	}
	if err := l.names.Sync(); err != nil {
		return fmt.Errorf("spool: sync directory %s: %w", l.dir, err)
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return fmt.Errorf("spool: close segment %d: %w", l.newest().number, err)
		}
	}
	l.file = f
	l.segments = append(l.segments, s)
	l.thinDue = true
	l.setDurable(position{s.number, s.end})
	l.publishTable()
	return nil
}

func (l *Log) newest() *segment { return l.segments[len(l.segments)-1] }

func (l *Log) addBytes(n int64) {
	l.totalBytes += n
	l.stats.usedBytes.Store(l.totalBytes)
}

// roll starts the next segment: sync of the one before, checkpoint, name.
// newLines says that the group to come holds some, so spares are not for it.
func (l *Log) roll(groupBytes int64, newLines bool) error {
	if l.options.without != ruleOrder {
		if err := l.sync(); err != nil {
			return err
		}
	}
	keepSpares := 0
	if newLines {
		keepSpares = sparesMin
	}
	l.pruneLanes()
	number := l.newest().number + 1
	payload := l.checkpointPayload()
	for l.segmentBytes < 32*int64(len(payload)) && l.segmentBytes < l.options.MaxBytes/segmentsMin {
		l.segmentBytes = min(2*l.segmentBytes, roundUp(l.options.MaxBytes/segmentsMin, 4096))
	}
	end := roundUp(commitHeaderBytes+int64(len(payload)), blockBytes)
	seed, err := l.newSeed()
	if err != nil {
		return err
	}
	f, fileSize, err := l.takeFile(number, end+groupBytes, keepSpares)
	if err != nil {
		return err
	}
	patchCheckpoint(payload, preface{position{number, end}, l.newest().end}, fileSize)
	l.stage = appendCommitFrame(l.stage[:0], kindCheckpoint, seed, 0, payload)
	if _, err := f.WriteAt(l.stage, 0); err != nil {
		err = fmt.Errorf("spool: write the checkpoint of segment %d: %w", number, err)
		if cerr := f.Close(); cerr != nil {
			return errors.Join(err, cerr)
		}
		l.addBytes(-fileSize)
		l.leftover = l.path(tempName(number))
		return orFull(errors.Join(err, l.removeLeftover()))
	}
	return l.publish(f, newSegment(number, seed, fileSize, end))
}

// checkpointPayload holds the whole state. Its preface and the size of its file are
// patched when they are known.
func (l *Log) checkpointPayload() []byte {
	ends := make([]segmentEnd, len(l.segments))
	for i, s := range l.segments {
		ends[i] = segmentEnd{s.number, s.seed, s.end, s.cut}
	}
	e := encoder{buf: appendPreamble(l.payload.buf[:0])}
	e.buf = appendPreface(e.buf, preface{})
	e.begin(entryFile)
	e.u64(0)
	e.end()
	e.ends(l.segments)
	l.state.appendState(&e, ends)
	l.payload.buf = e.buf
	return e.buf
}

func patchCheckpoint(checkpoint []byte, p preface, fileBytes int64) {
	rest := checkpoint[len(appendPreface(checkpoint[:preambleBytes], p)):]
	binary.LittleEndian.PutUint64(rest[2:], uint64(fileBytes)) // behind kind and length
}

// pruneLanes lets lanes forget what no held frame needs.
func (l *Log) pruneLanes() {
	held := map[uint32]uint64{}
	for _, s := range l.segments {
		for lane, span := range s.lanes {
			if low, ok := held[lane]; !ok || span.from < low {
				held[lane] = span.from
			}
		}
	}
	for id, lane := range l.state.lanes {
		if low, ok := held[id]; ok {
			lane.prune(low)
		} else {
			lane.prune(lane.head)
		}
	}
}

// segmentsKept are the newest segments, which stay: should the last checkpoint be
// damaged, the one before it and the commits behind that say nearly all.
const segmentsKept = 2

// release gives up dead segments, wherever they stand, but for the kept newest
// ones and those within the newest retainBytes of what is dead; count tells how
// many. Called behind a sync, when all that the state says is durable. An error
// is final.
func (l *Log) release(retainBytes int64, kept int) (count int, err error) {
	retained, empty := int64(0), 0
	var gone []*segment
	for i := len(l.segments) - 1 - kept; i >= 0; i-- {
		s := l.segments[i]
		if !l.dead(s) {
			retained += s.spared
			continue
		}
		if len(s.lanes) == 0 {
			empty++ // short starts leave such: only their acks are of use
		}
		if retained += s.diskBytes; retained > retainBytes || empty > emptyRetainedMax {
			gone = append(gone, s)
		}
	}
	return len(gone), l.giveUp(gone)
}

// giveUp takes segments out of the log and gives their files back. A crash on
// the way leaves files that no checkpoint lists, or segments that nobody needs;
// a directory that cannot be changed now leaves them for later.
func (l *Log) giveUp(gone []*segment) error {
	if len(gone) > 0 {
		l.segments = slices.DeleteFunc(l.segments, func(s *segment) bool { return slices.Contains(gone, s) })
		l.publishTable() // first: no reader opens what is about to be recycled
		l.doomed = append(l.doomed, gone...)
	}
	changed := false
	for len(l.doomed) > 0 {
		s := l.doomed[0]
		if err := l.recycle(s); orFull(err) != err {
			break
		} else if err != nil {
			return fmt.Errorf("spool: release segment %d: %w", s.number, err)
		}
		l.doomed, changed = l.doomed[1:], true
	}
	if !changed {
		return nil
	}
	if err := l.names.Sync(); err != nil {
		return fmt.Errorf("spool: sync directory %s: %w", l.dir, err)
	}
	return nil
}

// recycle keeps the file for later use or removes it. Short ones were cut off
// by a recovery, others have holes; the room they gave back is not taken again
// here.
func (l *Log) recycle(s *segment) error {
	if len(l.free) >= freeKeepMax || s.diskBytes < l.options.segmentBytes {
		if err := l.fs.Remove(l.path(s.name())); err != nil {
			return err
		}
		l.addBytes(-s.diskBytes)
		return nil
	}
	number := l.freeNext
	l.freeNext++
	if err := l.fs.Rename(l.path(s.name()), l.path(freeName(number))); err != nil {
		return err
	}
	l.free = append(l.free, freeFile{number, s.fileSize})
	l.stats.spares.Store(int64(len(l.free)))
	return nil
}
