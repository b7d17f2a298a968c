package pipeline

import "shipper/sink/kafka"

// compress seals batches until work is closed. Workers run side by side; order
// is kept since the committer takes batches from its own queue, in the order
// they were sealed, and waits for each.
func compress(c *kafka.Compressor, work <-chan *batch, b *budget) {
	for x := range work {
		c.Seal(&x.records, x.out, &x.sealed)
		raw := x.raw
		x.raw, x.records = nil, kafka.Builder{}
		close(x.ready)
		b.give(raw)
	}
}
