package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	o := memOptions(fs)
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
		if err := w.adoptBatches(got, lane); err != nil {
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
		for _, line := range h.everAt[laneIndex{uint32(n["lane"]), i}] {
			h.w.counted[lineKey(line)] = true
		}
	}
	return nil
}

var errUndefined = errors.New("a lane is not defined any more")

type laneIndex struct {
	lane  uint32
	index uint64
}

func (w *world) adoptBatches(got LaneState, lane *modelLane) error {
	for _, ref := range got.Batches {
		data, err := w.reader.ReadBatch(nil, ref)
		var damaged *CorruptionError
		if errors.As(err, &damaged) {
			// The sink would drop it when it gets there; here it does at once.
			w.stats["unreadable"]++
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
				for _, line := range everAt[laneIndex{id, i}] {
					w.counted[lineKey(line)] = true
				}
			}
		}
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
// what is recovered: in every third byte, or in every one if SPOOL_SEEDS is set.
func TestBitFlips(t *testing.T) {
	w := newWorld(5)
	mem := vfs.NewMem()
	if err := w.open(mem); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if err := w.step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.sync(), w.deliver(1), w.sync()); err != nil {
		t.Fatal(err)
	}
	names, err := segmentFiles(mem)
	if err != nil {
		t.Fatal(err)
	}
	stats := map[string]int{}
	stride := int64(3)
	if os.Getenv("SPOOL_SEEDS") != "" {
		stride = 1
	}
	for _, name := range names {
		end := w.log.newest().end
		if !strings.HasSuffix(name, w.log.newest().name()) {
			end = w.log.segments[0].end
		}
		for at := int64(0); at < end; at += stride {
			if err := flipAndLive(w, mem, name, at*8+at%8, stats); err != nil {
				t.Fatalf("%s, byte %d: %v", name, at, err)
			}
		}
	}
	t.Log(stats)
	if stats["unreadable"] == 0 || stats["undefined"] == 0 {
		t.Error("no flip hit a payload, or none a definition")
	}
}

func flipAndLive(before *world, mem *vfs.Mem, name string, bit int64, stats map[string]int) error {
	crashed := mem.Kill()
	if err := flip(crashed, name, bit); err != nil {
		return err
	}
	w := newWorld(uint64(bit))
	w.now, w.broker, w.stats = before.now.clone(), before.broker.clone(), stats
	everAt := map[laneIndex][]string{}
	w.remember(everAt)
	err := w.adopt(crashed, everAt)
	if errors.Is(err, errUndefined) {
		return nil
	}
	if err != nil {
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
