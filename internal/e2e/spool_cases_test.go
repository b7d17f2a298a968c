package e2e

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shipper/internal/kafkatest"
	"shipper/spool"
)

// Cases from the field about spools: each a public report against some agent, run on the real binary.

// spoolWorld is a world with a small spool, of 32 MiB unless maxBytes says another.
func spoolWorld(t *testing.T, b *brokers, o kafkatest.WriterOptions) *world {
	t.Helper()
	b.maxBytes = cmp.Or(b.maxBytes, "32MiB")
	return newWorld(t, b, o, source{name: "app", glob: "app-*.log"})
}

func (w *world) inspect() *spool.Inspection {
	w.t.Helper()
	in, err := spool.Inspect(spool.Options{Dir: w.spoolDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	return in
}

// awaitSpooled waits until all lines written so far have an index.
func (w *world) awaitSpooled() {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		n := uint64(0)
		if in, err := spool.Inspect(spool.Options{Dir: w.spoolDir()}); err == nil {
			for _, l := range in.Lanes {
				n += l.Next
			}
		}
		if n >= uint64(w.writer.Lines()) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d lines of %d are in the spool", n, w.writer.Lines())
		}
	}
}

// segmentFile is the path of the n-th segment from the end, from 1.
func (w *world) segmentFile(n int) string {
	in := w.inspect()
	return filepath.Join(w.spoolDir(), in.Segments[len(in.Segments)-n].Name)
}

// report compares once so many records arrived: lost lines never will.
func (w *world) report(arrived int64) kafkatest.Report {
	w.t.Helper()
	w.read.Within = deliverMax
	kafkatest.AwaitRecords(w.t, w.checker(), w.topic, arrived, w.read)
	got, _ := kafkatest.ReadTopic(w.t, w.checker(), w.topic, w.read)
	return kafkatest.Check(w.writer.Written(), got)
}

func (w *world) wantExit1(says ...string) {
	w.t.Helper()
	before := len(w.agent.Log())
	w.agent.Start()
	if code := w.agent.WaitExit(5 * time.Second); code != 1 {
		w.t.Fatalf("exit code %d, want 1", code)
	}
	for _, s := range says {
		if log := w.agent.Log()[before:]; !strings.Contains(log, s) {
			w.t.Fatalf("the agent did not say %q:\n%s", s, log)
		}
	}
}

// lastGroup finds the commit of the group that the newest batch is in.
func (w *world) lastGroup() (file string, at, end int64) {
	w.t.Helper()
	in := w.inspect()
	var last spool.Ref
	for _, l := range in.Lanes {
		for _, ref := range l.Held {
			if ref.Segment > last.Segment || ref.Segment == last.Segment && ref.Block > last.Block {
				last = ref
			}
		}
	}
	file = w.segmentFile(1)
	data, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	at = int64(last.Block)*64 + spool.FrameBytes(int(last.Bytes))
	if last.Segment != in.Segments[len(in.Segments)-1].Number || data[at+4] != 2 {
		w.t.Fatalf("no commit behind the newest batch %+v", last)
	}
	return file, at, at + 16 + int64(binary.LittleEndian.Uint32(data[at+8:]))
}

func TestC087TornTail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		left func(at, end int64) int64 // of the file whose last frame is [at, end)
	}{
		{"1 byte", func(_, end int64) int64 { return end - 1 }},
		{"7 bytes", func(_, end int64) int64 { return end - 7 }},
		{"half a frame", func(at, end int64) int64 { return (at + end) / 2 }},
		{"all but the header", func(at, _ int64) int64 { return at + 16 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2})
			w.writer.Write(2500)
			w.agent.Start()
			w.check()
			w.cut()
			w.writer.Write(2500)
			w.awaitSpooled()
			w.agent.Kill9()
			file, at, end := w.lastGroup()
			if err := os.Truncate(file, c.left(at, end)); err != nil {
				t.Fatal(err)
			}
			before := len(w.agent.Log())
			w.heal()
			w.agent.Start()
			w.check()
			log := w.agent.Log()[before:]
			if !strings.Contains(log, "the end is torn") || !strings.Contains(log, filepath.Base(file)) || !strings.Contains(log, "was cut short") || strings.Contains(log, "records are missing") {
				t.Fatalf("no warning with the file, or one of records that are not missing:\n%s", log)
			}
			w.stop()
		})
	}
}

func TestC088BitFlips(t *testing.T) {
	t.Parallel()
	flip := func(b []byte, at int64) { b[at] ^= 0x10 }
	for _, c := range []struct {
		name   string
		damage func(segment []byte, frame int64)
		lost   bool // exactly the records of that frame
	}{
		{"payload", func(b []byte, at int64) { flip(b, at+300) }, true},
		{"length", func(b []byte, at int64) { flip(b, at+9) }, true},
		{"checksum", func(b []byte, at int64) { flip(b, at) }, true},
		{"2^31", func(b []byte, at int64) { binary.LittleEndian.PutUint32(b[at+8:], 1<<31) }, true},
		{"file header", func(b []byte, _ int64) { flip(b, 20) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := spoolWorld(t, embedded(t, 1), kafkatest.WriterOptions{})
			w.cut()
			w.writer.Write(500)
			w.agent.Start()
			w.awaitSpooled()
			w.stop()
			w.agent.Start() // from here on these lines are called durable
			w.writer.Write(500)
			w.awaitSpooled()
			w.stop()
			in := w.inspect()
			ref := in.Lanes[0].Held[0]
			at := slices.IndexFunc(in.Segments, func(s spool.SegmentInfo) bool { return s.Number == ref.Segment })
			if !c.lost {
				at = len(in.Segments) - 1
			}
			file := filepath.Join(w.spoolDir(), in.Segments[at].Name)
			data, err := os.ReadFile(file)
			if err == nil {
				c.damage(data, int64(ref.Block)*64)
				err = os.WriteFile(file, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.agent.Start()
			w.writer.Write(500)
			w.heal()
			lost := 0
			if c.lost {
				lost = int(ref.Count)
			}
			r := w.report(w.writer.Lines() - int64(lost))
			if r.Lost != lost || r.Doubled+r.Disorder+r.Foreign > 0 {
				t.Fatalf("%d lines were in the frame: %v", lost, r.Err())
			}
			if !strings.Contains(w.agent.Log(), "damaged") {
				t.Error("the agent says nothing of damage")
			}
			w.stop()
		})
	}
}

func TestC092TwoAgentsOneSpool(t *testing.T) {
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2, Rate: 2000})
	w.agent.Start()
	w.writer.Start()
	w.agent.WaitLog("shipper runs", 10*time.Second)
	link := filepath.Join(w.dir, "link")
	if err := os.Symlink(w.spoolDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{w.spoolDir(), link, filepath.Join(w.dir, "logs", "..", "spool"), w.spoolDir() + "/."} {
		second := kafkatest.NewAgent(t, kafkatest.AgentOptions{Config: w.config(dir, []source{{name: "other", glob: filepath.Join(w.dir, "other-*.log")}})})
		second.Start()
		code := second.WaitExit(5 * time.Second)
		if log := second.Log(); code != 1 || !strings.Contains(log, fmt.Sprintf("(pid %d)", w.agent.Pid())) || !strings.Contains(log, "is locked by another agent") {
			t.Errorf("%s: exit code %d:\n%s", dir, code, log)
		}
	}
	w.writer.Stop()
	w.check()
	w.stop()
	if log := w.agent.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the first agent was disturbed:\n%s", log)
	}
}

func TestC094ForeignAndEmptyFiles(t *testing.T) {
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 2})
	w.cut()
	w.writer.Write(2000)
	w.agent.Start()
	w.awaitSpooled()
	w.stop()
	foreign := []string{"README", "core", "segment-x", "free-1", "sub/segment-0000000001-0000000000000001.v1"}
	for _, name := range append([]string{"segment-0000000099-00000000000000ff.v1", "free-0000000098", "temp-0000000100"}, foreign...) {
		path := filepath.Join(w.spoolDir(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	w.writer.Write(2000)
	w.agent.Start()
	w.heal()
	w.check()
	w.stop()
	w.agent.Start() // and once more, on what that left
	w.writer.Write(100)
	w.check()
	w.stop()
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(w.spoolDir(), name)); err != nil {
			t.Errorf("a file that is not ours: %v", err)
		}
	}
	for _, name := range []string{"temp-0000000100", "free-0000000098"} {
		if _, err := os.Stat(filepath.Join(w.spoolDir(), name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if n := strings.Count(w.agent.Log(), "level=ERROR"); n > 2 {
		t.Errorf("%d errors:\n%s", n, w.agent.Log())
	}
}

// spoolBytes is what the files of the spool take.
func (w *world) spoolBytes() (sum int64) {
	names, err := os.ReadDir(w.spoolDir())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range names {
		if info, err := n.Info(); err == nil {
			sum += info.Sys().(*syscall.Stat_t).Blocks * 512 // segments may have holes
		}
	}
	return sum
}

func (w *world) residentBytes() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.agent.Pid()))
	if err != nil {
		w.t.Skip("no /proc here: ", err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		w.t.Fatal(err)
	}
	return kib << 10
}

func TestC095OutageLargerThanTheSpool(t *testing.T) {
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 4, LineBytes: 1000})
	w.cut()
	w.agent.Start()
	w.writer.Write(60_000) // 60 MB, 37 of them compressed; the spool may take 32 MiB
	w.agent.WaitLog("the spool is full", 30*time.Second)
	largest, resident := w.spoolBytes(), w.residentBytes()
	w.heal()
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		largest, resident = max(largest, w.spoolBytes()), max(resident, w.residentBytes())
	}
	w.check()
	if largest > 36<<20 {
		t.Errorf("the spool took %d bytes, its limit is 32 MiB", largest)
	}
	if resident > 256<<20 {
		t.Errorf("the agent took %d bytes of memory, its limit is 128 MiB and the runtime's own", resident)
	}
	w.stop()
	if n := strings.Count(w.agent.Log(), "the spool is full"); n > 20 {
		t.Errorf("said %d times that it is full", n)
	}
}

func TestC098OffsetsDoNotPassWhatIsDurable(t *testing.T) {
	w := spoolWorld(t, embedded(t, 2), kafkatest.WriterOptions{Files: 3, Rate: 4000, TornWrites: true})
	w.cut()
	w.writer.Start()
	w.agent.KillLoop(10, 20*time.Millisecond, 500*time.Millisecond, rand.Uint64())
	w.agent.Start()
	w.agent.WaitLog("shipper runs", 10*time.Second)
	time.Sleep(300 * time.Millisecond)
	w.stop()
	w.writer.Stop()
	w.heal()
	w.agent.Start()
	w.check()
	w.stop()
}

func TestC100SpoolOfAnotherVersion(t *testing.T) {
	w := spoolWorld(t, embedded(t, 1), kafkatest.WriterOptions{})
	w.cut()
	w.writer.Write(1000)
	w.agent.Start()
	w.awaitSpooled()
	w.agent.Kill9()
	file := w.segmentFile(1)
	later := strings.TrimSuffix(file, ".v1") + ".v2"
	if err := os.Rename(file, later); err != nil {
		t.Fatal(err)
	}
	before := w.spoolFiles()
	w.wantExit1("newer format", "version 2", filepath.Base(later))
	if after := w.spoolFiles(); !slices.Equal(before, after) {
		t.Fatalf("the refusal changed the spool: %v, then %v", before, after)
	}
	if err := os.Rename(later, file); err != nil {
		t.Fatal(err)
	}
	w.heal()
	w.agent.Start()
	w.check()
	w.stop()
}

// spoolFiles lists names, sizes and times of the spool's segments and spares.
func (w *world) spoolFiles() (all []string) {
	w.t.Helper()
	names, err := os.ReadDir(w.spoolDir())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range names {
		if info, err := n.Info(); err == nil && n.Name() != "lock" && !strings.HasSuffix(n.Name(), ".sock") {
			all = append(all, fmt.Sprint(n.Name(), info.Size(), info.ModTime()))
		}
	}
	return all
}
