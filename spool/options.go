package spool

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

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

	AllowNetworkFS bool
	Logger         *slog.Logger // nil: none

	segmentBytes int64     // tests only: instead of what MaxBytes gives
	rand         io.Reader // tests only: instead of crypto/rand
}

// Errors of Open and Append, to be asked with errors.Is.
var (
	// ErrInUse: another process has this spool open.
	ErrInUse = errors.New("spool is in use")
	// ErrFull: there is no room for new lines. Nothing was written; acks make room.
	ErrFull = errors.New("spool is full")
	// ErrTooSmall: the volume or MaxBytes cannot hold a spool.
	ErrTooSmall = errors.New("spool volume is too small")
	// ErrNetworkFS: the directory is on a network file system and AllowNetworkFS is off.
	ErrNetworkFS = errors.New("spool is on a network file system")
	// ErrNewerFormat: written by a later version of this program.
	ErrNewerFormat = errors.New("spool has a newer format")
	// ErrGroupTooLarge: the group is over GroupBytesMax. Nothing was written.
	ErrGroupTooLarge = errors.New("spool group is too large")
)

// settle fills in the defaults and checks them against the volume.
func (o *Options) settle(u vfs.Usage) error {
	if u.Network && !o.AllowNetworkFS {
		return fmt.Errorf("%w: %s is on %s, whose locks, renames and syncs may not survive a crash; choose a local directory or set spool.allow_network_fs",
			ErrNetworkFS, o.Dir, u.Kind)
	}
	switch u.Kind {
	case "tmpfs", "ramfs":
		o.Logger.Warn("the spool is in memory and is lost with the machine", "dir", o.Dir, "fs", u.Kind)
	case "overlay":
		o.Logger.Warn("the spool is in the container's own layer and is lost with the container; mount a volume", "dir", o.Dir)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = min(maxBytesHigh, u.TotalBytes/4)
	}
	if o.segmentBytes == 0 {
		o.segmentBytes = min(max(o.MaxBytes/64, segmentBytesLow), segmentBytesHigh)
	}
	o.segmentBytes = roundUp(o.segmentBytes, 4096)
	need := segmentsMin * o.segmentBytes
	if o.MaxBytes < need || u.TotalBytes < need {
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

func (o *Options) setUnset() {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.rand == nil {
		o.rand = rand.Reader
	}
}
