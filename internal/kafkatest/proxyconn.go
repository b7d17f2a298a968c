package kafkatest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The way through a proxy, four goroutines per connection:
//
//	client --> readFrames --> queue --> writeFrames --> broker      requests
//	client <-- writeFrames <-- queue <-- readFrames <-- broker      answers
//
// Frame faults act where frames are read; delay, stall and black hole where they are
// written, so that they also catch what waits in a queue. Both directions are read
// frame by frame (Kafka: four bytes length, then that many), so that an answer can be
// matched to its request by correlation id and a request withheld whole. A TLS stream,
// told by its first bytes, passes in pieces as it comes and meets no frame faults.

const (
	queueFramesMax = 64        // waiting in one direction; then the proxy stops reading
	frameBytesMax  = 100 << 20 // a longer "frame" is no Kafka (the broker's own limit)
	pieceBytesMax  = 64 << 10  // of a stream without frames
	lateAnswerMax  = 30 * time.Second
)

// proxyConn is one client connection and the broker connection that serves it.
type proxyConn struct {
	p      *Proxy
	client *net.TCPConn
	broker net.Conn // set by run before any other goroutine of the connection starts

	done     chan struct{} // closed by end
	endOnce  sync.Once
	holed    atomic.Bool // bytes were swallowed
	silent   atomic.Bool // the broker's side ended in the middle of an answer
	detached atomic.Bool // the client was reset while a late request waits for its time

	hitMu sync.Mutex
	hit   map[int32]*frameFault // by correlation id: requests whose answer is awaited for a fault
	asked map[int32]int16       // by correlation id: the version of requests for metadata
}

// frame is what waits in a queue.
type frame struct {
	data []byte
	from time.Time // it may leave at this time plus the proxy's delay
}

// run serves the connection until both directions have ended.
func (c *proxyConn) run() {
	defer c.p.forget(c)
	defer c.end(false)
	broker, err := net.DialTimeout("tcp", c.p.target, 5*time.Second)
	if err != nil {
		c.end(true)
		return
	}
	c.broker = broker
	// A proxy that was cut meanwhile has closed the client; the broker is closed here.
	defer broker.Close()
	requests, answers := make(chan frame, queueFramesMax), make(chan frame, queueFramesMax)
	var wg sync.WaitGroup
	wg.Go(func() { c.readFrames(c.client, requests, c.onRequest) })
	wg.Go(func() { c.writeFrames(requests, c.broker); c.endRequests() })
	wg.Go(func() { c.readFrames(c.broker, answers, c.onAnswer) })
	wg.Go(func() { c.writeFrames(answers, c.client); c.endAnswers() })
	<-c.done
	broker.Close()
	wg.Wait()
	c.settle()
}

// end closes the client's side, by reset or in order, and lets run close the rest.
func (c *proxyConn) end(reset bool) {
	c.endOnce.Do(func() {
		c.closeClient(reset)
		close(c.done)
	})
}

func (c *proxyConn) closeClient(reset bool) {
	if reset {
		// Fails only on a closed connection.
		_ = c.client.SetLinger(0)
	}
	c.client.Close()
}

// endRequests follows the last request: the client has closed or was reset. A late
// request still gets time for its answer, which is the end of the connection.
func (c *proxyConn) endRequests() {
	if c.detached.Load() {
		select {
		case <-c.done:
		case <-time.After(lateAnswerMax):
		}
	}
	c.end(false)
}

// endAnswers follows the last answer or the first that could not be written.
func (c *proxyConn) endAnswers() {
	if !c.detached.Load() {
		c.end(false)
	}
}

// settle gives up the faults whose answer did not come before the connection ended.
func (c *proxyConn) settle() {
	c.hitMu.Lock()
	defer c.hitMu.Unlock()
	for corr, f := range c.hit {
		delete(c.hit, corr)
		c.p.finish(f)
	}
}

// readFrames queues what src sends and on lets pass, until src ends.
func (c *proxyConn) readFrames(src net.Conn, queue chan<- frame, on func(*frame) bool) {
	defer close(queue)
	r := bufio.NewReaderSize(src, pieceBytesMax)
	head, err := r.Peek(4)
	if err != nil {
		return
	}
	framed := binary.BigEndian.Uint32(head) <= frameBytesMax
	for {
		f, err := nextFrame(r, framed)
		if err != nil {
			return
		}
		if framed && !on(&f) {
			continue
		}
		select {
		case queue <- f:
		case <-c.done:
			return
		}
	}
}

// nextFrame reads one frame, length included, or a piece of a stream without frames.
func nextFrame(r *bufio.Reader, framed bool) (frame, error) {
	if !framed {
		buf := make([]byte, pieceBytesMax)
		n, err := r.Read(buf)
		return frame{data: buf[:n], from: time.Now()}, err
	}
	head, err := r.Peek(4)
	if err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > frameBytesMax {
		return frame{}, io.ErrUnexpectedEOF
	}
	data := make([]byte, 4+n)
	_, err = io.ReadFull(r, data)
	return frame{data: data, from: time.Now()}, err
}

// onRequest looks for a fault that hits the request (length, api key int16, version
// int16, correlation id int32). It always passes it on, if late: after its time.
func (c *proxyConn) onRequest(f *frame) bool {
	if len(f.data) < 12 {
		return true
	}
	c.noteMetadata(f.data)
	fault := c.p.count(int16(binary.BigEndian.Uint16(f.data[4:])))
	if fault == nil {
		return true
	}
	c.hitMu.Lock()
	c.hit[int32(binary.BigEndian.Uint32(f.data[8:]))] = fault
	c.hitMu.Unlock()
	if fault.late {
		f.from = f.from.Add(fault.after)
		c.detached.Store(true)
		c.closeClient(true)
	}
	return true
}

// onAnswer drops the answer (length, correlation id int32) to a request that was hit,
// and with it the connection.
func (c *proxyConn) onAnswer(f *frame) bool {
	if len(f.data) < 8 {
		return true
	}
	f.data = c.hide(f.data)
	corr := int32(binary.BigEndian.Uint32(f.data[4:]))
	c.hitMu.Lock()
	fault := c.hit[corr]
	delete(c.hit, corr)
	c.hitMu.Unlock()
	if fault == nil {
		return !c.detached.Load() && !c.silent.Load()
	}
	if fault.half {
		f.data = f.data[:len(f.data)/2]
		c.silent.Store(true)
		c.holed.Store(true)
		c.p.finish(fault)
		return true
	}
	c.end(true)
	c.p.finish(fault)
	return false
}

// writeFrames delivers a queue until it ends or dst no longer takes anything.
func (c *proxyConn) writeFrames(queue <-chan frame, dst net.Conn) {
	for {
		select {
		case <-c.done:
			return
		case f, ok := <-queue:
			if !ok {
				return
			}
			if !c.gate(f.from) {
				continue
			}
			if _, err := dst.Write(f.data); err != nil {
				return
			}
		}
	}
}

// gate waits until a frame may leave, and tells whether it may.
func (c *proxyConn) gate(from time.Time) bool {
	for {
		mode, delay, changed := c.p.setting()
		if mode == modeSwallow {
			c.holed.Store(true)
			return false
		}
		var timer <-chan time.Time // never fires while stalled
		if mode == modePass {
			wait := time.Until(from.Add(delay))
			if wait <= 0 {
				return true
			}
			timer = time.After(wait)
		}
		select {
		case <-changed:
		case <-timer:
		case <-c.done:
			return false
		}
	}
}
