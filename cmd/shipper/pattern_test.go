package main

import (
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
)

func TestPatternFault(t *testing.T) {
	for _, c := range [][2]string{
		{`/x/*.log`, ""},
		{`/x/{a,{b,c}}/**/[!a-z\]]\{*`, ""},
		{`/x/a]b`, ""}, // a bracket itself
		{`/x/a]b}`, `the } of "/x/a]b}" has no {`},
		{`/x/{a,b}}.log`, `the } of "/x/{a,b}}" has no {`},
		{`/x/a\`, `a \ at the end`},
		{`/x/[a`, `the [ of "[a" has no ]`},
		{`/x/[a\]`, `has no ] behind it, since \] is a bracket itself`},
		{`/x/[a\`, `the [ of "[a\\" has no ]`},
		{`/x/[`, `the [ of "[" has no ]`},
		{`/x/[]a]`, `"[]" names no character`},
		{`/x/[^]`, `"[^]" names no character`},
		{`/x/{a,{b,c}`, `the { of "{a,{b,c}" has no }`},
		{`/x/{a\}`, `the { of "{a\\}" has no }`},
		{`/x/{[a}]`, `the { of "{[a}]" has no }`},
	} {
		if got := patternFault(c[0]); (got == "") != (c[1] == "") || !strings.Contains(got, c[1]) {
			t.Errorf("%s: %s; want %s", c[0], got, c[1])
		}
	}
}

// What has a fault is what doublestar does not take.
func FuzzPatternFault(f *testing.F) {
	for _, s := range []string{`/a{b,[^c]}\d`, `]`, `[]]`, `{{}`, `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if fault := patternFault(s); (fault == "") != doublestar.ValidatePattern(s) {
			t.Errorf("%q: fault %q, and doublestar takes it: %v", s, fault, doublestar.ValidatePattern(s))
		}
	})
}
