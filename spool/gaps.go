package spool

import "slices"

// Gaps that nobody outside was told of. Every gap gets a number when its commit
// is applied and stays in the state, and so in every checkpoint, until the
// caller says that it is written where people look: see Log.Untold and Log.Told.
// A crash anywhere leaves each gap told at least once, twice under one number at
// worst.

// UntoldGap is a gap with its number, and with what its lane or source was
// called when it was made.
type UntoldGap struct {
	Number             uint64 // grows; of two gaps of a spool none has the other's
	Block, Topic, Path string // Path: of a source
	Gap
}

// untoldMax bounds the list: beyond it, gaps of one reason are folded.
const untoldMax = 1024

// Untold lists the gaps that Told has not named, ascending; after a Sync all of
// them are durable. The slice is valid until the next call that changes the log.
// What is listed may be written down from now on and grows no more, which the
// next commit says too: one number must not name two ranges.
func (l *Log) Untold() []UntoldGap {
	if len(l.state.untold) > 0 && l.state.gapSealed < l.state.gapNext {
		l.state.gapSealed = l.state.gapNext
		l.gapsMoved = true
	}
	return l.state.untold
}

// Told says that all gaps with numbers below next are written elsewhere, durably.
// The next commit says so; until that is durable a restart lists them again.
func (l *Log) Told(next uint64) {
	l.state.setTold(next, 0, 0)
	l.gapsMoved = true
}

// setTold forgets what was told. next raises the number of the next gap, should
// a damaged commit have taken numbers; gaps below sealed grow no more.
func (s *state) setTold(told, next, sealed uint64) {
	s.untold = slices.DeleteFunc(s.untold, func(u UntoldGap) bool { return u.Number < told })
	s.told, s.gapNext, s.gapSealed = max(s.told, told), max(s.gapNext, next, told), max(s.gapSealed, sealed)
}

// noteGap lists a gap, as one with that before it if it goes on where it ended
// and nobody was told of it.
func (s *state) noteGap(g Gap) {
	u := UntoldGap{Number: s.gapNext, Gap: g}
	if src := s.sources[g.Source]; src != nil && g.Source != 0 {
		u.Block, u.Path, u.Lane = src.Block, src.Path, src.Lane
	}
	if l := s.lanes[u.Lane]; l != nil {
		u.Block, u.Topic = l.Block, l.Topic
	}
	for i := len(s.untold) - 1; i >= 0 && s.untold[i].Number >= s.gapSealed; i-- {
		if s.untold[i].extend(&u) {
			return
		}
	}
	if len(s.untold) >= untoldMax {
		s.foldGaps()
	}
	s.untold = append(s.untold, u)
	s.gapNext++
}

// extend takes next into u if it is of the same kind and begins where u ends.
func (u *UntoldGap) extend(next *UntoldGap) bool {
	if u.Reason != next.Reason || u.Lane != next.Lane || u.Source != next.Source || u.DeadLetter != "" || next.DeadLetter != "" {
		return false
	}
	ofSource := u.Source != 0 && u.From == u.To && next.From == next.To && u.ToByte == next.FromByte
	ofLane := u.Source == 0 && u.From < u.To && u.To == next.From
	if !ofSource && !ofLane {
		return false
	}
	u.ToByte, u.Records = next.ToByte, u.Records+next.Records
	if ofLane {
		u.To = next.To
	}
	return true
}

// foldGaps makes room for one more when nobody could be told for long: the two
// oldest gaps of one reason become one, with the sum of their records and what
// they have in common.
func (s *state) foldGaps() {
	var first [256]int // by reason, from 1
	for i := range s.untold {
		b := &s.untold[i]
		at := first[b.Reason]
		if at == 0 {
			first[b.Reason] = i + 1
			continue
		}
		a := &s.untold[at-1]
		sum := UntoldGap{Number: a.Number, Gap: Gap{Records: a.Records + b.Records, Reason: a.Reason}}
		if a.Block == b.Block {
			sum.Block = a.Block
		}
		if a.Topic == b.Topic {
			sum.Topic = a.Topic
		}
		*a = sum
		s.untold = slices.Delete(s.untold, i, i+1)
		return
	}
}

// appendGaps writes the list into a checkpoint.
func (s *state) appendGaps(e *encoder) {
	e.begin(entryGaps)
	e.uint(s.told)
	e.uint(s.gapNext)
	e.uint(s.gapSealed)
	e.end()
	for i := range s.untold {
		u := &s.untold[i]
		e.begin(entryUntold)
		e.uint(u.Number)
		e.string(u.Block)
		e.string(u.Topic)
		e.string(u.Path)
		e.gapBody(&u.Gap)
		e.end()
	}
}

func (d *decoder) untold() UntoldGap {
	return UntoldGap{Number: d.uint(), Block: d.string(), Topic: d.string(), Path: d.string(), Gap: d.gap()}
}

// replayGaps reads one of this file's entries; before the checkpoint's own list
// its gaps were noted as if they were new.
func (s *state) replayGaps(kind entryKind, d *decoder) {
	switch kind {
	case entryTold:
		if told, next, sealed := d.uint(), d.uint(), d.more(); d.err == nil {
			s.setTold(told, next, sealed)
		}
	case entryGaps:
		if told, next, sealed := d.uint(), d.uint(), d.more(); d.err == nil {
			s.told, s.gapNext, s.gapSealed, s.untold = told, next, sealed, nil
		}
	case entryUntold:
		if u := d.untold(); d.err == nil && len(s.untold) < untoldMax {
			s.untold = append(s.untold, u)
		}
	}
}
