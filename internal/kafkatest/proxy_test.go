package kafkatest

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// fakeCluster is one kfake broker behind a proxy, with topic t of one partition.
func fakeCluster(t *testing.T) (*kfake.Cluster, *Proxy) {
	t.Helper()
	pn := NewProxyNet(t)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.ListenFn(pn.Listen))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, pn.Proxy(0)
}

// client is a producer that retries quickly and, without idempotence, doubles what a
// fault makes it send twice: that is how the tests see what the broker got.
func client(t *testing.T, bootstrap []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap...), kgo.DefaultProduceTopic("t"), kgo.DisableIdempotentWrite(),
		kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.DialTimeout(time.Second),
		kgo.ProduceRequestTimeout(3 * time.Second), kgo.RequestTimeoutOverhead(time.Second),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.ProducerLinger(0),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func values(recs []Record) string {
	var v []string
	for _, r := range recs {
		v = append(v, string(r.Value))
	}
	return strings.Join(v, " ")
}

// within fails the test if a channel does not close in good time.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}

func TestProxyDropsAnswers(t *testing.T) {
	_, p := fakeCluster(t)
	cl := client(t, []string{p.Addr()})
	produce(t, cl, "a")
	dropped := p.DropNextAnswers(2)
	produce(t, cl, "b") // sent three times, done three times, answered once
	within(t, "dropping answers", dropped)
	produce(t, cl, "c")
	recs, _ := ReadTopic(t, []string{p.Addr()}, "t", ReadOptions{})
	if got := values(recs); got != "a b b b c" {
		t.Errorf("log holds %q, want %q", got, "a b b b c")
	}
	if got := p.Requests(keyProduce); got != 5 {
		t.Errorf("%d produce requests counted, want 5", got)
	}
}

func TestProxyDeliversLate(t *testing.T) {
	_, p := fakeCluster(t)
	cl := client(t, []string{p.Addr()})
	produce(t, cl, "a")
	late := p.LateNextRequests(1, 500*time.Millisecond)
	produce(t, cl, "b") // reset, sent again, done; the first one still travels
	produce(t, cl, "c")
	within(t, "the late request", late)
	recs, _ := ReadTopic(t, []string{p.Addr()}, "t", ReadOptions{})
	if got := values(recs); got != "a b c b" {
		t.Errorf("log holds %q, want %q", got, "a b c b")
	}
}

func TestProxyCutAndHeal(t *testing.T) {
	_, p := fakeCluster(t)
	cl := client(t, []string{p.Addr()})
	produce(t, cl, "a")
	p.Cut()
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial of a cut proxy: %v, want connection refused", err)
	}
	sent := make(chan struct{})
	cl.Produce(context.Background(), kgo.StringRecord("b"), func(*kgo.Record, error) { close(sent) })
	select {
	case <-sent:
		t.Error("a record went through a cut proxy")
	case <-time.After(200 * time.Millisecond):
	}
	p.Heal()
	within(t, "the record after the cut", sent)
	recs, _ := ReadTopic(t, []string{p.Addr()}, "t", ReadOptions{})
	if got := values(recs); got != "a b" {
		t.Errorf("log holds %q, want %q", got, "a b")
	}
}

// echo is a server that sends back what it gets, in frames as Kafka's.
func echo(t *testing.T) string {
	t.Helper()
	return Serve(t, func(c net.Conn) { io.Copy(c, c) })
}

// dial connects to a proxy; frames it sends must come back.
func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// a frame of four bytes; echoed, it also is an answer
const aFrame = "\x00\x00\x00\x04body"

// answer waits up to max for a frame to come back.
func answer(c net.Conn, max time.Duration) error {
	buf := make([]byte, len(aFrame))
	c.SetReadDeadline(time.Now().Add(max))
	_, err := io.ReadFull(c, buf)
	return err
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestProxyBlackHole(t *testing.T) {
	p := NewProxy(t, echo(t))
	old := dial(t, p)
	io.WriteString(old, aFrame)
	if err := answer(old, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.BlackHole()
	fresh := dial(t, p)
	io.WriteString(old, aFrame)
	io.WriteString(fresh, aFrame)
	for _, c := range []net.Conn{old, fresh} {
		if err := answer(c, 100*time.Millisecond); !isTimeout(err) {
			t.Errorf("answer from a black hole: %v, want none", err)
		}
	}
	p.Heal()
	if err := answer(old, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection that lost bytes: %v, want a reset", err)
	}
	after := dial(t, p)
	io.WriteString(after, aFrame)
	if err := answer(after, 5*time.Second); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}

func TestProxyStallLosesNothing(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	p.Stall()
	io.WriteString(c, aFrame)
	if err := answer(c, 100*time.Millisecond); !isTimeout(err) {
		t.Errorf("answer while stalled: %v, want none", err)
	}
	p.Heal()
	if err := answer(c, 5*time.Second); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}

func TestProxyDelay(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	const delay = 60 * time.Millisecond
	p.Delay(delay)
	begin := time.Now()
	io.WriteString(c, aFrame+aFrame+aFrame)
	for range 3 {
		if err := answer(c, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("there and back took %v, want at least %v", took, 2*delay)
	}
	p.Delay(time.Hour)
	io.WriteString(c, aFrame)
	if err := answer(c, 50*time.Millisecond); !isTimeout(err) {
		t.Errorf("answer an hour early: %v", err)
	}
	p.Heal() // what is delayed goes on at once
	if err := answer(c, 5*time.Second); err != nil {
		t.Error(err)
	}
}

func TestProxyReset(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	io.WriteString(c, aFrame)
	if err := answer(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if err := answer(c, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Reset: %v, want a reset", err)
	}
	c = dial(t, p)
	io.WriteString(c, aFrame)
	if err := answer(c, 5*time.Second); err != nil {
		t.Errorf("new connection after Reset: %v", err)
	}
}

// A stream that is no Kafka (here: what TLS begins with) passes unharmed.
func TestProxyPassesOtherStreams(t *testing.T) {
	p := NewProxy(t, echo(t))
	c := dial(t, p)
	hello := "\x16\x03\x01\x02\x00" + strings.Repeat("x", 200_000)
	go io.WriteString(c, hello)
	buf := make([]byte, len(hello))
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != hello {
		t.Errorf("stream came back changed, error %v", err)
	}
}

func TestProxyTargetAway(t *testing.T) {
	port, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.release()
	p := NewProxy(t, port.addr())
	c, err := net.Dial("tcp", p.Addr())
	if errors.Is(err, syscall.ECONNRESET) {
		return // that quick
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := answer(c, 5*time.Second); err == nil || isTimeout(err) {
		t.Errorf("connection to a dead target: %v, want it closed", err)
	}
}

func TestProxyCloseLeavesNothing(t *testing.T) {
	target := echo(t)
	before := goleak.IgnoreCurrent()
	p := NewProxy(t, target)
	p.DropNextAnswers(3)
	p.Delay(time.Hour)
	for range 3 {
		io.WriteString(dial(t, p), aFrame)
	}
	p.Close()
	if n := p.Connections(); n != 0 {
		t.Errorf("%d connections left", n)
	}
	// The echo server's goroutines end when they see their connections closed.
	goleak.VerifyNone(t, before)
}

func TestProxyHalfAnswers(t *testing.T) {
	p := NewProxy(t, echo(t))
	request := string([]byte{0, 0, 0, 12}) + strings.Repeat("\x00", 12) // a produce request with correlation id 0; echoed, its answer
	half := p.HalfAnswers(1)
	old := dial(t, p)
	io.WriteString(old, request)
	within(t, "half an answer", half)
	buf := make([]byte, len(request))
	old.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := io.ReadFull(old, buf); n != len(request)/2 || !isTimeout(err) {
		t.Errorf("%d bytes and %v, want %d and then silence", n, err, len(request)/2)
	}
	fresh := dial(t, p)
	io.WriteString(fresh, aFrame)
	if err := answer(fresh, 5*time.Second); err != nil {
		t.Errorf("another connection: %v", err)
	}
	p.Heal()
	if err := answer(old, 5*time.Second); err == nil || isTimeout(err) {
		t.Errorf("the silent connection after Heal: %v, want a reset", err)
	}
}

// A proxy opens again although processes are started meanwhile, which for a moment hold copies of its listener.
func TestProxyReopensWhileProcessesStart(t *testing.T) {
	p := NewProxy(t, "127.0.0.1:1")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := exec.Command("/bin/true").Run(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 300 {
		p.Cut()
		p.Heal() // panics if the port is taken
	}
	close(stop)
	<-done
}
