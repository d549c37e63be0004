package faults

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/test/judge"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// TestFailover is the short form of TestChaos for the loss of the primary.
func TestFailover(t *testing.T) {
	t.Parallel()
	once(t, ofStandbys)
}

// standby builds a standby of the primary, which the replicas reach as the second host of their URL.
func (c *rig) standby() *storetest.PrivateServer {
	c.t.Helper()
	s := c.pg.Standby()
	for _, p := range c.spares {
		p.Lead(s.URL)
		p.Refuse(false)
	}
	return s
}

// follow makes the promoted standby the server of the rig. The former primary is down for good.
func (c *rig) follow(s *storetest.PrivateServer) {
	c.t.Helper()
	c.proxies, c.spares = c.spares, c.proxies
	for _, p := range c.spares {
		p.Refuse(true)
		p.CutAll()
	}
	c.use(s)
}

// failover promotes a synchronous standby of a primary that dies, or falls silent while its connections stay. The
// former primary then returns: as a standby that refuses writes, or with packets that were on their way.
func (c *rig) failover(silent bool) {
	old, s := c.pg, c.standby()
	old.Replicate()
	c.progress(len(c.replicas))
	if silent {
		for _, p := range c.proxies {
			p.Stall(true)
		}
	} else {
		old.Crash()
	}
	s.Promote()
	c.progress(4 * len(c.replicas))
	if silent {
		for _, p := range c.proxies {
			p.Stall(false)
		}
	} else {
		old.StartAsStandby()
		for _, p := range c.spares {
			p.CutAll()
		}
	}
	c.progress(4 * len(c.replicas))
	old.Crash()
	c.follow(s)
}

// moveName leads the name of the primary to its standby, while connections to the primary stay.
func (c *rig) moveName() {
	old, s := c.pg, c.pg.Standby()
	old.Replicate()
	resume := c.load.pause() // a switchover waits for the standby
	old.Exec("ALTER SYSTEM SET default_transaction_read_only = on")
	old.Exec("SELECT pg_reload_conf()")
	s.Promote()
	for _, p := range c.proxies {
		p.Lead(s.URL)
	}
	resume()
	c.progress(4 * len(c.replicas))
	old.Crash()
	c.use(s)
}

// loseCommits promotes a standby that lags.
func (c *rig) loseCommits() {
	old := c.pg
	c.rewind(c.standby, 4, func(s *storetest.PrivateServer) {
		old.Crash()
		s.Promote()
		c.follow(s)
	})
}

// restore replaces the database by a backup, at the same address. Tasks have ended since the backup was made, others have
// been claimed again. Two replicas run throughout; one starts on the restored database.
func (c *rig) restore() {
	old, fresh := c.pg, c.replicas[0]
	c.rewind(func() *storetest.PrivateServer { return c.pg.Standby() }, 6, func(s *storetest.PrivateServer) {
		s.Stop()
		c.kill(fresh)
		old.Stop()
		for _, p := range c.proxies {
			p.Lead(s.URL)
			p.CutAll()
		}
		for _, r := range c.replicas[1:] {
			waittest.Eventually(c.t, r.Name+" has no database", func() error {
				status, _ := r.Ready()
				return waittest.Unless(status == http.StatusServiceUnavailable, "it is ready")
			})
		}
		s.Start()
		s.Promote()
		c.use(s)
		fresh.Run()
	})
}

// rewind copies the database, lets clients finish so many operations for each replica, and replaces the database by the copy.
// Clients of these minutes may lose what was acknowledged. The log of each task is then a beginning of the former one, and
// continues; clients get a snapshot, and none of them waits for ever.
func (c *rig) rewind(replicate func() *storetest.PrivateServer, operations int, replace func(*storetest.PrivateServer)) {
	resume := c.load.pause() // what the other clients have done is in the copy
	defer resume()
	s := replicate()
	c.agent.flows.Store(true)
	lossy := newLoad(c.t, c.rng.Uint64(), c.load.urls...)
	lossy.lossy = true
	var streams errgroup.Group
	read := make([]atomic.Int64, len(c.replicas))
	for i := range read {
		streams.Go(func() error {
			f, err := lossy.rewound(uint64(i), &read[i])
			c.load.ledger.Expect(f.task, judge.Outcome{State: "completed"})
			return err
		})
	}
	waitRead := func(least int) {
		waittest.Eventually(c.t, "the streams go on", func() error {
			for i := range read {
				if n := read[i].Load(); n <= int64(least) {
					return fmt.Errorf("stream %d has read %d events", i, n)
				}
			}
			return nil
		})
	}
	waitRead(0)
	at := query[int64](c, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
	waittest.Eventually(c.t, "the copy has the beginning of each stream", func() error {
		n := s.Count(fmt.Sprintf("SELECT (pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= %d)::int", at))
		return waittest.Unless(n == 1, "it lags")
	})
	s.StopStreaming()
	lossy.start(2 * len(c.replicas))
	waittest.Eventually(c.t, "clients are acknowledged what the copy lacks", func() error {
		n := lossy.done.Load()
		return waittest.Unless(n >= int64(operations*len(c.replicas)), "%d operations", n)
	})
	waitRead(s.Count("SELECT coalesce(max(last_seq), 0)::int FROM holdfast.tasks WHERE state < 3"))
	replace(s)
	c.agent.flows.Store(false)
	require.NoError(c.t, streams.Wait(), "a stream over the loss of events")
	lossy.end()
	require.NoError(c.t, lossy.troubles())
	waittest.Eventually(c.t, "all runs end", func() error {
		n := query[int](c, "SELECT count(*) FROM holdfast.task_queue")
		return waittest.Unless(n == 0, "%d tasks wait or run", n)
	})
	c.load.ledger.Doubt(lossy.ledger)
}
