package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"shipper/internal/kafkatest"
)

// Cases from the field: brokers that do not let us in, and we who do not trust them. What is wrong must be in the log.

// C145: a wrong password, then the right one.
func TestC145WrongPassword(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"plain", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			b := embedded(t, 2, kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "ann", "right"), kfake.Superuser("PLAIN", "checker", "checker"))
			b.read.Client = []kgo.Opt{kgo.SASL(plain.Auth{User: "checker", Pass: "checker"}.AsMechanism())}
			b.kafka = fmt.Sprintf("  sasl: {mechanism: %s, username: ann, password: wrong}\n", mechanism)
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
			w.writer.Write(500)
			w.agent.Start()
			// This broker closes the connection without an answer; one that says why: TestRealTLSAndSASL.
			w.agent.WaitLog(fmt.Sprintf(`authenticating user \"ann\" by %s`, mechanism), 30*time.Second)
			if w.logLines("broker 127.0.0.1:") == 0 {
				t.Error("the log does not name the broker")
			}
			w.awaitHealth(http.StatusServiceUnavailable, "topic logs: broker unreachable")
			w.stop()
			b.kafka = strings.Replace(b.kafka, "wrong", "right", 1)
			w.configure()
			w.agent.Start()
			w.check()
			w.awaitHealth(http.StatusOK, "ok")
			w.stop()
		})
	}
}

// authority signs certificates of brokers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var der []byte
	der, a.key = a.sign(t, ca)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign certifies a new key; by itself the first time.
func (a *authority) sign(t *testing.T, c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// broker certifies a broker for 127.0.0.1, or another name.
func (a *authority) broker(t *testing.T, until time.Time, name string) *tls.Certificate {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "the-broker"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(name); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{name}
	}
	der, key := a.sign(t, c)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// overTLS are embedded brokers that show a certificate that can be changed.
func overTLS(t *testing.T, a *authority, first *tls.Certificate, edit ...func(*tls.Config)) (*brokers, *atomic.Pointer[tls.Certificate]) {
	var cert atomic.Pointer[tls.Certificate]
	cert.Store(first)
	c := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Load(), nil }}
	for _, f := range edit {
		f(c)
	}
	b := embedded(t, 1, kfake.TLS(c))
	b.kafka = "  tls: {enabled: true, ca_file: " + a.file + "}\n"
	b.read.Client = []kgo.Opt{kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true})}
	return b, &cert
}

// C147: the brokers' certificate expires under the agent, and is renewed.
func TestC147ExpiredCertificate(t *testing.T) {
	a := newAuthority(t)
	b, cert := overTLS(t, a, a.broker(t, time.Now().Add(time.Hour), "127.0.0.1"))
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1, Rate: 100})
	until := time.Now().Add(20 * time.Second).Truncate(time.Second) // as certificates count
	cert.Store(a.broker(t, until, "127.0.0.1"))
	w.agent.Start()
	w.writer.Start()
	time.Sleep(time.Until(until.Add(time.Second)))
	lines := w.writer.Lines()
	time.Sleep(2 * time.Second)
	w.writer.Stop()
	w.check() // what was connected before stays so
	if w.writer.Lines() == lines || w.logLines("lane waits") > 0 {
		t.Errorf("%d lines were written after the end, and %d lanes waited", w.writer.Lines()-lines, w.logLines("lane waits"))
	}
	for _, p := range w.proxies {
		p.Reset()
	}
	w.writer.Write(100)
	w.agent.WaitLog("(CN=the-broker) expired on "+until.UTC().Format(time.RFC3339), 30*time.Second)
	cert.Store(a.broker(t, time.Now().Add(time.Hour), "127.0.0.1"))
	w.checkSettled()
	w.stop()
}

// C149: the right to write is missing, given, taken away and given again.
func TestC149DeniedAndGranted(t *testing.T) {
	b := embedded(t, 1)
	deny := func() *kfake.FaultHandle {
		return b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	}
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	denied := deny()
	w.writer.Write(500)
	w.agent.Start()
	w.agent.WaitLog("grant WRITE on the topic to this principal", 20*time.Second)
	if w.logLines("topic="+b.topic) == 0 {
		t.Error("the log does not name the topic")
	}
	denied.Remove()
	w.check()
	denied = deny()
	w.writer.Write(500)
	time.Sleep(2 * time.Second)
	denied.Remove()
	w.check()
	w.wantStat("maybe_doubled_records", 0)
	w.stop()
}

// C150: the right to take a producer id is missing for a while. Nothing is sent without one.
func TestC150NoProducerID(t *testing.T) {
	b := embedded(t, 1)
	sent := b.collect()
	denied := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.writer.Write(500)
	w.agent.Start()
	w.agent.WaitLog("grant IDEMPOTENT_WRITE on the cluster", 20*time.Second)
	time.Sleep(2 * time.Second)
	sent.mu.Lock()
	n := len(sent.list)
	sent.mu.Unlock()
	if n != 0 {
		t.Errorf("%d batches were sent without a producer id", n)
	}
	denied.Remove()
	w.check()
	w.stop()
}

// says is a server that answers everything with the same bytes, or not at all.
func says(t *testing.T, answer string) *brokers {
	t.Helper()
	takeTurn(t, embeddedTurns)
	addr := kafkatest.Serve(t, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1000)); err != nil {
			return
		}
		c.Write([]byte(answer))
		c.Read(make([]byte, 1000)) // until the other side has enough
	})
	return &brokers{bootstrap: []string{addr}, topic: topicName}
}

// C151: the port speaks something else: no TLS, nothing but TLS, HTTP, SSH, an absurd length.
func TestC151OtherProtocols(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	const useTLS = "  tls: {enabled: true}\n"
	for _, c := range []struct {
		name string
		b    func(t *testing.T) *brokers
		says string
	}{
		{"TLS to plaintext", func(t *testing.T) *brokers { b := embedded(t, 1); b.kafka = useTLS; return b }, "does this port speak TLS?"},
		{"plaintext to TLS", func(t *testing.T) *brokers {
			b, _ := overTLS(t, a, a.broker(t, time.Now().Add(time.Hour), "127.0.0.1"))
			b.kafka = ""
			return b
		}, "is TLS missing?"},
		{"TLS to HTTP", func(t *testing.T) *brokers {
			b := says(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
			b.kafka = useTLS
			return b
		}, "answers, but not in TLS"},
		{"HTTP", func(t *testing.T) *brokers { return says(t, "HTTP/1.1 400 Bad Request\r\n\r\n") }, "HTTP"},
		{"SSH", func(t *testing.T) *brokers { return says(t, "SSH-2.0-OpenSSH_9.6\r\n") }, "does not speak Kafka's protocol"},
		{"absurd length", func(t *testing.T) *brokers { return says(t, "\xff\xff\xff\xff") }, "does not speak Kafka's protocol"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.b(t)
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
			w.writer.Write(10)
			w.agent.Start()
			w.agent.WaitLog("broker 127.0.0.1:", time.Minute)
			w.agent.WaitLog(c.says, time.Second)
			if used := w.residentBytes(); used > 256<<20 {
				t.Errorf("%d MiB of memory", used>>20)
			}
			w.stop()
		})
	}
}

// C153: certificates that prove nothing, and files that hold none.
func TestC153Untrusted(t *testing.T) {
	t.Parallel()
	a, stranger := newAuthority(t), newAuthority(t)
	hour := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name string
		cert *tls.Certificate
		edit func(*tls.Config)
		says string
	}{
		{"unknown authority", stranger.broker(t, hour, "127.0.0.1"), func(*tls.Config) {}, "unknown authority"},
		{"other name", a.broker(t, hour, "kafka.example.org"), func(*tls.Config) {}, "doesn't contain any IP SANs"},
		{"other address", a.broker(t, hour, "127.0.0.9"), func(*tls.Config) {}, "certificate is valid for 127.0.0.9, not 127.0.0.1"},
		{"TLS 1.1", a.broker(t, hour, "127.0.0.1"), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }, "protocol version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, cert := overTLS(t, a, c.cert, c.edit)
			w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
			w.writer.Write(100)
			w.agent.Start()
			w.agent.WaitLog("broker 127.0.0.1:", 30*time.Second)
			w.agent.WaitLog(c.says, time.Second)
			if c.name != "TLS 1.1" {
				cert.Store(a.broker(t, hour, "127.0.0.1"))
				w.check()
			}
			w.stop()
		})
	}
	rubbish := filepath.Join(t.TempDir(), "rubbish.pem")
	if err := os.WriteFile(rubbish, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{rubbish, empty, "/nonexistent/ca.pem"} {
		w := newWorld(t, &brokers{bootstrap: []string{"127.0.0.1:1"}, topic: topicName, kafka: "  tls: {enabled: true, ca_file: " + file + "}\n"}, kafkatest.WriterOptions{})
		out, err := exec.CommandContext(t.Context(), w.agent.Binary(), "run", "--config", w.agent.ConfigFile()).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), file) {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// Without the right to read the topic all goes on, and people know at once what they are without.
func TestNoRightToRead(t *testing.T) {
	b := embedded(t, 1)
	denied := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	w := newWorld(t, b, kafkatest.WriterOptions{Files: 1})
	w.agent.Start()
	w.writer.Write(100)
	w.agent.WaitLog("grant READ on the topic", 20*time.Second)
	w.wantStat("unreadable_topics", 1)
	denied.Remove()
	w.check()
	w.agent.Kill9()
	w.agent.Start() // with a new producer id it is tried again
	w.writer.Write(100)
	w.check()
	w.wantStat("unreadable_topics", 0)
	w.stop()
}
