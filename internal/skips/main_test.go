package main

import (
	"strings"
	"testing"
)

const said = `go test -json ./...
{"Action":"run","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"--- PASS: TestOne (0.00s)\n"}
{"Action":"pass","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestTwo","Output":"    a_test.go:7: no such thing here\n"}
{"Action":"skip","Package":"a","Test":"TestTwo"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"b","Test":"TestThree/x","Output":"    b_test.go:1: bad\n"}
{"Action":"fail","Package":"b","Test":"TestThree/x"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.1s\n"}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: syntax error\n"}
`

func TestSkips(t *testing.T) {
	const shown = "go test -json ./...\nok  \ta\t0.1s\n    b_test.go:1: bad\nFAIL\tb\t0.1s\nc.go:1: syntax error\n"
	again := said + `{"Action":"pass","Package":"a","Test":"TestTwo"}` + "\n"
	for _, c := range []struct {
		name, in, list string
		wrong          bool
	}{
		{"not in the list", said, "", true},
		{"of another package", said, "b TestTwo reason\n", true},
		{"without a reason", said, "a TestTwo\n", true},
		{"in the list", said, "a TestTwo reason\n", false},
		{"one of several", said, "a Test* some reason\n", false},
		{"passed another time", again, "", false},
	} {
		var out strings.Builder
		err := run(strings.NewReader(c.in), &out, c.list)
		if out.String() != shown {
			t.Errorf("%s: shown:\n%s", c.name, out.String())
		}
		if c.wrong != (err != nil) || err != nil && !strings.Contains(err.Error(), "a TestTwo\n    a_test.go:7: no such thing here") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
