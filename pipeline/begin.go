package pipeline

import (
	"context"

	"shipper/spool"
	"shipper/tail"
)

// The first start of sources with start_at: end. What was in their files then is
// passed over, once. A start that died right there must not make the next one
// the first again: it would pass over lines that came meanwhile. So before any
// file of any source is read, the places where these files begin are durable,
// with the note that these sources have begun.
//
//	crash before that   nothing was read; the next start is the first
//	crash behind it     every file begins where the first start found its end, and
//	                    one that came since at its beginning

// Began implements tail.Handler.
func (d *dispatch) Began(ctx context.Context, files []*tail.File) {
	groups := d.beginnings(files)
	durable := make(chan struct{})
	groups[len(groups)-1].durable = durable
	r := d.readers[0]
	r.mail.mu.Lock()
	r.mail.first = groups
	r.mail.mu.Unlock()
	r.wake()
	select {
	case <-durable:
		r.log.Info("first start of sources that start at the end: what is in their files now is passed over", "files", len(files))
	case <-ctx.Done():
	case <-r.dead:
	}
}

// beginnings gives the files numbers and lanes, and makes groups of their entries.
// The lanes and the note come last: with only some of the groups on the disk, the
// sources have not begun.
func (d *dispatch) beginnings(files []*tail.File) []*group {
	g := &group{block: -1, bytes: groupOverheadBytes}
	groups := []*group{g}
	room := func(bytes int) *group {
		if g.bytes+int64(bytes) > d.readers[0].groupMax {
			g = &group{block: -1, bytes: groupOverheadBytes}
			groups = append(groups, g)
		}
		g.bytes += int64(bytes)
		return g
	}
	var lanes []*lane
	for _, f := range files {
		f.SetID(d.nextSource)
		d.nextSource++
		_, l := d.laneOf(f)
		if _, known := d.next[l.id]; !known {
			d.next[l.id] = 0
			lanes = append(lanes, l)
		}
		x := room(fileEntriesBytes + len(f.Block()) + len(f.Path()))
		x.commit.Sources = append(x.commit.Sources, spoolSource(f, l.id))
		x.commit.Cursors = append(x.commit.Cursors, spoolCursor(f.ID(), f.Cursor()))
		f.EntryChanged() // not from here on
	}
	for _, l := range lanes {
		name := d.cfg.Sources[l.block].Name
		x := room(laneEntryBytes + len(name) + len(l.topic))
		x.lanes = append(x.lanes, l)
		x.commit.Lanes = append(x.commit.Lanes, spool.Lane{ID: l.id, Block: name, Topic: l.topic, Slot: l.slot})
	}
	for i := range d.cfg.Sources {
		if s := &d.cfg.Sources[i]; s.StartAtEnd {
			x := room(laneEntryBytes + len(s.Name))
			x.commit.Begun = append(x.commit.Begun, s.Name)
		}
	}
	return groups
}

// begun are the sources that have had their first start: those of which the spool
// notes it, and those that have sent something, from whatever place.
type begun map[string]bool

func (b begun) note(blocks []string) {
	for _, block := range blocks {
		b[block] = true
	}
}

func (b begun) lane(l spool.Lane, next uint64) { b[l.Block] = b[l.Block] || next > 0 }
