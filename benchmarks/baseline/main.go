// Command baseline is what a careful afternoon gives: bufio.Scanner into franz-go's own idempotent producer, no disk buffer, no
// memory of what was sent. It marks the price of handling each line as a record of its own.
//
//	go run ./benchmarks/baseline -broker 127.0.0.1:9092 -file /tmp/access.log -codec lz4
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/benchmarks/internal/broker"
)

const lineBytesMax = 1_000_000

func main() {
	addr := flag.String("broker", "", "broker to send to, host:port")
	file := flag.String("file", "", "file to send")
	codec := flag.String("codec", "lz4", "none, lz4, snappy, gzip or zstd")
	flag.Parse()
	if err := send(*addr, *file, *codec); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func send(addr, path, codecName string) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "snappy": kgo.SnappyCompression(),
		"gzip": kgo.GzipCompression(), "zstd": kgo.ZstdCompression().WithLevel(1),
	}
	codec, ok := codecs[codecName]
	if !ok {
		return fmt.Errorf("unknown codec %q", codecName)
	}
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(broker.Topic),
		kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	ctx := context.Background()
	var failed atomic.Int64
	var firstErr atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil && failed.Add(1) == 1 {
			firstErr.Store(&err)
		}
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), lineBytesMax)
	for lines.Scan() {
		cl.Produce(ctx, &kgo.Record{Value: bytes.Clone(lines.Bytes())}, done)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d lines failed, the first with: %w", n, *firstErr.Load())
	}
	return nil
}
