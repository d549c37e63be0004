package limit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

type caller struct{ tenant, subject string }

var alice, bob = caller{"t", "alice"}, caller{"t", "bob"}

// allows reports whether a request of a caller is allowed.
func allows(c *Rates[caller], who caller) bool {
	_, ok := c.Allow(who)
	return ok
}

func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewRates[caller](10, 3)
		for range 3 {
			for range 5 { // it takes nothing from the bucket
				_, ok := c.Ready(alice)
				require.True(t, ok)
			}
			require.True(t, allows(c, alice))
		}
		wait, ok := c.Ready(alice)
		require.False(t, ok)
		require.Equal(t, 100*time.Millisecond, wait)
		_, ok = c.Ready(bob)
		require.True(t, ok)
		for range 5 {
			wait, ok := c.Allow(alice)
			require.False(t, ok)
			require.Equal(t, 100*time.Millisecond, wait, "a refusal takes nothing from the bucket")
		}
		require.True(t, allows(c, bob), "callers have buckets of their own")
		require.True(t, allows(c, caller{"other", "alice"}), "a namesake in another tenant has a bucket of its own")
		waittest.Advance(100 * time.Millisecond)
		require.True(t, allows(c, alice), "a caller that waits as told is served")
		require.False(t, allows(c, alice))
		waittest.Advance(time.Hour)
		served := 0
		for range 10 {
			if _, ok := c.Allow(alice); ok {
				served++
			}
		}
		require.Equal(t, 3, served, "after an hour the bucket holds no more than a burst")
	})
}

func TestKeysAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRates[caller](1, 1, 10)
	require.True(t, allows(r, bob))
	for i := range 1000 {
		require.True(t, allows(r, caller{"t", fmt.Sprint(i)}))
		if i%5 == 0 {
			require.False(t, allows(r, bob), "an active caller is kept")
		}
	}
	require.Equal(t, 10, r.buckets.Len())
	require.Nil(t, NewRates[caller](0, 5))
	var none *Rates[caller]
	_, ok := none.Ready(alice)
	require.True(t, ok)
	require.True(t, allows(none, alice))
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	p := NewPlaces[string](3, 2)
	take := func(key string) func() {
		leave, ok := p.Take(key)
		require.True(t, ok, key)
		return leave
	}
	refuse := func(key string) {
		_, ok := p.Take(key)
		require.False(t, ok, key)
	}
	first, second := take("a"), take("a")
	refuse("a")
	third := take("b")
	require.True(t, p.Full())
	refuse("c") // no place is left
	first()
	require.False(t, p.Full())
	fourth := take("c")
	refuse("b")
	second()
	third()
	fourth()
	require.Empty(t, p.by)
	require.Zero(t, p.Taken())
}

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

// A server that stops still serves the connections that it has accepted.
func TestConnectionBeforeCloseIsServed(t *testing.T) {
	t.Parallel()
	for range 20 { // a select takes any of its cases that are ready
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		at := &acceptsLast{Listener: inner}
		l := NewConnections(ConnectionOptions{Most: 10}).Listener(at)
		at.then = l.Close
		client := dial(t, inner.Addr().String())
		served, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, errors.Join(served.Close(), client.Close()))
	}
}

// acceptsLast is a listener that is closed when it has accepted a connection.
type acceptsLast struct {
	net.Listener
	then func() error
}

func (l *acceptsLast) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return c, errors.Join(err, l.then())
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
	budget := NewBudget(600 << 10)
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
	h := Headers{Budget: NewBudget(300 << 10), Streams: NewPlaces[string](3, 2)}
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

// An agent that stops in the middle of an event, with the turn, holds up no event that is complete.
func TestCompleteEventsPassOneThatStopped(t *testing.T) {
	t.Parallel()
	r := NewRuns(4 << 20)
	stopped, complete, other := r.Event("slow"), r.Event("a"), r.Event("b")
	require.NoError(t, stopped.Grow(t.Context(), 3<<20)) // more than the share of an agent: it has the turn
	require.NoError(t, complete.Complete(t.Context(), 5<<20))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, other.Complete(ctx, 5<<20), context.Canceled, "one at a time")
	complete.Give(5 << 20)
	require.NoError(t, other.Complete(t.Context(), 5<<20))
	other.Give(5 << 20)
	stopped.Give(3 << 20)
	require.Zero(t, r.Stat().Used)
}
