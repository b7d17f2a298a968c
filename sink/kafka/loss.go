package kafka

// firstLoss says which of a lane's acked batches their leader lacks, as the
// EvLoss that its machine waits for. held are the acked batches in the spool,
// ascending; last is the last ack that counts, which may be of none of them;
// indexes from `from` on are in partition. endOf is the end of a leader epoch at
// the leader, -1 if it does not know it (KIP-320); every ack is measured by the
// epoch that it counts under.
//
// The acks of batches that are no longer held are not known. If the log ends
// below the first batch that is, then as many records below it are counted as
// lost as there are offsets in between: never fewer than were ours.
//
// A leader whose log parted from ours before an epoch began may go further than
// our acks of that epoch, with records of others: all of these count as lost. The
// first ack under an epoch, if it is not firm, may be of an attempt that was appended
// in an older one, and answered as a duplicate; those behind it are not. If it is the
// first that is lost it may be there after all, and the event's Unsure is behind it.
func firstLoss(head, from uint64, held []HeldBatch, last AckedBatch, partition int32, endOf func(epoch int32) (epochEnd, error)) (Event, error) {
	ev := Event{Kind: EvLoss, Lost: head, Held: head, Acked: AckedBatch{Epoch: -1}}
	for i := len(held) - 1; i >= 0 && held[i].To == ev.Held; i-- {
		ev.Held = held[i].Ref.First
	}
	acks := make([]AckedBatch, 0, len(held)+1)
	for i := range held {
		acks = append(acks, held[i].Acked)
	}
	switch n := len(acks); {
	case n == 0 || acks[n-1].Next() < last.Next():
		acks = append(acks, last)
	case acks[n-1].Next() == last.Next() && last.Epoch >= 0:
		acks[n-1] = last // the spool may have lost its entry
	}
	ends, err := endsOf(acks, partition, endOf)
	if err != nil {
		return Event{}, err
	}
	lost, lostEnd := AckedBatch{}, int64(0)
	for i := len(acks) - 1; i >= 0; i-- {
		x := &acks[i]
		if x.Epoch < 0 || x.Partition != partition {
			continue
		}
		e := ends[x.Epoch]
		end, within := e.offset, e.offset < 0 || e.offset >= x.End
		if within && !e.parted {
			if ev.Acked.Count == 0 {
				ev.Acked = *x
			}
			if end < 0 {
				continue // it proves nothing of those before it
			}
			break // nor is any of ours before it lost: the leader's log is one with that up to there
		}
		firm := !within || x.Firm || x.First > e.first
		if within {
			end = 0 // how far the logs go together is not known
		}
		switch {
		case firm:
			ev.Unsure = 0 // nor can what was sent behind it be there
		case ev.Unsure == 0:
			ev.Unsure = x.Next()
		}
		ev.Lost, ev.Acked, lost, lostEnd = x.First, AckedBatch{Epoch: -1}, *x, end
	}
	if ev.Lost < head {
		from = max(from, min(ev.Acked.Next(), lost.First))
		if lostEnd < lost.Base {
			ev.Lost -= min(lost.First-min(from, lost.First), uint64(lost.Base-lostEnd))
		}
		if ev.Acked.Next() != ev.Lost && ev.Lost > 0 && lostEnd > 0 {
			// The ack below the loss is not known. That the log goes to its end
			// is proof enough of all below it, for the next leader.
			ev.Acked = AckedBatch{Batch: Batch{First: ev.Lost - 1, Count: 1}, Base: lostEnd - 1, End: lostEnd, Epoch: lost.Epoch, Partition: partition}
		}
	}
	for i := range held { // a batch is lost as a whole
		if h := &held[i].Ref; h.First < ev.Lost && ev.Lost < h.Next() {
			ev.Lost = h.First
		}
	}
	return ev, nil
}

// ackEnd is what the leader has of an epoch of acks, of which first is the first.
type ackEnd struct {
	epochEnd
	first uint64
}

// endsOf asks for the ends of all epochs of acks that prove something.
func endsOf(acks []AckedBatch, partition int32, endOf func(epoch int32) (epochEnd, error)) (map[int32]ackEnd, error) {
	ends := map[int32]ackEnd{}
	for i := range acks {
		x := &acks[i]
		if x.Epoch < 0 || x.Partition != partition {
			continue
		}
		if _, known := ends[x.Epoch]; known {
			continue
		}
		e, err := endOf(x.Epoch)
		if err != nil {
			return nil, err
		}
		ends[x.Epoch] = ackEnd{e, x.First}
	}
	return ends, nil
}

// seen corrects an EvLoss: the last ack was read where it was.
func (ev *Event) seen(last AckedBatch, head uint64) {
	switch {
	case ev.Lost == last.First: // and only that one was said to be lost
		ev.Lost, ev.Found = head, true
	case ev.Lost < last.First: // what went before it may be lost all the same
		ev.Unsure = last.Next()
	}
}
