package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produce carries out one Produce request. The response is reused by the next.
func (cn *conn) produce(req *kmsg.ProduceRequest) kmsg.Response {
	b := cn.broker
	b.mu.Lock()
	b.totals.Requests++
	b.mu.Unlock()

	resp := &cn.produced
	resp.Version = req.Version
	resp.Topics = resp.Topics[:0]
	for i := range req.Topics {
		rt := &req.Topics[i]
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = rt.Topic, rt.TopicID
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			t.Partitions = append(t.Partitions, b.produceBatch(req.Version, rt, rp))
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// produceBatch appends one partition's batch, or answers why not.
func (b *Broker) produceBatch(version int16, rt *kmsg.ProduceRequestTopic, rp *kmsg.ProduceRequestTopicPartition) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition = rp.Partition
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = -1, -1, 0

	h, code := parseBatch(rp.Records, b.o.BatchBytesMax, b.lines != nil)
	if code == 0 && h.codec() == 4 && version < 7 { // zstd came with version 7 (KIP-110)
		code = kerr.UnsupportedCompressionType.Code
	}
	// Unpacked before the lock, counted under it and only when the batch is appended.
	var values []line
	if code == 0 && b.lines != nil {
		var err error
		if values, err = parseLines(rp.Records[batchHeaderBytes:], h); err != nil {
			code = kerr.InvalidRecord.Code
			p.ErrorMessage = kmsg.StringPtr(err.Error())
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if code == 0 {
		var part *partition
		if part, code = b.partitionLocked(version, rt, rp.Partition); code == 0 {
			p.BaseOffset, p.LogAppendTime, code = b.appendLocked(part, h, len(rp.Records))
			if code == 0 && p.LogAppendTime < 0 && b.lines != nil {
				b.lines.arrived(int(rp.Partition), values)
			}
		}
	}
	if p.ErrorCode = code; code != 0 {
		b.totals.Refused[kerr.TypedErrorForCode(code).Message]++
	}
	return p
}

func (b *Broker) partitionLocked(version int16, rt *kmsg.ProduceRequestTopic, number int32) (*partition, int16) {
	t, unknown := b.topics[rt.Topic], kerr.UnknownTopicOrPartition
	if version >= 13 {
		t, unknown = b.byID[rt.TopicID], kerr.UnknownTopicID
	}
	if t == nil {
		return nil, unknown.Code
	}
	if number < 0 || int(number) >= len(t.partitions) {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	return &t.partitions[number], 0
}

// appendLocked gives a batch its offset. A duplicate gets its old offset and the time it was stored with; a fresh one time -1.
func (b *Broker) appendLocked(part *partition, h batchHeader, size int) (base, appendTime int64, code int16) {
	if h.producerID >= 0 {
		p := part.producers[h.producerID]
		dup, code := p.admit(h)
		if code != 0 {
			return -1, -1, code
		}
		if dup != nil {
			b.totals.Duplicates++
			return dup.base, dup.time, 0
		}
		if p == nil {
			p = &producer{epoch: h.epoch}
			part.producers[h.producerID] = p
		}
		p.appended(h, part.end)
	} else {
		b.totals.Unsequenced++
	}
	base = part.end
	part.end += int64(h.count)
	now := time.Now().UnixNano()
	if b.totals.FirstAppendNano == 0 {
		b.totals.FirstAppendNano = now
	}
	b.totals.LastAppendNano = now
	b.totals.Records += int64(h.count)
	b.totals.Batches++
	b.totals.BatchBytes += int64(size)
	return base, -1, 0
}
