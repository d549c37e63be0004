package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// lengthen repeats the last chunk of a task's log n times.
func (f *fixture) lengthen(id task.ID, n int) {
	f.t.Helper()
	c := f.conn()
	_, err := c.Exec(f.t.Context(), `WITH last AS (SELECT * FROM holdfast.task_events WHERE task = $1 AND kind = 3 ORDER BY seq DESC LIMIT 1)
		INSERT INTO holdfast.task_events (task, seq, kind, kept, attempt, append, last, artifact_id, payload)
		SELECT task, seq + i, kind, kept, attempt, true, last, artifact_id, payload FROM last, generate_series(1, $2::integer) i`, uuid.UUID(id), n)
	require.NoError(f.t, err)
	_, err = c.Exec(f.t.Context(), "UPDATE holdfast.tasks SET last_seq = last_seq + $2, run_ordinal = run_ordinal + $2 WHERE id = $1", uuid.UUID(id), n)
	require.NoError(f.t, err)
}

// TestReadsTakeTheirBytes reads a log of 12 MiB with and without memory for it.
func TestReadsTakeTheirBytes(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, chunk(strings.Repeat("x", 1<<20)))
	f.lengthen(p.c.Task.ID, 11)
	view := owner.bare(f.Store)
	budgets := limit.NewBudgets(256 << 20)
	budgets.Requests.Large.Patience = time.Millisecond
	list := func(a *limit.Account) (*task.Task, error) {
		l := mine()
		l.Artifacts = true
		page, _, err := view.List(limit.WithAccount(t.Context(), a), l)
		if err != nil {
			return nil, err
		}
		return page[0], nil
	}
	get := func(a *limit.Account) (*task.Task, error) {
		return view.ReadTask(limit.WithAccount(t.Context(), a), p.c.Task.PublicID, true)
	}
	for name, read := range map[string]func(*limit.Account) (*task.Task, error){"get": get, "list": list} {
		account := budgets.Open(limit.Holder{Agent: "caller"})
		got := storetest.Must(read(account))(t, name)
		require.Len(t, got.Artifacts[0].Parts[0].Text, 12<<20, name)
		require.InDelta(t, 3*12<<20, budgets.Requests.Large.Stat().Used, 4<<20, "%s: three times the log", name)
		account.Close()
		require.Zero(t, budgets.Requests.Large.Stat().Used, name)

		require.True(t, budgets.Requests.Large.TryTake(limit.Holder{Agent: "another"}, budgets.Requests.Large.Stat().Size-1<<20))
		account = budgets.Open(limit.Holder{Agent: "caller"})
		require.ErrorIs(t, errOf(read(account)), task.Unavailable, name)
		account.Close()
		require.Equal(t, budgets.Requests.Large.Stat().Size-1<<20, budgets.Requests.Large.Stat().Used, name)
		budgets.Requests.Large.Give(limit.Holder{Agent: "another"}, budgets.Requests.Large.Stat().Size-1<<20)

		account = limit.NewBudgets(64 << 20).Open(limit.Holder{Agent: "caller"})
		require.ErrorIs(t, errOf(read(account)), task.TooLarge, name)
	}
}

// TestListPassesLongLogs lists past a log that no statement could sort in memory.
func TestListPassesLongLogs(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	f := openFixture(t, url, with(url, "work_mem=2MB"))
	const chunks = 24_000
	ids := map[string]int{}
	for _, more := range []int{0, chunks, 0} {
		p := f.running("a")
		p.must(t, chunk(strings.Repeat("x", 100)))
		if more > 0 {
			f.lengthen(p.c.Task.ID, more)
		}
		ids[p.c.Task.PublicID] = more + 1
	}
	l := mine()
	l.Artifacts = true
	for more := true; more; {
		var page []*task.Task
		page, more = must2(owner.bare(f.Store).List(t.Context(), l))(t)
		require.NotEmpty(t, page)
		for _, got := range page {
			require.Len(t, got.Artifacts[0].Parts[0].Text, 100*ids[got.PublicID])
			delete(ids, got.PublicID)
			l.After = Place{At: got.Status.At, ID: got.ID}
		}
	}
	require.Empty(t, ids)
	c := f.conn()
	var files int
	sessions := func() (n int) {
		require.NoError(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").Scan(&n))
		return n
	}
	before := sessions()
	f.api.Reset() // sessions report when they end
	waittest.Eventually(t, "the end of the sessions", func() error { return waittest.Unless(sessions() < before, "there are still %d", before) })
	require.NoError(t, c.QueryRow(t.Context(), "SELECT temp_files FROM pg_stat_database WHERE datname = current_database()").Scan(&files))
	require.Zero(t, files, "statements that wrote to disk")
}

// TestPagesAfterAnEventAreLimitedInBytes reads large events, of which few fit a page.
func TestPagesAfterAnEventAreLimitedInBytes(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, chunk(strings.Repeat("x", 3<<20)))
	f.lengthen(p.c.Task.ID, 9)
	got, last := 0, task.Seq(0)
	for {
		evs := storetest.Must(f.EventsAfter(t.Context(), p.c.Task, task.Position{Seq: last}, 500))(t)
		if len(evs) == 0 {
			break
		}
		require.LessOrEqual(t, len(evs), 4, "3 MiB each")
		last = evs[len(evs)-1].Seq
		got += len(evs)
	}
	require.GreaterOrEqual(t, got, 10)
}

// TestCatchUpLeavesOutWhatCannotBeDecoded corrupts one log beside a healthy one.
func TestCatchUpLeavesOutWhatCannotBeDecoded(t *testing.T) {
	f := parallel(t)
	bad, good := f.running("a"), f.running("a")
	for _, p := range []*pen{bad, good} {
		p.must(t, chunk("x"), chunk("y"))
	}
	whole := f.log(bad.c.Task.ID)
	f.exec(`UPDATE holdfast.task_events SET payload = '{"parts": 7}' WHERE task = $1 AND kind = 3 AND seq = $2`, uuid.UUID(bad.c.Task.ID), int64(whole[len(whole)-1].Seq))
	read := storetest.Must(f.CatchUp(t.Context(), []Position{{Owner: bad.c.Task}, {Owner: good.c.Task}}, 100))(t)
	require.Contains(t, read.Unreadable, bad.c.Task.ID)
	require.Len(t, read.Unreadable, 1)
	require.Len(t, read.Events, len(whole)-1+len(f.log(good.c.Task.ID)))
}

// TestCatchUpIsLimitedInBytes catches up with eight logs of 2 MiB.
func TestCatchUpIsLimitedInBytes(t *testing.T) {
	f := parallel(t)
	var at []Position
	for range 8 {
		p := f.running("a")
		p.must(t, chunk(strings.Repeat("x", 2<<20)))
		at = append(at, Position{Owner: p.c.Task, After: task.Position{Seq: 1}})
	}
	read := storetest.Must(f.CatchUp(t.Context(), at, 100))(t)
	require.True(t, read.Cut)
	require.LessOrEqual(t, len(read.Events), 4)
	require.NotEmpty(t, read.Events)
}
