// Package certtest makes certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Certificate is a certificate with its key.
type Certificate struct {
	Cert            *x509.Certificate
	Key             *ecdsa.PrivateKey
	CertPEM, KeyPEM []byte
	Pair            tls.Certificate
}

// Client returns an HTTP client that trusts the authorities and presents the certificates.
func Client(roots *x509.CertPool, certificates ...*Certificate) *http.Client {
	config := &tls.Config{RootCAs: roots}
	for _, c := range certificates {
		config.Certificates = append(config.Certificates, c.Pair)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

// Mutual makes the certificates of a server, in files of a directory, and of one client, and the authority of both.
func Mutual(t testing.TB, client string) (dir string, authority, its *Certificate) {
	t.Helper()
	dir, authority = t.TempDir(), NewAuthority(t)
	server := New(t, authority, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	for name, content := range map[string][]byte{"cert.pem": server.CertPEM, "key.pem": server.KeyPEM, "ca.pem": authority.CertPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644)) // the server may run as another user
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir, authority, New(t, authority, &x509.Certificate{Subject: pkix.Name{CommonName: client}, DNSNames: []string{client}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// NewAuthority makes an authority that signs certificates.
func NewAuthority(t testing.TB) *Certificate {
	t.Helper()
	return New(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

// New makes a certificate that an issuer signs, or that signs itself.
func New(t testing.TB, issuer *Certificate, template *x509.Certificate) *Certificate {
	t.Helper()
	c := &Certificate{}
	var err error
	c.Key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := template, c.Key
	if issuer != nil {
		parent, signer = issuer.Cert, issuer.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &c.Key.PublicKey, signer)
	require.NoError(t, err)
	c.Cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(c.Key)
	require.NoError(t, err)
	c.CertPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.KeyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	c.Pair, err = tls.X509KeyPair(c.CertPEM, c.KeyPEM)
	require.NoError(t, err)
	return c
}
