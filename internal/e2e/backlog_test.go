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

// spoolMaker fills a spool as an agent would have.
type spoolMaker struct {
	t          *testing.T
	log        *spool.Log
	compressor *kafka.Compressor
	lanes      *spool.Commit // nil: they are in it
}

func makeSpool(t *testing.T, dir string, codec kafka.Codec, lanes ...spool.Lane) *spoolMaker {
	t.Helper()
	log, _, err := spool.Open(spool.Options{Dir: dir, MaxBytes: 512 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	compressor, err := kafka.NewCompressor(codec, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &spoolMaker{t, log, compressor, &spool.Commit{Lanes: lanes}}
}

// batch is one of these lines of a lane, 10 ms apart from at on.
func (m *spoolMaker) batch(lane uint32, first int, at time.Time, lines ...string) spool.Batch {
	var b kafka.Builder
	b.Reset(make([]byte, 0, 256*len(lines)))
	for _, line := range lines {
		b.Append(at.UnixMilli(), nil, []byte(line), false)
		at = at.Add(10 * time.Millisecond)
	}
	var s kafka.Sealed
	m.compressor.Seal(&b, nil, &s)
	return spool.Batch{Lane: lane, First: uint64(first), Count: s.Count, MaxTime: s.MaxTime, Header: s.Header, Records: s.Records, RecordsCRC: s.RecordsCRC}
}

func (m *spoolMaker) append(batches ...spool.Batch) {
	m.t.Helper()
	if _, err := m.log.Append(nil, batches, m.lanes); err != nil {
		m.t.Fatal(err)
	}
	m.lanes = nil
}

func (m *spoolMaker) close() {
	m.t.Helper()
	if err := m.log.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// fillSmall makes a spool of many batches of one line each, and returns their lines by lane.
func fillSmall(t *testing.T, dir, topic string, lanes, lines int) map[string][]string {
	t.Helper()
	all := make([]spool.Lane, lanes)
	for i := range all {
		all[i] = spool.Lane{ID: uint32(i + 1), Block: "app", Topic: topic, Slot: uint32(i)}
	}
	m := makeSpool(t, dir, kafka.LZ4, all...)
	written := map[string][]string{}
	for n := range lines {
		batches := make([]spool.Batch, lanes)
		for i, lane := range all {
			tag := fmt.Sprintf("lane%d", i)
			line := string(kafkatest.AppendLine(nil, tag, n, 60))
			written[tag] = append(written[tag], line)
			batches[i] = m.batch(lane.ID, n, time.Now(), line)
		}
		m.append(batches...)
	}
	m.close()
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
