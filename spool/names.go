package spool

// Step 1 of a recovery: which files there are.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"shipper/internal/vfs"
)

// readNames opens the segments and deletes what was being made.
func (r *recovery) readNames() error {
	r.noted = readNote(r.fs, r.path(noteName))
	names, err := r.fs.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("spool: list %s: %w", r.dir, err)
	}
	for _, name := range names {
		n := parseFileName(name)
		switch {
		case r.look && n.kind != "segment":
			continue
		case n.kind == "segment":
			r.taken[n.number] = true
			err = r.openSegment(name, n)
		case n.kind == "temp":
			if err = r.fs.Remove(r.path(name)); err != nil { // somebody's directory
				r.taken[n.number] = true
				err = vfs.ErrNoFile
			}
		case n.kind == "free":
			err = r.keepFree(name, n.number)
		}
		if errors.Is(err, vfs.ErrNoFile) { // waiting for a pipe, or failing each time, helps nobody
			r.noteDamage(Damage{Reason: name + " is " + vfs.ErrNoFile.Error() + "; it is left alone"})
			err = nil
		}
		if err != nil {
			return fmt.Errorf("spool: %s: %w", r.path(name), err)
		}
	}
	slices.SortFunc(r.found, func(a, b *foundSegment) int {
		if a.number != b.number {
			return cmp.Compare(a.number, b.number)
		}
		return cmp.Compare(r.totalOf(a), r.totalOf(b))
	})
	if r.opened.err != nil {
		return r.opened.err
	}
	return r.dropTwins()
}

// dropTwins leaves one segment of each number: the one that had numbered more
// records when it was begun. A directory that forgot a name and remembers it after
// another start holds two. The other file goes when the log is good again.
func (r *recovery) dropTwins() error {
	kept := r.found[:0]
	for i, f := range r.found {
		if i+1 < len(r.found) && r.found[i+1].number == f.number {
			r.noteDamage(Damage{Segment: f.number, Bytes: f.fileSize, Reason: "another file is segment " + r.found[i+1].name()})
			if err := f.opened.Close(); err != nil {
				return err
			}
			r.void = append(r.void, &f.segment)
			continue
		}
		kept = append(kept, f)
	}
	r.found = kept
	return nil
}

// totalOf is how many records a segment's checkpoint counts; -1: it is not intact.
func (r *recovery) totalOf(f *foundSegment) int64 {
	h, err := f.header(0, f.fileSize)
	if err != nil || h.kind != kindCheckpoint {
		return -1
	}
	payload, err := f.payload(&frame{header: h})
	if err != nil {
		return -1
	}
	st := newState()
	_, _, d := openPayload(h.kind, payload)
	if _, _, err := st.replay(d.b); d.err != nil || err != nil {
		return -1
	}
	return int64(st.claimed)
}

func (r *recovery) openSegment(name string, n fileName) error {
	if n.major != formatMajor {
		return fmt.Errorf("%w (version %d, this program knows %d): start the version that wrote it, or a later one", ErrNewerFormat, n.major, formatMajor)
	}
	f, err := r.opened.start(r.path(name))
	if err != nil {
		return err
	}
	size, err := f.file.Size()
	disk, derr := f.file.DiskBytes()
	if err = errors.Join(err, derr); err != nil {
		return errors.Join(err, f.Close())
	}
	found := &foundSegment{segment: *newSegment(n.number, n.seed, size, 0), scanner: scanner{file: f, seed: n.seed}, limit: size, opened: f}
	found.diskBytes = min(size, disk) // thinned by an earlier life
	r.found = append(r.found, found)
	r.addBytes(found.diskBytes)
	return nil
}

// keepFree takes over a file for recycling, unless a crash left it too short, or its
// number is none that a spool reaches.
func (r *recovery) keepFree(name string, number uint32) error {
	if number < numberLimit {
		r.freeNext = max(r.freeNext, number+1)
	}
	f, err := r.fs.OpenFile(r.path(name), vfs.Read)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if size < r.segmentBytes || len(r.free) >= freeKeepMax || number >= numberLimit {
		return r.fs.Remove(r.path(name))
	}
	r.free = append(r.free, freeFile{number, size})
	r.addBytes(size)
	return nil
}
