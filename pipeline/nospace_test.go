package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"shipper/internal/kafkatest"
	"shipper/internal/vfs"
	"shipper/spool"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// faultyAgent ships numbered lines of one file to an embedded broker, from a
// spool whose operations fail when broken says so.
type faultyAgent struct {
	t      *testing.T
	dir    string
	broker *kfake.Cluster
	cfg    Config
	log    lockedBuffer
	broken atomic.Pointer[func(vfs.Op) error]
	agent  *Agent
	stop   context.CancelFunc
	done   chan error
	lines  int
}

func newFaultyAgent(t *testing.T) *faultyAgent {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	a := &faultyAgent{t: t, dir: t.TempDir(), broker: broker}
	before := func(op vfs.Op) error {
		if fn := a.broken.Load(); fn != nil {
			return (*fn)(op)
		}
		return nil
	}
	a.cfg = Config{Logger: slog.New(slog.NewTextHandler(&a.log, nil)), ScanInterval: 50 * time.Millisecond,
		Kafka:   Kafka{Brokers: broker.ListenAddrs(), ClientID: "test", Compression: "none", AcksTimeout: 5 * time.Second},
		Spool:   Spool{Dir: filepath.Join(a.dir, "spool"), MaxBytes: 40 << 20, options: func(o *spool.Options) { o.FS = vfs.Hook{FS: vfs.OS{}, Before: before} }},
		Sources: []Source{{Name: "app", Paths: []string{filepath.Join(a.dir, "*.log")}, Topic: "logs", Linger: 50 * time.Millisecond, LineBytesMax: 100_000, Oversize: "split", IdleFlush: time.Second}}}
	return a
}

func (a *faultyAgent) start() {
	a.t.Helper()
	agent, err := Open(a.cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	a.agent, a.stop, a.done = agent, stop, make(chan error, 1)
	go func() { a.done <- agent.Run(ctx) }()
}

// write appends n lines of 1,000 bytes.
func (a *faultyAgent) write(n int) {
	a.t.Helper()
	var text []byte
	for range n {
		text = append(fmt.Appendf(text, "%08d ", a.lines), bytes.Repeat([]byte("x"), 990)...)
		text = append(text, '\n')
		a.lines++
	}
	f, err := os.OpenFile(filepath.Join(a.dir, "a.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.Write(text)
	}
	if err != nil || f.Close() != nil {
		a.t.Fatal(err)
	}
}

func (a *faultyAgent) await(what string, fn func(Stats) bool) {
	a.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !fn(a.agent.Stats()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatalf("%s: %+v\n%s", what, a.agent.Stats(), a.log.String())
		}
		select {
		case err := <-a.done:
			a.t.Fatalf("%s: the agent has ended: %v", what, err)
		default:
		}
	}
}

// checkTopic wants every line in the topic, once and in order.
func (a *faultyAgent) checkTopic() {
	a.t.Helper()
	kafkatest.AwaitRecords(a.t, a.broker.ListenAddrs(), "logs", int64(a.lines), kafkatest.ReadOptions{})
	got, _ := kafkatest.ReadTopic(a.t, a.broker.ListenAddrs(), "logs", kafkatest.ReadOptions{})
	for i, r := range got {
		if want := fmt.Sprintf("%08d ", i); !bytes.HasPrefix(r.Value, []byte(want)) || len(got) != a.lines {
			a.t.Fatalf("record %d of %d is %.10q", i, len(got), r.Value)
		}
	}
}

// The volume has no space for a while: for new files, for reserving them, for
// what is written. Reading pauses, what is in the spool is delivered meanwhile,
// and the rest when there is space again.
func TestNoSpaceForAWhile(t *testing.T) {
	for _, kinds := range [][]string{{"create", "allocate"}, {"write"}, {"create", "allocate", "write"}} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			a := newFaultyAgent(t)
			a.start()
			a.write(3_000)
			a.await("spooled", func(s Stats) bool { return s.LinesSpooled == 3_000 })
			writes := atomic.Bool{}
			fail := func(op vfs.Op) error {
				if !op.Changing || !slices.Contains(kinds, op.Kind) {
					return nil
				}
				if op.Kind == "write" {
					writes.Store(true)
					return &vfs.ShortWriteError{Bytes: op.Bytes / 2, Err: vfs.ErrNoSpace}
				}
				return vfs.ErrNoSpace
			}
			a.broken.Store(&fail)
			a.write(12_000) // more than the files that are there take
			a.await("full", func(s Stats) bool { return s.SpoolFullFor > 0 })
			time.Sleep(500 * time.Millisecond)
			if slices.Contains(kinds, "write") != writes.Load() {
				t.Error("no write has failed")
			}
			a.broken.Store(nil)
			a.checkTopic()
			a.stop()
			if err := <-a.done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Others have filled the volume when the spool has only its first files. While Kafka
// takes lines they all go through these, whatever is to be done when it is full.
func TestVolumeFullWhileKafkaTakesLines(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint("drop newest ", drop), func(t *testing.T) {
			a := newFaultyAgent(t)
			a.cfg.Spool.DropNewest = drop
			a.start()
			a.write(100)
			a.await("spooled", func(s Stats) bool { return s.LinesSpooled == 100 })
			fail := func(op vfs.Op) error {
				if op.Kind == "create" || op.Kind == "allocate" {
					return vfs.ErrNoSpace
				}
				return nil
			}
			a.broken.Store(&fail)
			a.write(14_000) // more than three files take
			a.checkTopic()
			if s := a.agent.Stats(); len(s.Dropped) > 0 || s.SpoolFullFor == 0 || !strings.Contains(a.log.String(), "until its volume has space again") {
				t.Errorf("dropped %+v, full for %v\n%s", s.Dropped, s.SpoolFullFor, a.log.String())
			}
			a.stop()
			if err := <-a.done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The same while Kafka takes nothing: what does not fit is dropped.
func TestVolumeFullDropsWithoutKafka(t *testing.T) {
	a := newFaultyAgent(t)
	a.cfg.Spool.DropNewest, a.cfg.Kafka.Brokers, a.cfg.Kafka.AcksTimeout = true, []string{"127.0.0.1:1"}, time.Second
	a.start()
	fail := func(op vfs.Op) error {
		if op.Kind == "create" || op.Kind == "allocate" {
			return vfs.ErrNoSpace
		}
		return nil
	}
	a.broken.Store(&fail)
	a.write(14_000)
	a.await("dropped", func(s Stats) bool { return len(s.Dropped) == 1 && s.LinesSpooled > 1_000 })
	a.stop()
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
}

// While Kafka is away a batch fills for ten seconds. Files that are read to their
// end keep their descriptors until then, but not when others wait for these.
func TestFewDescriptorsInAnOutage(t *testing.T) {
	a := newFaultyAgent(t)
	a.cfg.Kafka.Brokers = []string{"127.0.0.1:1"}
	a.cfg.OpenFilesMax = 8
	const files = 64
	line := func(flag int) {
		for i := range files {
			f, err := os.OpenFile(filepath.Join(a.dir, fmt.Sprintf("%d.log", i)), flag, 0o600)
			if err == nil {
				_, err = f.WriteString("line\n")
			}
			if err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}
	}
	line(os.O_WRONLY | os.O_CREATE)
	a.start()
	a.await("the first line of each", func(s Stats) bool { return s.LinesSpooled == files })
	line(os.O_WRONLY | os.O_APPEND)
	a.await("one more, without waiting for ten seconds eight times", func(s Stats) bool { return s.LinesSpooled >= 2*files-uint64(a.cfg.OpenFilesMax) })
	a.stop()
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
}

// A sync that fails is never tried again: the agent ends, and the next start
// delivers the rest.
func TestNoSpaceAtSync(t *testing.T) {
	a := newFaultyAgent(t)
	a.start()
	a.write(1_000)
	a.await("spooled", func(s Stats) bool { return s.LinesSpooled == 1_000 })
	fail := func(op vfs.Op) error {
		if op.Kind == "sync" {
			return vfs.ErrNoSpace
		}
		return nil
	}
	a.broken.Store(&fail)
	a.write(1_000)
	if err := <-a.done; err == nil || !vfs.IsNoSpace(err) {
		t.Fatalf("the agent ended with %v", err)
	}
	a.broken.Store(nil)
	if err := a.agent.spool.Close(); !vfs.IsNoSpace(err) { // as the end of the process would
		t.Fatal(err)
	}
	a.start()
	a.checkTopic()
	a.stop()
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
}
