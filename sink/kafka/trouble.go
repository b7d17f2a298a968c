package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Why no connection comes about. A question is put to one broker after another until its time is over, so its own error is
// often no more than that: the reason is what happened to the last connection, with the name of the broker.

const troubleAgeMax = time.Minute

// trouble remembers the last connection that failed before its first request. Safe for concurrent use.
type trouble struct {
	cfg  *ClientConfig
	last atomic.Pointer[failedConnection]
}

type failedConnection struct {
	node int32 // below 0: one of the configured addresses
	addr string
	err  error
	at   time.Time
}

// OnBrokerConnect is part of kgo.HookBrokerConnect: a connection is made, and TLS, version and SASL are agreed on, or not.
func (t *trouble) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	addr := net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port))
	if err != nil {
		t.last.Store(&failedConnection{meta.NodeID, addr, err, time.Now()})
	} else if f := t.last.Load(); f != nil && f.addr == addr {
		t.last.CompareAndSwap(f, nil)
	}
}

const anyNode = int32(-1)

// explain adds what a connection to node, or to any, failed for.
func (t *trouble) explain(node int32, err error) error {
	f := t.last.Load()
	if f == nil || time.Since(f.at) > troubleAgeMax || node != anyNode && node != f.node {
		return err
	}
	return &connectError{err: err, says: fmt.Sprintf("broker %s: %s", f.addr, t.cfg.reason(f.err)), same: strings.Contains(err.Error(), f.err.Error())}
}

// connectError is an error with the reason behind it.
type connectError struct {
	err  error
	says string
	same bool // says is about err itself
}

func (e *connectError) Error() string {
	if e.same {
		return e.says
	}
	return fmt.Sprintf("%v (%s)", e.err, e.says)
}

func (e *connectError) Unwrap() error { return e.err }

// reason is err in words that name what to look at.
func (c *ClientConfig) reason(err error) string {
	var first *kgo.ErrFirstReadEOF
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	who := fmt.Sprintf("user %q by %s", c.SASL.User, c.SASL.Mechanism)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return fmt.Sprintf("authentication of %s failed: %v", who, err)
	case errors.As(err, &first):
		return err.Error() // kgo's guess
	case errors.Is(err, io.EOF) && c.SASL != (SASL{}):
		return fmt.Sprintf("it closed the connection while authenticating %s, as some do after a wrong password: %v", who, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().After(invalid.Cert.NotAfter):
		return fmt.Sprintf("its certificate (%s) expired on %s: %v", invalid.Cert.Subject, invalid.Cert.NotAfter.UTC().Format(time.RFC3339), err)
	case errors.As(err, &header):
		return fmt.Sprintf("it answers, but not in TLS; kafka.tls.enabled is for another port: %v", err)
	case c.TLS != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("nothing answers the TLS handshake; does this port speak TLS? %v", err)
	case strings.Contains(err.Error(), "response size"):
		return fmt.Sprintf("what answers does not speak Kafka's protocol, or in TLS; check the port and kafka.tls: %v", err)
	}
	return err.Error()
}
