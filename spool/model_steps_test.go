package spool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// What happens to lanes of the model beside appending: acks, dead letters, cuts, merges and heals.

// deliver is the sink: a producer id if none covers the head, else the durable
// head is sent and acked.
func (w *world) deliver(id uint32) error {
	if id == w.stuck {
		return nil
	}
	next := w.now.clone()
	l := next.lanes[id]
	live := l.live()
	if len(live) == 0 {
		return nil
	}
	ident := l.covering(live[0].from) // a gap that is not listed any more may lie before it
	if ident == nil || ident.ProducerID < 0 {
		w.broker.producer++
		n := Identity{Lane: id, From: live[0].from, Topic: "t", Partition: -1, ProducerID: w.broker.producer, Floor: -1, Reason: IdentityFirst}
		if ident != nil {
			n.From = ident.From
		}
		l.setIdentity(n)
		return w.append(next, nil, &Commit{Identities: []Identity{n}})
	}
	// Only what is durable may be sent: make it so.
	if err := w.sync(); err != nil {
		return err
	}
	ref := w.refs[id][live[0].from]
	if err := sameBatch(w.reader, ref, live[0], l.text(live[0])); err != nil {
		return fmt.Errorf("lane %d: %w", id, err)
	}
	if err := w.broker.produce(*ident, live[0].from, l.text(live[0])); err != nil {
		return err
	}
	w.stats["sent"]++
	if w.rng.IntN(6) == 0 {
		return nil // the answer is lost
	}
	a := Ack{Lane: id, First: ref.First, Count: ref.Count, BaseOffset: int64(ref.First), LeaderEpoch: 1}
	l.head, l.lastAck = a.Next(), a
	l.passGaps()
	return w.append(next, nil, &Commit{Acks: []Ack{a}})
}

// deadLetter drops the head and starts a new epoch behind it.
func (w *world) deadLetter(id uint32) error {
	next := w.now.clone()
	l := next.lanes[id]
	live := l.live()
	if len(live) == 0 {
		return nil
	}
	for i := live[0].from; i < live[0].to; i++ { // its bytes are kept elsewhere first
		w.count([]string{l.records[i]})
	}
	w.broker.producer++
	g := Gap{Lane: id, From: live[0].from, To: live[0].to, Records: live[0].to - live[0].from, Reason: GapRefused, DeadLetter: "x"}
	n := Identity{Lane: id, From: g.To, Topic: "t", Partition: -1, ProducerID: w.broker.producer, Floor: -1, Reason: IdentityGap}
	l.setIdentity(n)
	l.gaps = append(l.gaps, g)
	slices.SortFunc(l.gaps, func(a, b Gap) int { return cmp.Compare(a.From, b.From) })
	l.passGaps()
	w.stats["dead letter"]++
	return w.append(next, nil, &Commit{Identities: []Identity{n}, Gaps: []Gap{g}})
}

// recut cuts a batch that was never sent in two.
func (w *world) recut(id uint32) error {
	next := w.now.clone()
	l := next.lanes[id]
	for i, b := range l.batches {
		if b.from <= l.head || b.to-b.from < 2 {
			continue
		}
		middle := b.from + 1 + w.rng.Uint64N(b.to-b.from-1)
		halves := []span{{b.from, middle}, {middle, b.to}}
		l.batches = slices.Replace(l.batches, i, i+1, halves...)
		w.stats["cut again"]++
		return w.append(next, []Batch{modelBatch(id, halves[0], l.text(halves[0])), modelBatch(id, halves[1], l.text(halves[1]))}, &Commit{})
	}
	return nil
}

// merge makes one batch of neighbours that were never sent.
func (w *world) merge(id uint32) error {
	next := w.now.clone()
	l := next.lanes[id]
	from := slices.IndexFunc(l.batches, func(b span) bool { return b.from > l.head })
	if from < 0 {
		return nil
	}
	whole, to := l.batches[from], from+1
	for ; to < len(l.batches) && l.batches[to].from == whole.to && w.rng.IntN(4) > 0; to++ {
		begins := slices.ContainsFunc(l.identities, func(n Identity) bool { return n.From == whole.to })
		dropped := slices.ContainsFunc(l.gaps, func(g Gap) bool { return g.From < l.batches[to].to && whole.from < g.To })
		if begins || dropped || len(l.text(span{whole.from, l.batches[to].to})) > 2000 {
			break
		}
		whole.to = l.batches[to].to
	}
	if to-from < 2 {
		return nil
	}
	l.batches = slices.Replace(l.batches, from, to, whole)
	w.stats["merged"]++
	return w.append(next, []Batch{modelBatch(id, whole, l.text(whole))}, &Commit{Optional: true})
}

// heal moves the head back to an acked batch that is still held.
func (w *world) heal(id uint32) error {
	acked, err := w.log.AckedFrom(id, 0)
	if err != nil || len(acked) == 0 {
		return err
	}
	next := w.now.clone()
	l := next.lanes[id]
	x := w.rng.IntN(len(acked))
	for i := x; i < len(acked); i++ { // all behind X must be held too, or dropped
		if i > x && acked[i].First != acked[i-1].To {
			return nil
		}
	}
	if acked[len(acked)-1].To != l.head {
		return nil
	}
	if err := w.sync(); err != nil { // acked ones are read below
		return err
	}
	for _, a := range acked[x:] {
		b := span{a.First, a.Next()}
		w.takeHeld(l, b)
		err := sameBatch(w.reader, a.Ref, b, l.text(b))
		if damaged := new(CorruptionError); errors.As(err, &damaged) && w.rotten {
			return nil // not all held
		}
		if err != nil {
			return fmt.Errorf("lane %d held: %w", id, err)
		}
		w.refs[id][a.First] = a.Ref
		if !slices.Contains(l.batches, b) { // not known since a start that could not tell, or an older cut
			l.batches = slices.DeleteFunc(l.batches, func(have span) bool { return have.from < b.to && b.from < have.to })
			l.batches = append(l.batches, b)
			slices.SortFunc(l.batches, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		}
	}
	l.head, l.lastAck = acked[x].First, Ack{}
	c := &Commit{Heads: []Head{{Lane: id, Index: l.head}}}
	if x > 0 && acked[x-1].Ack.Count > 0 && acked[x-1].Next() == l.head {
		l.lastAck = acked[x-1].Ack
		c.Acks = []Ack{l.lastAck}
	}
	l.passGaps()
	w.stats["healed"]++
	return w.append(next, nil, c)
}

// takeHeld lets the model know which of the lines that ever had these numbers are in
// an acked batch. Where disks lie and old copies come back it can only guess; who
// knows is the broker, if it has them under the identity that covers them now.
func (w *world) takeHeld(l *modelLane, b span) {
	id := l.covering(b.from)
	if !w.rotten || id == nil {
		return
	}
	for i := b.from; i < b.to; i++ {
		if line, ok := w.broker.log[sequence{id.ProducerID, id.Epoch, i - id.From}]; ok {
			l.records[i] = line
		}
	}
}

// lost lists lines that the files' cursors have passed and that are neither at
// the broker nor in the log nor counted by a gap.
func (w *world) lost() []string {
	safe := maps.Clone(w.broker.lines)
	for _, l := range w.now.lanes {
		for _, b := range l.live() {
			for i := b.from; i < b.to; i++ {
				safe[lineKey(l.records[i])]++
			}
		}
		for _, g := range l.gaps {
			for i := g.From; i < g.To; i++ {
				safe[lineKey(l.records[i])]++
			}
		}
	}
	var lost []string
	for source, lines := range w.now.cursors {
		for n := range lines {
			if key := fmt.Sprintf("%d/%d", source, n); safe[key] == 0 {
				lost = append(lost, key)
			}
		}
	}
	return lost
}

func (w *world) close() error { return errors.Join(w.reader.Close(), w.log.Close()) }
