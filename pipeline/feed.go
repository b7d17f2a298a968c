package pipeline

import (
	"slices"
	"time"

	"shipper/sink/kafka"
	"shipper/spool"
)

// feed is what a set of files is read into and what is sealed together. A
// file's offset is one number, so all that holds its lines below it is sealed
// into one group: one lane, or, with partition_by key, every lane of a block and
// topic, one for each partition.
//
// By key, a batch that is full is set aside, compressed and given its indexes,
// and its group is closed later, with all the others.
type feed struct {
	block int
	home  *openLane // where files are noted; by key the lane of partition 0
	keyed *keyed    // nil: all records go to home

	filling []*openLane // lanes with a buffer
	unknown []*openLane // lanes that the spool has no entry of
	aside   []*batch    // full batches of the group that is not closed
	held    int64       // bytes that the group's batches take in the spool, at most

	since        time.Time // of the oldest record or cursor not handed over
	dirty        []*openFile
	entriesBytes int64 // of the entries of dirty and unknown, at most
	listed       bool  // in reader.open

	families map[string]*generations

	elders []elder // nothing is read before they are through
	told   bool    // that reading waits
}

// elder is a lane that holds records below next and is fed no more: its block
// feeds by key now what it fed by file, or the other way round, or another block
// reads its files on. Its records go first: the lanes of now may write to its
// partition.
type elder struct {
	lane *lane
	next uint64
}

// keyed is what a feed has besides whose records go to partitions by key.
type keyed struct {
	topic   *kafka.Topic
	lanes   []*openLane // by partition; nil: no record has gone there
	n       int32       // partitions in use; 0: not known, so nothing is read
	heldMax int64       // of feed.held: then the group is closed
}

// openLane is a lane as its reader sees it.
type openLane struct {
	*lane
	next    uint64 // index of the next record, but for those dropped: see lane.dropped
	sealed  uint64 // index behind the last batch sealed
	builder kafka.Builder
	raw     []byte // the builder's buffer; nil: none
	out     []byte // room to compress it into
	size    int    // of the next buffer: what the lane needed last
	held    int64  // its part of feed.held
}

// keyedGroupBytesMax bounds what one feed holds before its group is closed.
const keyedGroupBytesMax = 8 << 20

func (r *reader) newFeed(h *handover) *feed {
	f := &feed{block: h.lane.block, families: map[string]*generations{}, elders: h.elders}
	f.home = r.addLane(f, h.handed)
	if !h.lane.keyed() {
		return f
	}
	k := &keyed{topic: h.lane.shared, lanes: []*openLane{f.home}}
	x := r.cfg.Sources[f.block].room
	k.heldMax = min(x.shareMax, max(heldBytes(x.batchMax), min(keyedGroupBytesMax, r.groupMax/2, r.budget.total/4)))
	for _, x := range h.siblings {
		p := int(x.lane.slot &^ kafka.KeyedSlot)
		k.reach(p + 1)
		k.lanes[p] = r.addLane(f, x)
	}
	// The spool remembers how many partitions there were by the lane of the
	// last one; records of the only one tell as much.
	if len(k.lanes) > 1 || h.next > 0 {
		k.n = int32(len(k.lanes))
	}
	f.keyed = k
	return f
}

func (r *reader) addLane(f *feed, h handed) *openLane {
	ol := &openLane{lane: h.lane, next: h.next, sealed: h.next}
	if !h.known {
		f.unknown = append(f.unknown, ol)
		f.entriesBytes += laneEntryBytes + int64(len(r.cfg.Sources[f.block].Name)+len(h.lane.topic))
	}
	return ol
}

// reach makes room for lanes of n partitions.
func (k *keyed) reach(n int) {
	if n > len(k.lanes) {
		k.lanes = append(k.lanes, make([]*openLane, n-len(k.lanes))...)
	}
}

// ready says whether the feed's files can be read: not before its elders are through,
// and by key not before it is known how many partitions there are. Another number
// counts from the next record on; what was read stays where it is.
func (r *reader) ready(f *feed, now time.Time) bool {
	for _, e := range f.elders {
		if e.lane.acked.Load() < e.next {
			r.tellWaiting(f, "reading waits until what was read before partition_by or the name of the source was changed is in Kafka: both may go to one partition")
			return false
		}
	}
	if len(f.elders) > 0 {
		f.elders, f.told = nil, false
		r.payOwed(f, now)
	}
	k := f.keyed
	if k == nil {
		return true
	}
	if n := k.topic.Partitions.Load(); n != 0 && n != k.n {
		k.n = n
		if int(n) > len(k.lanes) {
			k.reach(int(n))
			r.partitionLane(f, n-1) // how the next start knows the number
			r.list(f, now)
		}
	}
	if k.n == 0 {
		r.tellWaiting(f, "reading waits until Kafka has told how many partitions the topic has: records go to them by key")
	}
	return k.n != 0
}

// inherited tells whether any of the elders is not through and of a block that is gone from the config: how a start finds it
// is that the spool has a file of that block.
func inherited(elders []elder) bool {
	return slices.ContainsFunc(elders, func(e elder) bool { return e.lane.block < 0 && e.lane.acked.Load() < e.next })
}

// payOwed has the spool forget where files were before they were truncated.
func (r *reader) payOwed(f *feed, now time.Time) {
	for _, of := range r.files {
		if of.feed == f && of.owes {
			of.owes = false
			r.touch(of, now)
			r.sealCrowd(f)
		}
	}
}

func (r *reader) tellWaiting(f *feed, what string) {
	if !f.told {
		f.told = true
		r.log.Warn(what, "topic", f.home.topic, "source", r.cfg.Sources[f.block].Name)
	}
}

// batchesBytes is what the batches take in the spool, at most.
func (f *feed) batchesBytes() (n int64) {
	for _, b := range f.aside {
		n += b.bytesMax
	}
	for _, ol := range f.filling {
		n += heldBytes(ol.builder.Bytes())
	}
	return n
}

// laneOf is the lane for a record with this key. Without one it goes the way of
// its file. Nil: the group has no room for the entry of another lane.
func (r *reader) laneOf(of *openFile, key []byte, hasKey bool) *openLane {
	f := of.feed
	if f.keyed == nil {
		return f.home
	}
	if !hasKey {
		key = of.line.hash[:]
	}
	p := kafka.KeyPartition(key, f.keyed.n)
	if ol := f.keyed.lanes[p]; ol != nil {
		return ol
	}
	if f.entriesBytes > r.entriesMax(f) {
		return nil
	}
	return r.partitionLane(f, p)
}

// partitionLane opens the lane of a partition.
func (r *reader) partitionLane(f *feed, p int32) *openLane {
	l := &lane{id: r.ids.Add(1), block: f.block, topic: f.home.topic, slot: kafka.KeyedSlot | uint32(p), reader: r.n, shared: f.keyed.topic}
	ol := r.addLane(f, handed{lane: l})
	f.keyed.lanes[p] = ol
	return ol
}

// keyed says that the lane is one partition's.
func (l *lane) keyed() bool { return l.slot&kafka.KeyedSlot != 0 }

// line is where the generations of a path stand in line.
func (f *feed) line(name string) *generations {
	g := f.families[name]
	if g == nil {
		g = newGenerations(name)
		f.families[name] = g
	}
	g.open++
	return g
}

// hasIdleLane says whether a lane could send at once what the feed holds of it.
func (f *feed) hasIdleLane() bool {
	for _, ol := range f.filling {
		if ol.builder.Count() > 0 && ol.sealed-ol.dropped.Load() <= ol.sentNext.Load() {
			return true
		}
	}
	return len(f.aside) > 0
}

// addLanes puts the entries of lanes that are new to the spool into a group.
func (f *feed) addLanes(g *group, block string) {
	for _, ol := range f.unknown {
		g.lanes = append(g.lanes, ol.lane)
		g.commit.Lanes = append(g.commit.Lanes, spool.Lane{ID: ol.id, Block: block, Topic: ol.topic, Slot: ol.slot})
	}
	clear(f.unknown)
	f.unknown = f.unknown[:0]
}
