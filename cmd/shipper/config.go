// The config: its shape, defaults and limits. config_yaml.go walks the YAML strictly, config_values.go reads single values.
//
//	bytes -> YAML nodes -> keys known? once? -> ${ENV} inside scalars -> value checked against its limits -> Config
//
// Built in < defaults < source. Whatever is wrong is a *ConfigError with file, line and full key path.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shipper/pipeline"
	"shipper/spool"
	"shipper/tail"
)

// Limits of the config itself; those of single values stand beside their keys below.
const (
	brokersMax  = 64
	sourcesMax  = 1024
	patternsMax = 256
	lanesMax    = 64

	// A line is in memory up to four times: as read, in its batch, as room to compress that, and beside another one.
	lineMemoryShare = 16
)

// compressionLevelMax of each compression; level 0 is the codec's own default, of which some have no other.
var compressionLevelMax = map[string]int{"zstd": 22, "gzip": 9, "lz4": 9, "snappy": 0, "none": 0}

// Config is a checked config file: every value is inside its limits and every default is filled in.
type Config struct {
	File         string // path it was read from; reading it again is a reload
	Kafka        KafkaConfig
	Spool        SpoolConfig
	Sources      []SourceConfig
	SymlinkRoots []string // absolute directories
	MemoryBytes  int64    // memory_limit
	Admin        AdminConfig
	Log          LogConfig

	Warnings []*ConfigError // what is odd but no reason to refuse the start

	lines map[string]int // full key path -> line, for errors found after reading
}

// KafkaConfig says where the brokers are and how to speak to them.
type KafkaConfig struct {
	Brokers          []string // host:port
	ClientID         string
	Compression      string // zstd, lz4, snappy, gzip, none
	CompressionLevel int    // 0: the codec's own default
	AcksTimeout      time.Duration
	AutoCreateTopics bool
	TLS              TLSConfig
	SASL             SASLConfig
}

// TLSConfig names the files of a TLS client; empty CAFile means the system's roots.
type TLSConfig struct {
	Enabled            bool
	CAFile             string
	CertFile, KeyFile  string // PEM, both or none
	ServerName         string
	InsecureSkipVerify bool
}

// SASLConfig is empty (Mechanism "") without SASL. Password holds the content of password_file if that was given.
type SASLConfig struct {
	Mechanism    string // plain, scram-sha-256, scram-sha-512
	Username     string
	Password     Secret
	PasswordFile string
}

// Secret is a string that no format verb prints.
type Secret string

// Format writes stars for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("***")) }

// SpoolConfig says where lines wait for Kafka and how much room they may take. Zero bytes mean the spool's own default.
type SpoolConfig struct {
	Dir              string
	MaxBytes         int64
	MinFreeBytes     int64
	RetainAckedBytes int64
	AllowNetworkFS   bool
	WhenFull         string // block, drop_newest
	GapTopic         string // "": none
	HeldBytesMax     int64  // held_max_bytes
	HeldFilesMax     int    // held_max_files; 0: auto
}

// SourceConfig is one block of files that go to one topic.
type SourceConfig struct {
	Name, Topic    string
	Paths, Exclude []string      // absolute doublestar patterns
	StartAt        string        // beginning, end
	IgnoreOlder    time.Duration // 0: off
	Lanes          int           // 0: auto
	PartitionBy    string        // file, key
	Linger         time.Duration
	LineBytesMax   int64  // max_line_bytes
	Oversize       string // split, cut, skip
	Encoding       string // raw or a name that tail knows
	IdleFlush      time.Duration
	SpoolShare     int // percent; 0: auto
	Record         RecordConfig

	Compression      string // as KafkaConfig, or asKafka: that, with its level
	CompressionLevel int
}

// asKafka is the compression of a source that has none of its own.
const asKafka = "kafka"

// AdminConfig is the local interface for operators.
type AdminConfig struct {
	Socket string // path of the unix socket, "off": none
	HTTP   string // loopback host:port, "": none
}

// LogConfig is the agent's own log on standard error.
type LogConfig struct {
	Level  slog.Level
	Format string // text, json
}

// DefaultConfig is the config with every default that does not depend on another key (admin.socket follows spool.dir).
func DefaultConfig() Config {
	return Config{
		Kafka: KafkaConfig{
			ClientID:         "shipper",
			Compression:      "zstd",
			AcksTimeout:      10 * time.Second,
			AutoCreateTopics: true,
		},
		Spool:        SpoolConfig{RetainAckedBytes: 64 << 20, WhenFull: "block", HeldBytesMax: 1 << 30},
		SymlinkRoots: []string{},
		MemoryBytes:  128 << 20,
		Log:          LogConfig{Level: slog.LevelInfo, Format: "text"},
	}
}

// DefaultSource is a source block before `defaults` and its own keys are applied.
func DefaultSource() SourceConfig {
	return SourceConfig{
		StartAt:      "beginning",
		PartitionBy:  "file",
		Linger:       time.Second,
		LineBytesMax: 1_000_000,
		Oversize:     "split",
		Encoding:     "raw",
		IdleFlush:    5 * time.Second,
		Record:       defaultRecord(),
		Compression:  asKafka,
	}
}

// LoadConfig reads and checks the file at path. The error is a *ConfigError.
func LoadConfig(path string) (*Config, error) {
	data, err := readConfigFile(path)
	if err != nil {
		return nil, err
	}
	return parseConfig(path, data, os.LookupEnv)
}

func readConfigFile(path string) ([]byte, error) {
	data, err := readSmallFile(path)
	if err != nil {
		return nil, &ConfigError{File: path, Msg: fmt.Sprintf("cannot read the config: %v", err)}
	}
	return data, nil
}

// pathless drops operation and path from a file error: the message names them already.
func pathless(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// parseConfig is LoadConfig without the file. Reading password_file and the TLS files is part of it,
// so that a config that was accepted can be used.
func parseConfig(path string, data []byte, env func(string) (string, bool)) (*Config, error) {
	root, err := parseYAML(path, data)
	if err != nil {
		return nil, err
	}
	c := DefaultConfig()
	c.File = path
	d := &decoder{file: path, env: env, lines: make(map[string]int)}
	c.lines = d.lines
	if err := (value{d: d, node: root}).mapping(c.keys()); err != nil {
		return nil, err
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	return &c, nil
}

// keys is the whole shape of the file. Keys are read in this order, whatever their order in the file: `defaults` before `sources`.
func (c *Config) keys() []key {
	sourceDefaults := DefaultSource()
	return []key{
		mapping("kafka", c.Kafka.keys()),
		mapping("spool", []key{
			text("dir", &c.Spool.Dir, absolutePath),
			size("max_bytes", &c.Spool.MaxBytes, 0, 1<<50),
			size("min_free_bytes", &c.Spool.MinFreeBytes, 0, 1<<50),
			size("retain_acked", &c.Spool.RetainAckedBytes, 1<<20, 1<<50),
			boolean("allow_network_fs", &c.Spool.AllowNetworkFS),
			choice("when_full", &c.Spool.WhenFull, "block", "drop_newest"),
			text("gap_topic", &c.Spool.GapTopic, emptyOrTopicName),
			size("held_max_bytes", &c.Spool.HeldBytesMax, 1<<20, 1<<50),
			autoOrInteger("held_max_files", &c.Spool.HeldFilesMax, 1, 1<<20),
		}),
		mapping("defaults", sourceDefaults.defaultKeys()),
		mappings("sources", sourcesMax, new(SourceConfig).keys(), func(item value) error {
			s := sourceDefaults // `exclude` is replaced as a whole, never appended to: sharing its array is safe
			err := item.mapping(s.keys())
			c.Sources = append(c.Sources, s)
			return err
		}),
		texts("symlink_roots", &c.SymlinkRoots, patternsMax, absolutePath),
		size("memory_limit", &c.MemoryBytes, 64<<20, 64<<30),
		mapping("admin", []key{
			text("socket", &c.Admin.Socket, offOrAbsolutePath),
			text("http", &c.Admin.HTTP, emptyOrLoopbackAddress),
		}),
		mapping("log", []key{
			level("level", &c.Log.Level),
			choice("format", &c.Log.Format, "text", "json"),
		}),
	}
}

func (k *KafkaConfig) keys() []key {
	return []key{
		texts("brokers", &k.Brokers, brokersMax, brokerAddress),
		text("client_id", &k.ClientID, notEmpty),
		choice("compression", &k.Compression, "zstd", "lz4", "snappy", "gzip", "none"),
		integer("compression_level", &k.CompressionLevel, 0, 22),
		duration("acks_timeout", &k.AcksTimeout, time.Second, time.Minute),
		boolean("auto_create_topics", &k.AutoCreateTopics),
		mapping("tls", []key{
			boolean("enabled", &k.TLS.Enabled),
			text("ca_file", &k.TLS.CAFile, emptyOrAbsolutePath),
			text("cert_file", &k.TLS.CertFile, emptyOrAbsolutePath),
			text("key_file", &k.TLS.KeyFile, emptyOrAbsolutePath),
			text("server_name", &k.TLS.ServerName, nil),
			boolean("insecure_skip_verify", &k.TLS.InsecureSkipVerify),
		}),
		mapping("sasl", []key{
			choice("mechanism", &k.SASL.Mechanism, "plain", "scram-sha-256", "scram-sha-512"),
			text("username", &k.SASL.Username, notEmpty),
			text("password", (*string)(&k.SASL.Password), notEmpty),
			text("password_file", &k.SASL.PasswordFile, absolutePath),
		}),
	}
}

func (s *SourceConfig) keys() []key {
	return append([]key{
		text("name", &s.Name, sourceName),
		texts("paths", &s.Paths, patternsMax, globPattern),
		text("topic", &s.Topic, topicTemplate),
	}, s.defaultKeys()...)
}

// defaultKeys are the keys of a source that `defaults` may hold too.
func (s *SourceConfig) defaultKeys() []key {
	return append([]key{
		texts("exclude", &s.Exclude, patternsMax, absoluteGlobPattern),
		choice("start_at", &s.StartAt, "beginning", "end"),
		duration("ignore_older", &s.IgnoreOlder, 0, 100*365*24*time.Hour),
		autoOrInteger("lanes", &s.Lanes, 1, lanesMax),
		choice("partition_by", &s.PartitionBy, "file", "key"),
		duration("linger", &s.Linger, 10*time.Millisecond, time.Minute),
		lineBytes("max_line_bytes", &s.LineBytesMax),
		choice("oversize", &s.Oversize, "split", "cut", "skip"),
		choice("encoding", &s.Encoding, tail.Encodings()...),
		duration("idle_flush", &s.IdleFlush, 100*time.Millisecond, 24*time.Hour),
		choice("compression", &s.Compression, asKafka, "zstd", "lz4", "snappy", "gzip", "none"),
		integer("compression_level", &s.CompressionLevel, 0, 22),
		autoOrPercent("spool_share", &s.SpoolShare),
	}, s.Record.keys()...)
}

// finish fills the defaults that follow other keys and checks what no single key can show.
func (c *Config) finish() error {
	for _, required := range []struct {
		key     string
		missing bool
	}{
		{"kafka.brokers", len(c.Kafka.Brokers) == 0},
		{"spool.dir", c.Spool.Dir == ""},
		{"sources", len(c.Sources) == 0},
	} {
		if required.missing {
			return c.errorAt(required.key, "is required")
		}
	}
	if c.Admin.Socket == "" {
		c.Admin.Socket = filepath.Join(c.Spool.Dir, "admin.sock")
	}
	if err := c.finishSpool(); err != nil {
		return err
	}
	if err := c.finishSources(); err != nil {
		return err
	}
	if err := c.checkEnvelope(); err != nil {
		return err
	}
	if err := c.checkLevel("kafka.compression_level", c.Kafka.Compression, c.Kafka.CompressionLevel); err != nil {
		return err
	}
	return c.finishSecurity()
}

func (c *Config) finishSpool() error {
	s := &c.Spool
	if s.MaxBytes == 0 {
		return nil
	}
	if s.MaxBytes < spool.BytesMin {
		return c.errorAt("spool.max_bytes", "is %d; the smallest spool has %s", s.MaxBytes, formatSize(spool.BytesMin))
	}
	if s.RetainAckedBytes > s.MaxBytes/4 {
		if _, given := c.lines["spool.retain_acked"]; given {
			return c.errorAt("spool.retain_acked", "is more than a quarter of spool.max_bytes (%d)", s.MaxBytes)
		}
		s.RetainAckedBytes = s.MaxBytes / 4
	}
	return nil
}

func (c *Config) finishSources() error {
	names, share := make(map[string]int, len(c.Sources)), 0 // name -> its place in the list
	for i := range c.Sources {
		s := &c.Sources[i]
		at := fmt.Sprintf("sources[%d].", i)
		switch {
		case s.Name == "":
			return c.errorAt(at+"name", "is required")
		case len(s.Paths) == 0:
			return c.errorAt(at+"paths", "is required")
		case s.Topic == "":
			return c.errorAt(at+"topic", "is required")
		case s.LineBytesMax > c.lineBytesMax():
			return c.errorAt(c.whereSet(at, "max_line_bytes"),
				"is %d; with this memory_limit a line has at most %d bytes", s.LineBytesMax, c.lineBytesMax())
		}
		if other, taken := names[s.Name]; taken {
			return c.errorAt(at+"name", "%q is the name of sources[%d] too; names are unique and stay", s.Name, other)
		}
		if s.PartitionBy == "key" && s.Record.Key == "none" {
			return c.errorAt(c.whereSet(at, "partition_by"), "is key, and records have none: say which with key")
		}
		if err := c.checkLevel(c.whereSet(at, "compression_level"), s.Compression, s.CompressionLevel); err != nil {
			return err
		}
		if s.Name == pipeline.GapSource {
			return c.errorAt(at+"name", "%q is the agent's own name for its ledger of gaps; choose another", s.Name)
		}
		names[s.Name] = i
		if share += s.SpoolShare; share > 100 {
			return c.errorAt(c.whereSet(at, "spool_share"), "the sources up to this one claim %d%% of the spool; all together may claim 100%%", share)
		}
		s.Paths = c.usablePatterns(at, s.Paths)
		if err := c.checkRecord(at, s); err != nil {
			return err
		}
	}
	return nil
}

// lineBytesMax is what max_line_bytes may be.
func (c *Config) lineBytesMax() int64 { return min(1<<29, c.MemoryBytes/lineMemoryShare) }

// checkLevel returns an error for a key that holds a level the compression does not have.
func (c *Config) checkLevel(path, compression string, level int) error {
	switch top, known := compressionLevelMax[compression]; {
	case !known && level > 0:
		return c.errorAt(path, "needs a compression beside it")
	case level > top:
		return c.errorAt(path, "is %d; %s takes 0 to %d", level, compression, top)
	}
	return nil
}

// whereSet is the path under which the value of a source's key was given: its own, or that of `defaults`.
func (c *Config) whereSet(at, name string) string {
	if _, own := c.lines[at+name]; !own {
		if _, inherited := c.lines["defaults."+name]; inherited {
			return "defaults." + name
		}
	}
	return at + name
}

// errorAt makes an error for a full key path. Its line is that of the key or of the nearest key above it that is in the file.
func (c *Config) errorAt(path, format string, args ...any) *ConfigError {
	e := &ConfigError{File: c.File, Line: 1, Key: path, Msg: fmt.Sprintf(format, args...)}
	for p := path; p != ""; p = parentKey(p) {
		if line, ok := c.lines[p]; ok {
			e.Line = line
			break
		}
	}
	return e
}

// failureAt is errorAt for a key whose value is right but cannot be used on this host now: exit code 1 instead of 2.
func (c *Config) failureAt(path, format string, args ...any) error {
	return errors.New(c.errorAt(path, format, args...).Error())
}

// parentKey is the path without its last step: a.b[2] -> a.b -> a -> "".
func parentKey(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// ConfigError is one thing that is wrong in a config file.
type ConfigError struct {
	File string
	Line int    // 1-based; 0: not about one line
	Key  string // full path as in sources[0].topic; "": not about one key
	Msg  string
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}
