package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

const withKeys = settings + `
auth:
  schemes:
    - {name: keys, kind: api_key}
`

// A key that an operator makes is good on every replica, for its own tasks, until it is revoked.
func TestAPIKeysOnTwoReplicas(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: withKeys})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: withKeys})
	operator := func(args ...string) finished {
		return command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.url}, args...)
	}
	create := func(args ...string) string {
		res := operator(append([]string{"keys", "create"}, args...)...)
		require.Zero(t, res.code, res.err)
		return strings.TrimSpace(res.out)
	}
	alice, bob := create("--subject", "alice"), create("--subject", "bob")
	call := func(r *replica, method string, params object, headers ...string) *answer {
		got, err := ask(short(t, patience), r.url, request(method, params), headers...)
		require.NoError(t, err)
		return got
	}
	refused := call(a, v03.send, v03.params("", "echo:hi"))
	require.Equal(t, http.StatusUnauthorized, refused.HTTP)

	sent, err := call(a, v03.send, v03.params("", "echo:hi"), "X-API-Key", alice).result()
	require.NoError(t, err)
	require.Equal(t, "completed", sent.state())
	get := object{"id": sent.task()}
	for _, r := range []*replica{a, b} {
		require.Nil(t, call(r, "tasks/get", get, "X-API-Key", alice).Err)
		require.Equal(t, -32001, call(r, "tasks/get", get, "X-API-Key", bob).Err.Code, "not yours is not found")
	}
	require.Equal(t, "alice", one[string](db, "SELECT owner FROM holdfast.tasks"))
	for _, r := range []*replica{a, b} {
		require.NotContains(t, string(r.logs.all()), alice, "no log has a key")
	}

	id := strings.Split(alice, "_")[1]
	res := operator("keys", "revoke", id)
	require.Zero(t, res.code, res.err)
	for _, r := range []*replica{a, b} {
		eventually(t, "the key is refused", func() error {
			got := call(r, "tasks/get", get, "X-API-Key", alice)
			return unless(got.HTTP == http.StatusUnauthorized, "%d", got.HTTP)
		})
	}
	require.Equal(t, -32001, call(b, "tasks/get", get, "X-API-Key", bob).Err.Code)
	res = operator("keys", "list")
	require.Regexp(t, id+`\s+alice\s+revoked`, res.out)
	require.NotContains(t, res.out, strings.Split(alice, "_")[2])
	require.Equal(t, 1, operator("keys", "revoke", "nobodys").code)
}

// Nobody is let in from elsewhere because the operator forgot to say who may.
func TestAnOpenServerStaysOnLoopback(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	env := []string{"HOLDFAST_DATABASE_URL=" + db.url, "HOLDFAST_LISTEN=0.0.0.0:0", "HOLDFAST_GRPC_LISTEN=off", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}
	res := command(t, t.TempDir(), env, "serve")
	require.Equal(t, 1, res.code)
	require.Contains(t, res.err, "auth.none")
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.workers"), "nothing was begun")

	r := start(t, replicaOptions{Name: "open", DB: db.url, Config: replace(settings, "listen: 127.0.0.1:0\ngrpc", "listen: 0.0.0.0:0\ngrpc"), Env: []string{"HOLDFAST_AUTH_NONE=true"}})
	require.Contains(t, string(r.logs.all()), "EVERYBODY WHO REACHES THIS SERVER")
}

// Certificates from both sides, over HTTP/1, HTTP/2 and gRPC, on the files as they are.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	dir, authority, alice := mutual(t, "alice")
	db := newDB(t)
	r := start(t, replicaOptions{Name: "secured", DB: db.url, Config: settings + fmt.Sprintf(`
auth:
  schemes:
    - {name: certs, kind: mtls, mtls: {tenant: acme}}
tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem, client_ca_file: %[1]s/ca.pem}
`, dir)})
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	config := func(certificates ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, Certificates: certificates}
	}
	for _, modern := range []bool{false, true} {
		post := func(body, accept string, certificates ...tls.Certificate) (status, major int, text string) {
			transport := &http.Transport{TLSClientConfig: config(certificates...), ForceAttemptHTTP2: modern}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(short(t, patience), http.MethodPost, "https://"+hostOf(r.url), strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", accept)
			resp, err := (&http.Client{Transport: transport}).Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, resp.ProtoMajor, string(b)
		}
		status, major, _ := post(string(request(v03.send, v03.params("", "echo:hi"))), "application/json")
		require.Equal(t, http.StatusUnauthorized, status)
		require.Equal(t, modern, major == 2)
		status, _, text := post(string(request(v03.send, v03.params("", "echo:hi"))), "application/json", alice.pair)
		require.Equal(t, http.StatusOK, status, text)
		status, _, text = post(string(request(v03.stream, v03.params("", "chunks=20 size=16 delay=1ms"))), "text/event-stream", alice.pair)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, `"final":true`, "the stream comes to its end")
	}
	require.Equal(t, "acme alice", one[string](db, "SELECT DISTINCT tenant || ' ' || owner FROM holdfast.tasks"))

	list := func(certificates ...tls.Certificate) error {
		conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(credentials.NewTLS(config(certificates...))))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		page, err := pb10.NewA2AServiceClient(conn).ListTasks(metadata.AppendToOutgoingContext(short(t, patience), "a2a-version", "1.0"), &pb10.ListTasksRequest{})
		if err == nil {
			require.Len(t, page.GetTasks(), 4)
		}
		return err
	}
	require.NoError(t, list(alice.pair))
	require.Equal(t, codes.Unauthenticated, grpcstatus.Code(list()))
}

// certificate is one with its key.
type certificate struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
	pair            tls.Certificate
}

// clientTLS is a client that trusts some authorities and shows certificates.
func clientTLS(roots *x509.CertPool, certificates ...*certificate) *http.Client {
	config := &tls.Config{RootCAs: roots}
	for _, c := range certificates {
		config.Certificates = append(config.Certificates, c.pair)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

// mutual makes the certificates of a server, in files of a directory, and of one client, and the authority of both.
func mutual(t testing.TB, client string) (dir string, authority, its *certificate) {
	t.Helper()
	dir, authority = t.TempDir(), newAuthority(t)
	server := newCertificate(t, authority, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	for name, content := range map[string][]byte{"cert.pem": server.certPEM, "key.pem": server.keyPEM, "ca.pem": authority.certPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644)) // the server may run as somebody else
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir, authority, newCertificate(t, authority, &x509.Certificate{Subject: pkix.Name{CommonName: client}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func newAuthority(t testing.TB) *certificate {
	t.Helper()
	return newCertificate(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

// newCertificate is signed by an issuer, or by itself.
func newCertificate(t testing.TB, issuer *certificate, template *x509.Certificate) *certificate {
	t.Helper()
	c := &certificate{}
	var err error
	c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := template, c.key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &c.key.PublicKey, signer)
	require.NoError(t, err)
	c.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	require.NoError(t, err)
	c.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	c.pair, err = tls.X509KeyPair(c.certPEM, c.keyPEM)
	require.NoError(t, err)
	return c
}
