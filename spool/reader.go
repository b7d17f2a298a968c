package spool

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"

	"shipper/internal/vfs"
)

const readerFilesMax = 4

// Reader reads spooled batches. It belongs to one goroutine and shares with the
// Log only immutable bytes, the durable position and the table of segments.
type Reader struct {
	log    *Log
	files  []readerFile // most recently used last
	prefix [batchHeaderBytes]byte

	payloadCRC uint32 // of the batch read last
}

type readerFile struct {
	id   segmentID
	file vfs.File
}

// NewReader returns a reader. It may be called from any goroutine.
func (l *Log) NewReader() *Reader { return &Reader{log: l} }

// ReadBatch reads the frame at ref, checks both its checksums and appends the 61
// bytes of the header template and the records to dst. The batch must be durable.
//
// *CorruptionError: the bytes are damaged, or the segment is released since
// everything in it was acked or dropped. Other errors are those of reading.
func (r *Reader) ReadBatch(dst []byte, ref Ref) ([]byte, error) {
	for {
		out, err := r.readAt(dst, ref)
		if err == nil || !isDamage(err) {
			return out, err
		}
		// Its segment may be gone because its live batches were copied. Each copy
		// lies later in the log, so this ends.
		moved := r.log.shared.moved.Load()
		if moved == nil {
			return out, err
		}
		m, ok := (*moved)[ref.place()]
		if !ok {
			return out, err
		}
		ref.moveTo(m.to)
	}
}

func (r *Reader) readAt(dst []byte, ref Ref) ([]byte, error) {
	at := int64(ref.Block) * blockBytes
	if ref.Segment == 0 {
		return dst, corruption(0, 0, errMissing)
	}
	if end := uint64(ref.Segment)<<32 | uint64(ref.Block); end >= r.log.shared.durable.Load() {
		panic(fmt.Sprintf("BUG: spool read of segment %d byte %d, which is not durable yet", ref.Segment, at))
	}
	f, err := r.open(ref.Segment)
	if err != nil {
		return dst, corruption(ref.Segment, at, err)
	}
	if err := readFull(f.file, r.prefix[:], at); err != nil {
		return dst, corruption(ref.Segment, at, err)
	}
	h, err := parseHeader(r.prefix[:], f.id.seed, at)
	if err == nil && (h.kind != kindBatch || h.first != ref.First || h.count != ref.Count || h.payloadBytes != ref.Bytes) {
		err = errOtherBatch
	}
	if err != nil {
		return dst, corruption(ref.Segment, at, err)
	}
	start := len(dst)
	dst = append(slices.Grow(dst, HeaderBytes+int(ref.Bytes)), r.prefix[batchHeaderBytes-HeaderBytes:]...)
	records := dst[len(dst) : len(dst)+int(ref.Bytes)]
	err = readFull(f.file, records, at+batchHeaderBytes)
	if err == nil && crc32.Checksum(records, castagnoli) != h.payloadCRC {
		err = errPayloadChecksum
	}
	if err != nil {
		return dst[:start], corruption(ref.Segment, at, err)
	}
	r.payloadCRC = h.payloadCRC
	return dst[:len(dst)+int(ref.Bytes)], nil
}

func isDamage(err error) bool {
	var damaged *CorruptionError
	return errors.As(err, &damaged)
}

// readFull reads all of p; an early end of the file is damage.
func readFull(f io.ReaderAt, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return errShortFrame
	}
	return err
}

// corruption turns damage into its typed error and leaves other errors alone.
func corruption(segment uint32, at int64, err error) error {
	var reason damageReason
	if errors.As(err, &reason) {
		return &CorruptionError{Segment: segment, Position: at, Reason: string(reason)}
	}
	return fmt.Errorf("spool: read segment %d: %w", segment, err)
}

// open returns the file of a segment. Numbers are never used twice while a log
// is open, and a recycled file gets another seed: a handle that outlived its
// segment reads bytes that no header checksum accepts.
func (r *Reader) open(number uint32) (readerFile, error) {
	for i, f := range r.files {
		if f.id.number == number {
			r.files = append(slices.Delete(r.files, i, i+1), f)
			return f, nil
		}
	}
	table := *r.log.shared.table.Load()
	i := slices.IndexFunc(table, func(id segmentID) bool { return id.number == number })
	if i < 0 {
		return readerFile{}, errReleased
	}
	path := r.log.path(segmentName(number, table[i].seed))
	file, err := r.log.fs.OpenFile(path, vfs.Read)
	if vfs.IsNoDescriptor(err) && len(r.files) > 0 {
		if err := r.Close(); err != nil {
			return readerFile{}, err
		}
		file, err = r.log.fs.OpenFile(path, vfs.Read)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return readerFile{}, errReleased
	}
	if err != nil {
		return readerFile{}, err
	}
	if len(r.files) == readerFilesMax {
		err := r.files[0].file.Close()
		r.files = slices.Delete(r.files, 0, 1)
		if err != nil {
			return readerFile{}, errors.Join(err, file.Close())
		}
	}
	f := readerFile{table[i], file}
	r.files = append(r.files, f)
	return f, nil
}

// Close gives up the file handles.
func (r *Reader) Close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.file.Close())
	}
	r.files = nil
	return errors.Join(errs...)
}
