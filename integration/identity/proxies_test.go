package identity

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// balancer starts a HAProxy with a configuration in which BIND and SERVER are addresses, and returns that of BIND. Without the
// program it skips the test.
func balancer(t *testing.T, config, server string) string {
	t.Helper()
	bind := nettest.Reserve(t)
	clustertest.HAProxy(t, "defaults\n timeout connect 10s\n timeout client 5m\n timeout server 5m\n retries 0\n"+
		strings.NewReplacer("BIND", bind, "SERVER", server).Replace(config)+"\n")
	waittest.Eventually(t, "HAProxy listens", func() error {
		c, err := net.Dial("tcp", bind)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	return bind
}

// from dials from an address of this machine.
func from(ip string) func(context.Context, string, string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext
}

// Behind a trusted proxy, limits by address and the audit log concern the client.
func TestClientsBehindAProxy(t *testing.T) {
	t.Parallel()
	others := clustertest.NewDB(t).Keys(store.APIKey{}, "guessed")[0]
	for _, tt := range []struct {
		name, source, config string
		grpc                 bool
	}{
		{name: "X-Forwarded-For", source: "x-forwarded-for", config: `
listen l
 mode http
 option forwardfor
 bind BIND
 server s SERVER`},
		{name: "Forwarded", source: "forwarded", config: `
listen l
 mode http
 http-request add-header Forwarded for=%[src]
 bind BIND
 server s SERVER`},
		{name: "PROXY protocol", source: "proxy-protocol", config: `
listen l
 mode tcp
 bind BIND
 server s SERVER send-proxy-v2`},
		{name: "gRPC with X-Forwarded-For", source: "x-forwarded-for", grpc: true, config: `
listen l
 mode http
 option forwardfor
 bind BIND proto h2
 server s SERVER proto h2`},
		{name: "gRPC with the PROXY protocol", source: "proxy-protocol", grpc: true, config: `
listen l
 mode tcp
 bind BIND
 server s SERVER send-proxy`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.WithKeys + fmt.Sprintf(`
limits: {failed_authentications: 1, connections_per_address: 2}
proxies: {trusted: [127.0.0.1/32], client_address: %s}
`, tt.source)})
			good := db.Keys(store.APIKey{}, "alice")[0]
			caller, server := overHTTP, a2atest.Host(r.URL)
			if tt.grpc {
				caller, server = overGRPC, r.GRPC
			}
			front := balancer(t, tt.config, server)

			// Ten guesses at once are allowed, and one each second.
			guess := caller(t, front, "127.0.0.2", others)
			waittest.Eventually(t, "guesses are limited", func() error {
				got := guess()
				return waittest.Unless(strings.Contains(got, "too many refused credentials"), "%s", got)
			})
			require.NotContains(t, caller(t, front, "127.0.0.3", others)(), "too many", "another client has a budget of its own")
			require.Contains(t, caller(t, front, "127.0.0.3", good)(), "completed")
			require.Regexp(t, `^127\.0\.0\.3:\d+$`, clustertest.One[string](db,
				"SELECT address FROM holdfast.v_audit WHERE action = 'task.created'"))
		})
	}
}

// overHTTP returns a client at an address that sends a message with a key each time.
func overHTTP(t *testing.T, address, ip, key string) func() string {
	t.Helper()
	transport := &http.Transport{DialContext: from(ip)}
	t.Cleanup(transport.CloseIdleConnections)
	return func() string {
		// The proxy does not believe what the client says of its address.
		resp, err := a2atest.PostWith(waittest.Context(t), &http.Client{Transport: transport}, "http://"+address,
			a2atest.V03.Request(a2atest.Send, a2atest.Say("echo:hi")), "X-API-Key", key, "X-Forwarded-For", "198.51.100.1", "Forwarded", "for=198.51.100.1")
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(b)
	}
}

// overGRPC is overHTTP for gRPC.
func overGRPC(t *testing.T, address, ip, key string) func() string {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { return from(ip)(ctx, "tcp", at) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func() string {
		ctx := metadata.AppendToOutgoingContext(waittest.Context(t), "x-api-key", key, "x-forwarded-for", "198.51.100.1")
		answer, err := pb10.NewA2AServiceClient(conn).SendMessage(ctx, says("echo:hi"))
		if err != nil {
			return grpcstatus.Convert(err).Message()
		}
		return strings.ToLower(strings.TrimPrefix(answer.GetTask().GetStatus().GetState().String(), "TASK_STATE_"))
	}
}

func says(text string) *pb10.SendMessageRequest {
	return &pb10.SendMessageRequest{Message: &pb10.Message{
		MessageId: store.NewID().String(), Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: text}}},
	}}
}

// Once a call has arrived, nothing that its connection carries counts as headers, also below the PROXY protocol.
func TestBytesOfCallsBehindAProxyAreNoHeaders(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings + `
proxies: {trusted: [127.0.0.1/32], client_address: proxy-protocol}
`})
	front := balancer(t, `
listen l
 mode tcp
 bind BIND
 server s SERVER send-proxy-v2`, r.GRPC)
	conn, err := grpc.NewClient("passthrough:"+front, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for range 20 {
		_, err := pb10.NewA2AServiceClient(conn).SendMessage(waittest.Context(t), says("echo:"+strings.Repeat("x", 8<<10)))
		require.NoError(t, err)
	}
	// The connection may hold the first bytes of its next call, such as an answer to a ping.
	require.Less(t, r.Metric(`holdfast_memory_in_flight_bytes{budget="headers"}`), float64(16<<10))
}
