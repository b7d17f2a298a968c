//go:build long

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// A dozen containers behind chains of symlinks, in CRI and Docker format, rotated every few seconds as a kubelet does: renamed, the
// one before it compressed, at times slowly. In one mode the copies keep the time of the last write; in the other one, as a kubelet's,
// they do not, and the names are dated to the second. Meanwhile the agent is killed, stopped and cut off. Every line arrives once and
// in order. A seed is printed and replayed with SHIPPER_PODS_SEED; what depends on time is not the same then:
//
//	go test -tags long -count=1 -v -run TestPodsRotated/untimed ./internal/e2e

const (
	podsCount    = 12
	podsFor      = 35 * time.Second
	podsRotateIn = 130 // steps of a container, on average
	podsToldMax  = 20  // lines of each kind of mistake
)

// pod writes the log of one container.
type pod struct {
	n       int
	rng     *rand.Rand
	live    string
	f       *os.File
	lines   int
	gen     int
	untimed bool       // copies keep no times, and names are dated as a kubelet's
	rotated string     // the last one
	packing chan error // the one before it is being compressed; nil: no more
	at      time.Time
	err     error
}

func (p *pod) open() {
	f, err := os.OpenFile(p.live, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	p.f, p.err = f, err
}

func (p *pod) write() {
	for range 1 + p.rng.IntN(4) {
		text := fmt.Sprintf("%d %06d %s", p.n, p.lines, strings.Repeat("p", p.rng.IntN(150)))
		at, stream := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"), []string{"stdout", "stderr"}[p.rng.IntN(2)]
		p.lines++
		if p.n%4 == 1 {
			fmt.Fprintf(p.f, `{"log":"%s\n","stream":"%s","time":"%s"}`+"\n", text, stream, at)
		} else {
			fmt.Fprintf(p.f, "%s %s F %s\n", at, stream, text)
		}
	}
}

// rotate moves the live file away and has the one before it compressed, while lines are written.
func (p *pod) rotate() {
	now := time.Now()
	to := fmt.Sprintf("%s.20261130-%03d", p.live, p.gen+1)
	if p.untimed {
		to = p.live + now.Format(kubeletDate)
	}
	if p.err = p.packed(); p.err != nil || now.Sub(p.at) < 100*time.Millisecond || to == p.rotated {
		return
	}
	p.gen++
	p.at = now
	if p.err = os.Rename(p.live, to); p.err != nil {
		return
	}
	p.f.Close()
	if p.open(); p.err == nil && p.rotated != "" {
		from, pause := p.rotated, time.Duration(p.rng.IntN(3)*p.rng.IntN(12))*time.Millisecond
		p.packing = make(chan error, 1)
		go func() { p.packing <- compressAs(from, !p.untimed, pause) }()
	}
	p.rotated = to
}

// packed waits until nothing is being compressed.
func (p *pod) packed() (err error) {
	if p.packing != nil {
		err = <-p.packing
		p.packing = nil
	}
	return err
}

// run writes and rotates until stop is closed.
func (p *pod) run(stop <-chan struct{}) {
	for p.err == nil {
		select {
		case <-stop:
			p.err = errors.Join(p.packed(), p.f.Close())
			return
		case <-time.After(time.Duration(5+p.rng.IntN(40)) * time.Millisecond):
		}
		if p.write(); p.rng.IntN(podsRotateIn) == 0 {
			p.rotate()
		}
	}
}

func makePods(t *testing.T, root string, seed uint64, untimed bool) (pods []*pod) {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(root, "containers"), 0o755))
	for n := range podsCount {
		dir := filepath.Join(root, "pods", fmt.Sprintf("ns_pod%d_uid", n), "c")
		must(os.MkdirAll(dir, 0o755))
		p := &pod{n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), live: filepath.Join(dir, "0.log"), untimed: untimed}
		p.open()
		must(p.err)
		to := p.live
		if n%3 == 0 {
			to = filepath.Join(root, fmt.Sprintf("mid%d", n))
			must(os.Symlink(p.live, to))
		}
		must(os.Symlink(to, filepath.Join(root, "containers", fmt.Sprintf("pod%d_ns_c-%064x.log", n, n))))
		pods = append(pods, p)
	}
	return pods
}

// torment does to the agent what can be done to it.
func (w *world) torment(rng *rand.Rand) (did map[string]int) {
	did = map[string]int{}
	for end := time.Now().Add(podsFor); time.Now().Before(end); {
		time.Sleep(time.Duration(500+rng.IntN(2500)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0, 1:
			did["kills"]++
			w.agent.Kill9()
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			w.agent.Start()
		case 2:
			did["stops"]++
			w.agent.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			w.agent.Signal(syscall.SIGCONT)
		case 3:
			did["cuts"]++
			w.cut()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			w.heal()
		}
	}
	return did
}

func TestPodsRotated(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SHIPPER_PODS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for _, untimed := range []bool{false, true} {
		t.Run(map[bool]string{false: "timed", true: "untimed"}[untimed], func(t *testing.T) { podsRotated(t, seed, untimed) })
	}
}

func podsRotated(t *testing.T, seed uint64, untimed bool) {
	t.Log("seed", seed)
	b := embedded(t, 4)
	b.defaults = "  linger: 200ms\n  container: auto\n"
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1}, source{name: "k8s", glob: "containers/*.log"})
	pods := makePods(t, filepath.Join(w.dir, "logs"), seed, untimed)
	for _, p := range pods {
		p.write()
	}
	w.agent.Start()
	w.awaitRecords(t, pods) // from here on the agent knows every path
	stop, done := make(chan struct{}), make(chan struct{}, len(pods))
	for _, p := range pods {
		go func() {
			p.run(stop)
			done <- struct{}{}
		}()
	}
	did := w.torment(rand.New(rand.NewPCG(seed, 1<<32)))
	close(stop)
	lines, generations := 0, 0
	for range pods {
		<-done
	}
	for _, p := range pods {
		if p.err != nil {
			t.Fatal(p.err)
		}
		lines, generations = lines+p.lines, generations+p.gen
	}
	t.Logf("%d lines in %d generations, %v", lines, generations+len(pods), did)
	w.awaitRecords(t, pods)
	time.Sleep(3 * time.Second) // what comes twice may come late
	w.comparePods(t, pods)
	w.stop()
}

func (w *world) podRecords(t *testing.T) [][]string {
	got, _ := kafkatest.ReadTopic(t, w.checker(), w.topic, w.read)
	var all [][]string
	for _, r := range got {
		all = append(all, strings.Fields(string(r.Value)))
	}
	return all
}

func (w *world) awaitRecords(t *testing.T, pods []*pod) {
	lines := 0
	for _, p := range pods {
		lines += p.lines
	}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && len(w.podRecords(t)) < lines; {
		time.Sleep(time.Second)
	}
}

func (w *world) comparePods(t *testing.T, pods []*pod) {
	lost, doubled, disordered := 0, 0, 0
	tell := func(count *int, what, id string) {
		if *count++; *count <= podsToldMax {
			t.Logf("%s: pod and line %s", what, id)
		}
	}
	seen, next := map[string]bool{}, map[string]int{}
	for _, r := range w.podRecords(t) {
		if len(r) < 2 {
			t.Fatalf("a record that nobody wrote: %q", r)
		}
		n, err := strconv.Atoi(r[1])
		if err != nil {
			t.Fatalf("a record that nobody wrote: %q", r)
		}
		switch id := r[0] + " " + r[1]; {
		case seen[id]:
			tell(&doubled, "doubled", id)
		case n < next[r[0]]:
			tell(&disordered, "out of order", id)
			seen[id] = true
		default:
			seen[id], next[r[0]] = true, n+1
		}
	}
	for _, p := range pods {
		for n := range p.lines {
			if id := fmt.Sprintf("%d %06d", p.n, n); !seen[id] {
				tell(&lost, "lost", id)
			}
		}
	}
	if lost+doubled+disordered > 0 {
		t.Errorf("%d lost, %d doubled, %d out of order", lost, doubled, disordered)
	}
}
