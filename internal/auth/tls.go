package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// TLS is the server side of TLS: a certificate, and the authorities of client certificates.
type TLS struct {
	current atomic.Pointer[tls.Config]
	roots   atomic.Pointer[x509.CertPool]
}

// LoadTLS reads a certificate and its key. If clientCA is not empty, it also reads the authorities of client
// certificates. The reloader keeps them up to date.
func LoadTLS(r *Reloader, cert, key, clientCA string) (*TLS, error) {
	t := &TLS{}
	files := []string{cert, key}
	if clientCA != "" {
		files = append(files, clientCA)
	}
	return t, r.Add(t.load, files...)
}

func (t *TLS) load(contents [][]byte) error {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
		return fmt.Errorf("certificate expired at %s; renew it", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}
	if len(contents) > 2 {
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return errors.New("client_ca_file has no PEM certificate")
		}
		// Clients may use other credentials instead.
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	t.roots.Store(c.ClientCAs)
	t.current.Store(c)
	return nil
}

// Roots returns the current authorities of client certificates.
func (t *TLS) Roots() *x509.CertPool { return t.roots.Load() }

// Expires returns when the current certificate expires.
func (t *TLS) Expires() time.Time { return t.current.Load().Certificates[0].Leaf.NotAfter }

// Config returns the configuration of a listener. Each connection uses what is loaded when it begins. A session is
// resumed only with the certificate and authorities that it began with.
func (t *TLS) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current.Load(), nil },
	}
}
