package pipeline

import (
	"time"

	"shipper/pipeline/record"
	"shipper/tail"
)

// Records of a container's log that were begun in a file that was rotated since, and end in the file that took its place, or in one
// behind that. The files are a chain and looked at as one. A record is in one batch with the cursors of all of them: a crash leaves
// them all before it or all behind it.
//
//	head ...P | next ...P | ...F ...     one turn of head reads to here, and the others wait for it
//
// Which file took whose place tail knows (Follows). Where it does not, or where the head's copy has no end, there is no chain: what
// is unfinished ends by its time.

// chain is the place of a file between those before and behind it, as far as they are in this reader's hands.
type chain struct {
	prev, next *openFile
}

// link puts a file that comes into the reader's hands behind the one whose place it took.
func (r *reader) link(of *openFile) {
	if of.stream == nil || of.f.Cursor().Offset > 0 {
		return
	}
	for _, older := range r.files {
		if older.feed == of.feed && of.f.Follows(older.f) {
			older.unlinkNext()
			of.prev, older.next = older, of
			return
		}
	}
}

func (of *openFile) unlinkNext() {
	if of.next != nil {
		of.next.prev, of.next = nil, nil
	}
}

// heads tells whether the file ends in a record that may go on in the next one.
func (of *openFile) heads() bool { return of.partial && of.next != nil && !of.next.begun }

// head is the file with whose turn this one is looked at; nil: it has a turn of its own.
func (of *openFile) head() *openFile {
	p := of.prev
	switch {
	case p == nil || of.begun:
		return nil
	case !p.begun:
		return p.head()
	case p.heads():
		return p
	}
	return nil
}

// join is a look at the files of a chain.
type join struct {
	files []*openFile
	stuck bool // a file cannot be read on now, and it is not known what follows
	waits bool // since another one is being unpacked
}

// turnJoined is turnRecords for the head of a chain: it takes the records that begin in it.
func (r *reader) turnJoined(head *openFile, now time.Time) (blocked bool) {
	head.more = false
	if now.Before(head.paused) {
		return false
	}
	j := r.beginJoin(head, now)
	if j == nil {
		return r.turnRecords(head, now)
	}
	s := head.stream
	r.scratch.join = j
	stopped := !r.takeRecords(head, s, now)
	for of := head.next; of != nil && !stopped && !j.stuck && s.Joining(); of = of.next {
		var ended bool
		if stopped, ended = r.joinNext(j, of, now); !ended {
			break
		}
	}
	if !stopped && !j.stuck && s.Joining() {
		s.End(now)
		stopped = !r.takeRecords(head, s, now)
	}
	j.hold()
	r.scratch.join = nil
	r.endJoin(j, now)
	if head.due, head.paused, head.partial = s.Due(), s.Paused(), s.Joining(); !head.partial {
		head.due = time.Time{} // that was about what is in the next file
	}
	if j.waits {
		head.due, head.paused = time.Time{}, now.Add(unpackPause)
	}
	head.more = head.more || stopped && head.paused.IsZero()
	return stopped && head.paused.IsZero()
}

// beginJoin reads the end of a chain's head. nil: that is not as it was seen, or a line has no end there, which is one of its own.
func (r *reader) beginJoin(head *openFile, now time.Time) *join {
	head.f.Reread()
	n, st, err := head.f.Fill(make([]byte, head.pending+tail.FillBytesMin), now)
	if st.Truncated {
		r.forget(head, now)
	}
	if err != nil || n == 0 || n != head.pending || !st.EOF {
		head.f.Unfill()
		head.f.Reread()
		return nil
	}
	at := head.f.Cursor()
	head.f.Keep()
	end := at.Offset
	head.stream.SetPath(head.f.Path())
	head.stream.Begin(&r.scratch.record, nil, 0, record.Place{Offset: at.Offset, Part: at.Part, Note: at.Note})
	for line, ok := head.f.Next(); ok; line, ok = head.f.Next() {
		head.stream.Line(recordLine(line))
		end = line.End
	}
	if end < at.Offset+int64(n) {
		head.f.Hold(at.Offset, at.Part, at.Note)
		head.f.Done()
		head.f.Reread()
		return nil
	}
	return &join{files: []*openFile{head}}
}

// joinNext gives the next file's lines to the head's stream, until nothing of the head is left. ended: nothing can follow in this file
// but in those behind it.
func (r *reader) joinNext(j *join, of *openFile, now time.Time) (stopped, ended bool) {
	last := j.files[len(j.files)-1]
	buf := r.block
	if len(j.files) > 1 {
		buf = make([]byte, len(r.block)) // that is another file's
	}
	of.more = false
	of.f.Reread()
	n, st, err := of.f.Fill(buf, now)
	if st.Waits {
		j.stuck, j.waits = true, true
		return false, false
	}
	if err != nil || st.NeedBytes > len(buf) || n == 0 && !st.EOF || last.f.Grew() {
		// What was written to the last one after it was read comes before what was written to this one.
		if err != nil {
			r.log.Warn("cannot read a file", "path", of.f.Path(), "error", err)
		}
		if st.NeedBytes > len(r.block) {
			r.block = make([]byte, st.NeedBytes)
		}
		of.f.Unfill()
		j.stuck, j.files[0].more = err == nil, err == nil
		return false, false
	}
	if n > of.pending {
		of.grewAt = now
		r.stats.bytes.Add(uint64(n - of.pending))
	}
	over := !of.f.EndMissing() // if there is a file behind it, nothing is written to this one any more
	if n == 0 {
		return false, over
	}
	s, at := j.files[0].stream, of.f.Cursor()
	of.f.Keep()
	j.files = append(j.files, of)
	shift, end := s.Join(at.Note), at.Offset
	for !stopped && s.Joining() {
		line, ok := of.f.Next()
		if !ok {
			break
		}
		end = line.End
		l := recordLine(line)
		l.Offset, l.End = l.Offset+shift, l.End+shift
		s.Line(l)
		stopped = !r.takeRecords(of, s, now)
	}
	switch window := windowBytes(r.source(of)); {
	case stopped || !s.Joining():
	case s.Bytes() >= window || !st.EOF && len(r.block) >= window:
		s.Force()
		stopped = !r.takeRecords(of, s, now)
	case !st.EOF:
		r.block = make([]byte, min(2*len(r.block), window))
		j.stuck, j.files[0].more = true, true
	default:
		return false, over && end == at.Offset+int64(n)
	}
	return stopped, false
}

// hold moves the places of all files to what was not taken.
func (j *join) hold() {
	s := j.files[0].stream
	for i, of := range j.files {
		if p, held := s.PlaceIn(i); held {
			of.f.Hold(p.Offset, p.Part, p.Note)
		} else {
			of.f.HoldHere(p.Note)
		}
	}
}

// endJoin lets the files go on by themselves from where the head's records end.
func (r *reader) endJoin(j *join, now time.Time) {
	head := j.files[0]
	done := !head.stream.Joining()
	if done {
		head.stream.Forget()
	}
	for i, of := range j.files {
		c := of.f.Cursor()
		if of.reached = c.Offset; c != of.cursor {
			r.touch(of, now)
		}
		of.pending = of.f.Done()
		if i > 0 && done {
			of.begun = of.begun || i == 1 || c.Offset > 0
			of.f.Reread() // what is behind the record was filled already, and nothing new may follow
			of.more = true
		}
	}
	r.publish(head.feed.block)
	r.sealCrowd(head.feed)
}
