package pipeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"shipper/internal/steady"
	"shipper/sink/kafka"
	"shipper/spool"
)

// progress knows how far each file is in the spool and in Kafka, for people who
// ask. The committer tells it of every group that is durable and every entry
// that it writes; any goroutine may ask.
type progress struct {
	mu    sync.Mutex // guards the rest
	files map[uint64]*fileProgress
	lanes map[uint32]*laneProgress
}

// fileProgress is one source. Between what is in Kafka and what is in the spool
// there are marks, oldest first.
type fileProgress struct {
	lane    uint32
	spooled int64 // offset
	acked   int64 // offset; all below it is in Kafka
	marks   []mark
}

// mark says that what was read up to offset is in Kafka when each of lanes has
// been acked up to its index. It waits since at.
type mark struct {
	offset int64
	at     steady.Time
	lanes  []laneIndex
}

type laneIndex struct {
	lane uint32
	next uint64
}

type laneProgress struct {
	lane      *lane  // nil: not told yet
	head      uint64 // behind the last durable ack
	partition int32  // of it, or of the lane's identity; -1: none chosen yet
	last      int64  // Kafka's offset of the last record acked; -1: none known
}

// marksMax bounds the marks of one file. When there are more, every second one
// goes: what is acked is then told in bigger steps.
const marksMax = 32

func newProgress() *progress {
	return &progress{files: map[uint64]*fileProgress{}, lanes: map[uint32]*laneProgress{}}
}

// recover takes what the spool remembers. How far a file is in Kafka is known
// again when all is acked that its lane holds now.
func (p *progress) recover(rec *spool.Recovered, lanes map[uint32]*lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := steady.Now()
	next, byKey := map[uint32]uint64{}, map[laneKey][]laneIndex{}
	for i := range rec.Lanes {
		s := &rec.Lanes[i]
		l := p.lane(s.ID)
		l.lane = lanes[s.ID]
		l.head, next[s.ID] = s.Head, s.Next
		if s.Slot&kafka.KeyedSlot != 0 {
			key := laneKey{s.Block, s.Topic, kafka.KeyedSlot}
			byKey[key] = append(byKey[key], laneIndex{s.ID, s.Next})
		}
		if n := len(s.Identities); n > 0 {
			l.partition = s.Identities[n-1].Partition
		}
		if s.LastAck.Count > 0 {
			l.last = s.LastAck.BaseOffset + int64(s.LastAck.Count) - 1
		}
	}
	for i := range rec.Sources {
		s := &rec.Sources[i]
		f := &fileProgress{lane: s.Lane, spooled: s.Offset, acked: -1}
		in := []laneIndex{{s.Lane, next[s.Lane]}}
		if l := lanes[s.Lane]; l != nil && l.keyed() {
			in = byKey[laneKey{s.Block, l.topic, kafka.KeyedSlot}]
		}
		f.marks = []mark{{offset: s.Offset, at: now, lanes: in}}
		p.files[s.Source.ID] = f
	}
}

func (p *progress) lane(id uint32) *laneProgress {
	l := p.lanes[id]
	if l == nil {
		l = &laneProgress{partition: -1, last: -1}
		p.lanes[id] = l
	}
	return l
}

// committed takes a group that is durable.
func (p *progress) committed(g *group, now steady.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range g.lanes {
		p.lane(l.id).lane = l
	}
	for i := range g.commit.Sources {
		s := &g.commit.Sources[i]
		if s.Gone {
			delete(p.files, s.ID)
		} else if f := p.files[s.ID]; f != nil {
			f.lane = s.Lane
		} else {
			p.files[s.ID] = &fileProgress{lane: s.Lane}
		}
	}
	if len(g.commit.Cursors) == 0 {
		return
	}
	var lanes []laneIndex
	for _, b := range g.batches {
		lanes = append(lanes, laneIndex{b.lane.id, b.first + uint64(b.sealed.Count)})
	}
	for i := range g.commit.Cursors {
		if c := &g.commit.Cursors[i]; p.files[c.Source] != nil {
			p.moved(p.files[c.Source], mark{c.Offset, now, lanes})
		}
	}
}

func (p *progress) moved(f *fileProgress, m mark) {
	if m.offset < f.spooled {
		f.acked, f.marks = 0, nil // it was truncated
	}
	f.spooled = m.offset
	p.advance(f)
	if len(f.marks) >= marksMax {
		kept := f.marks[:0]
		for i := 1; i < len(f.marks); i += 2 {
			m := f.marks[i]
			m.at, m.lanes = f.marks[i-1].at, bothLanes(f.marks[i-1].lanes, m.lanes)
			kept = append(kept, m)
		}
		clear(f.marks[len(kept):])
		f.marks = kept
	}
	f.marks = append(f.marks, m)
}

// bothLanes are the lanes of two marks, each up to its higher index. With partition_by: key one may have lanes that the other
// has not.
func bothLanes(a, b []laneIndex) []laneIndex {
	out := slices.Clone(b)
	for _, x := range a {
		if i := slices.IndexFunc(out, func(y laneIndex) bool { return y.lane == x.lane }); i < 0 {
			out = append(out, x)
		} else {
			out[i].next = max(out[i].next, x.next)
		}
	}
	return out
}

// advance drops the marks that are acked.
func (p *progress) advance(f *fileProgress) {
	n := 0
	for ; n < len(f.marks) && p.reached(&f.marks[n], false); n++ {
		f.acked = f.marks[n].offset
	}
	f.marks = append(f.marks[:0], f.marks[n:]...)
}

// reached tells whether all up to m was acked, or sent.
func (p *progress) reached(m *mark, sent bool) bool {
	for _, x := range m.lanes {
		l := p.lane(x.lane)
		if l.head < x.next && !(sent && l.lane != nil && l.lane.sentNext.Load() >= x.next) {
			return false
		}
	}
	return true
}

// take takes an entry of the sink.
func (p *progress) take(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lane(e.lane)
	switch e.kind {
	case kafka.NoticeAckKept:
		l.head, l.partition, l.last = e.ack.Next(), e.ack.Partition, e.ack.End-1
	case kafka.NoticeIdentityKept:
		l.partition = e.id.Partition
	case kafka.NoticeHeadKept:
		p.lost(e.lane, l.head, steady.Now())
		l.head = e.index
	case kafka.NoticeSkipKept:
		l.head = max(l.head, e.skip.Next())
	}
}

// lost takes back what was told of the files of a lane: the brokers lost some below head, and it is sent again.
func (p *progress) lost(id uint32, head uint64, now steady.Time) {
	lost := p.lane(id).lane
	for _, f := range p.files {
		in := p.lane(f.lane).lane
		if f.lane != id && (lost == nil || in == nil || !lost.keyed() || !in.keyed() || lost.block != in.block || lost.topic != in.topic) {
			continue
		}
		if p.advance(f); f.acked > 0 {
			f.marks = slices.Insert(f.marks, 0, mark{f.acked, now, []laneIndex{{id, head}}})
			f.acked = -1
		}
	}
}

// FileProgress is how far a file's lines are on their way. Offsets are in bytes
// of the file; -1: not known yet, as after a start and while lines that the
// brokers lost are sent again.
type FileProgress struct {
	Topic      string
	Lane       uint32
	Slot       uint32
	Partition  int32 // -1: none chosen yet
	Spooled    int64
	Sent       int64 // at least once to a broker
	Acked      int64
	LastOffset int64         // Kafka's, of the last record of the lane; -1: not known
	Oldest     time.Duration // how long the oldest line that is spooled and not acked has been, at least, or since this start; 0: there is none
	Waits      string        // what the lane waits for; "": nothing

	Keyed []KeyedProgress // with partition_by: key, instead of Slot, Partition and LastOffset: the lanes that the file's records may be in, by partition
}

// KeyedProgress is one lane of a source whose records go to partitions by key.
type KeyedProgress struct {
	Lane       uint32
	Partition  int32
	LastOffset int64 // Kafka's, of the last record of the lane; -1: not known
	Waits      string
}

// of is a source's progress; ok: it is known.
func (p *progress) of(id uint64) (out FileProgress, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[id]
	if f == nil {
		return out, false
	}
	p.advance(f)
	l := p.lane(f.lane)
	out = FileProgress{Lane: f.lane, Partition: l.partition, Spooled: f.spooled, Sent: f.acked, Acked: f.acked, LastOffset: l.last}
	for i := range f.marks {
		if !p.reached(&f.marks[i], true) {
			break
		}
		out.Sent = f.marks[i].offset
	}
	if len(f.marks) > 0 {
		out.Oldest = max(1, steady.Since(f.marks[0].at))
	}
	if l.lane != nil {
		out.Topic, out.Slot, out.Waits = l.lane.topic, l.lane.slot, l.waits()
		if l.lane.keyed() {
			out.Keyed = p.keyed(l.lane)
		}
	}
	return out, true
}

// waits says what the lane waits for.
func (l *laneProgress) waits() string {
	if cause := kafka.Cause(l.lane.waits.Load()); cause != kafka.CauseNone {
		return cause.String()
	}
	return ""
}

// keyed lists the lanes of one feed: they are sealed together, and which of them a file has fed is not noted.
func (p *progress) keyed(home *lane) (list []KeyedProgress) {
	for id, l := range p.lanes {
		if x := l.lane; x != nil && x.keyed() && x.block == home.block && x.topic == home.topic {
			list = append(list, KeyedProgress{Lane: id, Partition: int32(x.slot &^ kafka.KeyedSlot), LastOffset: l.last, Waits: l.waits()})
		}
	}
	slices.SortFunc(list, func(a, b KeyedProgress) int { return cmp.Compare(a.Partition, b.Partition) })
	return list
}
