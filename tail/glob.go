package tail

// A walk turns patterns into candidate paths. Directories are listed only when their times changed since the
// last listing (or are too young to tell), and a walk is repeated only when one of them did: at rest a scan
// costs one stat per directory and one per file.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"
)

const (
	dirsMax  = 65536 // directories in one walk
	depthMax = 64    // levels below a pattern's base
	// Two changes of a directory within one tick of the file system's clock leave one time: a listing made
	// this soon after a change is not trusted.
	racyNanos = int64(2 * time.Second)
	busyNanos = int64(time.Minute) // what changed so lately is likely to change again
)

// pattern is one entry of Block.Paths, cut at slashes.
type pattern struct {
	block int
	text  string
	base  string   // longest leading part without wildcards
	segs  []string // the rest; "**" stands for any number of directories
	whole bool     // slashes inside braces: everything below base is compared with text
}

type candidate struct {
	block int
	path  string
	link  bool // the name itself may be a symlink
}

// dir is one directory as it was listed last.
type dir struct {
	path    string
	stat    fileStat
	missing bool  // stat failed
	err     error // of the listing
	racy    bool
	retryIn int64 // while err != nil, nanoseconds
	retryAt int64
	entries []dirEntry
	walk    uint64 // last walk that visited it
	listed  uint64 // last walk that found it changed, or too young to tell
	seenAt  int64  // wall clock when it was last seen to be as it was listed
}

type dirEntry struct {
	name string
	mode fs.FileMode // type bits only
}

type walker struct {
	patterns []pattern
	excludes [][]string // per block
	skipDir  func(*fileStat) bool
	warn     func(path, what string)
	readDir  func(path string) ([]os.DirEntry, error)

	dirs  map[string]*dir
	walks uint64
	links map[string]bool // symlinks met on the way to deeper segments: does the target exist?
	found []candidate
	seen  map[walkStep]bool
	full  bool // dirsMax was reached

	busy   []probe // what changed lately: looked at whenever one asks whether anything changed
	rest   []probe // in turn
	restAt int
}

// probe is a directory or a symlink whose change can bring or take names.
type probe struct {
	path  string
	dir   *dir // nil: a symlink
	there bool // symlink: its target exists
}

// walkStep is a place in the search: pattern, directory, next segment.
type walkStep struct {
	pattern, seg int
	path         string
}

func newWalker(blocks []Block) *walker {
	w := &walker{dirs: map[string]*dir{}, readDir: os.ReadDir}
	for i, b := range blocks {
		for _, p := range b.Paths {
			w.patterns = append(w.patterns, parsePattern(i, p))
		}
		w.excludes = append(w.excludes, b.Exclude)
	}
	return w
}

func parsePattern(block int, text string) pattern {
	text = cleanSlashes(text)
	base, rest := doublestar.SplitPattern(text)
	p := pattern{block: block, text: text, base: base, segs: strings.Split(rest, "/")}
	depth := 0
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			p.whole = p.whole || depth > 0
		}
	}
	return p
}

func cleanSlashes(s string) string {
	for strings.Contains(s, "//") {
		s = strings.ReplaceAll(s, "//", "/")
	}
	return s
}

// changed tells whether the next walk may find something else than the last one. It looks at what was busy lately and, in
// turn, at so many of the rest; left are the looks that were not needed. now is the wall clock in nanoseconds.
func (w *walker) changed(now int64, looks int) (yes bool, left int) {
	if w.walks == 0 {
		return true, looks
	}
	for i := range w.busy {
		if w.busy[i].changed(now) {
			return true, looks
		}
	}
	for range min(looks, len(w.rest)) {
		w.restAt %= len(w.rest)
		p := &w.rest[w.restAt]
		w.restAt++
		if looks--; p.changed(now) {
			return true, looks
		}
	}
	return false, looks
}

func (p *probe) changed(now int64) bool {
	s, err := statPath(p.path)
	d := p.dir
	if d == nil {
		return (err == nil) != p.there
	}
	if d.racy || d.retry(now) || (err != nil) != d.missing || err == nil && (!s.same(&d.stat) || !s.is(&d.stat)) {
		return true
	}
	d.seenAt = now
	return false
}

// plan sorts what changed looks at.
func (w *walker) plan(now int64) {
	w.busy, w.rest = w.busy[:0], w.rest[:0]
	for path, d := range w.dirs {
		if p := (probe{path: path, dir: d}); d.racy || d.err != nil || young(now, &d.stat, busyNanos) {
			w.busy = append(w.busy, p)
		} else {
			w.rest = append(w.rest, p)
		}
	}
	for path, there := range w.links {
		w.rest = append(w.rest, probe{path: path, there: there})
	}
}

// walk returns the candidates in the order of blocks, patterns and names. The same path may come twice.
// now is the wall clock in nanoseconds. The result is valid until the next walk.
func (w *walker) walk(now int64) []candidate {
	w.walks++
	w.found, w.full = w.found[:0], false
	w.seen = map[walkStep]bool{}
	w.links = map[string]bool{}
	for i := range w.patterns {
		p := &w.patterns[i]
		if p.whole {
			w.everything(i, p.base, nil, now)
		} else {
			w.descend(i, p.base, 0, nil, now)
		}
	}
	for path, d := range w.dirs {
		if d.walk != w.walks {
			delete(w.dirs, path)
		}
	}
	w.seen = nil
	w.plan(now)
	return w.found
}

// descend matches segment seg of pattern i in the directory at path. above holds the directories on the way
// here: a symlink back to one of them is not followed.
func (w *walker) descend(i int, path string, seg int, above []*dir, now int64) {
	p := &w.patterns[i]
	step := walkStep{i, seg, path}
	if w.seen[step] {
		return
	}
	w.seen[step] = true
	d := w.list(path, above, now)
	if d == nil {
		return
	}
	above = append(above[:len(above):len(above)], d)
	last := seg == len(p.segs)-1
	s := p.segs[seg]
	if s == "**" {
		if !last {
			w.descend(i, path, seg+1, above[:len(above)-1], now)
		}
		for _, e := range d.entries {
			if w.leadsOn(path, e) {
				w.descend(i, join(path, e.name), seg, above, now)
			} else if last {
				w.add(p.block, join(path, e.name), e.mode)
			}
		}
		return
	}
	for _, e := range d.entries {
		if ok, err := doublestar.Match(s, e.name); !ok || err != nil {
			continue
		}
		switch {
		case !last:
			if w.leadsOn(path, e) {
				w.descend(i, join(path, e.name), seg+1, above, now)
			}
		case s != "*" || !e.mode.IsDir(): // "*" means files; a directory named by more than that is told
			w.add(p.block, join(path, e.name), e.mode)
		}
	}
	if errors.Is(d.err, fs.ErrPermission) && !hasMeta(s) {
		// A directory that may be searched but not listed.
		if next := join(path, s); last {
			w.add(p.block, next, fs.ModeIrregular)
		} else {
			w.descend(i, next, seg+1, above, now)
		}
	}
}

// everything compares all paths below path with the whole pattern.
func (w *walker) everything(i int, path string, above []*dir, now int64) {
	p := &w.patterns[i]
	d := w.list(path, above, now)
	if d == nil {
		return
	}
	above = append(above[:len(above):len(above)], d)
	for _, e := range d.entries {
		full := join(path, e.name)
		if w.leadsOn(path, e) {
			w.everything(i, full, above, now)
		} else if ok, err := doublestar.Match(p.text, full); ok && err == nil {
			w.add(p.block, full, e.mode)
		}
	}
}

func (w *walker) add(block int, path string, mode fs.FileMode) {
	for _, x := range w.excludes[block] {
		if ok, err := doublestar.Match(x, path); ok && err == nil {
			return
		}
	}
	w.found = append(w.found, candidate{block, path, mode&(fs.ModeSymlink|fs.ModeIrregular) != 0})
}

// leadsOn tells whether an entry is a directory or a symlink to one.
func (w *walker) leadsOn(path string, e dirEntry) bool {
	if e.mode.IsDir() {
		return true
	}
	if e.mode&(fs.ModeSymlink|fs.ModeIrregular) == 0 {
		return false
	}
	full := join(path, e.name)
	s, err := statPath(full)
	w.links[full] = err == nil
	return err == nil && s.isDir()
}

// list returns the directory at path as it is now, nil if it must not be entered.
func (w *walker) list(path string, above []*dir, now int64) *dir {
	d := w.dirs[path]
	if d == nil {
		if len(w.dirs) >= dirsMax {
			if !w.full {
				w.warn(path, "the patterns reach more than 65536 directories; the rest is not searched")
			}
			w.full = true
			return nil
		}
		d = &dir{path: path, racy: true}
		w.dirs[path] = d
	}
	if d.walk != w.walks {
		d.walk = w.walks
		w.refresh(d, now)
	}
	if d.stat.mode != 0 && w.skipDir(&d.stat) || len(above) > depthMax {
		return nil
	}
	for _, a := range above {
		if d.stat.ino != 0 && a.stat.is(&d.stat) {
			return nil
		}
	}
	return d
}

func (w *walker) refresh(d *dir, now int64) {
	s, err := statPath(d.path)
	if err != nil {
		d.stat, d.err, d.missing, d.racy, d.entries = fileStat{}, nil, true, false, nil
		if !gone(err) {
			w.warn(d.path, "directory cannot be searched: "+err.Error())
		}
		return
	}
	if !d.missing && !d.racy && d.err == nil && s.same(&d.stat) && s.is(&d.stat) {
		d.seenAt = now
		return
	}
	d.stat, d.missing, d.listed = s, false, w.walks
	d.racy = young(now, &s, racyNanos)
	var list []os.DirEntry
	if list, d.err = w.readDir(d.path); !noDescriptors(d.err) { // else it is as it was, as far as anybody knows
		d.entries = nil
	}
	for _, e := range list {
		d.entries = append(d.entries, dirEntry{e.Name(), e.Type()})
	}
	if d.err == nil {
		d.retryIn = 0
		return
	}
	d.retryIn = min(max(int64(retryMin), 2*d.retryIn), int64(retryMax))
	d.retryAt = now + d.retryIn
	if !gone(d.err) && !noDescriptors(d.err) {
		w.warn(d.path, "directory cannot be listed: "+cause(d.err))
	}
}

// retry tells whether it is time to list a directory again that could not be listed: what keeps it from that need not change it.
func (d *dir) retry(now int64) bool {
	return d.err != nil && (now >= d.retryAt || d.retryAt-now > d.retryIn) // the clock may be set back
}

// cause is an error without the operation and the path, which the message names.
func cause(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return err.Error()
}

// asBefore tells whether the names in a directory name what they named at the walk before the last.
func (w *walker) asBefore(path string) bool {
	d := w.dirs[path]
	return d != nil && !d.missing && !d.racy && d.walk == w.walks && d.listed != w.walks
}

// gone tells whether err says that a path names nothing.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// join is filepath.Join without cleaning: names come from the kernel.
func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

func hasMeta(seg string) bool { return strings.ContainsAny(seg, `*?[{\`) }

// realPath returns where a path leads, or path itself if that cannot be told.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
