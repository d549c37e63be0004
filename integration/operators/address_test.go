package operators

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// operatorsOnly are pages of the admin address for operators.
var operatorsOnly = []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"}

// On an admin address beyond loopback, metrics and profiles need the operator's scope. Probes need no credentials,
// also on a replica that serves no clients.
func TestAdminAddressAuthentication(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.WithKeys, "admin_listen: 127.0.0.1:0", "admin_listen: 0.0.0.0:0")
	server := clustertest.Start(t, clustertest.Options{Name: "server", DB: db.URL, Config: config})
	worker := clustertest.Start(t, clustertest.Options{Name: "worker", DB: db.URL, Config: config + "roles: [worker]\n"})
	operator := db.Keys(store.APIKey{Scopes: []string{"holdfast:operator"}}, "prometheus")[0]
	client := db.Keys(store.APIKey{Scopes: []string{"weather:use"}}, "alice")[0]
	scrapes := db.Keys(store.APIKey{Scopes: []string{"admin:metrics"}}, "prometheus")[0]
	less := []string{scrapes, db.Keys(store.APIKey{Scopes: []string{"admin:view"}}, "grace")[0]}
	for _, r := range []*clustertest.Replica{server, worker} {
		for _, path := range append(operatorsOnly, "/no/such") {
			status, body, header := r.Page(path)
			require.Equal(t, http.StatusUnauthorized, status, path)
			require.Equal(t, `Bearer realm="holdfast"`, header.Get("WWW-Authenticate"))
			require.Equal(t, "Unauthorized\n", body)
			status, body, _ = r.Page(path, "Authorization", "Bearer "+client)
			require.Equal(t, http.StatusForbidden, status, path)
			require.Contains(t, body, "the scope")
			for _, two := range [][]string{
				{"Authorization", "Bearer " + operator, "X-API-Key", operator},
				{"Authorization", "Bearer " + operator, "Authorization", "Bearer " + operator},
				{"Authorization", "Bearer " + operator[:79]},
			} {
				require.Equal(t, http.StatusUnauthorized, statusOf(r, path, two), "%s %v", path, two)
			}
		}
		for _, path := range operatorsOnly {
			for _, header := range [][]string{{"Authorization", "Bearer " + operator}, {"X-API-Key", operator}} {
				status, body, _ := r.Page(path, append(header, "Host", "metrics.example.com")...)
				require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
			}
		}
		for _, path := range operatorsOnly {
			for _, key := range less {
				require.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[path == "/metrics"], statusOf(r, path, []string{"Authorization", "Bearer " + key}), path)
			}
		}
		require.Equal(t, http.StatusForbidden, as(t, r, scrapes).peek("GET", "/me", ""))
		_, body, _ := r.Page("/metrics", "Authorization", "Bearer "+operator)
		require.Contains(t, body, "holdfast_claims_total")
		// Everybody may have the page in which an operator signs in, and none of what it shows.
		for _, path := range []string{"/", "/console/", "/console/tasks/x"} {
			status, body, header := r.Page(path)
			require.Equal(t, http.StatusOK, status, path)
			require.Contains(t, body, "<title>Holdfast</title>")
			require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
		}
		require.Equal(t, http.StatusUnauthorized, statusOf(r, "/admin/v1/me", nil))
		for _, header := range [][]string{nil, {"Authorization", "Bearer wrong"}} {
			status, body, _ := r.Page("/readyz", header...)
			require.Equal(t, http.StatusOK, status, "probes need no credentials")
			require.JSONEq(t, `{"status":"ok"}`, body)
		}
		for _, key := range append(less, operator) {
			_, body, _ = r.Page("/readyz", "Authorization", "Bearer "+key)
			require.Contains(t, body, `"name":"database"`)
		}
		_, body, _ = r.Page("/livez")
		require.Equal(t, "ok\n", body)
		res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_ADMIN_LISTEN=0.0.0.0:" + r.Admin[strings.LastIndex(r.Admin, ":")+1:]}, "ready")
		require.Zero(t, res.Code, res.Err)
		require.Equal(t, "ok\n", res.Out)
		require.NotContains(t, r.Log(), operator)
	}
	db.Operate("api-keys", "revoke", strings.Split(operator, "_")[1])
	for _, r := range []*clustertest.Replica{server, worker} {
		waittest.Eventually(t, "the operator's key is refused", func() error {
			status, _, _ := r.Page("/metrics", "Authorization", "Bearer "+operator)
			return waittest.Unless(status == http.StatusUnauthorized, "%d", status)
		})
	}
}

// Without authentication, an admin address beyond loopback serves only the probes, unless the configuration allows
// the rest.
func TestAdminAddressWithoutAuthentication(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	reachable := clustertest.Replace(clustertest.Settings, "admin_listen: 127.0.0.1:0", "admin_listen: 0.0.0.0:0")
	probes := clustertest.Start(t, clustertest.Options{Name: "probes", DB: db.URL, Config: reachable})
	for _, path := range operatorsOnly {
		status, body, _ := probes.Page(path)
		require.Equal(t, http.StatusForbidden, status, path)
		require.Contains(t, body, "admin.open")
	}
	status, body, _ := probes.Page("/readyz", "Host", "replica-1")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"status":"ok"}`, body)
	require.Contains(t, probes.Log(), "admin address serves only the probes")

	open := clustertest.Start(t, clustertest.Options{Name: "open", DB: db.URL, Config: reachable, Env: []string{"HOLDFAST_ADMIN_OPEN=true"}})
	require.Contains(t, open.Log(), "ADMIN ADDRESS OPEN: EVERYBODY WHO CAN REACH IT")
	for _, path := range operatorsOnly {
		require.Equal(t, http.StatusOK, statusOf(open, path, []string{"Host", "replica-1"}), path)
	}

	// Everybody may read, and nobody may write.
	op := as(t, open, "")
	require.NotEmpty(t, op.get("/me").text("read_only"))
	for _, o := range operations("x", "x") {
		if o.Method == http.MethodPost {
			require.Equal(t, http.StatusForbidden, op.peek(o.Method, o.Path, bodyOf(o.Path)), o.Path)
		}
	}

	// On loopback a browser's page could use a DNS name of its own.
	local := clustertest.Start(t, clustertest.Options{Name: "local", DB: db.URL, Config: clustertest.Settings})
	for _, path := range operatorsOnly {
		for host, want := range map[string]int{
			"evil.example": http.StatusForbidden, "evil.example:9090": http.StatusForbidden, "127.0.0.1.evil.example": http.StatusForbidden,
			"localhost": http.StatusOK, "localhost:9090": http.StatusOK, "127.0.0.1:9090": http.StatusOK, "[::1]:9090": http.StatusOK,
		} {
			require.Equal(t, want, statusOf(local, path, []string{"Host", host}), "%s %s", host, path)
		}
	}
	_, body, _ = local.Page("/readyz", "Host", "evil.example")
	require.JSONEq(t, `{"status":"ok"}`, body)
	_, body, _ = local.Page("/readyz")
	require.Contains(t, body, `"name":"database"`)
}

// Operators authenticate by certificate, over TLS. The probes of the process itself accept any name in the server's certificate. A client
// without a credential reads no answers over HTTP/2: it holds few of them, for a while.
func TestOperatorsByCertificate(t *testing.T) {
	t.Parallel()
	dir, authority, prometheus := certtest.Mutual(t, "prometheus")
	config := clustertest.Settings + fmt.Sprintf(`
auth:
  schemes:
    - {name: certs, kind: mtls, mtls: {scopes: ["holdfast:operator"]}}
admin: {tls: true, schemes: [certs]}
tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem, client_ca_file: %[1]s/ca.pem}
`, dir)
	r := clustertest.Start(t, clustertest.Options{Name: "secured", DB: clustertest.NewDB(t).URL, Config: config, Async: true})
	r.WaitServing()
	require.Regexp(t, "^https://", r.Admin)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Cert)
	page := func(path string, certificates ...*certtest.Certificate) (status int, body string) {
		c := certtest.Client(roots, certificates...)
		defer c.CloseIdleConnections()
		req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, r.Admin+path, nil)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(raw)
	}
	waittest.Eventually(t, "it is ready", func() error {
		status, body := page("/readyz")
		return waittest.Unless(status == http.StatusOK, "%d %s", status, body)
	})
	for _, path := range operatorsOnly {
		for want, certificates := range map[int][]*certtest.Certificate{http.StatusUnauthorized: nil, http.StatusOK: {prometheus}} {
			status, _ := page(path, certificates...)
			require.Equal(t, want, status, path)
		}
	}
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_ADMIN_LISTEN=" + strings.TrimPrefix(r.Admin, "https://")}, "ready", "--config", file)
	require.Zero(t, res.Code, res.Err)
	require.Equal(t, "ok\n", res.Out)

	goroutines := func() (n int) {
		_, body := page("/debug/pprof/goroutine?debug=1", prometheus)
		_, err := fmt.Sscanf(body, "goroutine profile: total %d", &n)
		require.NoError(t, err)
		return n
	}
	before := goroutines()
	const connections, each = 3, 100
	refused := make(chan int, connections)
	for range connections {
		c, err := tls.Dial("tcp", strings.TrimPrefix(r.Admin, "https://"), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		go func() { refused <- leaveUnread(c, each, "/livez", "/metrics", "/admin/v1/tasks", "/readyz") }()
	}
	for range connections {
		require.Equal(t, each-32, waittest.Within(t, "the unread answers end", refused), "requests beyond the limit of a connection")
	}
	waittest.Eventually(t, "they hold nothing", func() error {
		n := goroutines() - before
		return waittest.Unless(n < 10*connections, "%d goroutines", n)
	})
}

// leaveUnread begins count requests on a connection of HTTP/2, to paths in turn, and leaves no room for the answers. It returns
// how many the server refused at once, when the server has ended all others.
func leaveUnread(c net.Conn, count int, paths ...string) (refused int) {
	f := http2.NewFramer(c, c)
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for n := range count {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "127.0.0.1"}, {":path", paths[n%len(paths)]}} {
			_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	for ended := 0; ended < count; {
		frame, err := f.ReadFrame()
		if err != nil {
			return refused
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = f.WritePing(true, frame.Data)
		case *http2.RSTStreamFrame:
			ended++
			if frame.ErrCode == http2.ErrCodeRefusedStream {
				refused++
			}
		}
	}
	return refused
}
