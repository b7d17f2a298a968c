package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shipper/internal/vfs"
)

// TestAppendAllocates: no allocation per batch, cursor or ack once the lanes
// and files are known, and none to read a batch into a buffer that fits.
func TestAppendAllocates(t *testing.T) {
	l, _ := mustOpen(t, Options{Dir: t.TempDir(), MaxBytes: 1 << 30, MinFreeBytes: 1, segmentBytes: 8 << 20})
	const perGroup = 10
	batches := make([]Batch, perGroup)
	c := Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}}
	refs := mustAppend(t, l, nil, &c)
	c = Commit{Cursors: make([]Cursor, perGroup), Acks: make([]Ack, 1)}
	next := uint64(0)
	big, small := testBatch(1, 0, 1, 40<<10), testBatch(1, 0, 1, 300)
	group := func() {
		for i := range batches {
			batches[i] = small
			if i == 0 {
				batches[i] = big
			}
			batches[i].First = next
			next++
			c.Cursors[i] = Cursor{Source: 1, Offset: int64(next)}
		}
		c.Acks[0] = Ack{Lane: 1, First: next - 1, Count: 1}
		var err error
		if refs, err = l.Append(refs[:0], batches, &c); err != nil {
			t.Fatal(err)
		}
	}
	group()
	if n := testing.AllocsPerRun(100, group); n != 0 {
		t.Errorf("Append allocates %v times a group", n)
	}
	mustSync(t, l)
	rd := l.NewReader()
	var buf []byte
	read := func() {
		var err error
		if buf, err = rd.ReadBatch(buf[:0], refs[0]); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("ReadBatch allocates %v times", n)
	}
	if err := rd.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

var (
	benchSizes = []int{1 << 10, 16 << 10, 256 << 10, 1 << 20}
	batches    = make([]Batch, 0, 1)
)

// appender appends groups of one batch and syncs each, in a directory of the
// temporary file system.
type appender struct {
	b     *testing.B
	log   *Log
	c     Commit
	refs  []Ref
	first uint64
}

func newAppender(b *testing.B) *appender {
	l, _ := mustOpen(b, Options{Dir: b.TempDir(), MaxBytes: 1 << 30, MinFreeBytes: 1})
	c := Commit{Lanes: []Lane{{ID: 1}}, Sources: []Source{{ID: 1}}}
	if _, err := l.Append(nil, nil, &c); err != nil {
		b.Fatal(err)
	}
	a := &appender{b: b, log: l, c: Commit{Cursors: make([]Cursor, 1), Acks: make([]Ack, 1)}}
	large := testBatch(1, 0, 100, 1<<20)
	for range 200 { // until segments are recycled
		a.group(large)
	}
	return a
}

func (a *appender) group(batch Batch) {
	batch.First = a.first
	a.c.Cursors[0] = Cursor{Source: 1, Offset: int64(a.first)}
	a.c.Acks[0] = Ack{Lane: 1, First: a.first, Count: 100}
	var err error
	if a.refs, err = a.log.Append(a.refs[:0], append(batches[:0], batch), &a.c); err != nil {
		a.b.Fatal(err)
	}
	if err := a.log.Sync(); err != nil {
		a.b.Fatal(err)
	}
	a.first += 100
}

// rawWriter writes and syncs as many bytes as a group takes into a written file,
// and does nothing else.
type rawWriter struct {
	b    *testing.B
	file vfs.File
	data []byte
	at   int64
}

const rawFileBytes = 64 << 20

func newRawWriter(b *testing.B, size int) *rawWriter {
	f, err := vfs.OS{}.OpenFile(filepath.Join(b.TempDir(), "raw"), vfs.Create)
	if err == nil {
		err = vfs.WriteZeros(f, 0, rawFileBytes)
	}
	if err != nil {
		b.Fatal(err)
	}
	return &rawWriter{b: b, file: f, data: testBatch(1, 0, 1, int(FrameBytes(size))+2*blockBytes).Records}
}

func (r *rawWriter) write() {
	if r.at+int64(len(r.data)) > rawFileBytes {
		r.at = 0
	}
	if _, err := r.file.WriteAt(r.data, r.at); err != nil {
		r.b.Fatal(err)
	}
	if err := r.file.Sync(); err != nil {
		r.b.Fatal(err)
	}
	r.at += int64(len(r.data))
}

// BenchmarkAppendSync is one group of one batch and one sync, in turns with as many
// bytes that are only written and synced, so that a busy disk meets both. of-raw is
// the ratio of the medians: 1 is as fast as the disk.
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			a, r := newAppender(b), newRawWriter(b, size)
			batch := testBatch(1, 0, 100, size)
			written := a.log.Stats().BytesWritten
			var appended, raw []time.Duration
			b.SetBytes(int64(size))
			for b.Loop() {
				start := time.Now()
				a.group(batch)
				middle := time.Now()
				r.write()
				appended, raw = append(appended, middle.Sub(start)), append(raw, time.Since(middle))
			}
			slices.Sort(appended)
			slices.Sort(raw)
			n := len(raw)
			b.ReportMetric(float64(raw[n/2])/float64(appended[n/2]), "of-raw")
			b.ReportMetric(float64(appended[n/2].Nanoseconds()), "ns/append")
			b.ReportMetric(float64(a.log.Stats().BytesWritten-written)/float64(n*size), "bytes/byte")
			if err := errors.Join(a.log.Close(), r.file.Close()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkAppend leaves the disk out: what the log itself costs.
func BenchmarkAppend(b *testing.B) {
	null := vfs.Hook{FS: vfs.NewMem(), Before: func(vfs.Op) error { return nil }}
	l, _ := mustOpen(b, Options{Dir: "/spool", FS: null, rand: rand.NewChaCha8([32]byte{})})
	defer func() {
		if err := l.Close(); err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
	}()
	c := Commit{Lanes: []Lane{{ID: 1}}}
	if _, err := l.Append(nil, nil, &c); err != nil {
		b.Fatal(err)
	}
	batches := []Batch{testBatch(1, 0, 1, 1<<10)}
	c = Commit{Acks: make([]Ack, 1)}
	l.file = discard{l.file}
	var refs []Ref
	b.ReportAllocs()
	for b.Loop() {
		c.Acks[0] = Ack{Lane: 1, First: batches[0].First, Count: 1}
		var err error
		if refs, err = l.Append(refs[:0], batches, &c); err != nil {
			b.Fatal(err)
		}
		batches[0].First++
		if l.newest().end > l.segmentBytes/2 {
			l.newest().end = 64 // never roll
			l.durable.byte = 64
		}
	}
}

// discard takes writes and forgets them.
type discard struct{ vfs.File }

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discard) Sync() error                            { return nil }
