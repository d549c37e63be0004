package limit

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// accepted dials a listener from an address, and returns both ends.
func accepted(t *testing.T, l net.Listener, from byte) (client net.Conn, server *Connection) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	client, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	c, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.Same(t, c, ConnectionAt(c.RemoteAddr()))
	return client, c.(*Connection)
}

func arrive(t *testing.T, client net.Conn, server *Connection, n int) error {
	t.Helper()
	_, err := io.WriteString(client, strings.Repeat("x", n))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, n))
	return err
}

func TestHeadersOfConnectionsShareABudget(t *testing.T) {
	t.Parallel()
	budget := memory.NewBudget(600 << 10)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := NewConnections(ConnectionOptions{OfAddress: 10, Headers: budget}).Listener(inner)
	defer func() { require.NoError(t, l.Close()) }()

	first, firstServer := accepted(t, l, 2)
	require.NoError(t, arrive(t, first, firstServer, FreeHeaders))
	require.Zero(t, budget.Stat().Used, "headers of usual size are free")
	require.NoError(t, arrive(t, first, firstServer, 60<<10))
	require.Equal(t, int64(180<<10), budget.Stat().Used)
	second, secondServer := accepted(t, l, 2)
	require.Error(t, arrive(t, second, secondServer, 60<<10), "one address has half of the budget")
	require.Equal(t, int64(1), budget.Stat().Refused)
	require.NoError(t, second.SetReadDeadline(time.Now().Add(waittest.Patience)))
	_, err = second.Read(make([]byte, 1))
	require.Error(t, err, "the connection is closed")
	require.Equal(t, int64(180<<10), budget.Stat().Used, "and returned what it held")
	other, otherServer := accepted(t, l, 3)
	require.NoError(t, arrive(t, other, otherServer, 60<<10))

	firstServer.Begin()
	require.Equal(t, int64(168<<10), budget.Stat().Used)
	require.NoError(t, arrive(t, first, firstServer, 1<<20), "a body does not count")
	require.Equal(t, int64(168<<10), budget.Stat().Used)
	firstServer.End()
	require.NoError(t, arrive(t, first, firstServer, 1<<20), "no headers are longer than the servers accept")
	require.Equal(t, int64((168+192)<<10), budget.Stat().Used)
	_ = firstServer.Close()
	_ = otherServer.Close()
	require.Zero(t, budget.Stat().Used)
}

func TestRequestsBeforeTheirCredential(t *testing.T) {
	t.Parallel()
	h := Headers{Budget: memory.NewBudget(300 << 10), Streams: NewPlaces(3, 2)}
	leave, ok := h.Take("127.0.0.1:1", FreeHeaders, false)
	require.True(t, ok)
	require.Nil(t, leave, "it holds nothing")
	a, ok := h.Take("127.0.0.1:1", 44<<10, true)
	require.True(t, ok)
	_, ok = h.Take("127.0.0.1:2", 44<<10, true)
	require.False(t, ok, "the headers of an address")
	b, ok := h.Take("127.0.0.1:2", 0, true)
	require.True(t, ok)
	_, ok = h.Take("127.0.0.1:3", 0, true)
	require.False(t, ok, "the streams of an address")
	require.Equal(t, int64(120<<10), h.Budget.Stat().Used)
	a()
	a()
	require.Zero(t, h.Budget.Stat().Used)
	_, ok = h.Take("127.0.0.1:3", 0, true)
	require.True(t, ok)
	b()
	require.Equal(t, 1, h.Streams.Taken())
}
