// `shipper check`: what `run` would find, without changing anything or speaking to Kafka.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"shipper/pipeline"
	"shipper/spool"
	"shipper/tail"
)

// checkConfig prints a report to out. The error says why the agent could not start; what it would start with, oddly, is a warning.
func checkConfig(c *Config, out io.Writer) error {
	r := &report{out: out}
	security := "plain text"
	if c.Kafka.TLS.Enabled {
		security = "TLS"
	}
	if m := c.Kafka.SASL.Mechanism; m != "" {
		security += ", SASL " + m
	}
	r.line("config  %s", c.File)
	r.line("kafka   %s (%s, %s; not contacted)", strings.Join(c.Kafka.Brokers, ", "), security, c.Kafka.Compression)
	for _, w := range c.Warnings {
		r.warn("%v", w)
	}
	for i := range c.Sources {
		checkSource(r, &c.Sources[i], c.SymlinkRoots)
	}
	if err := checkSpool(r, c); err != nil {
		return err
	}
	checkResume(r, c)
	r.line("the agent can start; warnings: %d", r.warnings)
	return nil
}

// report is the output of a check.
type report struct {
	out      io.Writer
	warnings int
}

func (r *report) line(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func (r *report) warn(format string, args ...any) {
	r.warnings++
	r.line("  warning: "+format, args...)
}

// checkSource prints what the patterns of s match now. Files are counted once, however many patterns and links lead to them.
func checkSource(r *report, s *SourceConfig, symlinkRoots []string) {
	r.line("source  %s -> topic %s", s.Name, s.Topic)
	files, bytes := make(map[string]bool), int64(0)
	for _, pattern := range s.Paths {
		paths, err := glob(pattern)
		if err != nil {
			r.warn("%s: %v; files below it are not found", pattern, err)
		}
		matched := 0
		for _, path := range paths {
			if s.excludes(path) {
				continue
			}
			matched++
			size, err := readableSize(path, symlinkRoots)
			if err != nil {
				r.warn("%v", err)
				continue
			}
			if real, err := filepath.EvalSymlinks(path); err == nil && !files[real] {
				files[real] = true
				bytes += size
			}
		}
		if matched == 0 && err == nil {
			r.warn("%s: %s", pattern, whyNoMatch(pattern, len(paths)))
		}
	}
	r.line("  %d files, %d bytes", len(files), bytes)
}

// glob lists what the agent would look at: all that matches and is no directory. The error is the first one that kept it from
// looking everywhere.
func glob(pattern string) (paths []string, err error) {
	found, err := tail.Find(pattern)
	return slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.IsDir()
	}), err
}

// warnUnmatched logs the patterns of a starting agent that match nothing yet: a typo, more often than not. The agent goes on looking.
func warnUnmatched(c *Config, log *slog.Logger) {
	for _, s := range c.Sources {
		for _, pattern := range s.Paths {
			if paths, _ := glob(pattern); len(paths) == 0 { // the watcher tells of errors
				log.Warn("a pattern matches no file: "+whyNoMatch(pattern, 0), "source", s.Name, "pattern", pattern)
			}
		}
	}
}

func (s *SourceConfig) excludes(path string) bool {
	return slices.ContainsFunc(s.Exclude, func(pattern string) bool {
		match, err := doublestar.PathMatch(pattern, path)
		return err == nil && match
	})
}

// readableSize opens a file as the agent would.
func readableSize(path string, symlinkRoots []string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file and is never read", path)
	}
	return info.Size(), tail.Readable(path, symlinkRoots)
}

// whyNoMatch explains a pattern without files; the agent goes on looking for them.
func whyNoMatch(pattern string, excluded int) string {
	base, _ := doublestar.SplitPattern(pattern)
	_, err := os.Stat(base)
	switch {
	case excluded > 0:
		return fmt.Sprintf("all %d matching files are excluded", excluded)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("no match yet, the directory %s does not exist", base)
	case err != nil:
		return fmt.Sprintf("no match, %s: %v", base, pathless(err))
	}
	return "no match yet"
}

// checkSpool says whether the agent could use its spool directory.
func checkSpool(r *report, c *Config) error {
	dir := c.Spool.Dir
	existing, missing := nearestExisting(dir)
	info, err := os.Stat(existing)
	switch {
	case err != nil:
		return c.failureAt("spool.dir", "%s: %v", existing, pathless(err))
	case !info.IsDir():
		return c.failureAt("spool.dir", "%s is not a directory", existing)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, existing, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return c.failureAt("spool.dir", "cannot write to %s: %v", existing, err)
	}
	plan, err := spool.Check(spool.Options{Dir: filepath.Clean(dir), MaxBytes: c.Spool.MaxBytes, MinFreeBytes: c.Spool.MinFreeBytes,
		RetainAckedBytes: c.Spool.RetainAckedBytes, AllowNetworkFS: c.Spool.AllowNetworkFS}, existing)
	if err != nil {
		return c.failureAt("spool.dir", "%v", err)
	}
	note := "exists"
	if missing {
		note = "will be made"
	}
	r.line("spool   %s (%s; up to %s; %s free on its volume)", dir, note, roughSize(plan.MaxBytes), roughSize(plan.FreeBytes))
	for _, w := range plan.Warnings {
		r.warn("%s", w)
	}
	p := spoolUse(c)
	if err := pipeline.CheckRoom(p, &plan); err != nil {
		return c.failureAt("spool.max_bytes", "%v", err)
	}
	checkShares(r, p, &plan)
	if plan.FreeBytes < plan.MaxBytes {
		r.warn("the volume of %s has less room free than the spool may take", existing)
	}
	return nil
}

// spoolUse is what of the config says how much of the spool lines take.
func spoolUse(c *Config) *pipeline.Config {
	p := &pipeline.Config{Spool: pipeline.Spool{RetainAckedBytes: c.Spool.RetainAckedBytes, GapTopic: c.Spool.GapTopic}}
	for i := range c.Sources {
		s := &c.Sources[i]
		p.Sources = append(p.Sources, pipeline.Source{Name: s.Name, Topic: s.Topic, SpoolShare: s.SpoolShare, LineBytesMax: int(s.LineBytesMax), Oversize: s.Oversize, Record: s.toRecord()})
	}
	return p
}

// checkShares warns of sources that a full spool may keep out because the part of it that is theirs holds less than a line. They have a
// turn one by one then, and only as long as Kafka takes their lines.
func checkShares(r *report, p *pipeline.Config, plan *spool.Plan) {
	var narrow []string
	least := int64(0)
	for i, kept := range pipeline.KeptBytes(p, plan) {
		if kept < int64(p.Sources[i].LineBytesMax) {
			narrow = append(narrow, p.Sources[i].Name)
			least = kept
		}
	}
	if len(narrow) > 0 {
		r.warn("the spool keeps %s for source %s (%d sources in all), less than one line of max_line_bytes: while lines of others that cannot be sent fill it, its long lines wait for their turn; "+
			"raise spool.max_bytes or lower max_line_bytes", roughSize(least), narrow[len(narrow)-1], len(narrow))
	}
}

// roughSize is for reading, not for counting.
func roughSize(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// nearestExisting is dir, or the nearest directory above it that is there. A path that leads through a file ends at the file.
func nearestExisting(dir string) (existing string, missing bool) {
	for existing = filepath.Clean(dir); ; existing = filepath.Dir(existing) {
		if _, err := os.Lstat(existing); err == nil || existing == filepath.Dir(existing) {
			return existing, existing != filepath.Clean(dir)
		}
	}
}
