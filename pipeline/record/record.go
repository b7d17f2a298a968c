// Package record makes records of lines: container formats, multiline, filters, redaction, envelope, key, headers and
// time. It is pure but for what is left of a rate limit: bytes and times in, records out; no I/O, clock, goroutine or lock.
//
//	tail's line -> container.go  what the container runtime put around a message is taken off
//	            -> stream.go     pieces and lines of one record are joined; the order of first bytes is kept
//	            -> filter.go     kept or dropped; limit.go: not too many
//	            -> redact.go     what must not leave the host is replaced
//	            -> envelope.go   the bytes themselves, or a JSON object around them
//	            -> meta.go       key, headers, time
//
// Nothing of an unfinished record is kept from one look at a file to the next: it is read again from its start, as it is
// after a restart. So a restart is nothing special, nothing is held in memory for it, and a Place, which fits into a cursor, is all
// there is to remember.
package record

import (
	"fmt"
	"time"
)

// Line is a line as it was split from a file.
type Line struct {
	Bytes  []byte // without delimiter
	Offset int64  // of the first byte
	End    int64  // behind the delimiter
	Part   uint32 // > 0: continues a line whose earlier part was handed out
	Cut    bool   // the rest of the line is dropped
}

// Record is what becomes one record of Kafka. Its bytes are valid until Take.
type Record struct {
	Value   []byte
	Key     []byte
	HasKey  bool
	Headers []Header
	TimeMs  int64
}

// Header is one header of a record.
type Header struct {
	Name, Value []byte
}

// Container says what the container runtime puts around messages.
type Container uint8

const (
	NoContainer Container = iota
	Auto                  // each line is taken for what it looks like
	CRI                   // TIME STREAM TAG MESSAGE, by containerd and CRI-O
	Docker                // one JSON object a line with log, stream and time: json-file
)

// Oversize says what becomes of a joined record that would be longer than RecordBytesMax.
type Oversize uint8

const (
	Split Oversize = iota // what no longer fits begins another record
	Cut                   // what no longer fits is dropped
	Skip                  // all of it is dropped
)

// Limits.
const (
	// ContainerLineBytesMin is the least that RecordBytesMax may be with a container format: runtimes write messages in pieces of
	// 16 KiB, and in JSON such a piece may be six times as long.
	ContainerLineBytesMin = 128 << 10

	linesDefault   = 1000
	linesLimit     = 1 << 20
	timeoutDefault = 5 * time.Second
	keyBytesMax    = 1 << 10
	headersMax     = 32
	staticBytesMax = 4 << 10 // names and values of static headers or fields
	attrBytesMax   = 4 << 10 // of a path, the longest of what comes from outside
	rulesMax       = 64
	templateMax    = 1 << 10
	depthMax       = 64 // of JSON that is looked into
)

// Config is how the lines of one source block become records. The zero value but for RecordBytesMax is lines as they are.
type Config struct {
	Source string // name of the block
	Host   string

	Container      Container
	UTF8           bool // what is not UTF-8 in a record is replaced
	RecordBytesMax int  // content of a record
	Oversize       Oversize
	Timeout        time.Duration // an unfinished record that did not grow for so long ends; 0: 5 s
	Multiline      Multiline
	Filter         Filter
	Redact         []Redact
	JSON           JSON
	Headers        []string // names out of HeaderNames
	StaticHeaders  []Field
	Key            string // "", none, path, host, field:NAME or a template
	Timestamp      Timestamp
	Topic          string // a template
}

// Field is a name and a value.
type Field struct{ Name, Value string }

// ConfigError says which key of a source block is wrong, as in multiline.start.
type ConfigError struct{ Key, Msg string }

func (e *ConfigError) Error() string { return e.Key + ": " + e.Msg }

func wrong(key, format string, args ...any) error {
	return &ConfigError{Key: key, Msg: fmt.Sprintf(format, args...)}
}

// Format is a compiled Config. It may serve any number of streams, of several goroutines: all that changes is what is left of
// the rate limit (limit.go).
type Format struct {
	cfg       Config
	multiline *multiline
	filter    filter
	redact    []redactor
	envelope  *envelope
	headers   []headerKind
	key       template
	topic     template
	time      timeRule
}

// Compile checks c. The error is a *ConfigError.
func Compile(c Config) (*Format, error) {
	f := &Format{cfg: c}
	if c.Timeout == 0 {
		f.cfg.Timeout = timeoutDefault
	}
	if c.Container != NoContainer && c.RecordBytesMax < ContainerLineBytesMin {
		return nil, wrong("max_line_bytes", "is %d; with a container format it is at least %d", c.RecordBytesMax, ContainerLineBytesMin)
	}
	for _, step := range []func() error{f.compileMultiline, f.compileFilter, f.compileRedact, f.compileEnvelope, f.compileHeaders, f.compileKey, f.compileTopic, f.compileTime} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Plain tells that records are lines as they are, with neither key nor headers: nothing of this package is needed.
func (f *Format) Plain() bool {
	c := &f.cfg
	return c.Container == NoContainer && f.multiline == nil && !f.filter.any && len(f.redact) == 0 && f.envelope == nil &&
		len(f.headers) == 0 && len(c.StaticHeaders) == 0 && len(f.key) == 0 && f.time.from == timeRead
}

// RecordBytesMax is the most bytes of value, key and headers of one record.
func (f *Format) RecordBytesMax() int {
	if f.Plain() {
		return f.cfg.RecordBytesMax
	}
	return f.valueBytesMax() + keyBytesMax + f.headerBytesMax()
}

// valueBytesMax is the most bytes of a value: an envelope may be longer than the line in it, by a quarter and its fields.
// What is longer still is cut.
func (f *Format) valueBytesMax() int {
	n := f.cfg.RecordBytesMax
	if f.envelope != nil {
		n += n/4 + 2*(staticBytesMax+attrBytesMax)
	}
	return n
}

// Timeout is how long an unfinished record waits for more.
func (f *Format) Timeout() time.Duration { return f.cfg.Timeout }

// WindowBytesMax is the most bytes of a file that are looked at to finish a record. One that is not finished then, since lines
// of another stream stand between its own or since what is around its pieces takes so much, ends as it is.
func (f *Format) WindowBytesMax() int {
	n := f.cfg.RecordBytesMax
	if f.cfg.Container == NoContainer && f.multiline == nil {
		return n
	}
	return n + n/2 + 64<<10
}

// Reason says why a record was dropped, or what was changed in it.
type Reason uint8

const (
	Excluded      Reason = iota // dropped by filter.include or filter.exclude
	Sampled                     // dropped by filter.sample
	Limited                     // dropped by filter.rate_limit
	OversizeSkip                // dropped: longer than max_line_bytes
	OversizeCut                 // its end was dropped
	OversizeSplit               // went on as another record
	WindowFull                  // ended unfinished: too many bytes of other lines were between its own
	TimedOut                    // ended unfinished: it did not grow for so long
	Damaged                     // not in the container format: passed on as it was
	Redacted                    // something in it was replaced
	EnvelopeCut                 // its JSON envelope was longer than a record may be: the end of the message was dropped
	Repaired                    // bytes that are not UTF-8 were replaced
	NoTime                      // no time was found in it: it has the time it was read
	TimeClamped                 // its time was outside what timestamp allows
	NoKey                       // the field for its key was not there, or null
	reasons
)

var reasonNames = [reasons]string{"excluded", "sampled", "rate_limited", "oversize_skipped", "oversize_cut", "oversize_split", "window_full",
	"timed_out", "damaged", "redacted", "envelope_cut", "repaired", "no_time", "time_clamped", "no_key"}

func (r Reason) String() string { return reasonNames[r] }

// Counts are records by reason.
type Counts [reasons]uint64

// Add adds what was counted in c2.
func (c *Counts) Add(c2 *Counts) {
	for i := range c {
		c[i] += c2[i]
	}
}

// Dropped is how many records were dropped.
func (c *Counts) Dropped() uint64 { return c[Excluded] + c[Sampled] + c[Limited] + c[OversizeSkip] }
