package tail

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	killsSeeds = flag.Int("kills", 60, "random kills to try")
	killsOf    = flag.String("kills.of", "", "only in this script, at all places")
)

// kill is where a watcher is killed in the middle of a poll of a script.
type kill struct {
	poll    int // so many polls are done
	durable int // and so many halves of rounds, looks and turns of the reader, when the spool got what is durable
	at      int // and now
}

const killHalvesMax = 8

// killsTell are scripts in which a kill tells what cannot be told (docs/rotation.md): of what nothing was known yet, and of generations that
// begin alike.
var killsTell = []string{"C040_copy_deleted", "C040_rotated_before_seen", "cut_before_read", "cut_before_read_twice"}

// TestKills plays scripts, kills the watcher in the middle of a poll and wants the lines that come without that: of each log all of them
// once, in the same order. Most files wait for something in these scripts: for what was in them before, for older ones, for a truncation
// to be noticed, for their turn to be unpacked. A file that is forgotten meanwhile, or waits for ever, has lines missing.
// -kills.of SCRIPT kills at all places of one script.
func TestKills(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		script string
		kill   kill
	}
	var places []place
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if *killsOf != "" && *killsOf != name || *killsOf == "" && slices.Contains(killsTell, name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(text), "-- out --\n")
		if !strings.Contains("\n"+script, "\nunsorted\n") || strings.Contains("\n"+script, "\n#needs ") { // not of every file system and user
			continue
		}
		for poll := range strings.Count("\n"+script, "\npoll\n") {
			for at := range killHalvesMax {
				for durable := range at + 1 {
					places = append(places, place{name, kill{poll, durable, at}})
				}
			}
		}
	}
	if *killsOf == "" {
		rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		places = places[:min(len(places), *killsSeeds)]
	}
	for _, p := range places {
		t.Run(fmt.Sprintf("%s/poll-%d-durable-%d-at-%d", p.script, p.kill.poll, p.kill.durable, p.kill.at), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("testdata/" + p.script + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			script, want, _ := strings.Cut(string(text), "-- out --\n")
			m := newMachine(t, false)
			m.kill = &p.kill
			for _, line := range strings.Split(script, "\n") {
				if words := splitWords(t, line); len(words) > 0 {
					if err := m.step(words); err != nil {
						t.Fatal(err)
					}
				}
			}
			m.stop()
			if got, want := linesOf(m.out.String()), linesOf(want); got != want {
				t.Errorf("got:\n%s\nwant:\n%s\nall:\n%s", got, want, m.out.String())
			}
		})
	}
}

// linesOf are the lines of each log in what a script put out.
func linesOf(out string) string {
	logs := map[string][]string{}
	for _, told := range strings.Split(out, "\n") {
		if words := strings.Fields(told); len(words) >= 3 && strings.Contains(told, "\"") && words[0] != "warning" {
			log := logOf(told)
			logs[log] = append(logs[log], strings.Join(words[2:], " "))
		}
	}
	var b strings.Builder
	for _, log := range slices.Sorted(maps.Keys(logs)) {
		fmt.Fprintf(&b, "%s:\n%s\n", log, strings.Join(logs[log], "\n"))
	}
	return b.String()
}

// die is a poll that is cut short.
func (m *machine) die(k *kill) {
	var known map[uint64]Known
	var told []string
	for half := 0; ; half++ {
		if half == k.durable {
			m.mu.Lock()
			known, told = maps.Clone(m.known), slices.Clone(m.told)
			m.mu.Unlock()
		}
		switch {
		case half == k.at:
			m.drop()
			m.known, m.told, m.gone, m.lastID = known, told, nil, 0
			for id := range known {
				m.lastID = max(m.lastID, id)
			}
			return
		case half%2 == 0:
			m.look()
		default:
			m.turn()
		}
	}
}

// drop ends the watcher as SIGKILL does.
func (m *machine) drop() {
	if m.w == nil {
		return
	}
	for _, f := range append(m.held, m.opened...) {
		f.Release()
	}
	m.w.takeBack()
	m.w.end()
	m.held, m.opened, m.w = nil, nil, nil
}
