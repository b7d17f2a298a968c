package kafka

import (
	"encoding/binary"
	"errors"
	"net"
)

// requestBytesMax bounds the frames of one produce request; a single larger
// frame travels alone.
const requestBytesMax = 2 << 20

// ErrDamaged is what a FrameReader's error wraps when the spooled bytes are
// not what was written: reading again does not help.
var ErrDamaged = errors.New("spooled batch is damaged")

// FrameReader appends the 61-byte header template and the records of a spooled
// batch to dst. The template's CRC field holds the CRC-32C of the records.
type FrameReader interface {
	ReadBatch(dst []byte, ref Ref) ([]byte, error)
}

// Ref locates a spooled batch. Place is the spool's own.
type Ref struct {
	Batch
	Bytes uint32 // of the records
	since int32  // the sink's: when it came, see age.go
	Place uint64
}

// A job is one produce request on its way: filled by the sink, run by the
// sender of its broker, and handed back. It has one owner at any time, so
// neither side locks, and it is reused for ever, so neither allocates.
type job struct {
	from     *sender
	items    []item
	buf      []byte
	request  ProduceRequest
	outcomes []PartOutcome
	err      error  // of the request as a whole
	slow     bool   // err was a time-out
	losses   uint64 // of connections to the broker, when the metadata were asked for that the request follows
}

// errCutOff says that a request was not sent, since a connection to its broker was
// lost: what metadata showed before may not hold (rule 5 of the design's lane).
var errCutOff = errors.New("a connection to the broker was lost since its metadata were asked for")

// item is one lane's batch in a job.
type item struct {
	row       *row
	ref       Ref
	stamp     Stamp
	topic     string
	topicID   [16]byte
	part      int32
	followers uint64 // of its partition, as in Route
	shift     bool   // the newest time becomes backMs before the request is made
	backMs    int64  // ms

	at, end int   // its bytes in job.buf
	err     error // the frame could not be read; it is not in the request
}

// place is the item's partition.
func (it *item) place() place { return place{it.topic, it.part} }

// sender owns one connection to one broker.
type sender struct {
	key       senderKey
	out       *outlet
	in        chan *job
	idle      *job    // the sender's job while it has nothing to do
	sentAt    int64   // ms, when it was handed over last
	places    []place // that are in it
	followers uint64  // of each of them
}

// run sends jobs until in is closed.
func (s *sender) run(reader FrameReader, t *Transport, done chan<- *job) {
	for j := range s.in {
		j.send(s.key, reader, t)
		done <- j
	}
}

func (j *job) send(key senderKey, reader FrameReader, t *Transport) {
	if !j.cutOff(key, t) && j.fill(reader) {
		outcomes, err := t.Produce(key.broker, key.conn, &j.request, j.outcomes)
		j.take(outcomes, err)
	}
}

// cutOff says that the request must not be sent before metadata are asked for.
func (j *job) cutOff(key senderKey, t *Transport) bool {
	if t.Losses == nil || t.Losses(key.broker) == j.losses {
		return false
	}
	j.request.Reset() // nothing of it was written
	j.outcomes = j.outcomes[:0]
	for i := range j.items {
		j.items[i].err = nil
	}
	j.err, j.slow = errCutOff, false
	return true
}

// fill makes the request; false: no batch of it could be read.
func (j *job) fill(reader FrameReader) bool {
	j.err, j.slow = nil, false
	j.request.Reset()
	j.outcomes = j.outcomes[:0]
	j.buf = j.buf[:0]
	for i := range j.items {
		it := &j.items[i]
		it.at = len(j.buf)
		buf, err := reader.ReadBatch(j.buf, it.ref)
		if err != nil {
			it.err = err
			j.buf = j.buf[:it.at]
			continue
		}
		j.buf, it.end = buf, len(buf)
	}
	for i := range j.items {
		if it := &j.items[i]; it.err == nil {
			batch := j.buf[it.at:it.end:it.end]
			// The template becomes the header of this attempt, in our copy.
			StampHeader((*[HeaderBytes]byte)(batch), batch[:HeaderBytes], it.stamp, binary.BigEndian.Uint32(batch[crcAt:]), len(batch)-HeaderBytes)
			j.request.Add(ProducePart{Topic: it.topic, TopicID: it.topicID, Partition: it.part, Batch: batch})
		}
	}
	return j.request.Len() > 0
}

// take keeps what came of the request.
func (j *job) take(outcomes []PartOutcome, err error) {
	j.outcomes, j.err = outcomes, err
	if j.err != nil {
		var timeout net.Error
		j.slow = errors.As(j.err, &timeout) && timeout.Timeout()
	}
}
