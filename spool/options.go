package spool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"shipper/internal/vfs"
)

// Sizes. A segment is a sixty-fourth of MaxBytes within these bounds, and more
// when its checkpoint would be over a thirty-second of it.
const (
	segmentBytesLow  = 4 << 20
	segmentBytesHigh = 64 << 20
	segmentsMin      = 8 // a spool that cannot hold them is refused

	sparesMin   = 2 // kept for commits without new lines and for recovery
	freeKeepMax = 3 // released files kept for recycling, spares included

	emptyRetainedMax = 8 // segments without batches among those kept to heal

	maxBytesHigh     = 10 << 30
	minFreeHigh      = 1 << 30
	retainAckedBytes = 64 << 20
)

// BytesMin is the smallest MaxBytes.
const BytesMin = segmentsMin * segmentBytesLow

// Options of Open. Zero values mean the defaults.
type Options struct {
	Dir string
	FS  vfs.FS // nil: the operating system

	// MaxBytes bounds the files of the spool: default a quarter of the volume,
	// at most 10 GiB; at least 32 MiB.
	MaxBytes int64
	// MinFreeBytes is what the spool leaves free on its volume when it grows:
	// default a twentieth of the volume, at most 1 GiB.
	MinFreeBytes int64
	// RetainAckedBytes is how much of the newest acked segments stays, to heal:
	// default 64 MiB, at most a quarter of MaxBytes.
	RetainAckedBytes int64

	// RefsMax bounds the references to batches that Recovered holds, over all
	// lanes; the caller asks for the rest with Log.Refs. 0: no bound.
	RefsMax int

	// Blocks are the source blocks that have begun if the spool has lost its state
	// (Recovered.StateLost): what was in it is in the files, if anywhere.
	Blocks []string

	AllowNetworkFS bool
	Logger         *slog.Logger // nil: none

	segmentBytes int64         // tests only: instead of what MaxBytes gives
	rand         io.Reader     // tests only: instead of crypto/rand
	tellEvery    time.Duration // tests only: instead of tellEvery
	punchUnit    int64         // tests only: instead of punchUnitBytes
	without      rule          // tests only: this rule is left out, to see that the tests find it
}

// rule is one of those that keep the promise. mutation_test.go says what goes
// wrong without it.
type rule uint8

const (
	ruleGroup    rule = iota + 1 // a batch counts only with the commit of its group
	ruleTear                     // the first bad frame from D on ends the log
	ruleDurable                  // a bad frame below D costs only itself
	ruleSeed                     // each life of a file has a seed of its own
	ruleEnd                      // a later segment says where the one before it ends
	ruleEnds                     // so do others behind it
	ruleEndless                  // of a segment whose end is not known, only batches count
	ruleName                     // a segment is synced before it gets its name
	ruleOrder                    // the segment before it is synced first
	ruleRelease                  // only what a synced commit has released goes
	ruleIdentity                 // every start ends every identity
)

// Errors of Open and Append, to be asked with errors.Is.
var (
	// ErrInUse: another process has this spool open.
	ErrInUse = errors.New("spool is in use")
	// ErrFull: there is no room for new lines. Nothing was written; acks make room.
	ErrFull = errors.New("spool is full")
	// ErrVolumeFull is a cause of ErrFull: MaxBytes allows more, the volume does not.
	ErrVolumeFull = errors.New("its volume has no room above spool.min_free_bytes, or no free inode")
	// ErrTooSmall: the volume or MaxBytes cannot hold a spool.
	ErrTooSmall = errors.New("spool volume is too small")
	// ErrNetworkFS: the directory is on a network file system and AllowNetworkFS is off.
	ErrNetworkFS = errors.New("spool is on a network file system")
	// ErrNewerFormat: written by a later version of this program.
	ErrNewerFormat = errors.New("spool has a newer format")
	// ErrGroupTooLarge: the group is over GroupBytesMax. Nothing was written.
	ErrGroupTooLarge = errors.New("spool group is too large")
)

// Plan is what a spool would take of its volume, and what is odd about it.
type Plan struct {
	MaxBytes     int64 // of all files
	SegmentBytes int64
	MinFreeBytes int64    // left free on the volume when the spool grows
	TotalBytes   int64    // of the volume
	FreeBytes    int64    // of the volume
	Warnings     []string // sentences
}

// GroupBytesMax is Log.GroupBytesMax of such a spool.
func (p *Plan) GroupBytesMax() int64 { return groupBytesMax(p.SegmentBytes) }

func groupBytesMax(segmentBytes int64) int64 { return segmentBytes / 4 }

// Check tells what Open would do with o.Dir, or why it would refuse it
// (ErrTooSmall, ErrNetworkFS), and changes nothing. at is o.Dir, or the nearest
// directory above it if it does not exist yet.
func Check(o Options, at string) (Plan, error) {
	o.setUnset()
	u, err := o.FS.Usage(at)
	if err != nil {
		return Plan{}, fmt.Errorf("spool: ask the volume of %s for its size: %w", at, err)
	}
	names, err := o.FS.ReadDir(at)
	if err != nil {
		return Plan{}, fmt.Errorf("spool: list %s: %w", at, err)
	}
	if at != o.Dir {
		u.Perm, names = 0, nil // of somebody else's directory
	}
	if err := o.settle(u); err != nil {
		return Plan{}, err
	}
	if !slices.ContainsFunc(names, func(name string) bool { return parseFileName(name).kind == "segment" }) {
		if err := o.roomForNew(u.FreeBytes); err != nil {
			return Plan{}, err
		}
	}
	return Plan{MaxBytes: o.MaxBytes, SegmentBytes: o.segmentBytes, MinFreeBytes: o.MinFreeBytes,
		TotalBytes: u.TotalBytes, FreeBytes: u.FreeBytes, Warnings: o.warnings(u)}, nil
}

// settle fills in the defaults and checks them against the volume.
func (o *Options) settle(u vfs.Usage) error {
	if u.Network && !o.AllowNetworkFS {
		return fmt.Errorf("%w: %s is on %s, whose locks, renames and syncs may not survive a crash; choose a local directory or set spool.allow_network_fs",
			ErrNetworkFS, o.Dir, u.Kind)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = min(maxBytesHigh, u.TotalBytes/4)
	}
	if o.segmentBytes == 0 {
		o.segmentBytes = min(max(o.MaxBytes/64, segmentBytesLow), segmentBytesHigh)
	}
	o.segmentBytes = roundUp(o.segmentBytes, 4096)
	need := segmentsMin * o.segmentBytes
	if u.TotalBytes < need {
		return fmt.Errorf("%w: the volume of %s has %d bytes, and the smallest spool takes %d (%d segments): use a larger volume",
			ErrTooSmall, o.Dir, u.TotalBytes, need, segmentsMin)
	}
	if o.MaxBytes < need {
		return fmt.Errorf("%w: %s may use %d of the volume's %d bytes; the smallest spool is %d bytes (%d segments), by default a quarter of the volume: use a larger volume or set spool.max_bytes to at least %d",
			ErrTooSmall, o.Dir, o.MaxBytes, u.TotalBytes, need, segmentsMin, need)
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = min(minFreeHigh, u.TotalBytes/20)
	}
	if o.RetainAckedBytes == 0 {
		o.RetainAckedBytes = retainAckedBytes
	}
	o.RetainAckedBytes = min(o.RetainAckedBytes, o.MaxBytes/4)
	return nil
}

// roomForNew tells whether a new spool fits into freeBytes.
func (o *Options) roomForNew(freeBytes int64) error {
	need := segmentsMin * o.segmentBytes
	if freeBytes < need {
		return fmt.Errorf("%w: %d bytes are free (none without a free inode) where %s is to be made, it needs %d (%d segments)", ErrTooSmall, freeBytes, o.Dir, need, segmentsMin)
	}
	if freeBytes-o.segmentBytes < o.MinFreeBytes {
		return fmt.Errorf("%w: no room for the first segment of %d bytes in %s above spool.min_free_bytes (%d)", ErrTooSmall, o.segmentBytes, o.Dir, o.MinFreeBytes)
	}
	return nil
}

// warnings are about directories that can be used, but hardly should.
func (o *Options) warnings(u vfs.Usage) (all []string) {
	switch u.Kind {
	case "tmpfs", "ramfs":
		all = append(all, fmt.Sprintf("the spool %s is in memory (%s) and is lost with the machine", o.Dir, u.Kind))
	case "overlay":
		all = append(all, fmt.Sprintf("the spool %s is in the container's own layer and is lost with the container; mount a volume", o.Dir))
	}
	if u.Perm&^0o700 != 0 {
		all = append(all, fmt.Sprintf("the spool %s, which holds log lines, is open to other users (mode %#o); chmod 0700 closes it", o.Dir, u.Perm))
	}
	return all
}

func (o *Options) setUnset() {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.tellEvery == 0 {
		o.tellEvery = tellEvery
	}
	if o.punchUnit == 0 {
		o.punchUnit = punchUnitBytes
	}
	if o.rand == nil {
		o.rand = rand.Reader
	}
}
