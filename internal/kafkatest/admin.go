package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every admin method goes over the INTERNAL listeners and returns when all brokers that
// run (and are not frozen) act on the new state: for about a second after a topic is
// made brokers disagree, which is a fault a test should ask for, not meet by chance.

// attempt repeats try until it returns nil, a permanent error or ctx ends.
func attempt(ctx context.Context, what string, try func(context.Context) error) error {
	var last error // what the cluster said, rather than that time ran out
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		var permanent *permanentError
		if errors.As(err, &permanent) {
			return fmt.Errorf("kafkatest: %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafkatest: %s: gave up: %w", what, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// permanentError is an answer that asking again does not change.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// answered turns an error code of an answer into an error, permanent or not.
func answered(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil || kerr.IsRetriable(err) {
		return err
	}
	if message != nil {
		err = fmt.Errorf("%w: %s", err, *message)
	}
	return &permanentError{err}
}

// do runs one call of a test: bounded, and fatal to the test if it fails.
func (c *Cluster) do(what string, steps ...func(context.Context) error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminMax)
	defer cancel()
	for _, step := range steps {
		if err := attempt(ctx, what, step); err != nil {
			c.tb.Fatal(err)
		}
	}
}

// change is do for what changes the cluster: it also waits until the brokers have applied
// the change, which they do a moment after they show it.
func (c *Cluster) change(what string, steps ...func(context.Context) error) {
	c.tb.Helper()
	c.do(what, append(steps, c.settled)...)
}

// CreateTopic creates a topic and waits until every running broker knows a leader for
// each partition. Configs may be nil.
func (c *Cluster) CreateTopic(name string, partitions, rf int, configs map[string]string) {
	c.tb.Helper()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(rf)
	for k, v := range configs {
		tc := kmsg.NewCreateTopicsRequestTopicConfig()
		tc.Name, tc.Value = k, &v
		t.Configs = append(t.Configs, tc)
	}
	c.createTopic(t, partitions)
}

// CreateTopicOn creates a topic whose partition p has the replicas replicas[p], the
// first of which is the preferred leader.
func (c *Cluster) CreateTopicOn(name string, replicas [][]int32, configs map[string]string) {
	c.tb.Helper()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for p, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), r
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	for k, v := range configs {
		tc := kmsg.NewCreateTopicsRequestTopicConfig()
		tc.Name, tc.Value = k, &v
		t.Configs = append(t.Configs, tc)
	}
	c.createTopic(t, len(replicas))
}

func (c *Cluster) createTopic(t kmsg.CreateTopicsRequestTopic, partitions int) {
	c.tb.Helper()
	sent := false
	c.change("create topic "+t.Topic, func(ctx context.Context) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = int32(adminTimeout.Milliseconds())
		req.Topics = append(req.Topics, t)
		again := sent
		sent = true
		resp, err := requestSome[*kmsg.CreateTopicsResponse](ctx, c.state, req)
		if err != nil {
			return err
		}
		r := resp.Topics[0]
		if again && r.ErrorCode == kerr.TopicAlreadyExists.Code {
			return nil // by an attempt whose answer was lost
		}
		return answered(r.ErrorCode, r.ErrorMessage)
	}, c.everywhere(t.Topic, func(mt *kmsg.MetadataResponseTopic) error {
		return hasLeaders(mt, partitions)
	}))
}

// DeleteTopic deletes a topic and waits until no running broker knows it. With
// auto.create.topics.enable (Kafka's default) a client that asks brings it back.
func (c *Cluster) DeleteTopic(name string) {
	c.tb.Helper()
	c.change("delete topic "+name, func(ctx context.Context) error {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = int32(adminTimeout.Milliseconds())
		req.TopicNames = []string{name}
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
		resp, err := requestSome[*kmsg.DeleteTopicsResponse](ctx, c.state, req)
		if err != nil {
			return err
		}
		r := resp.Topics[0]
		if r.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			return nil
		}
		return answered(r.ErrorCode, r.ErrorMessage)
	}, c.everywhere(name, isUnknown))
}

// GrowPartitions raises the number of partitions of a topic.
func (c *Cluster) GrowPartitions(topic string, partitions int) {
	c.tb.Helper()
	sent := false
	c.change("grow topic "+topic, func(ctx context.Context) error {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = int32(adminTimeout.Milliseconds())
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = topic, int32(partitions)
		req.Topics = append(req.Topics, t)
		again := sent
		sent = true
		resp, err := requestSome[*kmsg.CreatePartitionsResponse](ctx, c.state, req)
		if err != nil {
			return err
		}
		r := resp.Topics[0]
		if again && r.ErrorCode == kerr.InvalidPartitions.Code {
			return nil // grown by an attempt whose answer was lost; the next step checks
		}
		return answered(r.ErrorCode, r.ErrorMessage)
	}, c.everywhere(topic, func(mt *kmsg.MetadataResponseTopic) error {
		return hasLeaders(mt, partitions)
	}))
}

// Leader returns the leader of a partition, -1 if it has none.
func (c *Cluster) Leader(topic string, partition int32) int32 {
	c.tb.Helper()
	return c.partition(topic, partition).Leader
}

// LeaderEpoch returns the term of the leader of a partition.
func (c *Cluster) LeaderEpoch(topic string, partition int32) int32 {
	c.tb.Helper()
	return c.partition(topic, partition).LeaderEpoch
}

// InSync returns the in-sync replicas of a partition.
func (c *Cluster) InSync(topic string, partition int32) []int32 {
	c.tb.Helper()
	return c.partition(topic, partition).ISR
}

// TopicID returns the id of a topic, which another topic of the same name never has.
func (c *Cluster) TopicID(topic string) (id [16]byte) {
	c.tb.Helper()
	c.do("look up topic "+topic, func(ctx context.Context) error {
		n, err := c.some()
		if err != nil {
			return err
		}
		mt, err := c.metadata(ctx, n, topic)
		if err != nil {
			return err
		}
		id = mt.TopicID
		return answered(mt.ErrorCode, nil)
	})
	return id
}

// partition returns what all awake brokers show; it waits until they agree.
func (c *Cluster) partition(topic string, partition int32) (mp kmsg.MetadataResponseTopicPartition) {
	c.tb.Helper()
	c.do(fmt.Sprintf("look up %s-%d", topic, partition), func(ctx context.Context) error {
		for i, n := range c.awake() {
			got, err := c.lookUp(ctx, n, topic, partition)
			if err != nil {
				return err
			}
			if i > 0 && (got.Leader != mp.Leader || got.LeaderEpoch != mp.LeaderEpoch) {
				return errors.New("brokers disagree about the leader")
			}
			mp = got
		}
		return nil
	})
	return mp
}

// WaitPartition waits until every running broker shows a partition as ok wants it.
func (c *Cluster) WaitPartition(topic string, partition int32, what string, ok func(leader int32, isr []int32) bool) {
	c.tb.Helper()
	c.do(fmt.Sprintf("wait for %s-%d: %s", topic, partition, what), c.agreed(topic, partition, what, ok))
}

func (c *Cluster) agreed(topic string, partition int32, what string, ok func(leader int32, isr []int32) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, n := range c.awake() {
			mp, err := c.lookUp(ctx, n, topic, partition)
			if err != nil {
				return err
			}
			if !ok(mp.Leader, mp.ISR) {
				return fmt.Errorf("not yet %s: broker %d sees leader %d, in sync %v", what, n.id, mp.Leader, mp.ISR)
			}
		}
		return nil
	}
}

// MoveLeader makes broker to the leader of a partition, cleanly: the replica list gets
// it as its head (and as a new member, if it is none) and the preferred leader is
// elected once it is in sync.
func (c *Cluster) MoveLeader(topic string, partition int32, to int32) {
	c.tb.Helper()
	replicas := c.partition(topic, partition).Replicas
	order := append([]int32{to}, slices.DeleteFunc(slices.Clone(replicas), func(r int32) bool { return r == to })...)
	if !slices.Contains(replicas, to) && len(order) > 1 {
		order = order[:len(replicas)] // a new member takes the last one's place
	}
	what := fmt.Sprintf("move leader of %s-%d to %d", topic, partition, to)
	c.change(what, func(ctx context.Context) error {
		return c.reassign(ctx, topic, partition, order)
	}, c.agreed(topic, partition, "in sync", func(_ int32, isr []int32) bool {
		return slices.Contains(isr, to)
	}), c.elected(topic, partition, preferred, func(leader int32, _ []int32) bool {
		return leader == to
	}))
}

// Reassign gives a partition other replicas, the preferred leader first, and waits
// until exactly they are in sync.
func (c *Cluster) Reassign(topic string, partition int32, replicas []int32) {
	c.tb.Helper()
	want := slices.Sorted(slices.Values(replicas))
	c.change(fmt.Sprintf("reassign %s-%d to %v", topic, partition, replicas), func(ctx context.Context) error {
		return c.reassign(ctx, topic, partition, replicas)
	}, c.agreed(topic, partition, "on them", func(_ int32, isr []int32) bool {
		return slices.Equal(slices.Sorted(slices.Values(isr)), want)
	}))
}

// ElectUnclean elects whichever replica is alive as leader, in sync or not, and waits
// for it: what the replica does not hold is lost.
func (c *Cluster) ElectUnclean(topic string, partition int32) {
	c.tb.Helper()
	c.change(fmt.Sprintf("unclean election for %s-%d", topic, partition), c.elected(topic, partition, unclean, func(leader int32, _ []int32) bool {
		return slices.ContainsFunc(c.awake(), func(n *node) bool { return int32(n.id) == leader })
	}))
}

func (c *Cluster) reassign(ctx context.Context, topic string, partition int32, replicas []int32) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	t.Topic, p.Partition, p.Replicas = topic, partition, replicas
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	req.TimeoutMillis = int32(adminTimeout.Milliseconds())
	resp, err := requestSome[*kmsg.AlterPartitionAssignmentsResponse](ctx, c.state, req)
	if err != nil {
		return err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	r := resp.Topics[0].Partitions[0]
	return answered(r.ErrorCode, r.ErrorMessage)
}

// Kafka's numbers for kinds of election (KIP-460).
const (
	preferred = int8(0)
	unclean   = int8(1)
)

// elected is a step that asks for an election until ok accepts the leader. Once is not
// enough: while the controller still believes in a leader that has just died, it answers
// that no election is needed.
func (c *Cluster) elected(topic string, partition int32, kind int8, ok func(leader int32, isr []int32) bool) func(context.Context) error {
	shown := c.agreed(topic, partition, "led as wanted", ok)
	return func(ctx context.Context) error {
		if err := c.elect(ctx, topic, partition, kind); err != nil {
			return err
		}
		return shown(ctx)
	}
}

func (c *Cluster) elect(ctx context.Context, topic string, partition int32, kind int8) error {
	req := kmsg.NewPtrElectLeadersRequest()
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, t)
	req.ElectionType, req.TimeoutMillis = kind, int32(adminTimeout.Milliseconds())
	resp, err := requestSome[*kmsg.ElectLeadersResponse](ctx, c.state, req)
	if err != nil {
		return err
	}
	if err := answered(resp.ErrorCode, nil); err != nil {
		return err
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			// Not needed: it leads already. Others (no preferred leader yet) pass with time.
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
				return err
			}
		}
	}
	return nil
}
