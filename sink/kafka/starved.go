package kafka

// place is a partition as a request names it.
type place struct {
	topic string
	part  int32
}

// noteStarved learns from an answer whether a partition can commit. One that cannot holds up a request, and all others of
// its connection, until the acks time-out. The lane that found out travels alone from then on; so must the other lanes of the
// partition, or each of them would find out for itself at the cost of the healthy ones.
func (s *Sink) noteStarved(it *item, code int16) {
	p := place{it.topic, it.part}
	switch {
	case code == 0 && len(s.starved) > 0:
		delete(s.starved, p)
	case Slow(code) && !s.starved[p]:
		s.starved[p] = true
		for _, x := range s.lines {
			if !x.key.slow {
				s.setApart(x, p)
			}
		}
	}
}

// setApart moves what waits at x for a starved partition to the second connection.
func (s *Sink) setApart(x *sender, p place) {
	left, moved := x.waiting[:0], []*row(nil)
	for _, r := range x.waiting {
		if (place{r.item.topic, r.item.part}) == p {
			moved = append(moved, r)
		} else {
			left = append(left, r)
		}
	}
	clear(x.waiting[len(left):])
	x.waiting = left
	if len(moved) > 0 {
		slow := s.sender(senderKey{x.key.broker, true})
		slow.waiting = append(slow.waiting, moved...)
	}
}

// sender is the one of key, which is made if it is the first time.
func (s *Sink) sender(key senderKey) *sender {
	x := s.senders[key]
	if x == nil {
		x = &sender{key: key, in: make(chan *job, 1), idle: &job{}}
		x.idle.from, x.idle.request.TimeoutMs = x, s.cfg.AcksTimeoutMs
		s.senders[key] = x
		s.lines = append(s.lines, x)
		s.open(x)
	}
	return x
}
