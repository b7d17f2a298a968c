package spsc

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Every interleaving of a producer and a consumer, for a few values and chunks
// of two. What runs is a model: queue.go line by line, where a line that touches
// what the sides share is a step. TestModelIsTheCode holds it to the text.
//
// Atomics are sequentially consistent, so an execution is an interleaving; a
// plain access takes two steps, and one that meets another of the same item is a
// data race. That is all races there are: if two accesses are not ordered by what
// lies between them, there is an execution in which they meet.

const (
	modelItems  = 2 // of a chunk
	modelChunks = 4
	modelValues = 7 // 1, 2, ...
	nobody      = int8(-1)
)

type modelChunk struct {
	len   int8
	next  int8 // -1: none
	items [modelItems]int8
	busy  [modelItems]bool // somebody is at it
}

// model is all there is to know between two steps.
type model struct {
	chunks [modelChunks]modelChunk
	made   int8
	done   int8

	push, pop thread

	first, tail, n, c, v       int8 // producer
	head, at, seen, next, item int8 // consumer

	published, popped int8
	before            int8 // published when this Pop began
	wrong             string
}

type thread struct {
	line   int8
	halfAt int8 // the item of a plain access under way
	half   bool
}

// modelLine is one line of the code. to: the text of the line that follows; empty: the next one.
type modelLine struct {
	text   string
	do     func(*model) (to string)
	shared bool
	plain  func(*model) (chunk, item int8) // a plain access of this item
}

func always(to string) func(*model) string { return func(*model) string { return to } }
func then(do func(*model)) func(*model) string {
	return func(m *model) string { do(m); return "" }
}

func unless(ok func(*model) bool, to string) func(*model) string {
	return func(m *model) string {
		if ok(m) {
			return ""
		}
		return to
	}
}

var (
	brace = modelLine{text: "}", do: always("")}

	pushLines = []modelLine{
		{text: "if q.n == chunkItems {", do: unless(func(m *model) bool { return m.n == modelItems }, "q.tail.items[q.n] = v")},
		{text: "q.grow()", do: always("c := q.first")},
		brace,
		{text: "q.tail.items[q.n] = v", do: then(func(m *model) { m.chunks[m.tail].items[m.n] = m.v }), shared: true,
			plain: func(m *model) (int8, int8) { return m.tail, m.n }},
		{text: "q.n++", do: then(func(m *model) { m.n++ })},
		{text: "q.tail.len.Store(q.n)", shared: true, do: func(m *model) string {
			m.chunks[m.tail].len = m.n
			m.published++
			m.v++
			return "if q.n == chunkItems {"
		}},
	}
	growLines = []modelLine{
		{text: "c := q.first", do: then(func(m *model) { m.c = m.first })},
		{text: "if c == q.done.Load() {", do: unless(func(m *model) bool { return m.c == m.done }, "q.first = c.next.Load()"), shared: true},
		{text: "c = new(chunk[T])", do: func(m *model) string {
			if m.c = m.made; m.made == modelChunks {
				m.wrong, m.c = "more chunks than values need", 0
				return ""
			}
			m.chunks[m.made] = modelChunk{next: nobody}
			m.made++
			return "q.tail.next.Store(c)"
		}},
		{text: "} else {", do: always("")},
		{text: "q.first = c.next.Load()", do: then(func(m *model) { m.first = m.chunks[m.c].next }), shared: true},
		{text: "c.len.Store(0)", do: then(func(m *model) { m.chunks[m.c].len = 0 }), shared: true},
		{text: "c.next.Store(nil)", do: then(func(m *model) { m.chunks[m.c].next = nobody }), shared: true},
		brace,
		{text: "q.tail.next.Store(c)", do: then(func(m *model) { m.chunks[m.tail].next = m.c }), shared: true},
		{text: "q.tail, q.n = c, 0", do: func(m *model) string {
			m.tail, m.n = m.c, 0
			return "q.tail.items[q.n] = v"
		}},
	}
	popLines = []modelLine{
		{text: "if q.at == chunkItems {", do: func(m *model) string {
			m.before = m.published
			if m.at == modelItems {
				return ""
			}
			return "if q.at == q.seen {"
		}},
		{text: "next := q.head.next.Load()", do: then(func(m *model) { m.next = m.chunks[m.head].next }), shared: true},
		{text: "if next == nil {", do: unless(func(m *model) bool { return m.next == nobody }, "q.head, q.at, q.seen = next, 0, 0")},
		{text: "return v, false", do: foundNone},
		brace,
		{text: "q.head, q.at, q.seen = next, 0, 0", do: then(func(m *model) { m.head, m.at, m.seen = m.next, 0, 0 })},
		{text: "q.done.Store(next)", do: then(func(m *model) { m.done = m.next }), shared: true},
		brace,
		{text: "if q.at == q.seen {", do: unless(func(m *model) bool { return m.at == m.seen }, "var none T")},
		{text: "if q.seen = q.head.len.Load(); q.at == q.seen {", shared: true, do: func(m *model) string {
			if m.seen = m.chunks[m.head].len; m.at != m.seen {
				return "var none T"
			}
			return foundNone(m)
		}},
		{text: "return v, false", do: foundNone},
		brace,
		brace,
		{text: "var none T", do: always("")},
		{text: "item := &q.head.items[q.at]", do: then(func(m *model) { m.item = m.at })},
		{text: "v, *item = *item, none", shared: true, plain: func(m *model) (int8, int8) { return m.head, m.item }, do: then(func(m *model) {
			item := &m.chunks[m.head].items[m.item]
			if m.popped++; *item != m.popped {
				m.wrong = "a value that is not the next one"
			}
			*item = 0
		})},
		{text: "q.at++", do: then(func(m *model) { m.at++ })},
		{text: "return v, true", do: always("if q.at == chunkItems {")},
	}
)

// foundNone is right if there was nothing when the call began, since only this side takes.
func foundNone(m *model) string {
	if m.before != m.popped {
		m.wrong = "nothing found where something was"
	}
	return "if q.at == chunkItems {"
}

// step runs a thread up to and with the next line that touches what is shared.
func (m model) step(lines []modelLine, who func(*model) *thread) model {
	for t := who(&m); ; {
		x := &lines[t.line]
		if x.plain != nil && !t.half {
			chunk, item := x.plain(&m)
			if m.chunks[chunk].busy[item] {
				m.wrong = "a data race"
			}
			m.chunks[chunk].busy[item], t.half, t.halfAt = true, true, chunk*modelItems+item
			return m
		}
		if t.half {
			m.chunks[t.halfAt/modelItems].busy[t.halfAt%modelItems] = false
			t.half, t.halfAt = false, 0
		}
		if to := x.do(&m); to == "" {
			t.line++
		} else {
			t.line = int8(slices.IndexFunc(lines, func(y modelLine) bool { return y.text == to }))
		}
		if x.shared || m.wrong != "" {
			return m
		}
	}
}

// interleave walks all executions; wrong is the first thing that is, states how many were seen.
func interleave(push, pop []modelLine) (wrong string, states int) {
	start := model{made: 1, v: 1}
	start.chunks[0].next = nobody
	seen, todo, ended := map[model]bool{start: true}, []model{start}, false
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		var next []model
		if m.published < modelValues {
			next = append(next, m.step(push, func(m *model) *thread { return &m.push }))
		}
		if m.popped < modelValues {
			next = append(next, m.step(pop, func(m *model) *thread { return &m.pop }))
		}
		ended = ended || len(next) == 0
		for _, x := range next {
			if x.wrong != "" {
				return x.wrong, len(seen)
			}
			if !seen[x] {
				seen[x] = true
				todo = append(todo, x)
			}
		}
	}
	if !ended {
		return "no execution comes to an end", len(seen)
	}
	return "", len(seen)
}

func producer() []modelLine { return slices.Concat(pushLines, growLines) }

func TestInterleavings(t *testing.T) {
	wrong, states := interleave(producer(), popLines)
	if wrong != "" {
		t.Error(wrong)
	}
	t.Logf("%d states", states)
}

// Lines in another order, or left out: the walk has to find it.
func TestInterleavingsFind(t *testing.T) {
	at := func(lines []modelLine, text string) int {
		return slices.IndexFunc(lines, func(x modelLine) bool { return x.text == text })
	}
	without := func(lines []modelLine, text string) []modelLine {
		i := at(lines, text)
		return slices.Delete(slices.Clone(lines), i, i+1)
	}
	moved := func(lines []modelLine, text, before string) []modelLine {
		x := lines[at(lines, text)]
		lines = without(lines, text)
		return slices.Insert(lines, at(lines, before), x)
	}
	for name, c := range map[string]struct{ push, pop []modelLine }{
		// Published with the number of the item that is not written yet.
		"len before the item":      {push: published(producer()), pop: popLines},
		"next before len is reset": {push: moved(producer(), "q.tail.next.Store(c)", "c.len.Store(0)"), pop: popLines},
		"len is not reset":         {push: without(producer(), "c.len.Store(0)"), pop: popLines},
		"next is not reset":        {push: without(producer(), "c.next.Store(nil)"), pop: popLines},
		"a chunk is taken before the consumer left it": {push: replaced(producer(), "if c == q.done.Load() {", func(m *model) string {
			if m.c == m.tail { // only the chunk that is written
				return ""
			}
			return "q.first = c.next.Load()"
		}), pop: popLines},
		"done with the chunk before its last item is read": {push: producer(), pop: replaced(popLines, "var none T", func(m *model) string {
			if m.at == modelItems-1 && m.chunks[m.head].next != nobody {
				m.done = m.chunks[m.head].next
			}
			return ""
		})},
		"an item is read before len is": {push: producer(), pop: replaced(popLines, "if q.at == q.seen {", always("var none T"))},
	} {
		if wrong, states := interleave(c.push, c.pop); wrong == "" {
			t.Errorf("%s: nothing found in %d states", name, states)
		} else {
			t.Logf("%s: %s, after %d states", name, wrong, states)
		}
	}
}

func replaced(lines []modelLine, text string, do func(*model) string) []modelLine {
	lines = slices.Clone(lines)
	lines[slices.IndexFunc(lines, func(x modelLine) bool { return x.text == text })].do = do
	return lines
}

// published is a Push that stores len first, and writes the item then.
func published(lines []modelLine) []modelLine {
	lines = slices.Clone(lines)
	i := slices.IndexFunc(lines, func(x modelLine) bool { return x.text == "q.tail.items[q.n] = v" })
	item, count, store := lines[i], lines[i+1], lines[i+2]
	end := store.do
	store.do = func(m *model) string { end(m); return "" }
	item.do = func(m *model) string {
		m.chunks[m.tail].items[m.n-1] = m.v - 1
		return "if q.n == chunkItems {"
	}
	item.plain = func(m *model) (int8, int8) { return m.tail, m.n - 1 }
	store.text, item.text = item.text, store.text // whoever jumps to the first of them
	count.text, store.text = store.text, count.text
	lines[i], lines[i+1], lines[i+2] = count, store, item
	return lines
}

// TestModelIsTheCode: the lines of the model are those of the code.
func TestModelIsTheCode(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "queue.go", nil, 0) // without comments
	if err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]modelLine{"Push": pushLines, "grow": growLines, "Pop": popLines} {
		var want, got []string
		for _, x := range lines {
			want = append(want, x.text)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
				var b strings.Builder
				if err := printer.Fprint(&b, set, f.Body); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(b.String()) {
					if line = strings.TrimSpace(line); line != "" {
						got = append(got, line)
					}
				}
			}
		}
		if len(got) < 2 || !slices.Equal(got[1:len(got)-1], want) {
			t.Errorf("%s is\n%s\nand the model has\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
