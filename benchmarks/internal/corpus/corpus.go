// Package corpus generates log lines for the benchmarks: the same seed gives the same bytes on every machine.
//
// Three of the four kinds stand for what agents meet most: a web server's access log (about 225 bytes a line), structured
// application logs (JSON, about 435) and syslog (about 95). Values are drawn with skew, as in real logs: few clients, paths and
// messages make up most lines, numbers and identifiers do not repeat. So codecs find roughly what they find in the wild.
// The fourth, long, is what costs an agent memory: lines of up to a megabyte.
//
// A numbered corpus starts every line with `<tag> <10-digit number> `. The broker's verify mode reads these to tell
// lost, doubled and reordered lines apart.
package corpus

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// Kind names the shape of the lines.
type Kind uint8

const (
	Access Kind = iota
	JSON
	Syslog
	Long
)

var kindNames = []string{"access", "json", "syslog", "long"}

func (k Kind) String() string { return kindNames[k] }

// ParseKind is the inverse of String.
func ParseKind(name string) (Kind, error) {
	for i, n := range kindNames {
		if n == name {
			return Kind(i), nil
		}
	}
	return 0, fmt.Errorf("unknown corpus kind %q, want one of %s", name, strings.Join(kindNames, ", "))
}

// NumberDigits is the width of the number in a numbered line.
const NumberDigits = 10

// Options of a Generator.
type Options struct {
	Kind Kind
	Seed uint64
	// Tag makes a numbered corpus; it must hold no space. Empty: plain lines.
	Tag string
}

// Generator produces the lines of one file. One goroutine at a time.
type Generator struct {
	o      Options
	rng    *rand.Rand
	number uint64
	at     time.Time // time stamp of the next line
	second int64     // the second that stamp and stampISO were made for
	stamp  []byte    // at in the notation of the kind, without fractions

	clients [clientCount][4]byte
	agents  []string
	skew    [skewSteps]float64
}

const (
	clientCount = 4096
	skewSteps   = 1024

	longBytesMax = 990_000 // of a line of kind long, but for the last object in it
)

// New makes a generator whose clock starts at a fixed time.
func New(o Options) *Generator {
	g := &Generator{
		o:   o,
		rng: rand.New(rand.NewPCG(o.Seed, uint64(o.Kind)+1)),
		at:  time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC),
	}
	for i := range g.clients {
		g.clients[i] = [4]byte{10, byte(g.rng.IntN(64)), byte(g.rng.IntN(256)), byte(1 + g.rng.IntN(254))}
	}
	for i := range g.skew {
		// A density of x^-0.5: the first hundredth of a list gets a tenth of the draws.
		g.skew[i] = math.Pow(float64(i)/skewSteps, 2)
	}
	g.agents = userAgents(g.rng)
	return g
}

// pick draws a number below n, small ones far more often.
func (g *Generator) pick(n int) int {
	return int(g.skew[g.rng.IntN(skewSteps)] * float64(n-1))
}

// Totals of what was written.
type Totals struct {
	Lines uint64 `json:"lines"`
	Bytes int64  `json:"bytes"`
}

// WriteTo writes whole lines to w, as many as fit in bytesMax.
func (g *Generator) WriteTo(w io.Writer, bytesMax int64) (Totals, error) {
	var t Totals
	bw := bufio.NewWriterSize(w, 1<<20)
	line := make([]byte, 0, 4096)
	for {
		line = g.AppendLine(line[:0])
		if t.Bytes+int64(len(line)) > bytesMax {
			break
		}
		if _, err := bw.Write(line); err != nil {
			return t, err
		}
		t.Lines++
		t.Bytes += int64(len(line))
	}
	return t, bw.Flush()
}

// AppendLine appends one line with its newline to dst.
func (g *Generator) AppendLine(dst []byte) []byte {
	g.at = g.at.Add(time.Duration(g.rng.IntN(2_000_000)))
	if s := g.at.Unix(); s != g.second {
		g.second = s
		g.stamp = g.at.AppendFormat(g.stamp[:0], [...]string{"02/Jan/2006:15:04:05 -0700", "2006-01-02T15:04:05", "Jan _2 15:04:05", "2006-01-02T15:04:05"}[g.o.Kind])
	}
	if g.o.Tag != "" {
		dst = append(dst, g.o.Tag...)
		dst = append(dst, ' ')
		dst = appendPadded(dst, g.number, NumberDigits)
		dst = append(dst, ' ')
	}
	g.number++
	switch g.o.Kind {
	case Access:
		dst = g.appendAccess(dst)
	case JSON:
		dst = g.appendJSON(dst)
	case Syslog:
		dst = g.appendSyslog(dst)
	case Long:
		for end := len(dst) + 1 + g.rng.IntN(longBytesMax); len(dst) < end; {
			dst = append(g.appendJSON(dst), ',')
		}
	}
	return append(dst, '\n')
}

// appendPadded appends v in decimal with leading zeros, width digits at least.
func appendPadded(dst []byte, v uint64, width int) []byte {
	var tmp [20]byte
	i := len(tmp)
	for v > 0 || len(tmp)-i < width {
		i--
		tmp[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, tmp[i:]...)
}

// WriteFile writes a corpus to a new or emptied file.
func WriteFile(path string, o Options, bytesMax int64) (Totals, error) {
	f, err := os.Create(path)
	if err != nil {
		return Totals{}, err
	}
	t, err := New(o).WriteTo(f, bytesMax)
	return t, errors.Join(err, f.Close())
}
