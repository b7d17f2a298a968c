package pipeline

import "shipper/sink/kafka"

// codec is how a source's batches are compressed.
type codec struct {
	name  kafka.Codec
	level int
}

// codecsOf gives each source its codec, the same for those that want the same.
func codecsOf(cfg *Config) error {
	known := map[codec]*codec{}
	for i := range cfg.Sources {
		s := &cfg.Sources[i]
		name, level := s.Compression, s.CompressionLevel
		if name == "" {
			name, level = cfg.Kafka.Compression, cfg.Kafka.CompressionLevel
		}
		parsed, err := kafka.ParseCodec(name)
		if err != nil {
			return err
		}
		c := codec{parsed, level}
		if known[c] == nil {
			if _, err := kafka.NewCompressor(parsed, level); err != nil {
				return err
			}
			known[c] = &c
		}
		s.codec = known[c]
	}
	return nil
}

// compressor is one worker's tools.
type compressor map[*codec]*kafka.Compressor

// compress seals batches until work is closed. Workers run side by side; order
// is kept since the committer takes batches from its own queue, in the order
// they were sealed, and waits for each.
func compress(work <-chan *batch, b *budget) {
	tools := compressor{}
	for x := range work {
		tools.seal(x, b)
	}
}

func (tools compressor) seal(x *batch, b *budget) {
	c := tools[x.codec]
	if c == nil {
		var err error
		if c, err = kafka.NewCompressor(x.codec.name, x.codec.level); err != nil {
			panic("BUG: a codec that was tried at the start cannot be made: " + err.Error())
		}
		tools[x.codec] = c
	}
	c.Seal(&x.records, x.out, &x.sealed)
	x.lane.shrank(x.sealed.RawBytes, len(x.sealed.Records))
	raw := x.raw
	x.raw, x.records = nil, kafka.Builder{}
	close(x.ready)
	b.give(x.lane.block, raw)
}
