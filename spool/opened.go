package spool

import (
	"errors"
	"slices"

	"shipper/internal/vfs"
)

// openSegmentsMax is how many segments a recovery has open at once: it mostly reads one behind the other, and there may be more of them
// than descriptors.
const openSegmentsMax = 4

// openSegments are the segments that a recovery has open, the one that was opened last behind the others.
type openSegments struct {
	fs   vfs.FS
	open []*segmentReader
	// err is the first failure to open a segment again. Whoever read took it for damage: it ends the recovery, of which nothing is on
	// disk by then.
	err error
}

// segmentReader reads a segment, which is opened when it must be.
type segmentReader struct {
	of   *openSegments
	path string
	file vfs.File // nil: closed
}

// start opens a segment.
func (o *openSegments) start(path string) (*segmentReader, error) {
	s := &segmentReader{of: o, path: path}
	return s, s.open()
}

func (s *segmentReader) open() (err error) {
	if len(s.of.open) == openSegmentsMax {
		if err := s.of.open[0].Close(); err != nil {
			return err
		}
	}
	if s.file, err = s.of.fs.OpenFile(s.path, vfs.Read); err == nil {
		s.of.open = append(s.of.open, s)
	}
	return err
}

func (s *segmentReader) ReadAt(p []byte, at int64) (int, error) {
	if s.file == nil {
		if err := s.open(); err != nil {
			s.of.err = errors.Join(s.of.err, err)
			return 0, err
		}
	}
	return s.file.ReadAt(p, at)
}

// Close may be called again, and is no end: the next read opens the file.
func (s *segmentReader) Close() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	s.of.open = slices.DeleteFunc(s.of.open, func(o *segmentReader) bool { return o == s })
	return f.Close()
}
