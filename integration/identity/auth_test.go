package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"testing"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A server without authentication refuses to listen outside loopback.
func TestOpenServerRefusesPublicAddress(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	env := []string{"HOLDFAST_DATABASE_URL=" + db.URL, "HOLDFAST_LISTEN=0.0.0.0:0", "HOLDFAST_GRPC_LISTEN=off", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}
	res := clustertest.Command(t, t.TempDir(), env, "serve")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "auth.none")
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.workers"), "no process registered")

	r := clustertest.Start(t, clustertest.Options{Name: "open", DB: db.URL, Config: clustertest.Replace(clustertest.Settings, "listen: 127.0.0.1:0\ngrpc", "listen: 0.0.0.0:0\ngrpc"), Env: []string{"HOLDFAST_AUTH_NONE=true"}})
	require.Contains(t, r.Log(), "SERVER OPEN: EVERYBODY WHO CAN REACH IT")
}

// Both sides use certificates, over HTTP/1, HTTP/2 and gRPC, with files that change at run time.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	dir, authority, alice := certtest.Mutual(t, "alice")
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "secured", DB: db.URL, Config: clustertest.Settings + fmt.Sprintf(`
auth:
  schemes:
    - {name: certs, kind: mtls, mtls: {tenant: acme}}
tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem, client_ca_file: %[1]s/ca.pem}
`, dir)})
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	config := func(certificates ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, Certificates: certificates}
	}
	for _, modern := range []bool{false, true} {
		post := func(body []byte, accept string, certificates ...tls.Certificate) (status, major int, text string) {
			transport := &http.Transport{TLSClientConfig: config(certificates...), ForceAttemptHTTP2: modern}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			resp, err := a2atest.PostWith(waittest.Context(t), client, "https://"+a2atest.Host(r.URL), body, "Accept", accept)
			require.NoError(t, err)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, resp.ProtoMajor, string(b)
		}
		status, major, _ := post(a2atest.V03.Request(a2atest.Send, a2atest.Say("echo:hi")), "application/json")
		require.Equal(t, http.StatusUnauthorized, status)
		require.Equal(t, modern, major == 2)
		status, _, text := post(a2atest.V03.Request(a2atest.Send, a2atest.Say("echo:hi")), "application/json", alice.Pair)
		require.Equal(t, http.StatusOK, status, text)
		status, _, text = post(a2atest.V03.Request(a2atest.Stream, a2atest.Say("chunks=20 size=16 delay=1ms")), "text/event-stream", alice.Pair)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, `"final":true`, "the stream comes to its end")
	}
	require.Equal(t, "acme alice", clustertest.One[string](db, "SELECT DISTINCT tenant || ' ' || owner FROM holdfast.tasks"))

	list := func(certificates ...tls.Certificate) error {
		conn, err := grpc.NewClient(r.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(config(certificates...))))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		page, err := pb10.NewA2AServiceClient(conn).ListTasks(metadata.AppendToOutgoingContext(waittest.Context(t), "a2a-version", "1.0"), &pb10.ListTasksRequest{})
		if err == nil {
			require.Len(t, page.GetTasks(), 4)
		}
		return err
	}
	require.NoError(t, list(alice.Pair))
	require.Equal(t, codes.Unauthenticated, grpcstatus.Code(list()))
}
