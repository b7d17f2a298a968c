package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "120": 120, "10B": 10, "10kB": 10_000, "10KB": 10_000, "10MB": 10_000_000, "2GB": 2e9, "1TB": 1e12,
		"512KiB": 512 << 10, "64MiB": 64 << 20, "10GiB": 10 << 30, "3TiB": 3 << 40, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "0644", "010", "00", "1_000", "1e6", "1.5MiB", "-1", "+1", "0x10", ".inf", "NaN", "12:30", "10 MiB", " 10", "10 ", "10m", "10M", "10mib", "MiB",
		"9223372036854775808", "99999999999999999999", "9007199254740992KiB", "１０",
	} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is taken for %d", s, got)
		}
	}
}

func TestFormatSizeIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<22).Draw(t, "n") * rapid.SampledFrom([]int64{1, 1e3, 1e6, 1 << 10, 1 << 20, 1 << 40}).Draw(t, "unit")
		if got, err := parseSize(formatSize(n)); err != nil || got != n {
			t.Fatalf("%d -> %q -> %d, %v", n, formatSize(n), got, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "1s": time.Second, "1.5s": 1500 * time.Millisecond, "1h30m": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "0s": 0, "250us": 250 * time.Microsecond, "250µs": 250 * time.Microsecond,
	} {
		if got, err := parseDuration(s); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "5", "0", "010s", "1_0s", "1e3s", "-1s", "+1s", "10 m", "12:30", ".inf", "NaN", "1w", "1M", "1S", "s", ".5s", "1h1d",
		"999999999999d", "106751d", "9999999999999h",
	} {
		if got, err := parseDuration(s); err == nil {
			t.Errorf("%q is taken for %v", s, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{"10s": 10 * time.Second, "1m": time.Minute, "20m": 20 * time.Minute, "24h": 24 * time.Hour, "1h0m1s": time.Hour + time.Second, "10ms": 10 * time.Millisecond} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestExpandEnv(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "a", "EMPTY": "", "NEST": "${A} $$ ${", "B_2": "b"}[name]
		return v, ok
	}
	for s, want := range map[string]string{
		"":                      "",
		"plain":                 "plain",
		"${A}":                  "a",
		"<${A}${B_2}>":          "<ab>",
		"${NEST}":               "${A} $$ ${", // what comes out of a variable is final
		"$$":                    "$",
		"$${A}":                 "${A}",
		"$$$$${A}":              "$$a",
		"cost $5, $A and $ end": "cost $5, $A and $ end", // only braces make a variable
		"${EMPTY}":              "",
		"${EMPTY:-x}":           "x",
		"${UNSET:-host:9092}":   "host:9092",
		"${UNSET:-}":            "",
		"${A:-x}":               "a",
		"${A:?must be set}":     "a",
	} {
		if got, err := expandEnv(s, env); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"${UNSET}":           "the environment variable UNSET is not set",
		"${UNSET:?ask Anna}": "the environment variable UNSET is not set: ask Anna",
		"${EMPTY:?ask Anna}": "the environment variable EMPTY is not set: ask Anna",
		"${A":                "has no closing brace",
		"${}":                "is not a variable",
		"${2A}":              "is not a variable",
		"${A-b}":             "is not a variable",
		"${ A }":             "is not a variable",
	} {
		if got, err := expandEnv(s, env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %q", s, got, err, want)
		}
	}
}

// Values that would break YAML if they were pasted in before parsing reach their field unchanged.
func TestEnvironmentValueIsLiteral(t *testing.T) {
	for _, value := range []string{`\C>a: "b" 'c' #d`, "two\nlines: x\n", "{x}", "${HOME}", "$$", "@at", "*star", "- a", "null", "0123", "\t"} {
		for _, quoted := range []string{`"${P}"`, `${P}`, `'${P}'`} {
			text := strings.Replace(minimal, "spool", "  sasl:\n    mechanism: plain\n    username: u\n    password: "+quoted+"\nspool", 1)
			c, err := parse(text, "P="+value)
			if err != nil {
				t.Errorf("%q as %s: %v", value, quoted, err)
				continue
			}
			if got := string(c.Kafka.SASL.Password); got != value {
				t.Errorf("%q as %s arrives as %q", value, quoted, got)
			}
		}
	}
}

func TestUndefinedEnvironmentNamesVariableAndKey(t *testing.T) {
	text := strings.Replace(minimal, "kafka-1:9092", "${BROKER}", 1)
	_, err := parse(text)
	if want := "x.yaml:2: kafka.brokers[0]: the environment variable BROKER is not set"; err == nil || err.Error() != want {
		t.Errorf("unset: %v", err)
	}
	_, err = parse(text, "BROKER=")
	if want := `x.yaml:2: kafka.brokers[0]: is ""; it must be host:port, as in kafka-1:9092 or [::1]:9092`; err == nil || err.Error() != want {
		t.Errorf("empty: %v", err)
	}
	if c := mustParse(t, text, "BROKER=k:1"); c.Kafka.Brokers[0] != "k:1" {
		t.Errorf("set: %v", c.Kafka.Brokers)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"brokers", "client_id", "compression", "tls", "paths", "topic"}
	for word, want := range map[string]string{
		"broker": "brokers", "bootstrap_servers": "", "client-id": "client_id", "ClientID": "client_id", "compresion": "compression",
		"ssl": "", "tsl": "tls", "path": "paths", "topics": "topic", "": "", "x": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// C104: what comes out of a variable is the value, whatever YAML or a shell would make of it.
func TestC104EnvironmentIsNoYAML(t *testing.T) {
	for _, password := range []string{`\C>a: "b" 'c' #d`, "two\nlines", "{x}", "${HOME} and $$", "@x", "- a", "0123", " blank ", "yes"} {
		for _, quoted := range []string{`"${P}"`, "${P}"} {
			c, err := parse(strings.Replace(minimal, "spool:", "  sasl:\n    mechanism: plain\n    username: u\n    password: "+quoted+"\nspool:", 1), "P="+password)
			if err != nil {
				t.Errorf("%s with %q: %v", quoted, password, err)
			} else if got := string(c.Kafka.SASL.Password); got != password {
				t.Errorf("%s: %q, want %q", quoted, got, password)
			}
		}
	}
}
