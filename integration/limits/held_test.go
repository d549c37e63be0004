package limits

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// patient gives clients more time than a busy machine takes to count what they hold.
const patient = "request_timeout: 30m, idle_timeout: 1h"

func write(text string) func(net.Conn) error {
	return func(c net.Conn) error {
		_, err := io.WriteString(c, text)
		return err
	}
}

// unfinishedBody sends 60 KiB of a body that has 64.
func unfinishedBody(path string) func(net.Conn) error {
	return write("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n\r\n" + strings.Repeat(" ", 60<<10))
}

func unfinishedHead(size int) func(net.Conn) error {
	return write("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", size))
}

// TestHeldBeforeCredential holds everything that a client without a credential can hold, against a server with the
// default limits but more patience. It logs the memory of each, which the table of before-credential.md has, and checks that
// each has a bound. A body of JSON-RPC ends after 5 seconds, whatever the limits, so no busy machine can count it.
func TestHeldBeforeCredential(t *testing.T) {
	db := clustertest.NewDB(t)
	secured, trust := overTLS(t)
	config := clustertest.WithKeys + "limits: {" + patient + "}\n"
	plain := clustertest.Start(t, clustertest.Options{Name: "plain", DB: db.URL, Config: config})
	modern := clustertest.Start(t, clustertest.Options{Name: "modern", DB: db.URL, Config: config + secured})
	public, grpc := a2atest.Host(plain.URL), plain.GRPC
	host := byte(1)
	for _, thing := range []struct {
		name  string
		count int
		to    string // an address of plain; "": HTTP/2 at modern
		begin func(c net.Conn) error
		each  int // streams of one connection
		most  int // goroutines of each
		bytes int // bound of the memory of each
	}{
		{"HTTP connection", 200, public, write(""), 1, 1, 32 << 10},
		{"HTTP connection with 60 KiB of headers", 100, public, unfinishedHead(60 << 10), 1, 1, 192 << 10},
		{"HTTP connection with 4 KiB of headers", 200, public, unfinishedHead(4000), 1, 1, 48 << 10},
		{"HTTP body of HTTP+JSON, unfinished", 100, public, unfinishedBody("/message:send"), 1, 1, 48 << 10},
		{"HTTP body of the run API, unfinished", 100, public, unfinishedBody("/run/v1/events"), 1, 1, 48 << 10},
		{"HTTP body of the worker API, unfinished", 100, public, unfinishedBody("/worker/v1/claims"), 1, 1, 48 << 10},
		{"HTTP body of a resume URL, unfinished", 100, public, unfinishedBody("/resume/" + strings.Repeat("A", 60)), 1, 1, 48 << 10},
		{"HTTP body of a notification, unfinished", 100, public, unfinishedBody("/notifications/" + strings.Repeat("A", 60)), 1, 1, 48 << 10},
		{"HTTP body of an unknown path, unfinished", 100, public, unfinishedBody("/nothing"), 1, 1, 48 << 10},
		{"gRPC connection", 200, grpc, settings, 1, 4, 128 << 10},
		{"gRPC connection with 60 KiB of metadata", 100, grpc, unfinishedHeaders, 1, 4, 384 << 10},
		{"gRPC call of reflection", 32, grpc, func(c net.Conn) error {
			f, err := preface(c)
			if err == nil {
				err = requests(f, 32, true, callOf("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"))
			}
			return err
		}, 32, 2, 32 << 10},
		{"HTTP/2 body whose answer has no room", 100, "", unreadBody, 1, 5, 256 << 10},
		{"HTTP/2 answer that is not read", 1000, "", unreadAnswers(240), 240, 2, 32 << 10},
	} {
		t.Run(thing.name, func(t *testing.T) {
			host++
			r := plain
			if thing.to == "" {
				r = modern
			}
			// Connections of earlier cases have ended.
			waittest.Eventually(t, "no connection is open", func() error {
				return waittest.Unless(r.Metric("holdfast_connections_open") == 0, "some are open")
			})
			goroutines, memory := held(r)
			connections := (thing.count + thing.each - 1) / thing.each
			for range connections {
				c := dialFrom(t, host, cmp.Or(thing.to, a2atest.Host(modern.URL)))
				if thing.to == "" {
					c = tls.Client(c, withName(trust))
				}
				require.NoError(t, thing.begin(c))
			}
			waittest.Eventually(t, "all are held", func() error {
				g, m := held(r)
				open, streams := int(r.Metric("holdfast_connections_open")), g-goroutines
				if open != connections || thing.each > 1 && streams < thing.count || thing.to == "" && streams < 2*connections {
					return fmt.Errorf("%d connections are open, with %d goroutines", open, streams)
				}
				each := max(0, m-memory) / thing.count
				t.Logf("%.1f KiB and %.1f goroutines each", float64(each)/1024, float64(streams)/float64(thing.count))
				require.LessOrEqual(t, streams, thing.count*thing.most+20)
				require.LessOrEqual(t, each, thing.bytes)
				return nil
			})
			if thing.each > 100 { // without a credential, one address has at most 1,000 streams
				waittest.Eventually(t, "the others are refused", func() error {
					refused := int(r.Metric("holdfast_connections_refused_total"))
					return waittest.Unless(refused == connections*thing.each-thing.count, "%d", refused)
				})
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
				defer client.CloseIdleConnections()
				resp, err := client.Get("https://" + a2atest.Host(r.URL) + "/.well-known/agent-card.json")
				require.NoError(t, err, "another address is served")
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Equal(t, 2, resp.ProtoMajor)
			}
		})
	}
}

// withName is the configuration for a connection that was dialed already.
func withName(trust *tls.Config) *tls.Config {
	c := trust.Clone()
	c.ServerName = "127.0.0.1"
	return c
}

// held returns the goroutines of a server and its memory in use, after a garbage collection.
func held(r *clustertest.Replica) (goroutines, memory int) {
	r.T.Helper()
	for range 2 { // a pool loses its content in the second one
		status, _, _ := r.Page("/debug/pprof/heap?gc=1")
		require.Equal(r.T, http.StatusOK, status)
	}
	all, err := r.Samples()
	require.NoError(r.T, err)
	return int(all["go_goroutines"]), int(all["go_memstats_heap_alloc_bytes"] + all["go_memstats_stack_inuse_bytes"])
}

// Clients without a credential hold as many bytes of headers as the budget has, and one address at most half of it. What is
// beyond it is closed; other clients are served.
func TestHeadersBeforeCredentialHaveABudget(t *testing.T) {
	t.Parallel()
	// Headers have two mebibytes.
	const few = "limits: {memory: 64MiB, " + patient + "}\n"
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.WithKeys + few})
	held := func() float64 { return r.Metric(`holdfast_memory_in_flight_bytes{budget="headers"}`) }
	for host, c := range map[byte]struct {
		to    string
		begin func(net.Conn) error
	}{
		20: {a2atest.Host(r.URL), unfinishedHead(60 << 10)}, 21: {r.GRPC, unfinishedHeaders},
	} {
		var all []net.Conn
		for range 12 {
			conn := dialFrom(t, host, c.to)
			_ = c.begin(conn) // the server may close it meanwhile
			all = append(all, conn)
		}
		waittest.Eventually(t, "the address has its share", func() error {
			return waittest.Unless(r.Metric("holdfast_connections_open") <= 10 && held() > 800<<10 && held() <= 1<<20,
				"%v connections, %v bytes", r.Metric("holdfast_connections_open"), held())
		})
		// Others are served, also with large headers.
		other := dialFrom(t, 22, a2atest.Host(r.URL))
		_, err := fmt.Fprintf(other, "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: %s\r\n\r\n", strings.Repeat("x", 60<<10))
		require.NoError(t, err)
		answer, err := io.ReadAll(other)
		require.NoError(t, err)
		require.Regexp(t, "^HTTP/1.1 200", string(answer))
		for _, conn := range all {
			_ = conn.Close()
		}
		waittest.Eventually(t, "all is given back", func() error {
			return waittest.Unless(held() == 0, "%v bytes", held())
		})
	}
	require.Positive(t, r.Metric(`holdfast_memory_refused_total{budget="headers"}`))
}

// The connections of one address count over all public ports. The admin address has a bound of its own, so that clients of
// the public ports take no connections of the probes.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	config := clustertest.Settings + "limits: {max_connections: 4, connections_per_address: 3}\n"
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config})
	asks := func(host byte, address, path string) error {
		c := dialFrom(t, host, address)
		require.NoError(t, c.SetDeadline(time.Now().Add(waittest.Patience)))
		_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, len("HTTP/1.1 200")))
		}
		return err
	}
	public, admin := a2atest.Host(r.URL), a2atest.Host(r.Admin)
	for range 2 {
		require.NoError(t, asks(2, public, "/.well-known/agent-card.json"))
	}
	require.NoError(t, settings(dialFrom(t, 2, r.GRPC)))
	require.Error(t, asks(2, public, "/.well-known/agent-card.json"), "a fourth connection of one address")
	require.NoError(t, asks(3, public, "/.well-known/agent-card.json"))
	require.Equal(t, 1, int(r.Metric("holdfast_connections_refused_total")))
	for range 64 {
		require.NoError(t, asks(4, admin, "/healthz"))
	}
	require.Error(t, asks(4, admin, "/healthz"))
	status, _ := r.Ready()
	require.Equal(t, http.StatusOK, status, "another address")
}
