package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"shipper/internal/kafkatest"
)

// What a full spool does: lines dropped and told, sources that share.

// gapLine is a line of the ledger of gaps, as an operator reads it.
type gapLine struct {
	ID       string `json:"id"`
	Reason   string `json:"reason"`
	Records  int    `json:"records"`
	Source   string `json:"source"`
	Topic    string `json:"topic"`
	Path     string `json:"path"`
	FromByte int64  `json:"from_byte"`
	ToByte   int64  `json:"to_byte"`
}

// ledger reads the ledger of gaps: one line for each id, the last one counts.
func (w *world) ledger() map[string]gapLine {
	w.t.Helper()
	gaps := map[string]gapLine{}
	for _, name := range []string{"gaps.jsonl.1", "gaps.jsonl"} {
		f, err := os.Open(filepath.Join(w.spoolDir(), "gaps", name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			var g gapLine
			if err := json.Unmarshal(s.Bytes(), &g); err != nil {
				w.t.Fatalf("%s: %v", s.Text(), err)
			}
			gaps[g.ID] = g
		}
		if err := f.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	return gaps
}

// checkDropped wants each line either in the topic, once, or in a range of the
// ledger, and the ranges to count right. Files must not have been rotated.
func (w *world) checkDropped(gaps map[string]gapLine) (delivered, dropped int) {
	w.t.Helper()
	for _, g := range gaps {
		if g.Reason != "dropped_newest" || g.Source != "app" || g.Topic != w.topic {
			w.t.Fatalf("%+v", g)
		}
		dropped += g.Records
	}
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(w.t, w.bootstrap, w.topic, w.writer.Lines()-int64(dropped), w.read)
	got, _ := kafkatest.ReadTopic(w.t, w.bootstrap, w.topic, w.read)
	arrived := map[string]bool{}
	for _, r := range got {
		if arrived[string(r.Value)] {
			w.t.Fatalf("twice: %.40s", r.Value)
		}
		arrived[string(r.Value)] = true
	}
	in := map[string]int{}
	for i := range len(w.writer.Written()) {
		path := w.writer.Path(i)
		data, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		at := int64(0)
		for line := range strings.Lines(string(data)) {
			from, to := at, at+int64(len(line))
			at = to
			id := ""
			for _, g := range gaps {
				if g.Path == path && g.FromByte <= from && to <= g.ToByte {
					if id != "" {
						w.t.Fatalf("bytes [%d, %d) of %s are in two gaps", from, to, path)
					}
					id = g.ID
				}
			}
			in[id]++
			if arrived[strings.TrimSuffix(line, "\n")] == (id != "") {
				w.t.Fatalf("bytes [%d, %d) of %s: arrived %v, in a gap %v", from, to, path, id == "", id != "")
			}
		}
	}
	for id, g := range gaps {
		if in[id] != g.Records {
			w.t.Fatalf("%d lines are in %+v", in[id], g)
		}
	}
	if n := int64(len(got) + dropped); n != w.writer.Lines() {
		w.t.Fatalf("%d delivered and %d dropped of %d", len(got), dropped, w.writer.Lines())
	}
	return len(got), dropped
}

// indexed counts the records that got an index, of these sources or of all.
func (w *world) indexed(sources ...string) (n int64) {
	w.t.Helper()
	for _, l := range w.inspect().Lanes {
		if len(sources) == 0 || slices.Contains(sources, l.Block) {
			n += int64(l.Next)
		}
	}
	return n
}

// awaitSpooledOrDropped waits until each of so many lines of these sources has an
// index, or is in the ledger, and returns how many are there.
func (w *world) awaitSpooledOrDropped(lines int64, sources ...string) (dropped int64) {
	w.t.Helper()
	for deadline := time.Now().Add(deliverMax); ; time.Sleep(100 * time.Millisecond) {
		dropped = 0
		for _, g := range w.ledger() {
			dropped += int64(g.Records)
		}
		n := w.indexed(sources...) + dropped
		if n == lines {
			return dropped
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d lines of %d were spooled or dropped", n, lines)
		}
	}
}

func TestC095DropNewest(t *testing.T) {
	b := embedded(t, 2, kfake.SeedTopics(1, "gaps"))
	b.spool = "  when_full: drop_newest\n  gap_topic: gaps\n"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 3, LineBytes: 1000})
	w.cut()
	w.agent.Start()
	w.writer.Write(40_000) // 40 MB, 25 of them compressed; the spool has room for half of that
	w.agent.WaitLog("new lines are dropped", 30*time.Second)
	w.writer.Write(1_000)
	w.awaitSpooledOrDropped(w.writer.Lines(), "app")
	before := w.stats()
	w.agent.Kill9()
	w.agent.Start() // nothing of it is read again
	w.agent.WaitLog("shipper runs", 10*time.Second)
	w.heal()
	kafkatest.AwaitRecords(w.t, w.bootstrap, w.topic, int64(41_000-before["dropped_records"]), w.read)
	w.writer.Write(1_000) // and it goes on by itself
	gaps := w.ledger()
	_, dropped := w.checkDropped(gaps)
	if dropped == 0 || float64(dropped) != before["dropped_records"] {
		t.Errorf("%d records were dropped; before the restart /stats said %v", dropped, before["dropped_records"])
	}
	kafkatest.AwaitRecords(w.t, w.bootstrap, "gaps", int64(len(gaps)), w.read)
	records, _ := kafkatest.ReadTopic(t, w.bootstrap, "gaps", w.read)
	for _, r := range records {
		var g gapLine
		if err := json.Unmarshal(r.Value, &g); err != nil || gaps[g.ID] != g {
			t.Errorf("%s is not in the ledger, %v", r.Value, err)
		}
	}
	w.stop()
	info, err := os.Stat(filepath.Join(w.spoolDir(), "gaps", "gaps.jsonl"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Killed at random while it drops: nothing is dropped without a word.
func TestDropNewestKill9(t *testing.T) {
	b := embedded(t, 2)
	b.spool = "  when_full: drop_newest\n"
	w := spoolWorld(t, b, kafkatest.WriterOptions{Files: 3, LineBytes: 1000})
	w.cut()
	w.agent.Start()
	w.writer.Write(50_000)
	w.agent.WaitLog("new lines are dropped", 30*time.Second)
	for range 5 {
		w.writer.Write(2_000)
		w.agent.KillLoop(1, 20*time.Millisecond, 1200*time.Millisecond, uint64(time.Now().UnixNano()))
	}
	w.agent.Start()
	w.agent.WaitLog("shipper runs", 10*time.Second)
	w.heal()
	w.awaitSpooledOrDropped(w.writer.Lines(), "app")
	if _, dropped := w.checkDropped(w.ledger()); dropped == 0 {
		t.Error("nothing was dropped")
	}
	w.stop()
}

// One source floods a full spool while Kafka is away. The lines of another still
// get in, and arrive; the flood's wait in their files, and arrive too.
func TestFloodBesideQuietSource(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"block", "drop_newest"} {
		t.Run(policy, func(t *testing.T) {
			b := embedded(t, 2)
			b.maxBytes, b.spool = "32MiB", "  when_full: "+policy+"\n"
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 3, LineBytes: 1000, Name: "app"}, source{name: "flood", glob: "app-*.log"}, source{name: "quiet", glob: "quiet-*.log"})
			quiet := kafkatest.NewWriter(t, kafkatest.WriterOptions{Dir: filepath.Join(w.dir, "logs"), Name: "quiet", LineBytes: 500})
			w.cut()
			w.agent.Start()
			w.writer.Write(60_000)
			w.agent.WaitLog("the spool is full", 30*time.Second)
			if s := w.stats(); s["spool_full_seconds"] == 0 {
				t.Errorf("the spool is not full: %v", s)
			}
			for range 10 {
				quiet.Write(100)
				time.Sleep(100 * time.Millisecond)
			}
			for deadline := time.Now().Add(20 * time.Second); w.indexed("quiet") < 1000; time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d of 1000 quiet lines are in the spool", w.indexed("quiet"))
				}
			}
			w.heal()
			if policy == "block" {
				w.read.Within = deliverMax
				kafkatest.AwaitRecords(t, w.bootstrap, w.topic, 61_000, w.read)
			} else {
				dropped := w.awaitSpooledOrDropped(61_000)
				for _, g := range w.ledger() {
					if g.Source != "flood" {
						t.Errorf("%+v", g)
					}
				}
				w.read.Within = deliverMax
				kafkatest.AwaitRecords(t, w.bootstrap, w.topic, 61_000-dropped, w.read)
			}
			got, _ := kafkatest.ReadTopic(t, w.bootstrap, w.topic, w.read)
			written := quiet.Written()
			if policy == "block" {
				for tag, lines := range w.writer.Written() {
					written[tag] = lines
				}
			} else {
				kept := got[:0]
				for _, r := range got {
					if strings.HasPrefix(string(r.Value), "quiet") {
						kept = append(kept, r)
					}
				}
				got = kept
			}
			if r := kafkatest.Check(written, got); !r.OK() {
				t.Error(r.Err())
			}
			w.stop()
		})
	}
}

// Sources whose topic does not exist fill a small spool in an outage, together with
// others. Those go on when it is over, though their shares are smaller than a batch
// that Kafka takes.
func TestStuckSourcesBesideHealthy(t *testing.T) {
	t.Parallel()
	const sources, lines = 20, 1500
	b := embeddedBeside(t, 2)
	b.maxBytes, b.kafka = "32MiB", "  auto_create_topics: false\n  compression: none\n"
	all := blocks(sources)
	for i := range sources / 4 {
		all[4*i].topic = "missing"
	}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: sources, LineBytes: 1000}, all...)
	w.cut()
	w.writer.Write(sources * lines)
	w.agent.Start()
	w.agent.WaitLog("the spool is full", 30*time.Second)
	time.Sleep(2 * time.Second) // every source has what it gets
	w.heal()
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(t, w.bootstrap, w.topic, sources/4*3*lines, w.read)
	if err := b.fake.CreateTopic("missing", 1, nil); err != nil {
		t.Fatal(err)
	}
	kafkatest.AwaitRecords(t, w.bootstrap, "missing", sources/4*lines, w.read)
	got, _ := kafkatest.ReadTopic(t, w.bootstrap, w.topic, w.read)
	late, _ := kafkatest.ReadTopic(t, w.bootstrap, "missing", w.read)
	if r := kafkatest.Check(w.writer.Written(), append(got, late...)); !r.OK() {
		t.Error(r.Err())
	}
	w.stop()
}

// Rotated files are deleted while the spool is full: they are open, and read when
// there is room.
func TestDeletedWhileBlocked(t *testing.T) {
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, LineBytes: 1000, Rotation: kafkatest.RotateRename, KeepRotated: 1})
	w.cut()
	w.agent.Start()
	w.writer.Write(50_000)
	w.agent.WaitLog("the spool is full", 30*time.Second)
	for range 3 { // the first two generations of each file go
		w.writer.Rotate(0)
		w.writer.Rotate(1)
		w.writer.Write(1_000)
		time.Sleep(1500 * time.Millisecond) // within which the new files are found
	}
	if s := w.stats(); s["held_files"] < 2 || s["held_bytes"] < 1e6 || s["given_up_files"] != 0 {
		t.Errorf("%v", s)
	}
	w.heal()
	w.check()
	w.stop()
}
