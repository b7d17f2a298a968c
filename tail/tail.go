// Package tail finds log files, follows them through every kind of rotation and hands out their lines.
//
// Flow:
//
//	glob.go     patterns -> paths             rescan of directories, cached while they do not change
//	watcher.go  Run: wait, scan, hand out     owns every source that no reader holds
//	look.go     looks at what may have changed some of the files and directories at rest, all that are busy
//	scan.go     paths -> sources              all of them: new, known, renamed, replaced, vanished
//	begin.go    new files that begin at their end
//	missing.go  sources without a path        followed through their descriptor, then through a sibling's name
//	kin.go      generations of one path       their order, who waits for whom, who may be forgotten
//	rescue.go   generations that no look saw  found beside those that are known
//	tags.go     names                         of rotations with a number before the extension
//	copies.go   what is left in a copy        truncated, compressed or deleted before it was read
//	original.go new files that are copies     wait for their original
//	file.go     Fill, Next, Flush             one reader's view of one open source
//	hold.go     Keep, Hold, Done              for records of several lines
//	next.go     Follows                       for records that go on behind a rotation
//	unpack.go   gzip, zstd -> bytes           of a compressed copy
//	split.go    bytes -> lines                pure
//	encoding.go lines -> UTF-8                if the block has an encoding
//
// A source is a physical file: device, inode and a hash of its first bytes. A path is only where it was seen
// last. What is below a Cursor's offset was handed out, or dropped and counted; nothing else is remembered.
//
// The rescan is the truth: everything works without inotify, which only shortens the wait.
//
// The package starts no goroutines (fsnotify has one of its own while Run runs). A *File belongs to one
// goroutine at a time: to the receiver of Handler.Open until it calls Release, to Run otherwise.
package tail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Limits. Everything that can grow has one.
const (
	prefixBytesMax = 1024 // bytes at the head of a file that name it
	anchorBytesMax = 256  // bytes before the offset that must be found again to go on there
	nulRunBytesMin = 512  // a shorter run of NULs at the start of a line is content
	lineBytesMin   = 16   // smallest LineBytesMax
	lineBytesLimit = 1 << 30

	// FillBytesMin is the smallest buffer Fill works with.
	FillBytesMin = anchorBytesMax + 4096

	idleFlushDefault = 5 * time.Second
	scanDefault      = time.Second
	openFilesDefault = 1024
	openFilesMin     = 4

	idleKeep    = 5 * time.Minute // a descriptor of a quiet file stays open this long: what is moved away or deleted meanwhile is read
	movedKeep   = 5 * time.Minute // a file moved out of every pattern is followed by its descriptor until quiet this long
	unseenKeep  = 24 * time.Hour  // a cursor whose file is nowhere to be seen is kept this long
	unseenMax   = 16384           // and so many of them at most
	rewalkEvery = 10              // scan intervals between two full scans although nothing seems to have changed, at least
)

// Oversize says what becomes of a line longer than Block.LineBytesMax.
type Oversize uint8

const (
	Split Oversize = iota // numbered parts of at most LineBytesMax, none lost
	Cut                   // the first LineBytesMax bytes; the rest is dropped and counted
	Skip                  // the whole line is dropped and counted
)

func (o Oversize) String() string {
	switch o {
	case Split:
		return "split"
	case Cut:
		return "cut"
	case Skip:
		return "skip"
	}
	return fmt.Sprintf("oversize(%d)", uint8(o))
}

// LineState is the state of the line at a cursor's offset.
type LineState uint8

const (
	Fresh     LineState = iota // a line starts here
	Continued                  // the line before the offset was handed out without its end: the next bytes are its part Cursor.Part
	Discard                    // the bytes up to the next newline are dropped
)

func (s LineState) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Continued:
		return "continued"
	case Discard:
		return "discard"
	}
	return fmt.Sprintf("linestate(%d)", uint8(s))
}

// Block is the file side of one source block of the config.
type Block struct {
	Name         string
	Paths        []string      // doublestar patterns, absolute
	Exclude      []string      // doublestar patterns, absolute; win over Paths
	IgnoreOlder  time.Duration // what is in a new file that was not written to for so long is passed over; 0: nothing is
	StartAtEnd   bool          // this is the first start of the block: what the first scan finds without a cursor begins at its end, later files at their beginning
	LineBytesMax int           // longest record; longer lines go by Oversize
	Oversize     Oversize
	Encoding     string        // one of Encodings; "", "raw": bytes as they are
	Joins        bool          // the receiver makes records of lines in two generations of a path: it asks Follows
	IdleFlush    time.Duration // a last line without newline is handed out after this long without growth; 0: 5 s
}

// Cursor says how far a source was read. All bytes below Offset were handed out, or dropped and counted.
type Cursor struct {
	Offset      int64
	Anchor      uint64 // xxhash64 of the AnchorBytes bytes before Offset
	AnchorBytes uint16 // <= 256; 0 with an Offset: the file was passed over by its size and never opened
	State       LineState
	Part        uint32 // Continued: number of the next part of the line, from 1
	Note        uint32 // Fresh: what the receiver said of this place to Hold
}

// Fingerprint identifies a source. Prefix covers only bytes below the cursor's offset, so it grows with reading.
type Fingerprint struct {
	Dev, Ino    uint64
	Prefix      uint64 // xxhash64 of the first PrefixBytes bytes
	PrefixBytes uint32 // <= 1024
	Born        int64  // creation time, nanoseconds since 1970; 0: unknown (file system or record without it), compared only if both sides know it
}

// Known is a source the spool remembers. ID is not 0.
type Known struct {
	ID          uint64
	Block, Path string
	Fingerprint Fingerprint
	Cursor      Cursor
}

// Options of a Watcher.
type Options struct {
	Blocks       []Block
	Known        []Known
	OpenFilesMax int           // file descriptors at most; 0: 1024. Never more than half of the process's limit, see openTop
	ScanInterval time.Duration // rescan of patterns and stat of known files; inotify only shortens the wait; 0: 1 s
	NoInotify    bool
	HeldBytesMax int64                   // of deleted files that are open to be read; 0: 1 GiB
	HeldFilesMax int                     // so many of them at most; 0: half of the descriptors
	Paused       func(block string) bool // files of such a block may not be read now; nil: all may; any goroutine
	ExcludePaths []string                // files and directories that are never tailed, by any name: own log, spool directory; /proc/self/fd/2 works
	// SymlinkRoots are directories into which symlinks may lead whoever made them. It counts for a process that may read
	// everything; others are bound by their own permissions.
	SymlinkRoots []string
	Logger       *slog.Logger
}

// Handler receives what the watcher finds, on the goroutine of Run. It must not block for long.
type Handler interface {
	// Began tells, before any file is handed out, of the new files that the first scan found for blocks with StartAtEnd, and
	// where they begin. The receiver gives them numbers and makes that durable, so that the next start of these blocks is no
	// first one any more, and returns then or when ctx is done. Only called if there is such a block.
	Began(ctx context.Context, files []*File)
	// Open hands over a file that has (or may have) unread bytes. The receiver owns f until it calls f.Release.
	// A file with f.ID() == 0 is new: the receiver calls f.SetID before it releases it, and makes its cursor
	// durable even if no line follows (a file begun at its end has an offset).
	Open(f *File)
	// Gone tells that a source with nothing left to read has vanished: its cursor can be forgotten.
	Gone(id uint64)
	// Lost tells that the bytes [from, to) of a source went before they were read. Gone follows some time.
	Lost(id uint64, from, to int64)
}

// Line is one record's bytes.
type Line struct {
	Bytes  []byte // without delimiter; aliases the buffer given to Fill or, if the block has an encoding, one that the next line overwrites
	Offset int64  // of the first byte
	End    int64  // behind the delimiter
	Part   uint32 // > 0: this continues a line whose earlier part was handed out (oversize or idle flush)
	Cut    bool   // the rest of the line is dropped
}

// Status is what Fill noticed about the file.
type Status struct {
	EOF       bool // all bytes there are have been filled
	Gone      bool // its path now names something else or nothing
	Shrunk    bool // it was found shorter than its offset
	Truncated bool // its content was replaced in place: the source starts again at 0, with another fingerprint
	Waits     bool // nothing is read yet: another compressed copy is being unpacked. Fill again some time later
	NeedBytes int  // > 0: the first line needs a buffer of this size, and Next has nothing; Fill again with a bigger one
}

// Stats is a snapshot of counters since NewWatcher; the first group are gauges.
type Stats struct {
	Files        int64 // sources known, unseen ones included; not those of which all is delivered and a compressed copy is left
	Open         int64 // descriptors open
	Reading      int64 // handed out and not released
	WaitingOpen  int64 // unread, waiting for a free descriptor
	HeldFiles    int64 // deleted and not read to their end
	HeldBytes    int64 // of these
	Missing      int64 // not under any pattern now (rotated away, moved, deleted) and not forgotten yet
	Unreadable   int64 // refused by permissions now
	OpenMax      int64 // bound on Open in force
	UnreadBytes  int64 // of all files, as of the last scan
	Watches      int64 // directories under inotify
	Inotify      bool  // false: polling only
	ScanDuration time.Duration

	Scans              uint64
	BytesRead          uint64 // filled, re-read partial lines included
	Truncations        uint64
	LostBytes          uint64 // bytes known to have existed that went before they could be read
	LostFiles          uint64 // sources that vanished with unread bytes, LostBytes of them as far as that is known
	FoundAgainBytes    uint64 // of LostBytes: they came back, and were or will be read
	FoundAgainFiles    uint64 // of LostFiles and VanishedFiles, with all of their bytes
	VanishedFiles      uint64 // sources that vanished while nobody watched: whether anything was written after their offset cannot be known
	GivenUp            uint64 // deleted files that were closed unread: see Options.HeldBytesMax
	StartedOver        uint64 // known sources that had to be read again from 0 at start
	IgnoredFiles       uint64 // older than IgnoreOlder when they were found
	SkippedFiles       uint64 // not regular, or compressed
	PermissionErrors   uint64
	OversizeSplit      uint64 // lines
	OversizeCut        uint64
	OversizeSkipped    uint64
	OversizeBytes      uint64 // dropped by cut and skip
	NULBytes           uint64 // in skipped runs
	IdleFlushes        uint64
	ReplacedRunes      uint64 // U+FFFD in decoded lines: what is no text in the block's encoding
	GenerationsRescued uint64 // rotated files found beside their successor that no scan had ever seen at their path
	NotifyOverflows    uint64
}

// NewWatcher checks o. Errors name the block and the pattern.
func NewWatcher(o Options) (*Watcher, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ScanInterval == 0 {
		o.ScanInterval = scanDefault
	}
	if o.OpenFilesMax == 0 {
		o.OpenFilesMax = openFilesDefault
	}
	if o.ScanInterval < time.Millisecond {
		return nil, fmt.Errorf("scan interval %v is below 1ms", o.ScanInterval)
	}
	if o.OpenFilesMax < openFilesMin {
		return nil, fmt.Errorf("limit of %d open files is below %d", o.OpenFilesMax, openFilesMin)
	}
	for _, root := range o.SymlinkRoots {
		if !filepath.IsAbs(root) {
			return nil, fmt.Errorf("root of symlinks %q is not absolute", root)
		}
	}
	names := make(map[string]bool)
	o.Blocks = append([]Block(nil), o.Blocks...)
	for i := range o.Blocks {
		b := &o.Blocks[i]
		if names[b.Name] {
			return nil, fmt.Errorf("two source blocks are named %q", b.Name)
		}
		names[b.Name] = true
		if err := b.check(); err != nil {
			return nil, fmt.Errorf("source block %q: %w", b.Name, err)
		}
	}
	return newWatcher(o)
}

func (b *Block) check() error {
	if len(b.Paths) == 0 {
		return errors.New("no paths")
	}
	for _, p := range append(append([]string(nil), b.Paths...), b.Exclude...) {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("pattern %q is not absolute", p)
		}
		if strings.HasSuffix(p, "/") {
			return fmt.Errorf("pattern %q names a directory: say which files, as in %q", p, p+"*.log")
		}
		if !doublestar.ValidatePattern(p) {
			return fmt.Errorf("pattern %q is malformed", p)
		}
	}
	if b.LineBytesMax < lineBytesMin || b.LineBytesMax > lineBytesLimit {
		return fmt.Errorf("longest line of %d bytes is not between %d and %d", b.LineBytesMax, lineBytesMin, lineBytesLimit)
	}
	if b.Oversize > Skip {
		return fmt.Errorf("unknown oversize rule %d", b.Oversize)
	}
	if err := checkEncoding(b.Encoding); err != nil {
		return err
	}
	if b.IgnoreOlder < 0 {
		return fmt.Errorf("negative age %v of files to ignore", b.IgnoreOlder)
	}
	if b.IdleFlush < 0 {
		return fmt.Errorf("negative idle flush %v", b.IdleFlush)
	}
	if b.IdleFlush == 0 {
		b.IdleFlush = idleFlushDefault
	}
	return nil
}

// Run scans and hands out files until ctx is done; it returns nil then. Files that are handed out stay usable
// and close when they are released.
func (w *Watcher) Run(ctx context.Context, h Handler) error { return w.run(ctx, h) }
