package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"shipper/internal/vfs"
)

// What a full spool is, and who fills it.

// fullError is ErrFull with a cause beyond the limits: the volume or the
// directory refuses. Nothing of the call counts; it may be tried again.
type fullError struct{ cause error }

func (e *fullError) Error() string { return ErrFull.Error() + ": " + e.cause.Error() }
func (e *fullError) Is(t error) bool {
	return t == ErrFull || t == ErrVolumeFull && vfs.IsNoSpace(e.cause)
}
func (e *fullError) Unwrap() error { return e.cause }

// orFull makes a *fullError of an error that may pass by itself: no space, or a
// directory or volume that may not be changed now. Never for a sync, after which
// nobody knows what is durable.
func orFull(err error) error {
	if vfs.IsNoSpace(err) || isDenied(err) {
		if !errors.Is(err, ErrFull) {
			return &fullError{err}
		}
	}
	return err
}

// isDenied tells whether more room would not help.
func isDenied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || vfs.IsNoDescriptor(err)
}

// IsNoDescriptor tells whether err, of any call, says that no file can be opened now.
func IsNoDescriptor(err error) bool { return vfs.IsNoDescriptor(err) }

// makeRoom sees to it that the group fits behind the tail. moved says that the
// durable position has changed meanwhile.
func (l *Log) makeRoom(groupBytes int64, newLines, optional bool) (moved bool, err error) {
	before := l.durable
	err = l.tryRoom(groupBytes, newLines || optional)
	if errors.Is(err, ErrFull) && !l.thinning && !optional && !isDenied(err) {
		before = position{} // copies may have been appended meanwhile
		freed, ferr := l.freeMore(newLines)
		switch {
		case ferr != nil:
			err = ferr
		case freed:
			err = l.tryRoom(groupBytes, newLines)
		}
		if ferr == nil && newLines && errors.Is(err, ErrFull) && l.volumeLimits() {
			if err = l.goRound(groupBytes); err == nil {
				err = l.tryRoom(groupBytes, true)
			}
		}
	}
	if err == ErrFull && l.volumeLimits() { // also for a file that others took the space of meanwhile
		err = &fullError{ErrVolumeFull}
	}
	return l.durable != before, err
}

// volumeLimits tells whether MaxBytes would allow one more file.
func (l *Log) volumeLimits() bool { return l.totalBytes+l.segmentBytes <= l.options.MaxBytes }

// VolumeFull tells whether MaxBytes would allow one more file and the volume, as it
// was when it was asked last, does not.
func (l *Log) VolumeFull() bool {
	return l.volumeLimits() && l.stats.freeBytes.Load()-l.segmentBytes < l.options.MinFreeBytes
}

// goRound turns the few files over that a log has whose volume others filled: what
// is dead goes, but for the newest, and a newest that is dead and full is followed
// by a spare, for which it becomes one at once. So new lines go on, a segment at a
// time, with three files and no byte free. The caller takes them only if there are
// two spares then: what they need to be acked is there before they are. A crash
// behind the new segment leaves a dead one and a spare less, and nothing to drain.
//
// Should the newest checkpoint rot meanwhile, there is no older one: files are
// read again from their start. Nothing is lost by that, and waiting for space
// would stop an agent whose lines Kafka takes.
func (l *Log) goRound(groupBytes int64) error {
	if err := l.sync(); err != nil {
		return err
	}
	if s := l.newest(); groupBytes > s.room() && l.dead(s) && len(l.free) >= sparesMin {
		if err := l.roll(groupBytes, false); err != nil {
			return err
		}
	}
	_, err := l.release(0, 1)
	return err
}

// freeMore gives up what can be given up when a group finds no room; freed tells
// whether there was something. New lines may take what a lane has asked for; the
// commit that moves its head back may not.
func (l *Log) freeMore(newLines bool) (freed bool, err error) {
	if newLines {
		clear(l.asked)
	}
	l.settled, l.thinDue, l.noRoom = false, true, newLines
	used, carried := l.totalBytes-l.spareBytes(), l.stats.carriedBytes.Load()
	if err := l.Sync(); err != nil {
		return false, err
	}
	if !newLines || l.volumeLimits() {
		// Others fill the volume, or the spares are used up by commits without new
		// lines, which must never wait. What is only kept to heal goes first. (It
		// never makes new lines wait within MaxBytes: it is a quarter at most.)
		kept := segmentsKept
		if !newLines {
			kept = 1 // one more file, or two segments of commits would be the end
		}
		if _, err := l.release(0, kept); err != nil {
			return false, err
		}
		if len(l.asked) == 0 {
			err = l.thin(0, newLines)
		}
	}
	// Copies may have taken a spare, which what they came from makes room for.
	return l.totalBytes-l.spareBytes() < used || l.stats.carriedBytes.Load() > carried, err
}

func (l *Log) spareBytes() (sum int64) {
	for _, f := range l.free {
		sum += f.fileSize
	}
	return sum
}

func (l *Log) tryRoom(groupBytes int64, newLines bool) error {
	if newLines {
		// New lines leave the spares alone: also when one has become the newest.
		if ok, err := l.ensureSpares(); err != nil || !ok {
			if err == nil {
				err = ErrFull
			}
			return err
		}
	}
	s := l.newest()
	if groupBytes > s.room() {
		return l.roll(groupBytes, newLines)
	}
	if unsynced := s.end - l.durable.byte; unsynced > 0 && unsynced+groupBytes > l.segmentBytes/2 {
		// A recovery has to copy what is not durable into its first segment.
		return l.sync()
	}
	return nil
}

// Room is about how many bytes of new lines fit before the spool is full: what
// the newest segment has left and the files that may still be made, within
// MaxBytes and above MinFreeBytes. A group does not span segments, so of each
// file a quarter is left out of account.
func (l *Log) Room() (int64, error) {
	u, err := l.fs.Usage(l.dir)
	if err != nil {
		return 0, fmt.Errorf("spool: ask the volume of %s for its free space: %w", l.dir, err)
	}
	l.stats.freeBytes.Store(u.FreeBytes)
	files := min(l.options.MaxBytes-l.totalBytes, u.FreeBytes-l.options.MinFreeBytes)/l.segmentBytes + int64(len(l.free)-sparesMin)
	if files < 0 {
		return 0, nil
	}
	return l.newest().room() + files*(l.segmentBytes/4*3), nil
}

// Next is the index that the lane's next new record gets; 0 for a lane that no
// commit has named.
func (l *Log) Next(lane uint32) uint64 {
	if s := l.state.lanes[lane]; s != nil {
		return s.next
	}
	return 0
}

// LiveBytes adds up what of each lane's batches still is to be sent: bytes of
// their frames, about. add is called for each lane and segment.
func (l *Log) LiveBytes(add func(lane uint32, bytes int64)) {
	for _, s := range l.segments {
		for id, span := range s.lanes {
			if n := l.liveOf(id, span); n > 0 {
				add(id, n)
			}
		}
	}
}

// endBefore is where the segment before the newest ends.
func (l *Log) endBefore() int64 {
	if len(l.segments) < 2 {
		return 0
	}
	return l.segments[len(l.segments)-2].end
}
