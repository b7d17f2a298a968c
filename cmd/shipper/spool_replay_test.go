package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"shipper/pipeline"
	"shipper/sink/kafka"
	"shipper/spool"
)

// TestSpoolReplay delivers lines of two sources, then sends them again beside the
// running agent and once more without it: to the same partition, in order, with
// the same header each time; then the agent goes on as if nothing had been.
func TestSpoolReplay(t *testing.T) {
	cluster, err := startDemoCluster("a-topic", "b-topic")
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.close()
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	text := fmt.Sprintf("kafka:\n  brokers: [%q]\nspool:\n  dir: %s/spool\n  max_bytes: 32MiB\ndefaults:\n  linger: 50ms\nsources:\n", cluster.addresses()[0], dir)
	for _, name := range []string{"a", "b"} {
		text += fmt.Sprintf("  - name: %s\n    paths: [%q]\n    topic: %s-topic\n", name, filepath.Join(dir, name+".log"), name)
	}
	writeText(t, config, text)
	want := map[string][]string{}
	for i := range 50 {
		for _, name := range []string{"a", "b"} {
			want[name+"-topic"] = append(want[name+"-topic"], fmt.Sprintf("%s line %d", name, i))
		}
	}
	for topic, lines := range want {
		writeText(t, filepath.Join(dir, strings.TrimSuffix(topic, "-topic")+".log"), strings.Join(lines, "\n")+"\n")
	}
	read := newReplayReader(t, cluster.addresses())
	stop := startAgent(t, config)
	read.take(100)
	for name := range want {
		read.wantLines(name, want[name], 0)
	}
	waitAcked(t, filepath.Join(dir, "spool"), 100)

	replay := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if code := run(ctx, append([]string{"spool", "replay", "--config", config, "--since", "1h"}, args...), &out, &errs); code != 0 {
			t.Fatalf("exit code %d, %s%s", code, out.String(), errs.String())
		}
		return out.String()
	}
	if out := replay("--dry-run"); !strings.HasSuffix(out, "\n100 records would be sent again\n") {
		t.Fatalf("dry run: %s", out)
	}
	if out := replay("--topic", "a-topic"); !strings.Contains(out, "source a, topic a-topic/") || !strings.HasSuffix(out, "\n50 records were sent again, marked with the header shipper-replay\n") {
		t.Fatalf("replay: %s", out)
	}
	read.take(50)
	read.wantLines("a-topic", want["a-topic"], 1)

	// The agent goes on, and what it sends now is marked by nothing.
	f, err := os.OpenFile(filepath.Join(dir, "a.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("one more\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	read.take(1)
	want["a-topic"] = append(want["a-topic"], "one more")
	read.wantLines("a-topic", want["a-topic"], 0)
	stop()

	if out := replay("--source", "b"); !strings.HasSuffix(out, "\n50 records were sent again, marked with the header shipper-replay\n") {
		t.Fatalf("replay: %s", out)
	}
	read.take(50)
	read.wantLines("b-topic", want["b-topic"], 1)

	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"spool", "replay", "--config", config, "--since", "1h", "--topic", "c"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), filepath.Join(dir, "spool")+" has no lane of that topic or source") {
		t.Errorf("unknown topic: exit code %d, %s", code, errs.String())
	}
	if code := run(t.Context(), []string{"spool", "replay", "--config", config}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "--since DURATION is required") {
		t.Errorf("no --since: exit code %d, %s", code, errs.String())
	}
	cluster.cut()
	errs.Reset()
	if code := run(t.Context(), []string{"spool", "replay", "--config", config, "--since", "1h", "--timeout", "1s"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "records could not be sent") {
		t.Errorf("no broker: exit code %d, %s", code, errs.String())
	}
}

func writeText(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The agent's own records are not sent again by the way.
func TestSpoolReplayLanes(t *testing.T) {
	app, gaps := &spool.LaneInfo{Lane: spool.Lane{Block: "app", Topic: "logs"}}, &spool.LaneInfo{Lane: spool.Lane{Block: pipeline.GapSource, Topic: "ops"}}
	for _, test := range []struct {
		args            replayArgs
		ofApp, ofLedger bool
	}{
		{replayArgs{}, true, false},
		{replayArgs{topic: "logs"}, true, false},
		{replayArgs{source: "app", topic: "logs"}, true, false},
		{replayArgs{topic: "ops"}, false, true},
		{replayArgs{source: pipeline.GapSource}, false, true},
		{replayArgs{source: "app", topic: "ops"}, false, false},
	} {
		if test.args.wants(app) != test.ofApp || test.args.wants(gaps) != test.ofLedger {
			t.Errorf("%+v: app %v, ledger %v", test.args, !test.ofApp, !test.ofLedger)
		}
	}
}

// startAgent runs the agent in this process until stop is called.
func startAgent(t *testing.T, config string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"run", "--config", config}, &bytes.Buffer{}, &errs) }()
	return func() {
		t.Helper()
		cancel()
		if code := <-done; code != 0 {
			t.Fatalf("the agent ended with %d: %s", code, errs.String())
		}
	}
}

// waitAcked waits until the spool says that so many records are delivered.
func waitAcked(t *testing.T, dir string, records int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"spool", "export", "--acked", dir}, &out, &errs); code != 0 {
			t.Fatal(errs.String())
		}
		if n := strings.Count(out.String(), `"acked":true`); n == records {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d records are acked in the spool: %s", n, out.String())
		}
	}
}

// replayReader reads all topics. Records by topic: those of the agent, and those
// of replays, as "partition value".
type replayReader struct {
	t    *testing.T
	cl   *kgo.Client
	got  map[string][2][]string
	part map[string]int32  // of each value
	mark map[string]string // of each value
	n    int

	codecs map[kgo.CompressionCodecType]int // of replayed records
}

func newReplayReader(t *testing.T, brokers []string) *replayReader {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("a-topic", "b-topic"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &replayReader{t: t, cl: cl, got: map[string][2][]string{}, part: map[string]int32{}, mark: map[string]string{}, codecs: map[kgo.CompressionCodecType]int{}}
}

// take reads n more records.
func (r *replayReader) take(n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for r.n += n; r.n > 0; {
		fetches := r.cl.PollRecords(ctx, r.n)
		if err := ctx.Err(); err != nil {
			r.t.Fatalf("%d records are missing: %v, %v", r.n, err, fetches.Err())
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			r.n--
			r.note(rec)
		})
	}
}

func (r *replayReader) note(rec *kgo.Record) {
	value, again, mark := string(rec.Value), 0, ""
	for _, h := range rec.Headers {
		if h.Key == kafka.ReplayHeader {
			again, mark = 1, string(h.Value)
		}
	}
	if part, seen := r.part[value]; seen && part != rec.Partition {
		r.t.Errorf("%q was in partition %d and is in %d", value, part, rec.Partition)
	}
	r.part[value] = rec.Partition
	if have := r.mark[value]; again == 1 && have != "" && have != mark {
		r.t.Errorf("%q was marked %q and is marked %q", value, have, mark)
	}
	if again == 1 {
		r.codecs[kgo.CompressionCodecType(rec.Attrs.CompressionType())]++
		r.mark[value] = mark
	}
	of := r.got[rec.Topic]
	of[again] = append(of[again], value)
	r.got[rec.Topic] = of
}

// wantLines wants these of the agent (again 0) or of replays (again 1), in order.
func (r *replayReader) wantLines(topic string, want []string, again int) {
	r.t.Helper()
	if got := r.got[topic][again]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		r.t.Fatalf("topic %s, replayed %d: got\n%s\nwant\n%s", topic, again, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is replayed may be older than --timeout and --since, which is about the delivery, and a line may be as long as max_line_bytes.
func TestSpoolReplayOldAndLong(t *testing.T) {
	cluster, err := startDemoCluster("a-topic", "b-topic")
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.close()
	dir := t.TempDir()
	config, logFile := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "a.log")
	writeText(t, config, fmt.Sprintf("kafka:\n  brokers: [%q]\nspool:\n  dir: %s/spool\n  max_bytes: 32MiB\ndefaults:\n  linger: 50ms\nsources:\n"+
		"  - name: a\n    paths: [%q]\n    topic: a-topic\n    timestamp: {from: line, layout: unix}\n    compression: zstd\n", cluster.addresses()[0], dir, logFile))
	old := time.Now().Add(-30 * time.Minute).Unix()
	lines := []string{fmt.Sprintf("%d before", old), fmt.Sprintf("%d %s", old, strings.Repeat("x", 1_000_000-11)), fmt.Sprintf("%d behind", old)}
	writeText(t, logFile, strings.Join(lines, "\n")+"\n")
	read := newReplayReader(t, cluster.addresses())
	stop := startAgent(t, config)
	read.take(len(lines))
	waitAcked(t, filepath.Join(dir, "spool"), len(lines))
	stop()

	replay := func(since string) (string, string) {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"spool", "replay", "--config", config, "--since", since}, &out, &errs); code != 0 {
			t.Fatalf("exit code %d, %s%s", code, out.String(), errs.String())
		}
		return out.String(), errs.String()
	}
	if out, _ := replay("10m"); !strings.HasSuffix(out, "\n3 records were sent again, marked with the header shipper-replay\n") {
		t.Fatalf("replay: %s", out)
	}
	read.take(len(lines))
	read.wantLines("a-topic", lines, 1)
	if c := read.codecs; c[kgo.CodecZstd] == 0 || c[kgo.CodecZstd]+c[kgo.CodecNone] != len(lines) {
		t.Errorf("records by compression: %v, wanted zstd, or none where it does not help", c)
	}
	if out, errs := replay("1ms"); out != "0 records were sent again, marked with the header shipper-replay\n" || errs != "3 records are kept too that were delivered before that\n" {
		t.Errorf("replay of what is younger: %q, %q", out, errs)
	}
}
