package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	// connIdleMax stays below the 10 minutes after which brokers close idle connections (connections.max.idle.ms): a
	// request written into a connection that is just being closed is in doubt for nothing.
	connIdleMax = 9 * time.Minute

	// questionTriesMax bounds the tries of one Metadata or InitProducerID call, each with another broker. The caller
	// asks again for ever; this only spares it a round when one broker is down.
	questionTriesMax = 3
	questionBackoff  = 100 * time.Millisecond
)

// SASLMechanisms are the values of SASL.Mechanism.
var SASLMechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

// SASL is how to authenticate. The zero value is: not at all.
type SASL struct {
	Mechanism string // one of SASLMechanisms
	User      string
	Password  string
}

// ClientConfig says how to reach a cluster. Zero durations mean the defaults.
type ClientConfig struct {
	Brokers  []string // host:port to start from, at least one
	ClientID string
	TLS      *tls.Config // nil: plain text. An empty ServerName stands for each broker's host
	SASL     SASL

	DialTimeout            time.Duration // TCP, 10 s
	RequestTimeoutOverhead time.Duration // on top of a request's own timeout, 10 s

	// AutoCreateTopics lets a metadata request create topics that the cluster does not have, if the cluster allows it.
	AutoCreateTopics bool

	Logger *slog.Logger // what kgo tells, at debug level; nil: nothing

	// Dialer replaces the TCP dialer; TLS, if set, runs on top of what it returns.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is the transport: connections, version negotiation, TLS, SASL. It wraps one kgo.Client, of whose producer and
// consumer nothing is in use, and is safe for concurrent use. kgo keeps one produce connection per broker; for
// others to the same broker, make others of it.
//
// Errors of its methods are of the transport; what a broker answers comes as a Kafka error code.
type Client struct {
	kgo        *kgo.Client
	autoCreate bool
	trouble    *trouble
	links      *links
}

// NewClient checks cfg and makes a client. It starts kgo's goroutines, but connects only when first used.
func NewClient(cfg ClientConfig) (*Client, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	trouble, links := &trouble{cfg: &cfg}, new(links)
	cl, err := kgo.NewClient(append(opts, kgo.WithHooks(trouble, links), kgo.RequestRetries(questionTriesMax),
		kgo.RetryBackoffFn(func(int) time.Duration { return questionBackoff }))...)
	if err != nil {
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	return &Client{kgo: cl, autoCreate: cfg.AutoCreateTopics, trouble: trouble, links: links}, nil
}

// options are those of connections.
func (cfg *ClientConfig) options() ([]kgo.Opt, error) {
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no Kafka brokers are configured")
	}
	opts := []kgo.Opt{kgo.SeedBrokers(cfg.Brokers...), kgo.ConnIdleTimeout(connIdleMax)}
	if cfg.ClientID != "" {
		opts = append(opts, kgo.ClientID(cfg.ClientID))
	}
	if cfg.RequestTimeoutOverhead > 0 {
		opts = append(opts, kgo.RequestTimeoutOverhead(cfg.RequestTimeoutOverhead))
	}
	if cfg.Logger != nil {
		opts = append(opts, kgo.WithLogger(kgoLogger{cfg.Logger}))
	}
	mechanism, err := cfg.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	switch {
	case cfg.Dialer != nil && cfg.TLS != nil:
		opts = append(opts, kgo.Dialer(tlsOver(cfg.Dialer, cfg.TLS)))
	case cfg.Dialer != nil:
		opts = append(opts, kgo.Dialer(cfg.Dialer))
	case cfg.TLS != nil:
		opts = append(opts, kgo.DialTLSConfig(cfg.TLS))
	}
	if cfg.Dialer == nil && cfg.DialTimeout > 0 {
		opts = append(opts, kgo.DialTimeout(cfg.DialTimeout))
	}
	return opts, nil
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	if s == (SASL{}) {
		return nil, nil
	}
	if s.User == "" || s.Password == "" {
		return nil, errors.New("SASL needs a user and a password")
	}
	switch slices.Index(SASLMechanisms, s.Mechanism) {
	case 0:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case 1:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism(), nil
	case 2:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("unknown SASL mechanism %q: use one of %q", s.Mechanism, SASLMechanisms)
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func tlsOver(dial dialFunc, cfg *tls.Config) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := cfg.Clone()
		if c.ServerName == "" {
			c.ServerName, _, _ = net.SplitHostPort(address)
		}
		secure := tls.Client(conn, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return secure, nil
	}
}

// Close ends all connections. Calls under way return with an error; what they had written may still be executed.
func (c *Client) Close() { c.kgo.Close() }

// Metadata is what one broker believes about the cluster.
type Metadata struct {
	ClusterID string // empty before Kafka 0.10.1
	Topics    []TopicMeta
}

// TopicMeta is one topic that was asked for.
type TopicMeta struct {
	Name       string
	ID         [16]byte // zero: the broker has no topic ids (before 2.8) or does not know the topic
	Code       int16
	Partitions []PartitionMeta // none if Code is not 0
}

// PartitionMeta is one partition of a topic.
type PartitionMeta struct {
	Partition   int32
	Leader      int32 // broker id, -1: none
	LeaderEpoch int32 // -1: unknown (brokers before 2.1)
	Code        int16
	Followers   uint64 // as in Route
}

// Metadata asks any broker about topics; no topics means the cluster alone. kgo learns the brokers' addresses from the
// answer.
func (c *Client) Metadata(ctx context.Context, topics []string) (Metadata, error) {
	resp, err := firstOf(ctx, func(ctx context.Context) (*kmsg.MetadataResponse, error) {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = c.autoCreate
		req.Topics = []kmsg.MetadataRequestTopic{} // nil would ask for every topic
		for _, topic := range topics {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = &topic
			req.Topics = append(req.Topics, t)
		}
		return req.RequestWith(ctx, c.kgo)
	})
	if err != nil {
		return Metadata{}, fmt.Errorf("ask for metadata: %w", c.trouble.explain(anyNode, err))
	}
	var m Metadata
	if resp.ClusterID != nil {
		m.ClusterID = *resp.ClusterID
	}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			m.Topics = append(m.Topics, topicMeta(t))
		}
	}
	return m, nil
}

const (
	hedgeAfter = 2 * time.Second
	hedgesMax  = 3
)

// firstOf asks, and while no answer comes asks again, each time of another broker as kgo has it: one that is slow must not
// keep all lanes from what any other knows. The first answer counts, or the last error.
func firstOf(ctx context.Context, question func(context.Context) (*kmsg.MetadataResponse, error)) (resp *kmsg.MetadataResponse, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		resp *kmsg.MetadataResponse
		err  error
	}
	answers := make(chan answer, hedgesMax)
	more := time.NewTimer(0)
	defer more.Stop()
	for asked, left := 0, hedgesMax; left > 0; {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.resp, nil
			}
			err = a.err
			if left -= 1; asked == hedgesMax-left {
				return nil, err // nobody else was asked; the caller has a pause of its own
			}
		case <-more.C:
			if asked++; asked < hedgesMax {
				more.Reset(hedgeAfter)
			}
			go func() {
				resp, err := question(ctx)
				answers <- answer{resp, err}
			}()
		}
	}
	return nil, err
}

func topicMeta(t *kmsg.MetadataResponseTopic) TopicMeta {
	m := TopicMeta{Name: *t.Topic, ID: t.TopicID, Code: t.ErrorCode}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		m.Partitions = append(m.Partitions, PartitionMeta{
			Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Code: p.ErrorCode,
			Followers: followers(p.Leader, p.ISR),
		})
	}
	return m
}

func followers(leader int32, inSync []int32) (set uint64) {
	for _, id := range inSync {
		if id != leader {
			set |= 1 << (uint32(id) % 64)
		}
	}
	return set
}

// Ping asks one broker for nothing, to see whether it answers at all. Where it is, any broker is asked.
func (c *Client) Ping(ctx context.Context, broker int32) error {
	if _, err := c.Metadata(ctx, []string{}); err != nil {
		return err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	if _, err := ask[*kmsg.MetadataResponse](ctx, c, broker, req); err != nil {
		return fmt.Errorf("ask broker %d whether it answers: %w", broker, err)
	}
	return nil
}

// InitProducerID asks any broker for a producer id that nobody had before. It fences nothing and is known to no
// partition until used.
func (c *Client) InitProducerID(ctx context.Context) (id int64, epoch, code int16, err error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(ctx, c.kgo)
	if err != nil {
		return -1, -1, 0, fmt.Errorf("ask for a producer id: %w", c.trouble.explain(anyNode, err))
	}
	return resp.ProducerID, resp.ProducerEpoch, resp.ErrorCode, nil
}

var errNoEntry = errors.New("the answer does not name the partition that was asked for")

// EndOfEpoch asks the leader where the records of leaderEpoch end (OffsetForLeaderEpoch, KIP-320): the answer's epoch is
// the largest one it has that is not above, and end the offset behind its last record; both -1 if it has none. For the
// current epoch that is the log's end. currentEpoch fences: a broker that is in another epoch refuses; -1 does not.
// It takes the same permission as producing.
func (c *Client) EndOfEpoch(ctx context.Context, broker int32, topic string, partition, leaderEpoch, currentEpoch int32) (end int64, epoch int32, code int16, err error) {
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, leaderEpoch, currentEpoch
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID, req.Topics = -1, append(req.Topics, t)

	resp, err := ask[*kmsg.OffsetForLeaderEpochResponse](ctx, c, broker, req)
	if err == nil && (len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1) {
		err = errNoEntry
	}
	if err != nil {
		return -1, -1, 0, fmt.Errorf("ask broker %d for the end of epoch %d of %s/%d: %w", broker, leaderEpoch, topic, partition, err)
	}
	answer := &resp.Topics[0].Partitions[0]
	return answer.EndOffset, answer.LeaderEpoch, answer.ErrorCode, nil
}

// EndOffset asks the leader for the high watermark (ListOffsets): the offset behind the last record that is on all
// replicas in sync. currentEpoch fences as in EndOfEpoch.
func (c *Client) EndOffset(ctx context.Context, broker int32, topic string, partition, currentEpoch int32) (offset int64, code int16, err error) {
	const latest = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, latest, currentEpoch
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.Topics = -1, append(req.Topics, t)

	resp, err := ask[*kmsg.ListOffsetsResponse](ctx, c, broker, req)
	if err == nil && (len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1) {
		err = errNoEntry
	}
	if err != nil {
		return -1, 0, fmt.Errorf("ask broker %d for the end of %s/%d: %w", broker, topic, partition, err)
	}
	answer := &resp.Topics[0].Partitions[0]
	return answer.Offset, answer.ErrorCode, nil
}

// Produce sends r to a broker, waits for the answer and appends one outcome for each part to dst. It takes no context:
// a call whose bytes may have left is never cancelled, since that would kill the connection under all others and leave
// r in doubt. It is bounded by dial timeout, acks timeout and overhead, except while the broker throttles us.
//
// On an error dst is returned as it was. If r.Written() then, the outcome is unknown, whatever the error; if not, the
// bytes never left.
func (c *Client) Produce(broker int32, r *ProduceRequest, dst []PartOutcome) ([]PartOutcome, error) {
	resp, err := ask[*kmsg.ProduceResponse](context.Background(), c, broker, r)
	if err != nil {
		return dst, fmt.Errorf("produce to broker %d: %w", broker, err)
	}
	return r.Outcomes(dst, resp), nil
}

// ask sends req to one broker, once.
func ask[R kmsg.Response](ctx context.Context, c *Client, broker int32, req kmsg.Request) (R, error) {
	var none R
	resp, err := c.kgo.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return none, c.trouble.explain(broker, err)
	}
	typed, ok := resp.(R)
	if !ok {
		panic(fmt.Sprintf("BUG: kgo answered %T with %T", req, resp))
	}
	return typed, nil
}

// kgoLogger hands kgo's log to slog. All of it is debug: every failure comes back to us as an error too, and is logged
// by the loop that tries again.
type kgoLogger struct{ to *slog.Logger }

// Level is part of kgo.Logger. kgo's own debug level has several lines per request: too much for ours.
func (l kgoLogger) Level() kgo.LogLevel {
	if l.to.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log is part of kgo.Logger.
func (l kgoLogger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.to.Debug("kgo: "+msg, keyvals...)
}
