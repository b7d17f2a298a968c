package spool

import (
	"fmt"
	"strings"
	"testing"

	"shipper/internal/vfs"
)

// TestDeliveries asks when records were acked: by batch, behind restarts and a
// heal, and from commits that do not say.
func TestDeliveries(t *testing.T) {
	o := memOptions(vfs.NewMem())
	o.RetainAckedBytes = 1 << 20
	l, _ := mustOpen(t, o)
	mustAppend(t, l, []Batch{testBatch(1, 0, 3, 50), testBatch(1, 3, 2, 50), testBatch(1, 5, 2, 50), testBatch(1, 7, 1, 50)},
		&Commit{Lanes: []Lane{{ID: 1, Block: "app", Topic: "logs"}, {ID: 2, Block: "app", Topic: "logs"}}})
	mustSync(t, l)
	ack := func(first uint64, count uint32, at int64) {
		t.Helper()
		mustAppend(t, l, nil, &Commit{Acks: []Ack{{Lane: 1, First: first, Count: count}}, Time: at})
		mustSync(t, l)
	}
	want := func(want string) {
		t.Helper()
		in, err := Inspect(o)
		if err != nil {
			t.Fatal(err)
		}
		d, err := in.Deliveries()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for index := range uint64(8) {
			at, ok := d.Time(1, index)
			got = append(got, fmt.Sprint(at))
			if !ok {
				got[index] = "-"
			}
		}
		if _, ok := d.Time(2, 0); ok || strings.Join(got, " ") != want {
			t.Fatalf("lane 1: %v, want %s; lane 2 has a time: %v", got, want, ok)
		}
	}
	ack(0, 3, 1000)
	want("1000 1000 1000 - - - - -")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, o)
	want("1000 1000 1000 - - - - -")
	ack(3, 2, 0) // as 1.1 wrote it
	want("1000 1000 1000 - - - - -")
	ack(5, 2, 3000)
	want("1000 1000 1000 3000 3000 3000 3000 -")
	mustAppend(t, l, nil, &Commit{Heads: []Head{{Lane: 1, Index: 3, Top: 7}}})
	ack(3, 2, 5000)
	want("1000 1000 1000 5000 5000 - - -")
	ack(5, 3, 6000)
	want("1000 1000 1000 5000 5000 6000 6000 6000")
}
