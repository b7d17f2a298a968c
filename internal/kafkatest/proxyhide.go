package kafkatest

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// keyMetadata is Kafka's number for Metadata.
const keyMetadata = int16(3)

// HideTopic has every answer to Metadata that passes say that this topic is unknown, as a
// broker that is behind does, until Heal. Needs a plaintext listener.
func (p *Proxy) HideTopic(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = topic
}

// hides returns the hidden topic; "": none is.
func (p *Proxy) hides() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden
}

// noteMetadata remembers the version in which a request for metadata asked (length, api key
// int16, version int16, correlation id int32).
func (c *proxyConn) noteMetadata(request []byte) {
	if int16(binary.BigEndian.Uint16(request[4:])) != keyMetadata {
		return
	}
	c.hitMu.Lock()
	defer c.hitMu.Unlock()
	c.asked[int32(binary.BigEndian.Uint32(request[8:]))] = int16(binary.BigEndian.Uint16(request[6:]))
}

// hide rewrites an answer to Metadata if a topic is hidden; any other it leaves alone.
func (c *proxyConn) hide(answer []byte) []byte {
	corr := int32(binary.BigEndian.Uint32(answer[4:]))
	c.hitMu.Lock()
	version, ok := c.asked[corr]
	delete(c.asked, corr)
	c.hitMu.Unlock()
	topic := c.p.hides()
	if !ok || topic == "" {
		return answer
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(version)
	head := 8
	if resp.IsFlexible() {
		head++ // no tagged fields of the header
	}
	if len(answer) < head || resp.ReadFrom(answer[head:]) != nil {
		return answer
	}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil && *t.Topic == topic {
			t.ErrorCode, t.TopicID, t.Partitions = kerr.UnknownTopicOrPartition.Code, [16]byte{}, nil
		}
	}
	out := resp.AppendTo(slices.Clone(answer[:head]))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}
