package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// Damage: what was synced is not what is read. The model cannot say what must
// be found then, so these tests take what was found for the truth and check what
// must hold in any case: Open succeeds, no number is given to two lines of one
// producer id, and each line is at the broker, in the log, counted by a gap, or
// read again from its file.

// adopt rebuilds the model from what was recovered.
func (w *world) adopt(fs vfs.FS, everAt map[laneIndex][]string) error {
	o := w.options(fs)
	seed := w.rng.Uint64()
	o.rand = strings.NewReader(strings.Repeat(fmt.Sprintf("%016x", seed), 64))
	told := &toldDamage{w: w, everAt: everAt}
	o.Logger = slog.New(told)
	l, r, err := Open(o)
	w.untold = max(w.untold, told.unnumbered)
	if err != nil {
		return err
	}
	w.uncertain, w.untold = w.uncertain+w.untold, 0
	w.log, w.reader, w.rotten = l, l.NewReader(), true
	old := w.now
	w.now = &model{group: 1, lanes: map[uint32]*modelLane{}, cursors: map[uint64]int64{}}
	for _, got := range r.Lanes {
		lane := &modelLane{next: got.Next, head: got.Head, lastAck: got.LastAck, records: map[uint64]string{},
			identities: got.Identities, gaps: got.Gaps}
		w.now.lanes[got.ID] = lane
		for index := range max(got.Next, 1) {
			for _, line := range everAt[laneIndex{got.ID, index}] {
				lane.records[index] = line // for the gaps
			}
		}
		if err := w.adoptBatches(got, lane, everAt); err != nil {
			return err
		}
	}
	for _, s := range r.Sources {
		if s.Source.ID != counterID {
			w.now.cursors[s.Source.ID] = s.Offset
		} else {
			w.now.group = s.Offset
		}
	}
	if len(w.now.lanes) < laneCount || len(r.Sources) < sourceCount+1 {
		// Their definitions are damaged: tail and pipeline would define them anew.
		w.stats["undefined"]++
		for id := uint32(1); id <= laneCount; id++ {
			if w.now.lanes[id] == nil && old.group > 0 {
				return errUndefined
			}
		}
	}
	w.takeRefs(r)
	w.possible = []*model{w.now.clone()}
	return nil
}

// toldDamage is a logger that takes what it is told for the report: a start that
// fails behind its gaps hands out nothing else, and the next one finds no damage.
type toldDamage struct {
	slog.Handler
	w          *world
	everAt     map[laneIndex][]string
	unnumbered int // records that are gone, nobody knows which
}

func (h *toldDamage) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelError
}

func (h *toldDamage) Handle(_ context.Context, r slog.Record) error {
	n := map[string]uint64{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindUint64 {
			n[a.Key] = a.Value.Uint64()
		}
		return true
	})
	if n["from"] == n["to"] {
		h.unnumbered += int(n["records"])
	}
	for i := n["from"]; i < n["to"]; i++ { // a gap at the head is not listed any more
		h.w.count(h.everAt[laneIndex{uint32(n["lane"]), i}])
	}
	return nil
}

var errUndefined = errors.New("a lane is not defined any more")

type laneIndex struct {
	lane  uint32
	index uint64
}

func (w *world) adoptBatches(got LaneState, lane *modelLane, everAt map[laneIndex][]string) error {
	for _, ref := range got.Batches {
		data, err := w.reader.ReadBatch(nil, ref)
		var damaged *CorruptionError
		if errors.As(err, &damaged) {
			// The sink would say so and drop it when it gets there; here it does at once.
			w.stats["unreadable"]++
			for i := ref.First; i < ref.Next(); i++ {
				w.count(everAt[laneIndex{got.ID, i}])
			}
			g := Gap{Lane: got.ID, From: ref.First, To: ref.Next(), Records: uint64(ref.Count), Reason: GapDamaged}
			if _, err := w.log.Append(nil, nil, &Commit{Gaps: []Gap{g}}); err != nil {
				return err
			}
			lane.gaps = append(lane.gaps, g)
			lane.passGaps()
			continue
		}
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data[HeaderBytes:]), "\n") {
			lane.records[ref.First+uint64(i)] = line
		}
		lane.batches = append(lane.batches, span{ref.First, ref.Next()})
	}
	return nil
}

// remember notes which line has which number now, and which a gap stands for:
// gaps are forgotten once they are passed.
func (w *world) remember(everAt map[laneIndex][]string) {
	w.now.remember(everAt)
	for id, l := range w.now.lanes {
		for _, g := range l.gaps {
			for i := g.From; i < g.To; i++ {
				w.count(everAt[laneIndex{id, i}])
			}
		}
	}
}

// count notes that these lines are reported as gone.
func (w *world) count(lines []string) {
	for _, line := range lines {
		w.counted[lineKey(line)] = true
	}
}

func (m *model) remember(everAt map[laneIndex][]string) {
	for id, l := range m.lanes {
		for index, line := range l.records {
			at := laneIndex{id, index}
			if have := everAt[at]; len(have) == 0 || have[len(have)-1] != line {
				everAt[at] = append(have, line)
			}
		}
	}
}

// lostFor is lost, but a gap stands for any line that ever had its number.
func (w *world) lostFor(everAt map[laneIndex][]string) []string {
	w.remember(everAt)
	var lost []string
	for _, key := range w.lost() {
		if !w.counted[key] {
			lost = append(lost, key)
		}
	}
	if len(lost) <= w.uncertain {
		return nil // counted, but nobody knows which
	}
	return lost
}

// segmentFiles lists the segments of a crashed file system with their sizes.
func segmentFiles(mem *vfs.Mem) (names []string, err error) {
	all, err := mem.ReadDir("/spool")
	for _, name := range all {
		if strings.HasPrefix(name, "segment-") {
			names = append(names, "/spool/"+name)
		}
	}
	return names, err
}

// flip turns one bit.
func flip(mem *vfs.Mem, name string, bit int64) error {
	f, err := mem.OpenFile(name, vfs.Write)
	if err != nil {
		return err
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], bit/8); err != nil {
		return err
	}
	b[0] ^= 1 << (bit % 8)
	_, err = f.WriteAt(b[:], bit/8)
	return errors.Join(err, f.Sync(), f.Close())
}

// TestBitFlips turns one bit of a small log, one at a time, and lives on with
// what is recovered: in every fifth byte, or in every one if SPOOL_SEEDS is set.
// No flip costs more than the frame it is in.
func TestBitFlips(t *testing.T) {
	stats := map[string]int{}
	stride := int64(5)
	if os.Getenv("SPOOL_SEEDS") != "" {
		stride = 1
	}
	if err := flipBits(newWorld(5), stride, stats); err != nil {
		t.Fatal(err)
	}
	t.Log(stats)
	for _, what := range []string{"unreadable", "undefined", "batch", "commit", "checkpoint", "padding"} {
		if stats[what] == 0 {
			t.Errorf("no flip hit: %s", what)
		}
	}
}

func flipBits(w *world, stride int64, stats map[string]int) error {
	mem := vfs.NewMem()
	if err := w.open(mem); err != nil {
		return err
	}
	for range 6 {
		if err := w.step(); err != nil {
			return err
		}
	}
	if err := errors.Join(w.sync(), w.deliver(1), w.sync(), w.readLines(), w.sync()); err != nil {
		return err
	}
	// What is durable says so only in a later frame: the last group may be taken
	// for one that a crash tore.
	durable := w.log.durable
	if _, err := w.log.Append(nil, nil, nil); err != nil {
		return err
	}
	if err := w.log.Sync(); err != nil {
		return err
	}
	for _, s := range w.log.segments {
		frames, err := w.framesOf(s)
		if err != nil {
			return err
		}
		for at := int64(0); at < s.end; at += stride {
			i := slices.IndexFunc(frames, func(fr frame) bool { return at < fr.end() })
			if err := w.flipAndLive(mem, s, at, &frames[i], durable, stats); err != nil {
				return fmt.Errorf("segment %d, byte %d: %w", s.number, at, err)
			}
		}
	}
	return w.close()
}

func (w *world) framesOf(s *segment) (frames []frame, err error) {
	f, err := w.log.fs.OpenFile(w.log.path(s.name()), vfs.Read)
	if err != nil {
		return nil, err
	}
	sc := scanner{file: f, seed: s.seed}
	for fr := range sc.frames(0, s.end) {
		frames = append(frames, *fr)
	}
	return frames, f.Close()
}

// flipAndLive turns a bit of the byte at, which is in the frame fr, in what a
// death of the process leaves now, and goes on from there.
func (w *world) flipAndLive(mem *vfs.Mem, s *segment, at int64, fr *frame, durable position, stats map[string]int) error {
	before := w
	crashed := mem.Kill()
	bit := at*8 + at%8
	if err := flip(crashed, w.log.path(s.name()), bit); err != nil {
		return err
	}
	w = newWorld(uint64(bit))
	w.without = before.without
	w.now, w.broker, w.stats = before.now.clone(), before.broker.clone(), stats
	everAt := map[laneIndex][]string{}
	w.remember(everAt)
	unreadable := stats["unreadable"]
	err := w.adopt(crashed, everAt)
	if errors.Is(err, errUndefined) && fr.kind != kindBatch {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.sameBut(before, s, at, fr, durable, stats["unreadable"]-unreadable); err != nil {
		return err
	}
	for range 2 {
		if err := w.step(); err != nil {
			return err
		}
	}
	if lost := w.lostFor(everAt); len(lost) > 0 {
		return fmt.Errorf("lost: %v", lost)
	}
	return w.close()
}

func (w *world) sameCursors(other *world) bool {
	for id := uint64(1); id <= sourceCount; id++ {
		if w.now.cursors[id] != other.now.cursors[id] {
			return false
		}
	}
	return true
}

// sameBut compares with what was there before byte at went bad: only the frame
// that it is in may be missing.
func (w *world) sameBut(before *world, s *segment, at int64, fr *frame, durable position, unreadable int) error {
	if !(position{s.number, fr.at}).less(durable) {
		return nil // cannot be told from a tear
	}
	what, gone := "padding", 0
	if at < fr.at+fr.headerBytes()+int64(fr.payloadBytes) {
		switch what = "checkpoint"; fr.kind {
		case kindBatch:
			what, gone = "batch", 1
		case kindCommit:
			what = "commit"
		}
	}
	w.stats[what]++
	live := func(w *world) (n int) {
		for _, l := range w.now.lanes {
			n += len(l.live())
		}
		return n
	}
	switch was, is := live(before), live(w); {
	case is < was-gone || what != "commit" && what != "checkpoint" && is > was:
		return fmt.Errorf("a %s is bad: %d batches wait, before there were %d", what, is, was)
	case (what == "batch" || what == "padding") && !before.sameCursors(w):
		return fmt.Errorf("a %s is bad: files are read to %v, before to %v", what, w.now.cursors, before.now.cursors)
	case unreadable > gone:
		return fmt.Errorf("a %s is bad and %d batches cannot be read", what, unreadable)
	}
	return nil
}
