package vfs

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
)

// Op is one operation on a file system or one of its files.
type Op struct {
	Kind     string // mkdir readdir open create rename remove syncdir lock usage read write allocate truncate punch sync close
	Name     string // last element of the path; of a file, the one it was opened under
	To       string // rename: the new last element
	Offset   int64  // read, write, punch; the new size of allocate, truncate
	Bytes    int    // read, write, punch
	Changing bool   // the operation changes what a crash may leave
}

func (op Op) String() string {
	switch op.Kind {
	case "rename":
		return fmt.Sprintf("rename %s %s", op.Name, op.To)
	case "read", "write", "punch":
		return fmt.Sprintf("%s %s %d+%d", op.Kind, op.Name, op.Offset, op.Bytes)
	case "allocate", "truncate":
		return fmt.Sprintf("%s %s %d", op.Kind, op.Name, op.Offset)
	}
	return op.Kind + " " + op.Name
}

// Hook is a file system whose every operation first asks Before. An error from
// there is the operation's answer and nothing happens, except that a write of
// which Before says *ShortWriteError is done in part.
type Hook struct {
	FS     FS
	Before func(Op) error
}

var _ FS = Hook{}

// ShortWriteError makes a hooked write store only its first Bytes bytes.
type ShortWriteError struct {
	Bytes int
	Err   error
}

func (e *ShortWriteError) Error() string { return fmt.Sprintf("wrote %d bytes: %v", e.Bytes, e.Err) }
func (e *ShortWriteError) Unwrap() error { return e.Err }

func (h Hook) MkdirAll(dir string) error {
	if err := h.Before(Op{Kind: "mkdir", Name: filepath.Base(dir), Changing: true}); err != nil {
		return err
	}
	return h.FS.MkdirAll(dir)
}

func (h Hook) ReadDir(dir string) ([]string, error) {
	if err := h.Before(Op{Kind: "readdir", Name: filepath.Base(dir)}); err != nil {
		return nil, err
	}
	return h.FS.ReadDir(dir)
}

func (h Hook) OpenFile(name string, mode Mode) (File, error) {
	op := Op{Kind: "open", Name: filepath.Base(name)}
	if mode == Create {
		op.Kind, op.Changing = "create", true
	}
	if err := h.Before(op); err != nil {
		return nil, err
	}
	f, err := h.FS.OpenFile(name, mode)
	if err != nil {
		return nil, err
	}
	return &hookFile{File: f, before: h.Before, name: op.Name}, nil
}

func (h Hook) Rename(from, to string) error {
	op := Op{Kind: "rename", Name: filepath.Base(from), To: filepath.Base(to), Changing: true}
	if err := h.Before(op); err != nil {
		return err
	}
	return h.FS.Rename(from, to)
}

func (h Hook) Remove(name string) error {
	if err := h.Before(Op{Kind: "remove", Name: filepath.Base(name), Changing: true}); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

func (h Hook) OpenDir(dir string) (Dir, error) {
	if err := h.Before(Op{Kind: "opendir", Name: filepath.Base(dir)}); err != nil {
		return nil, err
	}
	d, err := h.FS.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return &hookDir{Dir: d, before: h.Before, name: filepath.Base(dir)}, nil
}

type hookDir struct {
	Dir
	before func(Op) error
	name   string
}

func (d *hookDir) Sync() error {
	if err := d.before(Op{Kind: "syncdir", Name: d.name, Changing: true}); err != nil {
		return err
	}
	return d.Dir.Sync()
}

func (h Hook) Lock(name, about string) (io.Closer, string, error) {
	if err := h.Before(Op{Kind: "lock", Name: filepath.Base(name)}); err != nil {
		return nil, "", err
	}
	return h.FS.Lock(name, about)
}

func (h Hook) Usage(dir string) (Usage, error) {
	if err := h.Before(Op{Kind: "usage", Name: filepath.Base(dir)}); err != nil {
		return Usage{}, err
	}
	return h.FS.Usage(dir)
}

type hookFile struct {
	File
	before func(Op) error
	name   string
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.before(Op{Kind: "read", Name: f.name, Offset: off, Bytes: len(p)}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.before(Op{Kind: "write", Name: f.name, Offset: off, Bytes: len(p), Changing: true})
	if short, ok := err.(*ShortWriteError); ok {
		n, werr := f.File.WriteAt(p[:min(short.Bytes, len(p))], off)
		if werr != nil {
			return n, werr
		}
		return n, short
	}
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *hookFile) Allocate(size int64) error {
	if err := f.before(Op{Kind: "allocate", Name: f.name, Offset: size, Changing: true}); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.before(Op{Kind: "truncate", Name: f.name, Offset: size, Changing: true}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Punch(from, to int64) error {
	if err := f.before(Op{Kind: "punch", Name: f.name, Offset: from, Bytes: int(to - from), Changing: true}); err != nil {
		return err
	}
	return f.File.Punch(from, to)
}

func (f *hookFile) Sync() error {
	if err := f.before(Op{Kind: "sync", Name: f.name, Changing: true}); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) Close() error {
	if err := f.before(Op{Kind: "close", Name: f.name}); err != nil {
		return err
	}
	return f.File.Close()
}

// Trace records the changing operations that go through it, one a line.
type Trace struct {
	mu  sync.Mutex
	ops []Op
}

// Before is a Hook's Before.
func (t *Trace) Before(op Op) error {
	if op.Changing {
		t.mu.Lock()
		t.ops = append(t.ops, op)
		t.mu.Unlock()
	}
	return nil
}

// Take returns what was recorded since the last Take, one operation a line.
func (t *Trace) Take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, op := range t.ops {
		b.WriteString(op.String())
		b.WriteByte('\n')
	}
	t.ops = t.ops[:0]
	return b.String()
}

// Fault fails one operation: the one with number At of those that Match
// accepts, counted from 0. With Stay, all later ones as well.
type Fault struct {
	Match func(Op) bool
	At    int
	Err   error
	Stay  bool

	mu   sync.Mutex
	seen int
}

// Before is a Hook's Before.
func (f *Fault) Before(op Op) error {
	if !f.Match(op) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.seen
	f.seen++
	if n == f.At || f.Stay && n > f.At {
		return f.Err
	}
	return nil
}

// Fired tells whether an operation was failed.
func (f *Fault) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen > f.At
}
