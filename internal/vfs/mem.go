package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
)

// Mem is a file system in memory that can crash.
//
//	written, not synced  ->  Crash keeps, block by block, any version written
//	                         since the last Sync of the file, or the synced one
//	size, not synced     ->  any size the file had since its last Sync
//	names, not synced    ->  of every file, any prefix of the operations on it
//	                         since the last Dir.Sync; files are independent
//
// Directories exist by themselves and are always durable. Blocks are never
// changed in place, so a crash copies no content.
type Mem struct {
	mu     sync.Mutex
	names  map[string]*inode // as a process sees it
	synced map[string]*inode // as a crash leaves it at least
	ops    []nameOp          // what leads from synced to names
	locks  map[string]string
	quota  int64 // bytes in all files; 0: no limit
	lying  bool  // Sync of files and directories answers and do nothing
}

// memBlockBytes is smaller than any sector, so that small frames are torn too.
const memBlockBytes = 128

type memBlock *[memBlockBytes]byte // nil: zeros

// memHole stands for a block that was punched out: zeros that take no room.
var memHole memBlock = new([memBlockBytes]byte)

type inode struct {
	blocks   []memBlock
	size     int64
	synced   []memBlock
	versions map[int][]memBlock // of blocks written since the last sync
	sizes    []int64            // since the last sync, the synced one first
}

type nameOp struct {
	ino      *inode
	from, to string // "": created, removed
}

// NewMem returns an empty one.
func NewMem() *Mem {
	return &Mem{names: map[string]*inode{}, synced: map[string]*inode{}, locks: map[string]string{}}
}

var _ FS = (*Mem)(nil)

// SetQuota limits the bytes of all files; 0 removes the limit.
func (m *Mem) SetQuota(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quota = bytes
}

// SetLying makes every sync a lie: it answers success and makes nothing durable.
func (m *Mem) SetLying(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lying = on
}

// Crash returns what a power cut now leaves, drawn with rng. m stays as it is,
// so that one moment can be crashed many times.
func (m *Mem) Crash(rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	count, left := map[*inode]int{}, map[*inode]int{}
	for _, op := range m.ops {
		count[op.ino]++
	}
	names := maps.Clone(m.synced)
	after := NewMem()
	after.quota = m.quota
	for _, op := range m.ops { // in order, so that rng alone decides
		if _, drawn := left[op.ino]; !drawn {
			left[op.ino] = rng.IntN(count[op.ino] + 1)
		}
		if left[op.ino] > 0 {
			left[op.ino]--
			op.apply(names)
		}
	}
	copies := map[*inode]*inode{}
	for _, name := range sortedNames(names) {
		ino := names[name]
		if copies[ino] == nil {
			copies[ino] = ino.crash(rng)
		}
		after.names[name] = copies[ino]
		after.synced[name] = copies[ino]
	}
	return after
}

// Kill returns what the death of the process leaves: everything, but nothing
// more durable than it was.
func (m *Mem) Kill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := NewMem()
	after.quota, after.lying = m.quota, m.lying
	copies := map[*inode]*inode{}
	clone := func(ino *inode) *inode {
		if copies[ino] == nil {
			copies[ino] = ino.clone()
		}
		return copies[ino]
	}
	for name, ino := range m.names {
		after.names[name] = clone(ino)
	}
	for name, ino := range m.synced {
		after.synced[name] = clone(ino)
	}
	for _, op := range m.ops {
		after.ops = append(after.ops, nameOp{clone(op.ino), op.from, op.to})
	}
	return after
}

func (op nameOp) apply(names map[string]*inode) {
	if op.from != "" && names[op.from] == op.ino {
		delete(names, op.from)
	}
	if op.to != "" {
		names[op.to] = op.ino
	}
}

func (ino *inode) clone() *inode {
	c := &inode{size: ino.size, blocks: slices.Clone(ino.blocks), synced: slices.Clone(ino.synced), sizes: slices.Clone(ino.sizes)}
	c.versions = make(map[int][]memBlock, len(ino.versions))
	for i, v := range ino.versions {
		c.versions[i] = slices.Clone(v)
	}
	return c
}

// crash draws what is left. One crash in four keeps all or nothing of a file,
// as real ones often do; the others choose for every block.
func (ino *inode) crash(rng *rand.Rand) *inode {
	size := ino.size
	if len(ino.sizes) > 0 {
		size = append(ino.sizes, ino.size)[rng.IntN(len(ino.sizes)+1)]
	}
	after := &inode{size: size, blocks: make([]memBlock, blocksOf(size)), versions: map[int][]memBlock{}}
	copy(after.blocks, ino.synced)
	style := rng.IntN(8)
	dirty := make([]int, 0, len(ino.versions))
	for i := range ino.versions {
		dirty = append(dirty, i)
	}
	slices.Sort(dirty)
	for _, i := range dirty {
		if i >= len(after.blocks) || style == 0 {
			continue
		}
		versions := ino.versions[i]
		if style == 1 {
			after.blocks[i] = versions[len(versions)-1]
		} else if n := rng.IntN(len(versions) + 1); n > 0 {
			after.blocks[i] = versions[n-1]
		}
	}
	after.synced = slices.Clone(after.blocks)
	return after
}

func blocksOf(size int64) int { return int((size + memBlockBytes - 1) / memBlockBytes) }

func sortedNames(names map[string]*inode) []string {
	all := make([]string, 0, len(names))
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (m *Mem) MkdirAll(string) error { return nil }

func (m *Mem) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in []string
	for _, name := range sortedNames(m.names) {
		if filepath.Dir(name) == filepath.Clean(dir) {
			in = append(in, filepath.Base(name))
		}
	}
	return in, nil
}

func (m *Mem) OpenFile(name string, mode Mode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	ino := m.names[name]
	switch {
	case mode == Create && ino != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case mode != Create && ino == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case mode == Create:
		ino = &inode{versions: map[int][]memBlock{}}
		m.doName(nameOp{ino: ino, to: name})
	}
	return &memFile{m: m, ino: ino, name: name, writable: mode != Read}, nil
}

func (m *Mem) doName(op nameOp) {
	op.apply(m.names)
	m.ops = append(m.ops, op)
}

func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	ino := m.names[from]
	if ino == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if m.names[to] != nil {
		panic("BUG: the memory file system does not rename over a file: " + to)
	}
	m.doName(nameOp{ino, from, to})
	return nil
}

func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	ino := m.names[name]
	if ino == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	m.doName(nameOp{ino: ino, from: name})
	return nil
}

func (m *Mem) OpenDir(string) (Dir, error) { return memDir{m}, nil }

type memDir struct{ m *Mem }

func (memDir) Close() error { return nil }

func (d memDir) Sync() error {
	m := d.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lying {
		return nil
	}
	for _, op := range m.ops {
		op.apply(m.synced)
	}
	m.ops = nil
	return nil
}

type memLock struct {
	m    *Mem
	name string
}

func (m *Mem) Lock(name, about string) (io.Closer, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if holder, held := m.locks[name]; held {
		return nil, holder, ErrLocked
	}
	m.locks[name] = about
	return memLock{m, name}, "", nil
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

func (m *Mem) Usage(string) (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.quota == 0 {
		return Usage{TotalBytes: 1 << 50, FreeBytes: 1 << 50}, nil
	}
	return Usage{TotalBytes: m.quota, FreeBytes: max(0, m.quota-m.used())}, nil
}

// used counts sizes, as if every file were allocated: the spool's are.
func (m *Mem) used() int64 {
	var sum int64
	for _, ino := range m.names {
		sum += ino.diskBytes()
	}
	return sum
}

func (ino *inode) diskBytes() int64 {
	n := ino.size
	for _, b := range ino.blocks {
		if b == memHole {
			n -= memBlockBytes
		}
	}
	return max(n, 0)
}

// grow sets a larger size, if the quota has room. The caller holds m.mu.
func (m *Mem) grow(ino *inode, size int64) error {
	if size <= ino.size {
		return nil
	}
	if m.quota > 0 && m.used()+size-ino.size > m.quota {
		return ErrNoSpace
	}
	ino.resize(size)
	return nil
}

func (ino *inode) resize(size int64) {
	ino.sizes = append(ino.sizes, ino.size)
	ino.size = size
	n := blocksOf(size)
	for i := n; i < len(ino.blocks); i++ { // cut off: zeros if it ever grows again
		ino.blocks[i] = nil
		ino.versions[i] = append(ino.versions[i], nil)
	}
	if n <= len(ino.blocks) {
		ino.blocks = ino.blocks[:n]
	} else {
		ino.blocks = append(ino.blocks, make([]memBlock, n-len(ino.blocks))...)
	}
	if in := size % memBlockBytes; in > 0 && ino.blocks[n-1] != nil { // zeros behind the new end too
		block := *ino.blocks[n-1]
		clear(block[in:])
		ino.blocks[n-1] = &block
		ino.versions[n-1] = append(ino.versions[n-1], &block)
	}
}

type memFile struct {
	m        *Mem
	ino      *inode
	name     string
	writable bool
}

func (f *memFile) Close() error { return nil }

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.ino.size, nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := 0
	for n < len(p) && off+int64(n) < f.ino.size {
		at := off + int64(n)
		i, in := int(at/memBlockBytes), int(at%memBlockBytes)
		end := min(len(p)-n, memBlockBytes-in, int(f.ino.size-at))
		if b := f.ino.blocks[i]; b != nil {
			copy(p[n:n+end], b[in:])
		} else {
			clear(p[n : n+end])
		}
		n += end
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if !f.writable {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrPermission}
	}
	if err := f.m.grow(f.ino, off+int64(len(p))); err != nil {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: err}
	}
	for n := 0; n < len(p); {
		at := off + int64(n)
		i, in := int(at/memBlockBytes), int(at%memBlockBytes)
		block := new([memBlockBytes]byte)
		if old := f.ino.blocks[i]; old != nil {
			*block = *old
		}
		n += copy(block[in:], p[n:])
		f.ino.blocks[i] = block
		f.ino.versions[i] = append(f.ino.versions[i], block)
	}
	return len(p), nil
}

func (f *memFile) Allocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.m.grow(f.ino, size)
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if size > f.ino.size {
		return fmt.Errorf("truncate %s: %d is more than its %d bytes", f.name, size, f.ino.size)
	}
	if size < f.ino.size {
		f.ino.resize(size)
	}
	return nil
}

func (f *memFile) Punch(from, to int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if !f.writable {
		return &fs.PathError{Op: "punch", Path: f.name, Err: fs.ErrPermission}
	}
	to = min(to, f.ino.size)
	for at := from; at < to; {
		i, in := int(at/memBlockBytes), at%memBlockBytes
		n := min(memBlockBytes-in, to-at)
		block := memHole
		if n < memBlockBytes {
			part := new([memBlockBytes]byte)
			if old := f.ino.blocks[i]; old != nil {
				*part = *old
			}
			clear(part[in : in+n])
			block = part
		}
		f.ino.blocks[i] = block
		f.ino.versions[i] = append(f.ino.versions[i], block)
		at += n
	}
	return nil
}

func (f *memFile) DiskBytes() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.ino.diskBytes(), nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.lying {
		return nil
	}
	f.ino.synced = slices.Clone(f.ino.blocks)
	f.ino.versions, f.ino.sizes = map[int][]memBlock{}, nil
	return nil
}
