package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"shipper/tail"
)

// minimal is the smallest config; tests append to it or replace parts of it.
const minimal = `kafka:
  brokers: ["kafka-1:9092"]
spool:
  dir: /var/lib/shipper
sources:
  - name: app
    paths: ["/var/log/app/**/*.log"]
    topic: app-logs
`

func parse(text string, env ...string) (*Config, error) {
	return parseConfig("x.yaml", []byte(text), func(name string) (string, bool) {
		for _, e := range env {
			if n, v, _ := strings.Cut(e, "="); n == name {
				return v, true
			}
		}
		return "", false
	})
}

func mustParse(t *testing.T, text string, env ...string) *Config {
	t.Helper()
	c, err := parse(text, env...)
	if err != nil {
		t.Fatalf("%v\nconfig:\n%s", err, text)
	}
	return c
}

func TestMinimalConfigIsAllDefaults(t *testing.T) {
	want := DefaultConfig()
	want.File = "x.yaml"
	want.Kafka.Brokers = []string{"kafka-1:9092"}
	want.Spool.Dir = "/var/lib/shipper"
	want.Admin.Socket = "/var/lib/shipper/admin.sock"
	source := DefaultSource()
	source.Name, source.Paths, source.Topic = "app", []string{"/var/log/app/**/*.log"}, "app-logs"
	want.Sources = []SourceConfig{source}

	got := mustParse(t, minimal)
	got.lines = nil
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got  %+v\nwant %+v", got, &want)
	}
}

// The example must show every key, at its default.
func TestExampleConfigIsComplete(t *testing.T) {
	data, err := os.ReadFile("../../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := mustParse(t, string(data))
	def := DefaultConfig()
	if example.Admin.Socket != filepath.Join(example.Spool.Dir, "admin.sock") {
		t.Errorf("admin.socket is %q, not the default", example.Admin.Socket)
	}
	example.Kafka.Brokers, example.Spool.Dir, example.Admin.Socket = nil, "", ""
	source := example.Sources[0]
	source.Name, source.Topic, source.Paths = "", "", nil
	if len(source.Exclude) == 0 {
		source.Exclude = nil
	}
	if want := DefaultSource(); !reflect.DeepEqual(source, want) {
		t.Errorf("sources[0] is %+v\nthe default    %+v", source, want)
	}
	given := example.lines
	example.Sources, example.lines, example.File = nil, nil, ""
	if !reflect.DeepEqual(example, &def) {
		t.Errorf("example is %+v\nthe default %+v", example, &def)
	}

	for _, path := range schemaPaths("", (&Config{}).keys()) {
		inDefaults := strings.Replace(path, "sources[].", "defaults.", 1)
		name := path[strings.LastIndex(path, ".")+1:]
		commented := strings.HasPrefix(path, "kafka.sasl.") && regexp.MustCompile(`(?m)^ *# +`+name+`: `).Match(data)
		if given[strings.Replace(path, "[]", "[0]", 1)] == 0 && given[inDefaults] == 0 && !commented {
			t.Errorf("config.example.yaml does not show %s", path)
		}
	}
}

// schemaPaths lists the full paths of all keys; items of lists of mappings are written [].
func schemaPaths(above string, keys []key) []string {
	var paths []string
	for _, k := range keys {
		path := joinKey(above, k.name)
		paths = append(paths, path)
		if k.name == "sources" {
			path += "[]"
		}
		paths = append(paths, schemaPaths(path, k.sub)...)
	}
	return paths
}

func TestDefaultsAreBetweenBuiltInAndSource(t *testing.T) {
	c := mustParse(t, strings.Replace(minimal, "    topic", "    linger: 2s\n    topic", 1)+`  - name: other
    paths: [/var/log/other.log]
    topic: other
    exclude: [/var/log/none]
defaults:  # behind the sources on purpose
  linger: 3s
  lanes: 7
  exclude: ["/**/*.gz"]
`)
	app, other := c.Sources[0], c.Sources[1]
	if app.Linger != 2*time.Second || app.Lanes != 7 || app.IdleFlush != 5*time.Second || !slices.Equal(app.Exclude, []string{"/**/*.gz"}) {
		t.Errorf("app: %+v", app)
	}
	if other.Linger != 3*time.Second || other.Lanes != 7 || !slices.Equal(other.Exclude, []string{"/var/log/none"}) {
		t.Errorf("other: %+v", other)
	}
}

func TestEveryKeyReachesItsField(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("pass word\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, fmt.Sprintf(`
kafka:
  brokers: ["kafka-1:9092", "[::1]:9093"]
  client_id: me
  compression: gzip
  compression_level: 9
  acks_timeout: 1m
  auto_create_topics: false
  tls: {enabled: true, server_name: kafka, insecure_skip_verify: true}
  sasl: {mechanism: scram-sha-512, username: u, password_file: %s}
spool: {dir: /spool, max_bytes: 1GiB, min_free_bytes: 2GB, retain_acked: 12345KiB, allow_network_fs: true,
  when_full: drop_newest, gap_topic: gaps, held_max_bytes: 2GiB, held_max_files: 77}
sources:
  - {name: a.b_c-1, paths: ["/a/{b,c}/[a-z]?.log"], exclude: ["/a/b/x*"], topic: t, start_at: end, ignore_older: 2d, lanes: 64,
     linger: 10ms, max_line_bytes: 16MiB, oversize: skip, encoding: shift_jis, idle_flush: 1d, spool_share: 25%%,
     compression: lz4, compression_level: 3}
symlink_roots: [/mnt]
memory_limit: 256MiB
admin: {socket: "off", http: "localhost:9600"}
log: {level: warn, format: json}
`, password))
	c.lines = nil
	c.Sources[0].Record = RecordConfig{} // see TestRecordKeys
	got := fmt.Sprintf("%+v", *c)
	want := `{File:x.yaml Kafka:{Brokers:[kafka-1:9092 [::1]:9093] ClientID:me Compression:gzip CompressionLevel:9 AcksTimeout:1m0s AutoCreateTopics:false ` +
		`TLS:{Enabled:true CAFile: CertFile: KeyFile: ServerName:kafka InsecureSkipVerify:true} SASL:{Mechanism:scram-sha-512 Username:u Password:*** PasswordFile:` + password + `}} ` +
		`Spool:{Dir:/spool MaxBytes:1073741824 MinFreeBytes:2000000000 RetainAckedBytes:12641280 AllowNetworkFS:true WhenFull:drop_newest GapTopic:gaps HeldBytesMax:2147483648 HeldFilesMax:77} ` +
		`Sources:[{Name:a.b_c-1 Topic:t Paths:[/a/{b,c}/[a-z]?.log] Exclude:[/a/b/x*] StartAt:end IgnoreOlder:48h0m0s Lanes:64 PartitionBy:file Linger:10ms LineBytesMax:16777216 Oversize:skip Encoding:shift_jis IdleFlush:24h0m0s SpoolShare:25 Record:` + fmt.Sprintf("%+v", RecordConfig{}) + ` Compression:lz4 CompressionLevel:3}] ` +
		`SymlinkRoots:[/mnt] MemoryBytes:268435456 Admin:{Socket:off HTTP:localhost:9600} Log:{Level:WARN Format:json} ` +
		`Warnings:[x.yaml:9: kafka.tls.insecure_skip_verify: anyone on the network path can pose as the broker] lines:map[]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c.Kafka.SASL.Password != "pass word" {
		t.Errorf("password %q", string(c.Kafka.SASL.Password))
	}
}

// Each case replaces old by new in the minimal config (or appends new) and names the line and the message it must lead to.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"", "compresion: gzip\n", `x.yaml:9: compresion: unknown key; known keys here: kafka, spool, defaults, sources, symlink_roots, memory_limit, admin, log`},
		{"spool:", "  compresion: gzip\nspool:", `x.yaml:3: kafka.compresion: unknown key; did you mean "compression"?`},
		{"topic", "topci", `x.yaml:8: sources[0].topci: unknown key; did you mean "topic"?`},
		{"topic", "Topic", `x.yaml:8: sources[0].Topic: unknown key; did you mean "topic"?`},
		{"", "defaults: {name: x}\n", `x.yaml:9: defaults.name: unknown key; known keys here: exclude, start_at, ignore_older, lanes, partition_by, linger, max_line_bytes, oversize, encoding, idle_flush, compression, compression_level, spool_share, format, json, container, multiline, filter, redact, key, headers, static_headers, timestamp`},
		{"", "  - <<: {name: x, topik: y}\n    paths: [/x]\n", `x.yaml:9: sources[1].topik: unknown key; did you mean "topic"?`},
		{"", "defaults: {encoding: sjiss}\n", `x.yaml:9: defaults.encoding: is "sjiss"; allowed: ` + strings.Join(tail.Encodings(), ", ")},
		{"", "kafka: {}\n", `x.yaml:9: kafka: given twice, first in line 1`},
		{"    topic", "    name: b\n    topic", `x.yaml:8: sources[0].name: given twice, first in line 6`},
		{"", "defaults: &a\n  <<: *a\n", `x.yaml:10: defaults: merges more than 8 deep`},
		{"", "log: {? [level] : info}\n", `x.yaml:9: log: a key must be a plain word, not a list`},

		{minimal, "", `x.yaml: the config is empty`},
		{minimal, "# nothing\n", `x.yaml: the config is empty`},
		{minimal, "~\n", `x.yaml: the config is empty`},
		{minimal, "- a\n", `x.yaml:1: must be a mapping of keys, not a list`},
		{minimal, "kafka\n", `x.yaml:1: must be a mapping of keys, not the single value "kafka"`},
		{"", "---\nkafka: {}\n", `x.yaml:9: a second YAML document begins here; a config is one document`},
		{"  brokers", "\tbrokers", `x.yaml:2: not valid YAML: a tab in the indent; YAML allows spaces only`},
		{"- name", "-\tname", `x.yaml:6: not valid YAML: found character that cannot start any token`},
		{"  brokers", "\u00a0 brokers", `x.yaml:2: "\u00a0 brokers": unknown key; known keys here: kafka, spool, defaults, sources, symlink_roots, memory_limit, admin, log`},
		{"  dir: /", "\u00a0 dir /", `x.yaml:4: not valid YAML: a no-break or other odd space in the indent; YAML allows spaces only`},
		{"kafka:", "kafka: x: y", `x.yaml:1: not valid YAML: mapping values are not allowed in this context`},
		{"", "log: *nowhere\n", `x.yaml: not valid YAML: unknown anchor 'nowhere' referenced`},

		{`["kafka-1:9092"]`, "[]", `x.yaml:2: kafka.brokers: is required`},
		{`  brokers: ["kafka-1:9092"]`, "", `x.yaml:1: kafka.brokers: is required`},
		{"dir:", "max_bytes: 1GiB #", `x.yaml:3: spool.dir: is required`},
		{"    topic: app-logs\n", "", `x.yaml:6: sources[0].topic: is required`},
		{"name: app\n    ", "", `x.yaml:6: sources[0].name: is required`},
		{`["/var/log/app/**/*.log"]`, "[]", `x.yaml:7: sources[0].paths: is required`},
		{minimal[strings.Index(minimal, "  - name"):], "", `x.yaml:5: sources: must be a list, not nothing`},

		{`["kafka-1:9092"]`, "kafka-1:9092", `x.yaml:2: kafka.brokers: must be a list, not the single value "kafka-1:9092"`},
		{"app-logs", "[app-logs]", `x.yaml:8: sources[0].topic: must be a single value, not a list`},
		{"app-logs", "12", `x.yaml:8: sources[0].topic: must be a string; write it in quotes, as in "12"`},
		{"app-logs", "", `x.yaml:8: sources[0].topic: has no value; give one or remove the key`},
		{"", "kafka2: &k {}\n", `x.yaml:9: kafka2: unknown key; did you mean "kafka"?`},
		{"spool:", "  tls: yess\nspool:", `x.yaml:3: kafka.tls: must be a mapping of keys, not the single value "yess"`},
		{"spool:", "  tls: {enabled: yes}\nspool:", `x.yaml:3: kafka.tls.enabled: is "yes"; allowed: true, false`},

		{"kafka-1:9092", "kafka-1", `x.yaml:2: kafka.brokers[0]: is "kafka-1"; it must be host:port, as in kafka-1:9092 or [::1]:9092`},
		{"kafka-1:9092", ":9092", `x.yaml:2: kafka.brokers[0]: is ":9092"; it must be host:port, as in kafka-1:9092 or [::1]:9092`},
		{"kafka-1:9092", "kafka://k:9092", `x.yaml:2: kafka.brokers[0]: is "kafka://k:9092"; it must be host:port, as in kafka-1:9092 or [::1]:9092`},
		{"kafka-1:9092", "kafka-1:70000", `x.yaml:2: kafka.brokers[0]: is "kafka-1:70000"; its port must be a number from 1 to 65535`},
		{"kafka-1:9092", "kafka-1:0", `x.yaml:2: kafka.brokers[0]: is "kafka-1:0"; its port must be a number from 1 to 65535`},
		{`"]`, `", "kafka-1:9092"]`, `x.yaml:2: kafka.brokers[1]: "kafka-1:9092" is in the list twice`},
		{"app-logs", "bad topic!", `x.yaml:8: sources[0].topic: is "bad topic!"; a Kafka topic is not . or .. and has 1 to 249 characters out of a-z A-Z 0-9 . _ -`},
		{"app-logs", ".", `x.yaml:8: sources[0].topic: is "."; a Kafka topic is not . or .. and has 1 to 249 characters out of a-z A-Z 0-9 . _ -`},
		{"app-logs", strings.Repeat("x", 250), `x.yaml:8: sources[0].topic: is "` + strings.Repeat("x", 250) + `"; a Kafka topic is not . or .. and has 1 to 249 characters out of a-z A-Z 0-9 . _ -`},
		{"name: app", "name: a/b", `x.yaml:6: sources[0].name: is "a/b"; a name has 1 to 100 characters out of a-z A-Z 0-9 . _ -`},
		{"", "  - {name: app, paths: [/x], topic: t}\n", `x.yaml:9: sources[1].name: "app" is the name of sources[0] too; names are unique and stay`},
		{"/var/log/app/**/*.log", "/var/log/[a", `x.yaml:7: sources[0].paths[0]: "/var/log/[a" is not a valid pattern: the [ of "[a" has no ] behind it; \[ is a bracket itself`},
		{"    topic", "    exclude: ['*.gz']\n    topic", `x.yaml:8: sources[0].exclude[0]: is "*.gz"; it must be absolute, as in /**/*.gz`},
		{"/var/lib/shipper", "spool", `x.yaml:4: spool.dir: is "spool"; it must be an absolute path`},
		{"sources", "  max_bytes: 31MiB\nsources", `x.yaml:5: spool.max_bytes: is 32505856; the smallest spool has 32MiB`},
		{"sources", "  max_bytes: 1GiB\n  retain_acked: 300MiB\nsources", `x.yaml:6: spool.retain_acked: is more than a quarter of spool.max_bytes (1073741824)`},

		{"sources", "  when_full: drop_oldest\nsources", `x.yaml:5: spool.when_full: is "drop_oldest"; allowed: block, drop_newest; did you mean "drop_newest"?`},
		{"sources", "  gap_topic: a b\nsources", `x.yaml:5: spool.gap_topic: is "a b"; a Kafka topic is not . or .. and has 1 to 249 characters out of a-z A-Z 0-9 . _ -`},
		{"name: app", "name: shipper-gaps", `x.yaml:6: sources[0].name: "shipper-gaps" is the agent's own name for its ledger of gaps; choose another`},
		{"", "defaults: {spool_share: 25}\n", `x.yaml:9: defaults.spool_share: is "25"; it must be auto or a percentage from 1% to 100%`},
		{"", "  - {name: b, paths: [/x], topic: t, spool_share: 60%}\n  - {name: c, paths: [/y], topic: t, spool_share: 41%}\n",
			`x.yaml:10: sources[2].spool_share: the sources up to this one claim 101% of the spool; all together may claim 100%`},

		{"spool:", "  compression: gizp\nspool:", `x.yaml:3: kafka.compression: is "gizp"; allowed: zstd, lz4, snappy, gzip, none; did you mean "gzip"?`},
		{"spool:", "  compression: lz4\n  compression_level: 10\nspool:", `x.yaml:4: kafka.compression_level: is 10; lz4 takes 0 to 9`},
		{"", "defaults: {partition_by: key}\n", `x.yaml:9: defaults.partition_by: is key, and records have none: say which with key`},
		{"", "defaults: {compression: snappy, compression_level: 1}\n", `x.yaml:9: defaults.compression_level: is 1; snappy takes 0 to 0`},
		{"    topic", "    compression_level: 3\n    topic", `x.yaml:8: sources[0].compression_level: needs a compression beside it`},
		{"spool:", "  acks: 2\nspool:", `x.yaml:3: kafka.acks: unknown key; known keys here: brokers, client_id, compression, compression_level, acks_timeout, auto_create_topics, tls, sasl`},
		{"", "defaults: {start_at: beginnning}\n", `x.yaml:9: defaults.start_at: is "beginnning"; allowed: beginning, end; did you mean "beginning"?`},
		{"", "defaults: {lanes: 65}\n", `x.yaml:9: defaults.lanes: is "65"; it must be a plain decimal number from 1 to 64, or auto`},
		{"", "defaults: {linger: 1h}\n", `x.yaml:9: defaults.linger: is "1h"; it must be from 10ms to 1m`},
		{"", "defaults: {max_line_bytes: 9MiB}\n", `x.yaml:9: defaults.max_line_bytes: is 9437184; with this memory_limit a line has at most 8388608 bytes`},
		{"", "defaults: {max_line_bytes: 1GiB}\n", `x.yaml:9: defaults.max_line_bytes: is 1073741824; with this memory_limit a line has at most 8388608 bytes`},
		{"", "defaults: {max_line_bytes: 1GiB}\nmemory_limit: 64GiB\n", `x.yaml:9: defaults.max_line_bytes: is 1073741824; with this memory_limit a line has at most 536870912 bytes`},
		{"", "defaults: {max_line_bytes: 1023}\n", `x.yaml:9: defaults.max_line_bytes: is "1023"; it must be from 1KiB to a sixteenth of memory_limit`},
		{"", "admin: {http: '0.0.0.0:9600'}\n", `x.yaml:9: admin.http: is "0.0.0.0:9600"; it must be an address of this host only, as in 127.0.0.1:9600`},
		{"", "admin: {socket: none}\n", `x.yaml:9: admin.socket: is "none"; it must be an absolute path, or off`},
		{"", "log: {level: INFO}\n", `x.yaml:9: log.level: is "INFO"; allowed: debug, info, warn, error; did you mean "info"?`},

		{"spool:", "  tls: {ca_file: /ca.pem}\nspool:", `x.yaml:3: kafka.tls.enabled: is not true, but other keys of kafka.tls are given`},
		{"spool:", "  tls: {enabled: true, ca_file: /nowhere/ca.pem}\nspool:", `x.yaml:3: kafka.tls.ca_file: cannot read /nowhere/ca.pem: no such file or directory`},
		{"spool:", "  tls: {enabled: true, ca_file: /etc/hostname}\nspool:", `x.yaml:3: kafka.tls.ca_file: /etc/hostname holds no PEM certificate`},
		{"spool:", "  tls: {enabled: true, cert_file: /c.pem}\nspool:", `x.yaml:3: kafka.tls.key_file: is required with cert_file`},
		{"spool:", "  tls: {enabled: true, cert_file: /nowhere/c, key_file: /nowhere/k}\nspool:", `x.yaml:3: kafka.tls.cert_file: cannot use /nowhere/c with /nowhere/k: no such file or directory`},
		{"spool:", "  sasl: {mechanism: gssapi}\nspool:", `x.yaml:3: kafka.sasl.mechanism: is "gssapi"; allowed: plain, scram-sha-256, scram-sha-512`},
		{"spool:", "  sasl: {username: u, password: p}\nspool:", `x.yaml:3: kafka.sasl.mechanism: is required with SASL: plain, scram-sha-256 or scram-sha-512`},
		{"spool:", "  sasl: {mechanism: plain, username: u}\nspool:", `x.yaml:3: kafka.sasl.password: exactly one of password and password_file is required`},
		{"spool:", "  sasl: {mechanism: plain, username: u, password: p, password_file: /p}\nspool:", `x.yaml:3: kafka.sasl.password: exactly one of password and password_file is required`},
		{"spool:", "  sasl: {mechanism: plain, username: u, password: 0123}\nspool:", `x.yaml:3: kafka.sasl.password: must be a string; write it in quotes, as in "0123"`},
		{"spool:", "  sasl: {mechanism: plain, username: u, password_file: /nowhere/p}\nspool:", `x.yaml:3: kafka.sasl.password_file: cannot read /nowhere/p: no such file or directory`},
	} {
		text := minimal + c.new
		if c.old != "" {
			if text = strings.Replace(minimal, c.old, c.new, 1); text == minimal {
				t.Fatalf("%q is not in the minimal config", c.old)
			}
		}
		_, err := parse(text)
		if err == nil || err.Error() != c.want {
			t.Errorf("for %q -> %q\ngot  %v\nwant %s", c.old, c.new, err, c.want)
			continue
		}
		if _, ok := errors.AsType[*ConfigError](err); !ok {
			t.Errorf("%v is a %T, not a *ConfigError", err, err)
		}
	}
}

func TestForgivenForms(t *testing.T) {
	for name, text := range map[string]string{
		"byte order mark":            "\ufeff" + minimal,
		"CRLF":                       strings.ReplaceAll(minimal, "\n", "\r\n"),
		"tab at a line's end":        strings.ReplaceAll(minimal, "\n", "\t\n"),
		"document marks":             "---\n" + minimal + "...\n",
		"emptied mapping":            minimal + "log:\n#  level: info\n",
		"quoted number":              minimal + "memory_limit: \"134217728\"\n",
		"anchor, alias and merge":    minimal + "  - &b {name: b, paths: [/b], topic: &t tt}\n  - <<: *b\n    name: c\n  - <<: [*b, {linger: 2s}]\n    name: d\n    topic: *t\n",
		"an unset optional variable": minimal + "log: {level: \"${LEVEL:-info}\"}\n",
	} {
		if _, err := parse(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMergePrecedence(t *testing.T) {
	c := mustParse(t, minimal+"  - &b {name: b, paths: [/b], topic: tt, linger: 2s}\n  - <<: [{linger: 3s}, *b]\n    name: c\n")
	if b, got := c.Sources[1], c.Sources[2]; got.Name != "c" || got.Linger != 3*time.Second || got.Topic != b.Topic {
		t.Errorf("got %+v", got)
	}
}

// Nothing is read in the spool's directory, by whatever name; below and above it is.
func TestPatternsInSpoolAreWarnedAbout(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/spool", 0o700), os.Symlink("spool", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, strings.Replace(minimal, "/var/lib/shipper", dir+"/spool", 1)+fmt.Sprintf("  - name: more\n    topic: t\n    paths: [%q, %q, %q, %q]\n",
		dir+"/spool/*.log", dir+"/link/**/*.log", dir+"/spool/gaps/*", dir+"/**/*.log"))
	if got := c.Sources[1].Paths; len(got) != 2 || len(c.Warnings) != 2 || !strings.HasSuffix(c.Warnings[1].Error(), `/link/**/*.log" is in spool.dir, where nothing is read: give the spool a directory of its own`) {
		t.Errorf("paths %q, %v", got, c.Warnings)
	}
}

// A path that is not absolute matches nothing; the other files of the host must be shipped all the same.
func TestRelativePathsAreWarnedAbout(t *testing.T) {
	c := mustParse(t, strings.Replace(minimal, `["/`, `["app.log", "~/x.log", "C:/logs/x.log", "/`, 1))
	if got := c.Sources[0].Paths; !slices.Equal(got, []string{"/var/log/app/**/*.log"}) {
		t.Errorf("paths %q", got)
	}
	want := []string{
		`x.yaml:7: sources[0].paths[0]: "app.log" is not absolute and matches nothing`,
		`x.yaml:7: sources[0].paths[1]: "~/x.log" is not absolute and matches nothing`,
		`x.yaml:7: sources[0].paths[2]: "C:/logs/x.log" is not absolute and matches nothing`,
	}
	for i, w := range c.Warnings {
		if i >= len(want) || w.Error() != want[i] {
			t.Errorf("warning %d: %v", i, w)
		}
	}
	if len(c.Warnings) != len(want) {
		t.Errorf("%d warnings, want %d", len(c.Warnings), len(want))
	}
}

func TestRetainAckedFollowsASmallSpool(t *testing.T) {
	c := mustParse(t, strings.Replace(minimal, "sources", "  max_bytes: 128MiB\nsources", 1))
	if got := c.Spool.RetainAckedBytes; got != 32<<20 {
		t.Errorf("retain_acked %d", got)
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	c := mustParse(t, strings.Replace(minimal, "spool", "  sasl: {mechanism: plain, username: u, password: hunter2}\nspool", 1))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if got := fmt.Sprintf(verb, c.Kafka.SASL); strings.Contains(got, "hunter2") || strings.Contains(got, "68756e74") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

// Whatever the bytes are, the answer is a config inside its limits or a *ConfigError.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("<<: &a {<<: *a}\n"))
	f.Add([]byte("sources: &s [*s, {<<: *s}]\n"))
	f.Add([]byte("\xff\xfek\x00:\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig("x.yaml", data, func(string) (string, bool) { return "", false })
		if _, ok := errors.AsType[*ConfigError](err); err != nil && !ok {
			t.Fatalf("%T: %v", err, err)
		}
		if err == nil && (len(c.Kafka.Brokers) == 0 || len(c.Sources) == 0 || c.Spool.Dir == "") {
			t.Fatalf("accepted: %+v", c)
		}
	})
}

// A few lines that merge a mapping many times, which merges another as often, must not keep the agent busy for ever.
func TestMergesAreBounded(t *testing.T) {
	text := strings.ReplaceAll(minimal, "sources:", "sources:\n  - &s0 {name: s0, paths: [/x], topic: t}")
	for i := range 4 {
		text += fmt.Sprintf("  - &s%d {name: s%d, <<: [%s*s%d]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*s%d, ", i), 39), i)
	}
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), "merges more than 10000 mappings") {
		t.Fatalf("got %v", err)
	}
}
