package store

import (
	"sync"

	"github.com/jackc/pgx/v5"
)

// failover leaves a server that is no longer the primary. New connections go only to a server that
// takes writes (package pgurl); this is about those that are open.
type failover struct {
	mu    sync.Mutex
	pools []*pool
	// Of the connections that renew the lease:
	newest  string // address of the server of the newest one
	proven  string // address at the last renewal
	failing bool   // no renewal since
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

// renewal notes the outcome of a renewal. If renewals failed and then succeed on another server,
// the former one may be silent, so nothing waits for its answers any longer. The outcome of the
// statements is then unknown.
func (f *failover) renewal(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.failing = true
		return
	}
	moved := f.failing && f.proven != "" && f.proven != f.newest
	f.failing, f.proven = false, f.newest
	if moved {
		for _, p := range f.pools {
			p.Reset()
			p.abandon()
		}
	}
}

// refused leaves a server that has become read-only. Connections that only read would stay on it.
func (f *failover) refused() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pools {
		p.Reset()
	}
}
