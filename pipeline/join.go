package pipeline

import (
	"time"

	"shipper/pipeline/record"
)

// A message of a container that was begun in a file that was rotated since, and
// ends in the file that took its place. It is one record, in one batch with the
// cursors of both files: a crash leaves both before it or both behind it.

// join is two files that are looked at as one.
type join struct {
	older, younger *openFile
	begun          int64 // offset at which the younger one was begun
}

// mayJoin says that the younger file is the one that took the older one's place,
// that nothing of it is read, and that the older one ends inside a message.
func (r *reader) mayJoin(older, younger *openFile) bool {
	name := younger.line.name
	return older.partial && younger.f.Path() == name && (older.gone || older.f.Path() != name) && younger.f.Cursor().Offset == 0 && older.paused.IsZero()
}

// turnJoined reads the end of the older file and the head of the younger one.
// True: nothing of the older one is left, and the younger one goes on by itself.
func (r *reader) turnJoined(older, younger *openFile, now time.Time) bool {
	older.f.Reread()
	tail := make([]byte, windowBytes(r.source(older)))
	n, st, err := older.f.Fill(tail, now)
	if err != nil || n == 0 || !st.EOF || st.Truncated || n > older.pending {
		older.f.Unfill()
		older.f.Reread()
		older.stream.Forget()
		older.pending = 0 // its own turn sees to whatever that was
		return false
	}
	n, st, err = younger.f.Fill(r.block, now)
	if err != nil || n == 0 || st.NeedBytes > len(r.block) {
		if st.NeedBytes > len(r.block) {
			r.block = make([]byte, st.NeedBytes)
		}
		younger.f.Unfill()
		older.f.Unfill()
		return false
	}
	s, at := older.stream, older.f.Cursor()
	older.f.Keep()
	s.Begin(&r.scratch.record, nil, 0, record.Place{Offset: at.Offset, Part: at.Part, Note: at.Note})
	for line, ok := older.f.Next(); ok; line, ok = older.f.Next() {
		s.Line(recordLine(line))
	}
	begun := younger.f.Cursor()
	younger.f.Keep()
	r.scratch.join = &join{older, younger, begun.Offset}
	shift := s.Join(record.Place{Offset: begun.Offset, Note: begun.Note})
	for stopped := false; !stopped && s.Joining(); {
		line, ok := younger.f.Next()
		if !ok {
			break
		}
		l := recordLine(line)
		l.Offset, l.End = l.Offset+shift, l.End+shift
		s.Line(l)
		stopped = !r.takeRecords(younger, s, now)
	}
	r.scratch.join.hold()
	r.scratch.join = nil
	joined := !s.Joining()
	if joined {
		older.due, older.partial = time.Time{}, false
		older.stream.Forget()
	}
	older.pending = older.f.Done()
	younger.pending = younger.f.Done()
	younger.f.Reread() // what is behind the message was filled already, and nothing new may follow
	younger.more = joined
	r.publish(younger.feed.block)
	r.sealCrowd(younger.feed)
	return joined
}

// hold moves the places of both files to what was not taken.
func (j *join) hold() {
	s := j.older.stream
	o, y, held := s.Places(j.begun)
	if s.Joining() {
		j.older.f.Hold(o.Offset, o.Part, o.Note)
	} else {
		j.older.f.HoldHere(0)
	}
	if held {
		j.younger.f.Hold(y.Offset, y.Part, y.Note)
	} else {
		j.younger.f.HoldHere(y.Note)
	}
}
