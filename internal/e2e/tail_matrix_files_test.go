package e2e

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf16"
)

// The cases of TestTailMatrix about rotation and encodings.

// pack replaces a file by its gzip, which keeps the time of the last write as gzip does.
func (d caseDir) pack(name string) {
	d.t.Helper()
	data, err := os.ReadFile(d.path(name))
	d.must(err)
	st, err := os.Stat(d.path(name))
	d.must(err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(data)
	d.must(errors.Join(err, z.Close(), os.WriteFile(d.path(name+".gz"), packed.Bytes(), 0o644), os.Chtimes(d.path(name+".gz"), st.ModTime(), st.ModTime())))
	d.rm(name)
}

// over writes in the middle of a file, as a program does that does not append.
func (d caseDir) over(name string, at int64, text string) {
	d.t.Helper()
	f, err := os.OpenFile(d.path(name), os.O_WRONLY, 0)
	d.must(err)
	_, err = f.WriteAt([]byte(text), at)
	d.must(errors.Join(err, f.Close()))
}

// copyTruncate is a rotation by copy.
func (d caseDir) copyTruncate(name, copy string) { d.t.Helper(); d.cp(name, copy); d.cut(name, 0) }

// rotate is one by rename and create.
func (d caseDir) rotate(name, to, text string) { d.t.Helper(); d.mv(name, to); d.add(name, text) }

// twice rotates two times between two looks: generation b is never seen at its path.
func (d caseDir) twice() {
	d.t.Helper()
	d.add("app.log", "a2\n")
	d.rotate("app.log", "app.log.1", "b1\n")
	d.mv("app.log.1", "app.log.2")
	time.Sleep(20 * time.Millisecond) // the clock of the file system moves
	d.rotate("app.log", "app.log.1", "c1\n")
}

func rotationCases() []fileCase {
	head := func(n int) string { return strings.Repeat("a constant head ", 80) + fmt.Sprint(n) }
	rotateAll := func(to string) func(d caseDir) {
		return func(d caseDir) {
			for i := 9; i > 0; i-- {
				if from := fmt.Sprintf("app.log.%d", i); exists(d.path(from)) {
					d.mv(from, fmt.Sprintf("app.log.%d", i+1))
				}
			}
			d.rotate("app.log", "app.log.1", to+"\n")
		}
	}
	return []fileCase{{
		id:     "C021_replaced", // what is replaced by another file is read again, once
		before: stage{func(d caseDir) { d.add("app.log", lines("1", "2")) }, one("1", "2")},
		live:   stage{func(d caseDir) { d.add(".tmp", lines("1", "2", "3")); d.mv(".tmp", "app.log") }, one("1", "2", "3")},
		down:   stage{func(d caseDir) { d.add("app.log", "4\n") }, one("4")},
	}, {
		id:     "C022_cut_a_little", // so is one that was cut short
		before: stage{func(d caseDir) { d.add("a.log", lines("11", "12", "13")) }, one("11", "12", "13")},
		frozen: stage{func(d caseDir) { d.cut("a.log", 6); d.add("a.log", lines("14", "15")) }, one("11", "12", "14", "15")},
	}, {
		id: "C027_late_writer", paths: "app.log",
		before: stage{func(d caseDir) { d.add("app.log", "a1\n") }, one("a1")},
		live:   stage{func(d caseDir) { d.rotate("app.log", "app.log.1", "b1\n"); d.add("app.log.1", "a2\n") }, [][]string{{"b1"}, {"a2"}}},
		frozen: stage{func(d caseDir) { d.add("app.log.1", "a3\n"); d.add("app.log", "b2\n") }, [][]string{{"b2"}, {"a3"}}},
		down:   stage{func(d caseDir) { d.add("app.log.1", "a4\n") }, one("a4")},
		after:  stage{func(d caseDir) { d.add("app.log.1", "a5\n"); d.add("app.log", "b3\n") }, [][]string{{"b3"}, {"a5"}}},
	}, {
		id: "C028_copytruncate", paths: "app.log",
		before: stage{func(d caseDir) { d.add("app.log", "1\n") }, one("1")},
		live:   stage{func(d caseDir) { d.copyTruncate("app.log", "app.log.1"); d.add("app.log", "2\n") }, one("2")},
		frozen: stage{func(d caseDir) {
			d.add("app.log", "3\n")
			d.copyTruncate("app.log", "app.log.2")
			d.add("app.log", "4\n")
		}, one("3", "4")},
		down: stage{func(d caseDir) {
			d.add("app.log", "5\n")
			d.copyTruncate("app.log", "app.log.3")
			d.add("app.log", "6\n")
		}, one("5", "6")},
	}, {
		id: "C028_copies_found", paths: "app.log*",
		before: stage{func(d caseDir) { d.add("app.log", lines("1", "one more")) }, one("1", "one more")},
		live:   stage{func(d caseDir) { d.copyTruncate("app.log", "app.log.1"); d.add("app.log", "2\n") }, one("2")},
		down: stage{func(d caseDir) {
			d.add("app.log", "3\n")
			d.copyTruncate("app.log", "app.log.2")
			d.add("app.log", "4\n")
		}, one("3", "4")},
	}, {
		id: "C030_constant_heads", paths: "app.log",
		before: stage{func(d caseDir) { d.add("app.log", lines(head(1), head(2))) }, one(head(1), head(2))},
		live:   stage{func(d caseDir) { d.copyTruncate("app.log", "old.1"); d.add("app.log", lines(head(3))) }, one(head(3))},
		frozen: stage{func(d caseDir) { d.copyTruncate("app.log", "old.2"); d.add("app.log", lines(head(4))) }, one(head(4))},
		down:   stage{func(d caseDir) { d.copyTruncate("app.log", "old.3"); d.add("app.log", lines(head(5), head(6))) }, one(head(5), head(6))},
	}, {
		id:     "C031_regrown",
		before: stage{func(d caseDir) { d.add("a.log", lines("1", "2")) }, one("1", "2")},
		frozen: stage{func(d caseDir) { d.cut("a.log", 0); d.add("a.log", lines("other 3", "other 4")) }, one("other 3", "other 4")},
		down:   stage{func(d caseDir) { d.cut("a.log", 0); d.add("a.log", lines("5 of the third", "6", "7")) }, one("5 of the third", "6", "7")},
	}, {
		id:     "C033_hole", // a writer that does not append goes on at its old place
		before: stage{func(d caseDir) { d.add("a.log", strings.Repeat("x", 5999)+"\n") }, one(strings.Repeat("x", 5999))},
		live:   stage{func(d caseDir) { d.cut("a.log", 0); d.over("a.log", 6000, "behind the hole\n") }, one("behind the hole")},
		down:   stage{func(d caseDir) { d.add("a.log", "next\n") }, one("next")},
	}, {
		id:     "C035_inode_again",
		before: stage{func(d caseDir) { d.add("foo.log", "foo has 29 bytes, all told..\n") }, one("foo has 29 bytes, all told..")},
		live:   stage{func(d caseDir) { d.rm("foo.log"); d.add("bar.log", "bar has 29 bytes, all told..\n") }, one("bar has 29 bytes, all told..")},
		frozen: stage{func(d caseDir) { d.rm("bar.log"); d.add("bar.log", "short\n") }, one("short")},
	}, {
		id:     "C037_inode_taken",
		before: stage{func(d caseDir) { d.add("a.log", "old\n") }, one("old")},
		down:   stage{func(d caseDir) { d.rm("a.log"); d.add("b.log", lines("new and longer", "than it was")) }, one("new and longer", "than it was")},
	}, {
		id: "C038_unseen_wide", paths: "app.log*",
		before: stage{func(d caseDir) { d.add("app.log", "a1\n") }, one("a1")},
		frozen: stage{caseDir.twice, one("a2", "b1", "c1")},
	}, {
		id: "C038_unseen_narrow", paths: "app.log",
		before: stage{func(d caseDir) { d.add("app.log", "a1\n") }, one("a1")},
		frozen: stage{caseDir.twice, one("a2", "b1", "c1")},
	}, {
		id: "C038_unseen_down", paths: "app.log",
		before: stage{func(d caseDir) { d.add("app.log", "a1\n") }, one("a1")},
		down:   stage{caseDir.twice, one("a2", "b1", "c1")},
	}, {
		id: "C040_compressed", paths: "app.log*",
		before: stage{func(d caseDir) { d.add("app.log", "1\n") }, one("1")},
		frozen: stage{func(d caseDir) { d.add("app.log", "2\n"); d.rotate("app.log", "app.log.1", "3\n"); d.pack("app.log.1") }, one("2", "3")},
		down:   stage{func(d caseDir) { d.add("app.log", "4\n") }, one("4")},
	}, {
		id:     "C042_deleted_unread",
		before: stage{func(d caseDir) { d.add("a.log", "1\n") }, one("1")},
		frozen: stage{func(d caseDir) { d.add("a.log", "2\n"); d.rm("a.log") }, one("2")},
	}, {
		id:     "C045_moved_away",
		before: stage{func(d caseDir) { d.mkdir("archive"); d.add("app.log", "1\n") }, one("1")},
		frozen: stage{func(d caseDir) {
			d.add("app.log", "2\n")
			d.rotate("app.log", "archive/app.log", "new\n")
			d.add("archive/app.log", "3\n")
		}, [][]string{{"2", "3"}, {"new"}}},
	}, {
		id: "C047_rotated_unfinished", paths: "app.log*", keys: "    idle_flush: 1s\n",
		before: stage{func(d caseDir) { d.add("app.log", "1\n") }, one("1")},
		frozen: stage{func(d caseDir) { d.add("app.log", "tail-without-lf"); d.rotate("app.log", "app.log.1", "first\n") }, [][]string{{"tail-without-lf"}, {"first"}}},
	}, {
		id: "C048_chain", paths: "app.log*",
		before: stage{func(d caseDir) { d.add("app.log", "1\n") }, one("1")},
		live:   stage{rotateAll("2"), one("2")},
		frozen: stage{func(d caseDir) { d.add("app.log", "2+\n"); rotateAll("3")(d); rotateAll("4")(d) }, one("2+", "3", "4")},
		down:   stage{func(d caseDir) { rotateAll("5")(d); rotateAll("6")(d) }, one("5", "6")},
		after:  stage{rotateAll("7"), one("7")},
	}, {
		id:     "C050_truncated_at_start",
		before: stage{func(d caseDir) { d.add("a.log", lines("1", "2", "3")) }, one("1", "2", "3")},
		live:   stage{func(d caseDir) { d.cut("a.log", 0); d.add("a.log", lines("4", "5")) }, one("4", "5")},
		down:   stage{func(d caseDir) { d.cut("a.log", 0); d.add("a.log", lines("6", "7")) }, one("6", "7")},
	}}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// wide is UTF-16, little endian.
func wide(text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

func encodingCases() []fileCase {
	text := "\xff\xfe" + wide("über 🙂\r\nzwei\r\ndrei\r\n")
	add := func(part string) func(d caseDir) { return func(d caseDir) { d.add("a.log", part) } }
	return []fileCase{{
		id:     "C052_crlf",
		before: stage{add("aa\r\n\r\nbb\r\ni\rn\n"), one("aa", "", "bb", "i\rn")},
		live:   stage{add("dd\r"), nil},
		frozen: stage{add("\nee\r\n"), one("dd", "ee")},
		down:   stage{add("ff\r\n"), one("ff")},
	}, {
		id:     "C053_bom",
		before: stage{func(d caseDir) { d.add("a.log", "\xef\xbb\xbfone\n"); d.add("only.log", "\xef\xbb\xbf") }, one("one")},
		live:   stage{add("\xef\xbb\xbfkept\n"), one("\ufeffkept")},
		down:   stage{func(d caseDir) { d.add("a.log", "two\n"); d.add("only.log", "first\n") }, [][]string{{"two"}, {"first"}}},
		after:  stage{func(d caseDir) { d.rotate("a.log", "a.old", "\xef\xbb\xbfnew\n") }, one("new")},
	}, {
		id: "C054_utf16", keys: "    encoding: utf-16\n    idle_flush: 1h\n", // cut within a unit, and within a surrogate pair
		before: stage{add(text[:5]), nil},
		live:   stage{add(text[5:14]), nil},
		frozen: stage{add(text[14:25]), one("über 🙂")},
		down:   stage{add(text[25:]), one("zwei", "drei")},
	}, {
		id:     "C056_rune_in_pieces",
		before: stage{add("x \xe2"), nil},
		live:   stage{add("\x82"), nil},
		frozen: stage{add("\xac\n\xf0\x9f"), one("x €")},
		down:   stage{add("\x99\x82\n"), one("🙂")},
	}, {
		id:     "C057_invalid_utf8",
		before: stage{add("good\nEstagi\xe1rio\n\xc0\xaf \xed\xa0\x80 \xf5\ngood too\n"), one("good", "Estagi\xe1rio", "\xc0\xaf \xed\xa0\x80 \xf5", "good too")},
	}, {
		id:     "C059_nul",
		before: stage{add("ab\x00cd\n" + strings.Repeat("\x00", 77) + "\nlast\n"), one("ab\x00cd", strings.Repeat("\x00", 77), "last")},
	}, {
		id: "C063_shift_jis", keys: "    encoding: shift_jis\n    idle_flush: 1h\n",
		before: stage{add("\x93\xfa\x96\x7b\n\x83\x65\n"), one("日本", "テ")},
		down:   stage{add("\x93\xfa\n"), one("日")},
	}, {
		id: "C063_windows_1252", keys: "    encoding: windows-1252\n    idle_flush: 1h\n",
		before: stage{add("\x80 10, na\xefve\n"), one("€ 10, naïve")},
	}}
}
