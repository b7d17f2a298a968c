package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"shipper/pipeline"
)

func TestConfigToPipeline(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := mustParse(t, strings.Replace(minimal, "spool", "  sasl: {mechanism: scram-sha-256, username: u, password: p}\nspool", 1)+`
  - {name: relative, paths: [x.log], topic: t}
  - {name: all, paths: [/a, /b], exclude: [/c], topic: t, start_at: end, lanes: 3, partition_by: key, key: path, linger: 2s, max_line_bytes: 1MiB, oversize: cut, encoding: utf-16, idle_flush: 3s, compression: gzip, compression_level: 5}
`)
	got, err := configToPipeline(c, log)
	if err != nil {
		t.Fatal(err)
	}
	source := DefaultSource()
	plain := source.toRecord()
	if plain.Host, err = os.Hostname(); err != nil {
		t.Fatal(err)
	}
	withKey := plain
	withKey.Key = "path"
	want := pipeline.Config{
		Kafka: pipeline.Kafka{
			Brokers: []string{"kafka-1:9092"}, ClientID: "shipper", SASLMechanism: "scram-sha-256", SASLUser: "u", SASLPassword: "p",
			Compression: "zstd", AcksTimeout: 10 * time.Second, AutoCreateTopics: true,
		},
		Spool: pipeline.Spool{Dir: "/var/lib/shipper", RetainAckedBytes: 64 << 20, HeldBytesMax: 1 << 30},
		Sources: []pipeline.Source{
			{Name: "app", Paths: []string{"/var/log/app/**/*.log"}, Topic: "app-logs", Linger: time.Second, LineBytesMax: 1e6, Oversize: "split", Encoding: "raw", IdleFlush: 5 * time.Second, Record: plain},
			{Name: "all", Paths: []string{"/a", "/b"}, Exclude: []string{"/c"}, Topic: "t", StartAtEnd: true, Lanes: 3, ByKey: true, Linger: 2 * time.Second, LineBytesMax: 1 << 20, Oversize: "cut", Encoding: "utf-16", IdleFlush: 3 * time.Second, Record: withKey, Compression: "gzip", CompressionLevel: 5},
		},
		MemoryBytesMax: 128 << 20,
		SymlinkRoots:   []string{},
		ExcludePaths:   []string{"/var/lib/shipper"},
		Logger:         log,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A client certificate, its CA and the server name reach the TLS client; a file that is gone by then is an error with file and line.
func TestConfigToPipelineTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key)
	text := strings.Replace(minimal, "spool", "  tls: {enabled: true, ca_file: "+cert+", cert_file: "+cert+", key_file: "+key+", server_name: kafka}\nspool", 1)
	c := mustParse(t, text)
	p, err := configToPipeline(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if client := p.Kafka.TLS; client == nil || client.ServerName != "kafka" || len(client.Certificates) != 1 || client.RootCAs == nil ||
		client.MinVersion != tls.VersionTLS12 || client.InsecureSkipVerify {
		t.Errorf("TLS client %+v", client)
	}
	c.Kafka.TLS.CAFile = filepath.Join(dir, "gone.pem")
	if _, err := configToPipeline(c, nil); err == nil || !strings.HasPrefix(err.Error(), "x.yaml:3: kafka.tls.ca_file: cannot read ") {
		t.Errorf("a CA file that is gone: %v", err)
	}
}

func writeCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, 0o600, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	write(t, 0o600, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}
