package kafka

import (
	"context"
	"errors"
	"slices"
)

// A backlog of many small batches would drain at one of them per round trip and
// lane. So small neighbours that were never sent are made one batch: read from the
// spool, encoded as one, durable before it is sent, under the same identity.
//
//	queue  [head] a b c d e ... y z      head: offered, perhaps in doubt; stays as it is
//	            `-- merged --'
//	       [head] A y z                  A: the same records with the same indexes
//
// It is the rule of a cut ahead the other way round: numbers that were never on a
// wire may be given new boundaries. While it is under way the lane is not offered
// what is merged; it goes on with what is before. A crash leaves a b c d e or A,
// since for one index the later frame wins, and nothing of either was sent: the one
// batch that may be in doubt then is the head, which no merge touches. During a
// step back of the head nothing is merged: what is sent again has the boundaries
// that it had.
//
// One merge or cut at a time for all lanes, and none further ahead than two batches
// behind the head: so memory, and what is written twice, are bounded.

const (
	mergeFramesMin = 16 // of neighbours that look small: fewer are not worth looking
	mergeWorthMin  = 4  // that fit into one once they are unpacked
	mergeFramesMax = 16 << 10
	mergeAheadMax  = 2
	mergeRetryMs   = 5_000 // when the spool has no room

	// mergeGrowthMax is how many bytes a record may grow: its time and offset are
	// counted from another batch's first.
	mergeGrowthMax = 9 + 2 + 2
)

// mergeRun is how many batches of the queue, from which one on, are to become
// one; n is 0 if none are.
func (s *Sink) mergeRun(r *row) (at, n int) {
	if s.cfg.MergeBytesMax == 0 || r.lane.top > 0 || r.queue.len() <= mergeFramesMin {
		return 0, 0
	}
	bytesMax := s.mergeBytes(r)
	for at = 1; at <= mergeAheadMax; at++ {
		if n = r.small(at, bytesMax, mergeFramesMin); n == mergeFramesMin {
			return at, r.small(at, bytesMax, mergeFramesMax)
		}
	}
	return 0, 0
}

// mergeBytes is how many raw bytes a merged batch may have.
func (s *Sink) mergeBytes(r *row) int {
	if limit := s.limitOf(r.info.Topic); limit > 0 {
		return min(limit, s.cfg.MergeBytesMax)
	}
	return s.cfg.MergeBytesMax
}

// small counts neighbours in the queue that may become one batch, up to most.
func (r *row) small(at, bytesMax, most int) (n int) {
	first := r.queue.at(at).First
	if first < r.mergeFrom {
		return 0
	}
	next, bytes, records := first, 0, 0
	for ; n < most && at+n < r.queue.len(); n++ {
		ref := r.queue.at(at + n)
		bytes += HeaderBytes + int(ref.Bytes)
		records += int(ref.Count)
		if ref.First != next || bytes > bytesMax || records > RecordsMax || n > 0 && r.identityBegins(ref.First) {
			break
		}
		next = ref.Next()
	}
	return n
}

// identityBegins says that another identity covers what is from index on.
func (r *row) identityBegins(index uint64) bool {
	return slices.ContainsFunc(r.ids, func(id IdentityRecord) bool { return id.From == index })
}

// merge begins with the lane's next merge, if there is one and none is under way.
func (s *Sink) merge(r *row) {
	c := &s.cuts
	if c.busy != nil || len(c.waiting) > 0 || s.stopping || s.now() < c.mergeAfter {
		return
	}
	at, n := s.mergeRun(r)
	if n == 0 {
		return
	}
	c.begin(s, r)
	c.refs = c.refs[:0]
	for i := range n {
		c.refs = append(c.refs, *r.queue.at(at + i))
	}
	r.mergeFrom = c.refs[0].First
	r.merging = true
	q := mergeJob{refs: c.refs, bytesMax: s.mergeBytes(r), codec: r.info.Codec, reader: c.reader, tool: c.tool}
	s.question(func(context.Context) reply { return reply{row: r, merged: q.run()} })
}

// mergeJob is a merge on its way. While it runs it has the cutter and the reader.
type mergeJob struct {
	refs     []Ref
	bytesMax int
	codec    Codec
	reader   FrameReader
	tool     *cutter
}

// mergeReply is what came of it: a batch instead of the first n.
type mergeReply struct {
	made Replacement
	n    int
	err  error // of the one behind them
}

func (q *mergeJob) run() *mergeReply {
	x := &mergeReply{}
	var sealed Sealed
	sealed, x.n, x.err = q.tool.merge(q.reader, q.refs, q.bytesMax, q.codec)
	x.made = Replacement{Batches: []CutBatch{{First: q.refs[0].First, Sealed: sealed}}, Optional: true}
	return x
}

// merge makes one batch of the first n that refs name, as many as fit. An error is
// of the batch behind them; nothing is sealed if they are too few. What is sealed
// is valid until the next merge.
func (c *cutter) merge(reader FrameReader, refs []Ref, bytesMax int, codec Codec) (sealed Sealed, n int, err error) {
	c.builder.Reset(c.builder.buf)
	for n < len(refs) {
		if c.frame, err = reader.ReadBatch(c.frame[:0], refs[n]); err == nil {
			err = c.load(c.frame, refs[n].First)
		}
		if err != nil || c.count() != int(refs[n].Count) || c.builder.Bytes()+len(c.raw)+mergeGrowthMax*c.count() > bytesMax {
			break
		}
		for j := range c.count() {
			c.again(j, func(t int64) int64 { return t })
		}
		n++
	}
	if n < mergeWorthMin {
		return sealed, n, err
	}
	compressor, cerr := c.compressor(codec)
	if cerr != nil {
		return sealed, 0, cerr
	}
	c.out = slices.Grow(c.out[:0], SealBytesMax(c.builder.Bytes()))
	compressor.Seal(&c.builder, c.out, &sealed)
	return sealed, n, err
}

// takeMerge has the merged batch made durable.
func (s *Sink) takeMerge(r *row, x *mergeReply) {
	c := &s.cuts
	if x.n < mergeWorthMin {
		// The one behind what was read is in the way: it goes alone.
		r.mergeFrom = c.refs[x.n].Next()
		if x.err != nil && !errors.Is(x.err, ErrDamaged) {
			s.warn("small batches could not be made one", "topic", r.info.Topic, "lane", r.info.ID, "error", x.err)
			c.mergeAfter = s.now() + mergeRetryMs
		}
		s.endMerge(r)
		return
	}
	c.refs = c.refs[:x.n]
	s.cfg.Journal.Replace(r.info.ID, &x.made)
}

// merged goes on once the merged batch is durable, or could not be written.
func (s *Sink) merged(r *row, done *Replaced) {
	c := &s.cuts
	if done.Err != nil {
		c.mergeAfter = s.now() + mergeRetryMs
	} else {
		r.queue.replaceRun(c.refs[0].First, len(c.refs), done.Refs[0])
		s.stats.mergedBatches.Add(uint64(len(c.refs)))
	}
	s.endMerge(r)
}

// endMerge lets the lane go on, and gives the next cut, or else the next lane with
// small batches, its turn.
func (s *Sink) endMerge(r *row) {
	s.cuts.busy, r.merging = nil, false
	s.nextCut()
	turn := slices.Index(s.order, r)
	for i := range s.order {
		s.merge(s.order[(turn+1+i)%len(s.order)])
	}
	s.feed(r)
	s.cuts.rest()
}
