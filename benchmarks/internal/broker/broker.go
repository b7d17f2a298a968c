// Package broker is a Kafka-protocol broker that keeps no records: it checks and counts batches by their headers, so that it is
// never the limit of a measurement.
//
//	connection -> frame (conn.go) -> request (api.go, produce.go) -> batch header (batch.go)
//	           -> producer sequence check (producer.go) -> counters
//
// In verify mode each batch's CRC is checked and its records are unpacked (verify.go): lines that carry a tag and a number are
// checked to arrive once and in order. One node, leader of every partition, leader epoch 0; topics are made when first named.
package broker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options of a Broker.
type Options struct {
	Addr       string // "127.0.0.1:0" picks a free port
	Partitions int    // of every topic
	Verify     bool   // check CRCs and numbered lines; slower
	// AckDelay holds back every produce answer, on its own connection only, as a slow replica would.
	AckDelay time.Duration
	// BatchBytesMax refuses larger batches, as max.message.bytes does. 0: Kafka's default.
	BatchBytesMax int
}

const (
	nodeID               = 0
	leaderEpoch          = 0
	clusterID            = "benchmark-null-broker"
	requestBytesMax      = 100 << 20 // Kafka's socket.request.max.bytes
	batchBytesMaxDefault = 1048588   // Kafka's max.message.bytes
	partitionsMax        = 1024
	topicsMax            = 1024
)

// Broker serves until Close. Down and Up cut it off and bring it back with its state kept, as seen by clients of a broker whose
// network fails.
type Broker struct {
	o    Options
	port int32

	mu      sync.Mutex // guards all below; held for a batch header's time, never over I/O or decompression
	topics  map[string]*topic
	byID    map[[16]byte]*topic
	nextPID int64
	totals  Totals
	lines   *lineChecker // nil unless verifying

	ln    net.Listener // nil while down
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup // accept loops and connections
}

type topic struct {
	name       string
	id         [16]byte
	partitions []partition
}

type partition struct {
	end       int64 // next offset
	producers map[int64]*producer
}

// Totals of what was appended and what was not.
type Totals struct {
	Records         int64            `json:"records"`
	Batches         int64            `json:"batches"`
	BatchBytes      int64            `json:"batch_bytes"` // as they came, compressed, headers included
	Requests        int64            `json:"requests"`
	Connections     int64            `json:"connections"`
	Duplicates      int64            `json:"duplicate_batches"` // answered, not appended
	Refused         map[string]int64 `json:"refused_batches"`   // by Kafka's name of the error
	ProducerIDs     int64            `json:"producer_ids"`
	Unsequenced     int64            `json:"unsequenced_batches"` // without a producer id
	FirstAppendNano int64            `json:"first_append_unix_nano"`
	LastAppendNano  int64            `json:"last_append_unix_nano"`
	Lines           *LineTotals      `json:"lines,omitempty"`
}

// Listen starts to serve.
func Listen(o Options) (*Broker, error) {
	if o.Partitions < 1 || o.Partitions > partitionsMax {
		return nil, fmt.Errorf("%d partitions, want 1 to %d", o.Partitions, partitionsMax)
	}
	if o.BatchBytesMax == 0 {
		o.BatchBytesMax = batchBytesMaxDefault
	}
	b := &Broker{
		o:       o,
		topics:  map[string]*topic{},
		byID:    map[[16]byte]*topic{},
		conns:   map[net.Conn]struct{}{},
		nextPID: 1000,
		totals:  Totals{Refused: map[string]int64{}},
	}
	if o.Verify {
		b.lines = newLineChecker(o.Partitions)
	}
	if err := b.Up(); err != nil {
		return nil, err
	}
	return b, nil
}

// Addr is where clients connect; it stays the same over Down and Up.
func (b *Broker) Addr() string { return b.o.Addr }

// Up listens (again).
func (b *Broker) Up() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ln != nil {
		return nil
	}
	ln, err := net.Listen("tcp", b.o.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	b.ln, b.o.Addr = ln, ln.Addr().String()
	b.port = int32(ln.Addr().(*net.TCPAddr).Port)
	b.wg.Go(func() { b.accept(ln) })
	return nil
}

// Down refuses new connections and cuts those there are; requests already read are still carried out.
func (b *Broker) Down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ln == nil {
		return
	}
	b.ln.Close()
	b.ln = nil
	for c := range b.conns {
		c.Close()
	}
}

// Close goes down for good and waits for all connections to end.
func (b *Broker) Close() {
	b.Down()
	b.wg.Wait()
}

// Totals is a snapshot.
func (b *Broker) Totals() Totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.totals
	t.Refused = make(map[string]int64, len(b.totals.Refused))
	for name, n := range b.totals.Refused {
		t.Refused[name] = n
	}
	if b.lines != nil {
		lines := b.lines.totals()
		t.Lines = &lines
	}
	return t
}

func (b *Broker) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				slog.Error("no more connections are accepted", "err", err)
			}
			return
		}
		b.mu.Lock()
		if b.ln != ln { // cut off between the accept and here
			b.mu.Unlock()
			c.Close()
			continue
		}
		b.conns[c] = struct{}{}
		b.totals.Connections++
		b.wg.Go(func() { b.serve(c) })
		b.mu.Unlock()
	}
}

// topicLocked finds a topic or makes it. nil: too many.
func (b *Broker) topicLocked(name string) *topic {
	if t := b.topics[name]; t != nil {
		return t
	}
	if len(b.topics) == topicsMax {
		return nil
	}
	t := &topic{name: name, partitions: make([]partition, b.o.Partitions)}
	sum := sha256.Sum256([]byte(name))
	copy(t.id[:], sum[:])
	for i := range t.partitions {
		t.partitions[i].producers = map[int64]*producer{}
	}
	b.topics[name], b.byID[t.id] = t, t
	return t
}
