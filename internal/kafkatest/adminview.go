package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What single brokers show: each is asked itself, over its INTERNAL listener.

// awake returns the brokers that can answer.
func (s *state) awake() []*node {
	var up []*node
	for _, n := range s.nodes {
		if n.running() && !n.frozen {
			up = append(up, n)
		}
	}
	return up
}

// some returns a broker that can answer, another one each time, so that trying again
// gets past one that cannot.
func (s *state) some() (*node, error) {
	up := s.awake()
	if len(up) == 0 {
		return nil, &permanentError{errors.New("no broker runs")}
	}
	return up[s.turn.Add(1)%int64(len(up))], nil
}

// adminTimeout is how long a broker may take for an admin request.
const adminTimeout = 5 * time.Second

// request asks one broker.
func request[R kmsg.Response](ctx context.Context, s *state, n *node, req kmsg.Request) (resp R, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout+2*time.Second)
	defer cancel()
	r, err := s.admin.Broker(n.id).Request(ctx, req)
	if err != nil {
		return resp, err
	}
	return r.(R), nil
}

// requestSome asks some broker; it hands on to the controller what only that one does.
func requestSome[R kmsg.Response](ctx context.Context, s *state, req kmsg.Request) (resp R, err error) {
	n, err := s.some()
	if err != nil {
		return resp, err
	}
	return request[R](ctx, s, n, req)
}

// metadata asks one broker about one topic, without creating it.
func (s *state) metadata(ctx context.Context, n *node, topic string) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := request[*kmsg.MetadataResponse](ctx, s, n, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("broker %d answered with %d topics instead of one", n.id, len(resp.Topics))
	}
	return &resp.Topics[0], nil
}

// lookUp asks one broker about one partition.
func (s *state) lookUp(ctx context.Context, n *node, topic string, partition int32) (mp kmsg.MetadataResponseTopicPartition, err error) {
	mt, err := s.metadata(ctx, n, topic)
	if err != nil {
		return mp, err
	}
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		return mp, err
	}
	for _, mp := range mt.Partitions {
		if mp.Partition == partition {
			return mp, nil
		}
	}
	return mp, fmt.Errorf("broker %d knows no partition %d of %s", n.id, partition, topic)
}

// everywhere is a step that passes when ok accepts what each awake broker shows.
func (s *state) everywhere(topic string, ok func(*kmsg.MetadataResponseTopic) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, n := range s.awake() {
			mt, err := s.metadata(ctx, n, topic)
			if err != nil {
				return err
			}
			if err := ok(mt); err != nil {
				return err
			}
		}
		return nil
	}
}

func hasLeaders(mt *kmsg.MetadataResponseTopic, partitions int) error {
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		return err
	}
	if len(mt.Partitions) < partitions {
		return errors.New("a broker does not show all partitions")
	}
	for _, mp := range mt.Partitions {
		if mp.Leader < 0 {
			return errors.New("a broker shows no leader")
		}
	}
	return nil
}

// isUnknown accepts that a topic is not there.
func isUnknown(mt *kmsg.MetadataResponseTopic) error {
	if mt.ErrorCode == kerr.UnknownTopicOrPartition.Code {
		return nil
	}
	return errors.New("a broker still knows it")
}
