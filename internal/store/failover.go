package store

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// failover leaves a server that is no longer the primary. New connections go only to a server that
// takes writes (package pgurl); this is about those that are open.
type failover struct {
	mu    sync.Mutex
	pools []*pool
	open  map[*serverConn]struct{}
	left  map[string]time.Time // addresses that are not dialed before a time
	// Of the connections that renew the lease:
	newest  string // address of the server of the newest one
	proven  string // address at the last renewal
	failing bool   // no renewal since
	// trusted is until when other connections are used, if the URL names several hosts: the end of the lease. Zero: nobody renews
	// it yet.
	trusted time.Time
	several bool
}

// errLapsed keeps requests from a server whose successor may have taken writes already: a former primary that was silent, and
// comes back before this process has noticed, would answer with what it knew then. Only a renewal of the lease proves that it
// is still the primary.
type errLapsed struct{}

func (errLapsed) Error() string {
	return "the lease of this process has ended, so another server may be the primary now"
}

// SafeToRetry says that nothing was sent (pgconn.SafeToRetry).
func (errLapsed) SafeToRetry() bool { return true }

// avoidFor is for how long a silent server is not dialed. The driver takes as long to give up a
// connection whose server cannot be told to cancel its statement.
const avoidFor = 15 * time.Second

var errLeft = errors.New("another server is the primary now")

// serverConn is an open connection of a pool.
type serverConn struct {
	net.Conn
	of *failover
}

func (c *serverConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// dials makes a dialer keep the connections that it opens.
func (f *failover) dials(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		f.mu.Lock()
		avoid := time.Now().Before(f.left[addr])
		f.mu.Unlock()
		if avoid {
			return nil, errLeft
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &serverConn{conn, f}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open == nil {
			f.open = map[*serverConn]struct{}{}
		}
		f.open[c] = struct{}{}
		return c, nil
	}
}

// hosts notes whether the URL names another server to fail over to.
func (f *failover) hosts(cfg *pgx.ConnConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.several = slices.ContainsFunc(cfg.Fallbacks, func(b *pgconn.FallbackConfig) bool { // they are for other kinds of TLS, too
		return b.Host != cfg.Host || b.Port != cfg.Port
	})
}

func (f *failover) add(p *pool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pools = append(f.pools, p)
}

// leased notes a new connection of the pool that renews the lease.
func (f *failover) leased(c *pgx.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = c.PgConn().Conn().RemoteAddr().String()
}

// lapsed returns errLapsed if no renewal of the lease proves that the server is the primary.
func (f *failover) lapsed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.several && !f.trusted.IsZero() && time.Now().After(f.trusted) {
		return errLapsed{}
	}
	return nil
}

// renewal notes the outcome of a renewal. If renewals failed and then succeed on another server,
// the former one may be silent, so its connections are closed. The outcome of their statements is
// then unknown.
func (f *failover) renewal(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.failing = true
		return
	}
	if f.failing && f.proven != "" && f.proven != f.newest {
		f.left = map[string]time.Time{f.proven: time.Now().Add(avoidFor)}
		for c := range f.open {
			if c.RemoteAddr().String() == f.proven {
				_ = c.Conn.Close()
			}
		}
	}
	f.failing, f.proven = false, f.newest
}

// trust sets the end of a lease that is renewed; the zero time says that nobody renews it: the start of a server may take longer
// than its lease, and its last writes come after it.
func (f *failover) trust(until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trusted = until
}

// reset replaces all connections when they are idle next. A server that has become read-only is left
// so: connections that only read would stay on it.
func (f *failover) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pools {
		p.Reset()
	}
}
