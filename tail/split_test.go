package tail

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// run drives split over data that becomes visible step bytes at a time (0: at once) and returns the records,
// for each whether it continues the one before, and the bytes that were neither handed out nor dropped.
func run(t testing.TB, r rule, data []byte, step int) (records []string, parts []uint32, rest []byte, dropped int) {
	at := lineAt{start: true}
	pos := 0
	for end := min(len(data), max(step, 0)); ; end = min(end+step, len(data)) {
		if step <= 0 {
			end = len(data)
		}
		for {
			p := r.split(data[pos:end], at)
			if p.n == 0 {
				break
			}
			if p.n < 0 || p.n > end-pos || p.from < 0 || p.from > p.to || p.to > p.n {
				t.Fatalf("split(%q, %v) = %+v", data[pos:end], at, p)
			}
			if p.emit {
				if p.to-p.from > r.bytesMax {
					t.Fatalf("a record of %d bytes, %d allowed", p.to-p.from, r.bytesMax)
				}
				records = append(records, string(data[pos+p.from:pos+p.to]))
				parts = append(parts, p.part)
			}
			dropped += p.dropped + p.nul
			pos += p.n
			at = p.next
			at.start = false
		}
		if end == len(data) {
			return records, parts, data[pos:], dropped
		}
	}
}

func TestSplit(t *testing.T) {
	long := strings.Repeat("0123456789", 3)
	hole := strings.Repeat("\x00", nulRunBytesMin)
	for _, c := range []struct {
		name, data, want, rest string
		rule                   rule
		dropped                int
	}{
		{"lines", "a\nb\r\n\n\r\nc", "a|b||", "c", rule{bytesMax: 20, oversize: Split}, 0},
		{"inner CR", "a\rb\r\r\n", "a\rb\r", "", rule{bytesMax: 20, oversize: Split}, 0},
		{"BOM", "\xef\xbb\xbfa\n\xef\xbb\xbfb\n", "a|\xef\xbb\xbfb", "", rule{bytesMax: 20, oversize: Split}, 0},
		{"half a BOM", "\xef\xbb", "", "\xef\xbb", rule{bytesMax: 20, oversize: Split}, 0},
		{"hole", hole + "a\n", "a", "", rule{bytesMax: 20, oversize: Split}, len(hole)},
		{"open hole", hole, "", hole, rule{bytesMax: 2000, oversize: Split}, 0},
		{"few NULs", hole[1:] + "a\n", hole[1:] + "a", "", rule{bytesMax: 2000, oversize: Split}, 0},
		{"exactly", long[:20] + "\n" + long[:20] + "\r\n", long[:20] + "|" + long[:20], "", rule{bytesMax: 20, oversize: Split}, 0},
		{"split", long + "\nx\n", long[:20] + "|" + long[20:] + "|x", "", rule{bytesMax: 20, oversize: Split}, 0},
		{"cut", long + "\nx\n", long[:20] + "|x", "", rule{bytesMax: 20, oversize: Cut}, 10},
		{"skip", long + "\nx\n", "x", "", rule{bytesMax: 20, oversize: Skip}, 30},
		{"cut without end", long, long[:20], "", rule{bytesMax: 20, oversize: Cut}, 10},
		{"CR may be half a delimiter", long[:20] + "\r", "", long[:20] + "\r", rule{bytesMax: 20, oversize: Split}, 0},
		{"rune at the cut", long[:18] + "\u20acabc\n", long[:18] + "|\u20acabc", "", rule{bytesMax: 20, oversize: Split}, 0},
		{"no rune at the cut", long[:18] + "\x80\x80\x80\x80\x80\n", long[:18] + "\x80\x80|\x80\x80\x80", "", rule{bytesMax: 20, oversize: Split}, 0},
	} {
		for _, step := range []int{0, 1, 7} {
			records, _, rest, dropped := run(t, c.rule, []byte(c.data), step)
			if c.name == "no rune at the cut" && step != 0 {
				continue // where it is cut depends on what could be seen
			}
			if got := strings.Join(records, "|"); got != c.want || string(rest) != c.rest || dropped != c.dropped {
				t.Errorf("%s, step %d: got %q rest %q dropped %d, want %q rest %q dropped %d", c.name, step, got, rest, dropped, c.want, c.rest, c.dropped)
			}
		}
	}
}

// FuzzSplit compares with a splitter that sees everything at once and knows no buffers: all bytes come out
// (rule Split), in order, whatever the pieces in which they became visible.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n"), 3, 20, uint8(0))
	f.Add([]byte("\xef\xbb\xbfx\r\r\n\x00\x00y"), 1, 16, uint8(1))
	f.Add(append(bytes.Repeat([]byte{0}, 600), "z\n"...), 100, 16, uint8(2))
	f.Add([]byte(strings.Repeat("\u20ac", 40)+"\n"), 5, 17, uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, step, limit int, oversize uint8) {
		if limit < lineBytesMin || limit > 1<<16 || oversize > uint8(Skip) || step < 0 || step > 1<<16 || len(data) > 4096 {
			return
		}
		r := rule{bytesMax: limit, oversize: Oversize(oversize)}
		records, parts, rest, dropped := run(t, r, data, step)
		if len(data) > 0 && step > 0 && len(rest) < len(data) || step == 0 {
			all, _, restAll, droppedAll := run(t, r, data, 0)
			if r.oversize != Split && (len(all) != len(records) || len(restAll) != len(rest)) {
				t.Fatalf("pieces of %d: %d records, at once %d", step, len(records), len(all))
			}
			if r.oversize == Skip && droppedAll != dropped {
				t.Fatalf("pieces of %d: %d dropped, at once %d", step, dropped, droppedAll)
			}
		}
		if r.oversize != Split {
			return
		}
		var joined []byte
		for i, s := range records {
			if i > 0 && parts[i] == 0 {
				joined = append(joined, '\n')
			}
			joined = append(joined, s...)
		}
		read := data[:len(data)-len(rest)]
		if got, want := joined, plain(read); len(records) > 0 && !bytes.Equal(got, want) {
			t.Fatalf("got %q\nwant %q\nof %q", got, want, read)
		}
	})
}

// plain is what a text looks like without delimiters' CRs, the byte order mark and holes at line starts.
func plain(data []byte) []byte {
	data = bytes.TrimPrefix(data, bom)
	ended := bytes.HasSuffix(data, []byte("\n"))
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	for i, l := range lines {
		if run := nulRun(l); run >= nulRunBytesMin {
			l = l[run:]
		}
		if ended || i < len(lines)-1 {
			l = bytes.TrimSuffix(l, []byte("\r"))
		}
		lines[i] = l
	}
	return bytes.Join(lines, []byte("\n"))
}

func FuzzFlushable(f *testing.F) {
	f.Add([]byte("abc\xe2\x82"), 20)
	f.Add([]byte("x\r"), 20)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		if limit < lineBytesMin || limit > 1<<16 || bytes.IndexByte(data, '\n') >= 0 {
			return
		}
		r := rule{bytesMax: limit}
		n := r.flushable(data, lineAt{})
		if n < 0 || n > len(data) || n > limit {
			t.Fatalf("flushable(%q) = %d", data, n)
		}
		if n > 0 && utf8.Valid(data) && len(data) <= limit && !utf8.Valid(data[:n]) {
			t.Fatalf("flushable(%q) = %d cuts a rune", data, n)
		}
	})
}
