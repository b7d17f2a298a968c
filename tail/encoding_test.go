package tail

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
)

// encoder is the way back.
func encoder(name string) *encoding.Encoder {
	switch name {
	case "utf-16", "utf-16le":
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewEncoder()
	case "utf-16be":
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewEncoder()
	}
	return encodings[name].NewEncoder()
}

// decodeAll splits data, which becomes visible step bytes at a time, as a file of the block is split, and decodes it.
func decodeAll(t testing.TB, b *Block, data []byte, step int) (records []string, parts []uint32) {
	d := newDecoder(b.Encoding)
	r := d.rule(b)
	r.big = d.order(data)
	raw, parts, rest, _ := run(t, r, data, step)
	for _, s := range raw {
		out, _ := d.decode([]byte(s))
		if len(out) > b.LineBytesMax {
			t.Fatalf("%s: a record of %d bytes, %d allowed", b.Encoding, len(out), b.LineBytesMax)
		}
		records = append(records, string(out))
	}
	if len(rest) > 0 {
		t.Fatalf("%s: rest %q", b.Encoding, rest)
	}
	return records, parts
}

func TestEncodings(t *testing.T) {
	texts := map[string]string{
		"shift_jis": "日本語テスト", "euc-jp": "日本語ソ表", "gbk": "你好世界", "gb18030": "你好𠀀", "big5": "許功蓋", "euc-kr": "안녕하세요",
		"windows-1252": "Estagiário “1€”", "iso-8859-1": "åäö\u0080", "windows-1251": "Привет", "koi8-r": "Привет", "ibm437": "╔═╗",
		"utf-16": "𝄞 ੊ਊ é", "utf-16le": "𝄞 ੊ਊ é", "utf-16be": "𝄞 ੊ਊ é", "utf-8": "€ 𝄞",
	}
	for name, text := range texts {
		for _, mark := range []string{"", "\ufeff"} {
			if mark != "" && !strings.HasPrefix(name, "utf") {
				continue
			}
			data, err := encoder(name).String(mark + text + "\r\n\n" + text + text + "\nx\ry\n")
			if err != nil {
				t.Fatal(name, err)
			}
			want := []string{text, "", text + text, "x\ry"}
			for step := range 5 {
				if got, _ := decodeAll(t, &Block{Encoding: name, LineBytesMax: 300}, []byte(data), step); !slices.Equal(got, want) {
					t.Errorf("%s, step %d: got %q, want %q", name, step, got, want)
				}
			}
		}
	}
}

func TestDecodeInvalid(t *testing.T) {
	for _, c := range []struct {
		name, line, want string
		replaced         int
	}{
		{"utf-8", "Estagi\xe1rio", "Estagi\ufffdrio", 1},
		{"utf-8", "\xc0\xaf\xed\xa0\x80\xf5", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd", 6},
		{"utf-16le", "a\x00\x00\xd8b\x00c", "a\ufffdb\ufffd", 2},
		{"windows-1252", "a\x81\x8d", "a\ufffd\ufffd", 2},
		{"windows-1253", "a\xaa", "a\ufffd", 1},
		{"shift_jis", "a\x83", "a\ufffd", 1},
	} {
		d := newDecoder(c.name)
		if got, n := d.decode([]byte(c.line)); string(got) != c.want || n != c.replaced {
			t.Errorf("%s %q: got %q with %d replaced, want %q with %d", c.name, c.line, got, n, c.want, c.replaced)
		}
	}
}

// TestEncodedBlock asks for the name of the encoding in the error.
func TestEncodedBlock(t *testing.T) {
	_, err := NewWatcher(Options{Blocks: []Block{{Name: "b", Paths: []string{"/a"}, LineBytesMax: 100, Encoding: "sjiss"}}})
	if err == nil || !strings.Contains(err.Error(), `source block "b": unknown encoding "sjiss"`) {
		t.Fatal(err)
	}
}

// FuzzEncoded writes a text in an encoding, lets it become visible in pieces, and wants the text back, whatever the pieces
// and wherever long lines are split.
func FuzzEncoded(f *testing.F) {
	f.Add("日本語\r\n\nテスト", uint8(0), 3, 40)
	f.Add("a\u0a0a\u0d0d\n\U0001d11e\U0001d11e\U0001d11e\U0001d11e\U0001d11e\r", uint8(40), 1, 20)
	names := Encodings()
	f.Fuzz(func(t *testing.T, text string, which uint8, step, limit int) {
		b := &Block{Encoding: names[int(which)%len(names)], LineBytesMax: limit}
		if limit < lineBytesMin || limit > 1<<16 || step < 0 || step > 1<<16 || len(text) > 4096 || b.Encoding == encodingRaw ||
			!utf8.ValidString(text) || strings.HasPrefix(text, "\ufeff") || strings.Contains(text, strings.Repeat("\x00", nulRunBytesMin/2)) {
			return
		}
		text += "\n"
		data, err := encoder(b.Encoding).String(text)
		if back, _ := newDecoder(b.Encoding).withOrder().decode([]byte(data)); err != nil || string(back) != text {
			return // the encoding does not have these characters, or several bytes for one
		}
		if head := []byte(data[:min(2, len(data))]); string(head) == string(markLittle) || string(head) == string(markBig) {
			return
		}
		records, parts := decodeAll(t, b, []byte(data), step)
		var got strings.Builder
		for i, s := range records {
			if i > 0 && parts[i] == 0 && got.Len() > 0 {
				got.WriteByte('\n')
			}
			got.WriteString(s)
		}
		want := strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
		if g, w := strings.Trim(got.String(), "\r\n"), strings.Trim(want, "\r\n"); g != w {
			t.Fatalf("%s: got %q\nwant %q", b.Encoding, g, w)
		}
	})
}

// withOrder sets the byte order of a file without a mark.
func (d *decoder) withOrder() *decoder {
	d.order(nil)
	return d
}

// FuzzDecode feeds bytes that are no text: whatever they are, a line becomes valid UTF-8 of bounded length.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x81\x30\xff\xfe\x00\xd8"), uint8(3))
	names := Encodings()
	f.Fuzz(func(t *testing.T, line []byte, which uint8) {
		d := newDecoder(names[int(which)%len(names)])
		if d == nil {
			return
		}
		d.order(nil)
		out, replaced := d.decode(line)
		num, den := d.growth()
		if !utf8.Valid(out) || len(out) > (len(line)+den-1)/den*num || replaced > len(line) {
			t.Fatalf("%q became %q", line, out)
		}
		r := d.rule(&Block{Encoding: names[int(which)%len(names)], LineBytesMax: 1000})
		if r.whole != nil {
			if n := r.whole(line); n < 0 || n > len(line) || len(line)-n > 4 {
				t.Fatalf("whole(%q) = %d", line, n)
			}
		}
	})
}

func TestDecodeAllocs(t *testing.T) {
	for _, name := range []string{"utf-16le", "windows-1252", "gbk", "utf-8"} {
		d := newDecoder(name)
		line := []byte(strings.Repeat("a\x00", 100))
		if n := testing.AllocsPerRun(100, func() { d.decode(line) }); n > 0 {
			t.Errorf("%s: %v allocations a line", name, n)
		}
	}
}
