package kafkatest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Files of a TLS cluster in its run directory.
const (
	caPEM     = "ca.pem"     // the authority's certificate
	brokerPEM = "broker.pem" // private key and certificate of all brokers
	clientPEM = "client.pem" // certificate of a client
	clientKey = "client.key" // and its private key
)

// clientName is the name in the client certificate; its principal is "User:CN=client".
const clientName = "client"

// writeCertificates makes an authority and certificates for brokers and a client.
func writeCertificates(dir string) error {
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafkatest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, caCert, _, err := certify(ca, ca, nil)
	if err != nil {
		return err
	}
	broker := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "broker"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	_, brokerCert, brokerKey, err := certify(broker, ca, caKey)
	if err != nil {
		return err
	}
	client := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: clientName},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	_, clientCert, key, err := certify(client, ca, caKey)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		caPEM: caCert, brokerPEM: bytes.Join([][]byte{brokerKey, brokerCert}, nil),
		clientPEM: clientCert, clientKey: key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("kafkatest: %w", err)
		}
	}
	return nil
}

// certify signs a certificate with the parent's key (its own if nil) and returns its
// key and both in PEM.
func certify(cert, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (key *ecdsa.PrivateKey, certText, keyText []byte, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, nil, fmt.Errorf("kafkatest: %w", err)
	}
	if parentKey == nil {
		parentKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("kafkatest: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("kafkatest: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// CAFile returns the PEM file of the authority that signed the brokers' certificate.
func (c *Cluster) CAFile() string { return filepath.Join(c.dir.path, caPEM) }

// ClientCertFiles returns PEM files of a client certificate and its key for MutualTLS;
// its principal is "User:CN=client".
func (c *Cluster) ClientCertFiles() (cert, key string) {
	return filepath.Join(c.dir.path, clientPEM), filepath.Join(c.dir.path, clientKey)
}

// TLSConfig returns what a client of a TLS cluster needs, its certificate included.
func (c *Cluster) TLSConfig() *tls.Config {
	c.tb.Helper()
	ca, err := os.ReadFile(c.CAFile())
	if err != nil {
		c.tb.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(c.ClientCertFiles())
	if err != nil {
		c.tb.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{cert}}
	conf.RootCAs.AppendCertsFromPEM(ca)
	return conf
}

// ClientOpts returns what a franz-go client needs to speak to the client listener as a
// user (SCRAM-SHA-512); user and password are ignored if the cluster has no users.
func (c *Cluster) ClientOpts(user, password string) []kgo.Opt {
	c.tb.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap()...)}
	if c.o.TLS {
		opts = append(opts, kgo.DialTLSConfig(c.TLSConfig()))
	}
	if len(c.o.Users) > 0 {
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return opts
}

// AddUser adds a user, or changes its password, for SCRAM-SHA-256 and SCRAM-SHA-512.
func (c *Cluster) AddUser(user, password string) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), adminMax)
	defer cancel()
	if err := c.addUser(ctx, user, password); err != nil {
		c.tb.Fatal(err)
	}
}

// addUser writes both SCRAM credentials and waits until all brokers know them.
func (s *state) addUser(ctx context.Context, user, password string) error {
	err := errors.Join(
		s.addCredential(ctx, user, password, 1, sha256.New), // Kafka's number for SCRAM-SHA-256
		s.addCredential(ctx, user, password, 2, sha512.New), // and for SCRAM-SHA-512
	)
	if err != nil {
		return err
	}
	err = attempt(ctx, "wait for user "+user, func(ctx context.Context) error {
		for _, n := range s.awake() {
			if err := s.knowsUser(ctx, n, user); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return attempt(ctx, "settle user "+user, s.settled)
}

// addCredential writes one credential; a request may not hold two of one user.
func (s *state) addCredential(ctx context.Context, user, password string, mechanism int8, h func() hash.Hash) error {
	const iterations = 4096
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(h, password, salt, iterations, h().Size())
	if err != nil {
		return fmt.Errorf("kafkatest: user %s: %w", user, err)
	}
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = user, mechanism, iterations, salt, salted
	req.Upsertions = append(req.Upsertions, u)
	return attempt(ctx, "add user "+user, func(ctx context.Context) error {
		resp, err := requestSome[*kmsg.AlterUserSCRAMCredentialsResponse](ctx, s, req)
		if err != nil {
			return err
		}
		return answered(resp.Results[0].ErrorCode, resp.Results[0].ErrorMessage)
	})
}

func (s *state) knowsUser(ctx context.Context, n *node, user string) error {
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
	u.Name = user
	req.Users = append(req.Users, u)
	resp, err := request[*kmsg.DescribeUserSCRAMCredentialsResponse](ctx, s, n, req)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Results) != 1 || len(resp.Results[0].CredentialInfos) != 2 {
		return fmt.Errorf("broker %d does not know the user yet", n.id)
	}
	return kerr.ErrorForCode(resp.Results[0].ErrorCode)
}

// Grant allows a user operations on a resource: a topic by name, or the cluster
// (kmsg.ACLResourceTypeCluster, "kafka-cluster"). It returns when the brokers know.
func (c *Cluster) Grant(user string, kind kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) {
	c.tb.Helper()
	c.change("grant to "+user, func(ctx context.Context) error {
		req := kmsg.NewPtrCreateACLsRequest()
		for _, op := range ops {
			a := kmsg.NewCreateACLsRequestCreation()
			a.ResourceType, a.ResourceName, a.ResourcePatternType = kind, name, kmsg.ACLResourcePatternTypeLiteral
			a.Principal, a.Host, a.Operation = "User:"+user, "*", op
			a.PermissionType = kmsg.ACLPermissionTypeAllow
			req.Creations = append(req.Creations, a)
		}
		resp, err := requestSome[*kmsg.CreateACLsResponse](ctx, c.state, req)
		if err != nil {
			return err
		}
		for _, r := range resp.Results {
			if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
				return err
			}
		}
		return nil
	}, c.aclCount(user, kind, name, func(have int) bool { return have >= len(ops) }))
}

// Revoke takes back all that was granted to a user on a resource.
func (c *Cluster) Revoke(user string, kind kmsg.ACLResourceType, name string) {
	c.tb.Helper()
	c.change("revoke from "+user, func(ctx context.Context) error {
		principal := "User:" + user
		req := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = kind, &name, kmsg.ACLResourcePatternTypeLiteral
		f.Principal, f.Operation, f.PermissionType = &principal, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		req.Filters = append(req.Filters, f)
		resp, err := requestSome[*kmsg.DeleteACLsResponse](ctx, c.state, req)
		if err != nil {
			return err
		}
		return answered(resp.Results[0].ErrorCode, resp.Results[0].ErrorMessage)
	}, c.aclCount(user, kind, name, func(have int) bool { return have == 0 }))
}

// aclCount is a step that passes when on every awake broker the number of rules for
// this user and resource is as wanted.
func (c *Cluster) aclCount(user string, kind kmsg.ACLResourceType, name string, ok func(int) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		principal := "User:" + user
		for _, n := range c.awake() {
			req := kmsg.NewPtrDescribeACLsRequest()
			req.ResourceType, req.ResourceName, req.ResourcePatternType = kind, &name, kmsg.ACLResourcePatternTypeLiteral
			req.Principal, req.Operation, req.PermissionType = &principal, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
			resp, err := request[*kmsg.DescribeACLsResponse](ctx, c.state, n, req)
			if err != nil {
				return err
			}
			if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
				return err
			}
			have := 0
			for _, r := range resp.Resources {
				have += len(r.ACLs)
			}
			if !ok(have) {
				return fmt.Errorf("broker %d has %d rules", n.id, have)
			}
		}
		return nil
	}
}
