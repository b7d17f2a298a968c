package pipeline

import (
	"sync/atomic"
	"time"
)

// intake is what the stages share of one source block. The committer writes it,
// readers look at paused before they read a file.
type intake struct {
	paused     atomic.Bool  // its lines find no room in the spool: its files are left alone
	kept       int64        // bytes of the spool that are its own; never changes
	spoolBytes atomic.Int64 // its lines in the spool that are still to be sent, about
	timesMoved atomic.Int64 // when it was told that times of its records are out of bounds, in ns since the start; 0: never
}

// shares divides a spool among source blocks, so that one of them that floods
// it while Kafka is away does not keep the lines of the others out. Each block
// has a part that is kept for it whatever the others write; what is left over
// is for whoever comes first. It decides only; the committer measures.
type shares struct {
	kept []int64 // by block: bytes that are its own
	used []int64 // by block: bytes in the spool that are still to be sent
	room int64   // bytes that the spool still takes, of anybody
	idle int64   // of room, what blocks beyond their part leave for segments that stay although all in them is acked
}

// autoShare is the part of what no block has claimed that is kept for the
// blocks without a claim, in equal parts; the rest is for all.
const autoShare = 2

// newShares divides spoolBytes; percent is by block, 0: no claim.
func newShares(percent []int, spoolBytes int64) *shares {
	s := &shares{kept: make([]int64, len(percent)), used: make([]int64, len(percent))}
	claimed, unclaimed := 0, 0
	for _, p := range percent {
		claimed += p
		if p == 0 {
			unclaimed++
		}
	}
	for i, p := range percent {
		s.kept[i] = spoolBytes / 100 * int64(p)
		if p == 0 {
			s.kept[i] = spoolBytes / 100 * int64(max(0, 100-claimed)) / int64(autoShare*unclaimed)
		}
	}
	return s
}

// fits tells whether n more bytes of a block leave the others what is theirs.
func (s *shares) fits(block int, n int64) bool {
	if s.used[block]+n <= s.kept[block] {
		return true
	}
	others := s.idle
	for i := range s.kept {
		if i != block {
			others += max(0, s.kept[i]-s.used[i])
		}
	}
	return s.room-n >= others
}

// took counts what a block wrote; measured starts anew from what the spool says.
func (s *shares) took(block int, n int64) {
	s.used[block] += n
	s.room -= n
}

const (
	measureInterval = time.Second            // of what the spool holds, while there is room
	measurePause    = 100 * time.Millisecond // when a block seems to have none
)

// sharedBytes is what of a spool can hold lines: not the segments kept to heal,
// the spares and the one that is open.
func sharedBytes(bytesMax, retainBytes, segmentBytes int64) int64 {
	return max(0, bytesMax-min(retainBytes, bytesMax/4)-3*segmentBytes) / 4 * 3
}
