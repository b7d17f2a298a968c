package pipeline

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"shipper/internal/kafkatest"
)

// Sources with long lines have their shares of the spool full, and hold all they
// may of the memory; their topics do not exist. One more source goes on.
func TestStuckSourcesLeaveMemory(t *testing.T) {
	a := newFaultyAgent(t)
	a.cfg.MemoryBytesMax = 64 << 20
	app := a.cfg.Sources[0]
	app.LineBytesMax = 1_000_000
	a.cfg.Sources = nil
	line := bytes.Repeat([]byte("x"), 900_000)
	line = append(line, '\n')
	for _, name := range []string{"stuck", "stuck too", "logs"} {
		s := app
		s.Name, s.Topic, s.Paths = name, name, []string{filepath.Join(a.dir, name, "*.log")}
		a.cfg.Sources = append(a.cfg.Sources, s)
		if err := os.Mkdir(filepath.Join(a.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, files, lines int) {
		for i := range files {
			if err := os.WriteFile(filepath.Join(a.dir, name, fmt.Sprint(i, ".log")), bytes.Repeat(line, lines), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("stuck", 4, 8)
	write("stuck too", 4, 8)
	a.start()
	a.await("both full", func(s Stats) bool { return a.agent.intakes[0].paused.Load() && a.agent.intakes[1].paused.Load() })
	before := a.agent.Stats().Kafka.AckedRecords
	write("logs", 1, 5)
	a.await("the third source", func(s Stats) bool { return s.Kafka.AckedRecords == before+5 })
	a.stop()
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
}

// TestStuckCopyGivesWay: of a source without a topic a compressed copy is half unpacked when its share is full. Only one is unpacked at a
// time; that of another source is all the same. Once there is the topic, every line of the first is delivered once and in order.
func TestStuckCopyGivesWay(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := newFaultyAgent(t)
	app := a.cfg.Sources[0]
	a.cfg.Sources = nil
	path := func(name string) string { return filepath.Join(a.dir, name, "app.log") }
	write := func(name string, from, n int) {
		t.Helper()
		var text []byte
		for i := range n {
			text = append(fmt.Appendf(text, "%08d ", from+i), bytes.Repeat([]byte("x"), 990)...)
			text = append(text, '\n')
		}
		f, err := os.OpenFile(path(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		must(err)
		_, err = f.Write(text)
		must(err)
		must(f.Close())
	}
	names := []string{"absent", "logs"}
	for _, name := range names {
		s := app
		s.Name, s.Topic, s.Paths = name, name, []string{path(name)}
		a.cfg.Sources = append(a.cfg.Sources, s)
		must(os.Mkdir(filepath.Join(a.dir, name), 0o700))
		write(name, 0, 5)
	}
	end := func() {
		t.Helper()
		a.stop()
		must(<-a.done)
	}
	a.start()
	a.await("known", func(s Stats) bool { return s.LinesSpooled == 10 })
	end()
	const stuck = 40_000
	for name, n := range map[string]int{"absent": stuck, "logs": 5} {
		write(name, 5, n)
		must(os.Rename(path(name), path(name)+".1"))
		packAs(t, path(name)+".1", ".gz")
		write(name, 5+n, 1)
	}
	a.start()
	a.await("the first is stuck", func(s Stats) bool { return a.agent.intakes[0].paused.Load() })
	kafkatest.AwaitRecords(t, a.broker.ListenAddrs(), "logs", 11, kafkatest.ReadOptions{})
	if !a.agent.intakes[0].paused.Load() {
		t.Error("the first was not stuck all the time")
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(a.broker.ListenAddrs()...))
	must(err)
	defer client.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "absent", 1, 1
	create.Topics = append(create.Topics, topic)
	_, err = create.RequestWith(t.Context(), client)
	must(err)
	kafkatest.AwaitRecords(t, a.broker.ListenAddrs(), "absent", stuck+6, kafkatest.ReadOptions{})
	for name, n := range map[string]int{"absent": stuck + 6, "logs": 11} {
		got, _ := kafkatest.ReadTopic(t, a.broker.ListenAddrs(), name, kafkatest.ReadOptions{})
		for i, r := range got {
			if want := fmt.Sprintf("%08d ", i); !bytes.HasPrefix(r.Value, []byte(want)) || len(got) != n {
				t.Fatalf("%s: record %d of %d is %.10q", name, i, len(got), r.Value)
			}
		}
	}
	end()
}
