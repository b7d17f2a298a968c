package record

import (
	"slices"
	"strings"
)

// Multiline says which lines make one record. At most one of Preset, Start, Continue, Indent and Count is given.
type Multiline struct {
	Preset   string // java, python, go, dotnet, ruby
	Start    string // a line that matches begins a record
	Continue string // a line that matches belongs to the record before it
	Indent   bool   // a line that is blank or begins with a blank or a tab belongs to the record before it
	Count    int    // so many lines are a record
	LinesMax int    // 0: 1000
}

// multiline is a compiled Multiline.
type multiline struct {
	start    *pattern
	cont     *pattern
	indent   bool
	count    int
	linesMax int
	preset   *preset
}

// preset knows the traces of a language. Blank and indented lines always belong to the record before them; so does
// what matches more. Behind a line that matches trace, what matches inside does too, and what matches last, as the last line of the trace.
type preset struct {
	begins *pattern // begins a record, unless it may be the last line of a trace
	more   *pattern
	trace  *pattern
	inside *pattern
	last   *pattern
}

func (f *Format) compileMultiline() (err error) {
	c := &f.cfg.Multiline
	given := []bool{c.Preset != "", c.Start != "", c.Continue != "", c.Indent, c.Count != 0}
	n := 0
	for _, is := range given {
		if is {
			n++
		}
	}
	if n > 1 {
		return wrong("multiline", "has more than one of preset, start, continue, indent and count; one of them says what a record is")
	}
	if n == 0 {
		return nil
	}
	m := &multiline{indent: c.Indent, count: c.Count, linesMax: c.LinesMax}
	if m.linesMax == 0 {
		m.linesMax = linesDefault
	}
	if m.linesMax < 1 || m.linesMax > linesLimit {
		return wrong("multiline.max_lines", "is %d; it is from 1 to %d", c.LinesMax, linesLimit)
	}
	if m.count < 0 || m.count > m.linesMax {
		return wrong("multiline.count", "is %d; it is from 1 to max_lines (%d)", c.Count, m.linesMax)
	}
	if c.Start != "" {
		if m.start, err = compilePattern(c.Start); err != nil {
			return wrong("multiline.start", "%v", err)
		}
	}
	if c.Continue != "" {
		if m.cont, err = compilePattern(c.Continue); err != nil {
			return wrong("multiline.continue", "%v", err)
		}
	}
	if c.Preset != "" {
		p, ok := presets[c.Preset]
		if !ok {
			return wrong("multiline.preset", "is %q; it is one of %s", c.Preset, strings.Join(Presets(), ", "))
		}
		m.preset = p
	}
	f.multiline = m
	return nil
}

// Presets are the names that Multiline.Preset takes.
func Presets() []string {
	var names []string
	for name := range presets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// continues tells whether a line belongs to the record that u is so far.
func (m *multiline) continues(u *unit, line []byte) bool {
	switch {
	case m.count > 0:
		return int(u.lines) < m.count
	case m.start != nil:
		return !m.start.match(line)
	case m.cont != nil:
		return m.cont.match(line)
	}
	blank := indented(line)
	if m.indent {
		return blank
	}
	p := m.preset
	if !blank && p.begins != nil && (!u.inTrace || p.last == nil) && p.begins.match(line) {
		return false
	}
	was := u.inTrace
	u.inTrace = p.trace != nil && p.trace.match(line)
	switch {
	case blank || p.more != nil && p.more.match(line):
		u.inTrace = u.inTrace || was
		return true
	case u.inTrace:
		return true
	case was && p.inside != nil && p.inside.match(line):
		u.inTrace = true
		return true
	case was && p.last != nil && p.last.match(line):
		return true
	}
	return false
}

// restOf tells whether a line may be the rest of a record that was cut.
func (m *multiline) restOf(line []byte) bool {
	return m.count == 0 && m.continues(&unit{lines: 1}, line)
}

// begin notes what the first line of a record says.
func (m *multiline) begin(u *unit, line []byte) {
	u.inTrace = m.preset != nil && m.preset.trace != nil && m.preset.trace.match(line)
}

func indented(line []byte) bool {
	return len(line) == 0 || line[0] == ' ' || line[0] == '\t' || len(line) == 1 && line[0] == '\r'
}

// presets: what the run times of these languages print.
var presets = map[string]*preset{
	// A line of a log that is followed by the trace of the exception that was logged is one record with it.
	"java": {
		begins: must(`^Exception in thread `),
		more:   must(`^(Caused by: |Suppressed: |(?:[a-zA-Z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)\b)`),
	},
	"python": {
		trace:  must(`^Traceback \(most recent call last\):|^During handling of the above exception|^The above exception was the direct cause`),
		last:   must(`^[a-zA-Z_][\w.]*(:|$)`),
		inside: must(`^  \+|^\s+\|`),
	},
	"go": {
		begins: must(`^(panic: |fatal error: )`),
		trace:  must(`^(panic: |fatal error: |goroutine \d+ \[)`),
		inside: must(`^(\[signal |created by |exit status \d|runtime\.|[\w./*()\-\[\]{}@~%]+\(.*\)$|r[a-z0-9]{1,2} +0x)`),
	},
	"dotnet": {
		begins: must(`^Unhandled exception`),
		more:   must(`^(--- |[a-zA-Z_][\w]*(?:\.[\w` + "`" + `+]+)+(?:Exception|Error)\b)`),
	},
	"ruby": {
		begins: must(`^[^\s:]+:\d+:in .*\(`),
		more:   must("^[^\\s:]+:\\d+:in [`'][^`']+'$"), // of an exception that was given to Logger: frames without indentation
		trace:  must(`^Traceback \(most recent call last\)`),
		last:   must(`^[^\s:]+:\d+:in `),
	},
}

func must(expr string) *pattern {
	p, err := compilePattern(expr)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return p
}
