package kafka

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync"
	"sync/atomic"
)

// Records that go to partitions by their keys, and what readers may know of a
// topic to choose partitions and the size of batches.

// KeyedSlot marks the slot of a lane that is one partition's: the rest of the
// slot is its number. Other slots are placed by PlaceLane.
const KeyedSlot = uint32(1) << 31

// SlotName is a slot as people see it: its number, or key-N for the lane of the
// keys of partition N.
func SlotName(slot uint32) string {
	if slot&KeyedSlot == 0 {
		return strconv.Itoa(int(slot))
	}
	return "key-" + strconv.Itoa(int(slot&^KeyedSlot))
}

// KeyPartition is the partition of a key among n, as Kafka's Java client
// chooses it: toPositive(murmur2(key)) mod n (BuiltInPartitioner).
func KeyPartition(key []byte, n int32) int32 { return int32(murmur2(key)&0x7fff_ffff) % n }

// murmur2 is Austin Appleby's MurmurHash2 with the seed that Kafka uses
// (org.apache.kafka.common.utils.Utils).
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		mix  = 0x5bd1e995
	)
	h := uint32(seed) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * mix
		h = h*mix ^ (k^k>>24)*mix
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * mix
	}
	h = (h ^ h>>13) * mix
	return h ^ h>>15
}

// Topic is what the sink has learned of a topic, for its readers. The sink
// writes it, anybody may read it.
type Topic struct {
	Partitions    atomic.Int32 // 0: not known yet
	BatchBytesMax atomic.Int32 // for a whole batch; 0: not known
}

// Topics gives the topics of one agent their Topic. The zero value has none.
type Topics struct {
	mu     sync.Mutex // guards the map; asked once a lane, never per record
	byName map[string]*Topic
}

// Get returns the topic of this name, the same for everybody.
func (x *Topics) Get(name string) *Topic {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.byName[name]
	if t == nil {
		if x.byName == nil {
			x.byName = map[string]*Topic{}
		}
		t = new(Topic)
		x.byName[name] = t
	}
	return t
}

// topicReply is what a topic's configuration says.
type topicReply struct {
	topic string
	cfg   TopicConfig
}

// laneTopic is a topic that lanes of this sink write to.
type laneTopic struct {
	name   string
	shared *Topic
	keyed  bool  // readers wait until its partitions are known
	askAt  int64 // ms, when its configuration is asked for again
}

// addTopic notes a lane's topic.
func (s *Sink) addTopic(info *LaneInfo) {
	t := s.topicOf[info.Topic]
	if t == nil {
		t = &laneTopic{name: info.Topic, shared: s.cfg.Topics.Get(info.Topic)}
		s.topicOf[info.Topic] = t
		s.topics = append(s.topics, t)
	}
	t.keyed = t.keyed || info.Slot&KeyedSlot != 0
	s.awaitTopics()
}

// awaitTopics asks for metadata while readers wait for the number of a topic's
// partitions.
func (s *Sink) awaitTopics() {
	for _, t := range s.topics {
		if t.keyed && t.shared.Partitions.Load() == 0 {
			s.wanted = true
		}
	}
}

// learnTopics tells the readers how many partitions there are, and asks for the
// configuration of topics that it has not asked for in a while: what is known
// to be too large need not be compressed, spooled and refused first. A topic
// that does not say is asked again as late; its refusals tell as much.
func (s *Sink) learnTopics() {
	for _, t := range s.topics {
		meta := s.routes.topic(t.name)
		if topicState(meta) != RouteOK {
			continue
		}
		t.shared.Partitions.Store(int32(len(meta.Partitions)))
		t.shared.BatchBytesMax.Store(int32(s.limitOf(t.name)))
		if ask := s.cfg.Transport.TopicConfig; ask != nil && s.now() >= t.askAt {
			t.askAt = s.now() + limitAgeMaxMs
			s.question(func(ctx context.Context) reply {
				cfg, _, err := ask(ctx, t.name)
				return reply{conf: &topicReply{t.name, cfg}, err: err}
			})
		}
	}
}

func (s *Sink) takeConfig(p *topicReply) {
	if known := s.limitOf(p.topic); p.cfg.BatchBytesMax > 0 && (known == 0 || p.cfg.BatchBytesMax < known) {
		s.learn(p.topic, p.cfg.BatchBytesMax)
	}
}

// partitionFor is the partition of a new identity of the lane in a topic of n
// partitions. A keyed lane whose partition is gone uses another, and that is counted.
func (s *Sink) partitionFor(r *row, n int32) int32 {
	slot := r.info.Slot
	if slot&KeyedSlot == 0 {
		return PlaceLane(s.cfg.Host, r.info.Topic, slot, n)
	}
	p := int32(slot &^ KeyedSlot)
	if p >= n {
		s.stats.rePlaced.Add(1)
		s.warn("the partition of a key is gone; its records go to another", "topic", r.info.Topic, "partition", p, "partitions", n)
	}
	return p % n
}
