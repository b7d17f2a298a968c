package pipeline

import (
	"fmt"
	"sync/atomic"
	"time"

	"shipper/pipeline/record"
	"shipper/sink/kafka"
	"shipper/tail"
)

// Sources whose lines do not become records as they are: package record decides,
// this file reads for it.
//
//	files --Fill--> block --Next--> line --Stream--> record --Append--> open batch
//
// The file's place stays before the oldest record that was not appended, and the
// next turn reads from there again: what is unfinished is held nowhere else. A
// crash leaves nothing of it either, since cursors are taken at that place.

// recordState is what an openFile has beside, if its source has a format.
type recordState struct {
	stream  *record.Stream
	pending int       // bytes behind the place, as last seen
	due     time.Time // when an unfinished record ends though nothing follows; zero: none is unfinished
	paused  time.Time // a rate limit, or the unpacking of another file, holds it back until then
	begun   bool      // it does not wait for the file before it
	endAt   time.Time // when all that there was of it had been looked at; zero: not yet
	partial bool      // what is unfinished may go on in the file behind it
	chain
}

// reasonCounts are record.Counts that anyone may read.
type reasonCounts [len(record.Counts{})]atomic.Uint64

// scratch is what the streams of a reader share.
type scratch struct {
	record  record.Scratch
	headers []kafka.RecordHeader
	taken   uint64 // records
	join    *join  // files that are looked at as one
}

// waits says that the file has something unfinished or held back, for which it
// must be looked at again although nothing follows.
func (of *openFile) waits() bool { return !of.due.IsZero() || !of.paused.IsZero() }

// giveWay lets other copies be unpacked in place of one that may not be read, for want of room downstream or since its lane waits.
func (of *openFile) giveWay(stuck bool, now time.Time) {
	switch {
	case !stuck || !of.f.Unpacks():
		of.stuck = time.Time{}
	case of.stuck.IsZero():
		of.stuck = now
	case now.Sub(of.stuck) >= giveWayAfter:
		of.f.GiveWay()
	}
}

// pauseEnds says that a rate limit held the file back and does not any more.
func (of *openFile) pauseEnds(now time.Time) bool {
	return !of.paused.IsZero() && !now.Before(of.paused)
}

// recordEnds says that an unfinished record ends by now, and was not looked at since. If it cannot be taken then, the
// file has its next turn with the others.
func (of *openFile) recordEnds(now time.Time) bool {
	return of.readAt.Before(of.due) && !now.Before(of.due)
}

// isHeldBack says that nothing of the file was taken yet, since the one before it may end with a record that goes on in it. Those
// behind it wait too.
func (of *openFile) isHeldBack() bool { return of.stream != nil && !of.begun }

// mustWait says that a file is not begun yet: the one before it at its path ends with a record that may go on there, or is still to be
// ended by its time. What only looks like a rotation, two files that are both written to, must not wait for ever.
func (r *reader) mustWait(of *openFile, now time.Time) bool {
	if !of.isHeldBack() {
		return false
	}
	if of.head() != nil {
		of.line.unread = r.round
	}
	if of.line.unread == r.round {
		return true // how the one before it ends is not known yet
	}
	of.begun = of.line.waits != r.round || now.Sub(of.line.waiting.heldSince(of)) > r.source(of).format.Timeout()+2*pollInterval
	of.more = of.more && of.begun
	return !of.begun
}

// heldSince is when a younger file began to wait for this one. Of many generations that are found together each has its time. What
// only looks like a rotation, two files that are both written to, has none beside the others: it grows.
func (of *openFile) heldSince(younger *openFile) time.Time {
	if of.grewAt.After(of.endAt) || of.endAt.Before(younger.grewAt) {
		return younger.grewAt
	}
	return of.endAt
}

// turnRecords is turn for a file with a stream.
func (r *reader) turnRecords(of *openFile, now time.Time) (blocked bool) {
	of.more = false
	if now.Before(of.paused) {
		return false
	}
	if !of.paused.IsZero() || !of.due.IsZero() && !now.Before(of.due) || of.f.RestDue(now) {
		of.f.Reread()
	}
	of.paused = time.Time{}
	of.stream.SetPath(of.f.Path())
	for left := turnBytesMax; ; {
		n, st, err := of.f.Fill(r.block, now)
		if err != nil {
			r.cannotRead(of, err, now)
			return false
		}
		if st.Waits {
			of.paused = now.Add(unpackPause)
			return false
		}
		of.hurry = of.hurry || st.Truncated || st.Shrunk || st.Gone && st.EOF
		if st.EOF && of.endAt.IsZero() {
			of.endAt = now
		}
		if st.NeedBytes > len(r.block) {
			r.block = make([]byte, st.NeedBytes)
			continue
		}
		if st.Truncated {
			r.forget(of, now)
		}
		if n == 0 {
			of.more = !st.EOF // in the middle of a hole
			return false
		}
		if n > of.pending {
			of.grewAt = now
			r.stats.bytes.Add(uint64(n - of.pending))
		}
		grow := false
		if blocked, grow = r.lookAt(of, st, now); grow {
			r.block = make([]byte, min(2*len(r.block), windowBytes(r.source(of))))
			continue
		}
		of.more = blocked
		of.reached = of.f.Cursor().Offset
		if _, c := of.f.Place(); c != of.cursor {
			r.touch(of, now)
			r.sealCrowd(of.feed)
		}
		if left -= n - of.pending; blocked || st.EOF || !of.paused.IsZero() {
			return blocked
		}
		if left <= 0 {
			of.more = true
			return false
		}
	}
}

// forget is for a file whose content was replaced.
func (r *reader) forget(of *openFile, now time.Time) {
	of.endSpan()
	of.stream.Forget()
	of.pending, of.partial = 0, false
	r.touch(of, now)
}

// windowBytes is how large a block may grow to finish a record in it.
func windowBytes(s *Source) int { return s.format.WindowBytesMax() + tail.FillBytesMin }

// lookAt makes records of what is filled, and takes them. grow: one is unfinished
// and a larger block may hold all of it.
func (r *reader) lookAt(of *openFile, st tail.Status, now time.Time) (blocked, grow bool) {
	s, at := of.stream, of.f.Cursor()
	block, from := of.f.Keep()
	s.Begin(&r.scratch.record, block, from, record.Place{Offset: at.Offset, Part: at.Part, Note: at.Note})
	stopped := false // by the budget or a rate limit
	for !stopped {
		line, ok := of.f.Next()
		if !ok {
			break
		}
		s.Line(recordLine(line))
		stopped = !r.takeRecords(of, s, now)
	}
	if !stopped {
		switch {
		case st.EOF:
			if line, ok := of.f.Rest(now); ok {
				s.Line(recordLine(line))
			}
			if s.End(now); of.f.Ended() && !r.source(of).joins() {
				s.Close() // nothing is added to it, and it goes on nowhere else
			}
		case s.Stuck():
			if grow = len(r.block) < windowBytes(r.source(of)); !grow {
				s.Force()
			}
		}
		stopped = !r.takeRecords(of, s, now)
	}
	of.due, of.paused, of.partial = s.Due(), s.Paused(), s.Unfinished() && !of.f.EndMissing()
	if st.EOF && !stopped {
		s.Rest()
	}
	r.hold(of)
	if of.pending = of.f.Done(); stopped {
		of.f.Reread() // it was filled already, and nothing new may follow: the file is not at its end
	}
	r.publish(of.feed.block)
	return stopped && of.paused.IsZero(), grow
}

func recordLine(l tail.Line) record.Line {
	return record.Line{Bytes: l.Bytes, Offset: l.Offset, End: l.End, Part: l.Part, Cut: l.Cut}
}

// hold moves the file's place to the oldest record that was not taken.
func (r *reader) hold(of *openFile) {
	if r.scratch.join != nil {
		r.scratch.join.hold()
		return
	}
	if p, held := of.stream.Place(); held {
		of.f.Hold(p.Offset, p.Part, p.Note)
	} else {
		of.f.HoldHere(p.Note)
	}
}

// takeRecords appends the records that are ready. False: the budget is empty, or
// a rate limit holds them back.
func (r *reader) takeRecords(of *openFile, s *record.Stream, now time.Time) bool {
	for {
		rec, ok := s.Peek(now)
		if !ok {
			return s.Paused().IsZero()
		}
		headers := r.scratch.headers[:0]
		for i := range rec.Headers {
			headers = append(headers, kafka.RecordHeader{Key: rec.Headers[i].Name, Value: rec.Headers[i].Value})
		}
		r.scratch.headers = headers
		ol := r.laneOf(of, rec.Key, rec.HasKey)
		if ol == nil {
			r.hold(of)
			r.sealFull(of)
			continue
		}
		if n := len(rec.Value) + kafka.HeadersBytesMax(headers); !ol.builder.Fits(len(rec.Key), n) {
			r.hold(of)
			if !r.room(of, ol, len(rec.Key)+n) {
				return false
			}
			continue
		}
		ol.builder.AppendHeaders(rec.TimeMs, rec.Key, rec.Value, rec.HasKey, headers)
		s.Take()
		r.scratch.taken++
		if j := r.scratch.join; j != nil {
			for _, of := range j.files { // their cursors go with the batch that this record is in
				r.touch(of, now)
			}
		}
		of.lines++
	}
}

// timesMovedPause is the least between two warnings of one source.
const timesMovedPause = time.Hour

// tellTimesMoved warns of n records, once for all readers.
func (r *reader) tellTimesMoved(block int, n uint64) {
	told, now := &r.intakes[block].timesMoved, int64(time.Since(r.start))
	last := told.Load()
	if last > 0 && now-last < int64(timesMovedPause) || !told.CompareAndSwap(last, now) {
		return
	}
	s := &r.cfg.Sources[block]
	r.log.Warn("records tell times outside timestamp.max_age and max_ahead of their source; they get another time, and keep theirs in the header original_time",
		"source", s.Name, "guard", s.Record.Timestamp.Guard, "records", n, "told_again_after", timesMovedPause)
}

// publish makes what was counted visible.
func (r *reader) publish(block int) {
	if n := r.scratch.record.Counts[record.TimeClamped]; n > 0 {
		r.tellTimesMoved(block, n)
	}
	for i, n := range r.scratch.record.Counts {
		if n > 0 {
			r.reasons[block][i].Add(n)
		}
	}
	clear(r.scratch.record.Counts[:])
	r.stats.lines.Add(r.scratch.taken)
	r.scratch.taken = 0
}

// recordCounts are the records of each source block that were dropped or
// changed, by reason; blocks without any are left out.
func (a *Agent) recordCounts() map[string]map[string]uint64 {
	out := map[string]map[string]uint64{}
	for _, r := range a.readers {
		for block := range r.reasons {
			for reason := range r.reasons[block] {
				n := r.reasons[block][reason].Load()
				if n == 0 {
					continue
				}
				name := a.cfg.Sources[block].Name
				if out[name] == nil {
					out[name] = map[string]uint64{}
				}
				out[name][record.Reason(reason).String()] += n
			}
		}
	}
	return out
}

// compile makes the source ready to be read.
func (s *Source) compile() error {
	c := s.Record
	c.Source, c.RecordBytesMax, c.Oversize, c.Topic = s.Name, s.LineBytesMax, record.Oversize(oversize(s.Oversize)), s.Topic
	c.UTF8 = s.repairs()
	f, err := record.Compile(c)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.Name, err)
	}
	s.format, s.topics = nil, nil
	if !f.Plain() {
		s.format = f
	}
	if f.TopicIsTemplate() {
		s.topics = f
	}
	return nil
}

// joins tells whether records may go on in the next generation of a file.
func (s *Source) joins() bool { return s.Record.Container != record.NoContainer }

// repairs tells whether what is not UTF-8 is replaced in records, when they are whole, and not line by line: container run times cut
// messages within characters.
func (s *Source) repairs() bool { return s.joins() && s.Encoding == "utf-8" }

// fileEncoding is the encoding of a file's lines.
func (s *Source) fileEncoding() string {
	if s.repairs() {
		return "raw"
	}
	return s.Encoding
}

// topic is where the lines of a file go.
func (s *Source) topic(path string) string {
	if s.topics == nil {
		return s.Topic
	}
	return s.topics.Topic(path)
}

// recordBytesMax is the most bytes of a record: key, value and headers.
func (s *Source) recordBytesMax() int {
	if s.format == nil {
		return s.LineBytesMax
	}
	return s.format.RecordBytesMax()
}
