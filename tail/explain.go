package tail

// What the watcher makes of one path, and of all that the patterns find: for people who ask why a file is read or not.

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Explained is what is known of one path.
type Explained struct {
	Path    string
	Real    string    // where it leads
	Problem string    // why it cannot be looked at; "": it can
	Kind    string    // regular file, directory, FIFO ...
	Dev     uint64    // of what the path leads to
	Ino     uint64    //
	Size    int64     // bytes
	ModTime time.Time //
	Own     bool      // never tailed: the agent's own log or spool
	NoBoot  bool      // when the machine was started cannot be told: a file that a power cut left shorter is read again from its start
	Blocks  []ExplainedBlock
}

// ExplainedBlock is how one source block sees a path.
type ExplainedBlock struct {
	Block   string
	Pattern string    // the first of Paths that matches; "": none does
	Exclude string    // the first of Exclude that matches
	File    *FileView // what is known of the file, by inode, else by path; nil: nothing
	CopyOf  string    // it is not read since it holds nothing but what the file at this path begins with
	Beside  string    // a log beside it that it is named as a rotation of, if it is not known
}

// FileView is one source at a moment.
type FileView struct {
	ID          uint64 // 0: not known to the spool
	Block       string
	WasBlock    string // the block that its cursor was taken over from, if that is gone from the config
	Path        string // where it was seen last
	At          string // the name it has outside the patterns, if it was renamed to one
	Fingerprint Fingerprint
	Size        int64  // bytes
	Offset      int64  // read up to here: behind the last line handed out
	Room        int64  // bytes of Size at its end that are reserved: NULs that its writer fills from the front
	PassedOver  int64  // bytes at its start that were passed over when this run found it (start_at, ignore_older): nobody was sent them
	State       string // in a few words
	Error       string // the last thing that kept it from being read
	ChangedAt   time.Time
	AlsoBlock   string // another block that had read it and finds it no more: what that one sent is sent again
	AlsoOffset  int64  // how far that block was
}

type question struct {
	path   string
	answer chan Explained
}

// Explain asks a running watcher about an absolute path. The error is the end of ctx.
func (w *Watcher) Explain(ctx context.Context, path string) (Explained, error) {
	q := question{path, make(chan Explained, 1)}
	select {
	case w.asked <- q:
	case <-ctx.Done():
		return Explained{}, ctx.Err()
	}
	select {
	case e := <-q.answer:
		return e, nil
	case <-ctx.Done():
		return Explained{}, ctx.Err()
	}
}

// Survey is what a watcher that starts now would find, without reading anything but the bytes that show which file is which.
type Survey struct{ w *Watcher }

type nobodyHandler struct{}

func (nobodyHandler) Open(*File)                     {}
func (nobodyHandler) Began(context.Context, []*File) {}
func (nobodyHandler) Gone(uint64)                    {}
func (nobodyHandler) Lost(uint64, int64, int64)      {}

// NewSurvey makes one full scan.
func NewSurvey(o Options) (*Survey, error) {
	o.NoInotify, o.Logger = true, slog.New(slog.DiscardHandler)
	w, err := NewWatcher(o)
	if err != nil {
		return nil, err
	}
	w.handler = nobodyHandler{}
	w.scan()
	for _, f := range w.waiting {
		f.src.waiting = false // nobody will open it
	}
	return &Survey{w}, nil
}

// Explain is (*Watcher).Explain of what was found.
func (s *Survey) Explain(path string) Explained { return s.w.explain(path) }

// Files lists what the patterns find, by path.
func (s *Survey) Files() []FileView {
	var list []FileView
	for _, f := range s.w.sources {
		if !f.src.missing {
			list = append(list, *s.w.view(f))
		}
	}
	slices.SortFunc(list, func(a, b FileView) int {
		if a.Path != b.Path && a.Path < b.Path || a.Path == b.Path && a.Block < b.Block {
			return -1
		}
		return 1
	})
	return list
}

func (w *Watcher) explain(path string) Explained {
	e := Explained{Path: path, Real: realPath(path), NoBoot: w.bootedAt.Unix() <= 0}
	st, err := statPath(path)
	if err != nil {
		e.Problem = err.Error()
	} else {
		e.Kind, e.Dev, e.Ino, e.Size, e.ModTime = st.kind(), st.dev, st.ino, st.size, time.Unix(0, st.mtime)
		e.Own = w.excluded[key{0, st.dev, st.ino}]
	}
	for i := range w.blocks {
		b := ExplainedBlock{Block: w.blocks[i].Name, Pattern: firstMatch(w.blocks[i].Paths, path), Exclude: firstMatch(w.blocks[i].Exclude, path)}
		if f := w.sourceAt(i, path, st); f != nil {
			b.File = w.view(f)
			if err == nil && w.isShut(f) { // nobody has looked at it but us
				b.File.Size, b.File.ChangedAt = st.size, time.Unix(0, st.mtime)
			}
		} else {
			b.CopyOf = w.copies[key{i, st.dev, st.ino}].of
			b.Beside = w.rotatedFrom(i, path)
		}
		e.Blocks = append(e.Blocks, b)
	}
	return e
}

// rotatedFrom is the path of a log that a block has read from and that path is named as a rotation of; "": there is none.
func (w *Watcher) rotatedFrom(block int, path string) string {
	for _, f := range w.sources {
		if f.src.key.block == block && f.ID() != 0 && parent(f.Path()) == parent(path) && rotationName(f.Path(), path) {
			return f.Path()
		}
	}
	return ""
}

func firstMatch(patterns []string, path string) string {
	i := slices.IndexFunc(patterns, func(p string) bool {
		ok, err := doublestar.Match(cleanSlashes(p), path)
		return ok && err == nil
	})
	if i < 0 {
		return ""
	}
	return patterns[i]
}

// sourceAt is the source of a block that the inode st belongs to, else the youngest that was seen at path.
func (w *Watcher) sourceAt(block int, path string, st fileStat) *File {
	if f := w.sourceOf(block, &st); f != nil {
		return f
	}
	var best *File
	take := func(f *File) {
		if f.src.key.block == block && (f.Path() == path || f.src.at == path || f.src.real == path) && (best == nil || f.ID() > best.ID()) {
			best = f
		}
	}
	for _, f := range w.sources {
		take(f)
	}
	for _, same := range w.strays {
		for _, f := range same {
			take(f)
		}
	}
	return best
}

func (w *Watcher) view(f *File) *FileView {
	s := &f.src
	v := &FileView{ID: f.ID(), Block: w.blocks[s.key.block].Name, WasBlock: s.wasBlock, Path: f.Path(), At: s.at, Size: s.st.size, State: w.stateOf(f), ChangedAt: s.changedAt}
	if v.PassedOver = s.passed; f.offsetSeen() < s.passed {
		v.PassedOver = 0 // it was truncated since
	}
	v.Room = min(f.room.Load(), v.Size)
	v.Offset, v.Fingerprint = f.offsetSeen(), Fingerprint{Dev: s.key.dev, Ino: s.key.ino, Born: s.st.born}
	if !s.out {
		v.Fingerprint = f.Fingerprint()
	}
	if msg := f.failed.Load(); msg != nil {
		v.Error = *msg
	} else {
		v.Error = w.warned[f.Path()]
	}
	if f.ID() == 0 {
		w.viewOthers(f, v)
	}
	return v
}

// offsetSeen is the offset as far as Run may know it.
func (f *File) offsetSeen() int64 {
	if f.src.out {
		return f.readTo.Load()
	}
	return f.cursorOffset()
}

// viewOthers looks for a block that has read a new file before and does not find it any more.
func (w *Watcher) viewOthers(f *File, v *FileView) {
	for i := range w.blocks {
		o := w.sources[key{i, f.src.key.dev, f.src.key.ino}]
		if o != nil && o != f && o.src.missing && o.src.st.is(&f.src.st) && o.offsetSeen() > v.AlsoOffset {
			v.AlsoBlock, v.AlsoOffset = w.blocks[i].Name, o.offsetSeen()
		}
	}
	for _, o := range w.strays[f.src.key.ino] {
		if o.src.unwanted && o.src.key.block != f.src.key.block && bornTogether(o.fp.Born, f.src.st.born) && o.offsetSeen() > v.AlsoOffset {
			v.AlsoBlock, v.AlsoOffset = w.blocks[o.src.key.block].Name, o.offsetSeen()
		}
	}
}

// isShut tells whether f, which the spool knows, may be at its path and could not be opened to see that.
func (w *Watcher) isShut(f *File) bool { return f.src.st.mode == 0 && w.refused.known[f.Path()] }

func (w *Watcher) stateOf(f *File) string {
	s := &f.src
	switch {
	case s.delivered:
		return "read to its end; this compressed file holds it"
	case s.skip != "":
		return "skipped: compressed (" + s.skip + ")"
	case s.unwanted:
		return "not read any more, since no pattern of the source finds it or one excludes it"
	case s.denied || w.isShut(f):
		return "cannot be opened"
	case s.out && s.missing:
		return "being read; no pattern finds it any more"
	case s.out:
		return "being read"
	case s.waiting:
		return "has unread bytes and waits for a file descriptor"
	case s.missing && f.fd >= 0:
		return "followed by its descriptor; no pattern finds it any more"
	case s.missing && s.at != "":
		return "renamed to a name that no pattern finds"
	case s.missing || s.st.mode == 0:
		return "not found"
	case f.ID() == 0:
		return "new"
	}
	return "at rest"
}

// Tells says whether an error of Fill or Flush is news: another one than the last, or one that lasts.
func (f *File) Tells(err error, now time.Time) bool {
	msg := err.Error()
	if msg == f.told && now.Sub(f.toldAt) < tellAgainAfter {
		return false
	}
	f.told, f.toldAt = msg, now
	return true
}
