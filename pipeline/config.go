package pipeline

import (
	"crypto/tls"
	"log/slog"
	"time"

	"shipper/pipeline/record"
	"shipper/sink/kafka"
	"shipper/spool"
)

// Config is everything an agent needs to run, already validated and in
// machine units. The YAML shape lives in cmd/shipper.
type Config struct {
	Kafka   Kafka
	Spool   Spool
	Sources []Source

	// MemoryBytesMax bounds the heap of the process. An eighth of it is the
	// budget for bytes between read and spool.
	MemoryBytesMax int64

	// ScanInterval is the time between two rescans of the globs; 0 means one
	// second. NoInotify makes the rescan the only source of wake-ups.
	ScanInterval time.Duration
	NoInotify    bool

	// OpenFilesMax bounds the files the readers hold open; 0 means 1024, at most half of
	// the process's limit.
	OpenFilesMax int

	// SymlinkRoots are directories into which symlinks may lead, whoever made
	// them, although the agent may read everything.
	SymlinkRoots []string

	// ExcludePaths are never tailed: the agent's own log and spool.
	ExcludePaths []string

	Logger *slog.Logger
}

// Blocks are the names of the sources.
func (c *Config) Blocks() (names []string) {
	for i := range c.Sources {
		names = append(names, c.Sources[i].Name)
	}
	return names
}

// Kafka is the remote side: where to connect and how to encode.
type Kafka struct {
	Brokers          []string // host:port
	ClientID         string
	TLS              *tls.Config // nil: plain text
	SASLMechanism    string      // "", plain, scram-sha-256 or scram-sha-512
	SASLUser         string
	SASLPassword     string
	Compression      string // none, gzip, snappy, lz4 or zstd
	CompressionLevel int    // 0: the codec's default
	AcksTimeout      time.Duration
	AutoCreateTopics bool
}

// ClientConfig says how to reach the cluster.
func (k *Kafka) ClientConfig(logger *slog.Logger) kafka.ClientConfig {
	return kafka.ClientConfig{Brokers: k.Brokers, ClientID: k.ClientID, TLS: k.TLS,
		SASL:             kafka.SASL{Mechanism: k.SASLMechanism, User: k.SASLUser, Password: k.SASLPassword},
		AutoCreateTopics: k.AutoCreateTopics, Logger: logger}
}

// Spool is the local side: where lines wait, and for how many bytes.
type Spool struct {
	Dir              string
	MaxBytes         int64 // 0: the smaller of 10 GiB and a quarter of the file system
	MinFreeBytes     int64
	RetainAckedBytes int64 // acked bytes kept to heal a broker's loss
	AllowNetworkFS   bool
	DropNewest       bool   // new lines that find no room are dropped and counted; otherwise their files wait
	GapTopic         string // where each line of the ledger of gaps is sent to; "": nowhere

	// Bounds of what is held open of deleted files that wait to be read; 0:
	// 1 GiB, and half of OpenFilesMax.
	HeldBytesMax int64
	HeldFilesMax int

	options func(*spool.Options) // tests only: more of them
}

// Source is one block of the configuration: which files, to which topic.
type Source struct {
	Name             string
	Paths            []string // absolute doublestar patterns
	Exclude          []string
	Topic            string
	IgnoreOlder      time.Duration // 0: no file is too old
	StartAtEnd       bool
	Lanes            int    // 0: auto, four per topic shared by its blocks
	Compression      string // as Kafka.Compression; "": that
	CompressionLevel int
	ByKey            bool // records go to partitions by their keys, not by their files
	Linger           time.Duration
	LineBytesMax     int
	Oversize         string // split, cut or skip
	Encoding         string // one of tail.Encodings
	IdleFlush        time.Duration
	SpoolShare       int  // percent of the spool that is kept for its lines; 0: a fair part
	Own              bool // files of the agent itself: none of their lines is dropped

	// Record says what lines become; its zero value is lines as they are.
	// Source, RecordBytesMax, Oversize and Topic of it follow from the above.
	Record record.Config

	// By Open.
	format *record.Format // nil: lines as they are
	topics *record.Format // nil: all files go to Topic
	codec  *codec
	room   room
}
