package main

import (
	"fmt"
	"strings"
)

// patternFault says why doublestar does not take a pattern; "": it does.
func patternFault(s string) string {
	var open []int // braces
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return `a \ at the end has nothing to quote; \\ is a backslash itself`
			}
		case '[':
			end, fault := classEnd(s, i)
			if fault != "" {
				return fault
			}
			i = end
		case '{':
			open = append(open, i)
		case '}':
			if len(open) == 0 {
				return fmt.Sprintf(`the } of %q has no { before it; \} is a brace itself`, s[:i+1])
			}
			open = open[:len(open)-1]
		}
	}
	if n := len(open); n > 0 {
		return fmt.Sprintf(`the { of %q has no } behind it; \{ is a brace itself`, s[open[n-1]:])
	}
	return ""
}

// classEnd is where the class of characters ends that begins with the bracket at start.
func classEnd(s string, start int) (end int, fault string) {
	first := start + 1
	if first < len(s) && (s[first] == '^' || s[first] == '!') {
		first++
	}
	if first < len(s) && s[first] == ']' {
		return 0, fmt.Sprintf(`%q names no character; \] is a bracket itself`, s[start:first+1])
	}
	for i := first; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ']':
			return i, ""
		}
	}
	hint := ""
	if strings.HasSuffix(s[start:], `\]`) {
		hint = `, since \] is a bracket itself`
	}
	return 0, fmt.Sprintf(`the [ of %q has no ] behind it%s; \[ is a bracket itself`, s[start:], hint)
}
