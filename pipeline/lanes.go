package pipeline

import (
	"encoding/binary"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// dispatch gives every file a lane and every lane a reader. It runs on the
// watcher's goroutine and owns the numbers of sources and lanes.
//
// A file keeps its lane for ever. A new file's slot follows from its path, so
// the file that a rotation puts in its place gets the same lane and its lines
// come behind those of the one before.
type dispatch struct {
	cfg        *Config
	readers    []*reader
	intakes    []intake
	lanes      map[uint32]*lane
	byKey      map[laneKey]*lane
	next       map[uint32]uint64    // next index of lanes that came from the spool and have not been handed out
	siblings   map[laneKey][]handed // by the key of their home lane, until that is handed out
	elders     map[laneKey][]elder  // of slot 0
	inherited  map[uint32][]elder   // those that are of blocks gone from the config, by lane
	files      map[uint64]uint32    // source -> lane, from the spool and since
	moved      map[uint64]bool      // sources that the spool knew in another lane
	blocks     map[string]int
	slots      []slots // by block
	topics     *kafka.Topics
	ids        *atomic.Uint32 // the last lane's; readers open lanes by key
	nextSource uint64
	heapFiles  int // so many files the collector's limit leaves room for
}

type laneKey struct {
	block string
	topic string
	slot  uint32
}

// slots are the lanes that a block may use: n from first on. Blocks of one
// topic have different slots, so that they spread over its partitions.
type slots struct{ first, n uint32 }

const lanesAuto = 4 // per topic and host, shared by its blocks

func newDispatch(cfg *Config, readers []*reader, intakes []intake) *dispatch {
	d := &dispatch{cfg: cfg, readers: readers, intakes: intakes, lanes: map[uint32]*lane{}, byKey: map[laneKey]*lane{}, next: map[uint32]uint64{},
		siblings: map[laneKey][]handed{}, elders: map[laneKey][]elder{}, inherited: map[uint32][]elder{}, files: map[uint64]uint32{}, moved: map[uint64]bool{}, blocks: map[string]int{}, slots: slotsOf(cfg.Sources),
		topics: new(kafka.Topics), ids: new(atomic.Uint32), nextSource: 1}
	for _, r := range readers {
		r.ids = d.ids
	}
	for i := range cfg.Sources {
		d.blocks[cfg.Sources[i].Name] = i
	}
	return d
}

func slotsOf(sources []Source) []slots {
	blocks, used := map[string]uint32{}, map[string]uint32{}
	for i := range sources {
		blocks[sources[i].Topic]++
	}
	out := make([]slots, len(sources))
	for i := range sources {
		s := &sources[i]
		n := uint32(s.Lanes)
		if n == 0 {
			n = max(1, lanesAuto/blocks[s.Topic])
		}
		out[i] = slots{first: used[s.Topic], n: n}
		used[s.Topic] += n
	}
	return out
}

// paused tells whether files of a block may not be read now.
func (d *dispatch) paused(block string) bool { return d.intakes[d.blocks[block]].paused.Load() }

// recover takes a lane from the spool. A lane whose block is not configured any
// more still delivers what it holds.
func (d *dispatch) recover(s *spool.LaneState) *lane {
	block, ok := d.blocks[s.Block]
	if !ok {
		block = -1
	}
	l := d.add(laneKey{s.Block, s.Topic, s.Slot}, s.ID, block)
	d.next[l.id] = s.Next
	l.acked.Store(s.Head)
	if end := linesEnd(s); block >= 0 && l.keyed() != d.cfg.Sources[block].ByKey && s.Head < end {
		key := laneKey{s.Block, s.Topic, 0}
		d.elders[key] = append(d.elders[key], elder{l, end})
	}
	if l.keyed() && s.Slot != kafka.KeyedSlot {
		home := laneKey{s.Block, s.Topic, kafka.KeyedSlot}
		d.siblings[home] = append(d.siblings[home], handed{l, s.Next, true})
	}
	d.ids.Store(max(d.ids.Load(), l.id))
	return l
}

// inherit is for blocks that read on files of one that is gone from the config: what that holds for a topic goes before what
// they read for it. A file's old and new lane may lead to one partition, and so may those of the files that took turns at its path.
func (d *dispatch) inherit(lanes []spool.LaneState, heirs map[string][]string) {
	for i := range lanes {
		s := &lanes[i]
		end := linesEnd(s)
		if s.Head >= end {
			continue
		}
		for _, heir := range heirs[s.Block] {
			key := laneKey{heir, s.Topic, 0}
			d.elders[key] = append(d.elders[key], elder{d.lanes[s.ID], end})
			d.inherited[s.ID] = []elder{{d.lanes[s.ID], end}}
		}
	}
}

// linesEnd is the index behind the last line that a lane has to send. Behind it
// there may be gaps for what damage took, which nobody ever acks.
func linesEnd(s *spool.LaneState) uint64 {
	end := s.Next
	for _, g := range slices.Backward(s.Gaps) {
		if g.To >= end {
			end = min(end, g.From)
		}
	}
	return end
}

// add makes a lane. All lanes by key of a block belong to one reader, since it
// seals them together.
func (d *dispatch) add(key laneKey, id uint32, block int) *lane {
	l := &lane{id: id, block: block, topic: key.topic, slot: key.slot, reader: int(id) % len(d.readers), shared: d.topics.Get(key.topic)}
	if l.keyed() && block >= 0 {
		l.reader = block % len(d.readers)
	}
	d.lanes[id], d.byKey[key] = l, l
	return l
}

func (d *dispatch) recoverSource(s *spool.SourceState) {
	d.files[s.ID] = s.Lane
	d.makeHeap()
	d.nextSource = max(d.nextSource, s.ID+1)
}

// Open implements tail.Handler.
func (d *dispatch) Open(f *tail.File) {
	h := handover{f: f, family: f.Family(), fileKnown: f.ID() != 0}
	if !h.fileKnown {
		f.SetID(d.nextSource)
		d.nextSource++
	}
	before := d.files[f.ID()]
	key, l := d.laneOf(f)
	if h.fileKnown && before != l.id {
		d.moved[f.ID()] = true
	}
	h.moved = d.moved[f.ID()]
	h.lane, h.siblings, h.elders = l, d.siblings[key], d.elders[laneKey{key.block, key.topic, 0}]
	h.next, h.known = d.next[l.id]
	delete(d.siblings, key)
	r := d.readers[h.lane.reader]
	r.mail.mu.Lock()
	r.mail.files = append(r.mail.files, h)
	r.mail.mu.Unlock()
	r.wake()
}

// Gone implements tail.Handler. The news goes through the file's reader, behind
// the last cursor that it handed over.
func (d *dispatch) Gone(id uint64) {
	d.part(id, farewell{id: id, elders: d.leadsTo(id)})
	delete(d.files, id)
	delete(d.moved, id)
}

// leadsTo are the lanes that a start would not find without the source.
func (d *dispatch) leadsTo(id uint64) []elder {
	l := d.lanes[d.files[id]]
	switch {
	case l == nil:
		return nil
	case l.block >= 0 && d.moved[id]:
		return d.elders[laneKey{d.cfg.Sources[l.block].Name, l.topic, 0}]
	}
	return d.inherited[l.id]
}

// Lost implements tail.Handler.
func (d *dispatch) Lost(id uint64, from, to int64) {
	d.part(id, farewell{id: id, lost: span{source: id, from: from, to: to}})
}

func (d *dispatch) part(id uint64, x farewell) {
	l := d.lanes[d.files[id]]
	if l == nil {
		return
	}
	x.block = l.block
	r := d.readers[l.reader]
	r.mail.mu.Lock()
	r.mail.gone = append(r.mail.gone, x)
	r.mail.mu.Unlock()
	r.wake()
}

// laneOf is the file's lane: the one it has, unless the block writes to another
// topic now, or in another way. By key it is the lane of partition 0, where the
// file is noted.
func (d *dispatch) laneOf(f *tail.File) (laneKey, *lane) {
	block := d.blocks[f.Block()]
	s := &d.cfg.Sources[block]
	key := laneKey{f.Block(), s.topic(f.Path()), kafka.KeyedSlot}
	if l := d.lanes[d.files[f.ID()]]; l != nil && l.block == block && l.topic == key.topic && l.keyed() == s.ByKey {
		key.slot = l.slot
	} else if !s.ByKey {
		key.slot = d.slots[block].of(f.Family())
	}
	l := d.byKey[key]
	if l == nil {
		l = d.add(key, d.ids.Add(1), block)
	}
	d.files[f.ID()] = l.id
	d.makeHeap()
	return key, l
}

// of is the slot of a path: the one with the highest hash, so that another
// number of slots moves as few paths as can be.
func (s slots) of(path string) uint32 {
	best, slot := uint64(0), s.first
	key := append([]byte(path), 0, 0, 0, 0)
	for i := s.first; i < s.first+s.n; i++ {
		binary.BigEndian.PutUint32(key[len(key)-4:], i)
		if h := xxhash.Sum64(key); h >= best {
			best, slot = h, i
		}
	}
	return slot
}

const (
	knownFileBytes = 3 << 10 // in memory: what a file is, where it is, how far it was read
	heapFilesMin   = 1000
)

// makeHeap raises the collector's limit for what is known of files, which comes on top of MemoryBytesMax: a limit below what is in use
// has the collector run without end.
func (d *dispatch) makeHeap() {
	if n := len(d.files); n > d.heapFiles {
		d.heapFiles = max(heapFilesMin, n+n/4)
		debug.SetMemoryLimit(d.cfg.MemoryBytesMax + int64(d.heapFiles)*knownFileBytes)
	}
}
