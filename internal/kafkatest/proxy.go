package kafkatest

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// keyProduce is Kafka's number for Produce, which frame faults mean if no key is named.
const keyProduce = int16(0)

// proxyMode says what happens to bytes that reach a proxy.
type proxyMode int

const (
	modePass    proxyMode = iota
	modeSwallow           // thrown away
	modeStall             // kept until the mode changes
)

// Proxy stands before one broker (real or kfake) and breaks the way to it on demand.
// proxyconn.go has the way of the bytes. Safe for concurrent use.
type Proxy struct {
	target string
	port   *port
	wg     sync.WaitGroup

	mu       sync.Mutex // guards all below
	listener net.Listener
	conns    map[*proxyConn]struct{}
	mode     proxyMode
	delay    time.Duration
	changed  chan struct{} // closed and replaced when mode or delay change
	faults   []*frameFault
	requests map[int16]int
	hidden   string // topic that metadata do not show; "": none
	closed   bool
}

// frameFault is a fault of the next requests with one of keys.
type frameFault struct {
	keys  []int16
	late  bool          // withhold the request, not the answer
	half  bool          // the answer ends in its middle, and nothing follows
	after time.Duration // for how long
	left  int           // requests still to be hit
	open  int           // hit or to be hit, not done yet
	done  chan struct{} // closed when open is 0
}

// NewProxy starts a proxy on a free loopback port that ends with the test. Brokers must
// advertise its address for clients to use it; ProxyNet makes kfake do so.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := newProxy(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

func newProxy(target string) (*Proxy, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: target, port: port,
		conns: make(map[*proxyConn]struct{}), changed: make(chan struct{}), requests: make(map[int16]int),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listenLocked(); err != nil {
		port.release()
		return nil, fmt.Errorf("kafkatest: proxy: %w", err)
	}
	return p, nil
}

// Addr returns the host:port clients connect to. It stays the same for good.
func (p *Proxy) Addr() string { return p.port.addr() }

// Cut closes all connections and refuses new ones, as a stopped broker does.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.end(false)
	}
}

// BlackHole accepts connections and throws away all that comes in both directions.
// As a stream with a hole in it cannot go on, Heal resets the connections that lost any.
func (p *Proxy) BlackHole() { p.set(modeSwallow, 0) }

// Stall accepts connections and keeps all that comes until Heal delivers it: what a
// partition does to a connection that outlives it.
func (p *Proxy) Stall() { p.set(modeStall, 0) }

// Delay passes every frame d later than it came, in both directions; pipelined frames
// are delayed side by side, not one after another.
func (p *Proxy) Delay(d time.Duration) { p.set(modePass, d) }

// Reset breaks all present connections with a TCP reset; new ones are served.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.end(true)
	}
}

// Heal undoes every fault: what is stalled or delayed goes on at once, frame faults
// not yet hit are forgotten (their channels are closed), and the port is open again.
func (p *Proxy) Heal() {
	p.set(modePass, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		f.doneLocked(f.left)
	}
	p.faults, p.hidden = nil, ""
	for c := range p.conns {
		if c.holed.Load() {
			c.end(true)
		}
	}
	if p.listener == nil && !p.closed {
		if err := p.listenLocked(); err != nil {
			panic(fmt.Sprintf("kafkatest: a program outside of the tests took the port of a proxy: %v", err))
		}
	}
}

// DropNextAnswers lets the next n requests with one of the keys (Produce if none is
// given) through, throws their answers away and resets the connection instead: the
// broker has done it and the client cannot know. The channel closes when n answers
// were thrown away (or can no longer come). Needs a plaintext listener.
func (p *Proxy) DropNextAnswers(n int, keys ...int16) <-chan struct{} {
	return p.addFault(&frameFault{left: n, keys: keys})
}

// LateNextRequests resets the connection on which each of the next n requests with one
// of the keys (Produce if none is given) comes, and delivers the request to the broker
// later, when the client has long given it up: a zombie write. The channel closes when
// the broker has answered all n (or never will). Needs a plaintext listener.
func (p *Proxy) LateNextRequests(n int, after time.Duration, keys ...int16) <-chan struct{} {
	return p.addFault(&frameFault{left: n, keys: keys, late: true, after: after})
}

// HalfAnswers delivers the first half of the answers to the next n requests with one of
// the keys (Produce if none is given) and then nothing: the connection stays open and
// silent until Heal resets it. Needs a plaintext listener.
func (p *Proxy) HalfAnswers(n int, keys ...int16) <-chan struct{} {
	return p.addFault(&frameFault{left: n, keys: keys, half: true})
}

// Requests returns how many requests with that key clients have sent so far, delivered
// or not. Zero on a TLS listener.
func (p *Proxy) Requests(key int16) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[key]
}

// Connections returns how many client connections are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Close ends the proxy, resets its connections and waits for its goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.end(true)
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.port.release()
}

func (p *Proxy) set(mode proxyMode, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.delay = mode, delay
	close(p.changed)
	p.changed = make(chan struct{})
}

// setting returns what holds now and a channel that closes when it no longer does.
func (p *Proxy) setting() (proxyMode, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.delay, p.changed
}

func (p *Proxy) addFault(f *frameFault) <-chan struct{} {
	if len(f.keys) == 0 {
		f.keys = []int16{keyProduce}
	}
	f.open, f.done = f.left, make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.left <= 0 {
		panic("BUG: kafkatest: a frame fault of no requests")
	}
	p.faults = append(p.faults, f)
	return f.done
}

// count notes a request and returns the fault that hits it, or nil.
func (p *Proxy) count(key int16) *frameFault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[key]++
	for i, f := range p.faults {
		if slices.Contains(f.keys, key) {
			if f.left--; f.left == 0 {
				p.faults = slices.Delete(p.faults, i, i+1)
			}
			return f
		}
	}
	return nil
}

// finish notes that one request that f hit is done with.
func (p *Proxy) finish(f *frameFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.doneLocked(1)
}

func (f *frameFault) doneLocked(n int) {
	if n == 0 {
		return
	}
	if f.open -= n; f.open == 0 {
		close(f.done)
	}
}

// portFreeMax bounds the wait for a port of ours that is in use: a child that is being
// started has copies of all our descriptors until it executes its program, so a listener
// that we closed may listen for that long.
const portFreeMax = 5 * time.Second

// listenLocked opens the port and starts accepting.
func (p *Proxy) listenLocked() error {
	l, err := net.Listen("tcp", p.port.addr())
	for end := time.Now().Add(portFreeMax); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		l, err = net.Listen("tcp", p.port.addr())
	}
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// accept serves one life of the listener; it ends when that is closed.
func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		c := &proxyConn{p: p, client: client.(*net.TCPConn), done: make(chan struct{}), hit: make(map[int32]*frameFault), asked: make(map[int32]int16)}
		p.mu.Lock()
		stale := p.listener != l // cut while this one was being accepted
		if !stale {
			p.conns[c] = struct{}{}
			p.wg.Go(c.run)
		}
		p.mu.Unlock()
		if stale {
			client.Close()
		}
	}
}

func (p *Proxy) forget(c *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
