// TLS and SASL: what the keys mean together, and the files they name.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
)

// smallFileBytesMax bounds the config and the password and certificate files it names.
const smallFileBytesMax = 1 << 20

// finishSecurity refuses half-given TLS and SASL: plaintext by accident must not be possible. It reads password_file.
func (c *Config) finishSecurity() error {
	t, s := c.Kafka.TLS, &c.Kafka.SASL
	if !t.Enabled {
		if (t != TLSConfig{}) {
			return c.errorAt("kafka.tls.enabled", "is not true, but other keys of kafka.tls are given")
		}
	} else if _, wrongKey, err := t.clientConfig(); err != nil {
		return c.errorAt("kafka.tls."+wrongKey, "%v", err)
	}
	if *s == (SASLConfig{}) {
		return nil
	}
	switch {
	case s.Mechanism == "":
		return c.errorAt("kafka.sasl.mechanism", "is required with SASL: plain, scram-sha-256 or scram-sha-512")
	case s.Username == "":
		return c.errorAt("kafka.sasl.username", "is required with SASL")
	case (s.Password == "") == (s.PasswordFile == ""):
		return c.errorAt("kafka.sasl.password", "exactly one of password and password_file is required")
	}
	if s.PasswordFile != "" {
		data, err := readSmallFile(s.PasswordFile)
		if err != nil {
			return c.errorAt("kafka.sasl.password_file", "cannot read %s: %v", s.PasswordFile, err)
		}
		// Editors and `echo` end a file with one newline that belongs to no password.
		s.Password = Secret(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r")))
		if s.Password == "" {
			return c.errorAt("kafka.sasl.password_file", "%s is empty", s.PasswordFile)
		}
	}
	if s.Mechanism == "plain" && !t.Enabled {
		c.Warnings = append(c.Warnings, c.errorAt("kafka.sasl.mechanism", "plain without TLS sends the password readable over the network"))
	}
	if t.InsecureSkipVerify {
		c.Warnings = append(c.Warnings, c.errorAt("kafka.tls.insecure_skip_verify", "anyone on the network path can pose as the broker"))
	}
	return nil
}

// clientConfig reads the files and builds the TLS client; on an error it names the key that is to blame.
func (t TLSConfig) clientConfig() (client *tls.Config, wrongKey string, err error) {
	client = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // the operator's explicit choice, warned about at start
	}
	if t.CAFile != "" {
		pem, err := readSmallFile(t.CAFile)
		if err != nil {
			return nil, "ca_file", fmt.Errorf("cannot read %s: %w", t.CAFile, err)
		}
		client.RootCAs = x509.NewCertPool()
		if !client.RootCAs.AppendCertsFromPEM(pem) {
			return nil, "ca_file", fmt.Errorf("%s holds no PEM certificate", t.CAFile)
		}
	}
	switch {
	case t.CertFile == "" && t.KeyFile == "":
		return client, "", nil
	case t.CertFile == "":
		return nil, "cert_file", errors.New("is required with key_file")
	case t.KeyFile == "":
		return nil, "key_file", errors.New("is required with cert_file")
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, "cert_file", fmt.Errorf("cannot use %s with %s: %w", t.CertFile, t.KeyFile, pathless(err))
	}
	client.Certificates = []tls.Certificate{pair}
	return client, "", nil
}

// readSmallFile reads a file that is at most smallFileBytesMax long.
func readSmallFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, pathless(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, smallFileBytesMax+1))
	switch {
	case err != nil:
		return nil, pathless(err)
	case len(data) > smallFileBytesMax:
		return nil, fmt.Errorf("it has more than %d bytes", smallFileBytesMax)
	}
	return data, nil
}
