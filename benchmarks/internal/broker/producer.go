package broker

import "github.com/twmb/franz-go/pkg/kerr"

// producer is what a partition remembers of one producer id: epoch, last sequence and the last five batches, with which a
// repeated batch is recognised. Rules: Kafka's ProducerStateEntry and ProducerAppendInfo, 2.5 to 4.4.
type producer struct {
	epoch  int16
	recent [5]sequenced // ring; the newest stands before next
	next   int
	held   int
}

// sequenced is one appended batch.
type sequenced struct {
	first, last int32
	base        int64 // offset
	time        int64 // newest record time, ms
}

// sequenceAfter adds n to a sequence; sequences count modulo 2^31.
func sequenceAfter(s, n int32) int32 {
	return int32((int64(s) + int64(n)) & 0x7fffffff)
}

func (p *producer) newest() *sequenced {
	return &p.recent[(p.next+len(p.recent)-1)%len(p.recent)]
}

// find returns the remembered batch with exactly these bounds. Content is not looked at.
func (p *producer) find(first, last int32) *sequenced {
	for i := range p.held {
		if q := &p.recent[(p.next+len(p.recent)-1-i)%len(p.recent)]; q.first == first && q.last == last {
			return q
		}
	}
	return nil
}

// admit decides on a batch: dup != nil, it is there already; code != 0, it is refused; else it is to be appended. p is nil for
// a producer the partition does not know: then any sequence and epoch is taken.
func (p *producer) admit(h batchHeader) (dup *sequenced, code int16) {
	if p == nil {
		return nil, 0
	}
	if h.epoch == p.epoch {
		if dup = p.find(h.baseSequence, h.lastSequence()); dup != nil {
			return dup, 0
		}
	}
	switch {
	case h.epoch < p.epoch:
		return nil, kerr.InvalidProducerEpoch.Code
	case h.epoch > p.epoch && h.baseSequence != 0:
		return nil, kerr.OutOfOrderSequenceNumber.Code
	case h.epoch == p.epoch && h.baseSequence != sequenceAfter(p.newest().last, 1):
		return nil, kerr.OutOfOrderSequenceNumber.Code
	}
	return nil, 0
}

// appended remembers a batch that got the offset base.
func (p *producer) appended(h batchHeader, base int64) {
	if h.epoch != p.epoch {
		*p = producer{epoch: h.epoch}
	}
	p.recent[p.next] = sequenced{first: h.baseSequence, last: h.lastSequence(), base: base, time: h.maxTime}
	p.next = (p.next + 1) % len(p.recent)
	p.held = min(p.held+1, len(p.recent))
}
