package integration

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// operatorsOnly are pages of the admin address that are for operators.
var operatorsOnly = []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"}

// page reads one of the admin address.
func (r *replica) page(path string, headers ...string) (status int, body string, header http.Header) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(short(r.t, patience), http.MethodGet, r.admin+path, nil)
	require.NoError(r.t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(b), resp.Header
}

// Where more than this machine reaches the admin address, metrics and profiles are for who has the operators' scope, and
// the probes for everybody, also of a replica that has no clients.
func TestOperators(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	config := replace(withKeys, "admin_listen: 127.0.0.1:0", "admin_listen: 0.0.0.0:0")
	server := start(t, replicaOptions{Name: "server", DB: db.url, Config: config})
	worker := start(t, replicaOptions{Name: "worker", DB: db.url, Config: config + "roles: [worker]\n"})
	key := func(args ...string) string {
		res := command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.url}, append([]string{"keys", "create"}, args...)...)
		require.Zero(t, res.code, res.err)
		return strings.TrimSpace(res.out)
	}
	operator := key("--subject", "prometheus", "--scope", "holdfast:operator")
	client := key("--subject", "alice", "--scope", "weather:use")
	for _, r := range []*replica{server, worker} {
		for _, path := range append(operatorsOnly, "/no/such", "/") {
			status, body, header := r.page(path)
			require.Equal(t, http.StatusUnauthorized, status, path)
			require.Equal(t, `Bearer realm="holdfast"`, header.Get("WWW-Authenticate"))
			require.Equal(t, "Unauthorized\n", body)
			status, body, _ = r.page(path, "Authorization", "Bearer "+client)
			require.Equal(t, http.StatusForbidden, status, path)
			require.Contains(t, body, "holdfast:operator")
			for _, two := range [][]string{
				{"Authorization", "Bearer " + operator, "X-API-Key", operator},
				{"Authorization", "Bearer " + operator, "Authorization", "Bearer " + operator},
				{"Authorization", "Bearer " + operator[:79]},
			} {
				status, _, _ = r.page(path, two...)
				require.Equal(t, http.StatusUnauthorized, status, "%s %v", path, two)
			}
		}
		for _, path := range operatorsOnly {
			for _, header := range [][]string{{"Authorization", "Bearer " + operator}, {"X-API-Key", operator}} {
				status, body, _ := r.page(path, append(header, "Host", "metrics.example.com")...)
				require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
			}
		}
		_, body, _ := r.page("/metrics", "Authorization", "Bearer "+operator)
		require.Contains(t, body, "holdfast_claims_total")
		status, body, _ := r.page("/readyz")
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"status":"ok"}`, body)
		status, body, _ = r.page("/readyz", "Authorization", "Bearer wrong")
		require.Equal(t, http.StatusOK, status, "a probe is no matter of credentials")
		require.JSONEq(t, `{"status":"ok"}`, body)
		_, body, _ = r.page("/readyz", "Authorization", "Bearer "+operator)
		require.Contains(t, body, `"name":"database"`)
		_, body, _ = r.page("/livez")
		require.Equal(t, "ok\n", body)
		res := command(t, t.TempDir(), []string{"HOLDFAST_ADMIN_LISTEN=0.0.0.0:" + r.admin[strings.LastIndex(r.admin, ":")+1:]}, "ready")
		require.Zero(t, res.code, res.err)
		require.Equal(t, "ok\n", res.out)
		require.NotContains(t, string(r.logs.all()), operator)
	}
	require.Zero(t, command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.url}, "keys", "revoke", strings.Split(operator, "_")[1]).code)
	for _, r := range []*replica{server, worker} {
		eventually(t, "the operator's key is refused", func() error {
			status, _, _ := r.page("/metrics", "Authorization", "Bearer "+operator)
			return unless(status == http.StatusUnauthorized, "%d", status)
		})
	}
}

// Without anybody to ask, what is not on loopback serves the probes, and the rest only when that is said.
func TestAnAdminAddressThatAsksNobody(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	reachable := replace(settings, "admin_listen: 127.0.0.1:0", "admin_listen: 0.0.0.0:0")
	probes := start(t, replicaOptions{Name: "probes", DB: db.url, Config: reachable})
	for _, path := range operatorsOnly {
		status, body, _ := probes.page(path)
		require.Equal(t, http.StatusForbidden, status, path)
		require.Contains(t, body, "admin.open")
	}
	status, body, _ := probes.page("/readyz", "Host", "replica-1")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"status":"ok"}`, body)
	require.Contains(t, string(probes.logs.all()), "the admin address serves the probes alone")

	open := start(t, replicaOptions{Name: "open", DB: db.url, Config: reachable, Env: []string{"HOLDFAST_ADMIN_OPEN=true"}})
	require.Contains(t, string(open.logs.all()), "EVERYBODY WHO REACHES THE ADMIN ADDRESS")
	for _, path := range operatorsOnly {
		status, _, _ := open.page(path, "Host", "replica-1")
		require.Equal(t, http.StatusOK, status, path)
	}

	// On loopback a page in a browser could come by a name of its own.
	local := start(t, replicaOptions{Name: "local", DB: db.url, Config: settings})
	for _, path := range operatorsOnly {
		for host, want := range map[string]int{
			"evil.example": http.StatusForbidden, "evil.example:9090": http.StatusForbidden, "127.0.0.1.evil.example": http.StatusForbidden,
			"localhost": http.StatusOK, "localhost:9090": http.StatusOK, "127.0.0.1:9090": http.StatusOK, "[::1]:9090": http.StatusOK,
		} {
			status, _, _ := local.page(path, "Host", host)
			require.Equal(t, want, status, "%s %s", host, path)
		}
	}
	_, body, _ = local.page("/readyz", "Host", "evil.example")
	require.JSONEq(t, `{"status":"ok"}`, body)
	_, body, _ = local.page("/readyz")
	require.Contains(t, body, `"name":"database"`)
}

// Operators by certificate, over TLS; the probes of the process itself do not mind whom the certificate is for.
func TestOperatorsByCertificate(t *testing.T) {
	t.Parallel()
	dir, authority, prometheus := mutual(t, "prometheus")
	config := settings + fmt.Sprintf(`
auth:
  schemes:
    - {name: certs, kind: mtls, mtls: {scopes: ["holdfast:operator"]}}
admin: {tls: true, schemes: [certs]}
tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem, client_ca_file: %[1]s/ca.pem}
`, dir)
	r := start(t, replicaOptions{Name: "secured", DB: newDB(t).url, Config: config, Async: true})
	r.waitServing()
	require.Regexp(t, "^https://", r.admin)
	status := func(path string, certificates ...*certificate) int {
		roots := x509.NewCertPool()
		roots.AddCert(authority.cert)
		c := clientTLS(roots, certificates...)
		defer c.CloseIdleConnections()
		req, err := http.NewRequestWithContext(short(t, patience), http.MethodGet, r.admin+path, nil)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	eventually(t, "it is ready", func() error {
		code := status("/readyz")
		return unless(code == http.StatusOK, "%d", code)
	})
	for _, path := range operatorsOnly {
		require.Equal(t, http.StatusUnauthorized, status(path), path)
		require.Equal(t, http.StatusOK, status(path, prometheus), path)
	}
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	res := command(t, t.TempDir(), []string{"HOLDFAST_ADMIN_LISTEN=" + strings.TrimPrefix(r.admin, "https://")}, "ready", "--config", file)
	require.Zero(t, res.code, res.err)
	require.Equal(t, "ok\n", res.out)
}
