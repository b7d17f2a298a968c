// Single values of the config: what each kind of key accepts. Pure; every error says what is allowed.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// mapping is a key that holds further keys.
func mapping(name string, keys []key) key {
	return key{name, func(v value) error { return v.mapping(keys) }, keys}
}

// mappings is a key that holds a list of mappings with the given keys.
func mappings(name string, itemsMax int, keys []key, item func(value) error) key {
	return key{name, func(v value) error { return v.list(itemsMax, item) }, keys}
}

// text is a string key; check may be nil.
func text(name string, dst *string, check func(string) error) key {
	return leaf(name, value.str, dst, func(s string) (string, error) {
		if check == nil {
			return s, nil
		}
		return s, check(s)
	})
}

// texts is a key that holds a list of strings, at least one.
func texts(name string, dst *[]string, itemsMax int, check func(string) error) key {
	return key{name: name, read: func(v value) error {
		list := []string{}
		err := v.list(itemsMax, func(item value) error {
			s := ""
			if err := text("", &s, check).read(item); err != nil {
				return err
			}
			if slices.Contains(list, s) {
				return item.errorf("%q is in the list twice", s)
			}
			list = append(list, s)
			return nil
		})
		*dst = list
		return err
	}}
}

func boolean(name string, dst *bool) key {
	return leaf(name, value.scalar, dst, func(s string) (bool, error) {
		if s != "true" && s != "false" {
			return false, notAllowed(s, []string{"true", "false"})
		}
		return s == "true", nil
	})
}

func choice(name string, dst *string, allowed ...string) key {
	return leaf(name, value.scalar, dst, func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", notAllowed(s, allowed)
		}
		return s, nil
	})
}

func level(name string, dst *slog.Level) key {
	return leaf(name, value.scalar, dst, func(s string) (l slog.Level, err error) {
		allowed := []string{"debug", "info", "warn", "error"}
		if !slices.Contains(allowed, s) {
			return 0, notAllowed(s, allowed)
		}
		return l, l.UnmarshalText([]byte(s))
	})
}

func integer(name string, dst *int, minimum, maximum int) key {
	return leaf(name, value.scalar, dst, func(s string) (int, error) {
		return parseInteger(s, minimum, maximum)
	})
}

// autoOrInteger stores 0 for the word auto.
func autoOrInteger(name string, dst *int, minimum, maximum int) key {
	return leaf(name, value.scalar, dst, func(s string) (int, error) {
		if s == "auto" {
			return 0, nil
		}
		n, err := parseInteger(s, minimum, maximum)
		if err != nil {
			err = fmt.Errorf("%w, or auto", err)
		}
		return n, err
	})
}

// autoOrPercent is a whole number of percent from 1% to 100%, or auto, which is 0.
func autoOrPercent(name string, dst *int) key {
	return leaf(name, value.scalar, dst, func(s string) (int, error) {
		if s == "auto" {
			return 0, nil
		}
		digits, ok := strings.CutSuffix(s, "%")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 1 || n > 100 || strconv.Itoa(n) != digits {
			return 0, fmt.Errorf("is %q; it must be auto or a percentage from 1%% to 100%%", s)
		}
		return n, nil
	})
}

// size is a number of bytes.
func size(name string, dst *int64, minimum, maximum int64) key {
	return leaf(name, value.scalar, dst, func(s string) (int64, error) {
		n, err := parseSize(s)
		if err == nil && (n < minimum || n > maximum) {
			err = fmt.Errorf("is %q; it must be from %s to %s", s, formatSize(minimum), formatSize(maximum))
		}
		return n, err
	})
}

// lineBytes is a size that is too large or not by memory_limit, which is read later.
func lineBytes(name string, dst *int64) key {
	return leaf(name, value.scalar, dst, func(s string) (int64, error) {
		n, err := parseSize(s)
		if err == nil && n < 1<<10 {
			err = fmt.Errorf("is %q; it must be from 1KiB to a sixteenth of memory_limit", s)
		}
		return n, err
	})
}

func duration(name string, dst *time.Duration, minimum, maximum time.Duration) key {
	return leaf(name, value.scalar, dst, func(s string) (time.Duration, error) {
		d, err := parseDuration(s)
		if err == nil && (d < minimum || d > maximum) {
			err = fmt.Errorf("is %q; it must be from %s to %s", s, formatDuration(minimum), formatDuration(maximum))
		}
		return d, err
	})
}

// leaf is a key with one value: its text, then its meaning.
func leaf[T any](name string, read func(value) (string, error), dst *T, parse func(string) (T, error)) key {
	return key{name: name, read: func(v value) error {
		s, err := read(v)
		if err != nil {
			return err
		}
		t, err := parse(s)
		if err != nil {
			return v.errorf("%v", err)
		}
		*dst = t
		return nil
	}}
}

func notAllowed(s string, allowed []string) error {
	near := nearest(s, allowed)
	if near != "" {
		near = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("is %q; allowed: %s%s", s, strings.Join(allowed, ", "), near)
}

// plainNumber is a decimal number without sign, leading zero, separator, point or exponent: what every reader of it takes for the same number.
var plainNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func parseInteger(s string, minimum, maximum int) (int, error) {
	n, err := strconv.Atoi(s)
	if !plainNumber.MatchString(s) || err != nil || n < minimum || n > maximum {
		return 0, fmt.Errorf("is %q; it must be a plain decimal number from %d to %d", s, minimum, maximum)
	}
	return n, nil
}

// sizeUnits in the order in which formatSize prefers them.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// parseSize reads a plain decimal number with an optional unit directly behind it; without a unit it means bytes.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRightFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	unit := int64(1)
	known := digits == s
	for _, u := range sizeUnits {
		if s[len(digits):] == u.name {
			unit, known = u.bytes, true
		}
	}
	if !known || !plainNumber.MatchString(digits) {
		return 0, fmt.Errorf("is %q; a size is a plain decimal number of bytes, or one directly followed by B, kB, MB, GB, TB, KiB, MiB, GiB or TiB", s)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("is %q, which is more than can be counted", s)
	}
	return n * unit, nil
}

// formatSize is the shortest way to write n that parseSize reads back.
func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

var (
	durationText = regexp.MustCompile(`^((0|[1-9][0-9]*)(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))+$`)
	durationDays = regexp.MustCompile(`^([0-9.]+)d`)
)

// parseDuration reads Go's duration syntax with d (24 h) as a further unit, first if it is there. A number needs a unit.
func parseDuration(s string) (time.Duration, error) {
	wrong := fmt.Errorf("is %q; a duration is a plain decimal number directly followed by ms, s, m, h or d, or several of these as in 1h30m", s)
	if !durationText.MatchString(s) {
		return 0, wrong
	}
	var days float64
	rest := s
	if m := durationDays.FindStringSubmatch(s); m != nil {
		var err error
		if days, err = strconv.ParseFloat(m[1], 64); err != nil {
			return 0, wrong
		}
		rest = s[len(m[0]):]
	}
	var d time.Duration
	if rest != "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, wrong
		}
	}
	if days*24 > math.MaxInt64/2/float64(time.Hour) || d > math.MaxInt64/2 {
		return 0, fmt.Errorf("is %q, which is longer than can be counted", s)
	}
	return d + time.Duration(days*24*float64(time.Hour)), nil
}

// formatDuration leaves out the zeros that Go writes behind whole hours and minutes.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	return nil
}

func absolutePath(s string) error {
	if !filepath.IsAbs(s) {
		return fmt.Errorf("is %q; it must be an absolute path", s)
	}
	return nil
}

func emptyOrAbsolutePath(s string) error {
	if s == "" {
		return nil
	}
	return absolutePath(s)
}

func offOrAbsolutePath(s string) error {
	if s == "off" || filepath.IsAbs(s) {
		return nil
	}
	return fmt.Errorf("is %q; it must be an absolute path, or off", s)
}

// hostPort splits an address and checks both halves.
func hostPort(s string) (host string, err error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(host, "/ \t\r\n,;@") {
		return "", fmt.Errorf("is %q; it must be host:port, as in kafka-1:9092 or [::1]:9092", s)
	}
	if n, err := strconv.Atoi(port); err != nil || !plainNumber.MatchString(port) || n < 1 || n > math.MaxUint16 {
		return "", fmt.Errorf("is %q; its port must be a number from 1 to %d", s, math.MaxUint16)
	}
	return host, nil
}

func brokerAddress(s string) error {
	_, err := hostPort(s)
	return err
}

// emptyOrLoopbackAddress: the status page shows paths and topics to whoever can reach it, without a password.
func emptyOrLoopbackAddress(s string) error {
	if s == "" {
		return nil
	}
	host, err := hostPort(s)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("is %q; it must be an address of this host only, as in 127.0.0.1:9600", s)
	}
	return nil
}

var (
	sourceNamePattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)
	topicNamePattern  = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
)

func sourceName(s string) error {
	if !sourceNamePattern.MatchString(s) {
		return fmt.Errorf("is %q; a name has 1 to 100 characters out of a-z A-Z 0-9 . _ -", s)
	}
	return nil
}

func emptyOrTopicName(s string) error {
	if s == "" {
		return nil
	}
	return topicName(s)
}

// topicName: the rule of Kafka's Topic.validate.
func topicName(s string) error {
	if !topicNamePattern.MatchString(s) || s == "." || s == ".." {
		return fmt.Errorf("is %q; a Kafka topic is not . or .. and has 1 to 249 characters out of a-z A-Z 0-9 . _ -", s)
	}
	return nil
}

func globPattern(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if fault := patternFault(s); fault != "" {
		return fmt.Errorf("%q is not a valid pattern: %s", s, fault)
	}
	return nil
}

// absoluteGlobPattern: unlike a relative `paths` pattern, which ships nothing and is warned about, a relative `exclude`
// would ship what was meant to stay here.
func absoluteGlobPattern(s string) error {
	if err := globPattern(s); err != nil {
		return err
	}
	if !filepath.IsAbs(s) {
		return fmt.Errorf("is %q; it must be absolute, as in /**/*.gz", s)
	}
	return nil
}

var envReference = regexp.MustCompile(`\$\$|\$\{[^}]*\}?`)

// envName and what may follow it: nothing, :-default or :?message.
var envBody = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)(.*))?$`)

// expandEnv replaces ${NAME}, ${NAME:-default}, ${NAME:?message} and $$ in s, once: what comes out of a variable is not looked at again.
// As in a shell, the forms with a colon take an empty variable for a missing one.
func expandEnv(s string, env func(string) (string, bool)) (string, error) {
	var failed error
	fail := func(format string, args ...any) string {
		if failed == nil {
			failed = fmt.Errorf(format, args...)
		}
		return ""
	}
	out := envReference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		if !strings.HasSuffix(ref, "}") {
			return fail("%q has no closing brace; write $$ for a dollar sign", ref)
		}
		m := envBody.FindStringSubmatch(ref[2 : len(ref)-1])
		if m == nil {
			return fail("%q is not a variable; allowed: ${NAME}, ${NAME:-default}, ${NAME:?message}, and $$ for a dollar sign", ref)
		}
		name, form, word := m[1], m[2], m[3]
		content, set := env(name)
		switch {
		case form == "" && !set:
			return fail("the environment variable %s is not set", name)
		case form == ":?" && content == "":
			return fail("the environment variable %s is not set: %s", name, word)
		case form == ":-" && content == "":
			return word
		}
		return content
	})
	return out, failed
}

// usablePatterns drops the patterns that can match nothing, with a warning: those that are not absolute, and those of the
// spool's own directory. One of them must not keep all the other files of a host from being shipped.
func (c *Config) usablePatterns(at string, patterns []string) []string {
	var usable []string
	for i, p := range patterns {
		why := ""
		if dir, _ := doublestar.SplitPattern(p); !filepath.IsAbs(p) {
			why = "is not absolute and matches nothing"
		} else if realDir(dir) == realDir(c.Spool.Dir) {
			why = "is in spool.dir, where nothing is read: give the spool a directory of its own"
		} else {
			usable = append(usable, p)
			continue
		}
		c.Warnings = append(c.Warnings, c.errorAt(fmt.Sprintf("%spaths[%d]", at, i), "%q %s", p, why))
	}
	return usable
}

// realDir is where a directory is behind symlinks, if it is there.
func realDir(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
