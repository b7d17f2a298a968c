package tail

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
)

const copiesPerLog = 7

// BenchmarkDelivered is what logs cost of each of which seven generations were delivered and compressed: the first scan of a start, in
// which the copies are found again, and a scan while all are at rest.
func BenchmarkDelivered(b *testing.B) {
	for _, logs := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(logs), func(b *testing.B) { delivered(b, logs) })
	}
}

func delivered(b *testing.B, logs int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := b.TempDir()
	known := deliveredKnown(b, dir, logs)
	start := cpuTime()
	w, err := NewWatcher(Options{NoInotify: true, OpenFilesMax: 64, Known: known, Blocks: []Block{{Name: "b", Paths: []string{dir + "/**/*.log"}, LineBytesMax: 1 << 20}}})
	if err != nil {
		b.Fatal(err)
	}
	w.handler = &onlyOpener{}
	w.scan()
	startTook := cpuTime() - start
	if w.delivered != logs*copiesPerLog || len(w.strays) > 0 || len(w.waiting) > 0 || len(w.unsettled) > 0 {
		b.Fatalf("%d of %d copies found again, %d paths unsettled, %d files wait", w.delivered, logs*copiesPerLog, len(w.unsettled), len(w.waiting))
	}
	time.Sleep(2 * time.Second) // until the directories are old enough to be trusted
	ahead := time.Hour
	w.now = func() time.Time { return time.Now().Add(ahead) }
	w.scan()
	w.scan()
	var cpu time.Duration
	for b.Loop() {
		ahead += w.scanGap
		w.scan()
		cpu += w.scanTook
	}
	b.ReportMetric(startTook.Seconds(), "s/start")
	b.ReportMetric(w.allTook.Seconds(), "s/fullscan")
	b.ReportMetric(float64(cpu)/float64(b.N)/float64(w.scanGap)*100, "%core")
}

// deliveredKnown makes logs and copies of their generations, and what a spool knows of them.
func deliveredKnown(b *testing.B, dir string, logs int) (known []Known) {
	add := func(path, text string, st fileStat) {
		data := []byte(text)
		sum := xxhash.Sum64(data)
		known = append(known, Known{uint64(len(known) + 1), "b", path, Fingerprint{Dev: st.dev, Ino: st.ino, Prefix: sum, PrefixBytes: uint32(len(data)), Born: st.born},
			Cursor{Offset: int64(len(data)), Anchor: sum, AnchorBytes: uint16(len(data))}})
	}
	var z bytes.Buffer
	pack := gzip.NewWriter(&z)
	for i := range logs {
		sub := filepath.Join(dir, fmt.Sprint(i%(logs/100)))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		path := filepath.Join(sub, fmt.Sprintf("%d.log", i))
		for n := copiesPerLog; n > 0; n-- {
			text := fmt.Sprintf("log %d generation %d\n", i, n)
			z.Reset()
			pack.Reset(&z)
			if _, err := pack.Write([]byte(text)); err != nil {
				b.Fatal(err)
			}
			if err := pack.Close(); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(fmt.Sprintf("%s.%d.gz", path, n), z.Bytes(), 0o600); err != nil {
				b.Fatal(err)
			}
			st, err := statPath(fmt.Sprintf("%s.%d.gz", path, n))
			if err != nil {
				b.Fatal(err)
			}
			st.ino += 1 << 40 // the file that it was made of is gone
			st.born--
			add(path, text, st)
		}
		if err := os.WriteFile(path, []byte("x\n"), 0o600); err != nil {
			b.Fatal(err)
		}
		st, err := statPath(path)
		if err != nil {
			b.Fatal(err)
		}
		add(path, "x\n", st)
	}
	return known
}
