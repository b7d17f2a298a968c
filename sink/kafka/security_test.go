package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// selfSigned makes a certificate for 127.0.0.1 and the pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// sendOne shows that produce and question connections both work.
func sendOne(t *testing.T, c *Client) {
	t.Helper()
	s := sealed(t, LZ4, randomRecords(testRand(t), 5))
	if o := produceOne(t, c, testTopic, 1, stamped(s, Stamp{ProducerID: newID(t, c)})); o.Code != 0 {
		t.Fatalf("%+v", o)
	}
}

func TestTLS(t *testing.T) {
	cert, pool := selfSigned(t)
	cluster := newCluster(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	brokers := cluster.ListenAddrs()
	dialer := func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	t.Run("trusted", func(t *testing.T) {
		sendOne(t, newTestClient(t, ClientConfig{Brokers: brokers, TLS: &tls.Config{RootCAs: pool}}))
	})
	t.Run("over a dialer", func(t *testing.T) {
		sendOne(t, newTestClient(t, ClientConfig{Brokers: brokers, TLS: &tls.Config{RootCAs: pool}, Dialer: dialer}))
	})
	for name, cfg := range map[string]ClientConfig{
		"not trusted":               {TLS: &tls.Config{}},
		"not trusted over a dialer": {TLS: &tls.Config{}, Dialer: dialer},
		"other name":                {TLS: &tls.Config{RootCAs: pool, ServerName: "broker.example.org"}},
		"other name over a dialer":  {TLS: &tls.Config{RootCAs: pool, ServerName: "broker.example.org"}, Dialer: dialer},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Brokers = brokers
			_, err := newTestClient(t, cfg).Metadata(testContext(t), nil)
			if err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSASL(t *testing.T) {
	cert, pool := selfSigned(t)
	for _, mechanism := range SASLMechanisms {
		t.Run(mechanism, func(t *testing.T) {
			cluster := newCluster(t, kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "shipper", "secret"),
				kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
			cfg := ClientConfig{Brokers: cluster.ListenAddrs(), TLS: &tls.Config{RootCAs: pool}, SASL: SASL{Mechanism: mechanism, User: "shipper", Password: "secret"}}
			sendOne(t, newTestClient(t, cfg))
			cfg.SASL.Password = "wrong"
			if _, err := newTestClient(t, cfg).Metadata(testContext(t), nil); err == nil || !strings.Contains(err.Error(), "ask for metadata") {
				t.Errorf("wrong password: %v", err)
			}
			cfg.SASL = SASL{}
			if _, err := newTestClient(t, cfg).Metadata(testContext(t), nil); err == nil {
				t.Error("let in without authentication")
			}
		})
	}
}
