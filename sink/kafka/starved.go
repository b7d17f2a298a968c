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
	p := it.place()
	switch {
	case code == 0 && len(s.starved) > 0:
		delete(s.starved, p)
	case Slow(code) && !s.starved[p]:
		s.starved[p] = true
		for _, o := range s.outlets {
			o.setApart(p)
		}
	}
}

// setApart moves what waits for a starved partition to where it travels alone.
func (o *outlet) setApart(p place) {
	left := o.waiting[:0]
	for _, r := range o.waiting {
		if r.item.place() == p {
			o.apart = append(o.apart, r)
		} else {
			left = append(left, r)
		}
	}
	clear(o.waiting[len(left):])
	o.waiting = left
}
