package pipeline

import (
	"errors"
	"slices"
	"time"

	"shipper/internal/steady"
	"shipper/spool"
)

// When lines find no room: the spool is full, or their source block has its
// share of it.
//
//	block        the group waits, and all behind it of its block; readers leave
//	             the block's files alone, which are the buffer then
//	drop_newest  the group's batches are dropped before anybody gave them an
//	             index: its cursors are committed with a gap for each file. Not
//	             while Kafka takes lines and only the volume is full: there the
//	             spool has a segment or two, which are not what max_bytes asked for
//
// Groups hold lines of one block, so the others go on. What waits is within the
// budget of bytes between read and spool, of which no block can take all.

// parking holds the groups of one block that wait for room.
type parking struct {
	groups []*group
}

const (
	retryFull  = 250 * time.Millisecond
	retryAcked = 50 * time.Millisecond // when acks may have made room
	roomLasts  = 10 * time.Second
	tellGaps   = time.Second      // between two looks at what is untold
	tellAgain  = 10 * time.Second // after a failure
)

// admit appends a group, or drops its lines, or lets it wait.
func (c *committer) admit(g *group) error {
	if p := c.parkingOf(g); len(p.groups) > 0 {
		c.park(p, g)
		return nil
	}
	done, err := c.try(g)
	if err == nil && !done {
		c.park(c.parkingOf(g), g)
	}
	return err
}

// parkingOf is where the groups of g's block wait; those of no block have one too.
func (c *committer) parkingOf(g *group) *parking { return &c.parked[g.block+1] }

// try appends g, or what is left of it without its lines. done is false if it
// has to wait. An error is final.
func (c *committer) try(g *group) (done bool, err error) {
	for _, b := range g.batches {
		<-b.ready
	}
	full, err := c.appendGroup(g)
	if err != nil || !full {
		return !full, err
	}
	drops := len(g.batches) > 0 && g.block < len(c.drops) && c.drops[g.block]
	if drops { // not before all acks that there are have made room
		wrote, err := c.writeAcks(time.Now())
		if wrote && err == nil {
			full, err = c.appendGroup(g)
		}
		if err != nil || !full {
			return !full, err
		}
	}
	c.tellFull(g, c.noRoom)
	// An ack may take so long, and the first of a start has to find the brokers first.
	// Without a descriptor the spool is not full.
	if !drops || spool.IsNoDescriptor(c.noRoom) || errors.Is(c.noRoom, spool.ErrVolumeFull) && time.Since(c.movedAt) < c.cfg.Kafka.AcksTimeout {
		return false, nil
	}
	c.dropLines(g)
	full, err = c.appendGroup(g)
	return !full, err
}

// writeAcks makes durable what the sink has said so far, if there is anything.
func (c *committer) writeAcks(now time.Time) (wrote bool, err error) {
	if wrote = c.journal.take(&c.entries, now, true); wrote {
		if err := c.appendEntries(now); err != nil {
			return false, err
		}
	}
	if c.entries.replace != nil {
		if err := c.appendReplacement(); err != nil {
			return false, err
		}
		wrote = true
	}
	if wrote {
		c.measured = time.Time{}
		return true, c.sync()
	}
	return false, nil
}

// dropLines takes the batches out of a group and puts the gaps in that stand for
// them. Indexes of the lanes go on as if they had never been.
func (c *committer) dropLines(g *group) {
	for _, b := range g.batches {
		b.lane.dropped.Add(uint64(b.sealed.Count))
		c.budget.give(b.lane.block, b.out)
	}
	for _, s := range g.spans {
		if s.records > 0 {
			g.commit.Gaps = append(g.commit.Gaps, spool.Gap{Source: s.source, FromByte: s.from, ToByte: s.to, Records: s.records, Reason: spool.GapDroppedNewest})
		}
	}
	g.batches, g.spans, g.records = nil, nil, 0
}

// fits tells whether the group's lines are within the share of their block.
func (c *committer) fits(g *group, bytes int64) (bool, error) {
	if len(c.shares.kept) < 2 || g.block < 0 {
		return true, nil
	}
	now := time.Now()
	if now.Sub(c.measured) >= measureInterval {
		if err := c.measure(now); err != nil {
			return false, err
		}
	}
	if c.shares.fits(g.block, bytes) {
		return true, nil
	}
	if now.Sub(c.measured) < measurePause {
		return false, nil
	}
	if err := c.measure(now); err != nil {
		return false, err
	}
	return c.shares.fits(g.block, bytes), nil
}

// measure asks the spool what it holds of each block and what it still takes.
func (c *committer) measure(now time.Time) error {
	room, err := c.log.Room()
	if err != nil {
		return err
	}
	c.measured = now
	c.shares.measure(room)
	c.log.LiveBytes(func(id uint32, n int64) {
		if block, ok := c.blockOf[id]; ok {
			c.shares.used[block] += n
		}
	})
	for id, block := range c.blockOf {
		c.shares.delivered[block] = c.shares.delivered[block] || c.log.Next(id) > 0
	}
	for i, n := range c.shares.used {
		c.intakes[i].spoolBytes.Store(n)
		c.intakes[i].delivered.Store(c.shares.delivered[i])
	}
	return nil
}

// park lets a group wait and its block's readers pause. Its batches give up what
// they have of the budget beyond their own bytes.
func (c *committer) park(p *parking, g *group) {
	for _, b := range g.batches {
		<-b.ready
		if 2*len(b.sealed.Records) > cap(b.out) {
			continue
		}
		if small := c.budget.take(b.lane.block, len(b.sealed.Records)); small != nil {
			b.sealed.Records = append(small, b.sealed.Records...)
			c.budget.give(b.lane.block, b.out)
			b.out = small
		}
	}
	p.groups = append(p.groups, g)
	if c.parkedGroups++; c.parkedGroups == 1 {
		c.budget.setStuck(true)
	}
	if g.block >= 0 {
		c.intakes[g.block].paused.Store(true)
	}
}

// retry tries the groups that wait, each block's in order, another block first
// each time.
func (c *committer) retry(now time.Time) error {
	wait := retryFull
	if c.acked && c.ackHelps {
		wait = retryAcked
	}
	if c.parkedGroups == 0 || now.Sub(c.tried) < wait {
		return nil
	}
	c.tried, c.acked, c.ackHelps = now, false, false
	c.firstTried++
	resumed := false
	for i := range c.parked {
		p := &c.parked[(i+c.firstTried)%len(c.parked)]
		n := 0
		for n < len(p.groups) {
			done, err := c.try(p.groups[n])
			if err != nil {
				return err
			}
			if !done {
				break
			}
			n++
		}
		if p.groups = slices.Delete(p.groups, 0, n); n > 0 && len(p.groups) == 0 {
			p.groups = nil
			if block := (i+c.firstTried)%len(c.parked) - 1; block >= 0 {
				c.intakes[block].paused.Store(false)
				resumed = true
			}
		}
		if c.parkedGroups -= n; n > 0 && c.parkedGroups == 0 {
			c.budget.setStuck(false)
		}
	}
	if resumed {
		c.wakeReaders()
	}
	return nil
}

// tellFull says once that lines find no room, and why. While the spool drains it
// is full and not full many times a second; that it has room is said when that
// has lasted.
func (c *committer) tellFull(g *group, why error) {
	c.fullAt = time.Now()
	if c.stats.fullSince.CompareAndSwap(0, int64(steady.Now())) {
		what := "reading pauses"
		if c.cfg.Spool.DropNewest {
			what = "new lines are dropped and counted"
			if errors.Is(why, spool.ErrVolumeFull) {
				what += ", unless Kafka takes lines,"
			}
		}
		c.slog.Warn("the spool is full: "+what+" until "+untilRoom(why), "dir", c.cfg.Spool.Dir, "source", c.nameOf(g.block), "why", why)
	}
}

// untilRoom is what ends a lack of room.
func untilRoom(why error) string {
	switch {
	case errors.Is(why, spool.ErrVolumeFull):
		return "its volume has space again or Kafka has taken what it holds"
	case spool.IsNoDescriptor(why):
		return "the process may open files again (ulimit -n)"
	case errors.Is(why, spool.ErrFull) && errors.Unwrap(why) != nil:
		return "its directory can be written to again"
	}
	return "Kafka takes what it holds"
}

var errShare = errors.New("this source has its share of it")

func (c *committer) nameOf(block int) string {
	if block < 0 {
		return ""
	}
	return c.cfg.Sources[block].Name
}

func (c *committer) tellRoom(now time.Time) {
	if !c.fullAt.IsZero() && now.Sub(c.fullAt) >= roomLasts && c.parkedGroups == 0 {
		c.fullAt = time.Time{}
		c.stats.fullSince.Store(0)
		c.slog.Info("the spool has room again: reading goes on", "dir", c.cfg.Spool.Dir)
	}
}

// gapKey is what dropped records are counted by.
type gapKey struct {
	source string
	reason uint8
}

// tellGaps writes what the spool lists as untold into the ledger. Behind a sync:
// all of it is durable.
func (c *committer) tellGaps(now time.Time) {
	if now.Before(c.tellGapsAt) {
		return
	}
	gaps := c.log.Untold()
	if len(gaps) == 0 {
		c.tellLedger(now)
		return
	}
	c.tellGapsAt = now.Add(tellGaps)
	if err := c.ledger.write(gaps, now); err != nil {
		c.tellGapsAt = now.Add(tellAgain)
		if c.ledgerFailedAt.IsZero() {
			c.slog.Warn("the ledger of gaps cannot be written; the spool keeps them until it can", "gaps", len(gaps), "error", err)
		}
		c.ledgerFailedAt = now
		c.publishGaps(gaps)
		return
	}
	c.tellLedger(now)
	for i := range gaps {
		c.told[gapKey{gaps[i].Block, gaps[i].Reason}] += gaps[i].Records
	}
	c.log.Told(gaps[len(gaps)-1].Number + 1)
	c.publishGaps(nil)
}

// tellLedger says once that the ledger, which could not be written, has all. On a
// volume that others keep full it can be written now and then: no news each time.
func (c *committer) tellLedger(now time.Time) {
	if !c.ledgerFailedAt.IsZero() && now.Sub(c.ledgerFailedAt) >= 2*tellAgain {
		c.ledgerFailedAt = time.Time{}
		c.slog.Info("the ledger of gaps is written again: no gap is missing in it")
	}
}

// publishGaps makes the counts visible: what is in the ledger, and untold.
func (c *committer) publishGaps(untold []spool.UntoldGap) {
	sums := map[gapKey]uint64{}
	for k, n := range c.told {
		sums[k] = n
	}
	for i := range untold {
		sums[gapKey{untold[i].Block, untold[i].Reason}] += untold[i].Records
	}
	list := make([]Dropped, 0, len(sums))
	for k, n := range sums {
		list = append(list, Dropped{Source: k.source, Reason: gapReasons[k.reason], Records: n})
	}
	slices.SortFunc(list, func(a, b Dropped) int { return cmpDropped(&a, &b) })
	c.stats.dropped.Store(&list)
}
