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
		caseDir{t, f.dir}.pack(fmt.Sprintf("app.log.%d", 3-i))
		time.Sleep(20 * time.Millisecond) // the times of the generations differ
		f.write("app.log", text)
	}
	begun := time.Now()
	f.agent.Start()
	f.want("1", "2", "3", "4", "5", "6")
	t.Logf("read %v after the start", time.Since(begun).Round(100*time.Millisecond))
	f.stop()
}

// under has an agent run by a shell, so that what the shell does first counts for it: "$@" is the agent's command line. The config is
// that of the file it names.
func (b *brokers) under(t *testing.T, shell, config string) *kafkatest.Agent {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shipper.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: config}).Binary()
	return kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: config, Binary: "/bin/sh", Args: []string{"-c", shell, "sh", binary, "run", "--config", file}})
}

// C023: the process may open 64 files, and there are 200. Kafka and the spool have what they need.
func TestC023FewDescriptors(t *testing.T) {
	const files = 200
	b := embedded(t, 1)
	d := caseDir{t, t.TempDir()}
	agent := b.under(t, `ulimit -n 64; exec "$@"`, b.config(d.path("spool"), []source{{name: "app", glob: d.path("*.log")}}))
	want := make([][]string, files)
	write := func(from int) {
		for i := range want {
			for n := range 10 {
				want[i] = append(want[i], fmt.Sprintf("file %d line %d", i, from+n))
			}
			d.add(fmt.Sprintf("%d.log", i), lines(want[i][from:]...))
		}
	}
	b.read.Within = deliverMax
	write(0)
	agent.Start()
	kafkatest.AwaitRecords(t, b.bootstrap, b.topic, 10*files, b.read)
	write(10)
	kafkatest.AwaitRecords(t, b.bootstrap, b.topic, 20*files, b.read)
	got, _ := kafkatest.ReadTopic(t, b.bootstrap, b.topic, b.read)
	checkCase(t, got, want)
	if log := agent.Log(); !strings.Contains(log, "ulimit -n") || strings.Contains(log, "too many open files") {
		t.Errorf("the log does not name the limit, or tells of failures:\n%s", log)
	}
	if code := agent.Stop(stopMax); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// C049: a program appends 2,000 lines a second, and its file is cut to nothing again and again. Only what was never to be read may be
// missing: no line is doubled, mixed or halved, and those behind the last cut all arrive.
func TestC049TruncateBusy(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1}, source{name: "app", glob: "busy.log"})
	path := filepath.Join(w.dir, "logs", "busy.log")
	line := func(n int) string { return fmt.Sprintf("line %07d %s", n, strings.Repeat("x", n%180)) }
	await := func(last string) (got []kafkatest.Record) {
		t.Helper()
		for deadline := time.Now().Add(deliverMax); ; time.Sleep(50 * time.Millisecond) {
			got, _ = kafkatest.ReadTopic(t, w.bootstrap, w.topic, w.read)
			if len(got) > 0 && string(got[len(got)-1].Value) == last {
				return got
			}
			if time.Now().After(deadline) {
				t.Fatalf("%.40q did not arrive; %d records did", last, len(got))
			}
		}
	}
	appendTo(t, path, "")
	w.agent.Start()
	const cuts = 6
	n := 0
	for cut := range cuts {
		for begun := time.Now(); time.Since(begun) < 400*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			for range 20 {
				appendTo(t, path, line(n)+"\n")
				n++
			}
		}
		if cut%2 == 0 {
			await(line(n - 1))
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	kept := n
	for range 100 {
		appendTo(t, path, line(n)+"\n")
		n++
	}
	got := await(line(n - 1))
	if seen := w.stats()["truncations"]; seen < cuts/2 || seen > cuts {
		t.Errorf("%v truncations were seen, want %d to %d", seen, cuts/2, cuts)
	}
	w.stop()
	next := 0
	for _, r := range got {
		var at int
		if _, err := fmt.Sscanf(string(r.Value), "line %07d", &at); err != nil || string(r.Value) != line(at) || at < next {
			t.Fatalf("record %.80q is no line behind %d", r.Value, next-1)
		}
		if at >= kept && at != max(next, kept) {
			t.Errorf("lines %d to %d were behind the last cut and are missing", max(next, kept), at-1)
		}
		next = at + 1
	}
	t.Logf("%d of %d lines, %d cuts", len(got), n, cuts)
}

// C008: a directory that is removed and made again leaves no descriptor behind.
func TestC008NoLeak(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1}, source{name: "app", glob: "sub/*.log"})
	d := caseDir{t, filepath.Join(w.dir, "logs")}
	open := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.agent.Pid()))
		d.must(err)
		return len(list)
	}
	w.agent.Start()
	after := 0
	for i := range 10 {
		d.mkdir("sub")
		d.add("sub/a.log", fmt.Sprintf("%d\n", i))
		d.add("sub/b.log", fmt.Sprintf("%d\n", i))
		kafkatest.AwaitRecords(t, w.bootstrap, w.topic, int64(2*i+2), w.read)
		d.rm("sub")
		if i == 2 {
			after = open()
		}
	}
	for deadline := time.Now().Add(20 * time.Second); open() > after; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors are open, %d were after three rounds", open(), after)
		}
	}
	w.stop()
}

// C169, C170, C172, C173: an agent that may not read everything, and files that it may not read.
func TestC169toC173Permissions(t *testing.T) {
	b := embedded(t, 1)
	d := caseDir{t, t.TempDir()}
	var sources []source
	for _, name := range []string{"granted", "tight", "flood"} {
		d.mkdir(name)
		sources = append(sources, source{name: name, glob: d.path(name + "/*.log*")})
	}
	shell := `exec "$@"`
	if os.Geteuid() == 0 {
		shell = `exec setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search "$@"`
	}
	agent := b.under(t, shell, b.config(d.path("spool"), sources))
	deny := func(name string) { t.Helper(); d.must(os.Chmod(d.path(name), 0)) }
	allow := func(name string) { t.Helper(); d.must(os.Chmod(d.path(name), 0o644)) }
	d.add("granted/a.log", lines("granted 1", "granted 2"))
	deny("granted/a.log")
	for i := range 500 {
		name := fmt.Sprintf("flood/%d.log", i)
		d.add(name, "never read\n")
		deny(name)
	}
	d.add("tight/app.log", "tight 1\n")
	b.read.Within = deliverMax
	agent.Start()
	kafkatest.AwaitRecords(t, b.bootstrap, b.topic, 1, b.read)
	agent.WaitLog("permission denied", 20*time.Second)
	d.add("tight/app.log", "tight 2\n")
	d.rotate("tight/app.log", "tight/app.log.1", "tight 4\n")
	deny("tight/app.log")
	d.add("tight/app.log.1", "tight 3\n")
	kafkatest.AwaitRecords(t, b.bootstrap, b.topic, 3, b.read) // the old file is finished meanwhile
	if n, _ := statsOf(t, d.path("spool"))["unreadable_files"].(float64); n < 502 {
		t.Errorf("unreadable_files is %v, want 502", n)
	}
	allow("tight/app.log")
	allow("granted/a.log")
	d.add("granted/a.log", "granted 3\n")
	kafkatest.AwaitRecords(t, b.bootstrap, b.topic, 7, b.read)
	got, _ := kafkatest.ReadTopic(t, b.bootstrap, b.topic, b.read)
	checkCase(t, got, [][]string{{"granted 1", "granted 2", "granted 3"}, {"tight 1", "tight 2", "tight 3", "tight 4"}})
	if n := strings.Count(agent.Log(), "permission denied"); n > 20 {
		t.Errorf("%d lines tell of permissions", n)
	}
	if code := agent.Stop(stopMax); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}
