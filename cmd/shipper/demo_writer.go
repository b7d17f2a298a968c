package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	writerTick        = 50 * time.Millisecond
	writerRotateEvery = 5 * time.Second
)

// writerFiles are the logs of the demo; each is rotated by rename several times.
var writerFiles = []string{"web-a", "web-b", "api", "worker", "billing"}

// writerOptions are the flags of the hidden command demo-writer.
type writerOptions struct {
	Dir            string
	Duration       time.Duration
	LinesPerSecond int // of each file
}

// runDemoWriter is a process of its own: it writes log files as a careless application does (lines torn between two writes, files
// renamed under the reader) and reports the lines written so far on stdout, one number per line. It ends after o.Duration.
func runDemoWriter(ctx context.Context, o writerOptions, stdout io.Writer) error {
	if o.Dir == "" || o.Duration <= 0 || o.LinesPerSecond <= 0 {
		return errors.New("demo-writer needs --dir, --for and --rate")
	}
	logs := make([]*demoLog, len(writerFiles))
	for i, name := range writerFiles {
		// Rotations are spread: some fall into the outage, some into the time without an agent.
		first := writerRotateEvery * time.Duration(i+1) / time.Duration(len(writerFiles))
		logs[i] = &demoLog{dir: o.Dir, name: name, rotateAt: first, random: rand.New(rand.NewPCG(1, uint64(i)))}
		if err := logs[i].open(); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(writerTick)
	defer ticker.Stop()
	began, written := time.Now(), 0
	for done := false; !done; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		elapsed := min(time.Since(began), o.Duration)
		done = elapsed == o.Duration
		due := int(elapsed.Seconds() * float64(o.LinesPerSecond))
		for _, l := range logs {
			n, err := l.writeUntil(due, elapsed)
			if err != nil {
				return err
			}
			written += n
		}
		if done {
			for _, l := range logs {
				if err := l.close(); err != nil {
					return err
				}
			}
		}
		fmt.Fprintln(stdout, written)
	}
	return nil
}

// demoLog is one log file and its rotated generations: NAME.log, before it NAME.log.1, NAME.log.2 and so on, the highest being the newest.
type demoLog struct {
	dir, name  string
	file       *os.File
	buffer     *bufio.Writer // 4 KiB: most of its writes end in the middle of a line
	generation int
	number     int // of the next line in this generation
	total      int // lines in all generations
	rotateAt   time.Duration
	random     *rand.Rand
}

func (l *demoLog) path() string { return filepath.Join(l.dir, l.name+".log") }

func (l *demoLog) open() (err error) {
	l.file, err = os.OpenFile(l.path(), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	l.buffer = bufio.NewWriterSize(l.file, 4096)
	return err
}

func (l *demoLog) close() error {
	return errors.Join(l.buffer.Flush(), l.file.Close())
}

// writeUntil writes lines until due are written in all, and rotates if it is time. Between ticks the end of the last line stays in the buffer.
func (l *demoLog) writeUntil(due int, elapsed time.Duration) (written int, err error) {
	for ; l.total < due; l.total++ {
		fmt.Fprintf(l.buffer, "%s %08d %s\n", l.tag(), l.number, l.message(elapsed)) // the buffer keeps its first error for Flush
		l.number++
		written++
	}
	if elapsed >= l.rotateAt {
		l.rotateAt += writerRotateEvery
		return written, l.rotate()
	}
	return written, nil
}

func (l *demoLog) rotate() error {
	if err := l.close(); err != nil {
		return err
	}
	l.generation++
	if err := os.Rename(l.path(), fmt.Sprintf("%s.%d", l.path(), l.generation)); err != nil {
		return err
	}
	l.number = 0
	return l.open()
}

// tag is the same for all lines of one file on disk and for no others; with the number behind it the checker knows each line.
func (l *demoLog) tag() string { return fmt.Sprintf("%s.%d", l.name, l.generation) }

func (l *demoLog) message(elapsed time.Duration) string {
	r := l.random
	path := []string{"/", "/login", "/cart", "/api/v1/orders", "/static/app.js", "/search?q=kafka"}[r.IntN(6)]
	status := []int{200, 200, 200, 200, 304, 404, 500}[r.IntN(7)]
	message := fmt.Sprintf("t=%.3f 192.0.2.%d GET %s %d %dB %dms trace=%016x", elapsed.Seconds(), r.IntN(256), path, status, r.IntN(1<<16), r.IntN(900), r.Uint64())
	if status == 500 {
		message += " error=\"upstream answered nothing for 30 s, giving up; the request was not repeated\""
	}
	return message
}
