package limits

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
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

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/certtest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// fewBytes gives headers a mebibyte.
const fewBytes = "limits: {memory: 256MiB, bytes_in_flight: 16MiB, header_timeout: 5m}\n"

// unfinishedHeaders begins a request of gRPC, with 60 KiB of headers that do not end.
func unfinishedHeaders(c net.Conn) error {
	if err := settings(c); err != nil {
		return err
	}
	f := http2.NewFramer(c, c)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	if err := e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("~", 60<<10), Sensitive: true}); err != nil {
		return err
	}
	const part = 16 << 10
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Next(part)})
	for block.Len() > 0 && err == nil {
		err = f.WriteContinuation(1, false, block.Next(part))
	}
	return err
}

// Clients without a credential hold as many bytes of headers as the budget has, and one address at most half of it. What is
// beyond it is closed; other clients are served.
func TestHeadersBeforeCredentialHaveABudget(t *testing.T) {
	t.Parallel()
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.WithKeys + fewBytes})
	held := func() float64 { return r.Metric(`holdfast_memory_in_flight_bytes{budget="headers"}`) }
	host := byte(20)
	for _, c := range []struct {
		name, to string
		begin    func(net.Conn) error
	}{
		{"HTTP", a2atest.Host(r.URL), write("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 60<<10))},
		{"gRPC", r.GRPC, unfinishedHeaders},
	} {
		host++
		var all []net.Conn
		for range 12 {
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}).DialContext(waittest.Context(t), "tcp", c.to)
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_ = c.begin(conn) // the server may close it meanwhile
			all = append(all, conn)
		}
		waittest.Eventually(t, c.name+": the address has its share", func() error {
			return waittest.Unless(r.Metric("holdfast_connections_open") <= 5 && held() > 400<<10 && held() <= 512<<10,
				"%v connections, %v bytes", r.Metric("holdfast_connections_open"), held())
		})
		// Others are served, also with large headers.
		req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, r.URL+"/.well-known/agent-card.json", nil)
		require.NoError(t, err)
		req.Header.Set("X", strings.Repeat("x", 60<<10))
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		for _, conn := range all {
			_ = conn.Close()
		}
		waittest.Eventually(t, c.name+": all is given back", func() error {
			return waittest.Unless(held() == 0, "%v bytes", held())
		})
	}
	require.Positive(t, r.Metric(`holdfast_memory_refused_total{budget="headers"}`))
}

// Answers that clients over HTTP/2 do not read wait in streams. Without a credential, one address has at most 1,000 of them.
func TestStreamsBeforeCredentialAreBounded(t *testing.T) {
	t.Parallel()
	dir, trust := overTLS(t)
	r := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.WithKeys + fmt.Sprintf("tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem}\n", dir),
	})
	const connections, each = 5, 240
	goroutines, memory := held(r)
	for range connections {
		c, err := tls.Dial("tcp", a2atest.Host(r.URL), trust)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		require.NoError(t, unreadAnswers(c, each))
		go answerPings(c)
	}
	waittest.Eventually(t, "the others are refused", func() error {
		refused := r.Metric("holdfast_connections_refused_total")
		return waittest.Unless(refused == connections*each-1000, "%v", refused)
	})
	waittest.Eventually(t, "all are held", func() error {
		g, m := held(r)
		t.Logf("%d goroutines, %.1f KiB each", g-goroutines, float64(m-memory)/1024/1000)
		return waittest.Unless(g-goroutines >= 1000 && g-goroutines < 1050, "%d goroutines", g-goroutines)
	})
	// Another address is served.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: trust, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 31)}}).DialContext,
	}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, "https://"+a2atest.Host(r.URL)+"/.well-known/agent-card.json", nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, 2, resp.ProtoMajor)
	// They end by themselves.
	waittest.Eventually(t, "the streams have ended", func() error {
		g, _ := held(r)
		return waittest.Unless(g-goroutines < 100, "%d goroutines", g-goroutines)
	})
}

// A client without a credential sends a body over HTTP/2, and reads no answer. The server takes at most 64 KiB of the body.
func TestBodiesOverHTTP2BeforeCredentialAreBounded(t *testing.T) {
	t.Parallel()
	dir, trust := overTLS(t)
	r := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.WithKeys + fmt.Sprintf("tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem}\n", dir),
	})
	const connections = 100
	goroutines, memory := held(r)
	sent := 0
	for range connections {
		c, err := tls.Dial("tcp", a2atest.Host(r.URL), trust)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		sent, err = sendWindow(c)
		require.NoError(t, err)
	}
	waittest.Eventually(t, "all are held", func() error {
		g, m := held(r)
		each := (m - memory) / connections
		t.Logf("%.1f KiB each, for %d KiB sent", float64(each)/1024, sent>>10)
		require.LessOrEqual(t, each, 256<<10)
		return waittest.Unless(g-goroutines >= 2*connections, "%d goroutines", g-goroutines)
	})
}

// overTLS returns a folder with a certificate for this machine, and a client's configuration for HTTP/2.
func overTLS(t *testing.T) (dir string, trust *tls.Config) {
	t.Helper()
	dir = t.TempDir()
	own := certtest.New(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true})
	for name, content := range map[string][]byte{"cert.pem": own.CertPEM, "key.pem": own.KeyPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	roots := x509.NewCertPool()
	roots.AddCert(own.Cert)
	return dir, &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}
}

// sendWindow begins a request whose answer has no room, and sends as much of its body as the server takes.
func sendWindow(c net.Conn) (sent int, err error) {
	f := http2.NewFramer(c, c)
	_, err = io.WriteString(c, http2.ClientPreface)
	err = errors.Join(err, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), f.WriteSettingsAck())
	stream, connection := 65535, 65535
	for answered := false; err == nil && !answered; { // what the server says first is before its answer to our settings
		var frame http2.Frame
		if frame, err = f.ReadFrame(); err != nil {
			return 0, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			answered = frame.IsAck()
			if size, ok := frame.Value(http2.SettingInitialWindowSize); ok {
				stream = int(size)
			}
		case *http2.WindowUpdateFrame:
			connection += int(frame.Increment)
		}
	}
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "127.0.0.1"}, {":path", "/.well-known/agent-card.json"}} {
		err = errors.Join(err, e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	err = errors.Join(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
	const frame = 16 << 10
	for window := min(stream, connection); err == nil && sent+frame <= window; sent += frame {
		err = f.WriteData(1, false, make([]byte, frame))
	}
	return sent, err
}

// unreadAnswers begins count requests for a card on a connection, and leaves no room for their answers.
func unreadAnswers(c net.Conn, count int) error {
	f := http2.NewFramer(c, c)
	_, err := io.WriteString(c, http2.ClientPreface)
	err = errors.Join(err, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), f.WriteSettingsAck())
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for n := range count {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "127.0.0.1"}, {":path", "/.well-known/agent-card.json"}} {
			err = errors.Join(err, e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
		}
		err = errors.Join(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
	}
	return err
}

// answerPings keeps a connection of HTTP/2 open, and drops everything else that it gets.
func answerPings(c net.Conn) {
	f := http2.NewFramer(c, c)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
			_ = f.WritePing(true, ping.Data)
		}
	}
}
