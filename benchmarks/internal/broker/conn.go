package broker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// serve answers one connection, one request after the other, until it ends or sends nonsense.
func (b *Broker) serve(c net.Conn) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	}()
	cn := conn{broker: b, r: bufio.NewReaderSize(c, 16<<10)}
	for {
		answer, err := cn.next()
		if err != nil {
			return
		}
		if answer == nil { // acks=0
			continue
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// conn is the state of one connection; its goroutine alone uses it.
type conn struct {
	broker   *Broker
	r        *bufio.Reader
	frame    []byte
	answer   []byte
	request  kmsg.ProduceRequest // read into again and again, as is produced
	produced kmsg.ProduceResponse
}

// next reads one request, carries it out and returns the framed answer, which is valid until the next call.
//
//	request:  length int32 | key int16 | version int16 | correlation int32 | client id (int16 length) | tags, if flexible | body
//	answer:   length int32 | correlation int32 | tags, if flexible and not ApiVersions | body
func (cn *conn) next() ([]byte, error) {
	body, err := cn.readFrame()
	if err != nil {
		return nil, err
	}
	if len(body) < 10 {
		return nil, errors.New("request header cut short")
	}
	key, version := int16(binary.BigEndian.Uint16(body)), int16(binary.BigEndian.Uint16(body[2:]))
	correlation := body[4:8]
	clientIDLen := max(int(int16(binary.BigEndian.Uint16(body[8:]))), 0)
	if len(body) < 10+clientIDLen {
		return nil, errors.New("client id cut short")
	}
	rest := body[10+clientIDLen:]

	served, ok := servedVersions[key]
	if !ok {
		return nil, fmt.Errorf("API key %d is not served", key)
	}
	var resp kmsg.Response
	if version < served.min || version > served.max {
		if key != int16(kmsg.ApiVersions) {
			return nil, fmt.Errorf("version %d of API key %d is not served", version, key)
		}
		resp = versionsTooNew()
	} else if resp, err = cn.carryOut(key, version, rest); err != nil || resp == nil {
		return nil, err
	}

	cn.answer = append(cn.answer[:0], 0, 0, 0, 0)
	cn.answer = append(cn.answer, correlation...)
	if resp.IsFlexible() && key != int16(kmsg.ApiVersions) {
		cn.answer = append(cn.answer, 0)
	}
	cn.answer = resp.AppendTo(cn.answer)
	binary.BigEndian.PutUint32(cn.answer, uint32(len(cn.answer)-4))
	return cn.answer, nil
}

func (cn *conn) readFrame() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(cn.r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > requestBytesMax {
		return nil, fmt.Errorf("request of %d bytes", n)
	}
	if int(n) > cap(cn.frame) {
		cn.frame = make([]byte, n)
	}
	cn.frame = cn.frame[:n]
	_, err := io.ReadFull(cn.r, cn.frame)
	return cn.frame, err
}

func (cn *conn) carryOut(key, version int16, rest []byte) (kmsg.Response, error) {
	var req kmsg.Request = &cn.request
	if key != int16(kmsg.Produce) {
		req = kmsg.RequestForKey(key)
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		var err error
		if rest, err = skipTags(rest); err != nil {
			return nil, err
		}
	}
	if err := req.ReadFrom(rest); err != nil {
		return nil, fmt.Errorf("API key %d version %d: %w", key, version, err)
	}
	if produce, ok := req.(*kmsg.ProduceRequest); ok {
		resp := cn.produce(produce)
		if cn.broker.o.AckDelay > 0 {
			time.Sleep(cn.broker.o.AckDelay)
		}
		if produce.Acks == 0 {
			return nil, nil
		}
		return resp, nil
	}
	return cn.broker.answer(req)
}

// skipTags steps over the tagged fields that end a flexible request header.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errors.New("header tags cut short")
	}
	b = b[n:]
	for range count {
		if _, n = binary.Uvarint(b); n <= 0 {
			return nil, errors.New("header tag cut short")
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || uint64(len(b)-n) < size {
			return nil, errors.New("header tag cut short")
		}
		b = b[n+int(size):]
	}
	return b, nil
}
