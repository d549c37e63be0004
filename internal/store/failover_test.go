package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A former primary that comes back as a standby accepts connections and refuses writes.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	f := openFixture(t, db.URL, "")
	admin, run := f.conn(), f.running("a")
	readOnly := func(setting string) {
		t.Helper()
		f.ok(admin.Exec(t.Context(), "ALTER DATABASE "+db.Name+" "+setting))
	}
	readOnly("SET default_transaction_read_only = on")
	for _, choice := range []string{"", "any"} {
		url := db.URL
		if choice != "" {
			url = with(url, "target_session_attrs="+choice)
		}
		readOnly("SET default_transaction_read_only = on")
		s := open(t, Options{URL: url, APIConns: 1})
		_, err := s.Create(t.Context(), fresh("b"))
		require.ErrorIs(t, err, task.Unavailable)
		require.ErrorContains(t, err, "the database is read-only")
		require.ErrorContains(t, s.Health(t.Context()), "the database is read-only")
		readOnly("RESET default_transaction_read_only")
		p := &pen{s: s, c: run.c, ordinal: run.ordinal}
		p.must(t, chunk("1"))
		run.ordinal = p.ordinal
		waittest.Eventually(t, "creates work again", func() error {
			_, err := s.Create(t.Context(), fresh("b"))
			return err
		})
		require.NoError(t, s.Health(t.Context()))
	}
}

// Readers never see the error of a write, and leave the server nevertheless.
func TestReadersLeaveReadOnlyServer(t *testing.T) {
	f, proxy := proxied(t)
	h := f.create(fresh("a"))
	before := f.api.Stat().NewConnsCount()
	stop := proxy.Fail("TaskCreate", "25006", "cannot execute INSERT in a read-only transaction")
	require.ErrorContains(t, errOf(f.Create(t.Context(), fresh("b"))), "the database is read-only")
	stop()
	waittest.Eventually(t, "reads use a new connection", func() error {
		f.ok(f.Header(t.Context(), h.ID))
		return waittest.Unless(f.api.Stat().NewConnsCount() > before, "still the old ones")
	})
}

// twoHosts is a URL that names two proxies before the same server, as a primary and its successor.
func twoHosts(t *testing.T, url string) (hosts string, first *pgproxytest.Proxy) {
	t.Helper()
	first = pgproxytest.New(t, url)
	return with(storetest.Hosts(first.URL, pgproxytest.New(t, url).URL), "connect_timeout=2"), first
}

// A primary whose machine hangs accepts connections and answers nothing. The second host of the URL takes over.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	hosts, first := twoHosts(t, url)
	f := openFixture(t, url, hosts)
	lease := f.bounded(f.lease)
	run, w := f.running("a"), f.worker(time.Hour)
	first.Stall(true)
	defer first.Stall(false)
	queued := run.write(chunk("1"))
	renewed := make(chan error, 1)
	go func() { renewed <- f.Renew(context.Background(), w, time.Hour) }()
	waittest.Eventually(t, "the renewal waits", func() error { return waittest.Unless(lease.expire() > 0, "none") })
	require.ErrorIs(t, waittest.Within(t, "the renewal", renewed), task.Unavailable)
	waittest.Tries(t, "the lease is renewed on the second server", func(ctx context.Context) error { return f.Renew(ctx, w, time.Hour) })
	require.Equal(t, answer{}, waittest.Within(t, "the answer", queued))
	waittest.Eventually(t, "the flush has ended", func() error { return f.Health(t.Context()) })
}

// A former primary that comes back, while another server takes writes, does not answer with what it knew before.
func TestServerOfALapsedLeaseIsNotRead(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	hosts, first := twoHosts(t, url)
	for name, to := range map[string]string{"several hosts": hosts, "one host": first.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFixture(t, url, to)
			h, w := f.create(fresh("a")), f.worker(time.Hour)
			try := func() error {
				_, read := f.Header(t.Context(), h.ID)
				_, write := f.Create(t.Context(), fresh("b"))
				require.Equal(t, errors.Is(read, task.Unavailable), errors.Is(write, task.Unavailable))
				return read
			}
			require.NoError(t, f.Register(t.Context(), Process{ID: NewID(), Name: "starting"}, -time.Hour))
			require.NoError(t, try(), "nothing renews the lease of a server that starts")
			require.NoError(t, f.Renew(t.Context(), w, -time.Hour))
			if name == "one host" { // there is no other server
				require.NoError(t, try())
				return
			}
			require.ErrorIs(t, try(), task.Unavailable)
			require.NoError(t, f.Renew(t.Context(), w, time.Hour))
			require.NoError(t, try())
			require.NoError(t, f.Renew(t.Context(), w, -time.Hour))
			require.NoError(t, f.Unregister(t.Context(), w))
			require.NoError(t, try(), "nothing renews the lease of a server that stops")
		})
	}
}

// A transaction begins with a statement of its own.
func TestSilentDatabaseAtBegin(t *testing.T) {
	f, proxy := proxied(t)
	h := f.create(fresh("a"))
	statements := f.bounded()
	proxy.Stall(true)
	defer proxy.Stall(false)
	done := make(chan error, 1)
	go func() { done <- f.SetPush(context.Background(), h.ID, hook("hook", "receiver"), 20) }()
	waittest.Eventually(t, "each try is given up", func() error {
		statements.expire()
		return waittest.Unless(len(done) > 0, "it tries")
	})
	require.ErrorIs(t, <-done, task.Unavailable)
}

func TestReadinessNamesCause(t *testing.T) {
	f, proxy := proxied(t)
	health := func() error { return f.Health(t.Context()) }
	require.NoError(t, health())

	full := proxy.Fail("TaskCreate", "53100", "could not extend file: No space left on device")
	_, err := f.Create(t.Context(), fresh("a"))
	require.ErrorIs(t, err, task.Unavailable)
	require.ErrorContains(t, err, "the disk of the database is full")
	require.ErrorContains(t, health(), "the disk of the database is full")
	full()
	f.create(fresh("a"))
	waittest.Eventually(t, "the disk has room", health)

	run := f.running("b")
	silent := proxy.Lose("EventsAppend", pgproxytest.Silence, 1)
	statements := f.bounded(f.write)
	queued := run.write(chunk("1"))
	waittest.Within(t, "the lost message", silent)
	require.NoError(t, health(), "it may still be answered")
	f.flushes.mu.Lock()
	for w := range f.flushes.all {
		w.began = w.began.Add(-2 * slowFlush)
	}
	f.flushes.mu.Unlock()
	require.ErrorContains(t, health(), "has not answered a write", "although other connections answer")
	require.Positive(t, statements.expire())
	require.Equal(t, answer{}, waittest.Within(t, "the answer", queued))
	waittest.Eventually(t, "the flush has ended", health)
	// The pool counts a broken connection until it is closed, for which it sends a cancel through the proxy.
	waittest.Eventually(t, "the silent connection is closed", func() error { return waittest.Unless(f.write.Stat().AcquiredConns() == 0, "not yet") })

	proxy.Stall(true)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		require.ErrorContains(t, f.Health(over), "has not answered a commit")
	}
	require.LessOrEqual(t, f.write.Stat().AcquiredConns(), int32(1), "one probe at a time")
	proxy.Stall(false)
	waittest.Eventually(t, "the replica is ready again", health)
}

// After a pooler, a migration or a disk that hiccups, a statement passes at the next try.
func TestOddErrorsPass(t *testing.T) {
	f, proxy := proxied(t)
	for code, message := range map[string]string{
		"26000": "prepared statement does not exist", "42P05": "prepared statement already exists",
		"0A000": "cached plan must not change result type", "58030": "could not read block", "XX000": "could not open relation",
		"25P03": "terminating connection due to idle-in-transaction timeout", "25P04": "terminating connection due to transaction timeout",
	} {
		once := func(kind, query string, do func()) {
			t.Helper()
			stop := proxy.Fail(query, code, message)
			f.ear.mu.Lock()
			before := f.ear.repeated[kind]
			f.ear.onRetry = func(retried string) {
				if retried == kind {
					stop()
				}
			}
			f.ear.mu.Unlock()
			do()
			f.ear.mu.Lock()
			defer f.ear.mu.Unlock()
			require.Greater(t, f.ear.repeated[kind], before, "%s: %s", code, kind)
		}
		run := f.running(code)
		once("append", "EventsAppend", func() { run.must(t, status(task.StateInputRequired)) })
		once("message", "MessageAppend", func() {
			f.ok(f.say(run.c.Task.ID, true))
		})
		once("create", "TaskCreate", func() { f.create(fresh("b")) })
	}
}

// An error that stays is the statement's, so it does not stop the other runs forever.
func TestOddErrorsThatStayAreFinal(t *testing.T) {
	f, proxy := proxied(t)
	run := f.running("a")
	defer proxy.Fail("EventsAppend", "XX000", "unexpected")()
	require.ErrorContains(t, waittest.Within(t, "the answer", run.write(chunk("1"))).err, "unexpected")
}

func TestIsolationLevelIsPinned(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	f := openFixture(t, db.URL, "")
	f.exec("ALTER DATABASE " + db.Name + " SET default_transaction_isolation = 'repeatable read'")
	s := open(t, Options{URL: db.URL})
	for name, p := range s.Pools() {
		var level string
		require.NoError(t, p.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&level))
		require.Equal(t, "read committed", level, name)
	}
}

func TestLeaseHasConnectionsOfItsOwn(t *testing.T) {
	f := parallel(t)
	w := f.worker(time.Hour)
	for _, p := range []*pgxpool.Pool{f.api.Pool, f.hot.Pool, f.write.Pool} {
		for range p.Config().MaxConns {
			c := storetest.Must(p.Acquire(t.Context()))(t)
			defer c.Release()
		}
	}
	ctx := waittest.Context(t)
	require.NoError(t, f.Renew(ctx, w, time.Hour))
	f.ok(f.Processes(ctx))
}

func TestConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	most := hintConns
	for _, p := range open(t, Options{URL: storetest.New(t).URL, APIConns: 10}).Pools() {
		most += int(p.Config().MaxConns)
	}
	require.Equal(t, most, Connections(10, 1))
}
