package limit

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// greeter greets each connection, and keeps it until the client closes it.
func greeter(t *testing.T, c *Connections) (address string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := c.Listener(inner)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			go func() {
				_, _ = conn.Write([]byte{'!'})
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close() // a second Close is harmless
			}()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
	})
	return inner.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
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
	// Two ports share the limit.
	a, b := greeter(t, all), greeter(t, all)
	first, second := dial(t, a), dial(t, b)
	greeted(t, first)
	greeted(t, second)
	third := dial(t, a)
	greeted(t, third)
	waits := dial(t, b)
	require.Eventually(t, func() bool { return open.Load() == 4 }, time.Minute, time.Millisecond)
	require.Equal(t, 3, len(all.places)) //nolint:testifylint // Len would print the channel, and race with its writers
	require.NoError(t, waits.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err := waits.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the server does not serve it yet")
	require.NoError(t, waits.SetReadDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, first.Close())
	greeted(t, waits)
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
	require.NoError(t, waits.Close())
	require.Eventually(t, func() bool { return len(all.places) == 0 && open.Load() == 0 }, time.Minute, time.Millisecond)
	all.mu.Lock()
	require.Empty(t, all.from)
	all.mu.Unlock()
	for range 10 {
		c := dial(t, a)
		greeted(t, c)
		require.NoError(t, c.Close())
	}
}

func TestConnectionsPerAddressAreLimited(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	all := NewConnections(ConnectionOptions{OfAddress: 2, Refused: func() { refused.Add(1) }})
	address := greeter(t, all)
	first, second := dial(t, address), dial(t, address)
	greeted(t, first)
	greeted(t, second)
	_, err := dial(t, address).Read(make([]byte, 1))
	require.Error(t, err, "the server closes it without an answer")
	require.Eventually(t, func() bool { return refused.Load() == 1 }, time.Minute, time.Millisecond) // counted at the close
	elsewhere, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = elsewhere.Close() })
	greeted(t, elsewhere)
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		c := dial(t, address)
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	}, time.Minute, time.Millisecond)
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
	at := greeter(t, all)
	for range 3 {
		greeted(t, dial(t, at))
	}
}
