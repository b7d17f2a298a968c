package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a topic takes, as far as its configuration says, and what follows for a
// batch that it refused. Reading the configuration needs DESCRIBE_CONFIGS on
// the topic; without it a limit is found by halving.

// TopicConfig is the part of a topic's configuration that decides what is
// refused. The zero value is a topic of which nothing is known.
type TopicConfig struct {
	Known         bool
	BatchBytesMax int   // smaller of max.message.bytes and segment.bytes, for a whole batch; 0: unknown
	Compacted     bool  // cleanup.policy has compact: records need keys
	BeforeMs      int64 // message.timestamp.before.max.ms: how old a record may be; 0: unknown or any age
	AfterMs       int64 // message.timestamp.after.max.ms: how far ahead of the broker's clock; 0 as above
}

const configTypeTopic = kmsg.ConfigResourceTypeTopic

// timeUnlimitedMs is from where on a bound of times is none: Kafka's default is the largest int64.
const timeUnlimitedMs = int64(1) << 53

// TopicConfig asks any broker for the configuration of a topic (DescribeConfigs). A code says that it may not be had.
func (c *Client) TopicConfig(ctx context.Context, topic string) (cfg TopicConfig, code int16, err error) {
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = configTypeTopic, topic
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, c.kgo)
	if err == nil && len(resp.Resources) != 1 {
		err = errNoEntry
	}
	if err != nil {
		return TopicConfig{}, 0, fmt.Errorf("ask for the configuration of topic %s: %w", topic, err)
	}
	if code := resp.Resources[0].ErrorCode; code != 0 {
		return TopicConfig{}, code, nil
	}
	values := map[string]string{}
	for i := range resp.Resources[0].Configs {
		if x := &resp.Resources[0].Configs[i]; x.Value != nil {
			values[x.Name] = *x.Value
		}
	}
	return topicConfigOf(values), 0, nil
}

func topicConfigOf(values map[string]string) TopicConfig {
	number := func(key string) int64 {
		n, err := strconv.ParseInt(values[key], 10, 64)
		if err != nil || n < 0 || n >= timeUnlimitedMs {
			return 0
		}
		return n
	}
	cfg := TopicConfig{Known: true, BatchBytesMax: int(number("max.message.bytes")),
		Compacted: strings.Contains(values["cleanup.policy"], "compact"),
		BeforeMs:  number("message.timestamp.before.max.ms"), AfterMs: number("message.timestamp.after.max.ms")}
	if both := number("message.timestamp.difference.max.ms"); both > 0 { // before 3.6: one bound for both sides
		if cfg.BeforeMs == 0 {
			cfg.BeforeMs = both
		}
		if cfg.AfterMs == 0 {
			cfg.AfterMs = both
		}
	}
	if segment := int(number("segment.bytes")); segment > 0 && (cfg.BatchBytesMax == 0 || segment < cfg.BatchBytesMax) {
		cfg.BatchBytesMax = segment
	}
	return cfg
}

// fault is what the broker said of the batch at a lane's head when it refused it.
type fault struct {
	code    int16
	message string
	named   []int32 // records counted from 0; none if all are: then it is not they
	strikes int     // refusals of this batch in a row
}

// note remembers a refusal.
func (f *fault) note(out *PartOutcome, count uint32) {
	f.code, f.message, f.named = out.Code, out.ErrorMessage, nil
	f.strikes++
	if len(out.RecordErrors) < int(count) && !f.keyless() {
		f.named = out.RecordErrors
	}
}

// keyless says that the broker wants keys: for every record, since the topic is
// compacted. LogValidator, "Compacted topic cannot accept message without key".
func (f *fault) keyless() bool { return strings.Contains(f.message, "ompacted topic") }

const (
	codeCorrupt      = 2 // CORRUPT_MESSAGE
	corruptTriesMax  = 3 // perhaps the wire, or a broker's memory
	adviceKeys       = "the topic is compacted and takes no record without a key: set its cleanup.policy to delete"
	adviceConfigs    = "grant DESCRIBE_CONFIGS on the topic, so that a topic that refuses everything can be told from a record that is invalid"
	adviceEveryBatch = "the broker names no record: look for a setting or policy of the topic that refuses all of them"
)

// remedy is what is done about a batch that was refused.
type remedy struct {
	hold  string // nothing: somebody must follow this advice; empty: the rest is done
	limit int    // learned: the topic takes no batch above it, bytes; 0: nothing was
	plan  cutPlan
	dead  bool  // the batch, one record, becomes a dead letter
	same  bool  // the batch stays as it is
	step  int64 // ms to step back in time at once; 0: not known
}

// remedyFor decides what is done for why about a batch of count records and
// size bytes, header included, whose times were moved back times. limit is what
// batches of the topic are known to be limited to, 0: nothing is known.
func remedyFor(why Cut, count uint32, size, limit int, back uint8, f *fault, t *TopicConfig) remedy {
	switch why {
	case CutAhead:
		return remedy{plan: cutPlan{bytesMax: limit}, same: limit == 0}
	case CutSize:
		limit = limitBelow(size, limit, t)
		return remedy{limit: limit, plan: cutPlan{bytesMax: limit}, dead: count == 1}
	case CutTimes:
		return remedyForTimes(back, t)
	}
	switch {
	case t.Compacted || f.keyless():
		return remedy{hold: adviceKeys}
	case f.code == codeCorrupt && f.strikes <= corruptTriesMax:
		return remedy{hold: adviceEveryBatch}
	case count > 1 && len(f.named) == 0:
		return remedy{hold: adviceEveryBatch}
	case count > 1:
		return remedy{plan: cutPlan{alone: f.named}}
	case !t.Known && f.message == "":
		// All there is to see is one record and a refusal. If it is the
		// topic that refuses everything, every record would go this way.
		return remedy{hold: adviceConfigs}
	}
	return remedy{dead: true}
}

// limitBelow is what a batch may have of bytes when one of size was refused.
// What the configuration says may not explain it: brokers that compress anew
// look at the size that comes out. Then half is tried, again and again.
func limitBelow(size, limit int, t *TopicConfig) int {
	at := size / 2
	if t.BatchBytesMax > 0 && t.BatchBytesMax < size {
		at = t.BatchBytesMax
	}
	if limit > 0 {
		at = min(at, limit)
	}
	return max(at, HeaderBytes+1)
}

const (
	backStepMinMs = 1_000
	evenBackTries = 3 // moves before the times are made one, when the bounds are not known
)

// remedyForTimes decides whether the times of a batch must be made one, so that
// the bounds of the topic can hold them at all.
func remedyForTimes(back uint8, t *TopicConfig) remedy {
	r := remedy{same: true}
	if t.BeforeMs > 0 {
		// Steps of half the window never miss it. The newest record will be of
		// now, and the batch needs some of the time that the oldest has.
		r.step = max(backStepMinMs, (t.BeforeMs+t.AfterMs)/2)
		r.plan.spanMax, r.plan.bounded = t.BeforeMs/2, true
	} else if !t.Known && back > evenBackTries {
		r.plan.bounded = true
	}
	return r
}
