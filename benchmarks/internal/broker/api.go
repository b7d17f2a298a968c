package broker

import (
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type versions struct{ min, max int16 }

// servedVersions is what ApiVersions says. Fetch is served only to be refused: there are no records to read back.
var servedVersions = map[int16]versions{
	int16(kmsg.Produce):              {3, 13},
	int16(kmsg.Fetch):                {4, 12},
	int16(kmsg.ListOffsets):          {1, 7},
	int16(kmsg.Metadata):             {1, 12},
	int16(kmsg.ApiVersions):          {0, 3},
	int16(kmsg.InitProducerID):       {0, 4},
	int16(kmsg.OffsetForLeaderEpoch): {0, 4},
}

// versionsTooNew answers an ApiVersions request of a version we do not know, in version 0 as KIP-511 has it.
func versionsTooNew() kmsg.Response {
	resp := listVersions(0)
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	return resp
}

func listVersions(version int16) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	for key, v := range servedVersions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, v.min, v.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

// answer carries out everything but Produce.
func (b *Broker) answer(req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return listVersions(req.Version), nil
	case *kmsg.MetadataRequest:
		return b.metadata(req), nil
	case *kmsg.InitProducerIDRequest:
		return b.initProducerID(req), nil
	case *kmsg.ListOffsetsRequest:
		return b.listOffsets(req), nil
	case *kmsg.OffsetForLeaderEpochRequest:
		return b.offsetForLeaderEpoch(req), nil
	case *kmsg.FetchRequest:
		return refuseFetch(req), nil
	}
	return nil, fmt.Errorf("%T is not served", req)
}

func (b *Broker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	host, _, err := net.SplitHostPort(b.o.Addr)
	if err != nil {
		panic("BUG: own address: " + err.Error())
	}
	resp.ClusterID = kmsg.StringPtr(clusterID)
	resp.ControllerID = nodeID
	node := kmsg.NewMetadataResponseBroker()
	node.NodeID, node.Host, node.Port = nodeID, host, b.port
	resp.Brokers = append(resp.Brokers, node)

	b.mu.Lock()
	defer b.mu.Unlock()
	if req.Topics == nil {
		for _, t := range b.topics {
			resp.Topics = append(resp.Topics, describe(t))
		}
		return resp
	}
	for i := range req.Topics {
		var t *topic
		asked := &req.Topics[i]
		if asked.Topic != nil {
			t = b.topicLocked(*asked.Topic)
		} else {
			t = b.byID[asked.TopicID]
		}
		if t != nil {
			resp.Topics = append(resp.Topics, describe(t))
			continue
		}
		unknown := kmsg.NewMetadataResponseTopic()
		unknown.Topic, unknown.TopicID, unknown.ErrorCode = asked.Topic, asked.TopicID, kerr.UnknownTopicID.Code
		resp.Topics = append(resp.Topics, unknown)
	}
	return resp
}

func describe(t *topic) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID = kmsg.StringPtr(t.name), t.id
	for i := range t.partitions {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), nodeID, leaderEpoch
		p.Replicas, p.ISR = []int32{nodeID}, []int32{nodeID}
		mt.Partitions = append(mt.Partitions, p)
	}
	return mt
}

func (b *Broker) initProducerID(req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	resp.ProducerID, resp.ProducerEpoch = b.nextPID, 0
	b.nextPID++
	b.totals.ProducerIDs++
	return resp
}

func (b *Broker) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	const earliest = -2
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, rt := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition = rp.Partition
			end, code := b.end(rt.Topic, rp.Partition, rp.CurrentLeaderEpoch)
			if p.ErrorCode = code; code == 0 {
				p.Timestamp, p.Offset, p.LeaderEpoch = -1, end, leaderEpoch
				if rp.Timestamp == earliest {
					p.Offset = 0
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (b *Broker) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, rt := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition = rp.Partition
			p.LeaderEpoch, p.EndOffset = -1, -1 // Kafka's "undefined", for an epoch it never saw
			end, code := b.end(rt.Topic, rp.Partition, rp.CurrentLeaderEpoch)
			if p.ErrorCode = code; code == 0 && rp.LeaderEpoch == leaderEpoch {
				p.LeaderEpoch, p.EndOffset = leaderEpoch, end
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// end is the log end of a partition, or Kafka's error code for why there is none.
func (b *Broker) end(name string, number, currentEpoch int32) (int64, int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	switch {
	case t == nil || number < 0 || int(number) >= len(t.partitions):
		return 0, kerr.UnknownTopicOrPartition.Code
	case currentEpoch > leaderEpoch:
		return 0, kerr.UnknownLeaderEpoch.Code
	}
	return t.partitions[number].end, 0
}

// refuseFetch answers as a broker that grants the client WRITE but not READ.
func refuseFetch(req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, rt := range req.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = rp.Partition, kerr.TopicAuthorizationFailed.Code
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
