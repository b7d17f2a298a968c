package spool

// When batches were acked, for people who ask which were lately. A commit with acks
// names its time; those of the segments that are still there are read in order.

import (
	"errors"
	"io/fs"
	"slices"

	"shipper/internal/vfs"
)

// Deliveries says when what a spool still holds was acked.
type Deliveries struct {
	lanes map[uint32][]delivery
}

// delivery is a commit that acked all below next; ascending by both in a lane.
type delivery struct {
	next uint64
	time int64
}

// Time is when the record was acked, in ms since 1970; not ok if no commit that
// is still there says. Between a broker's answer and its commit lies up to a
// second; where the commit is released, the next one that is held counts.
func (d *Deliveries) Time(lane uint32, index uint64) (ms int64, ok bool) {
	list := d.lanes[lane]
	i, _ := slices.BinarySearchFunc(list, index, func(have delivery, index uint64) int {
		if have.next <= index {
			return -1
		}
		return 1
	})
	if i == len(list) {
		return 0, false
	}
	return list[i].time, true
}

// Deliveries reads all commits of the inspection. Segments that went meanwhile
// are passed over.
func (in *Inspection) Deliveries() (*Deliveries, error) {
	d := &Deliveries{lanes: map[uint32][]delivery{}}
	for _, f := range in.dir.found {
		file, err := in.log.fs.OpenFile(in.log.path(f.name()), vfs.Read)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		to := f.end
		if n := len(f.frames); n > 0 { // with what only the next start will call durable
			to = f.frames[n-1].end()
		}
		s := scanner{file: file, seed: f.segment.seed}
		for fr := range s.frames(0, to) {
			if fr.bad != nil || fr.kind == kindBatch {
				continue
			}
			if payload, err := s.payload(fr); err == nil {
				d.note(fr.kind, payload)
			}
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// note takes the acks of one commit or checkpoint. One that acks again what was
// acked before, behind a heal, is when it was delivered.
func (d *Deliveries) note(kind frameKind, payload []byte) {
	var acks []Ack
	at, times := int64(0), []int64{}
	_, _, entries := openPayload(kind, payload)
	for len(entries.b) > 0 {
		kind, entry := entries.entry()
		switch kind {
		case entryTime:
			at = entry.int()
		case entryAck:
			acks, times = append(acks, entry.ack()), append(times, at)
		case entryLaneState:
			if l := entry.laneState(); l.lastAck.Count > 0 {
				acks, times = append(acks, l.lastAck), append(times, l.ackTime)
			}
		}
		if entry.err != nil {
			return
		}
	}
	for i, a := range acks {
		list := d.lanes[a.Lane]
		for len(list) > 0 && list[len(list)-1].next >= a.Next() {
			list = list[:len(list)-1]
		}
		if times[i] != 0 {
			list = append(list, delivery{a.Next(), times[i]})
		}
		d.lanes[a.Lane] = list
	}
}
