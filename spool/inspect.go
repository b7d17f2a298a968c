package spool

// Looking at a spool from outside: without its lock, without changing a byte, on
// a copy as well as beside a running agent. A segment that goes while it is read
// makes the look start over; what the agent is writing behind the durable
// position counts as in a recovery.

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"shipper/internal/vfs"
)

// looksMax bounds how often a look starts over because segments went meanwhile.
const looksMax = 10

// Inspection is a spool as it was at one moment.
type Inspection struct {
	SpoolID  [16]byte
	Segments []SegmentInfo
	Lanes    []LaneInfo
	Sources  []SourceState // those not gone
	Begun    []string      // source blocks whose first start is over, sorted
	Damage   []Damage      // that a recovery would report now

	StateLost bool // as in Recovered

	VoidBytes int64 // at the end: torn, or being written

	log *Log // only to read from
	dir *recovery
}

// SegmentInfo is one file of the log.
type SegmentInfo struct {
	Number    uint32
	Name      string
	Bytes     int64 // of frames
	DiskBytes int64 // what the file takes
	Batches   int
	LiveBytes int64 // about what will still be sent, with frame headers
}

// LaneInfo is a lane with what is held of it.
type LaneInfo struct {
	Lane
	Next, Head   uint64
	LastAck      Ack
	Identities   []Identity
	Gaps         []Gap
	Held         []Ref // ascending; those below Head are acked
	PendingBytes int64 // of compressed records from Head on
}

// Pending are the batches that will still be sent.
func (l *LaneInfo) Pending() []Ref {
	return slices.DeleteFunc(slices.Clone(l.Held), func(r Ref) bool {
		return r.First < l.Head || l.Dropped(r)
	})
}

// Dropped tells whether gaps hold all of a batch.
func (l *LaneInfo) Dropped(r Ref) bool { return dropped(l.Gaps, r.First, r.Next()) }

// PartitionOf is where a record is or was sent to; -1: not known any more.
func (l *LaneInfo) PartitionOf(index uint64) int32 {
	partition := int32(-1)
	for i := range l.Identities {
		if partition < 0 || l.Identities[i].From <= index {
			partition = l.Identities[i].Partition
		}
	}
	return partition
}

// Inspect looks at the spool in o.Dir. Of the other options only FS and Blocks count.
func Inspect(o Options) (*Inspection, error) {
	o.setUnset()
	for range looksMax {
		in, err := look(o)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return in, err
		}
		if _, derr := o.FS.ReadDir(o.Dir); derr != nil {
			return nil, fmt.Errorf("spool: list %s: %w", o.Dir, derr)
		}
	}
	return nil, fmt.Errorf("spool: %s changes faster than it can be read", o.Dir)
}

// look is one try; fs.ErrNotExist if a segment went meanwhile.
func look(o Options) (*Inspection, error) {
	l := &Log{fs: o.FS, dir: o.Dir, options: o, logger: o.Logger, rand: o.rand, state: newState()}
	r := &recovery{Log: l, opened: openSegments{fs: l.fs}, held: map[uint32]*heldLane{}, taken: map[uint32]bool{}, last: -1, look: true}
	defer r.closeFiles()
	if err := r.readNames(); err != nil {
		return nil, err
	}
	if len(r.found) == 0 {
		return nil, fmt.Errorf("%s holds no spool: there is no segment in it", o.Dir)
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	names, err := o.FS.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, f := range r.found {
		if !slices.Contains(names, f.name()) {
			return nil, fmt.Errorf("segment %d: %w", f.number, fs.ErrNotExist)
		}
		l.segments = append(l.segments, &f.segment)
	}
	l.publishTable()
	l.shared.durable.Store(math.MaxUint64) // whatever was found may be read
	in := &Inspection{SpoolID: l.state.spoolID, log: l, dir: r}
	for _, id := range slices.Sorted(maps.Keys(l.state.lanes)) {
		in.Lanes = append(in.Lanes, r.inspectLane(l.state.lanes[id]))
	}
	for _, f := range r.found {
		in.Segments = append(in.Segments, SegmentInfo{Number: f.number, Name: f.name(), Bytes: f.end, DiskBytes: f.diskBytes, LiveBytes: l.liveBytes(&f.segment)})
	}
	for i := range in.Lanes {
		for _, ref := range in.Lanes[i].Held {
			at := slices.IndexFunc(in.Segments, func(s SegmentInfo) bool { return s.Number == ref.Segment })
			in.Segments[at].Batches++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.state.sources)) {
		in.Sources = append(in.Sources, SourceState{l.state.sources[id].Source, l.state.sources[id].cursor})
	}
	in.Begun = slices.Sorted(maps.Keys(l.state.begun))
	in.Damage, in.VoidBytes, in.StateLost = r.damage, r.torn, r.stateLost
	return in, nil
}

func (r *recovery) inspectLane(l *lane) LaneInfo {
	h := r.lane(l.ID)
	r.state.raiseNext(l, h.next)
	live := l.live(h.batches)
	for _, hole := range l.holes(live) {
		r.noteDamage(Damage{Lane: l.ID, From: hole.from, To: hole.to, Records: hole.to - hole.from, Reason: "no intact batch holds these records"})
	}
	out := LaneInfo{Lane: l.Lane, Next: l.next, Head: l.head, LastAck: l.lastAck, Identities: l.identities, Gaps: l.gaps, Held: h.batches}
	for _, ref := range live {
		out.PendingBytes += int64(ref.Bytes)
	}
	return out
}

// NewReader reads the batches of the inspection. A batch whose segment the agent
// has released meanwhile is answered with *CorruptionError.
func (in *Inspection) NewReader() *Reader { return in.log.NewReader() }

// Verify reads every frame below the durable position and checks both checksums.
// What was punched out because it will not be sent is no damage. It looks twice
// if something is wrong, since an agent may be at work: what it reports was wrong
// both times.
func Verify(o Options) (*Inspection, error) {
	in, err := verifyOnce(o)
	if err != nil || len(in.Damage) == 0 {
		return in, err
	}
	again, err := verifyOnce(o)
	if err != nil {
		return nil, err
	}
	again.Damage = slices.DeleteFunc(again.Damage, func(d Damage) bool { return !slices.Contains(in.Damage, d) })
	return again, nil
}

func verifyOnce(o Options) (*Inspection, error) {
	in, err := Inspect(o)
	if err != nil {
		return nil, err
	}
	in.Damage = slices.DeleteFunc(in.Damage, func(d Damage) bool { return slices.Contains(in.dir.badFrames, d) }) // read here
	for i, f := range in.dir.found {
		if err := in.verifySegment(f, f.end, i < in.dir.base); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return in, nil
}

// framesEnd is where the last intact frame of a segment ends that was listed.
func (f *foundSegment) framesEnd() int64 {
	if len(f.frames) == 0 {
		return 0
	}
	return f.frames[len(f.frames)-1].end()
}

// verifySegment reads one segment up to end, or the checkpoint that should be there
// if nothing is; older says that the newest checkpoint lies behind it.
func (in *Inspection) verifySegment(f *foundSegment, end int64, older bool) error {
	file, err := in.log.fs.OpenFile(in.log.path(f.name()), vfs.Read)
	if err != nil {
		return err
	}
	s := scanner{file: file, seed: f.segment.seed}
	for fr := range s.frames(0, max(end, blockBytes)) {
		reason := fr.bad
		if reason == nil {
			_, reason = s.payload(fr)
		}
		if reason == nil {
			continue
		}
		lane := in.log.state.lanes[fr.lane]
		unneeded := fr.bad != nil || fr.kind != kindBatch || lane != nil && fr.next() <= lane.head
		if older && unneeded && s.punched(fr.at, fr.end(), in.log.options.punchUnit) {
			continue
		}
		d := Damage{Segment: f.number, Position: fr.at, Bytes: fr.bytes, Reason: reason.Error()}
		if fr.bad == nil && fr.kind == kindBatch {
			d.Lane, d.From, d.To, d.Records = fr.lane, fr.first, fr.next(), uint64(fr.count)
		}
		in.Damage = append(in.Damage, d)
	}
	return file.Close()
}

// punched tells whether [from, to) reaches into a hole: a whole unit of zeros.
// Copies of a spool may have lost the holes themselves, not the zeros.
func (s *scanner) punched(from, to, unit int64) bool {
	b := make([]byte, unit)
	for at := from / unit * unit; at < to; at += unit {
		if readFull(s.file, b, at) == nil && !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			return true
		}
	}
	return false
}
