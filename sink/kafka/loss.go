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
func firstLoss(head, from uint64, held []HeldBatch, last AckedBatch, partition int32, endOf func(epoch int32) (int64, error)) (Event, error) {
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
	ends := map[int32]int64{}
	for _, x := range acks {
		if x.Epoch < 0 || x.Partition != partition {
			continue // proves nothing
		}
		end, known := ends[x.Epoch]
		if !known {
			var err error
			if end, err = endOf(x.Epoch); err != nil {
				return Event{}, err
			}
			ends[x.Epoch] = end
		}
		if end < 0 || end >= x.End {
			ev.Acked, from = x, x.Next()
			continue
		}
		ev.Lost = x.First
		if end < x.Base {
			ev.Lost -= min(x.First-min(from, x.First), uint64(x.Base-end))
		}
		if ev.Acked.Next() != ev.Lost && ev.Lost > 0 && end > 0 {
			// The ack below the loss is not known. That the log goes to `end`
			// is proof enough of all below it, for the next leader.
			ev.Acked = AckedBatch{Batch: Batch{First: ev.Lost - 1, Count: 1}, Base: end - 1, End: end, Epoch: x.Epoch, Partition: partition}
		}
		break
	}
	for i := range held { // a batch is lost as a whole
		if h := &held[i].Ref; h.First < ev.Lost && ev.Lost < h.Next() {
			ev.Lost = h.First
		}
	}
	return ev, nil
}
