package tail

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var logrotateSeed = flag.Uint64("logrotate.seed", 0, "replay this seed; 0: another one each time")

// TestLogrotate lets the real logrotate rotate a file, in every style that its users choose, between writes, looks, stops
// and starts: every line comes once, those of each generation in order. Nothing is written while logrotate runs, so its
// own copytruncate loses nothing either.
func TestLogrotate(t *testing.T) {
	if _, err := exec.LookPath("logrotate"); err != nil {
		if os.Getenv("SHIPPER_REQUIRE_LOGROTATE") == "1" {
			t.Fatal(err)
		}
		t.Skip("logrotate is not installed")
	}
	seed := *logrotateSeed
	if seed == 0 {
		seed = rand.Uint64N(1e9) + 1
	}
	for name, directives := range map[string]string{
		"create":        "create 0644\nrotate 100",
		"copytruncate":  "copytruncate\nrotate 100",
		"compress":      "create 0644\nrotate 100\ncompress",
		"delaycompress": "create 0644\nrotate 100\ncompress\ndelaycompress",
		"copycompress":  "copytruncate\nrotate 100\ncompress",
		"dateext":       "create 0644\nrotate 100\ndateext\ndateformat -%Y%m%d-%s\ncompress\ndelaycompress",
		"postrotate":    "nocreate\nrotate 100\nsharedscripts\npostrotate\ntouch $DIR/reopen\nendscript",
	} {
		for _, pattern := range []string{"app.log", "app.log*"} {
			t.Run(fmt.Sprintf("%s/%s/seed-%d", name, pattern, seed), func(t *testing.T) {
				t.Parallel()
				x := &rotator{machine: newMachine(t, seed%2 == 0), rng: rand.New(rand.NewPCG(seed, uint64(len(name)+len(pattern)))), last: map[uint64]int{}}
				x.opts.Blocks = []Block{{Name: "b", Paths: []string{x.dir + "/" + pattern}, Exclude: []string{x.dir + "/*.conf"}, LineBytesMax: 1000}}
				x.run(directives)
			})
		}
	}
}

// rotator writes, rotates and counts.
type rotator struct {
	*machine
	rng  *rand.Rand
	log  *os.File
	n    int            // lines written
	got  []int          // times each was read
	last map[uint64]int // by source
}

func (x *rotator) run(directives string) {
	x.onLine = x.takeLine
	x.onTruncated = func(f *File) { x.last[f.ID()] = 0 }
	conf := filepath.Join(x.dir, "logrotate.conf")
	text := fmt.Sprintf("%s/app.log {\nmissingok\n%s\n}\n", x.dir, strings.ReplaceAll(directives, "$DIR", x.dir))
	x.must(os.WriteFile(conf, []byte(text), 0o644))
	x.reopen()
	x.write()
	x.poll()
	for range 12 {
		x.write()
		if x.rng.IntN(3) > 0 {
			x.poll()
		}
		if x.rng.IntN(4) == 0 {
			x.stop()
		}
		x.write()
		out, err := exec.Command("logrotate", "-f", "-s", filepath.Join(x.dir, "state"), conf).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "already exists") { // two rotations within a second, by name
			x.t.Fatalf("logrotate: %v\n%s", err, out)
		}
		if x.rng.IntN(2) == 0 && !strings.Contains(directives, "compress") {
			x.write() // into the old file: the writer has not opened the new one yet
		}
		x.reopen()
		x.write()
		x.poll()
	}
	x.ahead += 2 * idleFlushDefault
	x.poll()
	x.poll()
	for i, n := range x.got {
		if n != 1 {
			x.t.Errorf("line %d was read %d times", i+1, n)
		}
	}
	if len(x.got) != x.n {
		x.t.Errorf("%d lines written, the last that was read is %d", x.n, len(x.got))
	}
	if x.t.Failed() {
		names, _ := filepath.Glob(x.dir + "/*")
		x.t.Logf("%s\n%s", strings.Join(names, "\n"), x.out.String())
	}
}

func (x *rotator) must(err error) {
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *rotator) reopen() {
	if x.log != nil {
		x.must(x.log.Close())
	}
	var err error
	x.log, err = os.OpenFile(filepath.Join(x.dir, "app.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	x.must(err)
}

func (x *rotator) write() {
	var b strings.Builder
	for range 1 + x.rng.IntN(30) {
		x.n++
		fmt.Fprintf(&b, "%d %s\n", x.n, strings.Repeat("x", x.rng.IntN(60)))
	}
	_, err := x.log.WriteString(b.String())
	x.must(err)
}

func (x *rotator) takeLine(f *File, l Line) {
	text, _, _ := strings.Cut(string(l.Bytes), " ")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > x.n {
		x.t.Errorf("read %q", l.Bytes)
		return
	}
	if n <= x.last[f.ID()] {
		x.t.Errorf("line %d of source %d behind %d", n, f.ID(), x.last[f.ID()])
	}
	x.last[f.ID()] = n
	x.got = append(x.got, slices.Repeat([]int{0}, max(0, n-len(x.got)))...)
	x.got[n-1]++
}
