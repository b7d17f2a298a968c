// Strict reading of YAML: the schema (a list of keys) walks the document, so whatever the schema does not name is an error,
// and no depth or alias of the document can make the walk longer than the schema is deep.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// Bounds of `<<: *anchor`: inside merged mappings, since YAML allows an anchor to merge itself, and in the whole file, since
// a few lines can merge a mapping 40 times that merges another 40 times.
const (
	mergeDepthMax = 8
	mergesMax     = 10_000
)

// decoder is what all values of one file share.
type decoder struct {
	file  string
	env   func(string) (string, bool)
	lines map[string]int // full key path -> line of the key

	merges int // mappings merged so far
}

// key is one key a mapping may have. sub holds the keys below it, for those who list the schema.
type key struct {
	name string
	read func(value) error
	sub  []key
}

// value is one YAML node under its full key path.
type value struct {
	d    *decoder
	node *yaml.Node
	path string
}

func (v value) errorf(format string, args ...any) error {
	return &ConfigError{File: v.d.file, Line: v.node.Line, Key: v.path, Msg: fmt.Sprintf(format, args...)}
}

// parseYAML returns the one mapping of the one document in data.
func parseYAML(file string, data []byte) (*yaml.Node, error) {
	var document, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err := dec.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, &ConfigError{File: file, Msg: "the config is empty"}
	}
	if err == nil {
		err = dec.Decode(&second)
		if err == nil {
			return nil, &ConfigError{File: file, Line: second.Line, Msg: "a second YAML document begins here; a config is one document"}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, syntaxError(file, data, err)
	}
	root := document.Content[0]
	if isNull(root) {
		return nil, &ConfigError{File: file, Msg: "the config is empty"}
	}
	return root, nil
}

var yamlErrorLine = regexp.MustCompile(`^line (\d+): `)

// syntaxError says in whose line the YAML ends to be YAML. A tab or a no-break space as indent is by far the most common cause and
// is invisible, so it is named; the parser itself would complain about some later line.
func syntaxError(file string, data []byte, err error) error {
	e := &ConfigError{File: file, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := yamlErrorLine.FindStringSubmatch(e.Msg); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.Msg = e.Msg[len(m[0]):]
	} else if !strings.HasPrefix(e.Msg, "unknown anchor") {
		e.Line = 1 // the parser leaves the first line out, and has none for an anchor
	}
	e.Msg = "not valid YAML: " + e.Msg
	for i, line := range strings.Split(string(data), "\n") {
		indent := line[:len(line)-len(strings.TrimLeftFunc(line, unicode.IsSpace))]
		if strings.TrimSpace(line) == "" {
			continue
		}
		name := ""
		switch {
		case strings.Contains(indent, "\t"):
			name = "a tab"
		case strings.ContainsFunc(indent, func(r rune) bool { return r != ' ' && r != '\ufeff' }):
			name = "a no-break or other odd space"
		default:
			continue
		}
		e.Line, e.Msg = i+1, "not valid YAML: "+name+" in the indent; YAML allows spaces only"
		break
	}
	return e
}

// mapping reads the keys of v. Unknown and duplicate keys are looked for first, in the order of the file.
func (v value) mapping(keys []key) error {
	fields, err := v.fields(0)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if !slices.ContainsFunc(keys, func(k key) bool { return k.name == f.name }) {
			return &ConfigError{v.d.file, f.keyLine, f.path, "unknown key" + suggest(f.name, keys)}
		}
		v.d.lines[f.path] = f.keyLine
	}
	for _, k := range keys {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == k.name })
		if i < 0 {
			continue
		}
		if err := k.read(fields[i].value); err != nil {
			return err
		}
	}
	return nil
}

// field is one key of a mapping in the file with its value.
type field struct {
	value
	name    string
	keyLine int
}

// fields lists the keys of a mapping in the order of the file, then those merged by `<<`. A missing value of the
// mapping itself (a key whose lines below are all commented out) is an empty mapping.
func (v value) fields(depth int) ([]field, error) {
	v = v.resolved()
	if isNull(v.node) {
		return nil, nil
	}
	if v.node.Kind != yaml.MappingNode {
		return nil, v.errorf("must be a mapping of keys, not %s", kindName(v.node))
	}
	var fields, merged []field
	for i := 0; i < len(v.node.Content); i += 2 {
		k, val := v.node.Content[i], v.node.Content[i+1]
		if k.ShortTag() == "!!merge" {
			m, err := value{v.d, val, v.path}.mergedFields(depth)
			if err != nil {
				return nil, err
			}
			merged = append(merged, m...)
			continue
		}
		if k.Kind != yaml.ScalarNode {
			return nil, value{v.d, k, v.path}.errorf("a key must be a plain word, not %s", kindName(k))
		}
		f := field{value{v.d, val, joinKey(v.path, k.Value)}, k.Value, k.Line}
		if first := slices.IndexFunc(fields, func(g field) bool { return g.name == f.name }); first >= 0 {
			return nil, &ConfigError{v.d.file, k.Line, f.path, fmt.Sprintf("given twice, first in line %d", fields[first].keyLine)}
		}
		fields = append(fields, f)
	}
	for _, m := range merged { // what stands in the mapping itself wins over what is merged in, earlier merges over later ones
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == m.name }) {
			fields = append(fields, m)
		}
	}
	return fields, nil
}

// mergedFields lists the keys that `<<: v` adds; v is one mapping or a list of them.
func (v value) mergedFields(depth int) ([]field, error) {
	if depth == mergeDepthMax {
		return nil, v.errorf("merges more than %d deep", mergeDepthMax)
	}
	v = v.resolved()
	added := 1
	if v.node.Kind == yaml.SequenceNode {
		added = len(v.node.Content)
	}
	if v.d.merges += added; v.d.merges > mergesMax {
		return nil, v.errorf("the file merges more than %d mappings", mergesMax)
	}
	if v.node.Kind != yaml.SequenceNode {
		return v.fields(depth + 1)
	}
	var all []field
	for _, n := range v.node.Content {
		f, err := value{v.d, n, v.path}.fields(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, f...)
	}
	return all, nil
}

// list calls item for each element of v.
func (v value) list(itemsMax int, item func(value) error) error {
	v = v.resolved()
	if v.node.Kind != yaml.SequenceNode {
		return v.errorf("must be a list, not %s", kindName(v.node))
	}
	if n := len(v.node.Content); n > itemsMax {
		return v.errorf("has %d items; at most %d are allowed", n, itemsMax)
	}
	for i, n := range v.node.Content {
		path := fmt.Sprintf("%s[%d]", v.path, i)
		v.d.lines[path] = n.Line
		if err := item(value{v.d, n, path}); err != nil {
			return err
		}
	}
	return nil
}

// scalar is the text of v as it stands in the file, environment variables expanded. Numbers and durations are read from this text,
// never from what YAML makes of it: 0644, 1_000 and 12:30 mean different numbers to different YAML readers.
func (v value) scalar() (string, error) {
	v = v.resolved()
	if isNull(v.node) {
		return "", v.errorf("has no value; give one or remove the key")
	}
	if v.node.Kind != yaml.ScalarNode {
		return "", v.errorf("must be a single value, not %s", kindName(v.node))
	}
	s, err := expandEnv(v.node.Value, v.d.env)
	if err != nil {
		return "", v.errorf("%v", err)
	}
	return s, nil
}

// str is a scalar that YAML too takes for a string.
func (v value) str() (string, error) {
	s, err := v.scalar()
	if tag := v.resolved().node.ShortTag(); err == nil && tag != "!!str" {
		return "", v.errorf("must be a string; write it in quotes, as in %q", s)
	}
	return s, err
}

// resolved follows an alias; the parser made sure that its anchor exists, and an alias never points to another one.
func (v value) resolved() value {
	if v.node.Kind == yaml.AliasNode {
		v.node = v.node.Alias
	}
	return v
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return fmt.Sprintf("the single value %q", n.Value)
}

// joinKey quotes a name whose oddity would not be seen otherwise, a no-break space for one.
func joinKey(path, name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		name = strconv.QuoteToASCII(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// suggest names the known key nearest to an unknown one, or all of them if none is near.
func suggest(name string, keys []key) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; known keys here: " + strings.Join(names, ", ")
}

// nearest is the candidate with the fewest edits to name, "" if that takes too many for its length.
func nearest(name string, candidates []string) string {
	best, bestEdits := "", 1+max(1, (len(name)+1)/3)
	normal := strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
	for _, c := range candidates {
		if e := edits(normal, c); e < bestEdits {
			best, bestEdits = c, e
		}
	}
	return best
}

// wordBytesMax bounds the cost of edits; no known word comes near it.
const wordBytesMax = 64

// edits counts the letters to add, drop, change or swap with their neighbour to make a into b (optimal string alignment).
func edits(a, b string) int {
	if len(a) > wordBytesMax {
		return len(a)
	}
	// rows[i][j]: edits from a[:i] to b[:j]
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(change, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
