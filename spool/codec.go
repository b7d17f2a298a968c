package spool

// Encoding of commit payloads: pure functions over bytes.
//
//	commit      preface | entry ...
//	checkpoint  "SHPSPOOL" major u16 minor u16 | preface | entry ...
//	preface     durable: segment u32, block u32 (64 bytes); before: block u32
//	entry       kind u8 | body length | body

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The format's version. A reader refuses another major and skips what it does
// not know of a higher minor.
const (
	formatMagic = "SHPSPOOL"
	formatMajor = 1
	formatMinor = 5

	preambleBytes = len(formatMagic) + 4
	prefaceBytes  = 12
)

type entryKind uint8

const (
	entryLane     entryKind = 1
	entrySource   entryKind = 2
	entryCursor   entryKind = 3
	entryIdentity entryKind = 4
	entryAck      entryKind = 5
	entryHead     entryKind = 6
	entryGap      entryKind = 7
	entryNext     entryKind = 8  // next index of a lane that the group touched
	entryTotal    entryKind = 9  // next indexes of all lanes, summed
	entryTold     entryKind = 10 // gaps with lower numbers are told
	entryTime     entryKind = 11 // of the acks behind it
	entryBegun    entryKind = 12 // the first start of a source block is over
	entryEnds     entryKind = 13 // where the segments before this one end; before all others but entryFile

	// Checkpoints only.
	entrySpool     entryKind = 32 // spool id
	entrySegment   entryKind = 33 // a live segment and where it ends
	entryLaneState entryKind = 34 // next, head and last ack, set as they are
	entryGaps      entryKind = 35 // numbers of gaps; the untold ones follow
	entryUntold    entryKind = 36 // a gap that nobody was told of
	entryFile      entryKind = 37 // size of this segment's file; the first entry
)

// position is a place in the log. Ordered by segment, then byte.
type position struct {
	segment uint32
	byte    int64 // a multiple of blockBytes
}

func (p position) less(q position) bool {
	return p.segment < q.segment || p.segment == q.segment && p.byte < q.byte
}

// encoder appends entries to buf, which the owner reuses.
type encoder struct {
	buf   []byte
	entry int // where the open entry's body starts
}

func (e *encoder) uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *encoder) int(v int64)   { e.buf = binary.AppendVarint(e.buf, v) }
func (e *encoder) u64(v uint64)  { e.buf = binary.LittleEndian.AppendUint64(e.buf, v) }
func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

// preface opens every commit. Its width is fixed: a recovery knows it last and
// patches it.
type preface struct {
	durable position // a sync had returned up to here
	// before is where the segment before this one ends, 0 if there is none. A
	// checkpoint says so too, but void bytes must stay void without it.
	before int64
}

func appendPreface(dst []byte, p preface) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, p.durable.segment)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.durable.byte/blockBytes))
	return binary.LittleEndian.AppendUint32(dst, uint32(p.before/blockBytes))
}

// endsRepeated is of how many segments before its own each commit says where they
// end. Void bytes must stay void although a run of short starts is damaged, each of
// which left a segment with nothing but a checkpoint.
const endsRepeated = 3

func (e *encoder) ends(before []*segment) {
	if before = before[max(0, len(before)-endsRepeated):]; len(before) == 0 {
		return
	}
	e.begin(entryEnds)
	for _, s := range before {
		e.uint(uint64(s.number))
		e.uint(uint64(s.end / blockBytes))
	}
	e.end()
}

// ends reads, of the entries in d, what encoder.ends wrote: end by segment number.
func (d decoder) ends() map[uint32]int64 {
	kind, entry := d.entry()
	if kind == entryFile {
		kind, entry = d.entry()
	}
	ends := map[uint32]int64{}
	for kind == entryEnds && len(entry.b) > 0 {
		number, end := entry.u32(), entry.uint()
		if entry.err == nil && end <= math.MaxUint32 {
			ends[number] = int64(end) * blockBytes
		}
	}
	return ends
}

// begin opens an entry with one byte kept for its length.
func (e *encoder) begin(kind entryKind) {
	e.buf = append(e.buf, byte(kind), 0)
	e.entry = len(e.buf)
}

// end writes the length; a body over 127 bytes (paths) is moved by a byte or two.
func (e *encoder) end() {
	n := uint64(len(e.buf) - e.entry)
	if n < 0x80 {
		e.buf[e.entry-1] = byte(n)
		return
	}
	var length [binary.MaxVarintLen64]byte
	more := binary.PutUvarint(length[:], n) - 1
	e.buf = append(e.buf, length[:more]...)
	copy(e.buf[e.entry+more:], e.buf[e.entry:])
	copy(e.buf[e.entry-1:], length[:more+1])
}

func (e *encoder) commit(c *Commit) {
	if c.Time != 0 {
		e.begin(entryTime)
		e.int(c.Time)
		e.end()
	}
	for i := range c.Lanes {
		e.lane(&c.Lanes[i])
	}
	for i := range c.Sources {
		e.source(&c.Sources[i])
	}
	for i := range c.Cursors {
		e.cursor(&c.Cursors[i])
	}
	for i := range c.Identities {
		e.identity(&c.Identities[i])
	}
	for _, h := range c.Heads {
		e.begin(entryHead)
		e.uint(uint64(h.Lane))
		e.uint(h.Index)
		e.uint(h.Top)
		e.end()
	}
	for i := range c.Acks {
		e.begin(entryAck)
		e.ackBody(&c.Acks[i])
		e.end()
	}
	for i := range c.Gaps {
		e.gap(&c.Gaps[i])
	}
	for _, block := range c.Begun {
		e.begun(block)
	}
}

func (e *encoder) begun(block string) {
	e.begin(entryBegun)
	e.string(block)
	e.end()
}

func (e *encoder) lane(l *Lane) {
	e.begin(entryLane)
	e.uint(uint64(l.ID))
	e.string(l.Block)
	e.string(l.Topic)
	e.uint(uint64(l.Slot))
	e.end()
}

func (e *encoder) next(lane uint32, next uint64) {
	e.begin(entryNext)
	e.uint(uint64(lane))
	e.uint(next)
	e.end()
}

func (e *encoder) total(total uint64) {
	e.begin(entryTotal)
	e.uint(total)
	e.end()
}

func (e *encoder) source(s *Source) {
	e.begin(entrySource)
	e.uint(s.ID)
	e.string(s.Block)
	e.string(s.Path)
	e.uint(uint64(s.Lane))
	e.string(s.Encoding)
	e.uint(s.Dev)
	e.uint(s.Ino)
	e.u64(s.Prefix)
	e.uint(uint64(s.PrefixBytes))
	e.bool(s.Gone)
	e.int(s.Born)
	e.end()
}

func (e *encoder) bool(b bool) {
	if b {
		e.buf = append(e.buf, 1)
	} else {
		e.buf = append(e.buf, 0)
	}
}

func (e *encoder) cursor(c *Cursor) {
	e.begin(entryCursor)
	e.uint(c.Source)
	e.int(c.Offset)
	e.u64(c.Anchor)
	e.uint(uint64(c.AnchorBytes))
	e.uint(uint64(c.State))
	e.uint(uint64(c.Part))
	e.end()
}

func (e *encoder) identity(id *Identity) {
	e.begin(entryIdentity)
	e.uint(uint64(id.Lane))
	e.uint(id.From)
	e.string(id.ClusterID)
	e.string(id.Topic)
	e.buf = append(e.buf, id.TopicID[:]...)
	e.int(int64(id.Partition))
	e.int(id.ProducerID)
	e.int(int64(id.Epoch))
	e.int(id.Floor)
	e.uint(uint64(id.Reason))
	e.uint(uint64(id.FloorEpoch + 1))
	e.end()
}

func (e *encoder) ackBody(a *Ack) {
	e.uint(uint64(a.Lane))
	e.uint(a.First)
	e.uint(uint64(a.Count))
	e.int(a.BaseOffset)
	e.int(int64(a.LeaderEpoch))
}

func (e *encoder) told(s *state) {
	e.begin(entryTold)
	e.uint(s.told)
	e.uint(s.gapNext)
	e.uint(s.gapSealed)
	e.end()
}

func (e *encoder) gap(g *Gap) {
	e.begin(entryGap)
	e.gapBody(g)
	e.end()
}

func (e *encoder) gapBody(g *Gap) {
	e.uint(uint64(g.Lane))
	e.uint(g.From)
	e.uint(g.To)
	e.uint(g.Source)
	e.int(g.FromByte)
	e.int(g.ToByte)
	e.uint(g.Records)
	e.uint(uint64(g.Reason))
	e.string(g.DeadLetter)
}

// decoder reads what encoder wrote. The first error sticks.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number is cut short")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("a number is cut short")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// more reads a number that an older version did not write: then it is 0.
func (d *decoder) more() uint64 {
	if len(d.b) == 0 {
		return 0
	}
	return d.uint()
}

// small reads a number that must not exceed limit.
func (d *decoder) small(limit uint64) uint64 {
	v := d.uint()
	if v > limit {
		d.fail("a number is too large")
		return 0
	}
	return v
}

// signed reads a number of at most bits bits, sign included.
func (d *decoder) signed(bits uint) int64 {
	v := d.int()
	if v>>(bits-1) != 0 && v>>(bits-1) != -1 {
		d.fail("a number is too large")
		return 0
	}
	return v
}

func (d *decoder) u32() uint32 { return uint32(d.small(1<<32 - 1)) }
func (d *decoder) u8() uint8   { return uint8(d.small(1<<8 - 1)) }

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("a field is cut short")
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) string() string { return string(d.bytes(d.uint())) }

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) preface() preface {
	b := d.bytes(prefaceBytes)
	if b == nil {
		return preface{}
	}
	return preface{
		durable: position{binary.LittleEndian.Uint32(b), int64(binary.LittleEndian.Uint32(b[4:])) * blockBytes},
		before:  int64(binary.LittleEndian.Uint32(b[8:])) * blockBytes,
	}
}

// openPayload reads what comes before the entries, which are left in d.
func openPayload(kind frameKind, payload []byte) (p preface, major uint16, d decoder) {
	d.b = payload
	if kind == kindCheckpoint {
		major, _ = d.preamble()
	}
	return d.preface(), major, d
}

// preamble reads the magic and version that open a checkpoint.
func (d *decoder) preamble() (major, minor uint16) {
	b := d.bytes(uint64(preambleBytes))
	if b == nil || string(b[:len(formatMagic)]) != formatMagic {
		d.fail("no checkpoint of a spool")
		return 0, 0
	}
	return binary.LittleEndian.Uint16(b[len(formatMagic):]), binary.LittleEndian.Uint16(b[len(formatMagic)+2:])
}

// entry opens the next entry: its body is the returned decoder.
func (d *decoder) entry() (entryKind, decoder) {
	kind := d.bytes(1)
	body := d.bytes(d.uint())
	if d.err != nil {
		return 0, decoder{}
	}
	return entryKind(kind[0]), decoder{b: body}
}

func (d *decoder) lane() Lane {
	return Lane{ID: d.u32(), Block: d.string(), Topic: d.string(), Slot: d.u32()}
}

func (d *decoder) source() Source {
	return Source{
		ID: d.uint(), Block: d.string(), Path: d.string(), Lane: d.u32(), Encoding: d.string(),
		Dev: d.uint(), Ino: d.uint(), Prefix: d.u64(), PrefixBytes: d.u32(), Gone: d.small(1) == 1, Born: d.int(),
	}
}

func (d *decoder) cursor() Cursor {
	return Cursor{
		Source: d.uint(), Offset: d.int(), Anchor: d.u64(), AnchorBytes: uint16(d.small(1<<16 - 1)),
		State: LineState(d.small(uint64(Discard))), Part: d.u32(),
	}
}

func (d *decoder) identity() Identity {
	id := Identity{Lane: d.u32(), From: d.uint(), ClusterID: d.string(), Topic: d.string()}
	copy(id.TopicID[:], d.bytes(16))
	id.Partition = int32(d.signed(32))
	id.ProducerID = d.int()
	id.Epoch = int16(d.signed(16))
	id.Floor = d.int()
	id.Reason = d.u8()
	id.FloorEpoch = -1
	if len(d.b) > 0 { // from 1.3 on
		id.FloorEpoch = int32(d.u32()) - 1
	}
	return id
}

func (d *decoder) ack() Ack {
	return Ack{Lane: d.u32(), First: d.uint(), Count: d.u32(), BaseOffset: d.int(), LeaderEpoch: int32(d.signed(32))}
}

func (d *decoder) head() Head { return Head{Lane: d.u32(), Index: d.uint(), Top: d.uint()} }

func (d *decoder) gap() Gap {
	return Gap{
		Lane: d.u32(), From: d.uint(), To: d.uint(), Source: d.uint(), FromByte: d.int(), ToByte: d.int(),
		Records: d.uint(), Reason: d.u8(), DeadLetter: d.string(),
	}
}
