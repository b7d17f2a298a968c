// Command gencorpus writes a seeded log file of whole lines.
//
//	go run ./benchmarks/gencorpus -kind access -bytes 536870912 -out /tmp/access.log
//
// With -tag every line is numbered, for runs against `nullbroker -verify`.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"shipper/benchmarks/internal/corpus"
)

func main() {
	kind := flag.String("kind", "access", "shape of the lines: access, json or syslog")
	bytesMax := flag.Int64("bytes", 64<<20, "size of the file in bytes, rounded down to whole lines")
	seed := flag.Uint64("seed", 1, "seed: the same seed gives the same bytes")
	tag := flag.String("tag", "", "number the lines: each starts with this tag and a 10-digit number")
	out := flag.String("out", "-", "file to write, - for standard output")
	flag.Parse()
	if err := generate(*kind, *seed, *tag, *out, *bytesMax); err != nil {
		fmt.Fprintln(os.Stderr, "gencorpus:", err)
		os.Exit(1)
	}
}

func generate(kindName string, seed uint64, tag, out string, bytesMax int64) error {
	kind, err := corpus.ParseKind(kindName)
	if err != nil {
		return err
	}
	o := corpus.Options{Kind: kind, Seed: seed, Tag: tag}
	if out == "-" {
		_, err = corpus.New(o).WriteTo(os.Stdout, bytesMax)
		return err
	}
	totals, err := corpus.WriteFile(out, o, bytesMax)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stderr).Encode(totals)
}
