package main

import (
	"os"
	"path/filepath"
	"testing"

	"shipper/benchmarks/internal/broker"
	"shipper/benchmarks/internal/corpus"
)

// The floor is only a yardstick if its lines arrive, once and in order, as an agent's must.
func TestFloorDeliversEveryLine(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			b, err := broker.Listen(broker.Options{Addr: "127.0.0.1:0", Partitions: 1, Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			dir := t.TempDir()
			file := filepath.Join(dir, "log")
			want, err := corpus.WriteFile(file, corpus.Options{Kind: corpus.Access, Seed: 3, Tag: "f00"}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ship(options{broker: b.Addr(), file: file, codec: codec, spoolDir: dir, batchBytes: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			sent := b.Totals()
			if got.Lines != int64(want.Lines) || sent.Records != got.Lines || sent.Batches != got.Batches || got.Batches < 12 {
				t.Errorf("%d lines in the file, floor says %+v, the broker has %d records in %d batches", want.Lines, got, sent.Records, sent.Batches)
			}
			if wantLines := (broker.LineTotals{Lines: want.Lines, Tags: 1}); *sent.Lines != wantLines {
				t.Errorf("lines %+v, want %+v", *sent.Lines, wantLines)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("%d files left of the log and the spool, want the log alone (%v)", len(left), err)
			}
		})
	}
}
