package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"shipper/internal/kafkatest"
)

// Tests wait more than they work: many run side by side, but of those that fault the shared brokers one at a time.
var (
	embeddedTurns = make(chan struct{}, 10)
	realTurns     = make(chan struct{}, 1)
)

// takeTurn waits until the test may run.
func takeTurn(t *testing.T, turns chan struct{}) {
	t.Helper()
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

func TestMain(m *testing.M) {
	// Whoever waits for a turn keeps nobody from another.
	if err := flag.Set("test.parallel", "200"); err != nil {
		panic("BUG: " + err.Error())
	}
	os.Exit(kafkatest.Run(m))
}

const (
	stopMax    = 10 * time.Second
	deliverMax = 90 * time.Second
	topicName  = "logs"
)

// brokers is what a test needs of a cluster, embedded or real.
type brokers struct {
	bootstrap []string // of the agent
	direct    []string // of the checker; nil: the same
	proxies   []*kafkatest.Proxy
	topic     string
	kafka     string // more of the config's kafka section
	spool     string // more of its spool section
	defaults  string // all of its defaults; "": a short linger
	read      kafkatest.ReadOptions
	fake      *kfake.Cluster // nil: real
	maxBytes  string         // of the spool
}

// checker is where those look who may see everything.
func (b *brokers) checker() []string {
	if b.direct != nil {
		return b.direct
	}
	return b.bootstrap
}

// embedded starts kfake behind proxies, with one topic.
func embedded(t *testing.T, partitions int32, opts ...kfake.Opt) *brokers {
	t.Helper()
	takeTurn(t, embeddedTurns)
	return embeddedBeside(t, partitions, opts...)
}

// embeddedBeside is a second one for the same test.
func embeddedBeside(t *testing.T, partitions int32, opts ...kfake.Opt) *brokers {
	t.Helper()
	pn := kafkatest.NewProxyNet(t)
	opts = append(opts, kfake.NumBrokers(3), kfake.SeedTopics(partitions, topicName), kfake.ListenFn(pn.Listen))
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b := &brokers{bootstrap: c.ListenAddrs(), topic: topicName, fake: c}
	for i := range 3 {
		b.proxies = append(b.proxies, pn.Proxy(i))
	}
	return b
}

// ownTopics counts what ownTopic named.
var ownTopics atomic.Int32

// ownTopic is a name for a topic that no other test has, nor this one when it runs again.
func ownTopic(t *testing.T) string {
	return fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", "=", "-").Replace(t.Name()), ownTopics.Add(1))
}

// real takes the shared cluster of three brokers, with a topic of this test's own.
func real(t *testing.T, partitions int) (*brokers, *kafkatest.Cluster) {
	t.Helper()
	takeTurn(t, realTurns)
	c := kafkatest.Shared(t)
	b := &brokers{bootstrap: c.Bootstrap(), topic: ownTopic(t)}
	for i := range 3 {
		b.proxies = append(b.proxies, c.Proxy(i))
	}
	c.CreateTopic(b.topic, partitions, 3, map[string]string{"min.insync.replicas": "2"})
	return b, c
}

func (b *brokers) cut() {
	for _, p := range b.proxies {
		p.Cut()
	}
}

func (b *brokers) heal() {
	for _, p := range b.proxies {
		p.Heal()
	}
}

// source is one block of the config under test.
type source struct {
	name, glob string
	topic      string // "": the world's
}

// blocks are so many sources with a file each.
func blocks(n int) []source {
	all := make([]source, n)
	for i := range all {
		all[i] = source{name: fmt.Sprintf("s%02d", i), glob: fmt.Sprintf("app-%02d.log", i)}
	}
	return all
}

// config is a minimal one.
func (b *brokers) config(spoolDir string, sources []source) string {
	var s strings.Builder
	fmt.Fprintf(&s, "kafka:\n  brokers: [%q]\n%s", strings.Join(b.bootstrap, `", "`), b.kafka)
	fmt.Fprintf(&s, "spool:\n  dir: %s\n  max_bytes: %s\n%sdefaults:\n%ssources:\n", spoolDir, cmp.Or(b.maxBytes, "512MiB"), b.spool, cmp.Or(b.defaults, "  linger: 200ms\n"))
	for _, x := range sources {
		fmt.Fprintf(&s, "  - name: %s\n    paths: [%q]\n    topic: %s\n", x.name, x.glob, cmp.Or(x.topic, b.topic))
	}
	return strings.ReplaceAll(s.String(), `\"`, `"`)
}

// world is one test's files, agent and brokers.
type world struct {
	*brokers
	t       *testing.T
	dir     string
	sources []source
	agent   *kafkatest.Agent
	writer  *kafkatest.Writer

	spooled map[string][]string // lines that were put into the spool, not into a file
}

// lines are all that must arrive.
func (w *world) lines() map[string][]string {
	all := w.writer.Written()
	for tag, lines := range w.spooled {
		all[tag] = lines
	}
	return all
}

// newWorld makes a writer of files app-*.log and an agent that ships them; nothing runs yet.
func newWorld(t *testing.T, b *brokers, o kafkatest.WriterOptions, sources ...source) *world {
	t.Helper()
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	if len(sources) == 0 {
		sources = []source{{name: "app", glob: "app-*.log*"}}
	}
	for i := range sources {
		sources[i].glob = filepath.Join(logs, sources[i].glob)
	}
	o.Dir = logs
	w := &world{brokers: b, t: t, dir: dir, sources: sources, writer: kafkatest.NewWriter(t, o)}
	w.agent = kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: b.config(w.spoolDir(), sources)})
	return w
}

func (w *world) spoolDir() string { return filepath.Join(w.dir, "spool") }

// configure writes the config anew, after something in it was changed.
func (w *world) configure() { w.agent.SetConfig(w.config(w.spoolDir(), w.sources)) }

// first has a fresh agent ship so many lines.
func (w *world) first(lines int) {
	w.t.Helper()
	w.agent.Start()
	w.writer.Write(lines)
	w.check()
}

// underLoad lets the agent ship what the writer writes, has f make trouble once lines get through, and wants all settled when
// that is over.
func (w *world) underLoad(f func()) {
	w.t.Helper()
	w.agent.Start()
	w.writer.Start()
	w.agent.WaitLog("shipper runs", 20*time.Second)
	w.awaitStat("lines_acked", 1)
	f()
	w.heal()
	w.writer.Stop()
	w.checkSettled()
}

// check waits until as many records are in the topic as lines were written, then compares.
func (w *world) check() {
	w.t.Helper()
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(w.t, w.checker(), w.topic, w.writer.Lines(), w.read)
	got, _ := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
	r := kafkatest.Check(w.lines(), got)
	if !r.OK() {
		w.t.Fatalf("%v", r.Err())
	}
	if r.Spread != 0 {
		w.t.Fatalf("%d files went to more than one partition", r.Spread)
	}
}

// checkSettled is check with every counter of trouble at 0: nothing lost, nothing doubled, and no doubt about it.
func (w *world) checkSettled() {
	w.t.Helper()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.wantStat("lost_records", 0)
}

// stop asks the agent to stop and wants exit code 0 within the promised time.
func (w *world) stop() {
	w.t.Helper()
	if code := w.agent.Stop(stopMax); code != 0 {
		w.t.Fatalf("exit code %d after SIGTERM", code)
	}
}

func TestShipsAndStops(t *testing.T) {
	w := newWorld(t, embedded(t, 4), kafkatest.WriterOptions{Files: 5, TornWrites: true})
	w.writer.Write(20_000)
	w.agent.Start()
	w.writer.Write(20_000)
	w.check()
	w.stop()
	w.writer.Write(5_000)
	w.agent.Start()
	w.check()
	w.stop()
}

// So many files feed a lane that their cursors would not fit beside its batch in the groups of a small spool.
func TestManyFilesSmallSpool(t *testing.T) {
	b := embedded(t, 1)
	b.maxBytes = "64MiB"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 6_000, Name: "app-" + strings.Repeat("long-name-", 18)})
	w.writer.Write(6_000)
	w.agent.Start()
	w.check()
	w.stop()
}

// Full batches that nothing shrinks, in a spool with the smallest segments: they must fit its groups and the brokers.
func TestUncompressedSmallSpool(t *testing.T) {
	b := embedded(t, 1)
	b.maxBytes, b.kafka = "256MiB", "  compression: none\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 2, LineBytes: 900})
	w.writer.Write(20_000)
	w.agent.Start()
	w.check()
	w.stop()
}

func TestRotations(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name  string
		style kafkatest.Rotation
		lines int // between two rotations; what is compressed before it was ever seen is out of reach
	}{{"rename", kafkatest.RotateRename, 4_000}, {"renamelate", kafkatest.RotateRenameLate, 4_000}, {"compress", kafkatest.RotateCompress, 16_000}} {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 3, Rate: 20_000, Rotation: r.style, RotateLines: r.lines, TornWrites: true})
			w.underLoad(func() { time.Sleep(4 * time.Second) })
			w.stop()
		})
	}
}

// The brokers go away and come back, and the agent is killed at random, while lines are written and files rotate.
func (w *world) killLoop(rounds int, fault func(round int)) {
	w.t.Helper()
	w.writer.Start()
	for i := range rounds {
		fault(i)
		w.agent.KillLoop(3, 50*time.Millisecond, 900*time.Millisecond, uint64(time.Now().UnixNano()))
	}
	w.heal()
	w.agent.Start()
	time.Sleep(500 * time.Millisecond)
	w.writer.Stop()
	w.check()
}

// cutEverySecond is a fault of killLoop.
func (w *world) cutEverySecond(round int) {
	if round%2 == 1 {
		w.cut()
		return
	}
	w.heal()
}

func TestKill9Embedded(t *testing.T) {
	w := newWorld(t, embedded(t, 3), kafkatest.WriterOptions{Files: 4, Rate: 8_000, Rotation: kafkatest.RotateRename, RotateLines: 9_000, TornWrites: true})
	w.killLoop(4, w.cutEverySecond)
	w.stop()
}

// Two source blocks write to one topic of one partition: a request that named the partition twice would lose one of the
// two batches without an error.
func TestKill9TwoBlocksOnePartition(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 4, Rate: 8_000},
		source{name: "even", glob: "app-0[02].log"}, source{name: "odd", glob: "app-0[13].log"})
	w.killLoop(4, w.cutEverySecond)
	w.stop()
}

// A start into a backlog while no new line arrives: acks must become durable by themselves, or the second batch of a
// lane is never sent.
func TestRestartIntoBacklog(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, LineBytes: 400})
	w.cut()
	w.agent.Start()
	w.writer.Write(40_000) // several batches for each lane
	w.agent.WaitLog("no metadata", 20*time.Second)
	time.Sleep(2 * time.Second)
	w.agent.Kill9()
	w.heal()
	w.agent.Start()
	w.check()
	w.stop()
}

// Kafka is not there: at the start, while lines are read, and when the agent is asked to stop.
func TestC162StopWithoutKafka(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 3})
	w.cut()
	w.writer.Write(5_000)
	w.agent.Start()
	w.agent.WaitLog("no metadata", 20*time.Second)
	w.writer.Write(5_000)
	time.Sleep(time.Second)
	w.stop()
	w.heal()
	w.agent.Start()
	w.check()
	w.stop()
}

// Brokers of every age: the produce request in each form from version 3, which is Kafka 0.11, to 13, which names topics by id.
func TestProduceVersions(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name     string
		versions *kversion.Versions
		codec    string
	}{{"0.11", kversion.V0_11_0(), "lz4"}, {"1.0", kversion.V1_0_0(), "snappy"}, {"2.1", kversion.V2_1_0(), "zstd"}, {"2.8", kversion.V2_8_0(), "gzip"},
		{"3.7", kversion.V3_7_0(), "none"}, {"4.0", kversion.V4_0_0(), "zstd"}, {"4.1", kversion.V4_1_0(), "lz4"}} {
		t.Run(v.name, func(t *testing.T) {
			b := embedded(t, 2, kfake.MaxVersions(v.versions))
			b.kafka = "  compression: " + v.codec + "\n"
			b.read.Client = []kgo.Opt{kgo.MaxVersions(v.versions)}
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 2})
			w.writer.Write(3_000)
			w.agent.Start()
			w.check()
			w.stop()
		})
	}
}

// Answers are lost after the append: what is sent again must be recognised.
func TestLostAnswers(t *testing.T) {
	w := newWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 3, Rate: 5_000})
	w.underLoad(func() {
		for range 8 {
			time.Sleep(300 * time.Millisecond)
			w.dropAnswers()
		}
	})
	w.stop()
}

// The spool's directory is removed under the agent. What it writes then is nowhere, and another agent could start in its
// place and send everything again: it ends, and says why.
func TestSpoolRemoved(t *testing.T) {
	w := newWorld(t, embedded(t, 1), kafkatest.WriterOptions{Files: 1})
	w.first(100)
	if err := os.RemoveAll(w.spoolDir()); err != nil {
		t.Fatal(err)
	}
	if code := w.agent.WaitExit(20 * time.Second); code != 1 {
		t.Fatalf("exit code %d, want 1", code)
	}
	if !strings.Contains(w.agent.Log(), "was removed or replaced") {
		t.Error("the log does not say why")
	}
}
