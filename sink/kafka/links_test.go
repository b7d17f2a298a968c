package kafka

import (
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A connection that its broker ends while nobody uses it is noticed by looking, once.
func TestLinksNoticeAnIdleConnectionsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var links links
	broker := kgo.BrokerMetadata{NodeID: 3}
	links.OnBrokerConnect(broker, 0, nil, net.ErrClosed) // none came about
	links.OnBrokerConnect(broker, 0, here, nil)
	if _, err := there.Write([]byte("nobody reads this")); err != nil {
		t.Fatal(err)
	}
	if n := links.count(3) + links.count(4); n != 0 {
		t.Fatalf("%d connections are said to be lost", n)
	}
	if !raceEnabled {
		if n := testing.AllocsPerRun(10, func() { links.count(3) }); n > 0 {
			t.Errorf("a look allocates %v times", n)
		}
	}
	there.Close()
	for links.count(3) == 0 {
		time.Sleep(time.Millisecond) // until the kernel has heard of it
	}
	links.OnBrokerDisconnect(broker, here)
	links.OnBrokerDisconnect(broker, here)
	if n := links.count(3); n != 1 {
		t.Errorf("one connection was lost, %d are counted", n)
	}
}
