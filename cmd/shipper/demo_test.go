package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writeDemoLogs makes one log with two rotations and returns its lines in the order of writing.
func writeDemoLogs(t *testing.T, dir string) [][]byte {
	t.Helper()
	l := &demoLog{dir: dir, name: "web", rotateAt: time.Second, random: rand.New(rand.NewPCG(1, 2))}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	for second := range 11 { // rotations at 1 s and 6 s
		if _, err := l.writeUntil((second+1)*60, time.Duration(second)*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for _, name := range []string{"web.log.1", "web.log.2", "web.log"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines
}

// Each case delivers the lines with one fault; the checker must see exactly that fault.
func TestDemoCheckerSeesEveryFault(t *testing.T) {
	dir := t.TempDir()
	lines := writeDemoLogs(t, dir)
	if len(lines) != 660 {
		t.Fatalf("%d lines", len(lines))
	}
	swapped := append([][]byte{}, lines...)
	swapped[7], swapped[8] = swapped[8], swapped[7]
	changed := append([][]byte{}, lines...)
	changed[9] = append(append([]byte{}, changed[9]...), 'x')
	for name, c := range map[string]struct {
		delivered [][]byte
		want      delivery
	}{
		"nothing":         {nil, delivery{Written: 660, Lost: 660}},
		"perfect":         {lines, delivery{Written: 660, Delivered: 660}},
		"first lost":      {lines[1:], delivery{Written: 660, Delivered: 659, Lost: 1}},
		"last lost":       {lines[:659], delivery{Written: 660, Delivered: 659, Lost: 1}},
		"all twice":       {append(append([][]byte{}, lines...), lines...), delivery{Written: 660, Delivered: 1320, Doubled: 660}},
		"two swapped":     {swapped, delivery{Written: 660, Delivered: 660, OutOfOrder: 1}},
		"one byte longer": {changed, delivery{Written: 660, Delivered: 659, Lost: 1, Foreign: 1}},
		"a foreign line":  {append([][]byte{[]byte("hello")}, lines...), delivery{Written: 660, Delivered: 660, Foreign: 1}},
		"a lost batch that comes late": {append(append(append([][]byte{}, lines[:10]...), lines[50:]...), lines[10:50]...),
			delivery{Written: 660, Delivered: 660, OutOfOrder: 40}},
	} {
		d, err := newDelivery(filepath.Join(dir, "*.log*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range c.delivered {
			d.take(line)
		}
		d.finish()
		if len(d.files) != 3 {
			t.Errorf("%s: %d files", name, len(d.files))
		}
		if d.perfect() != (name == "perfect") {
			t.Errorf("%s: perfect is %v", name, d.perfect())
		}
		if d.files = nil; fmt.Sprint(*d) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, want %+v", name, *d, c.want)
		}
	}
}

func TestDemoCheckerRefusesAForeignFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.log"), []byte("not ours\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newDelivery(filepath.Join(dir, "*.log")); err == nil {
		t.Error("accepted")
	}
}

func TestDemoWriterReportsWhatItWrote(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := runDemoWriter(t.Context(), writerOptions{Dir: dir, Duration: 200 * time.Millisecond, LinesPerSecond: 1000}, &out); err != nil {
		t.Fatal(err)
	}
	d, err := newDelivery(filepath.Join(dir, "*.log*"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Fields(out.Bytes())
	if want := 200 * len(writerFiles); d.Written != want || string(lines[len(lines)-1]) != fmt.Sprint(want) {
		t.Errorf("%d lines on disk, %s reported, want %d", d.Written, lines[len(lines)-1], want)
	}
}

func TestLatestNumber(t *testing.T) {
	var l latestNumber
	for _, step := range []struct {
		write string
		want  int64
	}{{"1", 0}, {"2\n3\n4", 3}, {"", 3}, {"5\n", 45}} {
		if _, err := io.WriteString(&l, step.write); err != nil || l.Load() != step.want {
			t.Errorf("after %q: %d, %v; want %d", step.write, l.Load(), err, step.want)
		}
	}
	if _, err := io.WriteString(&l, "x\n"); err == nil {
		t.Error("x is taken for a number")
	}
}

// While the line is cut nothing is produced; afterwards all is as before.
func TestDemoClusterCutAndHeal(t *testing.T) {
	c, err := startDemoCluster("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	produce := func(value string, patience time.Duration) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.addresses()...), kgo.DefaultProduceTopic("a"), kgo.DisableIdempotentWrite(),
			kgo.RecordRetries(0), kgo.RequestRetries(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.Ping(t.Context()); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr()
	}
	if err := produce("one", 10*time.Second); err != nil || !c.reachable() {
		t.Fatal(err)
	}
	c.line.set(cut)
	if err := produce("lost", time.Second); err == nil || c.reachable() {
		t.Error("produced while cut off")
	}
	c.heal()
	if err := produce("two", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := c.read(t.Context(), func(v []byte) { got = append(got, string(v)) }); err != nil || fmt.Sprint(got) != "[one two]" {
		t.Errorf("read %q, %v", got, err)
	}
	if n, err := c.records(t.Context()); n != 2 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
}

func TestSwallowedAnswerNeverArrives(t *testing.T) {
	line := &powerLine{conns: make(map[*cuttableConn]struct{})}
	l, err := line.listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // answers each line with itself
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, lines.Text())
				}
			}()
		}
	}()
	conn := dial(t, l.Addr().String())
	answers := bufio.NewReader(conn)
	fmt.Fprintln(conn, "one")
	if s, err := answers.ReadString('\n'); s != "one\n" {
		t.Fatalf("%q, %v", s, err)
	}
	line.set(swallowing)
	fmt.Fprintln(conn, "two")
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if s, err := answers.ReadString('\n'); err == nil {
		t.Errorf("an answer while swallowing: %q", s)
	}
	_ = conn.SetReadDeadline(time.Time{})
	line.set(cut)
	if s, err := answers.ReadString('\n'); err == nil {
		t.Errorf("an answer after the cut: %q", s)
	}
	fresh := dial(t, l.Addr().String())
	fmt.Fprintln(fresh, "three")
	if got, _ := io.ReadAll(fresh); len(got) > 0 { // ends with EOF or a reset
		t.Errorf("a connection made after the cut answers %q", got)
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
