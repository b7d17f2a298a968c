package pipeline

import (
	"errors"
	"fmt"

	"shipper/sink/kafka"
	"shipper/spool"
	"shipper/tail"
)

// From the spool's words to those of tail and sink. The leaves do not know each
// other; these few copies are the price.

func sinkRef(r spool.Ref) kafka.Ref {
	return kafka.Ref{Batch: kafka.Batch{First: r.First, Count: r.Count, MaxTime: r.MaxTime}, Bytes: r.Bytes, Place: uint64(r.Segment)<<32 | uint64(r.Block)}
}

func spoolRef(r kafka.Ref) spool.Ref {
	return spool.Ref{First: r.First, MaxTime: r.MaxTime, Segment: uint32(r.Place >> 32), Block: uint32(r.Place), Count: r.Count, Bytes: r.Bytes}
}

// frameReader reads spooled batches for a sender.
type frameReader struct{ r *spool.Reader }

func (f frameReader) ReadBatch(dst []byte, ref kafka.Ref) ([]byte, error) {
	buf, err := f.r.ReadBatch(dst, spoolRef(ref))
	var damage *spool.CorruptionError
	if errors.As(err, &damage) {
		return buf, fmt.Errorf("%w: %w", kafka.ErrDamaged, err)
	}
	return buf, err
}

func knownSource(s *spool.SourceState) tail.Known {
	c := tail.Cursor{Offset: s.Offset, Anchor: s.Anchor, AnchorBytes: s.AnchorBytes, State: tail.LineState(s.State), Part: s.Part}
	if c.State == tail.Fresh {
		c.Part, c.Note = 0, s.Part
	}
	return tail.Known{ID: s.ID, Block: s.Block, Path: s.Path,
		Fingerprint: tail.Fingerprint{Dev: s.Dev, Ino: s.Ino, Born: s.Born, Prefix: s.Prefix, PrefixBytes: s.PrefixBytes},
		Cursor:      c}
}

func sinkIdentity(i *spool.Identity) kafka.IdentityRecord {
	return kafka.IdentityRecord{From: i.From, ClusterID: i.ClusterID, Topic: i.Topic, TopicID: i.TopicID, Partition: i.Partition,
		ProducerID: i.ProducerID, Epoch: i.Epoch, Floor: i.Floor, FloorEpoch: i.FloorEpoch, Reason: kafka.Reason(i.Reason)}
}

// sinkAck gives an ack the partition that the lane's identities say it is of.
func sinkAck(a spool.Ack, ids []spool.Identity) kafka.AckedBatch {
	out := kafka.AckedBatch{Batch: kafka.Batch{First: a.First, Count: a.Count}, Base: a.BaseOffset, End: a.BaseOffset + int64(a.Count), Epoch: a.LeaderEpoch, Partition: -1}
	for i := range ids {
		if ids[i].From <= a.First {
			out.Partition = ids[i].Partition
		}
	}
	return out
}

func laneStart(s *spool.LaneState, info kafka.LaneInfo) *kafka.LaneStart {
	l := &kafka.LaneStart{LaneInfo: info, Head: s.Head, Top: s.Top, LastAck: sinkAck(s.LastAck, s.Identities), More: s.More}
	for i := range s.Identities {
		l.Identities = append(l.Identities, sinkIdentity(&s.Identities[i]))
	}
	for _, r := range s.Batches {
		l.Batches = append(l.Batches, sinkRef(r))
	}
	return l
}

// heldBatch is an acked batch that the spool holds. One that was acked together
// with a later one has no ack of its own, and proves nothing.
func heldBatch(h spool.AckedBatch) kafka.HeldBatch {
	ref := sinkRef(h.Ref)
	acked := kafka.AckedBatch{Batch: ref.Batch, Epoch: -1}
	if h.Ack.Count > 0 {
		acked.Base, acked.End, acked.Epoch = h.Ack.BaseOffset, h.Ack.BaseOffset+int64(h.Ack.Count), h.Ack.LeaderEpoch
	}
	return kafka.HeldBatch{Ref: ref, Acked: acked, To: h.To}
}
