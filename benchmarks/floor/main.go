// Command floor does to a file what no shipper can leave out, on one thread and with nothing around it:
//
//	read -> split into lines -> encode as a Kafka record batch -> compress -> checksum -> write a spool file -> send -> wait for the answer
//
// No positions, no recovery, no sequences, no sync, no second file. Its CPU seconds are what an agent's are compared with; both
// take the same batch size, codec and codec settings.
//
//	go run ./benchmarks/floor -broker 127.0.0.1:9092 -file /tmp/access.log -codec lz4 -spool /tmp/floor-spool
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"shipper/sink/kafka"
)

func main() {
	var o options
	flag.StringVar(&o.broker, "broker", "", "broker to send to, host:port")
	flag.StringVar(&o.file, "file", "", "file to send")
	flag.StringVar(&o.codec, "codec", "lz4", "none, lz4, snappy, gzip or zstd")
	flag.StringVar(&o.spoolDir, "spool", "", "folder for the spool files; empty: none are written")
	flag.IntVar(&o.batchBytes, "batch-bytes", 1<<20-kafka.HeaderBytes, "encoded records in a batch, before compression; with the header 1 MiB, so that it passes uncompressed")
	flag.Parse()
	t, err := ship(o)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}
