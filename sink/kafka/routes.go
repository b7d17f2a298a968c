package kafka

import (
	"encoding/binary"
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
}

func (r *routes) replace(m Metadata, askedAt int64) {
	r.meta, r.askedAt = m, askedAt
	r.topics = make(map[string]int, len(m.Topics))
	for i := range m.Topics {
		r.topics[m.Topics[i].Name] = i
	}
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
	switch {
	case p == nil:
		route.State = RouteOtherTopic
	case p.Leader < 0 || p.Code == codeNoLeader:
		route.State = RouteNoLeader
	default:
		route.Leader, route.Epoch, route.Followers = p.Leader, p.LeaderEpoch, p.Followers
	}
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
