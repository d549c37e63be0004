package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A former primary that comes back as a standby accepts connections and refuses writes.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	f := openFixture(t, db.URL, "")
	admin, run := f.conn(), f.running("a")
	readOnly := func(setting string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "ALTER DATABASE "+db.Name+" "+setting)
		require.NoError(t, err)
	}
	readOnly("SET default_transaction_read_only = on")
	for _, choice := range []string{"", "any"} {
		url := db.URL
		if choice != "" {
			url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "target_session_attrs=" + choice
		}
		readOnly("SET default_transaction_read_only = on")
		s, err := Open(t.Context(), Options{URL: url, APIConns: 1})
		require.NoError(t, err)
		t.Cleanup(func() { s.Close(context.Background()) })
		_, err = s.Create(t.Context(), fresh("b"))
		require.ErrorIs(t, err, task.Unavailable)
		require.ErrorContains(t, err, "the database is read-only")
		require.ErrorContains(t, s.Health(t.Context()), "the database is read-only")
		readOnly("RESET default_transaction_read_only")
		p := &pen{s: s, c: run.c, ordinal: run.ordinal}
		p.must(t, chunk("1"))
		run.ordinal = p.ordinal
		eventually(t, "creates work again", func() bool {
			_, err := s.Create(t.Context(), fresh("b"))
			return err == nil
		})
		require.NoError(t, s.Health(t.Context()))
	}
}

// Readers never see the error of a write, and leave the server nevertheless.
func TestReadersLeaveReadOnlyServer(t *testing.T) {
	t.Parallel()
	f, proxy := newProxied(t)
	h := f.create(fresh("a"))
	before := f.api.Stat().NewConnsCount()
	stop := proxy.Fail("TaskCreate", "25006", "cannot execute INSERT in a read-only transaction")
	_, err := f.Create(t.Context(), fresh("b"))
	require.ErrorContains(t, err, "the database is read-only")
	stop()
	eventually(t, "reads use a new connection", func() bool {
		_, err := f.Header(t.Context(), h.ID)
		return err == nil && f.api.Stat().NewConnsCount() > before
	})
}

// A primary whose machine hangs accepts connections and answers nothing. The second host of the URL takes over.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	first, second := pgproxytest.New(t, url), pgproxytest.New(t, url)
	host := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	f := openFixture(t, url, host.ReplaceAllString(first.URL, host.FindString(first.URL)+","+host.FindString(second.URL)))
	f.bound(10 * time.Minute)
	run, w := f.running("a"), f.worker(time.Hour)
	first.Stall(true)
	defer first.Stall(false)
	queued := run.write(chunk("1"))
	renew := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return f.Renew(ctx, w, time.Hour)
	}
	require.ErrorIs(t, renew(), task.Unavailable)
	eventually(t, "the lease is renewed on the second server", func() bool { return renew() == nil })
	require.Equal(t, answer{}, await(t, queued))
	eventually(t, "the flush has ended", func() bool { return f.Health(t.Context()) == nil })
}

// A former primary that was silent comes back while another server takes writes, and this process has not noticed yet. It must not
// answer with what it knew before.
func TestServerOfALapsedLeaseIsNotRead(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	first, second := pgproxytest.New(t, url), pgproxytest.New(t, url)
	host := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	for name, to := range map[string]string{
		"several hosts": host.ReplaceAllString(first.URL, host.FindString(first.URL)+","+host.FindString(second.URL)), "one host": first.URL,
	} {
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
			require.NoError(t, f.Register(t.Context(), Process{ID: NewID(), Name: "starting"}, time.Millisecond))
			time.Sleep(2 * time.Millisecond)
			require.NoError(t, try(), "nothing renews the lease of a server that starts")
			require.NoError(t, f.Renew(t.Context(), w, time.Millisecond))
			time.Sleep(2 * time.Millisecond)
			if name == "one host" { // there is no other server
				require.NoError(t, try())
				return
			}
			require.ErrorIs(t, try(), task.Unavailable)
			require.NoError(t, f.Renew(t.Context(), w, time.Hour))
			require.NoError(t, try())
			require.NoError(t, f.Renew(t.Context(), w, time.Millisecond))
			require.NoError(t, f.Unregister(t.Context(), w))
			time.Sleep(2 * time.Millisecond)
			require.NoError(t, try(), "nothing renews the lease of a server that stops")
		})
	}
}

// A transaction begins with a statement of its own.
func TestSilentDatabaseAtBegin(t *testing.T) {
	t.Parallel()
	f, proxy := newProxied(t)
	h := f.create(fresh("a"))
	f.bound(time.Second)
	proxy.Stall(true)
	defer proxy.Stall(false)
	done := make(chan error, 1)
	go func() { done <- f.SetPush(context.Background(), h.ID, hook("hook", "receiver"), 20) }()
	require.ErrorIs(t, await(t, done), task.Unavailable)
}

func TestReadinessNamesCause(t *testing.T) {
	t.Parallel()
	f, proxy := newProxied(t)
	require.NoError(t, f.Health(t.Context()))
	health := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return f.Health(ctx)
	}

	full := proxy.Fail("TaskCreate", "53100", "could not extend file: No space left on device")
	_, err := f.Create(t.Context(), fresh("a"))
	require.ErrorIs(t, err, task.Unavailable)
	require.ErrorContains(t, err, "the disk of the database is full")
	require.ErrorContains(t, health(), "the disk of the database is full")
	full()
	f.create(fresh("a"))
	eventually(t, "the disk has room", func() bool { return health() == nil })

	run := f.running("b")
	silent := proxy.Lose("EventsAppend", pgproxytest.Silence, 1)
	f.bound(2 * slowFlush)
	queued := run.write(chunk("1"))
	await(t, silent)
	eventually(t, "the write counts although other connections answer", func() bool {
		err := health()
		return err != nil && strings.Contains(err.Error(), "has not answered a write")
	})
	require.Equal(t, answer{}, await(t, queued))
	eventually(t, "the flush has ended", func() bool { return health() == nil })
	// The pool counts a broken connection until it is closed, for which it sends a cancel through the proxy.
	eventually(t, "the silent connection is closed", func() bool { return f.write.Stat().AcquiredConns() == 0 })

	f.bound(patience)
	proxy.Stall(true)
	for range 3 {
		require.ErrorContains(t, health(), "has not answered a commit")
	}
	require.LessOrEqual(t, f.write.Stat().AcquiredConns(), int32(1), "one probe at a time")
	proxy.Stall(false)
	eventually(t, "the replica is ready again", func() bool { return health() == nil })
}

// A pooler in transaction mode, a migration by another version, a disk that hiccups: the statement is right, and
// passes at the next try.
func TestOddErrorsPass(t *testing.T) {
	t.Parallel()
	for code, message := range map[string]string{
		"26000": "prepared statement does not exist", "42P05": "prepared statement already exists",
		"0A000": "cached plan must not change result type", "58030": "could not read block", "XX000": "could not open relation",
		"25P03": "terminating connection due to idle-in-transaction timeout", "25P04": "terminating connection due to transaction timeout",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			f, proxy := newProxied(t)
			once := func(kind, query string, do func()) {
				t.Helper()
				stop := proxy.Fail(query, code, message)
				f.ear.mu.Lock()
				f.ear.onRetry = func(retried string) {
					if retried == kind {
						stop()
					}
				}
				f.ear.mu.Unlock()
				do()
				f.ear.mu.Lock()
				defer f.ear.mu.Unlock()
				require.Positive(t, f.ear.repeated[kind], kind)
			}
			run := f.running("a")
			once("append", "EventsAppend", func() { run.must(t, status(task.StateInputRequired)) })
			once("message", "MessageAppend", func() {
				_, err := f.say(run.c.Task.ID, true)
				require.NoError(t, err)
			})
			once("create", "TaskCreate", func() { f.create(fresh("b")) })
		})
	}
}

// An error that stays is the statement's, so it does not stop the other runs forever.
func TestOddErrorsThatStayAreFinal(t *testing.T) {
	t.Parallel()
	f, proxy := newProxied(t)
	run := f.running("a")
	defer proxy.Fail("EventsAppend", "XX000", "unexpected")()
	require.ErrorContains(t, await(t, run.write(chunk("1"))).err, "unexpected")
}

func TestIsolationLevelIsPinned(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	f := openFixture(t, db.URL, "")
	f.exec("ALTER DATABASE " + db.Name + " SET default_transaction_isolation = 'repeatable read'")
	s, err := Open(t.Context(), Options{URL: db.URL})
	require.NoError(t, err)
	defer s.Close(t.Context())
	for name, p := range s.Pools() {
		var level string
		require.NoError(t, p.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&level))
		require.Equal(t, "read committed", level, name)
	}
}

func TestLeaseHasConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.worker(time.Hour)
	for _, p := range []*pgxpool.Pool{f.api.Pool, f.hot.Pool, f.write.Pool} {
		for range p.Config().MaxConns {
			c, err := p.Acquire(t.Context())
			require.NoError(t, err)
			defer c.Release()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, f.Renew(ctx, w, time.Hour))
	_, err := f.Processes(ctx)
	require.NoError(t, err)
}

// The numbers of docs/deployment.md are those of the code.
func TestConnectionsAreDocumented(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{URL: storetest.New(t).URL, APIConns: 10})
	require.NoError(t, err)
	defer s.Close(t.Context())
	most := hintConns
	for _, p := range s.Pools() {
		most += int(p.Config().MaxConns)
	}
	require.Equal(t, most, Connections(10, 1))
	doc, err := os.ReadFile("../../docs/deployment.md")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\| pool \| connections \| default \|.*?\n\n`).FindString(string(doc))
	sum := 0
	for _, row := range regexp.MustCompile(`\| (\d+) \|\n`).FindAllStringSubmatch(table, -1) {
		n, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		sum += n
	}
	require.Equal(t, most, sum)
	require.Contains(t, table, fmt.Sprintf("**%d**", most))
}
