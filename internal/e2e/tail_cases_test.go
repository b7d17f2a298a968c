package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// Cases from the field about finding and reading files that need the whole agent. The others are scripts: tail/testdata/C*.txt.

// C017: the pattern matches the agent's own log, at its most talkative.
func TestC017OwnLog(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1})
	spool := w.spoolDir()
	w.agent.SetConfig(w.config(spool, []source{{name: "own", glob: filepath.Join(w.agent.Dir(), "*.log")}}) + "log:\n  level: debug\n")
	text := ""
	for i := range 10 {
		text += fmt.Sprintf("line %d\n", i)
	}
	if err := os.WriteFile(filepath.Join(w.agent.Dir(), "other.log"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.agent.Start()
	kafkatest.AwaitRecords(t, w.bootstrap, w.topic, 10, w.read)
	time.Sleep(time.Second)
	before := len(w.agent.Log())
	time.Sleep(3 * time.Second)
	if grown := len(w.agent.Log()) - before; grown > 10_000 {
		t.Errorf("the agent's log grew by %d bytes in 3 s of rest", grown)
	}
	if got, _ := kafkatest.ReadTopic(t, w.bootstrap, w.topic, w.read); len(got) != 10 {
		t.Errorf("%d records, want 10", len(got))
	}
	w.stop()
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// C001 by the whole agent: a last line without newline comes once, and what follows it after a restart is a record of its own.
func TestC001UnfinishedLineAcrossRestart(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1}, source{name: "app", glob: "x.log"})
	path := filepath.Join(w.dir, "logs", "x.log")
	add := func(text string) { t.Helper(); appendTo(t, path, text) }
	add("a\nb\nc")
	w.agent.Start()
	kafkatest.AwaitRecords(t, w.bootstrap, w.topic, 3, w.read) // c after the idle time
	w.stop()
	w.agent.Start()
	add("d\ne\n")
	kafkatest.AwaitRecords(t, w.bootstrap, w.topic, 5, w.read)
	got, _ := kafkatest.ReadTopic(t, w.bootstrap, w.topic, w.read)
	text := ""
	for _, r := range got {
		text += string(r.Value) + "|"
	}
	if text != "a|b|c|d|e|" {
		t.Errorf("got %s", text)
	}
	w.stop()
}

// The first start of a source with start_at: end dies as soon as it has found the ends of its files. The next one is no first
// start: what came meanwhile is read, files that are new from their beginning.
func TestStartAtEndDiesAtOnce(t *testing.T) {
	sources := []source{{name: "app", glob: "*.log"}, {name: "none", glob: "*.none"}}
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1}, sources...)
	config := w.config(filepath.Join(w.dir, "spool"), sources)
	w.agent.SetConfig(strings.Replace(config, "linger: 200ms", "linger: 10s\n  start_at: end", 1))
	add := func(name, text string) {
		t.Helper()
		appendTo(t, filepath.Join(w.dir, "logs", name), text)
	}
	add("old.log", "passed over\n")
	add("empty.log", "")
	w.agent.Start()
	w.agent.WaitLog("first start of sources that start at the end", 20*time.Second)
	w.agent.Kill9()
	add("old.log", "1\n")
	add("empty.log", "2\n")
	add("new.log", "3\n")
	add("new.none", "4\n") // of a source that had no file at all
	w.agent.SetConfig(strings.Replace(config, "linger: 200ms", "linger: 200ms\n  start_at: end", 1))
	w.agent.Start()
	kafkatest.AwaitRecords(t, w.bootstrap, w.topic, 4, w.read)
	got, _ := kafkatest.ReadTopic(t, w.bootstrap, w.topic, w.read)
	var lines []string
	for _, r := range got {
		lines = append(lines, string(r.Value))
	}
	slices.Sort(lines)
	if text := strings.Join(lines, "|"); text != "1|2|3|4" {
		t.Errorf("got %s, want 1|2|3|4", text)
	}
	w.stop()
}
