//go:build linux

package main

import (
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"

	"shipper/benchmarks/internal/report"
	"shipper/spool"
)

// A day of a lane that cannot send beside a busy one, one commit every ten seconds, without the waiting.
const (
	dayCommits   = 24 * 360
	busyBytes    = 256 << 10
	stuckBytes   = 2 << 10
	stuckEvery   = 6 // commits
	stuckMax     = 2 << 30
	idLaneStuck  = 1
	idLaneActive = 2
)

// stuckDay adds one row: what the spool keeps on disk for the lane that is stuck.
func stuckDay(dir string, t *report.Table) error {
	log, _, err := spool.Open(spool.Options{Dir: filepath.Join(dir, "stuck"), MaxBytes: stuckMax, MinFreeBytes: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	c := &spool.Commit{Lanes: []spool.Lane{{ID: idLaneStuck, Block: "stuck", Topic: "denied"}, {ID: idLaneActive, Block: "busy", Topic: "bench"}}}
	records := make([]byte, busyBytes)
	table := crc32.MakeTable(crc32.Castagnoli)
	batch := func(lane uint32, first uint64, n int) spool.Batch {
		return spool.Batch{Lane: lane, First: first, Count: 1, Records: records[:n], RecordsCRC: crc32.Checksum(records[:n], table)}
	}
	var live, most int64
	for i := range uint64(dayCommits) {
		group := []spool.Batch{batch(idLaneActive, i, busyBytes)}
		if i%stuckEvery == 0 {
			group = append(group, batch(idLaneStuck, i/stuckEvery, stuckBytes))
			live += spool.FrameBytes(stuckBytes)
		}
		if _, err := log.Append(nil, group, c); err != nil {
			return err
		}
		if err := log.Sync(); err != nil {
			return err
		}
		c = &spool.Commit{Acks: []spool.Ack{{Lane: idLaneActive, First: i, Count: 1}}}
		most = max(most, log.Stats().BytesUsed)
	}
	st := log.Stats()
	mib := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/report.MiB) }
	t.Add(mib(dayCommits*busyBytes), mib(live), mib(most), mib(st.BytesUsed), mib(st.BytesPunched), mib(st.BytesCarried), fmt.Sprintf("%.3f", float64(st.BytesWritten)/float64(dayCommits*busyBytes+live)))
	return log.Close()
}
