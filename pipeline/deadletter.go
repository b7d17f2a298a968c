package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"shipper/sink/kafka"
)

// Dead letters: records that their topic does not take. Each is one line of
// JSON in a file per day, mode 0600, below the spool's directory:
//
//	dead-letter/2026-11-30.jsonl
//	{"refused":"2026-11-30T...Z","source":"app","topic":"logs","partition":3,"lane":7,"slot":0,"index":42,
//	 "reason":"...","time_ms":1796000000000,"key":null,"value":"base64",
//	 "headers":[{"name":"path","value":"base64"}]}
//
// A line is durable before the gap that stands for its record, so a crash in
// between leaves the line there and the record in the spool: refused again, it
// is here twice, with the same lane and index. Nothing here is ever deleted;
// while the directory is full, the lanes with refused records wait.
type deadLetters struct{ dir string }

type deadLetterLine struct {
	Refused   time.Time    `json:"refused"`
	Source    string       `json:"source"`
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Lane      uint32       `json:"lane"`
	Slot      uint32       `json:"slot"`
	Index     uint64       `json:"index"`
	Reason    string       `json:"reason"`
	TimeMs    int64        `json:"time_ms"`
	Key       []byte       `json:"key"` // null: none
	Value     []byte       `json:"value"`
	Headers   []headerLine `json:"headers,omitempty"`
}

type headerLine struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

const (
	deadLetterDir   = "dead-letter"
	deadLetterShare = 16 // of the spool's limit may be dead letters
)

// write appends d and makes it durable. bytesMax bounds all files together.
// place is where it is: file below the spool's directory, and byte.
func (l deadLetters) write(lane uint32, d *kafka.DeadLetter, now time.Time, bytesMax int64) (place string, err error) {
	line := deadLetterLine{Refused: now.UTC(), Source: d.Source, Topic: d.Topic, Partition: d.Partition, Lane: lane, Slot: d.Slot, Index: d.Index,
		Reason: d.Reason, TimeMs: d.Time, Value: d.Value}
	if d.HasKey {
		line.Key = append([]byte{}, d.Key...)
	}
	for i := range d.Headers {
		line.Headers = append(line.Headers, headerLine{string(d.Headers[i].Key), d.Headers[i].Value})
	}
	text, err := json.Marshal(&line)
	if err != nil {
		return "", fmt.Errorf("dead letter: %w", err)
	}
	text = append(text, '\n')
	dir := filepath.Join(l.dir, deadLetterDir)
	if used, err := l.use(dir); err != nil {
		return "", fmt.Errorf("dead letter: %w", err)
	} else if used+int64(len(text)) > bytesMax {
		return "", fmt.Errorf("dead letters in %s have %d bytes, at most %d: move some away", dir, used, bytesMax)
	}
	name := filepath.Join(deadLetterDir, line.Refused.Format(time.DateOnly)+".jsonl")
	at, err := appendDurably(filepath.Join(l.dir, name), text)
	if err != nil {
		return "", fmt.Errorf("dead letter: %w", err)
	}
	return fmt.Sprintf("%s:%d", name, at), nil
}

// use makes the directory if need be and says how many bytes its files have.
func (l deadLetters) use(dir string) (bytes int64, err error) {
	made, err := mkdirDurably(dir)
	if err != nil || made {
		return 0, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes, nil
}

// appendDurably appends one line. What a crash left of a line before it gets an
// end of its own.
//
// All that is needed is opened before anything is written: a line that is there and
// was said to have failed, for want of a descriptor, would be there again each time.
func appendDurably(path string, line []byte) (at int64, err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if at, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	if at > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], at-1); err != nil {
			return 0, err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err = f.WriteAt(line, at); err != nil {
		err = errors.Join(err, f.Truncate(at)) // on a full volume a part of it is there
	} else {
		err = f.Sync()
	}
	if err == nil {
		err = dir.Sync()
	}
	if line[0] == '\n' {
		at++
	}
	return at, err
}

// mkdirDurably makes a directory if it is not there; made tells. Its parent is opened
// first: a directory that was made and not synced would be taken for durable the next time.
func mkdirDurably(path string) (made bool, err error) {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	switch err := os.Mkdir(path, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, parent.Sync()
}
