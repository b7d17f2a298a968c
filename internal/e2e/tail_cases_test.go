package e2e

import (
	"bytes"
	"compress/gzip"
	"errors"
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

// C040, C048: three generations were rotated and compressed while the agent was down. One is unpacked at a time, and the next one
// does not wait until the one before has been idle: its end is its end, also that of a last line without newline.
func TestC040CompressedWhileDown(t *testing.T) {
	f := newForms(t, "")
	config := strings.Replace(f.config(filepath.Join(f.dir, "..", "spool"), []source{{name: "app", glob: filepath.Join(f.dir, "app.log")}}), "linger: 200ms", "linger: 50ms\n  idle_flush: 1h", 1)
	f.agent.SetConfig(config)
	f.write("app.log", "1\n")
	f.agent.Start()
	f.want("1")
	f.stop()
	f.write("app.log", "2\n")
	for i, text := range []string{"3\n4", "5\n", "6\n"} {
		f.rename("app.log", fmt.Sprintf("app.log.%d", 3-i))
		packFile(t, filepath.Join(f.dir, fmt.Sprintf("app.log.%d", 3-i)))
		time.Sleep(20 * time.Millisecond) // the times of the generations differ
		f.write("app.log", text)
	}
	begun := time.Now()
	f.agent.Start()
	f.want("1", "2", "3", "4", "5", "6")
	t.Logf("read %v after the start", time.Since(begun).Round(100*time.Millisecond))
	f.stop()
}

// packFile replaces a file by its gzip, which keeps the time of the last write as gzip does.
func packFile(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(data)
	if err := errors.Join(err, z.Close(), os.WriteFile(path+".gz", packed.Bytes(), 0o644), os.Chtimes(path+".gz", st.ModTime(), st.ModTime()), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
}
