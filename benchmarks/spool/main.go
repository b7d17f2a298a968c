//go:build linux

// Command spool measures how long a start takes with a spool of several sizes, and how fast what is in it can be read, each with
// the files in the page cache and without. One spool grows from size to size, so all figures are of one go. Then what a day of a
// stuck lane beside a busy one leaves on disk.
//
//	go run ./benchmarks/spool -results benchmarks/results
//	go run ./benchmarks/spool -sizes 1GiB:10000,4GiB:40000 -dir /var/tmp
package main

import (
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shipper/benchmarks/internal/report"
	"shipper/benchmarks/internal/run"
	"shipper/spool"
)

const (
	lanes      = 4
	startsWarm = 5
	startsCold = 2
	groupBytes = 1 << 20
	readMax    = 1 << 30 // bytes of batches that are read at each size
	refsMax    = 64 << 10
)

// size is one row: so many bytes in so many batches.
type size struct {
	bytes  int64
	frames int
}

func main() {
	sizes := []size{{1 << 30, 10_000}, {4 << 30, 40_000}, {10 << 30, 100_000}}
	flag.Func("sizes", "ascending GIB:FRAMES, with commas (default 1GiB:10000,4GiB:40000,10GiB:100000)", func(text string) (err error) {
		sizes, err = parseSizes(text)
		return err
	})
	dir := flag.String("dir", os.TempDir(), "folder for the spool, on a real disk with room for the largest size")
	results := flag.String("results", "", "also write the table to a file in this folder")
	flag.Parse()
	if err := measure(sizes, *dir, *results); err != nil {
		fmt.Fprintln(os.Stderr, "spool:", err)
		os.Exit(1)
	}
}

func parseSizes(text string) (all []size, err error) {
	for word := range strings.SplitSeq(text, ",") {
		gib, frames, ok := strings.Cut(word, "GiB:")
		s := size{}
		n, err1 := strconv.ParseInt(gib, 10, 64)
		frameCount, err2 := strconv.Atoi(frames)
		if s = (size{n << 30, frameCount}); !ok || errors.Join(err1, err2) != nil || n < 1 || frameCount < lanes {
			return nil, fmt.Errorf("%q is no size such as 4GiB:40000", word)
		}
		all = append(all, s)
	}
	return all, nil
}

func measure(sizes []size, in, results string) error {
	dir, err := os.MkdirTemp(in, "shipper-spool-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	result := report.Result{Name: "spool", Args: os.Args[1:], Machine: report.Machine(dir)}
	t := report.NewTable("GiB", "batches", "cache", "start ms, median", "min-max", "times the first row", "MB/s read and checked")
	m := measured{dir: filepath.Join(dir, "spool"), max: 2 * sizes[len(sizes)-1].bytes, t: t}
	for _, s := range sizes {
		if err := m.grow(s); err != nil {
			return err
		}
		for _, cold := range []bool{false, true} {
			if err := m.row(s, cold); err != nil {
				return err
			}
		}
	}
	day := report.NewTable("busy lane MiB", "stuck lane MiB", "most on disk MiB", "at the end MiB", "punched MiB", "copied MiB", "written a byte of both")
	if err := stuckDay(dir, day); err != nil {
		return err
	}
	result.Body.WriteString(t.String() + "\nA day of a lane that cannot send beside a busy one:\n\n" + day.String())
	return result.Save(results)
}

// measured is the spool and what is known of it.
type measured struct {
	dir    string
	max    int64
	t      *report.Table
	next   [lanes]uint64
	frames int
	bytes  int64
	first  [2]float64 // ms of the first row, warm and cold
}

func (m *measured) open() (*spool.Log, *spool.Recovered, error) {
	return spool.Open(spool.Options{Dir: m.dir, MaxBytes: m.max, MinFreeBytes: 1, RefsMax: refsMax, Logger: slog.New(slog.DiscardHandler)})
}

// grow appends batches of one length until there is so much.
func (m *measured) grow(to size) error {
	log, _, err := m.open()
	if err != nil {
		return err
	}
	c := &spool.Commit{}
	if m.frames == 0 {
		for lane := range uint32(lanes) {
			c.Lanes = append(c.Lanes, spool.Lane{ID: lane + 1, Block: "bench", Topic: "bench", Slot: lane})
		}
	}
	records := make([]byte, (to.bytes-m.bytes)/int64(to.frames-m.frames)-spool.HeaderBytes)
	for i := range records {
		records[i] = byte(i * 7)
	}
	crc := crc32.Checksum(records, crc32.MakeTable(crc32.Castagnoli))
	var group []spool.Batch
	for ; m.frames < to.frames; m.frames++ {
		lane := m.frames % lanes
		group = append(group, spool.Batch{Lane: uint32(lane + 1), First: m.next[lane], Count: 1, Records: records, RecordsCRC: crc})
		m.next[lane]++
		if len(group)*len(records) >= groupBytes || m.frames+1 == to.frames {
			if _, err := log.Append(nil, group, c); err != nil {
				return err
			}
			group, c = group[:0], nil
		}
	}
	m.bytes = to.bytes
	return errors.Join(log.Sync(), log.Close())
}

// row starts some times and reads, with the files in the cache or each time without.
func (m *measured) row(s size, cold bool) error {
	starts := startsWarm
	if cold {
		starts = startsCold
	}
	var ms []float64
	for range starts {
		if cold {
			if err := run.DropCache(m.dir); err != nil {
				return err
			}
		}
		log, rec, err := m.open()
		if err != nil {
			return err
		}
		ms = append(ms, float64(rec.Took.Microseconds())/1000)
		if err := log.Close(); err != nil {
			return err
		}
	}
	rate, err := m.read(cold)
	if err != nil {
		return err
	}
	slices.Sort(ms)
	cache, i := "warm", 0
	if cold {
		cache, i = "cold", 1
	}
	if m.first[i] == 0 {
		m.first[i] = report.Median(ms)
	}
	m.t.Add(strconv.FormatInt(s.bytes>>30, 10), strconv.Itoa(s.frames), cache, fmt.Sprintf("%.0f", report.Median(ms)),
		fmt.Sprintf("%.0f-%.0f", ms[0], ms[len(ms)-1]), fmt.Sprintf("%.1f", report.Median(ms)/m.first[i]), fmt.Sprintf("%.0f", rate))
	return nil
}

// read is what a sender does with batches: MB/s from the files to a buffer, checksums compared.
func (m *measured) read(cold bool) (mbPerSecond float64, err error) {
	in, err := spool.Inspect(spool.Options{Dir: m.dir})
	if err != nil {
		return 0, err
	}
	if cold {
		if err := run.DropCache(m.dir); err != nil {
			return 0, err
		}
	}
	rd, start, bytes, buf := in.NewReader(), time.Now(), 0, []byte(nil)
	refs := make([][]spool.Ref, len(in.Lanes))
	for i := range in.Lanes {
		refs[i] = in.Lanes[i].Held
	}
	for k := 0; bytes < readMax && k < len(refs[0]); k++ { // as four lanes take turns
		for _, lane := range refs {
			if k >= len(lane) {
				continue
			}
			if buf, err = rd.ReadBatch(buf[:0], lane[k]); err != nil {
				return 0, err
			}
			bytes += len(buf)
		}
	}
	return float64(bytes) / report.MB / time.Since(start).Seconds(), rd.Close()
}
