package kafka

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// routes is what the cluster's metadata said last: a belief that saves a round
// trip, never trusted for safety (a wrong leader refuses, a wrong epoch is
// fenced). It belongs to the sink's goroutine.
type routes struct {
	askedAt int64 // ms, when these metadata were asked for; 0: never
	meta    Metadata
	topics  map[string]int // index into meta.Topics
	newest  map[placeID]newest
}

// placeID is one partition of one topic; brokers before 2.8 give topics no id, and
// one that was created again looks the same.
type placeID struct {
	cluster, topic string
	id             [16]byte
	partition      int32
}

// newest is what was said of a partition with the highest leader epoch, and when
// that was asked for; leader -1 and time 0: only the epoch is known.
type newest struct {
	leader, epoch int32
	followers     uint64
	askedAt       int64 // ms
	lowerSince    int64 // ms, metadata show a lower epoch since; 0: they do not
}

// A broker that hears nothing of its controller tells what was true before, for
// as long as it is cut off. What it says is passed over; but a cluster whose
// epochs went back for good, or a topic that was created again and has no id, must
// not be waited for.
const lowerEpochMaxMs = 60_000

func (r *routes) replace(m Metadata, askedAt int64) {
	before := *r
	r.meta, r.askedAt = m, askedAt
	r.topics = make(map[string]int, len(m.Topics))
	for i := range m.Topics {
		t := &m.Topics[i]
		r.topics[t.Name] = i
		if was := before.topic(t.Name); was != nil && t.Code == 0 && was.Code == 0 && (was.ID != t.ID || before.meta.ClusterID != m.ClusterID) {
			maps.DeleteFunc(r.newest, func(at placeID, _ newest) bool { return at.topic == t.Name })
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			r.note(placeID{m.ClusterID, t.Name, t.ID, p.Partition}, newest{leader: p.Leader, epoch: p.LeaderEpoch, followers: p.Followers, askedAt: askedAt})
		}
	}
}

// expect says that a partition was seen in a leader epoch, before this start.
func (r *routes) expect(id *IdentityRecord, epoch int32) {
	if id.Partition >= 0 && epoch >= 0 {
		r.note(placeID{id.ClusterID, id.Topic, id.TopicID, id.Partition}, newest{leader: -1, epoch: epoch})
	}
}

func (r *routes) note(at placeID, n newest) {
	have, known := r.newest[at]
	if known && n.epoch < have.epoch {
		if have.lowerSince == 0 {
			have.lowerSince = n.askedAt
		}
		if n.askedAt-have.lowerSince <= lowerEpochMaxMs {
			n = have
		}
	}
	if r.newest == nil {
		r.newest = map[placeID]newest{}
	}
	r.newest[at] = n
}

func (r *routes) topic(name string) *TopicMeta {
	i, ok := r.topics[name]
	if !ok {
		return nil
	}
	return &r.meta.Topics[i]
}

const (
	codeUnknownTopic = 3
	codeNoLeader     = 5
	codeTopicDenied  = 29
)

// of says what a lane with this identity may do in its partition.
func (r *routes) of(id *IdentityRecord) Route {
	route := Route{Leader: -1, Epoch: -1, AskedAt: r.askedAt}
	if r.askedAt == 0 {
		return route
	}
	if id.ClusterID != "" && r.meta.ClusterID != "" && id.ClusterID != r.meta.ClusterID {
		route.State = RouteOtherCluster
		return route
	}
	t := r.topic(id.Topic)
	if route.State = topicState(t); route.State != RouteOK {
		return route
	}
	if id.TopicID != [16]byte{} && t.ID != [16]byte{} && id.TopicID != t.ID {
		route.State = RouteOtherTopic
		return route
	}
	p := t.partition(id.Partition)
	if p == nil {
		route.State = RouteOtherTopic
		return route
	}
	if n, ok := r.newest[placeID{r.meta.ClusterID, t.Name, t.ID, p.Partition}]; ok && p.LeaderEpoch < n.epoch { // what was known before still holds
		route.AskedAt = n.askedAt
		if n.askedAt == 0 {
			route.State = RouteUnknown
			return route
		}
		p = &PartitionMeta{Leader: n.leader, LeaderEpoch: n.epoch, Followers: n.followers}
	}
	if p.Leader < 0 || p.Code == codeNoLeader {
		route.State = RouteNoLeader
		return route
	}
	route.Leader, route.Epoch, route.Followers = p.Leader, p.LeaderEpoch, p.Followers
	return route
}

func topicState(t *TopicMeta) RouteState {
	switch {
	case t == nil || t.Code == codeUnknownTopic:
		return RouteNoTopic
	case t.Code == codeTopicDenied:
		return RouteDenied
	case t.Code == codeNoLeader:
		return RouteNoLeader
	case t.Code != 0:
		return RouteUnknown
	case len(t.Partitions) == 0:
		return RouteNoTopic
	}
	return RouteOK
}

func (t *TopicMeta) partition(n int32) *PartitionMeta {
	for i := range t.Partitions {
		if t.Partitions[i].Partition == n {
			return &t.Partitions[i]
		}
	}
	return nil
}

// PlaceLane chooses the partition of a lane: the slot-th of the topic's n
// partitions in the order of this host's rendezvous ranks (highest random
// weight hashing, Thaler and Ravishankar 1998). Hosts differ in their order
// since host is random, so the load of many hosts spreads evenly, and a
// topic that grows moves nothing that has an identity.
func PlaceLane(host [16]byte, topic string, slot uint32, n int32) int32 {
	type ranked struct {
		weight uint64
		p      int32
	}
	best := make([]ranked, 0, int(slot)%int(n)+2) // by weight, descending: no more than are wanted, and one
	key := append(append([]byte{}, host[:]...), topic...)
	key = append(key, 0, 0, 0, 0)
	for p := range n {
		binary.BigEndian.PutUint32(key[len(key)-4:], uint32(p))
		x := ranked{xxhash.Sum64(key), p}
		at := len(best)
		for at > 0 && best[at-1].weight < x.weight {
			at--
		}
		if at < cap(best)-1 {
			best = slices.Insert(best, at, x)
			best = best[:min(len(best), cap(best)-1)]
		}
	}
	return best[len(best)-1].p
}
