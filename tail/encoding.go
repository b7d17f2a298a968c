package tail

// Encodings. Splitting works on the bytes of the file (rule.unit says how wide a newline is); a line becomes UTF-8
// on its own, without state from the line before. So every offset stays one of the file, and a cursor needs
// nothing but the head of the file to know the byte order.

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

const (
	encodingRaw   = "raw"
	encodingUTF8  = "utf-8"
	encodingUTF16 = "utf-16" // and utf-16le, utf-16be; a byte order mark at offset 0 wins over the name
)

// encodings are those in which a newline is one byte 0x0A that is part of no other character, and a line can be
// decoded on its own. That leaves out EBCDIC, and the ISO 2022 family with its shifts.
var encodings = map[string]encoding.Encoding{
	encodingUTF8: unicode.UTF8,
	"gbk":        simplifiedchinese.GBK,
	"gb18030":    simplifiedchinese.GB18030,
	"big5":       traditionalchinese.Big5,
	"shift_jis":  japanese.ShiftJIS,
	"euc-jp":     japanese.EUCJP,
	"euc-kr":     korean.EUCKR,
	"koi8-r":     charmap.KOI8R,
	"koi8-u":     charmap.KOI8U,
	"macintosh":  charmap.Macintosh,
	"ibm437":     charmap.CodePage437, "ibm850": charmap.CodePage850, "ibm852": charmap.CodePage852, "ibm855": charmap.CodePage855,
	"ibm858": charmap.CodePage858, "ibm860": charmap.CodePage860, "ibm862": charmap.CodePage862, "ibm863": charmap.CodePage863,
	"ibm865": charmap.CodePage865, "ibm866": charmap.CodePage866,
	"iso-8859-1": charmap.ISO8859_1, "iso-8859-2": charmap.ISO8859_2, "iso-8859-3": charmap.ISO8859_3, "iso-8859-4": charmap.ISO8859_4,
	"iso-8859-5": charmap.ISO8859_5, "iso-8859-6": charmap.ISO8859_6, "iso-8859-7": charmap.ISO8859_7, "iso-8859-8": charmap.ISO8859_8,
	"iso-8859-9": charmap.ISO8859_9, "iso-8859-10": charmap.ISO8859_10, "iso-8859-13": charmap.ISO8859_13, "iso-8859-14": charmap.ISO8859_14,
	"iso-8859-15": charmap.ISO8859_15, "iso-8859-16": charmap.ISO8859_16,
	"windows-874": charmap.Windows874, "windows-1250": charmap.Windows1250, "windows-1251": charmap.Windows1251, "windows-1252": charmap.Windows1252,
	"windows-1253": charmap.Windows1253, "windows-1254": charmap.Windows1254, "windows-1255": charmap.Windows1255, "windows-1256": charmap.Windows1256,
	"windows-1257": charmap.Windows1257, "windows-1258": charmap.Windows1258,
}

// Encodings lists the names that Block.Encoding may have.
func Encodings() []string {
	names := []string{encodingRaw, encodingUTF16, encodingUTF16 + "le", encodingUTF16 + "be"}
	for name := range encodings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func checkEncoding(name string) error {
	if name != "" && !slices.Contains(Encodings(), name) {
		return fmt.Errorf("unknown encoding %q", name)
	}
	return nil
}

// decoder turns lines of one file into UTF-8. It belongs to the holder of the file.
type decoder struct {
	utf16 bool
	big   bool                     // of the name, without a byte order mark
	to    [2]transform.Transformer // by byte order; one of them if there is none
	out   []byte                   // the line decoded last
	now   int                      // index in to
}

// newDecoder returns nil for raw bytes.
func newDecoder(name string) *decoder {
	switch {
	case name == "" || name == encodingRaw:
		return nil
	case strings.HasPrefix(name, encodingUTF16):
		return &decoder{utf16: true, big: strings.HasSuffix(name, "be"), to: [2]transform.Transformer{
			unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder().Transformer,
			unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder().Transformer,
		}}
	}
	return &decoder{to: [2]transform.Transformer{encodings[name].NewDecoder().Transformer}}
}

// growth returns how many bytes of UTF-8 come of b bytes of the file at most, as a ratio. A byte that cannot be decoded
// becomes a U+FFFD of three bytes; so may one that can.
func (d *decoder) growth() (num, den int) {
	switch {
	case d == nil:
		return 1, 1
	case d.utf16:
		return 3, 2
	}
	return 3, 1
}

// rule is how lines of block are split: bytesMax counts bytes of the file, so that no record is longer than LineBytesMax.
func (d *decoder) rule(b *Block) rule {
	num, den := d.growth()
	r := rule{bytesMax: b.LineBytesMax * den / num, oversize: b.Oversize}
	switch {
	case d == nil || b.Encoding == encodingUTF8:
	case d.utf16:
		r.wide, r.bytesMax = true, r.bytesMax&^1
	default:
		r.whole, r.noMark = d.whole, true
	}
	return r
}

// order finds the byte order of a file by its first bytes.
func (d *decoder) order(head []byte) (big bool) {
	switch {
	case bytes.HasPrefix(head, markLittle):
		big = false
	case bytes.HasPrefix(head, markBig):
		big = true
	default:
		big = d.big
	}
	d.now = 0
	if big {
		d.now = 1
	}
	return big
}

// decode returns line as UTF-8 in a buffer that the next call uses again, and how many characters of it are U+FFFD:
// they stand for what is no text in this encoding.
func (d *decoder) decode(line []byte) (out []byte, replaced int) {
	t := d.to[d.now]
	t.Reset()
	num, den := d.growth()
	if need := (len(line) + 1) * num / den; cap(d.out) < need {
		d.out = make([]byte, need+need/4)
	}
	n, m, err := t.Transform(d.out[:cap(d.out)], line, true)
	if err != nil || m != len(line) {
		panic(fmt.Sprintf("BUG: tail: %d of %d bytes decoded: %v", m, len(line), err))
	}
	out = d.out[:n:n]
	return out, bytes.Count(out, replacement)
}

var replacement = []byte(string(utf8.RuneError))

// whole returns the largest length <= len(data) that does not end within a character. data starts with one.
func (d *decoder) whole(data []byte) int {
	var scratch [1024]byte
	t := d.to[d.now]
	t.Reset()
	for n := 0; ; {
		_, m, err := t.Transform(scratch[:], data[n:], false)
		n += m
		if err != transform.ErrShortDst {
			return n
		}
	}
}
