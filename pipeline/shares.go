package pipeline

import (
	"slices"
	"sync/atomic"
	"time"

	"shipper/spool"
)

// intake is what the stages share of one source block. The committer writes it,
// readers look at paused before they read a file.
type intake struct {
	paused     atomic.Bool  // its lines find no room in the spool: its files are left alone
	kept       int64        // bytes of the spool that are its own; never changes
	longest    int64        // bytes that one line takes there at most; never changes
	spoolBytes atomic.Int64 // its lines in the spool that are still to be sent, about
	delivered  atomic.Bool  // lines of it have been in the spool
	timesMoved atomic.Int64 // when it was told that times of its records are out of bounds, in ns since the start; 0: never
}

// findsRoom tells whether a batch that is made now gets into the spool: nothing of
// the block waits there, and there is its part, or its turn, to come.
func (x *intake) findsRoom() bool {
	return x.spoolBytes.Load() == 0 && (x.kept >= x.longest || x.delivered.Load())
}

// shares divides a spool among source blocks, so that one of them that floods
// it while Kafka is away does not keep the lines of the others out. Each block
// has a part that is kept for it whatever the others write; what is left over
// is for whoever comes first. It decides only; the committer measures.
//
// Readers make no group larger than half a part (room.within), but a line may be
// longer than that. So one block at a time has a turn: all of whose lines were
// delivered may write one such line beyond its part, into room kept for that. A
// block that never delivered any has none: it would keep the turn for ever if its
// topic does not exist.
type shares struct {
	kept      []int64 // by block: bytes that are its own
	used      []int64 // by block: bytes in the spool that are still to be sent
	delivered []bool  // by block: lines of it have been in the spool
	room      int64   // bytes that the spool still takes, of anybody
	most      int64   // bytes of all blocks together that leave room for what healthy ones write and get acked
	turn      int64   // bytes kept for the block whose turn it is
	turnOf    int     // that block; -1: none
}

// autoShare is the part of what no block has claimed that is kept for the
// blocks without a claim, in equal parts; the rest is for all.
const autoShare = 2

// newShares divides spoolBytes; percent is by block, 0: no claim. longest is what
// a line of the block takes at most.
func newShares(percent []int, longest []int64, spoolBytes int64) *shares {
	s := &shares{used: make([]int64, len(percent)), delivered: make([]bool, len(percent)), most: spoolBytes, turnOf: -1}
	s.kept = parts(percent, spoolBytes)
	for i, n := range longest {
		if n > s.kept[i] {
			s.turn = max(s.turn, n)
		}
	}
	if s.turn > 0 {
		s.turn = min(s.turn, spoolBytes/2)
		s.kept = parts(percent, spoolBytes-s.turn)
	}
	return s
}

func parts(percent []int, spoolBytes int64) []int64 {
	claimed, unclaimed := 0, 0
	for _, p := range percent {
		claimed += p
		if p == 0 {
			unclaimed++
		}
	}
	kept := make([]int64, len(percent))
	for i, p := range percent {
		kept[i] = spoolBytes / 100 * int64(p)
		if p == 0 {
			kept[i] = spoolBytes / 100 * int64(max(0, 100-claimed)) / int64(autoShare*unclaimed)
		}
	}
	return kept
}

// fits tells whether n more bytes of a block leave the others what is theirs.
func (s *shares) fits(block int, n int64) bool {
	return s.used[block]+n <= s.kept[block] || s.free(block, n) ||
		s.turnFree() && s.used[block] == 0 && s.delivered[block] && n <= s.turn
}

// free tells whether n more bytes of a block are nobody's.
func (s *shares) free(block int, n int64) bool {
	others, used := int64(0), int64(0)
	if s.turnFree() {
		others += s.turn
	}
	for i := range s.kept {
		used += s.used[i]
		if i != block {
			others += max(0, s.kept[i]-s.used[i])
		}
	}
	return n+others <= s.room && used+n+others <= s.most
}

func (s *shares) turnFree() bool { return s.turnOf < 0 || s.used[s.turnOf] <= s.kept[s.turnOf] }

// took counts what a block wrote that fitted.
func (s *shares) took(block int, n int64) {
	if s.turnFree() {
		s.turnOf = -1
	}
	if s.used[block]+n > s.kept[block] && !s.free(block, n) {
		s.turnOf = block
	}
	s.used[block] += n
	s.room -= n
}

// inUse tells whether there is anything in the spool that is still to be sent.
func (s *shares) inUse() bool { return slices.Max(s.used) > 0 }

// measure starts anew with the bytes that the spool takes; the caller adds up
// what is used.
func (s *shares) measure(room int64) {
	s.room = room
	clear(s.used)
}

const (
	measureInterval = time.Second           // of what the spool holds, while there is room
	measurePause    = 40 * time.Millisecond // when a block seems to have none
)

// ownBytes is what is kept for the source of gap records, if an equal part is not less: some
// thousands of them. What finds no room waits in the ledger, which it tails.
const ownBytes = 1 << 20

// dividedSpool divides what of a spool can hold lines of lanes that are stuck, while
// others go on, among the sources: not what is kept to heal, the spares, the two
// newest segments, which may hold nothing of theirs, and the next one. Groups do not
// span segments, so of what is promised a quarter is left out of account.
//
// One source beside that of gap records has all that the spool takes but the part of
// these, as it has alone.
func dividedSpool(cfg *Config, bytesMax, segmentBytes int64) *shares {
	var percent []int
	var longest []int64
	var own []int // their places
	most := max(0, bytesMax-min(cfg.Spool.RetainAckedBytes, bytesMax/4)-5*segmentBytes)
	part := min(ownBytes, most/4*3/int64(len(cfg.Sources)))
	for i := range cfg.Sources {
		s := &cfg.Sources[i]
		if s.Own {
			own, part = append(own, i), max(part, s.longest())
			continue
		}
		percent, longest = append(percent, s.SpoolShare), append(longest, s.longest())
	}
	alone := len(percent) == 1
	if alone {
		percent, longest = []int{100}, nil
	}
	s := newShares(percent, longest, most/4*3-part*int64(len(own)))
	if s.most = most; alone {
		s.most = bytesMax
	}
	for _, i := range own {
		s.kept = slices.Insert(s.kept, i, part)
		s.used, s.delivered = append(s.used, 0), append(s.delivered, false)
	}
	return s
}

// KeptBytes tells what of a spool as plan says is kept for each source.
func KeptBytes(cfg *Config, plan *spool.Plan) []int64 {
	if len(cfg.Sources) == 1 {
		return []int64{plan.MaxBytes} // no share to keep to
	}
	all := *cfg
	all.Sources = slices.Concat(cfg.Sources, gapSource(cfg))
	return dividedSpool(&all, plan.MaxBytes, plan.SegmentBytes).kept[:len(cfg.Sources)]
}
