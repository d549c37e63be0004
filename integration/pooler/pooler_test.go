package pooler

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// newDatabase makes a database for a pooler.
func newDatabase(t *testing.T) *clustertest.DB {
	t.Helper()
	db := clustertest.NewDB(t)
	db.SetForPooler()
	return db
}

// crowd sends tasks to the replicas in turn, and returns a function that waits until every acknowledged one is completed.
func crowd(t *testing.T, n int, replicas ...*clustertest.Replica) (completed func() (acknowledged int)) {
	t.Helper()
	var tasks []string
	for i := range n {
		res, err := replicas[i%len(replicas)].TrySend(a2atest.V03, a2atest.Say("chunks=20 size=20 delay=10ms").Detached())
		if err == nil {
			tasks = append(tasks, res.Task())
		}
	}
	return func() int {
		t.Helper()
		for i, task := range tasks {
			require.Equal(t, "completed", replicas[(i+1)%len(replicas)].Settled(task).State())
		}
		return len(tasks)
	}
}

// With the direct URL for LISTEN, all works through a pooler in transaction mode, which may also die.
func TestReplicasBehindPooler(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	b := clustertest.NewPooler(t, db.URL, "default_pool_size = 10")
	env := []string{"HOLDFAST_LISTEN_DATABASE_URL=" + db.URL}
	x, y := clustertest.Pair(t, clustertest.Options{DB: b.URL, Env: env})

	require.Equal(t, 20, crowd(t, 20, x, y)())
	first := x.Stream(a2atest.V03, a2atest.Say("chunks=50 size=20 delay=10ms"))
	task := first.UntilState("working").Task()
	events := y.Resume(task, 0).Rest()
	db.Holds(task, events, 50)

	held := x.Stream(a2atest.V03, a2atest.Say("hold")).UntilState("working").Task()
	require.Equal(t, "canceled", y.Cancel(held).State())

	status := doctor(t, b.URL, env...)
	for _, check := range []string{"database", "notify", "session"} {
		require.Equal(t, "ok", status[check].Status, status[check])
	}

	completed := crowd(t, 20, x, y)
	b.Kill()
	b.Start()
	require.Equal(t, 20, completed())
	db.Sound()
}

type finding struct{ Check, Status, Detail, Advice string }

func doctor(t *testing.T, database string, env ...string) map[string]finding {
	t.Helper()
	res := clustertest.Command(t, t.TempDir(), append(env, "HOLDFAST_DATABASE_URL="+database), "doctor", "-o", "json", "--timeout", "2m")
	var d struct{ Checks []finding }
	require.NoError(t, json.Unmarshal([]byte(res.Out), &d), res.Err)
	out := map[string]finding{}
	for _, c := range d.Checks {
		out[c.Check] = c
	}
	return out
}

// Without the direct URL the server says what to set and migrates nothing, also if the pooler ignores parameters.
func TestPoolerAsTheOnlyURL(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"refuses parameters": "",
		"ignores parameters": "ignore_startup_parameters = holdfast.direct, timezone, statement_timeout, lock_timeout, jit, enable_seqscan, " +
			"plan_cache_mode, default_transaction_isolation, idle_in_transaction_session_timeout, synchronous_commit",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			b := clustertest.NewPooler(t, db.URL, "default_pool_size = 10\n"+more)
			status := doctor(t, b.URL)
			require.Equal(t, "fail", status["session"].Status, status)
			require.Contains(t, status["session"].Advice, "HOLDFAST_LISTEN_DATABASE_URL")

			db.Exec("DROP SCHEMA holdfast CASCADE")
			for _, verb := range []string{"serve", "migrate"} {
				res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + b.URL, "HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}, verb)
				require.NotZero(t, res.Code)
				require.Contains(t, res.Out+res.Err, "database_url leads to a pooler; set HOLDFAST_LISTEN_DATABASE_URL to PostgreSQL itself")
				require.False(t, clustertest.One[bool](db, "SELECT to_regnamespace('holdfast') IS NOT NULL"), "%s migrated nothing", verb)
			}
			res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + b.URL, "HOLDFAST_LISTEN_DATABASE_URL=" + db.URL}, "migrate")
			require.Zero(t, res.Code, res.Err)
		})
	}
}

// A server is told to prepare statements although the pooler cannot keep them: it gets odd errors (42P05, 26000). It
// stops preparing and repeats what it acknowledged, so no task fails.
func TestPreparedStatementsBehindPooler(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	b := clustertest.NewPooler(t, db.URL, "default_pool_size = 10")
	env := []string{"HOLDFAST_LISTEN_DATABASE_URL=" + db.URL}
	x := clustertest.Start(t, clustertest.Options{Name: "x", DB: b.URL + "&default_query_exec_mode=cache_statement", Env: env, Config: clustertest.Settings})
	require.NotZero(t, crowd(t, 40, x)())
	require.Contains(t, x.Log(), "the pooler loses prepared statements")
	require.Empty(t, clustertest.Column[string](db, "SELECT id::text FROM holdfast.tasks WHERE state <> 5"))
}
