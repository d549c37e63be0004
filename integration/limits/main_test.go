// Package limits shows that no client harms others: limits, slow and endless requests, dead readers, large loads.
package limits

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	receivertest.Main()
	clustertest.Main(m)
}

// params is a message for requests that name no version.
func params(w *a2atest.Wire, taskID, text string) object {
	return w.Params(a2atest.Send, a2atest.Say(text).To(taskID))
}

// overTLS returns the configuration of a server with a certificate for this machine, and its client's for HTTP/2.
func overTLS(t *testing.T) (config string, trust *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	own := certtest.New(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	})
	for name, content := range map[string][]byte{"cert.pem": own.CertPEM, "key.pem": own.KeyPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	roots := x509.NewCertPool()
	roots.AddCert(own.Cert)
	return fmt.Sprintf("tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem}\n", dir), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}
}

// dialFrom connects from an address of this machine until the test ends.
func dialFrom(t *testing.T, host byte, to string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}).DialContext(waittest.Context(t), "tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
