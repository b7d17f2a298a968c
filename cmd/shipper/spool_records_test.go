package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shipper/sink/kafka"
	"shipper/spool"
)

// oneRecord is a batch of one line.
func oneRecord(lane uint32, first uint64, line string) spool.Batch {
	var b kafka.Builder
	b.Reset(make([]byte, 0, 1<<10))
	b.Append(1, nil, []byte(line), false)
	out := spool.Batch{Lane: lane, First: first, Count: 1, MaxTime: 1, Records: b.Records(), RecordsCRC: crc32.Checksum(b.Records(), crc32.MakeTable(crc32.Castagnoli))}
	h := out.Header[:] // a RecordBatch v2
	binary.BigEndian.PutUint32(h[8:], uint32(len(h)-12+len(out.Records)))
	h[16] = 2
	binary.BigEndian.PutUint64(h[27:], 1)
	binary.BigEndian.PutUint64(h[35:], 1)
	binary.BigEndian.PutUint32(h[57:], 1)
	return out
}

// Between a look at a spool and the reading of what it found an agent starts, which moves what may not be durable and cuts
// off the segment it was in. Nothing is damaged then, and nothing is missing. What is damaged is told.
func TestRecordsMovedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	o := spool.Options{Dir: dir, MaxBytes: spool.BytesMin, MinFreeBytes: 1}
	log, _, err := spool.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	const lines = 20
	for i := range uint64(lines) {
		c := &spool.Commit{}
		if i == 0 {
			c.Lanes = []spool.Lane{{ID: 1, Block: "app", Topic: "t"}}
		}
		fmt.Fprintf(&want, "line %d\n", i)
		if _, err := log.Append(nil, []spool.Batch{oneRecord(1, i, fmt.Sprintf("line %d", i))}, c); err != nil {
			t.Fatal(err)
		}
		if i == lines/2 { // what is before it will be known to be durable
			if err := log.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	v, err := newRecordLook(dir)
	if err != nil {
		t.Fatal(err)
	}
	old := v.in.Lanes[0]
	if log, _, err = spool.Open(o); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(v *recordLook) (lines, said string, unread int) {
		t.Helper()
		var out, errs bytes.Buffer
		c := &cli{stdout: &out, stderr: &errs}
		unread, err := c.laneRecords(&out, v, &old, old.Pending(), func(out io.Writer, _ *spool.LaneInfo, _ uint64, r *kafka.Record) error {
			_, err := out.Write(append(r.Value, '\n'))
			return err
		})
		if err := errors.Join(err, v.rd.Close()); err != nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), unread
	}
	if got, said, unread := read(v); got != want.String() || said != "" || unread > 0 || v.left != looksMax-1 {
		t.Errorf("%d further looks, %d unread %q, got %q", looksMax-v.left, unread, said, got)
	}
	if v, err = newRecordLook(dir); err != nil {
		t.Fatal(err)
	}
	old = v.in.Lanes[0]
	for _, s := range v.in.Segments {
		text, err := os.ReadFile(filepath.Join(dir, s.Name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, s.Name), bytes.ReplaceAll(text, []byte("line 3"), []byte("like 3")), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, said, unread := read(v); got != strings.Replace(want.String(), "line 3\n", "", 1) || unread != 1 || !strings.HasPrefix(said, "lane 1, records 3 to 3: ") {
		t.Errorf("%d unread %q, got %q", unread, said, got)
	}
}
