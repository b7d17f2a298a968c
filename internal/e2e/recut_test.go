package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Batches that their topic does not take.

const describeConfigsKey = 32

// limited is an embedded cluster whose topic takes batches of so many bytes; its configuration may be read if readable.
func limited(t *testing.T, bytesMax int, readable bool) *brokers {
	t.Helper()
	b := embedded(t, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.bootstrap...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	limit := fmt.Sprint(bytesMax)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, b.topic
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: &limit}}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	if resp, err := req.RequestWith(t.Context(), cl); err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatal(resp, err)
	}
	if readable {
		return b
	}
	b.fake.ControlKey(describeConfigsKey, func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			x := kmsg.NewDescribeConfigsResponseResource()
			x.ErrorCode, x.ResourceType, x.ResourceName = kerr.TopicAuthorizationFailed.Code, r.ResourceType, r.ResourceName
			resp.Resources = append(resp.Resources, x)
		}
		return resp, nil, true
	})
	return b
}

// mixed writes a file of normal lines with one large line before line `at` of each that is named.
func (w *world) mixed(tag string, lines, lineBytes, largeBytes int, at ...int) (written map[string][]string) {
	w.t.Helper()
	f, err := os.Create(filepath.Join(w.dir, "logs", "app-"+tag+".log"))
	if err != nil {
		w.t.Fatal(err)
	}
	out := bufio.NewWriter(f)
	written = map[string][]string{}
	for n := range lines {
		for _, x := range at {
			if x == n {
				fmt.Fprintf(out, "%s\n", kafkatest.AppendLine(nil, "large", n, largeBytes))
			}
		}
		line := string(kafkatest.AppendLine(nil, tag, n, lineBytes))
		written[tag] = append(written[tag], line)
		fmt.Fprintf(out, "%s\n", line)
	}
	if err := out.Flush(); err != nil {
		w.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
	return written
}

// arrived waits for the lines and compares; what is no written line is an error.
func (w *world) arrived(written map[string][]string) []kafkatest.BatchHeader {
	w.t.Helper()
	want := 0
	for _, lines := range written {
		want += len(lines)
	}
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(w.t, w.checker(), w.topic, int64(want), w.read)
	got, headers := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
	if err := kafkatest.Check(written, got).Err(); err != nil {
		w.t.Fatal(err)
	}
	return headers
}

type deadLetter struct {
	Source, Reason string
	Index          uint64
	Value          []byte
	Headers        []struct {
		Name  string
		Value []byte
	}
}

func (w *world) deadLetters() (all []deadLetter) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "spool", "dead-letter", "*.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			w.t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		f, err := os.Open(name)
		if err != nil {
			w.t.Fatal(err)
		}
		for d := json.NewDecoder(f); d.More(); {
			var x deadLetter
			if err := d.Decode(&x); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, x)
		}
		f.Close()
	}
	return all
}

// C155: batches are larger than the topic takes, whether its limit may be read or must be learnt.
func TestC155BatchTooLarge(t *testing.T) {
	t.Parallel()
	for _, readable := range []bool{true, false} {
		t.Run(fmt.Sprintf("readable=%t", readable), func(t *testing.T) {
			w := newWorld(t, limited(t, 10_000, readable), kafkatest.WriterOptions{Files: 2, LineBytes: 500})
			w.writer.Write(5_000)
			w.agent.Start()
			w.check()
			// What was learnt is kept: nothing is refused any more.
			before := w.stats()["retries"]
			w.writer.Write(2_000)
			w.check()
			if after := w.stats()["retries"]; after > before+2 {
				t.Errorf("%v refusals, then %v", before, after)
			}
			_, headers := kafkatest.ReadTopic(t, w.checker(), w.topic, w.read)
			for _, h := range headers {
				if h.Bytes > 10_000 {
					t.Errorf("a batch of %d bytes is in the topic", h.Bytes)
				}
			}
			if _, epoch := w.identities(); readable && epoch > 2 || epoch > 12 {
				t.Errorf("epoch %d", epoch)
			}
			w.wantStat("maybe_doubled_records", 0)
			w.wantStat("dead_letters", 0)
			w.stop()
		})
	}
}

// C154: single records are larger than the topic takes. They are kept as dead letters, and what is around them arrives.
func TestC154OneRecordTooLarge(t *testing.T) {
	t.Parallel()
	for _, readable := range []bool{true, false} {
		t.Run(fmt.Sprintf("readable=%t", readable), func(t *testing.T) {
			b := limited(t, 100_000, readable)
			b.defaults = "  linger: 200ms\n  headers: [path, offset]\n"
			w := newWorld(t, b, kafkatest.WriterOptions{})
			written := w.mixed("mixed", 300, 200, 300_000, 0, 100, 101, 299)
			w.agent.Start()
			w.arrived(written)
			w.agent.WaitLog("kept as a dead letter", 20*time.Second)
			letters := w.deadLetters()
			if len(letters) != 4 {
				t.Fatalf("%d dead letters", len(letters))
			}
			for i, n := range []int{0, 100, 101, 299} {
				if want := string(kafkatest.AppendLine(nil, "large", n, 300_000)); string(letters[i].Value) != want || letters[i].Source != "app" || letters[i].Index != uint64(n+i) {
					t.Errorf("letter %d: %d bytes, index %d, of %s", i, len(letters[i].Value), letters[i].Index, letters[i].Source)
				}
				path, offset := filepath.Join(w.dir, "logs", "app-mixed.log"), fmt.Sprint(201*n+300_001*i)
				if h := letters[i].Headers; len(h) != 2 || string(h[0].Value) != path || string(h[1].Value) != offset {
					t.Errorf("letter %d: headers %+v", i, h)
				}
				if text := fmt.Sprintf("path=%q offset=%s", path, offset); !strings.Contains(w.agent.Log(), text) {
					t.Errorf("the log does not say %s", text)
				}
				if strings.Contains(w.agent.Log(), string(letters[i].Value[:100])) {
					t.Error("the log shows the record")
				}
			}
			w.wantStat("dead_letters", 4)
			w.wantStat("maybe_doubled_records", 0)
			w.stop()
		})
	}
}

// Killed again and again while everything is cut.
func TestRecutKill9(t *testing.T) {
	b := limited(t, 10_000, true)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 500, Rate: 800})
	w.killLoop(3, w.cutEverySecond)
	w.stop()
}
