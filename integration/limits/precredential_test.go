package limits

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// TestHeldBeforeCredential holds everything that a client without a credential can hold, against a server with the
// default limits but more patience: a busy machine takes longer to count what is held. It logs the memory of each, which
// the table of docs/limits.md has, and checks that each has a bound.
func TestHeldBeforeCredential(t *testing.T) {
	r := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.WithKeys + "limits: {header_timeout: 5m, body_timeout: 5m}\n",
	})
	public, grpc := a2atest.Host(r.URL), r.GRPC
	host := byte(1)
	for _, thing := range []struct {
		name  string
		count int
		to    string
		begin func(c net.Conn) error
		// shared: all are streams of one connection.
		shared bool
		most   int // goroutines of each
		bytes  int // bound of the memory of each
	}{
		{"HTTP connection", 500, public, nothing, false, 1, 32 << 10},
		{"HTTP connection with 60 KiB of headers", 200, public, write("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 60<<10)), false, 1, 192 << 10},
		{"HTTP body of 60 KiB, unfinished", 32, public, unfinishedBody("/"), false, 2, 192 << 10},
		{"HTTP body of HTTP+JSON, unfinished", 100, public, unfinishedBody("/message:send"), false, 1, 48 << 10},
		{"HTTP body of the run API, unfinished", 100, public, unfinishedBody("/run/v1/events"), false, 1, 48 << 10},
		{"HTTP body of the worker API, unfinished", 100, public, unfinishedBody("/worker/v1/claims"), false, 1, 48 << 10},
		{"HTTP body of a resume URL, unfinished", 100, public, unfinishedBody("/resume/" + strings.Repeat("A", 60)), false, 1, 48 << 10},
		{"HTTP body of a notification, unfinished", 100, public, unfinishedBody("/notifications/" + strings.Repeat("A", 60)), false, 1, 48 << 10},
		{"HTTP body of an unknown path, unfinished", 100, public, unfinishedBody("/nothing"), false, 1, 48 << 10},
		{"HTTP connection with 4 KiB of headers", 500, public, write("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 4000)), false, 1, 48 << 10},
		{"gRPC connection", 500, grpc, settings, false, 4, 128 << 10},
		{"gRPC connection with 60 KiB of metadata", 100, grpc, unfinishedHeaders, false, 4, 384 << 10},
		{"gRPC call of reflection", 32, grpc, settings, true, 2, 32 << 10},
	} {
		t.Run(thing.name, func(t *testing.T) {
			host++
			connect := func() net.Conn {
				c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}).DialContext(waittest.Context(t), "tcp", thing.to)
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			// Connections of earlier cases have ended.
			waittest.Eventually(t, "no connection is open", func() error {
				return waittest.Unless(r.Metric("holdfast_connections_open") == 0, "some are open")
			})
			goroutines, memory := held(r)
			if thing.shared {
				c := connect()
				require.NoError(t, thing.begin(c))
				goroutines, memory = held(r)
				require.NoError(t, reflections(c, thing.count))
			} else {
				for range thing.count {
					require.NoError(t, thing.begin(connect()))
				}
			}
			waittest.Eventually(t, "all are held", func() error {
				g, m := held(r)
				if open := r.Metric("holdfast_connections_open"); !thing.shared && open != float64(thing.count) {
					return fmt.Errorf("%v connections are open", open)
				}
				if thing.shared && g < goroutines+thing.count {
					return fmt.Errorf("%d goroutines, and %d before", g, goroutines)
				}
				each := max(0, m-memory) / thing.count
				t.Logf("%s: %.1f KiB and %.1f goroutines each", thing.name, float64(each)/1024, float64(g-goroutines)/float64(thing.count))
				require.LessOrEqual(t, g-goroutines, thing.count*thing.most+20)
				require.LessOrEqual(t, each, thing.bytes)
				return nil
			})
		})
	}

	t.Run("connections of one address", func(t *testing.T) {
		for range 1000 {
			c, err := net.Dial("tcp", public)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}
		waittest.Eventually(t, "all are open", func() error {
			return waittest.Unless(r.Metric("holdfast_connections_open") == 1000, "%v", r.Metric("holdfast_connections_open"))
		})
		c, err := net.Dial("tcp", public)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetReadDeadline(time.Now().Add(waittest.Patience)))
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err, "the server closes it at once")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 1, int(r.Metric("holdfast_connections_refused_total")))
	})
}

func nothing(net.Conn) error { return nil }

// unfinishedBody sends 60 KiB of a body that has 64.
func unfinishedBody(path string) func(net.Conn) error {
	return write("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n\r\n" + strings.Repeat(" ", 60<<10))
}

func write(text string) func(net.Conn) error {
	return func(c net.Conn) error {
		_, err := io.WriteString(c, text)
		return err
	}
}

// settings sets up a connection of HTTP/2.
func settings(c net.Conn) error {
	_, err := io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	err = errors.Join(err, f.WriteSettings(), f.WriteSettingsAck())
	if err != nil {
		return err
	}
	_, err = f.ReadFrame()
	return err
}

// reflections begins calls that send no request.
func reflections(c net.Conn, count int) error {
	var block bytes.Buffer
	e, f := hpack.NewEncoder(&block), http2.NewFramer(c, c)
	for n := range count {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":authority", "localhost"},
			{":path", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				return err
			}
		}
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndHeaders: true})
		if err != nil {
			return err
		}
	}
	return nil
}

// held returns the goroutines of a server and its memory in use, after a garbage collection.
func held(r *clustertest.Replica) (goroutines, memory int) {
	r.T.Helper()
	for range 2 { // a pool loses its content in the second one
		resp, err := http.Get(r.Admin + "/debug/pprof/heap?gc=1")
		require.NoError(r.T, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		require.Equal(r.T, http.StatusOK, resp.StatusCode)
	}
	all, err := r.Samples()
	require.NoError(r.T, err)
	return int(all["go_goroutines"]), int(all["go_memstats_heap_alloc_bytes"] + all["go_memstats_stack_inuse_bytes"])
}

// A client without a credential that does not finish a body gets its connection closed, whatever it asks for.
func TestUnfinishedBodiesBeforeCredentialEnd(t *testing.T) {
	t.Parallel()
	const headers, bodies = time.Second, 4 * time.Second
	r := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.WithKeys + fmt.Sprintf("limits: {header_timeout: %s, body_timeout: %s}\n", headers, bodies),
	})
	for path, most := range map[string]time.Duration{
		"/": 5 * time.Second, "/message:send": headers, "/v1/message:send": headers, "/run/v1/events": bodies, "/worker/v1/claims": bodies,
		"/resume/" + strings.Repeat("A", 60): headers, "/notifications/" + strings.Repeat("A", 60): headers, "/nothing": headers, "/agents": headers,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", a2atest.Host(r.URL))
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			require.NoError(t, unfinishedBody(path)(c))
			began := time.Now()
			require.NoError(t, c.SetReadDeadline(began.Add(waittest.Patience)))
			answer, err := io.ReadAll(c)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			t.Logf("ended after %s: %.20s", time.Since(began).Round(time.Millisecond), answer)
			require.Less(t, time.Since(began), most+waittest.Patience/2)
			require.Regexp(t, "^HTTP/1.1 4", string(answer))
		})
	}
}

// The admin address has a bound of its own, so that clients of the public ports take no connections of the probes.
func TestAdminConnections(t *testing.T) {
	t.Parallel()
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	connect := func(n int) (refused error) {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 77)}}).Dial("tcp", a2atest.Host(r.Admin))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		require.NoError(t, c.SetReadDeadline(time.Now().Add(waittest.Patience)))
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, n)
		return err
	}
	for n := range 64 {
		require.NoError(t, connect(n))
	}
	require.Error(t, connect(64))
	status, _ := r.Ready()
	require.Equal(t, http.StatusOK, status, "another address")
}
