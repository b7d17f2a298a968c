package tail

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNoDescriptors runs in a process of its own, whose descriptors somebody else takes again and again.
func TestNoDescriptors(t *testing.T) {
	if os.Getenv("TAIL_TEST_STARVE") != "" {
		starve(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoDescriptors$", "-test.v")
	cmd.Env = append(os.Environ(), "TAIL_TEST_STARVE=1")
	out, err := cmd.CombinedOutput()
	log := string(out)
	if err != nil || strings.Count(log, "too many open files") != 1 || strings.Count(log, "no file descriptors left") != 1 || strings.Contains(log, "lost") {
		t.Errorf("%v\n%s", err, log)
	}
}

// TestChainStarved is TestChain in a process of its own, in which somebody takes all descriptors at random times: the watcher dies while
// it closes files for lack of them, while it cannot list a directory or open a copy, and right after. The seed is replayed with -chain.seed.
func TestChainStarved(t *testing.T) {
	const limit, seeds = 40, 3
	if seed := os.Getenv("TAIL_TEST_STARVE"); seed != "" {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}))
		n, err := strconv.ParseUint(seed, 10, 64)
		must(t, err)
		chain(t, n, &hog{})
		return
	}
	for range seeds {
		seed := *chainSeed
		if seed == 0 {
			seed = rand.Uint64N(1e9) + 1
		}
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestChainStarved$", "-test.v", "-chain.steps", fmt.Sprint(*chainSteps), "-chain.seed", fmt.Sprint(*chainSeed))
			cmd.Env = append(os.Environ(), fmt.Sprintf("TAIL_TEST_STARVE=%d", seed))
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "starve:") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func starve(t *testing.T) {
	const limit, gap = 96, 10 * time.Millisecond
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	var want []string
	stage := func(name, line string) {
		must(t, appendTo(at(name), line+"\n"))
		want = append(want, line)
		time.Sleep(12 * time.Millisecond) // the clock of the file system moves
	}
	for _, d := range []string{"a", "b", "stage"} {
		must(t, os.Mkdir(at(d), 0o700))
	}
	for i := range 20 {
		stage(fmt.Sprintf("a/%02d.log", i), fmt.Sprintf("%02d", i))
	}
	var log bytes.Buffer
	r := &runner{pollGap: gap}
	_, stop := startRun(t, Options{
		ScanInterval: gap, OpenFilesMax: limit, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Blocks: []Block{{Name: "b", Paths: []string{dir + "/*/*.log"}, LineBytesMax: 100}},
	}, r, false)
	r.until(len(want))
	for _, line := range []string{"20", "21", "22", "23"} {
		stage("stage/"+line, line)
	}
	var h hog
	h.take(t)
	must(t, os.Rename(at("stage/20"), at("b/20.log")))
	if got := r.until(21); !slices.Equal(got, want[:21]) {
		t.Errorf("got %q while others hold the descriptors", got)
	}
	for _, line := range []string{"21", "22", "23"} { // generations that are found when it is over
		for range 10 {
			h.take(t)
			time.Sleep(gap / 2)
		}
		_ = os.Rename(at("a/00.log.1"), at("a/00.log.2"))
		must(t, os.Rename(at("a/00.log"), at("a/00.log.1")))
		must(t, os.Rename(at("stage/"+line), at("a/00.log")))
	}
	for range 20 {
		h.take(t)
		time.Sleep(gap)
	}
	h.free()
	r.until(len(want))
	stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.lines[len(r.lines)-3:]; len(r.lines) != len(want) || !slices.Equal(got, want[21:]) {
		t.Errorf("%d lines, the last %q", len(r.lines), got)
	}
	t.Log(log.String())
}
