package limit

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// greeter greets each connection, and keeps it until the client closes it. most is how many it has had at a time.
type greeter struct {
	address string
	mu      sync.Mutex
	open    int
	most    int
}

func greet(t *testing.T, c *Connections) *greeter {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g, l := &greeter{address: inner.Addr().String()}, c.Listener(inner)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			g.count(1)
			go func() {
				_, _ = conn.Write([]byte{'!'})
				_, _ = io.Copy(io.Discard, conn)
				g.count(-1)
				_ = conn.Close() // a second Close is harmless
			}()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
	})
	return g
}

func (g *greeter) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open += n
	g.most = max(g.most, g.open)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(waittest.Patience)))
	return c
}

func greeted(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
}

func TestConnectionWaitsForFullServer(t *testing.T) {
	t.Parallel()
	var open atomic.Int64
	all := NewConnections(ConnectionOptions{Most: 3, Opened: func() func() {
		open.Add(1)
		return func() { open.Add(-1) }
	}})
	g := greet(t, all)
	first, second := dial(t, g.address), dial(t, g.address)
	greeted(t, first)
	greeted(t, second)
	third := dial(t, g.address)
	greeted(t, third)
	waits := dial(t, g.address)
	waittest.Eventually(t, "the server has accepted it", func() error {
		return waittest.Unless(open.Load() == 4, "%d are open", open.Load())
	})
	require.Equal(t, 3, len(all.places)) //nolint:testifylint // Len would print the channel, and race with its writers
	require.NoError(t, first.Close())
	greeted(t, waits)
	for _, c := range []net.Conn{second, third, waits} {
		require.NoError(t, c.Close())
	}
	waittest.Eventually(t, "all have left", func() error {
		return waittest.Unless(len(all.places) == 0 && open.Load() == 0, "%d are open", open.Load())
	})
	all.mu.Lock()
	require.Empty(t, all.from)
	all.mu.Unlock()
	for range 10 {
		c := dial(t, g.address)
		greeted(t, c)
		require.NoError(t, c.Close())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	require.LessOrEqual(t, g.most, 3, "the server serves no more at a time")
}

// Two ports share the limit.
func TestPortsShareTheirConnections(t *testing.T) {
	t.Parallel()
	all := NewConnections(ConnectionOptions{Most: 1})
	a, b := greet(t, all), greet(t, all)
	first := dial(t, a.address)
	greeted(t, first)
	second := dial(t, b.address)
	require.Equal(t, 1, len(all.places)) //nolint:testifylint // as above
	require.NoError(t, first.Close())
	greeted(t, second)
}

func TestConnectionsPerAddressAreLimited(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	all := NewConnections(ConnectionOptions{OfAddress: 2, Refused: func() { refused.Add(1) }})
	address := greet(t, all).address
	first, second := dial(t, address), dial(t, address)
	greeted(t, first)
	greeted(t, second)
	_, err := dial(t, address).Read(make([]byte, 1))
	require.Error(t, err, "the server closes it without an answer")
	waittest.Eventually(t, "it is counted", func() error { return waittest.Unless(refused.Load() == 1, "%d are counted", refused.Load()) })
	elsewhere, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = elsewhere.Close() })
	greeted(t, elsewhere)
	require.NoError(t, first.Close())
	waittest.Eventually(t, "a place of the address is free", func() error {
		_, err := dial(t, address).Read(make([]byte, 1))
		return err
	})
}

func TestSender(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:5": "10.0.0.1", "[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::/64", "[fe80::1%eth0]:5": "fe80::/64", "@": "@",
	} {
		require.Equal(t, want, Sender(address))
	}
}

func TestExemptAddressesHaveNoLimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	all := NewConnections(ConnectionOptions{OfAddress: 1, Exempt: func(address string) bool { return Sender(address) == "127.0.0.1" }})
	at := greet(t, all).address
	for range 3 {
		greeted(t, dial(t, at))
	}
}
