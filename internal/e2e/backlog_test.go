package e2e

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"shipper/internal/kafkatest"
	"shipper/sink/kafka"
	"shipper/spool"
)

// fillSmall makes a spool of many batches of one line each, and returns their lines by lane.
func fillSmall(t *testing.T, dir, topic string, lanes, lines int) map[string][]string {
	t.Helper()
	log, _, err := spool.Open(spool.Options{Dir: dir, MaxBytes: 512 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	compressor, err := kafka.NewCompressor(kafka.LZ4, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string][]string{}
	c := &spool.Commit{}
	for lane := range lanes {
		c.Lanes = append(c.Lanes, spool.Lane{ID: uint32(lane + 1), Block: "app", Topic: topic, Slot: uint32(lane)})
	}
	for n := range lines {
		batches := make([]spool.Batch, lanes)
		for lane := range lanes {
			tag := fmt.Sprintf("lane%d", lane)
			line := kafkatest.AppendLine(nil, tag, n, 60)
			written[tag] = append(written[tag], string(line))
			var b kafka.Builder
			b.Reset(make([]byte, 0, 256))
			b.Append(time.Now().UnixMilli(), nil, line, false)
			var s kafka.Sealed
			compressor.Seal(&b, nil, &s)
			batches[lane] = spool.Batch{Lane: uint32(lane + 1), First: uint64(n), Count: 1, MaxTime: s.MaxTime, Header: s.Header, Records: s.Records, RecordsCRC: s.RecordsCRC}
		}
		if _, err := log.Append(nil, batches, c); err != nil {
			t.Fatal(err)
		}
		c = nil
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return written
}

// A backlog of more batches than fit into memory, each of one line, while the agent is killed again and again: every line
// once and in order, in few batches.
func TestSmallBatchesKill9(t *testing.T) {
	const lanes, lines = 4, 10_000
	b := embedded(t, lanes)
	w := newWorld(t, b, kafkatest.WriterOptions{})
	written := fillSmall(t, w.spoolDir(), b.topic, lanes, lines)
	if err := os.MkdirAll(filepath.Join(w.dir, "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, p := range b.proxies {
		p.Delay(time.Duration(i) * time.Millisecond)
	}
	w.agent.KillLoop(5, 150*time.Millisecond, 900*time.Millisecond, uint64(time.Now().UnixNano()))
	w.agent.Start()
	if headers := w.arrived(written); len(headers) > lanes*lines/20 {
		t.Errorf("%d lines came in %d batches", lanes*lines, len(headers))
	}
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}
