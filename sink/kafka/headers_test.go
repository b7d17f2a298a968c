package kafka

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records with headers, as the public decoder reads them; ours skips headers and counts them.
func TestAppendHeaders(t *testing.T) {
	r := testRand(t)
	var b Builder
	b.Reset(make([]byte, 0, 4<<20))
	type want struct {
		value, key []byte
		headers    []RecordHeader
	}
	var all []want
	for range 300 {
		w := want{value: randomBytes(r, r.IntN(200)), key: randomBytes(r, r.IntN(20))}
		for range r.IntN(5) {
			w.headers = append(w.headers, RecordHeader{randomBytes(r, 1+r.IntN(100)), randomBytes(r, r.IntN(300))})
		}
		all = append(all, w)
		before := len(b.Records())
		b.AppendHeaders(testTime, w.key, w.value, true, w.headers)
		if n := len(b.Records()) - before; n > len(w.key)+len(w.value)+HeadersBytesMax(w.headers)+RecordOverheadMax {
			t.Fatalf("%d bytes for a record that should fit fewer", n)
		}
	}
	p := b.Records()
	for i, w := range all {
		ours, rest, err := NextRecord(p, testTime)
		if err != nil || !bytes.Equal(ours.Value, w.value) || ours.Headers != len(w.headers) {
			t.Fatalf("record %d: %+v, %v", i, ours, err)
		}
		var theirs kmsg.Record
		if err := theirs.ReadFrom(p[:len(p)-len(rest)]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(theirs.Key, w.key) || !bytes.Equal(theirs.Value, w.value) || len(theirs.Headers) != len(w.headers) {
			t.Fatalf("record %d: %+v", i, theirs)
		}
		for j, h := range w.headers {
			if theirs.Headers[j].Key != string(h.Key) || !bytes.Equal(theirs.Headers[j].Value, h.Value) {
				t.Fatalf("record %d, header %d: %+v", i, j, theirs.Headers[j])
			}
		}
		p = rest
	}
	mustPanic(t, "BUG: 1 headers", func() {
		var small Builder
		small.Reset(make([]byte, 0, 100))
		small.AppendHeaders(0, nil, nil, false, []RecordHeader{{Key: make([]byte, 80)}})
	})
}

func TestNoAllocationForHeaders(t *testing.T) {
	var b Builder
	buf := make([]byte, 0, 4096)
	headers := []RecordHeader{{[]byte("host"), []byte("a")}, {[]byte("path"), []byte("/var/log/a.log")}}
	if n := testing.AllocsPerRun(100, func() {
		b.Reset(buf)
		b.AppendHeaders(testTime, nil, buf[:100], false, headers)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
