package pipeline

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
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
