package kafkatest

import (
	"fmt"
	"strings"
	"testing"
)

func lines(tag string, n int) []string {
	var l []string
	for i := range n {
		l = append(l, string(AppendLine(nil, tag, i, 40)))
	}
	return l
}

// Steps name records as tag:number@partition; the report must say exactly what is wrong.
func TestCheck(t *testing.T) {
	written := map[string][]string{"a": lines("a", 4), "b": lines("b", 2)}
	for _, tt := range []struct {
		name, got string
		want      Report
	}{
		{"all there", "a:0@0 b:0@1 a:1@0 a:2@0 b:1@1 a:3@0", Report{Delivered: 6}},
		{"none", "", Report{Lost: 6}},
		{"one lost", "a:0@0 a:1@0 a:3@0 b:0@1 b:1@1", Report{Delivered: 5, Lost: 1}},
		{"one doubled", "a:0@0 a:1@0 a:1@0 a:2@0 a:3@0 b:0@1 b:1@1", Report{Delivered: 6, Doubled: 1}},
		{"a run doubled is no disorder", "a:0@0 a:1@0 a:0@0 a:1@0 a:2@0 a:3@0 b:0@1 b:1@1", Report{Delivered: 6, Doubled: 2}},
		{"swapped", "a:0@0 a:2@0 a:1@0 a:3@0 b:0@1 b:1@1", Report{Delivered: 6, Disorder: 1}},
		{"order is per partition", "a:2@1 a:3@1 a:0@0 a:1@0 b:0@1 b:1@1", Report{Delivered: 6, Spread: 1}},
		{"foreign", "a:0@0 a:1@0 a:2@0 a:3@0 b:0@1 b:1@1 c:0@0 a:4@0 junk@0", Report{Delivered: 6, Foreign: 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []Record
			for i, f := range strings.Fields(tt.got) {
				name, part, _ := strings.Cut(f, "@")
				r := Record{Partition: int32(part[0] - '0'), Offset: int64(i), Value: []byte(name)}
				if tag, num, ok := strings.Cut(name, ":"); ok {
					r.Value = AppendLine(nil, tag, int(num[0]-'0'), 40)
				}
				got = append(got, r)
			}
			rep := Check(written, got)
			have := fmt.Sprintf("%d %d %d %d %d %d", rep.Delivered, rep.Lost, rep.Doubled, rep.Disorder, rep.Foreign, rep.Spread)
			w := tt.want
			if want := fmt.Sprintf("%d %d %d %d %d %d", w.Delivered, w.Lost, w.Doubled, w.Disorder, w.Foreign, w.Spread); have != want {
				t.Errorf("report %s, want %s\n%s", have, want, rep.Error())
			}
			if rep.Files != 2 || rep.Written != 6 {
				t.Errorf("%d lines of %d files", rep.Written, rep.Files)
			}
			bad := w.Lost+w.Doubled+w.Disorder+w.Foreign > 0
			if rep.OK() == bad || (rep.Error() == "") == bad || (rep.Err() == nil) == bad {
				t.Errorf("OK %v, error %q", rep.OK(), rep.Error())
			}
		})
	}
}

// A line cut or mixed with another is foreign, and its true self is lost.
func TestCheckCutLine(t *testing.T) {
	l := lines("a", 2)
	rep := Check(map[string][]string{"a": l}, []Record{{Value: []byte(l[0])}, {Offset: 1, Value: []byte(l[1][:30])}})
	if rep.Foreign != 1 || rep.Lost != 1 {
		t.Errorf("%d foreign, %d lost, want one of each", rep.Foreign, rep.Lost)
	}
	want := "lost a lines 1 to 1 of 2"
	if !strings.Contains(rep.Error(), want) {
		t.Errorf("error %q does not say %q", rep.Error(), want)
	}
}
