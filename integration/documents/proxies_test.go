package documents

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
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
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// proxy is a program in front of a replica, and of another one that is gone.
type proxy struct {
	program, file string
	edits         []string // strings of the configuration, each with what a test needs instead; DIR is a directory
	args          []string // FILE is the configuration
}

// site is the name of the server in the configurations.
const site = "agents.example.com"

// silence is longer than the time between two comments of a silent stream.
const silence = 20 * time.Second

// The configurations on the page of proxies work, with other addresses and certificates: what the page promises of each.
func TestProxies(t *testing.T) {
	t.Parallel()
	for _, p := range []proxy{
		{program: "haproxy", file: "haproxy.cfg", args: []string{"-db", "-f", "FILE"}, edits: []string{
			":443 ", "HTTPS ", ":8443 ", "GRPCS ",
		}},
		{program: "nginx", file: "nginx.conf", args: []string{"-p", "DIR", "-e", "stderr", "-c", "FILE", "-g", "daemon off; master_process off; pid DIR/pid;"}, edits: []string{
			"listen 443 ", "listen HTTPS ", "listen 8443 ", "listen GRPCS ", "worker_processes auto;", "", "worker_rlimit_nofile 65536;", "", "30000", "512",
			"http {", "http { access_log /dev/stderr; client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;",
		}},
		{program: "caddy", file: "Caddyfile", args: []string{"run", "--adapter", "caddyfile", "--config", "FILE"}, edits: []string{
			// The call that notices that a replica is gone fails.
			" h2c://10.0.0.12:8081", "",
			"\tgrace_period", "\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n\tgrace_period",
			site + " {", "https://" + site + ":HTTPPORT {\n\ttls /etc/holdfast-proxy/cert.pem /etc/holdfast-proxy/key.pem",
			site + ":8443 {", "https://" + site + ":GRPCPORT {\n\ttls /etc/holdfast-proxy/cert.pem /etc/holdfast-proxy/key.pem",
		}},
	} {
		t.Run(p.program, func(t *testing.T) {
			t.Parallel()
			works(t, &p)
		})
	}
}

func works(t *testing.T, p *proxy) {
	t.Helper()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings + `
public_url: https://agents.example.com
proxies: {trusted: [127.0.0.1/32]}
limits: {max_body: 64KiB}
`})
	https, grpcs, roots, running := p.start(t, r)
	dial := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
	// Over HTTP/1 a client that has not sent all of its body may miss the answer.
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial.DialContext(ctx, "tcp", https) },
	}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(op a2atest.Op, a *a2atest.Args) (status int, body string) {
		resp, err := a2atest.PostWith(waittest.Context(t), client, "https://"+site, a2atest.V03.Request(op, a))
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	stream := func(script string) *a2atest.Reply {
		resp, err := a2atest.PostWith(waittest.Context(t), client, "https://"+site, a2atest.V03.Request(a2atest.Stream, a2atest.Say(script)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		return a2atest.NewReply(t, a2atest.V03, resp)
	}
	conn, err := grpc.NewClient("passthrough:"+grpcs, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: site})))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	overGRPC := pb10.NewA2AServiceClient(conn)

	// Half of the replicas are gone, so a proxy that noticed has served some requests.
	waittest.Eventually(t, "the proxy passes calls", func() error {
		_, err := overGRPC.SendMessage(waittest.Context(t), said("echo:hi"))
		return err
	})
	waittest.Eventually(t, "the proxy passes requests", func() error {
		status, body := ask(a2atest.Send, a2atest.Say("echo:hi"))
		return waittest.Unless(status == http.StatusOK && strings.Contains(body, "completed"), "%d %s", status, body)
	})
	require.Regexp(t, `^127\.0\.0\.3:\d+$`, clustertest.One[string](db, "SELECT address FROM holdfast.v_audit WHERE action = 'task.created' AND address LIKE '127.0.0.3:%' LIMIT 1"))

	// Streams that are silent for a while, which the other tests need not wait for.
	pause := fmt.Sprintf("chunks=2 size=8 delay=%dms", silence.Milliseconds())
	silent := stream(pause)
	silentCall, err := overGRPC.SendStreamingMessage(waittest.Context(t), said(pause))
	require.NoError(t, err)

	t.Log("the first events of a stream arrive long before its end")
	endless := stream("chunks=2 size=8 delay=1h")
	first := endless.Until("a chunk", func(e *a2atest.Event) bool { return e.Artifact != nil })
	ask(a2atest.Cancel, a2atest.Say().To(first.Task()))
	endless.UntilState("canceled")

	t.Log("the replica refuses what is too large, and not the proxy")
	status, body := ask(a2atest.Send, a2atest.Say("echo:"+strings.Repeat("x", 2<<20)))
	require.Equal(t, http.StatusRequestEntityTooLarge, status, body)
	require.Contains(t, body, `"jsonrpc":"2.0"`)
	_, err = overGRPC.SendMessage(waittest.Context(t), said("echo:"+strings.Repeat("x", 2<<20)))
	require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(err), "%v", err)

	silent.UntilState("completed")
	last := ""
	for {
		event, err := silentCall.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "the stream is silent for %s", silence)
		last = event.String()
	}
	require.Contains(t, last, "TASK_STATE_COMPLETED")

	t.Log("the log has no credentials, not even of requests that fail")
	secret := func() string {
		req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, "https://"+site+"/resume/of-the-path?code=of-the-query", http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-API-Key", "of-a-header")
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.Status
	}
	require.Contains(t, secret(), "404")
	r.Kill()
	require.Regexp(t, "^50[23]", secret())
	for _, part := range []string{"of-the-path", "of-the-query", "of-a-header"} {
		require.NotContains(t, running.Output(), part)
	}
}

// start runs the proxy in front of a replica, and returns its addresses and the authority of its certificate. Without the program
// it skips the test.
func (p *proxy) start(t *testing.T, r *clustertest.Replica) (https, grpcs string, roots *x509.CertPool, running *clustertest.Front) {
	t.Helper()
	dir, authority := t.TempDir(), certtest.NewAuthority(t)
	server := certtest.New(t, authority, &x509.Certificate{DNSNames: []string{site}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	for name, content := range map[string][]byte{"cert.pem": server.CertPEM, "key.pem": server.KeyPEM, "cert-and-key.pem": append(server.CertPEM, server.KeyPEM...)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	roots = x509.NewCertPool()
	roots.AddCert(authority.Cert)
	config, err := os.ReadFile(filepath.Join("../../deploy/proxies", p.file))
	require.NoError(t, err)
	https, grpcs = nettest.Reserve(t), nettest.Reserve(t)
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		return port
	}
	for i := 0; i < len(p.edits); i += 2 {
		require.Contains(t, string(config), p.edits[i])
		config = []byte(strings.ReplaceAll(string(config), p.edits[i], p.edits[i+1]))
	}
	fill := strings.NewReplacer(
		"10.0.0.11:8080", "127.0.0.1:"+port(a2atest.Host(r.URL)), "10.0.0.11:8081", "127.0.0.1:"+port(r.GRPC),
		// Nothing listens at 127.0.0.2.
		"10.0.0.12:8080", "127.0.0.2:"+port(a2atest.Host(r.URL)), "10.0.0.12:8081", "127.0.0.2:"+port(r.GRPC),
		"HTTPS ", https+" ", "GRPCS ", grpcs+" ", "HTTPPORT", port(https), "GRPCPORT", port(grpcs),
		"port 9090", "port "+port(a2atest.Host(r.Admin)),
		"/etc/holdfast-proxy", dir, "DIR", dir, "FILE", filepath.Join(dir, p.file),
	)
	require.NoError(t, os.WriteFile(filepath.Join(dir, p.file), []byte(fill.Replace(string(config))), 0o600))
	args := make([]string, len(p.args))
	for i, arg := range p.args {
		args[i] = fill.Replace(arg)
	}
	running = clustertest.Run(t, []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, p.program, args...)
	for _, address := range []string{https, grpcs} {
		waittest.Eventually(t, p.program+" listens", func() error {
			c, err := net.Dial("tcp", address)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	return https, grpcs, roots, running
}

func said(text string) *pb10.SendMessageRequest {
	return &pb10.SendMessageRequest{Message: &pb10.Message{
		MessageId: store.NewID().String(), Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: text}}},
	}}
}
