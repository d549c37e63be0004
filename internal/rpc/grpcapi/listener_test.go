package grpcapi

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection whose write exceeded its deadline stays closed after the deadline is lifted.
func TestFailedWriteClosesConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	server, err := listener{l}.Accept()
	require.NoError(t, err)
	_, err = server.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, server.SetDeadline(time.Now().Add(-time.Second)))
	_, err = server.Write([]byte("y"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_ = server.SetDeadline(time.Time{})
	_, err = server.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
}
