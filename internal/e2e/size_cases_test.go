package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Cases from the field about records and batches that a topic does not take as they are. C154 and C155 are in recut_test.go,
// those that need real brokers in recut_long_test.go.

// timeWindow makes the topic refuse batches with a time further than so much from now, as message.timestamp.before.max.ms and
// after.max.ms do.
func (b *brokers) timeWindow(before, after time.Duration) {
	b.fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.fake.KeepControl()
		p := req.(*kmsg.ProduceRequest)
		resp := p.ResponseKind().(*kmsg.ProduceResponse)
		refused := false
		for _, topic := range p.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, part := range topic.Partitions {
				const firstTime, maxTime = 27, 35 // of a record batch of version 2
				oldest := time.UnixMilli(int64(binary.BigEndian.Uint64(part.Records[firstTime:])))
				newest := time.UnixMilli(int64(binary.BigEndian.Uint64(part.Records[maxTime:])))
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.BaseOffset = part.Partition, -1
				if now := time.Now(); oldest.Before(now.Add(-before)) || newest.After(now.Add(after)) {
					rp.ErrorCode, refused = kerr.InvalidTimestamp.Code, true
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, refused // of one lane, so of one batch
	})
}

// C158: the topic takes records of an hour around now. The lines tell times five hours ago, two hours ahead and now: every line
// arrives, at a time that the topic takes, and none is a dead letter.
func TestC158TimesOutOfBounds(t *testing.T) {
	f := newForms(t, "    timestamp: {from: line}\n    headers: [offset]\n")
	f.timeWindow(time.Hour, time.Hour)
	start := time.Now()
	f.agent.Start()
	var want []string
	for _, ahead := range []time.Duration{-5 * time.Hour, 2 * time.Hour, 0} {
		var text strings.Builder
		for i := range 100 {
			line := fmt.Sprintf("%s line %d", start.Add(ahead).UTC().Format(time.RFC3339), i)
			want = append(want, line)
			text.WriteString(line + "\n")
		}
		f.write("a.log", text.String())
		f.want(want...)
	}
	for i, r := range f.records(len(want)) {
		if at := time.UnixMilli(r.Timestamp); at.Before(start.Add(-time.Hour-time.Second)) || at.After(time.Now().Add(time.Hour)) {
			t.Fatalf("record %d has time %s", i, at)
		}
	}
	all := statsOf(t, f.spoolDir())
	if n, _ := all["shifted_records"].(float64); n < 200 || n > 300 || all["dead_letters"] != 0.0 || all["maybe_doubled_records"] != 0.0 {
		t.Errorf("%v shifted, %v dead letters, %v maybe doubled", all["shifted_records"], all["dead_letters"], all["maybe_doubled_records"])
	}
	f.stop()
}

// C161: lines around and far above the longest that is taken, by each rule, with a stop inside the longest: the lines between
// them arrive as they are, what is dropped is counted to the byte, and no rest of a long line is a record of its own.
func TestC161LongLines(t *testing.T) {
	t.Parallel()
	const longest = 1 << 20
	for _, rule := range []string{"split", "cut", "skip"} {
		t.Run(rule, func(t *testing.T) {
			f := newFormsOn(t, limited(t, 10_000_000, true), fmt.Sprintf("    max_line_bytes: 1MiB\n    oversize: %s\n", rule))
			f.agent.Start()
			var want []string
			dropped, oversize := 0, 0
			long := func(n, bytes int) string {
				line := string(kafkatest.AppendLine(nil, "long", n, bytes))
				if bytes <= longest {
					want = append(want, line)
					return line
				}
				oversize++
				switch rule {
				case "split":
					for rest := line; rest != ""; rest = rest[min(len(rest), longest):] {
						want = append(want, rest[:min(len(rest), longest)])
					}
				case "cut":
					want = append(want, line[:longest])
					dropped += bytes - longest
				case "skip":
					dropped += bytes
				}
				return line
			}
			normal := func(n int) {
				for i := range 10 {
					line := fmt.Sprintf("normal %d.%d", n, i)
					want = append(want, line)
					f.write("a.log", line+"\n")
				}
			}
			for n, bytes := range []int{longest - 1, longest, longest + 1, 5 << 20} {
				f.write("a.log", long(n, bytes)+"\n")
				normal(n)
			}
			f.want(want...)
			f.wantCounts(oversize, dropped)
			// A line is written up to its middle, the agent stops there, by SIGTERM and by SIGKILL, and the rest comes.
			for n, kill := range []bool{false, true} {
				dropped, oversize = 0, 0
				line := long(10+n, 5<<20)
				f.write("a.log", line[:3<<20])
				time.Sleep(1500 * time.Millisecond)
				if kill {
					f.agent.Kill9()
				} else {
					f.stop()
				}
				f.agent.Start()
				time.Sleep(1500 * time.Millisecond)
				f.write("a.log", line[3<<20:]+"\n")
				normal(10 + n)
				f.want(want...)
			}
			f.stop()
		})
	}
}

// wantCounts compares how many lines were too long, and the bytes of them that were dropped.
func (f *forms) wantCounts(lines, bytesDropped int) {
	f.t.Helper()
	all := statsOf(f.t, f.spoolDir())
	if all["oversize_lines"] != float64(lines) || all["oversize_bytes_dropped"] != float64(bytesDropped) {
		f.t.Errorf("%v lines too long, %v bytes dropped; want %d and %d", all["oversize_lines"], all["oversize_bytes_dropped"], lines, bytesDropped)
	}
}

// C057, C059: bytes that are not UTF-8 and NULs, between good lines: raw values keep them as they are, JSON is JSON, and what
// was replaced is counted.
func TestC057C059OddBytes(t *testing.T) {
	t.Parallel()
	odd := []string{"Estagi\xE1rio visualizou", "a\x80b", "\xC0\xAF", "x\xED\xA0\x80y", "end \xF5", "ab\x00cd", strings.Repeat("n\x00", 77)}
	var lines []string
	for i, x := range odd {
		for k := range 140 {
			lines = append(lines, fmt.Sprintf("good line %d.%d", i, k))
		}
		lines = append(lines, x)
	}
	file := strings.Join(lines, "\n") + "\n"
	t.Run("raw", func(t *testing.T) {
		f := newForms(t, "    format: raw\n")
		f.write("a.log", file)
		f.agent.Start()
		f.want(lines...)
		f.stop()
	})
	t.Run("json", func(t *testing.T) {
		f := newForms(t, "    format: json\n")
		f.write("a.log", file)
		f.agent.Start()
		var offset int
		for i, r := range f.records(len(lines)) {
			var x struct {
				Message string
				Offset  int
			}
			if err := json.Unmarshal(r.Value, &x); err != nil || !utf8.Valid(r.Value) {
				t.Fatalf("line %d: %q: %v", i, r.Value, err)
			}
			if want := string(bytes.ToValidUTF8([]byte(lines[i]), []byte("\uFFFD"))); strings.ReplaceAll(x.Message, "\uFFFD", "") != strings.ReplaceAll(want, "\uFFFD", "") || x.Offset != offset {
				t.Errorf("line %d: %q at %d, want %q at %d", i, x.Message, x.Offset, want, offset)
			}
			offset += len(lines[i]) + 1
		}
		f.wantReason("repaired", 5)
		f.stop()
	})
}
