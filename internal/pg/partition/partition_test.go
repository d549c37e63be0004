package partition_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func rows[T any](t *testing.T, c *pgx.Conn, sql string, args ...any) []T {
	t.Helper()
	r, err := c.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	out := storetest.Must(pgx.CollectRows(r, pgx.RowTo[T]))(t)
	return out
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	storetest.Must(c.PgConn().Exec(t.Context(), sql).ReadAll())(t, sql)
}

// blocked waits until a backend waits for a lock.
func blocked(t *testing.T, c *pgx.Conn, pid uint32) {
	t.Helper()
	waittest.Eventually(t, "a session is blocked", func() error {
		waits := rows[bool](t, c, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", pid)[0]
		return waittest.Unless(waits, "it is not")
	})
}

var (
	old  = time.Date(2020, 1, 10, 0, 0, 0, 0, time.UTC)
	next = time.Date(2020, 2, 10, 0, 0, 0, 0, time.UTC)
)

// ofOld is a table's partition of January 2020.
func ofOld(t *testing.T, c *pgx.Conn, parent string) partition.Partition {
	t.Helper()
	for _, f := range partition.Families {
		all := storetest.Must(partition.List(t.Context(), c, f))(t)
		for _, p := range all {
			if p.Parent == parent && !p.From.After(old) && p.To.After(old) {
				return p
			}
		}
	}
	t.Fatalf("%s has no partition of %s", parent, old)
	return partition.Partition{}
}

func TestTenProcessesCreatePartitions(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var g errgroup.Group
	var mu sync.Mutex
	var created []string
	for range 10 {
		c := storetest.Connect(t, db.URL)
		g.Go(func() error {
			for _, f := range partition.Families {
				ensure := func() ([]string, error) {
					return partition.Ensure(t.Context(), c, f, partition.Day, old, old.AddDate(0, 0, 3))
				}
				names, err := ensure()
				// Another one may take longer than they wait. A server comes again, too.
				for tries, pg := 0, (*pgconn.PgError)(nil); tries < 20 && errors.As(err, &pg) && pg.Code == "55P03"; tries++ {
					names, err = ensure()
				}
				if err != nil {
					return err
				}
				mu.Lock()
				created = append(created, names...)
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	slices.Sort(created)
	require.Equal(t, slices.Compact(slices.Clone(created)), created, "each partition is created once")
	require.Len(t, created, 3*6)
	for _, f := range partition.Families {
		names := storetest.Must(partition.Ensure(t.Context(), storetest.Connect(t, db.URL), f, partition.Month, old, old.AddDate(0, 0, 3)))(t)
		require.Empty(t, names, "another width does not change existing partitions")
	}
}

// Each creation makes all sessions plan again, so partitions are created several at a time.
func TestEnsureAheadCreatesSeveralAtOnce(t *testing.T) {
	t.Parallel()
	c := storetest.Connect(t, storetest.New(t).URL)
	const minute = partition.Width(time.Minute) // 3 minutes ahead
	for _, step := range []struct{ minutes, created int }{{0, 1 + 3}, {1, 0}, {2, 2}, {3, 0}, {4, 2}} {
		names := storetest.Must(partition.EnsureAhead(t.Context(), c, partition.Tasks, minute, old.Add(time.Duration(step.minutes)*time.Minute)))(t)
		require.Len(t, names, 3*step.created, "three tables, after %d minutes", step.minutes)
	}
}

// A partition has all constraints and indexes of its model.
func TestPartitionIsLikeItsModel(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	require.NoError(t, storetest.Partitions(t.Context(), db.URL, old, old.Add(time.Hour)))
	c := storetest.Connect(t, db.URL)
	for parent, model := range map[string]string{
		"tasks_dated": "tasks_kept", "events_log": "events_kept", "events_artifacts": "events_kept",
		"idempotency_keys": "idempotency_keys", "push_attempts": "push_attempts", "audit_log": "audit_log",
	} {
		p := ofOld(t, c, parent)
		for what, sql := range map[string]string{
			"columns": `SELECT format('%s %s %s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull, attcompression, attstorage,
				pg_get_expr(d.adbin, d.adrelid)) FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
				WHERE attrelid = $1::regclass AND attnum > 0 ORDER BY 1`,
			"constraints": `SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c' ORDER BY 1`,
			"indexes": `SELECT format('%s %s %s', indisunique, indisprimary, regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', ''))
				FROM pg_index WHERE indrelid = $1::regclass AND indisvalid ORDER BY 1`,
			"triggers": `SELECT format('%s %s %s', tgname, tgenabled, tgtype) FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal ORDER BY 1`,
		} {
			want, have := rows[string](t, c, sql, "holdfast."+model), rows[string](t, c, sql, "holdfast."+p.Table)
			require.Equal(t, want, have, "%s of %s", what, p.Table)
			if what == "indexes" || what == "columns" {
				require.NotEmpty(t, have, "%s of %s", what, p.Table)
			}
		}
		// The partition's indexes belong to the parent's, so that a query on the parent uses them.
		orphans := rows[string](t, c, `SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
			WHERE i.indrelid = 'holdfast.`+parent+`'::regclass AND NOT EXISTS (SELECT FROM pg_inherits h JOIN pg_index l ON l.indexrelid = h.inhrelid
			WHERE h.inhparent = i.indexrelid AND l.indrelid = 'holdfast.`+p.Table+`'::regclass)`)
		require.Empty(t, orphans, parent)
	}
	compression := `SELECT attcompression::text FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'payload'`
	require.Equal(t, rows[string](t, c, compression, "holdfast.task_events"), rows[string](t, c, compression, "holdfast."+ofOld(t, c, "events_log").Table))
	_, err := c.Exec(t.Context(), "DELETE FROM holdfast."+ofOld(t, c, "audit_log").Table)
	require.ErrorContains(t, err, "append-only")
}

// work is the normal load of a server: it fails if a statement had to wait or to be retried.
func work(t *testing.T, url string) {
	t.Helper()
	repeated := make(chan string, 100)
	s := storetest.Must(store.Open(t.Context(), store.Options{
		URL: url + "&statement_timeout=0&connect_timeout=3600", APIConns: 2, RowSecurity: true, Observer: store.Observer{Retried: func(kind string) { repeated <- kind }},
	}))(t)
	defer s.Close(context.Background())
	ctx := t.Context()
	worker := store.NewID()
	require.NoError(t, s.Register(ctx, store.Process{ID: worker, Name: "w", Version: "1", Roles: "worker"}, time.Hour))
	caller := s.As(task.Caller{Tenant: "t", Subject: "o"}, store.Visibility{Agent: "a"})
	for i := range 3 {
		id := store.NewID()
		storetest.Must(caller.Create(ctx, &store.NewTask{
			Task:        task.Task{ID: id, PublicID: id.String(), Agent: "a", Tenant: "t", Owner: "o", ContextID: "c", Dialect: "1.0"},
			Message:     &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
			Idempotency: store.Idempotency{Key: id.String(), Hash: []byte{byte(i)}},
		}))(t)
		won := storetest.Must(s.Claim(ctx, worker, []store.Demand{{Agent: "a", Slots: 1}}))(t)
		require.Len(t, won, 1)
		done := make(chan error, 1)
		s.Append(&store.Append{
			Task: id, Agent: "a", Fence: won[0].Fence, Done: func(_ bool, err error) { done <- err },
			Events: []*task.Event{
				{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text("y")}}},
				{Kind: task.EventStatus, State: task.StateCompleted},
			},
		})
		require.NoError(t, <-done)
		read := storetest.Must(caller.ReadTask(ctx, id.String(), true))(t)
		require.Equal(t, task.StateCompleted, read.Status.State)
		page, _, err := caller.List(ctx, &store.Listing{After: store.Newest, Limit: 10})
		require.NoError(t, err)
		require.NotEmpty(t, page)
		_, _, err = s.Rescue(ctx, 0, true)
		require.NoError(t, err)
	}
	require.Empty(t, repeated)
}

const ended = `
	INSERT INTO holdfast.tasks (id, agent, context_id, state, last_seq, status_seq, attempt, run_ordinal, turns, dialect)
	VALUES ('016f8e66-0000-7000-8000-000000000001', 'a', 'c', 5, 3, 3, 1, 2, 1, '1.0');
	INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, artifact_id) VALUES
	('016f8e66-0000-7000-8000-000000000001', 1, 1, NULL, 0, NULL), ('016f8e66-0000-7000-8000-000000000001', 2, 3, NULL, 1, 'a'),
	('016f8e66-0000-7000-8000-000000000001', 3, 2, 5, 1, NULL)`

// A detach waits for readers, and no statement waits for the detach. After a kill the next process continues.
func TestDetachAndDrop(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"tasks_dated", "events_log", "events_artifacts", "idempotency_keys", "push_attempts", "audit_log"} {
		for _, interrupted := range []bool{false, true} {
			name := parent
			if interrupted {
				name += ", interrupted"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := storetest.New(t)
				require.NoError(t, storetest.Partitions(t.Context(), db.URL, old, old.Add(time.Hour)))
				look, reader, detacher := storetest.Connect(t, db.URL), storetest.Connect(t, db.URL), storetest.Connect(t, db.URL)
				exec(t, look, ended)
				p := ofOld(t, look, parent)

				exec(t, reader, "BEGIN; SELECT count(*) FROM holdfast."+parent)
				detached := make(chan error, 1)
				go func() { detached <- partition.Detach(context.Background(), detacher, p) }()
				blocked(t, look, detacher.PgConn().PID())
				work(t, db.URL)
				// The tasks of a partition are invisible once its detach has begun. Their events are of a period that is going.
				sound := func() {
					if parent == "tasks_dated" {
						require.NoError(t, invarianttest.Check(t.Context(), db.URL))
					}
				}
				sound()
				if interrupted {
					require.Equal(t, []bool{true}, rows[bool](t, look, "SELECT pg_cancel_backend($1)", detacher.PgConn().PID()))
					require.ErrorContains(t, waittest.Within(t, "the detach", detached), "cancel")
					p = ofOld(t, look, parent)
					require.True(t, p.Detaching)
					sound()
					work(t, db.URL)
					require.NoError(t, storetest.Partitions(t.Context(), db.URL, next, next.Add(time.Hour)), "other partitions are created meanwhile")
					exec(t, reader, "COMMIT")
					require.NoError(t, partition.Detach(t.Context(), detacher, p))
				} else {
					exec(t, reader, "COMMIT")
					require.NoError(t, waittest.Within(t, "the detach", detached))
				}
				work(t, db.URL)
				sound()

				// A detach that a killed process began is finished by the next process.
				i := slices.IndexFunc(partition.Families, func(f partition.Family) bool {
					names := storetest.Must(partition.Detached(t.Context(), look, f))(t)
					return slices.Equal(names, []string{p.Table})
				})
				require.GreaterOrEqual(t, i, 0)
				require.Empty(t, rows[int](t, look, "SELECT 1 FROM holdfast."+parent+" x WHERE tableoid = 'holdfast."+p.Table+"'::regclass"))
				require.NoError(t, partition.Drop(t.Context(), detacher, p.Table))
				require.NoError(t, partition.Drop(t.Context(), detacher, p.Table), "again")
				require.Empty(t, storetest.Must(partition.Detached(t.Context(), look, partition.Families[i]))(t))
				work(t, db.URL)
			})
		}
	}
}

// A creation that waits for a maintenance command makes no reader or writer wait with it.
func TestCreationDelaysNoStatement(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	look, reader, maintainer, creator := storetest.Connect(t, db.URL), storetest.Connect(t, db.URL), storetest.Connect(t, db.URL), storetest.Connect(t, db.URL)
	exec(t, reader, "BEGIN; SELECT count(*) FROM holdfast.task_events; SELECT count(*) FROM holdfast.tasks; SELECT count(*) FROM holdfast.idempotency_keys")
	for _, f := range partition.Families {
		require.NotEmpty(t, storetest.Must(partition.Ensure(t.Context(), creator, f, partition.Day, old, old.Add(time.Hour)))(t))
	}
	exec(t, maintainer, "BEGIN; LOCK TABLE holdfast.events_log IN SHARE UPDATE EXCLUSIVE MODE") // as ANALYZE does
	created := make(chan error, 1)
	go func() {
		_, err := partition.Ensure(context.Background(), creator, partition.Tasks, partition.Month, next, next.Add(time.Hour))
		created <- err
	}()
	blocked(t, look, creator.PgConn().PID())
	work(t, db.URL)
	require.ErrorContains(t, <-created, "lock timeout")
	exec(t, maintainer, "COMMIT")
	require.NoError(t, storetest.Partitions(t.Context(), db.URL, next, next.Add(time.Hour)))
}

// PostgreSQL leaves the last partition out of some statements while one is detached. Lists show the rows of all others.
func TestListsAreWholeDuringDetach(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	future := time.Date(2093, 1, 10, 0, 0, 0, 0, time.UTC) // of a server with a wrong clock
	for _, at := range []time.Time{old, next, future} {
		require.NoError(t, storetest.Partitions(t.Context(), db.URL, at, at.Add(time.Hour)))
	}
	look, reader, detacher := storetest.Connect(t, db.URL), storetest.Connect(t, db.URL), storetest.Connect(t, db.URL)
	want := []string{"tasks_20200201", "tasks_20930101"}
	for _, at := range []time.Time{next, future} {
		storetest.Must(look.Exec(t.Context(), `INSERT INTO holdfast.tasks (id, agent, context_id, state, last_seq, status_seq, dialect)
			VALUES ($1, 'a', 'c', 5, 1, 1, '1.0')`, partition.FirstID(at)))(t)
	}
	const listed = `SELECT p.tableoid::regclass::text FROM unnest('{5,1}'::smallint[]) s (state) CROSS JOIN LATERAL (
		SELECT t.tableoid, t.id FROM holdfast.tasks t WHERE t.state = s.state AND t.agent = 'a' ORDER BY t.status_at DESC, t.id LIMIT 10) p ORDER BY p.id`
	exec(t, look, "SET search_path = holdfast")
	require.Equal(t, want, rows[string](t, look, listed), "before the detach")

	exec(t, reader, "BEGIN; SELECT count(*) FROM holdfast.tasks_dated")
	detached := make(chan error, 1)
	p := ofOld(t, look, "tasks_dated")
	go func() { detached <- partition.Detach(context.Background(), detacher, p) }()
	blocked(t, look, detacher.PgConn().PID())
	require.Equal(t, want, rows[string](t, look, listed), "during the detach")
	require.Equal(t, []bool{true}, rows[bool](t, look, "SELECT pg_cancel_backend($1)", detacher.PgConn().PID()))
	require.ErrorContains(t, <-detached, "cancel")
	require.Equal(t, want, rows[string](t, look, listed), "after a detach that was canceled")
	exec(t, reader, "COMMIT")
	require.NoError(t, partition.Detach(t.Context(), detacher, ofOld(t, look, "tasks_dated")))
	require.Equal(t, want, rows[string](t, look, listed), "after the detach")
}

// A write that finds no partition has it created, for any time of its row.
func TestWritesCreateMissingPartitions(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	c := storetest.Connect(t, db.URL)
	for _, f := range partition.Families {
		all := storetest.Must(partition.List(t.Context(), c, f))(t)
		for _, p := range all {
			storetest.Must(c.Exec(t.Context(), "DROP TABLE holdfast."+p.Table))(t)
		}
	}
	s := storetest.Must(store.Open(t.Context(), store.Options{URL: db.URL}))(t)
	defer s.Close(context.Background())
	worker := store.NewID()
	require.NoError(t, s.Register(t.Context(), store.Process{ID: worker, Name: "w", Version: "1", Roles: "worker"}, time.Hour))
	for _, at := range []time.Time{time.Now(), time.Now().AddDate(0, 7, 0), time.Date(2011, 5, 6, 7, 8, 9, 0, time.UTC)} {
		id := store.NewID()
		first := partition.FirstID(at)
		copy(id[:6], first[:])
		created := storetest.Must(s.Create(t.Context(), &store.NewTask{
			Task:        task.Task{ID: id, PublicID: "of " + at.String(), Agent: "a", ContextID: "c", Dialect: "1.0"},
			ClientID:    true,
			Message:     &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
			Idempotency: store.Idempotency{Key: at.String(), Hash: []byte{1}},
			Slot:        store.Slot{Worker: worker},
		}))(t, at)
		done := make(chan error, 1)
		s.Append(&store.Append{
			Task: id, Agent: "a", Fence: store.FirstFence(&task.Task{CreatedAt: created.At}), Done: func(_ bool, err error) { done <- err },
			Events: []*task.Event{
				{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text("y")}}},
				{Kind: task.EventStatus, State: task.StateCompleted},
			},
		})
		require.NoError(t, <-done, at)
		month := partition.Month.Floor(at).Format("20060102")
		require.Equal(t, []string{"tasks_" + month}, rows[string](t, c, "SELECT tableoid::regclass::text FROM holdfast.tasks WHERE id = $1", id), at)
	}
}

// Holdfast treats a partition as its own only if it wrote the bounds.
func TestForeignBounds(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	c := storetest.Connect(t, db.URL)
	exec(t, c, "CREATE TABLE holdfast.mine PARTITION OF holdfast.push_attempts FOR VALUES FROM (MINVALUE) TO ('2001-01-01')")
	_, err := partition.List(t.Context(), c, partition.Attempts)
	require.ErrorContains(t, err, "partition mine has bounds that Holdfast did not set")
}

// A server that starts near midnight creates the partitions of both days on which keys are written then.
func TestKeysHavePartitionsAroundMidnight(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	c := storetest.Connect(t, db.URL)
	midnight := old
	for _, from := range []time.Duration{-6 * time.Minute, -5 * time.Minute, -time.Second, 0, time.Second, 2 * time.Minute, 5 * time.Minute, 6 * time.Minute, 12 * time.Hour} {
		starts := midnight.Add(from)
		storetest.Must(partition.EnsureAhead(t.Context(), c, partition.Keys, partition.Day, starts))(t)
		all := storetest.Must(partition.List(t.Context(), c, partition.Keys))(t)
		// A write may have begun a while before the server created the partitions for it.
		for _, writes := range []time.Time{starts.Add(-30 * time.Second), starts} {
			for _, day := range rows[time.Time](t, c, "SELECT holdfast.key_days($1)", writes) {
				require.True(t, slices.ContainsFunc(all, func(p partition.Partition) bool { return !p.From.After(day) && p.To.After(day) }),
					"no partition of %s for a key at %s", day.Format(time.DateOnly), writes)
			}
		}
		midnight = midnight.AddDate(0, 0, 30)
	}
}

// A role that owns no tables detaches through a function of the owner. It gives up before writers behind it, and comes again.
func TestDetachAsARoleThatOwnsNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	owner := storetest.Connect(t, db.URL)
	role := "server_" + strings.ToLower(rand.Text()[:8])
	do := func(c *pgx.Conn, sql string) {
		t.Helper()
		storetest.Must(c.Exec(t.Context(), sql))(t, sql)
	}
	do(owner, "CREATE ROLE "+role)
	t.Cleanup(func() {
		c := storetest.Must(pgx.Connect(context.Background(), db.URL))(t)
		defer func() { _ = c.Close(context.Background()) }()
		storetest.Must(c.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol))(t)
	})
	do(owner, "SELECT holdfast.admit_servers('"+role+"')")
	server := storetest.Connect(t, db.URL+"&role="+role)
	require.Len(t, storetest.Must(partition.Ensure(t.Context(), server, partition.Attempts, partition.Day, old, old.Add(time.Hour)))(t), 1)
	p := ofOld(t, server, "push_attempts")

	reader := storetest.Connect(t, db.URL)
	do(reader, "BEGIN")
	do(reader, "SELECT FROM holdfast.push_attempts")
	detached := make(chan error, 1)
	go func() { detached <- partition.Detach(context.Background(), server, p) }()
	writer := storetest.Connect(t, db.URL)
	for range 10 {
		do(writer, "DELETE FROM holdfast.push_attempts WHERE false")
	}
	do(reader, "COMMIT")
	require.NoError(t, waittest.Within(t, "the detach", detached))
	require.Equal(t, []string{p.Table}, storetest.Must(partition.Detached(t.Context(), owner, partition.Attempts))(t))
	require.NoError(t, partition.Drop(t.Context(), server, p.Table))
	require.NoError(t, partition.Drop(t.Context(), server, p.Table), "again")
	require.Zero(t, rows[int](t, owner, "SELECT count(*)::int FROM pg_class WHERE relname = $1", p.Table)[0])
}
