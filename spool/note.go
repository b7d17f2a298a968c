package spool

// The file "total" beside the segments: behind each sync, how many records ever got
// a number.
//
//	u64 total | u32 CRC-32C of it, started with the spool's id
//
// It is the only thing outside the newest segment that knows what is in it. Should
// somebody cut that segment short, or a disk have lied about syncs, a start finds
// fewer records and can say how many are read again. It is not synced: what a power
// cut leaves of it may be old, which hides some, or torn, which hides all. Nothing
// else depends on it, so no error of it stops anything.

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"

	"shipper/internal/vfs"
)

const (
	noteName  = "total"
	noteBytes = 12
)

// note is the open file; nil if it cannot be.
type note struct {
	file vfs.File
	buf  [noteBytes]byte
}

func (n *note) checksum(spoolID *[16]byte) uint32 {
	return crc32.Update(crc32.Checksum(spoolID[:], castagnoli), castagnoli, n.buf[:8])
}

// write says what is durable now.
func (n *note) write(spoolID *[16]byte, total uint64) {
	if n.file == nil {
		return
	}
	binary.LittleEndian.PutUint64(n.buf[:], total)
	binary.LittleEndian.PutUint32(n.buf[8:], n.checksum(spoolID))
	_, _ = n.file.WriteAt(n.buf[:], 0) // it says less then
}

// open is for writing. What it said is kept until the next write.
func (n *note) open(fsys vfs.FS, path string) error {
	f, err := fsys.OpenFile(path, vfs.Write)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = fsys.OpenFile(path, vfs.Create)
	}
	if err == nil {
		n.file = f
	}
	return err
}

func (n *note) close() error {
	if n.file == nil {
		return nil
	}
	return n.file.Close()
}

// readNote is what the file says; all zeros, which no spool writes, if there is none.
func readNote(fsys vfs.FS, path string) (n note) {
	f, err := fsys.OpenFile(path, vfs.Read)
	if err != nil {
		return note{}
	}
	if err := errors.Join(readFull(f, n.buf[:], 0), f.Close()); err != nil {
		return note{}
	}
	return n
}

// total is what a note says; not ok if it is none of this spool.
func (n *note) total(spoolID *[16]byte) (total uint64, ok bool) {
	return binary.LittleEndian.Uint64(n.buf[:]), binary.LittleEndian.Uint32(n.buf[8:]) == n.checksum(spoolID)
}
