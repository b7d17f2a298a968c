package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	produceKey = 0 // ProduceRequest

	// Version 3 is the first to take record batches of format 2, 9 the first with flexible fields (KIP-482), 13 names
	// topics by id (KIP-516): the one fence against a topic that was deleted and created again.
	produceVersionFlexible = 9
	produceVersionByName   = 12
	produceVersionByID     = 13

	// ProduceTimeoutMs is how long a broker may wait for its replicas before it answers REQUEST_TIMED_OUT.
	ProduceTimeoutMs = 10_000
)

// ProducePart is one batch on its way to one partition.
type ProducePart struct {
	Topic     string
	TopicID   [16]byte // zero: not known
	Partition int32
	Batch     []byte // a complete stamped batch: header and records; not touched until the request is settled
}

// ProduceRequest is our own form of Kafka's ProduceRequest (key 0), acks -1 and without transaction. kgo writes it as
// it is, where it would rewrite a kmsg.ProduceRequest. The zero value is an empty request; a sender fills, sends and
// reuses one. While Client.Produce runs, it belongs to the client.
type ProduceRequest struct {
	// TimeoutMs is the broker's time to replicate, 0 for ProduceTimeoutMs.
	TimeoutMs int32

	parts   []ProducePart
	next    []int // next[i] is the part behind part i in its topic entry, -1 for the last
	topics  []topicEntry
	bytes   int // sum of the batches and of what surrounds them, at most
	named   int // parts without topic id
	version int16
	written atomic.Bool
}

// topicEntry chains the parts of one topic.
type topicEntry struct {
	first, last, count int
}

// Reset empties the request for the next use. It keeps its memory, but no batch.
func (r *ProduceRequest) Reset() {
	clear(r.parts)
	r.parts, r.next, r.topics = r.parts[:0], r.next[:0], r.topics[:0]
	r.bytes, r.named, r.version = 0, 0, 0
	r.written.Store(false)
}

const (
	requestOverhead   = 2 + 2 + 4 + 5 + 1 // transaction id, acks, timeout, topic count, tags
	topicOverhead     = 16 + 3 + 5 + 1    // topic id or name's length, partition count, tags
	partitionOverhead = 4 + 5 + 1         // partition, batch length, tags
)

// Add puts a part behind the others; the parts of one topic share a topic entry. A partition that is in the request
// already is a bug and panics: a broker drops one of two such batches without an error. The check is linear in the
// parts of the topic.
func (r *ProduceRequest) Add(p ProducePart) {
	t := r.topicOf(p)
	if t < 0 {
		t = len(r.topics)
		r.topics = append(r.topics, topicEntry{first: len(r.parts)})
		r.bytes += topicOverhead + len(p.Topic)
	} else {
		r.next[r.topics[t].last] = len(r.parts)
	}
	r.topics[t].last = len(r.parts)
	r.topics[t].count++
	r.parts = append(r.parts, p)
	r.next = append(r.next, -1)
	r.bytes += partitionOverhead + len(p.Batch)
	if p.TopicID == ([16]byte{}) {
		r.named++
	}
}

// topicOf finds the topic entry for p, -1 if there is none. One name with two ids makes two entries: whether the older
// one still counts is the broker's to say.
func (r *ProduceRequest) topicOf(p ProducePart) int {
	found := -1
	for t := range r.topics {
		first := &r.parts[r.topics[t].first]
		sameID := p.TopicID == first.TopicID
		if p.Topic != first.Topic && (!sameID || p.TopicID == [16]byte{}) {
			continue
		}
		for i := r.topics[t].first; i >= 0; i = r.next[i] {
			if r.parts[i].Partition == p.Partition {
				panic(fmt.Sprintf("BUG: partition %d of topic %s is in the produce request twice", p.Partition, p.Topic))
			}
		}
		if sameID && p.Topic == first.Topic {
			found = t
		}
	}
	return found
}

// Len is the number of parts.
func (r *ProduceRequest) Len() int { return len(r.parts) }

// Bytes is the most bytes that AppendTo writes.
func (r *ProduceRequest) Bytes() int { return requestOverhead + r.bytes }

// Written reports whether AppendTo has run since Reset: if so, bytes may have left. Any goroutine may ask.
func (r *ProduceRequest) Written() bool { return r.written.Load() }

// Key is part of kmsg.Request.
func (r *ProduceRequest) Key() int16 { return produceKey }

// MaxVersion is part of kmsg.Request: by topic id only if all parts have one.
func (r *ProduceRequest) MaxVersion() int16 {
	if r.named > 0 {
		return produceVersionByName
	}
	return produceVersionByID
}

// SetVersion is part of kmsg.Request.
func (r *ProduceRequest) SetVersion(v int16) { r.version = v }

// GetVersion is part of kmsg.Request.
func (r *ProduceRequest) GetVersion() int16 { return r.version }

// byID says that the request was written with topic ids instead of names.
func (r *ProduceRequest) byID() bool { return r.version >= produceVersionByID }

// IsFlexible is part of kmsg.Request.
func (r *ProduceRequest) IsFlexible() bool { return r.version >= produceVersionFlexible }

// Timeout is part of kmsg.TimeoutRequest: kgo waits this many ms longer for the answer.
func (r *ProduceRequest) Timeout() int32 {
	if r.TimeoutMs > 0 {
		return r.TimeoutMs
	}
	return ProduceTimeoutMs
}

// ResponseKind is part of kmsg.Request.
func (r *ProduceRequest) ResponseKind() kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = r.version
	return resp
}

// ReadFrom is part of kmsg.Request. Only servers read requests; kmsg.ProduceRequest does that.
func (r *ProduceRequest) ReadFrom([]byte) error {
	return fmt.Errorf("a produce request of this type is only written: read it with kmsg.ProduceRequest")
}

// AppendTo is part of kmsg.Request: it writes the request in the version that was set and marks it as written. kgo runs
// it right before the socket write, and once more on a new connection if the first took no byte; both write the same.
func (r *ProduceRequest) AppendTo(dst []byte) []byte {
	r.written.Store(true)
	flexible := r.IsFlexible()
	be := binary.BigEndian
	dst = slices.Grow(dst, r.Bytes())
	if flexible {
		dst = append(dst, 0) // no transactional id, compact
	} else {
		dst = append(dst, 0xff, 0xff)
	}
	dst = append(dst, 0xff, 0xff) // acks -1: with any other, a leader could acknowledge what it loses
	dst = be.AppendUint32(dst, uint32(r.Timeout()))
	dst = appendLength(dst, len(r.topics), flexible)
	for _, t := range r.topics {
		dst = r.appendTopic(dst, t)
	}
	return appendTags(dst, flexible)
}

func (r *ProduceRequest) appendTopic(dst []byte, t topicEntry) []byte {
	flexible := r.IsFlexible()
	first := &r.parts[t.first]
	switch {
	case r.byID():
		dst = append(dst, first.TopicID[:]...)
	case flexible:
		dst = binary.AppendUvarint(dst, uint64(len(first.Topic))+1)
		dst = append(dst, first.Topic...)
	default:
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(first.Topic)))
		dst = append(dst, first.Topic...)
	}
	dst = appendLength(dst, t.count, flexible)
	for i := t.first; i >= 0; i = r.next[i] {
		p := &r.parts[i]
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.Partition))
		dst = appendLength(dst, len(p.Batch), flexible)
		dst = append(dst, p.Batch...)
		dst = appendTags(dst, flexible)
	}
	return appendTags(dst, flexible)
}

// appendLength writes the length of an array or of bytes: an int32, or as compact type an unsigned varint of one more.
func appendLength(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

func appendTags(dst []byte, flexible bool) []byte {
	if flexible {
		return append(dst, 0)
	}
	return dst
}

// PartOutcome is a broker's answer to one part.
type PartOutcome struct {
	Answered        bool  // false: the response has no entry for the part, all else is unset
	Code            int16 // VerdictOf says what it means
	BaseOffset      int64 // -1 if the broker names none. On an error, an offset hints that the batch was appended
	LogAppendTime   int64 // ms; on a topic with the records' own times, >= 0 is the mark of a duplicate
	LeaderHint      int32 // the current leader's broker id if the broker knows better, else -1 (KIP-951)
	LeaderEpochHint int32 // its leader epoch, -1 if not named
	ErrorMessage    string
	RecordErrors    []int32 // which records, counted from 0 in the batch, are at fault (KIP-467); mostly none
}

// Outcomes appends one outcome for each part, in the order of Add, to dst. resp is what the request was answered with;
// an entry for something that is not in the request is ignored.
func (r *ProduceRequest) Outcomes(dst []PartOutcome, resp kmsg.Response) []PartOutcome {
	base := len(dst)
	for range r.parts {
		dst = append(dst, PartOutcome{BaseOffset: -1, LogAppendTime: -1, LeaderHint: -1, LeaderEpochHint: -1})
	}
	produced, ok := resp.(*kmsg.ProduceResponse)
	if !ok {
		return dst
	}
	for t := range produced.Topics {
		topic := &produced.Topics[t]
		for p := range topic.Partitions {
			partition := &topic.Partitions[p]
			if i := r.partOf(topic, partition.Partition, produced.Version); i >= 0 && !dst[base+i].Answered {
				dst[base+i] = outcomeOf(partition)
			}
		}
	}
	return dst
}

// partOf finds the part that an answer is for, -1 if there is none.
func (r *ProduceRequest) partOf(topic *kmsg.ProduceResponseTopic, partition int32, version int16) int {
	for _, t := range r.topics {
		first := &r.parts[t.first]
		if version >= produceVersionByID {
			if first.TopicID != topic.TopicID {
				continue
			}
		} else if first.Topic != topic.Topic {
			continue
		}
		for i := t.first; i >= 0; i = r.next[i] {
			if r.parts[i].Partition == partition {
				return i
			}
		}
	}
	return -1
}

func outcomeOf(p *kmsg.ProduceResponseTopicPartition) PartOutcome {
	o := PartOutcome{
		Answered:        true,
		Code:            p.ErrorCode,
		BaseOffset:      p.BaseOffset,
		LogAppendTime:   p.LogAppendTime,
		LeaderHint:      p.CurrentLeader.LeaderID,
		LeaderEpochHint: p.CurrentLeader.LeaderEpoch,
	}
	if p.ErrorMessage != nil {
		o.ErrorMessage = *p.ErrorMessage
	}
	for i := range p.ErrorRecords {
		e := &p.ErrorRecords[i]
		o.RecordErrors = append(o.RecordErrors, e.RelativeOffset)
		if o.ErrorMessage == "" && e.ErrorMessage != nil {
			o.ErrorMessage = *e.ErrorMessage
		}
	}
	return o
}
