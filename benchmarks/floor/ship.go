package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/benchmarks/internal/broker"
	"shipper/sink/kafka"
)

const (
	readBytes    = 1 << 20  // one read, and so the longest line
	segmentBytes = 64 << 20 // of a spool file; full ones are removed, as acknowledged ones are by an agent
)

type options struct {
	broker, file, codec, spoolDir string
	batchBytes                    int
}

type totals struct {
	Lines   int64 `json:"lines"`
	Batches int64 `json:"batches"`
}

// shipper is the state of the one thread.
type shipper struct {
	builder    kafka.Builder
	compressor *kafka.Compressor
	records    []byte // the builder's buffer
	dst        []byte // the compressor's
	sealed     kafka.Sealed
	header     [kafka.HeaderBytes]byte
	now        int64 // ms

	spool   *segments
	sender  *sender
	shipped totals
}

func ship(o options) (totals, error) {
	codec, err := kafka.ParseCodec(o.codec)
	if err != nil {
		return totals{}, err
	}
	s := &shipper{records: make([]byte, 0, o.batchBytes), spool: &segments{dir: o.spoolDir}}
	if s.compressor, err = kafka.NewCompressor(codec, 0); err != nil {
		return totals{}, err
	}
	s.builder.Reset(s.records)
	f, err := os.Open(o.file)
	if err != nil {
		return totals{}, err
	}
	defer f.Close()
	if s.sender, err = dial(o.broker); err != nil {
		return totals{}, err
	}
	defer s.sender.conn.Close()
	if err := s.lines(f); err != nil {
		return totals{}, err
	}
	return s.shipped, errors.Join(s.flush(), s.spool.remove())
}

// lines reads f to its end.
func (s *shipper) lines(f *os.File) error {
	block := make([]byte, readBytes)
	held := 0 // bytes of an unfinished line at the front of block
	for {
		n, err := f.Read(block[held:])
		if err == io.EOF {
			if held > 0 {
				return fmt.Errorf("%s does not end with a newline", f.Name())
			}
			return nil
		}
		if err != nil {
			return err
		}
		s.now = time.Now().UnixMilli()
		rest := block[:held+n]
		for {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				break
			}
			if err := s.line(rest[:end]); err != nil {
				return err
			}
			rest = rest[end+1:]
		}
		if len(rest) == len(block) {
			return fmt.Errorf("%s has a line longer than %d bytes", f.Name(), readBytes)
		}
		held = copy(block, rest)
	}
}

func (s *shipper) line(line []byte) error {
	if !s.builder.Fits(0, len(line)) {
		if err := s.flush(); err != nil {
			return err
		}
		if !s.builder.Fits(0, len(line)) {
			return fmt.Errorf("a line of %d bytes does not fit a batch", len(line))
		}
	}
	s.builder.Append(s.now, nil, line, false)
	return nil
}

// flush ships the open batch.
func (s *shipper) flush() error {
	count := s.builder.Count()
	if count == 0 {
		return nil
	}
	s.compressor.Seal(&s.builder, s.dst, &s.sealed)
	s.dst = s.sealed.Records
	s.builder.Reset(s.records)
	none := kafka.Stamp{ProducerID: -1, Epoch: -1, BaseSequence: -1}
	kafka.StampHeader(&s.header, s.sealed.Header[:], none, s.sealed.RecordsCRC, len(s.sealed.Records))
	if err := s.spool.write(s.header[:], s.sealed.Records); err != nil {
		return err
	}
	s.shipped.Lines += int64(count)
	s.shipped.Batches++
	return s.sender.send(s.header[:], s.sealed.Records)
}

// segments writes spool files one after the other; only the newest two exist.
type segments struct {
	dir    string
	f      *os.File
	number int
	bytes  int
}

func (g *segments) path(number int) string {
	return filepath.Join(g.dir, fmt.Sprintf("floor-%06d", number))
}

func (g *segments) write(header, records []byte) error {
	if g.dir == "" {
		return nil
	}
	if g.f == nil || g.bytes >= segmentBytes {
		if err := g.next(); err != nil {
			return err
		}
	}
	g.bytes += len(header) + len(records)
	if _, err := g.f.Write(header); err != nil {
		return err
	}
	_, err := g.f.Write(records)
	return err
}

func (g *segments) next() error {
	if g.f != nil {
		if err := g.f.Close(); err != nil {
			return err
		}
		g.number++
	}
	if g.number >= 2 {
		if err := os.Remove(g.path(g.number - 2)); err != nil {
			return err
		}
	}
	var err error
	g.f, err = os.Create(g.path(g.number))
	g.bytes = 0
	return err
}

func (g *segments) remove() error {
	if g.f == nil {
		return nil
	}
	err := g.f.Close()
	for n := max(0, g.number-1); n <= g.number; n++ {
		err = errors.Join(err, os.Remove(g.path(n)))
	}
	return err
}

// sender is one connection with one request on it at a time.
type sender struct {
	conn   net.Conn
	head   []byte // of a request, up to the batch
	vec    net.Buffers
	answer []byte
}

const (
	produceVersion = 8 // the last one without tagged fields
	correlation    = 7
)

// dial connects and asks for the topic's metadata, which makes the topic.
func dial(addr string) (*sender, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &sender{conn: c}
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.AllowAutoTopicCreation = 4, true
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(broker.Topic)
	meta.Topics = append(meta.Topics, topic)
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, meta, correlation)); err != nil {
		return nil, err
	}
	if _, err := s.readAnswer(); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return s, nil
}

// send writes one Produce request for partition 0 and waits for the answer.
//
//	length | key 0, version, correlation | client id null | transactional id null | acks -1 | timeout | 1 topic: name | 1 partition: 0, batch
func (s *sender) send(header, records []byte) error {
	be, batchBytes := binary.BigEndian, len(header)+len(records)
	h := append(s.head[:0], 0, 0, 0, 0)
	h = be.AppendUint16(h, 0)
	h = be.AppendUint16(h, produceVersion)
	h = be.AppendUint32(h, correlation)
	h = append(h, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // client id, transactional id, acks
	h = be.AppendUint32(h, 10_000)
	h = be.AppendUint32(h, 1)
	h = be.AppendUint16(h, uint16(len(broker.Topic)))
	h = append(h, broker.Topic...)
	h = be.AppendUint32(h, 1)
	h = be.AppendUint32(h, 0)
	h = be.AppendUint32(h, uint32(batchBytes))
	be.PutUint32(h, uint32(len(h)-4+batchBytes))
	s.head = append(h, header...)

	s.vec = append(s.vec[:0], s.head, records)
	vec := s.vec
	if _, err := vec.WriteTo(s.conn); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	body, err := s.readAnswer()
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// readAnswer returns the body behind the correlation id.
func (s *sender) readAnswer() ([]byte, error) {
	var size [8]byte
	if _, err := io.ReadFull(s.conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 1<<20 {
		return nil, fmt.Errorf("answer of %d bytes", n)
	}
	if got := binary.BigEndian.Uint32(size[4:]); got != correlation {
		return nil, fmt.Errorf("answer to request %d", got)
	}
	if int(n) > cap(s.answer) {
		s.answer = make([]byte, n)
	}
	s.answer = s.answer[:n-4]
	_, err := io.ReadFull(s.conn, s.answer)
	return s.answer, err
}
