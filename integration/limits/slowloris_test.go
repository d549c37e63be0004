package limits

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/certtest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// laggard is a client of HTTP/2 that sends a little, again and again.
type laggard struct {
	name string
	// begin is its first frame, and more each later one.
	begin, more func(*http2.Framer) error
	// unready: begin is less than a complete connection preface.
	unready bool
	// told is in the answer to its request, if there is an answer.
	told hpack.HeaderField
}

// laggards are clients of a request with these headers.
func laggards(told hpack.HeaderField, headers ...string) []*laggard {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(headers); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]}) // to a buffer
	}
	head := block.Bytes()
	nothing := func(*http2.Framer) error { return nil }
	return []*laggard{
		{name: "no connection", unready: true, begin: nothing, more: nothing},
		{name: "no request", begin: func(f *http2.Framer) error { return f.WriteSettings() }, more: nothing},
		{
			name: "headers without end",
			begin: func(f *http2.Framer) error {
				return errors.Join(f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head}))
			},
			// A field that is never indexed, of one letter.
			more: func(f *http2.Framer) error { return f.WriteContinuation(1, false, []byte{0x10, 1, 'x', 1, 'y'}) },
		},
		{
			name: "a body without end", told: told,
			begin: func(f *http2.Framer) error {
				return errors.Join(f.WriteSettings(),
					f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndHeaders: true}),
					f.WriteData(1, false, []byte{0, 0, 0, 0x80, 0})) // the length of a gRPC message
			},
			more: func(f *http2.Framer) error { return f.WriteData(1, false, []byte{' '}) },
		},
	}
}

// lag runs one of them on a connection. It returns nil when the server ends the connection.
func (l *laggard) lag(conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(waittest.Patience))
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	enough := make(chan error, 1)
	go func() {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					enough <- errors.New("never cut off")
				}
				close(enough)
				return
			}
			if answer, ok := frame.(*http2.MetaHeadersFrame); ok {
				if !slices.Contains(answer.Fields, l.told) {
					enough <- fmt.Errorf("told %v", answer.Fields)
				}
				close(enough)
				return
			}
		}
	}()
	preface := http2.ClientPreface
	if l.unready {
		preface = preface[:10]
	}
	_, err := conn.Write([]byte(preface))
	if err == nil {
		err = l.begin(f)
	}
	between := time.NewTicker(20 * time.Millisecond)
	defer between.Stop()
	for {
		select {
		case bad := <-enough:
			return bad
		case <-between.C:
			if err == nil {
				err = l.more(f) // the reader sees a failure, too
			}
		}
	}
}

// Like TestSlowLoris, over gRPC and over HTTP/2.
func TestSlowLorisOverHTTP2(t *testing.T) {
	t.Parallel()
	const each = 10
	dir := t.TempDir()
	own := certtest.New(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true})
	for name, content := range map[string][]byte{"cert.pem": own.CertPEM, "key.pem": own.KeyPEM} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	hasty := clustertest.Replace(strict, "body_timeout: 1s", "body_timeout: 1s, idle_timeout: 1s") + "sse: {keep_alive: 1s, write_timeout: 10s}\n"
	db := clustertest.NewDB(t)
	plain := clustertest.Start(t, clustertest.Options{Name: "plain", DB: db.URL, Config: hasty})
	secured := clustertest.Start(t, clustertest.Options{Name: "secured", DB: db.URL, Config: hasty + fmt.Sprintf("tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem}\n", dir)})
	roots := x509.NewCertPool()
	roots.AddCert(own.Cert)
	inTLS := func(address string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			return tls.Dial("tcp", address, &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
		}
	}
	rpc := laggards(hpack.HeaderField{Name: "grpc-status", Value: "1"}, ":method", "POST", ":scheme", "http", ":path", "/lf.a2a.v1.A2AService/SendMessage", ":authority", "localhost",
		"content-type", "application/grpc", "te", "trailers")
	web := laggards(hpack.HeaderField{Name: ":status", Value: "408"}, ":method", "POST", ":scheme", "https", ":path", "/", ":authority", "127.0.0.1", "content-type", "application/json")
	var cut, all atomic.Int64
	done := make(chan error, 100)
	ctx := waittest.Context(t)
	for _, c := range []struct {
		name     string
		dial     func() (net.Conn, error)
		laggards []*laggard
	}{
		{"gRPC", func() (net.Conn, error) { return net.Dial("tcp", plain.GRPC) }, rpc},
		{"gRPC with TLS", inTLS(secured.GRPC), rpc},
		{"HTTP/2", inTLS(a2atest.Host(secured.URL)), web},
	} {
		for _, l := range c.laggards {
			for range each {
				all.Add(1)
				go func() {
					conn, err := c.dial()
					// With so many clients at once, a handshake may exceed its timeout.
					for ctx.Err() == nil && err != nil {
						conn, err = c.dial()
					}
					if err == nil {
						err = l.lag(conn)
					}
					if err != nil {
						err = fmt.Errorf("%s, %s: %w", c.name, l.name, err)
					}
					cut.Add(1)
					done <- err
				}()
			}
		}
	}
	others := pb10.NewA2AServiceClient(plain.Conn())
	message := &pb10.Message{MessageId: "m", Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: "echo:meanwhile"}}}}
	for cut.Load() < all.Load() {
		// A client whose handshake times out makes another connection.
		sent, err := others.SendMessage(waittest.Context(t), &pb10.SendMessageRequest{Message: message}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, pb10.TaskState_TASK_STATE_COMPLETED, sent.GetTask().GetStatus().GetState())
	}
	for range all.Load() {
		require.NoError(t, <-done)
	}
}
