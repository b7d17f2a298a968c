package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"shipper/internal/steady"
	"shipper/sink/kafka"
	"shipper/spool"
)

// The committer is the only writer of the spool. It takes groups from the
// readers and entries from the sink, appends them, syncs once for all, and only
// then tells the sink: nothing is sent, and nothing counts as acked, before it
// is durable.
//
//	groups, journal --> Append ... Append --> Sync --> notices to the sink
//
// It syncs for new batches, and for entries that a lane waits for; other acks
// are written within a second and synced within ten.
type committer struct {
	log     *spool.Log
	sink    *kafka.Sink
	slog    *slog.Logger
	cfg     *Config
	budget  *budget
	groups  <-chan *group
	journal journal
	stats   commitStats
	seen    *progress

	parked       []parking // groups that wait for room, by block + 1: the first of none
	parkedGroups int
	tried        time.Time // when they last were
	acked        bool      // since then: acks
	ackHelps     bool      // one of them found no room in its share, or on a full volume
	noRoom       error     // why a group found none last
	movedAt      time.Time // when lines last found room or were acked; at first: the start
	firstTried   int
	intakes      []intake
	drops        []bool // by block: new lines are dropped when there is no room
	shares       *shares
	measured     time.Time
	blockOf      map[uint32]int // of lanes
	wakeReaders  func()

	ledger         ledger
	ledgerFailedAt time.Time // last; zero: told that it is over
	told           map[gapKey]uint64
	tellGapsAt     time.Time

	appended  []*group // in this round, not synced
	refs      []spool.Ref
	entries   entries   // appended, not synced
	stuckAt   time.Time // when entries last found no room; zero: they did
	unsynced  bool      // something was appended since the last sync
	batches   []spool.Batch
	commit    spool.Commit
	notices   []kafka.Notice
	fullAt    time.Time   // when a group last did not fit; zero: that was told to be over
	dir       os.FileInfo // the spool directory at the start
	lookedAt  time.Time
	refsAfter time.Time // a lane's batches could not be listed: not before then
	syncBy    time.Time // entries appended must be durable by then; zero: none
}

type commitStats struct {
	records, batches atomic.Uint64
	fullSince        atomic.Int64              // a steady.Time; 0: there is room
	dropped          atomic.Pointer[[]Dropped] // nil: nothing
}

const (
	writeAckMax   = time.Second
	syncAckMax    = 10 * time.Second
	lookInterval  = time.Second
	roundBytesMax = 16 << 20 // appended before a sync
)

// run commits until the groups channel is closed and sinkDone is closed, then
// makes everything durable. An error is final for the process: what was
// appended may not be on disk, and only a recovery can tell.
func (c *committer) run(sinkDone <-chan struct{}) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(c.untilDue())
		var g *group
		select {
		case x, ok := <-c.groups:
			if !ok {
				c.groups = nil
			}
			g = x
		case <-c.journal.urgent:
		case <-timer.C:
		case <-sinkDone:
			sinkDone = nil
		}
		if sinkDone == nil && c.groups == nil {
			return c.last()
		}
		if err := c.round(g); err != nil {
			c.lookedAt = time.Time{} // it may have failed for want of the directory
			return cmp.Or(c.stillThere(time.Now()), err)
		}
	}
}

// round appends what there is, syncs if somebody waits for it, and tells.
func (c *committer) round(g *group) error {
	if err := c.retry(time.Now()); err != nil {
		return err
	}
	if err := c.appendGroups(g); err != nil {
		return err
	}
	now := time.Now()
	c.tellRoom(now)
	if c.shares.inUse() && now.Sub(c.measured) >= measureInterval {
		if err := c.measure(now); err != nil {
			return err
		}
	}
	if err := c.stillThere(now); err != nil {
		return err
	}
	urgent, parked := len(c.appended) > 0, c.parkedGroups > 0
	took, stuck := c.journal.take(&c.entries, now, urgent || parked), !c.stuckAt.IsZero()
	if took || stuck && now.Sub(c.stuckAt) >= retryFull {
		if err := c.appendEntries(now); err != nil {
			return err
		}
		// Of what was stuck a lane may wait for an ack that was not urgent then:
		// the batches behind it became durable without it.
		urgent = urgent || (c.entries.urgent || stuck || parked) && c.stuckAt.IsZero()
		c.acked = c.acked || parked // what waits for room may have it now
		if c.syncBy.IsZero() {
			c.syncBy = now.Add(syncAckMax)
		}
	}
	c.answerHeld(now)
	if c.entries.replace != nil {
		urgent = true
		if err := c.appendReplacement(); err != nil {
			return err
		}
	}
	listing := len(c.entries.refs) > 0 && !now.Before(c.refsAfter)
	if urgent || !c.syncBy.IsZero() && (listing || !now.Before(c.syncBy)) {
		if err := c.sync(); err != nil {
			return err
		}
	}
	if listing {
		c.answerRefs(now)
	}
	if !c.unsynced {
		c.tellGaps(now)
	}
	return nil
}

func (c *committer) sync() error {
	if err := c.log.Sync(); err != nil {
		return err
	}
	c.syncBy, c.unsynced = time.Time{}, false
	c.tellGroups()
	c.tellEntries()
	c.sink.Deliver(c.notices)
	clear(c.notices)
	c.notices = c.notices[:0]
	c.tellGaps(time.Now())
	return nil
}

// appendGroups appends g and all groups that are ready behind it.
func (c *committer) appendGroups(g *group) error {
	bytes := int64(0)
	for g != nil {
		if err := c.admit(g); err != nil {
			return err
		}
		if bytes += g.bytes; bytes >= roundBytesMax {
			return nil
		}
		select {
		case g = <-c.groups:
		default:
			return nil
		}
	}
	return nil
}

// stillThere fails if the spool's directory was removed or replaced: what is
// written then is nowhere, and another agent could start in its place.
func (c *committer) stillThere(now time.Time) error {
	if now.Sub(c.lookedAt) < lookInterval {
		return nil
	}
	c.lookedAt = now
	is, err := os.Stat(c.cfg.Spool.Dir)
	if err == nil && os.SameFile(is, c.dir) {
		return nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool %s was removed or replaced while the agent used it: what it held and Kafka has not is lost", c.cfg.Spool.Dir)
	}
	return nil // cannot be seen now; what it holds open still works
}

// appendGroup writes a group, or says that there is no room for it; then
// nothing was written.
func (c *committer) appendGroup(g *group) (full bool, err error) {
	c.batches = c.batches[:0]
	bytes := int64(0)
	for _, b := range g.batches {
		first := b.first - b.lane.dropped.Load()
		c.batches = append(c.batches, spoolBatch(b.lane.id, first, &b.sealed))
		bytes += spool.FrameBytes(len(b.sealed.Records))
	}
	if bytes > 0 {
		if ok, err := c.fits(g, bytes); err != nil || !ok {
			c.noRoom, c.ackHelps = errShare, true
			if c.log.VolumeFull() {
				c.noRoom = fmt.Errorf("%w: %w", errShare, spool.ErrVolumeFull)
			}
			return true, err
		}
	}
	refs, err := c.log.Append(c.refs, c.batches, &g.commit)
	if errors.Is(err, spool.ErrFull) {
		c.noRoom, c.ackHelps = err, c.ackHelps || errors.Is(err, spool.ErrVolumeFull)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	c.refs, c.unsynced = refs, true
	if len(g.batches) > 0 {
		c.movedAt = time.Now()
	}
	for i, b := range g.batches {
		b.first = c.batches[i].First
	}
	for _, l := range g.lanes {
		c.blockOf[l.id] = l.block
	}
	if g.block >= 0 {
		c.shares.took(g.block, bytes)
		c.intakes[g.block].spoolBytes.Store(c.shares.used[g.block])
	}
	c.appended = append(c.appended, g)
	return false, nil
}

// tellGroups announces durable batches and gives their buffers back.
func (c *committer) tellGroups() {
	refs, now := c.refs, steady.Now()
	for _, g := range c.appended {
		c.seen.committed(g, now)
		for _, l := range g.lanes {
			c.notices = append(c.notices, kafka.Notice{Kind: kafka.NoticeLane, ID: l.id,
				Lane: &kafka.LaneStart{LaneInfo: l.info(c.cfg, c.cfg.Sources[l.block].Name)}})
		}
		for i, b := range g.batches {
			c.notices = append(c.notices, kafka.Notice{Kind: kafka.NoticeBatch, ID: b.lane.id, Ref: sinkRef(refs[i])})
			c.budget.give(b.lane.block, b.out)
		}
		refs = refs[len(g.batches):]
		c.stats.records.Add(g.records)
		c.stats.batches.Add(uint64(len(g.batches)))
		if g.durable != nil {
			close(g.durable)
		}
	}
	clear(c.appended)
	c.appended, c.refs = c.appended[:0], c.refs[:0]
}

// appendEntries writes what the sink said. While there is no room, for not even
// these, they wait and the lanes with them: see spool.ErrFull.
func (c *committer) appendEntries(now time.Time) error {
	e := &c.entries
	c.commit = spool.Commit{Acks: c.commit.Acks[:0], Identities: c.commit.Identities[:0], Heads: c.commit.Heads[:0], Gaps: c.commit.Gaps[:0]}
	for _, x := range e.list[e.appended:] {
		x.addTo(&c.commit, c.log)
		// The sink did not know yet that a batch waits behind this ack.
		e.urgent = e.urgent || x.kind == kafka.NoticeAckKept && x.ack.Next() < c.log.Next(x.lane)
	}
	if len(c.commit.Acks) > 0 {
		c.commit.Time, c.movedAt = now.UnixMilli(), now
	}
	_, err := c.log.Append(nil, nil, &c.commit)
	if errors.Is(err, spool.ErrFull) {
		c.stuckAt = now
		c.tellFull(&group{block: -1}, err)
		return nil
	}
	if err != nil {
		return err
	}
	for i := range e.list[e.appended:] {
		c.seen.take(&e.list[e.appended+i])
	}
	e.appended, c.stuckAt, c.unsynced = len(e.list), time.Time{}, true
	return nil
}

// appendReplacement puts other batches, or a gap, in the place of one. A dead
// letter is durable before that. What does not fit, in the spool or in the
// directory of dead letters, is no reason to stop: the lane waits and asks again.
func (c *committer) appendReplacement() error {
	x := c.entries.replace
	if d := x.new.Dead; d != nil {
		letters := deadLetters{c.cfg.Spool.Dir}
		x.done.Place, x.done.Err = letters.write(x.lane, d, time.Now(), c.log.Stats().BytesMax/deadLetterShare)
		if x.done.Err != nil {
			return nil
		}
	}
	batches, commit := x.group(x.done.Place)
	refs, err := c.log.Append(nil, batches, &commit)
	if errors.Is(err, spool.ErrFull) || errors.Is(err, spool.ErrGroupTooLarge) {
		x.done.Err = err
		return nil
	}
	for _, r := range refs {
		x.done.Refs = append(x.done.Refs, sinkRef(r))
	}
	return err
}

func (c *committer) tellEntries() {
	e := &c.entries
	if x := e.replace; x != nil {
		c.notices = append(c.notices, kafka.Notice{Kind: kafka.NoticeReplaced, ID: x.lane, Replaced: &x.done})
	}
	for _, x := range e.list[:e.appended] {
		c.notices = append(c.notices, kafka.Notice{Kind: x.kind, ID: x.lane})
	}
	left := copy(e.list, e.list[e.appended:]) // stuck
	clear(e.list[left:])
	*e = entries{list: e.list[:left], held: e.held, refs: e.refs, urgent: e.urgent && left > 0}
}

// answerHeld lists the acked batches that lanes ask for; rare, to heal. For want of a
// descriptor they wait for the answer: that nothing is held would be a loss.
func (c *committer) answerHeld(now time.Time) {
	asked := c.entries.held
	if len(asked) == 0 || now.Before(c.refsAfter) {
		return
	}
	c.entries.held = c.entries.held[:0]
	for _, id := range asked {
		held, err := c.log.AckedFrom(id, 0)
		if spool.IsNoDescriptor(err) {
			c.slog.Warn("the acked batches in the spool could not be listed; trying again", "lane", id, "error", err)
			c.refsAfter = now.Add(lookInterval)
			c.entries.held = append(c.entries.held, id)
			continue
		}
		if err != nil {
			c.slog.Error("the acked batches in the spool could not be listed", "lane", id, "error", err)
		}
		n := kafka.Notice{Kind: kafka.NoticeHeld, ID: id}
		for _, h := range held {
			n.Held = append(n.Held, heldBatch(h))
		}
		c.sink.Deliver([]kafka.Notice{n})
	}
}

// answerRefs lists the next batches of lanes whose queue runs low. All that was
// appended is durable and announced, so what is listed is all there is. What cannot
// be read is asked for again.
func (c *committer) answerRefs(now time.Time) {
	asked := c.entries.refs
	c.entries.refs = c.entries.refs[:0]
	for i := range asked {
		q := asked[i]
		refs, more, err := c.log.Refs(q.lane, q.index, q.refsMax)
		if err != nil {
			c.slog.Error("the next batches of a lane in the spool could not be listed; trying again", "lane", q.lane, "error", err)
			c.refsAfter = now.Add(lookInterval)
			c.entries.refs = append(c.entries.refs, q)
			continue
		}
		n := kafka.Notice{Kind: kafka.NoticeRefs, ID: q.lane, More: more, Refs: make([]kafka.Ref, len(refs))}
		for i, r := range refs {
			n.Refs[i] = sinkRef(r)
		}
		c.sink.Deliver([]kafka.Notice{n})
	}
}

func (c *committer) untilDue() time.Duration {
	wait := lookInterval
	if c.parkedGroups > 0 || !c.stuckAt.IsZero() {
		wait = retryFull
	}
	if c.parkedGroups > 0 && c.acked && c.ackHelps {
		wait = retryAcked
	}
	if at := c.journal.oldest(); !at.IsZero() {
		wait = min(wait, time.Until(at.Add(writeAckMax)))
	}
	if !c.syncBy.IsZero() {
		wait = min(wait, time.Until(c.syncBy))
	}
	return max(wait, 0)
}

// last makes durable what the sink wrote until its end. A group that does not
// fit is not there: its files are read again from the cursors before it.
func (c *committer) last() error {
	if now := time.Now(); c.journal.take(&c.entries, now, true) || !c.stuckAt.IsZero() {
		if err := c.appendEntries(now); err != nil {
			return err
		}
	}
	c.tellGapsAt = time.Time{}
	return c.sync()
}
