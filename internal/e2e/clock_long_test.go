//go:build long

package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// The clock of the machine cannot be moved for a test, nor that of one process. So the agent is built with another package time, whose
// Now is as many seconds off as a file says; what measures time since the start runs on, as on a machine whose clock is set.

const (
	unackedMax = 10 * time.Second // which a line waits for, at most: with more GET /healthz may say so

	clockFiles = 3

	clockFileEnv = "SHIPPER_TEST_CLOCK"
	clockNow     = "sec, nsec, mono := runtimeNow()\n"
	clockShift   = "package time\n\nimport \"sync/atomic\"\n\nvar shift atomic.Int64\n\n// Shift sets how many seconds the clock is off.\nfunc Shift(seconds int64) { shift.Store(seconds) }\n"
	clockMain    = `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	go func() {
		for ; ; time.Sleep(20 * time.Millisecond) {
			text, _ := os.ReadFile(os.Getenv("` + clockFileEnv + `"))
			if seconds, err := strconv.ParseInt(string(text), 10, 64); err == nil {
				time.Shift(seconds)
			}
		}
	}()
}
`
)

// shiftedAgent builds the agent that takes its clock from a file.
func shiftedAgent(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	std := filepath.Join(command("env", "GOROOT"), "src", "time")
	now, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(now), clockNow); n != 1 {
		t.Fatalf("time.go of this Go reads the clock in %d places that look like %q", n, clockNow)
	}
	replace := map[string]string{}
	for i, file := range [][2]string{
		{filepath.Join(std, "time.go"), strings.Replace(string(now), clockNow, clockNow+"\tsec += shift.Load()\n", 1)},
		{filepath.Join(std, "shift.go"), clockShift},
		{filepath.Join(command("list", "-f", "{{.Dir}}", "shipper/cmd/shipper"), "shift.go"), clockMain},
	} {
		replace[file[0]] = filepath.Join(dir, strconv.Itoa(i)+".go")
		if err := os.WriteFile(replace[file[0]], []byte(file[1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "shipper")
	command("build", "-overlay", list, "-o", path, "shipper/cmd/shipper")
	return path
}

// checkWaits wants no figure of an agent whose clock is off to be one that cannot be.
func (w *world) checkWaits(off time.Duration, started time.Time) {
	w.t.Helper()
	for name, v := range w.stats() {
		if v < 0 || strings.HasSuffix(name, "_seconds") && v > time.Since(started).Seconds()+60 || name == "oldest_unacked_seconds" && v > unackedMax.Seconds() {
			w.t.Errorf("clock off by %v: %s is %v", off, name, v)
		}
	}
	for i := range clockFiles {
		var reply struct {
			Sources []struct {
				File struct {
					LagSeconds float64 `json:"lag_seconds"`
				}
			}
		}
		_, body, err := adminGet(w.spoolDir(), "/explain?path="+url.QueryEscape(w.writer.Path(i)))
		if err == nil {
			err = json.Unmarshal(body, &reply)
		}
		if err != nil || len(reply.Sources) != 1 || reply.Sources[0].File.LagSeconds > unackedMax.Seconds() {
			w.t.Errorf("clock off by %v: GET /explain: %s, %v", off, body, err)
		}
	}
	if code, body, err := adminGet(w.spoolDir(), "/healthz"); err != nil || code != http.StatusOK {
		w.t.Errorf("clock off by %v: GET /healthz: %d, %s, %v", off, code, body, err)
	}
}

// C026: 50 lines a second; the clock is set back 25 h, forward 48 h, then right. Nothing stalls, and no counter goes mad.
func TestC026InFull(t *testing.T) {
	b := embedded(t, 3)
	w := newWorld(t, b, kafkatest.WriterOptions{Files: clockFiles, Rate: 50, Rotation: kafkatest.RotateRename, RotateLines: 300})
	clock := filepath.Join(w.dir, "clock")
	w.agent = kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: w.config(w.spoolDir(), w.sources), Binary: shiftedAgent(t), Env: []string{clockFileEnv + "=" + clock}})
	w.agent.Start()
	w.writer.Start()
	w.awaitStat("lines_acked", 1)
	started := time.Now()
	offsets := []time.Duration{0, -25 * time.Hour, 23 * time.Hour, 0}
	for i, hold := range []time.Duration{10 * time.Second, 2 * time.Minute, 30 * time.Second, 30 * time.Second} {
		text := strconv.FormatInt(int64(offsets[i]/time.Second), 10)
		if err := os.WriteFile(clock+"~", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(clock+"~", clock); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(hold); time.Now().Before(end); time.Sleep(time.Second) {
			w.checkWaits(offsets[i], started)                     // at once, while lines that were read before are under way
			w.awaitStat("lines_acked", float64(w.writer.Lines())) // fails after a settle
			w.checkWaits(offsets[i], started)
		}
	}
	w.writer.Stop()
	w.checkSettled()
	got, _ := kafkatest.ReadTopic(t, w.checker(), w.topic, w.read)
	at := map[time.Duration]int{}
	for _, r := range got {
		at[time.UnixMilli(r.Timestamp).Sub(started).Round(30*time.Minute)]++
	}
	for _, off := range offsets {
		if at[off] == 0 {
			t.Errorf("no record has the time of a clock that is off by %v: %v", off, at)
		}
	}
	if len(at) != 3 {
		t.Errorf("times of records, from the true one: %v", at)
	}
	w.stop()
}
