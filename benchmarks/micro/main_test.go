package main

import (
	"testing"
)

func TestParse(t *testing.T) {
	out := `goos: linux
pkg: shipper/tail
cpu: some
BenchmarkSplit/access-2   	    1234	       987.5 ns/op	  12.30 MB/s	       0 B/op	       0 allocs/op
BenchmarkSplit/access-2   	    1234	       985.5 ns/op	  14.30 MB/s	       0 B/op	       0 allocs/op
PASS
ok  	shipper/tail	1.2s
pkg: shipper/spool
BenchmarkAppend-2 	 10	 20 ns/op	 3.5 syncs/op	 1 B/op	 2 allocs/op
`
	got, err := parse([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	want := `| package | benchmark | ns/op | MB/s | B/op | allocs/op | more |
| --- | --- | --- | --- | --- | --- | --- |
| shipper/tail | Split/access | 986.5 | 13.3 | 0 | 0 |  |
| shipper/spool | Append | 20 | - | 1 | 2 | 3.5 syncs/op |
`
	if text := table(got).String(); text != want {
		t.Errorf("got\n%swant\n%s", text, want)
	}
	if _, err := parse([]byte("BenchmarkX-2 10 x ns/op")); err == nil {
		t.Error("a figure that is no number was taken")
	}
}
