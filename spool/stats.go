package spool

import "sync/atomic"

type counters struct {
	usedBytes, freeBytes, segments, spares atomic.Int64
	syncs, groups, batches, writtenBytes   atomic.Int64
	refused, punchedBytes, carriedBytes    atomic.Int64
}

// Stats is a snapshot. Byte and count totals are since Open.
type Stats struct {
	BytesUsed, BytesMax int64 // all files, and their limit
	BytesFree           int64 // of the volume, when the spool last grew or asked
	Segments, Spares    int64
	Syncs               int64
	Groups, Batches     int64
	BytesWritten        int64
	Refused             int64 // Append calls answered with ErrFull
	BytesPunched        int64 // given back from inside segments that a lane keeps
	BytesCarried        int64 // copied into the newest segment to give up an old one
}

// Stats may be called from any goroutine.
func (l *Log) Stats() Stats {
	return Stats{
		BytesUsed: l.stats.usedBytes.Load(), BytesMax: l.options.MaxBytes, BytesFree: l.stats.freeBytes.Load(),
		Segments: l.stats.segments.Load(), Spares: l.stats.spares.Load(),
		Syncs: l.stats.syncs.Load(), Groups: l.stats.groups.Load(), Batches: l.stats.batches.Load(),
		BytesWritten: l.stats.writtenBytes.Load(), Refused: l.stats.refused.Load(),
		BytesPunched: l.stats.punchedBytes.Load(), BytesCarried: l.stats.carriedBytes.Load(),
	}
}
