package main

import (
	"fmt"
	"log/slog"
	"os"

	"shipper/pipeline"
)

// configToPipeline gives the config the form the agent runs on. The TLS files are read again here: they may have been renewed
// since the config was checked.
func configToPipeline(c *Config, log *slog.Logger) (pipeline.Config, error) {
	p := pipeline.Config{
		Kafka: pipeline.Kafka{
			Brokers:          c.Kafka.Brokers,
			ClientID:         c.Kafka.ClientID,
			SASLMechanism:    c.Kafka.SASL.Mechanism,
			SASLUser:         c.Kafka.SASL.Username,
			SASLPassword:     string(c.Kafka.SASL.Password),
			Compression:      c.Kafka.Compression,
			CompressionLevel: c.Kafka.CompressionLevel,
			AcksTimeout:      c.Kafka.AcksTimeout,
			AutoCreateTopics: c.Kafka.AutoCreateTopics,
		},
		Spool: pipeline.Spool{
			Dir:              c.Spool.Dir,
			MaxBytes:         c.Spool.MaxBytes,
			MinFreeBytes:     c.Spool.MinFreeBytes,
			RetainAckedBytes: c.Spool.RetainAckedBytes,
			AllowNetworkFS:   c.Spool.AllowNetworkFS,
			DropNewest:       c.Spool.WhenFull == "drop_newest",
			GapTopic:         c.Spool.GapTopic,
			HeldBytesMax:     c.Spool.HeldBytesMax,
			HeldFilesMax:     c.Spool.HeldFilesMax,
		},
		MemoryBytesMax: c.MemoryBytes,
		ExcludePaths:   []string{c.Spool.Dir},
		SymlinkRoots:   c.SymlinkRoots,
		Logger:         log,
	}
	if c.Kafka.TLS.Enabled {
		client, wrongKey, err := c.Kafka.TLS.clientConfig()
		if err != nil {
			return p, c.errorAt("kafka.tls."+wrongKey, "%v", err)
		}
		p.Kafka.TLS = client
	}
	host, err := os.Hostname()
	if err != nil {
		return p, fmt.Errorf("ask for the name of this host: %w", err)
	}
	for _, s := range c.Sources {
		if len(s.Paths) == 0 {
			continue // none of its patterns was usable, which was warned about
		}
		lines := s.toRecord()
		lines.Host = host
		p.Sources = append(p.Sources, pipeline.Source{
			Name:         s.Name,
			Paths:        s.Paths,
			Exclude:      s.Exclude,
			Topic:        s.Topic,
			IgnoreOlder:  s.IgnoreOlder,
			StartAtEnd:   s.StartAt == "end",
			Lanes:        s.Lanes,
			ByKey:        s.PartitionBy == "key",
			Linger:       s.Linger,
			LineBytesMax: int(s.LineBytesMax),
			Oversize:     s.Oversize,
			Encoding:     s.Encoding,
			IdleFlush:    s.IdleFlush,
			Record:       lines,
			SpoolShare:   s.SpoolShare,
		})
		if s.Compression != asKafka {
			added := &p.Sources[len(p.Sources)-1]
			added.Compression, added.CompressionLevel = s.Compression, s.CompressionLevel
		}
	}
	return p, nil
}
