package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shipper/internal/kafkatest"
)

// Cases from the field about containers' logs: what a kubelet does to directories and symlinks, without a cluster.

// pods is an agent that reads a node's /var/log/containers, which is elsewhere here.
type pods struct {
	*forms
	written map[string][]string
	mu      sync.Mutex // guards written
}

func newPods(t *testing.T, keys string) *pods {
	f := newForms(t, "    container: cri\n"+keys)
	return &pods{forms: f, written: map[string][]string{}}
}

func (p *pods) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Error(err)
	}
}

// target is where the log of a pod's container is, and link what leads there.
func (p *pods) target(pod string, n int) string {
	return filepath.Join(p.dir, "..", "pods", "shop_"+pod+"_4b1c", "web", fmt.Sprintf("%d.log", n))
}

func (p *pods) link(pod string) string {
	return filepath.Join(p.dir, pod+"_shop_web-"+strings.Repeat("0", 64)+".log")
}

// pod makes a pod's directory and the symlink to its first log.
func (p *pods) pod(pod string) {
	p.must(os.MkdirAll(filepath.Dir(p.target(pod, 0)), 0o755))
	p.must(os.Symlink(p.target(pod, 0), p.link(pod)))
}

// lines appends lines to a pod's log.
func (p *pods) lines(pod string, n, count int) {
	f, err := os.OpenFile(p.target(pod, n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer f.Close()
	p.mu.Lock()
	first := len(p.written[pod])
	for i := range count {
		p.written[pod] = append(p.written[pod], string(kafkatest.AppendLine(nil, pod, first+i, 60)))
	}
	lines := p.written[pod][first:]
	p.mu.Unlock()
	for _, l := range lines {
		_, err := fmt.Fprintf(f, "2026-11-29T23:28:47.1Z stdout F %s\n", l)
		p.must(err)
	}
}

// arrive waits for all lines, and wants each once and in order.
func (p *pods) arrive() {
	p.t.Helper()
	n := 0
	for _, lines := range p.written {
		n += len(lines)
	}
	if err := kafkatest.Check(p.written, p.records(n)).Err(); err != nil {
		p.t.Fatal(err)
	}
}

// openFiles counts the files below the test's directory that the agent holds open.
func (p *pods) openFiles() (n int) {
	p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.agent.Pid())
	fds, err := os.ReadDir(dir)
	if err != nil {
		p.t.Skip("needs /proc:", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.Contains(to, "/pods/") {
			n++
		}
	}
	return n
}

// C083: pods that live for a second, and whose logs are removed two seconds later. Nothing is lost, and nothing of them stays open.
func TestC083ShortPods(t *testing.T) {
	p := newPods(t, "    idle_flush: 1s\n")
	p.agent.Start()
	p.agent.WaitLog("shipper runs", 20*time.Second)
	const count, lines = 100, 20
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			pod := fmt.Sprintf("cart-%d", i)
			time.Sleep(time.Duration(i) * 20 * time.Millisecond)
			p.pod(pod)
			for range lines {
				p.lines(pod, 0, 1)
				time.Sleep(time.Second / lines)
			}
			time.Sleep(2 * time.Second)
			p.must(os.Remove(p.link(pod)))
			p.must(os.RemoveAll(filepath.Dir(filepath.Dir(p.target(pod, 0)))))
		})
	}
	wg.Wait()
	p.arrive()
	for end := time.Now().Add(20 * time.Second); p.openFiles() > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d logs of pods that are gone are open", p.openFiles())
		}
	}
	if lost := statsOf(t, p.spoolDir())["lost_files"]; lost != 0.0 {
		t.Errorf("%v files lost", lost)
	}
	p.stop()
}

// C085: a symlink to a file that comes later, goes, and comes again.
func TestC085DanglingSymlink(t *testing.T) {
	p := newPods(t, "")
	p.pod("y")
	p.agent.Start()
	p.agent.WaitLog("shipper runs", 20*time.Second)
	time.Sleep(3 * time.Second) // some scans
	p.lines("y", 0, 50)
	p.arrive()
	p.must(os.Remove(p.target("y", 0)))
	time.Sleep(3 * time.Second)
	p.lines("y", 0, 30)
	p.arrive()
	warnings := 0
	for line := range strings.Lines(p.agent.Log()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			warnings++
			t.Log(line)
		}
	}
	if warnings > 3 { // the link dangles, its target is gone, it is there again
		t.Errorf("%d warnings", warnings)
	}
	p.stop()
}

// C086: a container is restarted, so its log and the symlink to it change; one log goes before anybody can open it.
func TestC086ContainerRestart(t *testing.T) {
	p := newPods(t, "")
	p.pod("x")
	p.lines("x", 0, 100)
	p.agent.Start()
	p.agent.WaitLog("shipper runs", 20*time.Second)
	for i := range 20 {
		gone := filepath.Join(p.dir, fmt.Sprintf("gone-%d.log", i))
		p.must(os.WriteFile(gone, nil, 0o600))
		p.must(os.Remove(gone))
	}
	p.lines("x", 1, 50)
	next := p.link("x") + "~"
	p.must(os.Symlink(p.target("x", 1), next))
	p.must(os.Rename(next, p.link("x")))
	p.lines("x", 1, 50)
	time.Sleep(3 * time.Second)
	p.must(os.Remove(p.target("x", 0)))
	p.lines("x", 1, 10)
	p.arrive()
	time.Sleep(3 * time.Second) // nothing comes again
	p.arrive()
	if n := strings.Count(p.agent.Log(), "gone-"); n > 2 {
		t.Errorf("the log names files that went away %d times", n)
	}
	p.stop()
}
