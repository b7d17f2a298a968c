package main

import (
	"testing"
	"time"

	"shipper/tail"
)

// The verdict is about what is at the path now, whatever was there before, and says for which file another waits.
func TestVerdict(t *testing.T) {
	open := &tail.FileView{State: "being read; no pattern finds it any more"}
	for want, e := range map[string]tail.Explained{
		"not read: it is a FIFO, not a regular file": {
			Kind: "FIFO", Blocks: []tail.ExplainedBlock{{Block: "app", Pattern: "/logs/*", File: open}}},
		"belongs to source app: being read; no pattern finds it any more": {
			Problem: "no such file or directory", Blocks: []tail.ExplainedBlock{{Block: "app", Pattern: "/logs/*", File: open}}},
		"not read: source app takes it for a copy of /logs/a, which begins with all that is in it": {
			Kind: "regular file", Blocks: []tail.ExplainedBlock{{Block: "other"}, {Block: "app", Pattern: "/logs/*", CopyOf: "/logs/a"}}},
		"not read so far: no pattern matches it; it is named as a rotation of /logs/a, which source app reads, and is looked into for what was not read of that": {
			Kind: "regular file", Blocks: []tail.ExplainedBlock{{Block: "other"}, {Block: "app", Beside: "/logs/a"}}},
	} {
		e.Path = "/logs/a.new"
		if got := explain(e, nil, time.Now()).Verdict; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
