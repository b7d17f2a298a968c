package pipeline

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"shipper/spool"
)

// The ledger of gaps says what was not delivered, one line of JSON for each
// range, mode 0600, below the spool's directory:
//
//	gaps/gaps.jsonl    and gaps.jsonl.1, the one before
//	{"id":"d41d8c98f00b-17-5e0c9a12","time":"2026-11-30T...Z","host":"web-1","reason":"dropped_newest","records":812,"source":"app",
//	 "topic":"logs","path":"/var/log/app/a.log","from_byte":4096,"to_byte":98304}
//
// Ranges of a file are bytes; those of a lane, which had a number already, are
// indexes. A line is written behind the commit that makes the gap durable, and
// the spool lists a gap until a commit says that its line is durable too: a
// crash leaves no gap without a line, and a line twice, with one id, at worst.
// An id is the spool, the number of the gap and a checksum of what the line says:
// a spool that was restored from a copy gives numbers again, to other ranges.
// With spool.gap_topic these files are tailed like any others.
type ledger struct {
	dir   string // the spool's
	spool string // what its ids begin with
	host  string
}

type ledgerLine struct {
	ID         string    `json:"id"`
	Time       time.Time `json:"time"`
	Host       string    `json:"host"`
	Reason     string    `json:"reason"`
	Records    uint64    `json:"records"` // 0: not known
	Source     string    `json:"source,omitempty"`
	Topic      string    `json:"topic,omitempty"`
	Path       string    `json:"path,omitempty"`
	PathBytes  []byte    `json:"path_base64,omitempty"` // instead, if it is not UTF-8
	FromByte   int64     `json:"from_byte,omitempty"`
	ToByte     int64     `json:"to_byte,omitempty"`
	Lane       uint32    `json:"lane,omitempty"`
	FromIndex  uint64    `json:"from_index,omitempty"`
	ToIndex    uint64    `json:"to_index,omitempty"`
	DeadLetter string    `json:"dead_letter,omitempty"` // file below the spool's directory, and byte
}

const (
	ledgerDir      = "gaps"
	ledgerFile     = "gaps.jsonl"
	ledgerBytesMax = 4 << 20 // of one file; there are two
)

// gapReasons are the names of spool's reasons; a name, once published, stays.
var gapReasons = map[uint8]string{
	spool.GapDamaged:       "damaged",
	spool.GapDroppedNewest: "dropped_newest",
	spool.GapTooLarge:      "too_large",
	spool.GapRefused:       "refused",
	spool.GapLostByBroker:  "lost_by_broker",
	spool.GapOperator:      "operator",
	spool.GapOversize:      "oversize",
	spool.GapFiltered:      "filtered",
	spool.GapSourceLost:    "source_lost",
	spool.GapUncertain:     "uncertain",
}

func newLedger(dir string, spoolID [16]byte) ledger {
	host, _ := os.Hostname() // only a courtesy to the reader
	return ledger{dir: dir, spool: hex.EncodeToString(spoolID[:6]), host: host}
}

// path is where the newest lines are.
func (l *ledger) path() string { return filepath.Join(l.dir, ledgerDir, ledgerFile) }

// write appends the gaps and makes them durable.
func (l *ledger) write(gaps []spool.UntoldGap, now time.Time) error {
	var text []byte
	for i := range gaps {
		line, err := l.line(&gaps[i], now)
		if err != nil {
			return fmt.Errorf("ledger of gaps: %w", err)
		}
		text = append(append(text, line...), '\n')
	}
	if err := l.rotate(int64(len(text))); err != nil {
		return fmt.Errorf("ledger of gaps: %w", err)
	}
	if _, err := appendDurably(l.path(), text); err != nil {
		return fmt.Errorf("ledger of gaps: %w", err)
	}
	return nil
}

func (l *ledger) line(g *spool.UntoldGap, now time.Time) ([]byte, error) {
	line := ledgerLine{Reason: gapReasons[g.Reason], Records: g.Records, Source: g.Block, Topic: g.Topic, FromByte: g.FromByte, ToByte: g.ToByte,
		Lane: g.Lane, FromIndex: g.From, ToIndex: g.To, DeadLetter: g.DeadLetter}
	if utf8.ValidString(g.Path) {
		line.Path = g.Path
	} else {
		line.PathBytes = []byte(g.Path)
	}
	says, err := json.Marshal(&line)
	if err != nil {
		return nil, err
	}
	line.ID = fmt.Sprintf("%s-%d-%08x", l.spool, g.Number, crc32.ChecksumIEEE(says))
	line.Time, line.Host = now.UTC(), l.host
	return json.Marshal(&line)
}

// rotate makes the directory, or room for n more bytes, if need be.
func (l *ledger) rotate(n int64) error {
	if made, err := mkdirDurably(filepath.Dir(l.path())); err != nil || made {
		return err
	}
	info, err := os.Stat(l.path())
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size()+n <= ledgerBytesMax {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(l.path(), l.path()+".1") // durable with the file that is made next
}

// GapSource is the name of the agent's own source, which tails the ledger.
const GapSource = "shipper-gaps"

// gapSource is that source, if there is a topic for it.
func gapSource(cfg *Config) []Source {
	if cfg.Spool.GapTopic == "" {
		return nil
	}
	return []Source{{Name: GapSource, Paths: []string{filepath.Join(cfg.Spool.Dir, ledgerDir, ledgerFile+"*")}, Topic: cfg.Spool.GapTopic,
		Lanes: 1, Linger: time.Second, LineBytesMax: 64 << 10, Oversize: "split", IdleFlush: time.Minute, Own: true}}
}
