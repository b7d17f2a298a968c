package spool

// The log as a slice of states: what is in it after each group. The world drives
// a Log and the model side by side, plays tail (files whose line n of source s
// is the text "s/n") and broker, and knows after a crash which states may be
// found.

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"shipper/internal/vfs"
)

type modelLane struct {
	next, head uint64
	lastAck    Ack
	records    map[uint64]string // index -> line
	batches    []span            // all that were cut, by the newest cut
	identities []Identity
	gaps       []Gap
}

type model struct {
	group   int64
	lanes   map[uint32]*modelLane
	cursors map[uint64]int64 // source -> lines read
}

func (m *model) clone() *model {
	c := &model{group: m.group, lanes: map[uint32]*modelLane{}, cursors: maps.Clone(m.cursors)}
	for id, l := range m.lanes {
		n := *l
		n.records, n.batches = maps.Clone(l.records), slices.Clone(l.batches)
		n.identities, n.gaps = slices.Clone(l.identities), slices.Clone(l.gaps)
		c.lanes[id] = &n
	}
	return c
}

func (l *modelLane) setIdentity(id Identity) {
	l.identities = slices.DeleteFunc(slices.Clone(l.identities), func(have Identity) bool { return have.From >= id.From })
	l.identities = append(l.identities, id)
}

func (l *modelLane) covering(index uint64) *Identity {
	var found *Identity
	for i := range l.identities {
		if l.identities[i].From <= index {
			found = &l.identities[i]
		}
	}
	return found
}

func (l *modelLane) passGaps() {
	for again := true; again; {
		again = false
		for _, g := range l.gaps {
			if g.From <= l.head && l.head < g.To {
				l.head, again = g.To, true
			}
		}
	}
}

// live lists the batches from the head on.
func (l *modelLane) live() []span {
	return slices.DeleteFunc(slices.Clone(l.batches), func(b span) bool {
		return b.from < l.head || slices.ContainsFunc(l.gaps, func(g Gap) bool { return g.From <= b.from && b.to <= g.To })
	})
}

// gapsBeside are the gaps without what a live batch holds: a heal may have moved the
// head back to an older cut, across a dead letter.
func (l *modelLane) gapsBeside(live []span) (gaps []Gap) {
	for _, g := range l.gaps {
		begin := true
		for i := g.From; i < g.To; i++ {
			if slices.ContainsFunc(live, func(b span) bool { return b.from <= i && i < b.to }) {
				begin = true
				continue
			}
			if begin {
				begin = false
				part := g
				part.From = i
				gaps = append(gaps, part)
			}
			last := &gaps[len(gaps)-1]
			last.To, last.Records = i+1, i+1-last.From
		}
	}
	return gaps
}

func (l *modelLane) text(b span) []byte {
	lines := make([]string, 0, b.to-b.from)
	for i := b.from; i < b.to; i++ {
		lines = append(lines, l.records[i])
	}
	return []byte(strings.Join(lines, "\n"))
}

const (
	laneCount   = 3
	sourceCount = 4
	counterID   = 100 // a source whose offset counts the groups
)

// lanesOf gives the lane of a line; source 4 is spread over lanes 2 and 3.
func laneOf(source uint64, n int64) uint32 {
	switch source {
	case 1, 2:
		return 1
	case 3:
		return 2
	}
	return 2 + uint32(n%2)
}

type world struct {
	rng       *rand.Rand
	log       *Log
	reader    *Reader
	refs      map[uint32]map[uint64]Ref // of batches below the durable position
	now       *model
	possible  []*model // states a crash may leave: the last synced one and all behind
	broker    *broker
	full      int
	retain    int64  // RetainAckedBytes, if not 0
	without   rule   // left out of the log
	stuck     uint32 // a lane that cannot send; 0: none
	stats     map[string]int
	failure   error           // of a check made on the way
	rotten    bool            // damage is to be expected
	uncertain int             // lines reported as lost without a number
	untold    int             // the same, by starts that failed
	counted   map[string]bool // lines that a gap has stood for (with damage)
}

func newWorld(seed uint64) *world {
	return &world{
		stuck:  uint32(seed % 3), // lane 3 has most of what a source spreads
		rng:    rand.New(rand.NewPCG(seed, 1)),
		now:    &model{lanes: map[uint32]*modelLane{}, cursors: map[uint64]int64{}},
		broker: &broker{log: map[sequence]string{}, lines: map[string]int{}},
		stats:  map[string]int{}, counted: map[string]bool{},
	}
}

func (w *world) options(fs vfs.FS) Options {
	o := memOptions(fs)
	if w.retain > 0 {
		o.RetainAckedBytes = w.retain
	}
	o.without = w.without
	return o
}

// open recovers and takes the found state over as the truth.
func (w *world) open(fs vfs.FS) error {
	o := w.options(fs)
	o.rand = rand.NewChaCha8([32]byte{byte(w.rng.Uint32()), byte(w.rng.Uint32()), byte(w.rng.Uint32())})
	l, r, err := Open(o)
	if err != nil {
		return err
	}
	if len(w.possible) == 0 {
		w.possible = []*model{w.now}
	}
	found, err := findState(l, r, w.possible)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	w.log, w.reader, w.now = l, l.NewReader(), found
	w.takeRefs(r)
	w.possible = []*model{w.now.clone()}
	return nil
}

func (w *world) takeRefs(r *Recovered) {
	w.refs = map[uint32]map[uint64]Ref{}
	for id := uint32(1); id <= laneCount; id++ {
		w.refs[id] = map[uint64]Ref{}
	}
	for _, l := range r.Lanes {
		for _, ref := range l.Batches {
			w.refs[l.ID][ref.First] = ref
		}
	}
}

// findState compares what was recovered with each possible state; the group
// counter says which one it must be. It returns the state with this start's
// identities.
func findState(l *Log, r *Recovered, possible []*model) (*model, error) {
	if len(r.Damage) > 0 {
		return nil, fmt.Errorf("damage without rot: %+v", r.Damage)
	}
	group := int64(0)
	for _, s := range r.Sources {
		if s.Source.ID == counterID {
			group = s.Offset
		}
	}
	i := slices.IndexFunc(possible, func(m *model) bool { return m.group == group })
	if i < 0 {
		return nil, fmt.Errorf("group %d was found, possible are %d to %d", group, possible[0].group, possible[len(possible)-1].group)
	}
	m := possible[i].clone()
	if len(r.Lanes) != len(m.lanes) {
		return nil, fmt.Errorf("%d lanes, want %d", len(r.Lanes), len(m.lanes))
	}
	rd := l.NewReader()
	for _, got := range r.Lanes {
		if err := sameLane(rd, got, m.lanes[got.ID]); err != nil {
			return nil, errors.Join(fmt.Errorf("group %d lane %d: %w", group, got.ID, err), rd.Close())
		}
	}
	for _, s := range r.Sources {
		if s.Source.ID != counterID && s.Offset != m.cursors[s.Source.ID] {
			return nil, fmt.Errorf("group %d source %d at %d, want %d", group, s.Source.ID, s.Offset, m.cursors[s.Source.ID])
		}
	}
	return m, rd.Close()
}

func sameLane(rd *Reader, got LaneState, want *modelLane) error {
	live := want.live()
	from := want.head
	if len(live) > 0 && live[0].from == want.head {
		if id := want.covering(want.head); id != nil && id.ProducerID >= 0 {
			from = live[0].to
		}
	}
	for _, g := range want.gaps {
		if g.From <= from && from < g.To {
			from = g.To
		}
	}
	want.setIdentity(Identity{Lane: got.ID, From: from, Topic: "t", Partition: -1, ProducerID: -1, Floor: -1, FloorEpoch: -1, Reason: IdentityStart})
	n := len(want.identities) - len(got.Identities)
	if n < 0 || !reflect.DeepEqual(got.Identities, want.identities[n:]) || got.Identities[0].From > got.Head && n > 0 {
		return fmt.Errorf("identities %+v, want %+v", got.Identities, want.identities)
	}
	if got.Next != want.next || got.Head != want.head || got.LastAck != want.lastAck {
		return fmt.Errorf("next %d head %d ack %+v, want %d %d %+v", got.Next, got.Head, got.LastAck, want.next, want.head, want.lastAck)
	}
	gaps := slices.DeleteFunc(want.gapsBeside(live), func(g Gap) bool { return g.To <= want.head })
	if len(gaps) != len(got.Gaps) || len(gaps) > 0 && !reflect.DeepEqual(gaps, got.Gaps) {
		return fmt.Errorf("gaps %+v, want %+v", got.Gaps, gaps)
	}
	if len(live) != len(got.Batches) {
		return fmt.Errorf("batches %+v, want %+v", got.Batches, live)
	}
	for i, b := range live {
		if err := sameBatch(rd, got.Batches[i], b, want.text(b)); err != nil {
			return err
		}
	}
	return nil
}

func sameBatch(rd *Reader, ref Ref, want span, text []byte) error {
	if ref.First != want.from || ref.Next() != want.to {
		return fmt.Errorf("batch %+v, want %+v", ref, want)
	}
	data, err := rd.ReadBatch(nil, ref)
	if err == nil && !bytes.Equal(data[HeaderBytes:], text) {
		err = fmt.Errorf("batch %+v holds %q, want %q", ref, data[HeaderBytes:], text)
	}
	return err
}

// append writes a group and, behind it, the model's new state. Before the log is
// asked, the state is already a possible one: a crash in the middle may keep it.
func (w *world) append(next *model, batches []Batch, c *Commit) error {
	next.group = w.now.group + 1
	if w.now.group == 0 {
		for id := uint32(1); id <= laneCount; id++ {
			c.Lanes = append(c.Lanes, Lane{ID: id, Block: "b", Topic: "t"})
			next.lanes[id] = &modelLane{records: map[uint64]string{}}
		}
		for id := uint64(1); id <= sourceCount; id++ {
			c.Sources = append(c.Sources, Source{ID: id, Block: "b", Path: fmt.Sprint("/", id)})
		}
		c.Sources = append(c.Sources, Source{ID: counterID})
	}
	c.Cursors = append(c.Cursors, Cursor{Source: counterID, Offset: next.group})
	w.possible = append(w.possible, next.clone())
	refs, err := w.log.Append(nil, batches, c)
	if errors.Is(err, ErrFull) {
		w.possible = w.possible[:len(w.possible)-1]
		w.full++
		return err
	}
	if err != nil {
		return err
	}
	w.now = next
	for i, b := range batches {
		for first := range w.refs[b.Lane] { // a cut replaces what it overlaps
			if have := w.refs[b.Lane][first]; have.First < refs[i].Next() && refs[i].First < have.Next() {
				delete(w.refs[b.Lane], first)
			}
		}
		w.refs[b.Lane][b.First] = refs[i]
	}
	return nil
}

func (w *world) sync() error {
	before := w.log.Stats()
	if err := w.log.Sync(); err != nil {
		return err
	}
	if s := w.log.Stats(); s.BytesPunched > before.BytesPunched {
		w.stats["punched"]++
	} else if s.BytesCarried > before.BytesCarried {
		w.stats["copied"]++
	}
	w.possible = []*model{w.now.clone()}
	return nil
}

// step does one random thing.
func (w *world) step() error {
	if w.now.group == 0 {
		return w.append(w.now.clone(), nil, &Commit{})
	}
	var err error
	lane := 1 + w.rng.Uint32N(laneCount)
	switch k := w.rng.IntN(20); {
	case k < 8:
		err = w.readLines()
	case k < 13:
		err = w.deliver(lane)
	case k < 14:
		err = w.deadLetter(lane)
	case k < 15:
		if w.rng.IntN(2) == 0 {
			err = w.recut(lane)
		} else {
			err = w.merge(lane)
		}
	case k < 16:
		err = w.heal(lane)
	default:
		err = w.sync()
	}
	if errors.Is(err, ErrFull) {
		w.stats["full"]++
		return nil
	}
	return err
}

// readLines is tail: a group with some lines of some files.
func (w *world) readLines() error {
	next := w.now.clone()
	texts := map[uint32][]string{}
	var c Commit
	for range 1 + w.rng.IntN(2) {
		source := 1 + w.rng.Uint64N(sourceCount)
		for range 1 + w.rng.IntN(6) {
			n := next.cursors[source]
			lane := laneOf(source, n)
			texts[lane] = append(texts[lane], fmt.Sprintf("%d/%d%s", source, n, strings.Repeat(".", w.rng.IntN(200))))
			next.cursors[source] = n + 1
		}
		c.Cursors = append(c.Cursors, Cursor{Source: source, Offset: next.cursors[source]})
	}
	var batches []Batch
	for id := uint32(1); id <= laneCount; id++ {
		for lines := texts[id]; len(lines) > 0; {
			n := 1 + w.rng.IntN(len(lines))
			batches = append(batches, next.lanes[id].cut(id, lines[:n]))
			lines = lines[n:]
		}
	}
	w.stats["lines"]++
	return w.append(next, batches, &c)
}

func (l *modelLane) cut(id uint32, lines []string) Batch {
	first := l.next
	for _, line := range lines {
		l.records[l.next] = line
		l.next++
	}
	b := span{first, l.next}
	l.batches = append(l.batches, b)
	return modelBatch(id, b, l.text(b))
}

func modelBatch(id uint32, b span, text []byte) Batch {
	return Batch{Lane: id, First: b.from, Count: uint32(b.to - b.from), Records: text, RecordsCRC: crc32.Checksum(text, castagnoli)}
}
