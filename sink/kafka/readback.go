package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Read-back: is a batch of ours in the log? Needs READ on the topic. The log is fetched from floor on and only batch
// headers are looked at.
//
//	end := log end, by OffsetForLeaderEpoch for the current epoch (the end of all that is appended, not only of what
//	       is replicated: a batch above the high watermark is no less there)
//	fetch from floor, look at headers, go on behind them, until `end` is reached
//
// The leader epoch in every request fences: had the leader changed in between, it would refuse.
const (
	fetchBytes      = 4 << 20 // of one answer; a larger batch comes alone
	fetchWaitMs     = 500
	fetchWaitsMax   = 20 // answers without progress: 10 s for the high watermark to reach the log's end
	fetchVersion12  = 12 // the last that names topics by name
	sessionlessOnly = -1
)

// ReadBackState says what a read-back found out.
type ReadBackState uint8

const (
	Inconclusive ReadBackState = iota // cannot tell: see Reason
	Found                             // the batch is in the log, on all replicas in sync
	Absent                            // the batch is surely not in the log
)

func (s ReadBackState) String() string {
	switch s {
	case Found:
		return "found"
	case Absent:
		return "absent"
	}
	return "inconclusive"
}

// ReadBackResult is the answer of ReadBack.
type ReadBackResult struct {
	State      ReadBackState
	BaseOffset int64  // of the batch if Found, else -1
	Count      int32  // records of the batch if Found
	Code       int16  // Kafka error code that ended the search, mostly 0
	Reason     string // why Inconclusive
	Upto       int64  // from the floor up to here the batch is not, unless Found
	ReadBytes  int64
}

// ReadBackQuery names a batch and where to look for it.
type ReadBackQuery struct {
	Broker       int32 // the leader
	Topic        string
	TopicID      [16]byte // zero if not known
	Partition    int32
	CurrentEpoch int32 // the leader epoch known for Broker; another one in force ends the search
	Floor        int64 // the first offset at which the batch can be

	ProducerID   int64
	Epoch        int16
	BaseSequence int32

	BytesMax int64 // give up after about so many
}

// ReadBack looks for a batch in the log of a partition. An error is one of the transport; everything a broker says comes
// in the result.
func (c *Client) ReadBack(ctx context.Context, q ReadBackQuery) (ReadBackResult, error) {
	s := search{ReadBackQuery: q, c: c, at: q.Floor, waitMs: fetchWaitMs, result: ReadBackResult{BaseOffset: -1}}
	if err := s.run(ctx); err != nil {
		return ReadBackResult{BaseOffset: -1}, fmt.Errorf("read back %s/%d from broker %d: %w", q.Topic, q.Partition, q.Broker, err)
	}
	s.result.Upto = s.at
	return s.result, nil
}

// search is one read-back under way.
type search struct {
	ReadBackQuery
	c       *Client
	at, end int64 // the next offset to read; the log's end when the search began
	waits   int   // answers in a row that brought nothing
	waitMs  int32 // how long the leader may hold such an answer back
	result  ReadBackResult
}

func (s *search) run(ctx context.Context) error {
	done, err := s.findEnd(ctx)
	for err == nil && !done {
		switch {
		case s.at >= s.end:
			s.result.State = Absent
			return nil
		case s.result.ReadBytes >= s.BytesMax:
			s.give(0, fmt.Sprintf("%d bytes were read, up to offset %d of %d", s.result.ReadBytes, s.at, s.end))
			return nil
		}
		done, err = s.step(ctx)
	}
	return err
}

// give ends the search without a finding.
func (s *search) give(code int16, reason string) {
	s.result.State, s.result.Code, s.result.Reason = Inconclusive, code, reason
}

// findEnd learns where to stop. What is in doubt was sent before, so it lies below the log's end of now.
func (s *search) findEnd(ctx context.Context) (done bool, err error) {
	if s.CurrentEpoch < 0 {
		s.give(0, "the leader epoch is not known, so nothing shows where the log ends")
		return true, nil
	}
	end, epoch, code, err := s.c.EndOfEpoch(ctx, s.Broker, s.Topic, s.Partition, s.CurrentEpoch, s.CurrentEpoch)
	switch {
	case err != nil:
		return true, err
	case code != 0:
		s.give(code, "the leader does not say where its log ends")
		return true, nil
	case epoch < 0 || end < s.Floor:
		s.give(0, fmt.Sprintf("the log ends at %d, below offset %d from which to search", end, s.Floor))
		return true, nil
	}
	s.end = end
	return false, nil
}

// step fetches once and looks at what came.
func (s *search) step(ctx context.Context) (done bool, err error) {
	p, code, err := s.fetch(ctx)
	switch {
	case err != nil:
		return true, err
	case code != 0:
		s.give(code, "the leader refuses to be read")
		return true, nil
	case p.LogStartOffset > s.Floor:
		// From KIP-107 on. Older brokers answer OFFSET_OUT_OF_RANGE.
		s.give(0, fmt.Sprintf("the log starts at %d, above offset %d from which to search", p.LogStartOffset, s.Floor))
		return true, nil
	}
	s.result.ReadBytes += int64(len(p.RecordBatches))
	before := s.at
	found, err := s.scan(p.RecordBatches)
	switch {
	case err != nil:
		s.give(0, fmt.Sprintf("what lies at offset %d cannot be read: %v", s.at, err))
		return true, nil
	case found:
		return true, nil
	case s.at > before:
		s.waits = 0
		return false, nil
	}
	// Only records below the high watermark are handed out. It follows the log's end while replicas are alive; the
	// leader held the answer back for a while to let it come.
	if s.waits++; s.waits > fetchWaitsMax {
		s.give(0, fmt.Sprintf("the log goes to %d, but only up to %d is replicated", s.end, p.HighWatermark))
		return true, nil
	}
	return false, nil
}

// scan looks at the batches in p and moves on behind the whole ones; one that is cut off at the end of p is fetched
// again from its own offset.
func (s *search) scan(p []byte) (found bool, err error) {
	for len(p) >= HeaderBytes {
		h, err := ParseHeader(p)
		if err != nil {
			return false, err
		}
		if len(p) < h.Bytes() {
			return false, nil
		}
		p = p[h.Bytes():]
		if h.ProducerID == s.ProducerID && h.Epoch == s.Epoch && h.BaseSequence == s.BaseSequence && !h.Control() {
			s.result.State, s.result.BaseOffset, s.result.Count = Found, h.BaseOffset, h.Count
			return true, nil
		}
		s.at = max(s.at, h.BaseOffset+int64(h.LastOffsetDelta)+1)
	}
	return false, nil
}

// fetch asks for what lies at s.at. The code is that of the response or of the partition in it.
func (s *search) fetch(ctx context.Context) (*kmsg.FetchResponseTopicPartition, int16, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch = s.Partition, s.CurrentEpoch
	p.FetchOffset, p.PartitionMaxBytes = s.at, fetchBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = s.Topic, s.TopicID, append(t.Partitions, p)
	req := &fetchRequest{FetchRequest: kmsg.NewFetchRequest()}
	req.ReplicaID, req.SessionEpoch = -1, sessionlessOnly
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = s.waitMs, 1, fetchBytes
	req.Topics = append(req.Topics, t)

	resp, err := ask[*kmsg.FetchResponse](ctx, s.c, s.Broker, req)
	if err != nil {
		return nil, 0, err
	}
	if resp.ErrorCode != 0 {
		return nil, resp.ErrorCode, nil
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, errNoEntry
	}
	answer := &resp.Topics[0].Partitions[0]
	return answer, answer.ErrorCode, nil
}

// fetchRequest is a FetchRequest that keeps to topic names as long as the topic's id is not known.
type fetchRequest struct{ kmsg.FetchRequest }

// MaxVersion is part of kmsg.Request.
func (r *fetchRequest) MaxVersion() int16 {
	if r.Topics[0].TopicID == ([16]byte{}) {
		return fetchVersion12
	}
	return r.FetchRequest.MaxVersion()
}
