package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	demoBrokers    = 3
	demoPartitions = 6

	// lostAnswers is how long the brokers go on working at the begin of an outage while nobody hears their answers:
	// what they append in that time is what a naive agent sends twice.
	lostAnswers = 200 * time.Millisecond
)

// demoCluster is a Kafka cluster inside this process, behind listeners that can cut it off.
type demoCluster struct {
	kafka  *kfake.Cluster
	line   *powerLine
	topics []string
}

func startDemoCluster(topics ...string) (*demoCluster, error) {
	line := &powerLine{conns: make(map[*cuttableConn]struct{})}
	kafka, err := kfake.NewCluster(kfake.NumBrokers(demoBrokers), kfake.SeedTopics(demoPartitions, topics...), kfake.ListenFn(line.listen))
	if err != nil {
		return nil, fmt.Errorf("start the embedded Kafka cluster: %w", err)
	}
	return &demoCluster{kafka: kafka, line: line, topics: topics}, nil
}

func (c *demoCluster) addresses() []string { return c.kafka.ListenAddrs() }
func (c *demoCluster) close()              { c.kafka.Close() }

// cut loses the answers on their way, then ends all connections; new ones are refused until heal.
func (c *demoCluster) cut() {
	c.line.set(swallowing)
	time.Sleep(lostAnswers)
	c.line.set(cut)
}

func (c *demoCluster) heal()           { c.line.set(connected) }
func (c *demoCluster) reachable() bool { return c.line.get() == connected }

// endOffsets asks for the number of records in each partition of all topics.
func (c *demoCluster) endOffsets(ctx context.Context) (map[string]map[int32]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addresses()...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	for _, topic := range c.topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for p := range int32(demoPartitions) {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, -1 // -1: the end
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask for the ends of the topics: %w", err)
	}
	ends := make(map[string]map[int32]int64)
	for _, t := range resp.Topics {
		ends[t.Topic] = make(map[int32]int64)
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return nil, fmt.Errorf("ask for the end of %s/%d: error code %d", t.Topic, p.Partition, p.ErrorCode)
			}
			ends[t.Topic][p.Partition] = p.Offset
		}
	}
	return ends, nil
}

// records is the number of records in all topics.
func (c *demoCluster) records(ctx context.Context) (int64, error) {
	ends, err := c.endOffsets(ctx)
	total := int64(0)
	for _, partitions := range ends {
		for _, end := range partitions {
			total += end
		}
	}
	return total, err
}

// read consumes everything in the topics from offset 0 with a client of its own and hands each value to take, in the order of each partition.
func (c *demoCluster) read(ctx context.Context, take func(value []byte)) error {
	ends, err := c.endOffsets(ctx)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addresses()...), kgo.ConsumeTopics(c.topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	left := int64(0)
	for _, partitions := range ends {
		for _, end := range partitions {
			left += end
		}
	}
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read the topics back: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			take(r.Value)
		})
	}
	return nil
}

// powerLine is what all listeners of the cluster hang on.
type powerLine struct {
	mu    sync.Mutex // guards all below
	state lineState
	conns map[*cuttableConn]struct{}
}

type lineState uint8

const (
	connected  lineState = iota
	swallowing           // requests come in, answers vanish
	cut                  // no connection lives
)

func (l *powerLine) listen(network, address string) (net.Listener, error) {
	inner, err := net.Listen(network, address)
	return &cuttableListener{inner, l}, err
}

func (l *powerLine) set(s lineState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if s == cut {
		for c := range l.conns {
			_ = c.Conn.Close()
		}
		clear(l.conns)
	}
}

// add is false if the line is cut.
func (l *powerLine) add(c *cuttableConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != connected {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *powerLine) remove(c *cuttableConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *powerLine) get() lineState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

type cuttableListener struct {
	net.Listener
	line *powerLine
}

// Accept closes at once what connects while the line is cut.
func (l *cuttableListener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &cuttableConn{inner, l.line}
		if l.line.add(c) {
			return c, nil
		}
		_ = inner.Close()
	}
}

// cuttableConn is the broker's end of a connection.
type cuttableConn struct {
	net.Conn
	line *powerLine
}

func (c *cuttableConn) Write(b []byte) (int, error) {
	if c.line.get() == swallowing {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cuttableConn) Close() error {
	c.line.remove(c)
	return c.Conn.Close()
}
