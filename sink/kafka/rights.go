package kafka

import "context"

// The rights that the agent can do without, at a price that people should know before they pay it.

// MayRead says whether the leader lets us read the topic; Floor is where it is tried. A code other than 0 and
// TOPIC_AUTHORIZATION_FAILED says nothing about that.
func (c *Client) MayRead(ctx context.Context, q ReadBackQuery) (code int16, err error) {
	s := search{ReadBackQuery: q, c: c, at: q.Floor, end: q.Floor + 1}
	_, err = s.step(ctx)
	return s.result.Code, err
}

// noteRights remembers whether a topic may be read, and says what follows when that changes.
func (s *Sink) noteRights(topic string, denied bool) {
	if s.noRead[topic] == denied {
		return
	}
	if denied {
		s.noRead[topic] = true
		s.log.Warn("no right to read the topic: records whose answer was lost, and which the brokers may have forgotten meanwhile, "+
			"cannot be looked for; they are sent again and counted as possibly doubled", "topic", topic, "advice", "grant READ on the topic to this principal")
	} else {
		delete(s.noRead, topic)
		s.log.Info("the topic may be read: records in doubt can be looked for", "topic", topic)
	}
	s.stats.unreadable.Store(int64(len(s.noRead)))
}
