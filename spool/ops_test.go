package spool

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

var update = flag.Bool("update", false, "write testdata/ops.txt anew")

// TestOperations compares each write, sync, rename and removal with
// testdata/ops.txt. Lines that start with > are commands:
//
//	open              Open (after close or kill: a recovery)
//	lane N            name a lane
//	append N C BYTES  one group: a batch of C records in lane N
//	ack N             ack all that lane N holds
//	sync, close
//	kill              the process dies; what was written stays
//
// What follows a command is what it did to the disk. Sizes of writes are in
// bytes, seeds are left out.
func TestOperations(t *testing.T) {
	const name = "testdata/ops.txt"
	script, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r := opsRunner{t: t, mem: vfs.NewMem(), next: map[uint32]uint64{}}
	var got strings.Builder
	for _, line := range strings.Split(strings.TrimRight(string(script), "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "> "):
			fmt.Fprintf(&got, "%s\n%s", line, r.run(strings.Fields(line[2:])))
		case strings.HasPrefix(line, "#"), line == "":
			fmt.Fprintln(&got, line)
		}
	}
	if *update {
		if err := os.WriteFile(name, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != string(script) {
		t.Errorf("operations differ from %s (-update writes it anew):\n%s", name, got.String())
	}
}

type opsRunner struct {
	t     *testing.T
	mem   *vfs.Mem
	trace vfs.Trace
	log   *Log
	next  map[uint32]uint64
}

var seedInName = regexp.MustCompile(`(segment-\d+)-[0-9a-f]{16}`)

func (r *opsRunner) run(words []string) string {
	var lane, count uint32
	var payload int
	fmt.Sscan(strings.Join(words[1:], " "), &lane, &count, &payload)
	var err error
	switch words[0] {
	case "open":
		r.log, _, err = Open(memOptions(vfs.Hook{FS: r.mem, Before: r.trace.Before}))
	case "lane":
		_, err = r.log.Append(nil, nil, &Commit{Lanes: []Lane{{ID: lane, Block: "b", Topic: "t"}}})
	case "append":
		_, err = r.log.Append(nil, []Batch{testBatch(lane, r.next[lane], count, payload)}, nil)
		r.next[lane] += uint64(count)
	case "ack":
		a := Ack{Lane: lane, First: r.next[lane] - 1, Count: 1}
		_, err = r.log.Append(nil, nil, &Commit{Acks: []Ack{a}})
	case "sync":
		err = r.log.Sync()
	case "close":
		err = r.log.Close()
	case "kill":
		r.mem = r.mem.Kill()
	default:
		r.t.Fatalf("no command %q", words[0])
	}
	if err != nil {
		r.t.Fatalf("%v: %v", words, err)
	}
	return seedInName.ReplaceAllString(r.trace.Take(), "$1")
}
