package kafka

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// links knows the connections to each broker, and counts those that were lost: a
// broker that was restarted may lead in another epoch than metadata showed, and
// would take the next batch without a word. Nobody reads from a connection that is
// idle, so its end is looked for. Safe for concurrent use.
type links struct {
	mu     sync.Mutex // guards changes; Losses takes no lock
	byNode sync.Map   // int32: *link
}

// link is one broker.
type link struct {
	losses atomic.Uint64
	wires  atomic.Pointer[[]*wire] // replaced as a whole
}

// wire is one connection.
type wire struct {
	conn net.Conn
	raw  syscall.RawConn // nil: its end cannot be looked for
	look func(fd uintptr)
	over atomic.Bool // as the last look showed
	lost atomic.Bool // and counted
}

func (l *links) of(node int32) *link {
	if x, ok := l.byNode.Load(node); ok {
		return x.(*link)
	}
	x, _ := l.byNode.LoadOrStore(node, new(link))
	return x.(*link)
}

// OnBrokerConnect is part of kgo.HookBrokerConnect.
func (l *links) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if err != nil {
		return
	}
	w := &wire{conn: conn}
	under := conn
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		under = t.NetConn()
	}
	if s, ok := under.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			w.raw = raw
			w.look = func(fd uintptr) {
				w.over.Store(hungUp(fd))
			}
		}
	}
	l.change(meta.NodeID, func(wires []*wire) []*wire { return append(wires, w) })
}

// OnBrokerDisconnect is part of kgo.HookBrokerDisconnect.
func (l *links) OnBrokerDisconnect(meta kgo.BrokerMetadata, conn net.Conn) {
	l.change(meta.NodeID, func(wires []*wire) []*wire {
		i := slices.IndexFunc(wires, func(w *wire) bool { return w.conn == conn })
		if i < 0 {
			return wires // it never came about
		}
		l.of(meta.NodeID).lose(wires[i])
		return slices.Delete(wires, i, i+1)
	})
}

// change replaces the connections to a broker.
func (l *links) change(node int32, f func([]*wire) []*wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.of(node)
	var wires []*wire
	if have := x.wires.Load(); have != nil {
		wires = slices.Clone(*have)
	}
	wires = f(wires)
	x.wires.Store(&wires)
}

// lose counts a connection once.
func (x *link) lose(w *wire) {
	if !w.lost.Swap(true) {
		x.losses.Add(1)
	}
}

func (l *links) count(node int32) uint64 {
	x := l.of(node)
	if wires := x.wires.Load(); wires != nil {
		for _, w := range *wires {
			if w.raw != nil && w.raw.Control(w.look) == nil && w.over.Load() {
				x.lose(w)
			}
		}
	}
	return x.losses.Load()
}

// Losses is how many connections to a broker were lost so far, as far as can be
// seen; those that are idle are looked at. It only grows.
func (c *Client) Losses(broker int32) uint64 { return c.links.count(broker) }
