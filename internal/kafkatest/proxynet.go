package kafkatest

import (
	"net"
	"sync"
	"testing"
)

// ProxyNet puts a proxy before every broker of an in-memory cluster:
//
//	pn := kafkatest.NewProxyNet(t)
//	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.ListenFn(pn.Listen))
//	pn.Proxy(0).Cut()
//
// The brokers then advertise the proxies' addresses. Make the ProxyNet before the
// cluster. Safe for concurrent use.
type ProxyNet struct {
	tb testing.TB

	mu      sync.Mutex // guards proxies
	proxies []*Proxy
}

// NewProxyNet returns an empty net; its proxies end with the test.
func NewProxyNet(tb testing.TB) *ProxyNet { return &ProxyNet{tb: tb} }

// proxiedListener gives the address of the proxy before it as its own.
type proxiedListener struct {
	net.Listener
	p *Proxy
}

func (l *proxiedListener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.p.port.number}
}

// Listen has the shape of net.Listen. It ignores the address: the listener is on a free
// loopback port, the proxy before it on another.
func (pn *ProxyNet) Listen(network, _ string) (net.Listener, error) {
	l, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p, err := newProxy(l.Addr().String())
	if err != nil {
		l.Close()
		return nil, err
	}
	pn.tb.Cleanup(p.Close)
	pn.mu.Lock()
	defer pn.mu.Unlock()
	pn.proxies = append(pn.proxies, p)
	return &proxiedListener{Listener: l, p: p}, nil
}

// Serve answers every connection to a loopback port with f, each in a goroutine of its own, until the test ends. The
// connection is closed when f returns. It returns the address.
func Serve(tb testing.TB, f func(net.Conn)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

// Proxy returns the proxy before the i-th broker that began to listen, from 0.
func (pn *ProxyNet) Proxy(i int) *Proxy {
	pn.tb.Helper()
	pn.mu.Lock()
	defer pn.mu.Unlock()
	if i >= len(pn.proxies) {
		pn.tb.Fatalf("kafkatest: proxy %d of %d", i, len(pn.proxies))
	}
	return pn.proxies[i]
}
