package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where DescribeConfigs says a value is from, by what sets it (KIP-226, KIP-714).
var configSources = map[kmsg.ConfigResourceType]kmsg.ConfigSource{
	kmsg.ConfigResourceTypeTopic:         kmsg.ConfigSourceDynamicTopicConfig,
	kmsg.ConfigResourceTypeBroker:        kmsg.ConfigSourceDynamicBrokerConfig,
	kmsg.ConfigResourceTypeClientMetrics: kmsg.ConfigSourceClientMetricsConfig,
}

// configChange is one config of one resource.
type configChange struct {
	kind       kmsg.ConfigResourceType
	name       string // topic, broker id, or "" for all brokers
	key, value string // value "" brings the default back
}

// SetTopicConfig sets one config of a topic; an empty value brings the default back.
func (c *Cluster) SetTopicConfig(topic, key, value string) {
	c.tb.Helper()
	c.setConfig(configChange{kmsg.ConfigResourceTypeTopic, topic, key, value}, c.awake)
}

// SetBrokerConfig sets one dynamic config of broker i, which must run, or of all brokers
// if i is -1; an empty value brings the default back.
func (c *Cluster) SetBrokerConfig(i int, key, value string) {
	c.tb.Helper()
	if i < 0 {
		c.setConfig(configChange{kmsg.ConfigResourceTypeBroker, "", key, value}, c.awake)
		return
	}
	c.checkIndex(i)
	// A broker takes only its own.
	own := func() []*node { return c.nodes[i : i+1] }
	c.setConfig(configChange{kmsg.ConfigResourceTypeBroker, strconv.Itoa(i), key, value}, own)
}

// setConfig sets a config by the first of the brokers concerned and waits until all of
// them act on it.
func (c *Cluster) setConfig(ch configChange, concerned func() []*node) {
	c.tb.Helper()
	c.change(fmt.Sprintf("set %s of %v %q", ch.key, ch.kind, ch.name), func(ctx context.Context) error {
		nodes := concerned()
		if len(nodes) == 0 {
			return &permanentError{errors.New("no broker runs")}
		}
		return c.alter(ctx, ch, nodes[0])
	}, func(ctx context.Context) error {
		for _, n := range concerned() {
			if err := c.shows(ctx, ch, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// settled waits until every awake broker has applied all that it showed before. A broker
// applies one metadata image after another and shows each when it begins with it; so once
// it shows a later change, here of a setting that nothing reads, it is done with the
// earlier ones.
func (s *state) settled(ctx context.Context) error {
	n, err := s.some()
	if err != nil {
		return err
	}
	const least, most = 100, 3_600_000 // what interval.ms takes
	ch := configChange{
		kind: kmsg.ConfigResourceTypeClientMetrics, name: "kafkatest", key: "interval.ms",
		value: strconv.FormatInt(least+s.marks.Add(1)%(most-least), 10),
	}
	if err := s.alter(ctx, ch, n); err != nil {
		return err
	}
	for _, n := range s.awake() {
		if err := attempt(ctx, "wait for it to be applied", func(ctx context.Context) error { return s.shows(ctx, ch, n) }); err != nil {
			return err
		}
	}
	return nil
}

// alter asks one broker for a change.
func (s *state) alter(ctx context.Context, ch configChange, n *node) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = ch.kind, ch.name
	a := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	a.Name, a.Value, a.Op = ch.key, &ch.value, kmsg.IncrementalAlterConfigOpSet
	if ch.value == "" {
		a.Value, a.Op = nil, kmsg.IncrementalAlterConfigOpDelete
	}
	r.Configs = append(r.Configs, a)
	req.Resources = append(req.Resources, r)
	resp, err := request[*kmsg.IncrementalAlterConfigsResponse](ctx, s, n, req)
	if err != nil {
		return err
	}
	return answered(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
}

// shows checks that one broker describes a config as it was set, or as not set here if
// the value is empty.
func (s *state) shows(ctx context.Context, ch configChange, n *node) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = ch.kind, ch.name, []string{ch.key}
	req.Resources = append(req.Resources, r)
	resp, err := request[*kmsg.DescribeConfigsResponse](ctx, s, n, req)
	if err != nil {
		return err
	}
	if err := answered(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage); err != nil {
		return err
	}
	own := configSources[ch.kind]
	if ch.kind == kmsg.ConfigResourceTypeBroker && ch.name == "" {
		own = kmsg.ConfigSourceDynamicDefaultBrokerConfig
	}
	set := false
	for _, cfg := range resp.Resources[0].Configs {
		if cfg.Name == ch.key && cfg.Source == own {
			set = cfg.IsSensitive || cfg.Value != nil && (*cfg.Value == ch.value || ch.value == "")
		}
	}
	if set != (ch.value != "") {
		return fmt.Errorf("broker %d does not show it yet", n.id)
	}
	return nil
}
