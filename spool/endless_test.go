package spool

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"shipper/internal/vfs"
)

// staleEnd is a disk on which the end of segment 1 is back that a start had found
// missing: batches 5 to 9, their file's offset and an ack. Meanwhile there were starts,
// the last of which gave index 5 to another line. Then all checkpoints but the first
// go bad, and the batch with that line. That it is lost must be told, and nothing of
// what never happened may move a file or a head.
func staleEnd(w *world, starts int) error {
	w.retain = 1 << 20
	mem := vfs.NewMem()
	l, _, err := Open(w.options(mem))
	if err != nil {
		return err
	}
	group := func(batches []Batch, c *Commit) {
		if _, aerr := l.Append(nil, batches, c); err == nil {
			err = errors.Join(aerr, l.Sync())
		}
	}
	group(nil, &Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}, Begun: []string{"b"}})
	l.thinDue = false
	if err = errors.Join(err, l.roll(blockBytes, false)); err != nil { // names both: segment 2
		return err
	}
	for i := range uint64(5) {
		group([]Batch{testBatch(1, i, 1, 100)}, &Commit{Cursors: []Cursor{{Source: 1, Offset: int64(i + 1)}}})
	}
	group(nil, nil) // says that they are durable: a start has nothing to copy
	disk := mem.Kill()
	for i := range uint64(5) {
		group([]Batch{testBatch(1, 5+i, 1, 100)}, &Commit{Cursors: []Cursor{{Source: 1, Offset: int64(6 + i)}}})
	}
	group(nil, &Commit{Acks: []Ack{{Lane: 1, First: 0, Count: 7}}})
	stale, name := mem.Kill(), l.path(l.newest().name())

	var lost Ref
	for i := range starts {
		if l, _, err = Open(w.options(disk)); err != nil {
			return err
		}
		if i+1 < starts {
			disk = disk.Kill()
		}
	}
	refs, err := l.Append(nil, []Batch{testBatch(1, 5, 1, 300)}, &Commit{Cursors: []Cursor{{Source: 1, Offset: 6}}})
	if err == nil {
		err = l.Sync()
	}
	group(nil, nil) // says that it is durable
	if err != nil {
		return err
	}
	lost = refs[0]
	disk = disk.Kill()
	if err := copyFile(disk, stale, name); err != nil {
		return err
	}
	for _, s := range l.segments {
		if s.number > 2 {
			err = errors.Join(err, flip(disk, l.path(s.name()), 8*100))
		}
	}
	if err = errors.Join(err, flip(disk, l.path(l.newest().name()), 8*int64(lost.Block)*blockBytes)); err != nil {
		return err
	}
	l, r, err := Open(w.options(disk))
	if err != nil {
		return err
	}
	lane := r.Lanes[0]
	if !slices.ContainsFunc(r.Damage, func(d Damage) bool { return d.From <= 5 && 5 < d.To }) {
		return fmt.Errorf("record 5 is lost without a word: %+v, %+v", lane, r.Damage)
	}
	if lane.Head != 0 || r.Sources[0].Offset > 6 || len(r.Begun) != 1 {
		return fmt.Errorf("head %d, offset %d, %v: from what never happened", lane.Head, r.Sources[0].Offset, r.Begun)
	}
	uncertain := slices.ContainsFunc(l.Untold(), func(u UntoldGap) bool { return u.Reason == GapUncertain })
	if starts > endsRepeated != uncertain {
		return fmt.Errorf("%d starts: uncertain %v, %+v", starts, uncertain, r.Damage)
	}
	if err := l.Close(); err != nil {
		return err
	}
	if l, r, err = Open(w.options(disk)); err != nil || len(r.Damage) > 0 {
		return fmt.Errorf("told again: %+v, %w", r, err)
	}
	return l.Close()
}

// TestStaleEnd: up to three starts in a row the end of the segment before them is
// known from a later one. Behind more, what it may hold is uncertain, and told.
func TestStaleEnd(t *testing.T) {
	for starts := 1; starts <= endsRepeated+2; starts++ {
		if err := staleEnd(newWorld(1), starts); err != nil {
			t.Errorf("%d starts: %v", starts, err)
		}
	}
}

// copyFile puts a file as it is on one disk onto another.
func copyFile(to, from *vfs.Mem, name string) error {
	in, err := from.OpenFile(name, vfs.Read)
	if err != nil {
		return err
	}
	size, err := in.Size()
	if err != nil {
		return err
	}
	data := make([]byte, size)
	if err := errors.Join(readFull(in, data, 0), in.Close()); err != nil {
		return err
	}
	out, err := to.OpenFile(name, vfs.Write)
	if err != nil {
		return err
	}
	_, err = out.WriteAt(data, 0)
	return errors.Join(err, out.Sync(), out.Close())
}
