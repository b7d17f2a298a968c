package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// Records that are more than a line: cases from the field and kills, on embedded brokers.

// forms is an agent that makes records of files a test writes by itself. One partition: the topic has the order of the lane.
type forms struct {
	*brokers
	t     *testing.T
	dir   string
	agent *kafkatest.Agent
}

// newForms has one source for dir/*.log*; keys are further lines of it.
func newForms(t *testing.T, keys string) *forms {
	t.Helper()
	return newFormsOn(t, embedded(t, 1), keys)
}

func newFormsOn(t *testing.T, b *brokers, keys string) *forms {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f := &forms{brokers: b, t: t, dir: dir}
	config := b.config(filepath.Join(dir, "..", "spool"), []source{{name: "app", glob: filepath.Join(dir, "*.log*")}}) + "    linger: 50ms\n    lanes: 1\n" + keys
	f.agent = kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: config})
	return f
}

func (f *forms) spoolDir() string { return filepath.Join(f.dir, "..", "spool") }

func (f *forms) write(name, text string) {
	f.t.Helper()
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = file.WriteString(text)
		file.Close()
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *forms) rename(from, to string) {
	f.t.Helper()
	if err := os.Rename(filepath.Join(f.dir, from), filepath.Join(f.dir, to)); err != nil {
		f.t.Fatal(err)
	}
}

// records waits for n of them and returns all.
func (f *forms) records(n int) []kafkatest.Record {
	f.t.Helper()
	f.read.Within = deliverMax
	kafkatest.AwaitRecords(f.t, f.bootstrap, f.topic, int64(n), f.read)
	got, _ := kafkatest.ReadTopic(f.t, f.bootstrap, f.topic, f.read)
	return got
}

// want waits for these values and no others, in this order.
func (f *forms) want(want ...string) {
	f.t.Helper()
	var got []string
	for _, r := range f.records(len(want)) {
		got = append(got, string(r.Value))
	}
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			f.t.Fatalf("%d records, want %d; from record %d on\n got %.300q\nwant %.300q", len(got), len(want), i, got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
		}
	}
}

func (f *forms) stop() {
	f.t.Helper()
	if code := f.agent.Stop(stopMax); code != 0 {
		f.t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// wantReason compares how many records were changed or dropped for a reason.
func (f *forms) wantReason(reason string, want float64) {
	f.t.Helper()
	bySource, _ := statsOf(f.t, f.spoolDir())["records"].(map[string]any)
	app, _ := bySource["app"].(map[string]any)
	if app[reason] != want {
		f.t.Errorf("%s: %v records, want %v", reason, app[reason], want)
	}
}

// awaitKnown waits until the agent has found the file and the spool knows it. It returns the source id of the file, which is
// above that of the file before it.
func (f *forms) awaitKnown(name string, before uint64) (id uint64) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	for deadline := time.Now().Add(deliverMax); ; time.Sleep(100 * time.Millisecond) {
		var reply struct {
			Sources []struct {
				File *struct {
					ID      uint64
					Spooled int64
				}
			}
		}
		code, body, err := adminGet(filepath.Join(f.dir, "..", "spool"), "/explain?path="+url.QueryEscape(path))
		if err == nil && code == http.StatusOK {
			err = json.Unmarshal(body, &reply)
		}
		if err == nil && len(reply.Sources) > 0 && reply.Sources[0].File != nil {
			if f := reply.Sources[0].File; f.ID > before && f.Spooled > 0 {
				return f.ID
			}
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s is not in the spool: %d, %s, %v", name, code, body, err)
		}
	}
}

func header(r kafkatest.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

const startsWithYear = "    multiline: {start: '^\\d{4}-', timeout: 1s}\n"

// C064: the last event does not wait for the next one, and nothing is lost at a stop.
func TestC064LastEventDoesNotWait(t *testing.T) {
	f := newForms(t, startsWithYear)
	f.agent.Start()
	event := "2026-11-29 one\n a\n b\n c\n d"
	f.write("a.log", event+"\n")
	f.want(event)
	f.write("a.log", "2026-11-30 two\n")
	f.want(event, "2026-11-30 two")
	f.write("a.log", "2026-12-01 three\n")
	f.stop()
	f.agent.Start()
	f.want(event, "2026-11-30 two", "2026-12-01 three")
	f.stop()
}

// C066: rotation in the middle of an event: the event ends with its file, and comes before the next file's lines.
func TestC066RotationInsideAnEvent(t *testing.T) {
	f := newForms(t, "    multiline: {start: '^\\d{4}-', timeout: 5s}\n")
	f.agent.Start()
	f.write("a.log", "2026-11-28 zero\n2026-11-29 one\n a\n b\n")
	f.want("2026-11-28 zero")
	f.rename("a.log", "a.log.1")
	f.write("a.log", " c\n d\n2026-11-30 two\n")
	f.want("2026-11-28 zero", "2026-11-29 one\n a\n b", " c\n d", "2026-11-30 two")
	f.stop()
}

// C067: the agent stops in the middle of an event, by SIGTERM and by SIGKILL. The event comes once, whole.
func TestC067StopInsideAnEvent(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill=%v", kill), func(t *testing.T) {
			f := newForms(t, "    multiline: {start: '^\\d{4}-', timeout: 10s}\n")
			f.agent.Start()
			f.write("a.log", "2026-11-28 zero\n2026-11-29 one\n a\n b\n")
			f.want("2026-11-28 zero")
			if kill {
				f.agent.Kill9()
			} else {
				f.stop()
			}
			f.write("a.log", " c\n d\n e\n2026-11-30 two\n2026-12-01 three\n")
			f.agent.Start()
			f.want("2026-11-28 zero", "2026-11-29 one\n a\n b\n c\n d\n e", "2026-11-30 two")
			f.stop()
		})
	}
}

// C069: the writer stalls longer than the timeout inside a trace: two records, and a clean start behind them.
func TestC069StallInsideATrace(t *testing.T) {
	f := newForms(t, startsWithYear)
	f.agent.Start()
	f.write("a.log", "2026-11-29 one\n a\n")
	f.want("2026-11-29 one\n a")
	f.write("a.log", " b\n c\n2026-11-30 two\n")
	f.want("2026-11-29 one\n a", " b\n c", "2026-11-30 two")
	f.stop()
}

// C071: CRLF, blank lines and trailing spaces inside an event.
func TestC071CRLFInsideAnEvent(t *testing.T) {
	f := newForms(t, startsWithYear)
	f.agent.Start()
	f.write("a.log", "2026-11-29 trace  \r\n\r\n\tat one \r\n\r\n\tat two\r\n2026-11-30 next\r\n")
	f.want("2026-11-29 trace  \n\n\tat one \n\n\tat two", "2026-11-30 next")
	f.stop()
}

// C072: partial messages of two streams, with stream and time.
func TestC072PartialsOfTwoStreams(t *testing.T) {
	f := newForms(t, "    container: cri\n    headers: [stream, time]\n")
	f.agent.Start()
	f.write("0.log", "2026-11-29T23:28:47.1+00:00 stdout P o1\n2026-11-29T23:28:47.2Z stderr P e1\n2026-11-29T23:28:47.3Z stdout P o2\n"+
		"2026-11-29T23:28:47.4Z stderr F e2\n2026-11-29T23:28:47.5Z stdout F o3\n")
	f.want("o1o2o3", "e1e2")
	got := f.records(2)
	if header(got[0], "stream") != "stdout" || header(got[0], "time") != "2026-11-29T23:28:47.1+00:00" || header(got[1], "stream") != "stderr" {
		t.Errorf("headers %+v and %+v", got[0].Headers, got[1].Headers)
	}
	f.stop()
}

// C074: 64 MB of partial messages without an end. Memory is bounded, the message is cut, what follows arrives.
func TestC074EndlessPartials(t *testing.T) {
	f := newForms(t, "    container: cri\n    oversize: cut\n")
	f.agent.Start()
	piece := "2026-11-29T23:28:47.1Z stdout P " + strings.Repeat("y", 16<<10) + "\n"
	for range 100 {
		f.write("0.log", strings.Repeat(piece, 40))
	}
	f.write("0.log", "2026-11-29T23:28:47.1Z stdout F end\n2026-11-29T23:28:47.1Z stdout F normal\n")
	got := f.records(2)
	if len(got) != 2 || string(got[1].Value) != "normal" || len(got[0].Value) > 1_000_000 || len(got[0].Value) < 900_000 {
		t.Fatalf("%d records, the last %.40q, the first of %d bytes", len(got), got[len(got)-1].Value, len(got[0].Value))
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.agent.Pid()))
	if err != nil {
		t.Skip("needs /proc:", err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(peak, &kib); err != nil || kib > 150<<10 {
		t.Errorf("%d KiB resident, %v", kib, err)
	}
	f.stop()
}

// C075: damaged lines in a json-file log are passed on, and the others are messages.
func TestC075DamagedJSONFile(t *testing.T) {
	f := newForms(t, "    container: docker\n")
	f.agent.Start()
	var want []string
	for i := range 21 {
		line := fmt.Sprintf(`{"log":"message %d\n","stream":"stdout","time":"2026-11-29T23:28:47.1Z"}`, i)
		switch i {
		case 6:
			line = line[1:]
			want = append(want, line)
		case 12:
			line = line[:20] + line
			want = append(want, line)
		default:
			want = append(want, fmt.Sprintf("message %d", i))
		}
		f.write("0.log", line+"\n")
	}
	f.want(want...)
	f.wantReason("damaged", 2)
	f.stop()
}

// C077: a run of NULs before JSON, as after a power cut.
func TestC077NULsBeforeJSON(t *testing.T) {
	f := newForms(t, "    container: auto\n")
	var want []string
	line := func(i int) string {
		want = append(want, fmt.Sprintf("message %d", i))
		return fmt.Sprintf(`{"log":"message %d\n","stream":"stdout","time":"2026-11-29T23:28:47.1Z"}`+"\n", i)
	}
	for i := range 40 {
		f.write("0.log", line(i))
	}
	path := filepath.Join(f.dir, "0.log")
	s, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, s.Size()+34<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 11 {
		f.write("0.log", line(40+i))
	}
	f.agent.Start()
	f.want(want...)
	f.stop()
}

// C079: odd but legal CRI lines give exactly one record each.
func TestC079OddCRILines(t *testing.T) {
	f := newForms(t, "    container: cri\n")
	f.agent.Start()
	f.write("0.log", "2026-11-29T23:28:47.1Z stdout F \n2026-11-29T23:28:47Z stdout F   spaces \n2026-11-29T23:28:47.1Z stdout no tag\n"+
		"2026-11-29T23:28:47.123456789Z stderr F:x extra\n2026-11-29T23:28:47.1Z stdout F crlf\r\n2026-11-29T23:28:47.1Z stdout F\nnot CRI\n")
	f.want("", "  spaces ", "2026-11-29T23:28:47.1Z stdout no tag", "extra", "crlf", "", "not CRI")
	f.stop()
}

// C080: both formats in one directory, and a file that comes in the other one after a change of the run time.
func TestC080MixedFormats(t *testing.T) {
	f := newForms(t, "    container: auto\n")
	f.agent.Start()
	f.write("a.log", `{"log":"docker one\n","stream":"stdout","time":"2026-11-29T23:28:47.1Z"}`+"\n")
	f.want("docker one")
	f.write("b.log", "2026-11-29T23:28:47.1Z stdout F cri one\n")
	f.want("docker one", "cri one")
	f.rename("a.log", "a.log.1")
	f.write("a.log", "2026-11-29T23:28:47.1Z stdout F cri two\n")
	f.want("docker one", "cri one", "cri two")
	f.stop()
}

// Kills at random while two containers' streams write partial messages and traces: each event once, whole, in the order of its stream and file.
func TestKill9Records(t *testing.T) {
	f := newForms(t, "    container: auto\n    multiline: {preset: java, timeout: 10s}\n    headers: [stream, offset]\n")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	done := make(chan []string)
	stop := make(chan struct{})
	go func() {
		var want []string
		defer func() { done <- want }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// Both streams at once: each begins an event, goes on, and ends it before the next.
			var lines [2][]string
			at := len(want)
			want = append(want, "", "")
			for s, stream := range []string{"stdout", "stderr"} {
				text := []string{fmt.Sprintf("2026 %s event %d", stream, i)}
				for k := range rng.IntN(4) {
					text = append(text, fmt.Sprintf("\tat frame %d", k))
				}
				want[at+s] = strings.Join(text, "\n")
				for _, l := range text {
					for rng.IntN(3) == 0 && len(l) > 8 {
						lines[s] = append(lines[s], "2026-11-29T23:28:47.1Z "+stream+" P "+l[:8])
						l = l[8:]
					}
					lines[s] = append(lines[s], "2026-11-29T23:28:47.1Z "+stream+" F "+l)
				}
			}
			first := lines[0][0]
			lines[0] = lines[0][1:]
			f.write("0.log", first+"\n")
			for len(lines[0])+len(lines[1]) > 0 {
				s := rng.IntN(2)
				if len(lines[s]) == 0 {
					s = 1 - s
				}
				f.write("0.log", lines[s][0]+"\n")
				lines[s] = lines[s][1:]
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
				}
			}
		}
	}()
	f.agent.KillLoop(12, 50*time.Millisecond, 600*time.Millisecond, seed)
	close(stop)
	want := <-done
	f.agent.Start()
	f.want(want...)
	f.stop()
}

// C081, C086: a kubelet rotates behind a symlink while partial messages of two streams are written, so that a message begins in
// one file and ends in the next, and the agent is killed at random: each message once, whole, in order.
func TestC081RotationInsideMessages(t *testing.T) {
	f := newForms(t, "    container: cri\n")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	pod := filepath.Join(f.dir, "..", "pods")
	if err := os.Mkdir(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(pod, "0.log"), filepath.Join(f.dir, "x.log")); err != nil {
		t.Fatal(err)
	}
	write := func(text string) { f.write("../pods/0.log", text) }
	rotate := func(n int) { f.rename("../pods/0.log", fmt.Sprintf("../pods/0.log.20261129-%06d", n)) }
	var want []string
	opens := map[string]int{}
	piece := func(i int, stream string, last bool) {
		at, is := opens[stream]
		if !is {
			at, want = len(want), append(want, "")
			opens[stream] = at
		}
		text, tag := fmt.Sprintf("%d ", i), "P"
		if last {
			tag = "F"
			delete(opens, stream)
		}
		want[at] += text
		write("2026-11-29T23:28:47.1Z " + stream + " " + tag + " " + text + "\n")
	}
	id := uint64(0)
	f.agent.Start()
	for i := range 7 {
		for k := range 20 {
			piece(100*i+k, []string{"stdout", "stderr"}[rng.IntN(2)], rng.IntN(3) == 0 || k == 10)
		}
		// Both streams are inside a message.
		piece(100*i+50, "stdout", false)
		piece(100*i+51, "stderr", false)
		id = f.awaitKnown("x.log", id) // what is rotated before it was found is out of reach
		rotate(i)
		if i%3 == 2 {
			f.agent.Kill9()
		}
		piece(100*i+52, "stderr", rng.IntN(2) == 0)
		piece(100*i+53, "stdout", true)
		piece(100*i+54, "stderr", true)
		if i%3 == 2 {
			f.agent.Start()
		}
	}
	for stream := range opens {
		piece(9999, stream, true)
	}
	f.want(want...)
	f.stop()
}
