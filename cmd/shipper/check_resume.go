package main

import (
	"slices"

	"shipper/spool"
)

// checkResume says what a start would do with the files that the spool remembers: go on, or send again what was sent.
func checkResume(r *report, c *Config) {
	survey, in, err := surveyOf(c)
	if err != nil || in == nil {
		return // no spool yet: every file is new. What is wrong with the config was told
	}
	type count struct {
		known, fresh, replaced, again int
		againBytes                    int64
		from                          []string
	}
	counts := map[string]*count{}
	for i := range c.Sources {
		counts[c.Sources[i].Name] = &count{}
	}
	for _, f := range survey.Files() {
		n := counts[f.Block]
		from := f.WasBlock
		switch {
		case f.ID == 0 && f.AlsoBlock != "":
			n.again++
			n.againBytes += f.AlsoOffset
			from = f.AlsoBlock
		case f.ID == 0:
			n.fresh++
		case f.Offset < cursorOf(in, f.ID):
			n.replaced++
		default:
			n.known++
		}
		if from != "" && !slices.Contains(n.from, from) {
			n.from = append(n.from, from)
		}
	}
	for i := range c.Sources {
		name := c.Sources[i].Name
		n := counts[name]
		r.line("resume  %s: %d files go on where they were, %d are new", name, n.known, n.fresh)
		slices.Sort(n.from)
		if n.replaced > 0 {
			r.warn("%d files of source %s would be read from their start: what they hold is not what was read of them", n.replaced, name)
		}
		if n.again > 0 {
			r.warn("%d files of source %s would be sent again, %d bytes: they were read by source %v, which has its own memory; "+
				"a source that is renamed must not leave one of its old name", n.again, name, n.againBytes, n.from)
		} else if len(n.from) > 0 {
			r.line("  cursors are taken over from %v, which the config does not have any more", n.from)
		}
	}
}

func cursorOf(in *spool.Inspection, id uint64) int64 {
	for i := range in.Sources {
		if in.Sources[i].ID == id {
			return in.Sources[i].Offset
		}
	}
	return 0
}
