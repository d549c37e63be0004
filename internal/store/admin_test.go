package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// seedAdmin makes n ended tasks of tenants t0 to t9, one in a hundred of them failed, a thousand open ones, and audit rows.
func seedAdmin(t *testing.T, f *fixture, n int) {
	t.Helper()
	f.ok(f.EnsurePartitions(t.Context()))
	_, err := f.conn().PgConn().Exec(t.Context(), strings.ReplaceAll(`
		INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect)
		SELECT `+presentID+`, 'a' || i % 3, 't' || i % 10, 'o' || i % 100, 'ctx' || i % 500, CASE WHEN i % 100 = 0 THEN 6 ELSE 5 END, 4, 4, '0.3'
		  FROM generate_series(1, %d) i;
		INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect)
		SELECT `+presentID+`, 'a0', 't1', 'o1', 'open', 3, 4, 4, '0.3' FROM generate_series(1000001, 1001000) i;
		INSERT INTO holdfast.admin_jobs (id, action, dry_run, filter, options, reason, actor, position, ended_at)
		SELECT gen_random_uuid(), 'hold', false, '{}', '{}', 'x', '{}', gen_random_uuid(), now() FROM generate_series(1, 1000);
		ANALYZE`, "%d", fmt.Sprint(n))).ReadAll()
	require.NoError(t, err)
}

// A page passes over a bounded number of tasks, and its next one goes on where it has stopped.
func TestAdminLists(t *testing.T) {
	f := parallel(t)
	f.windowTasks = 2000
	seedAdmin(t, f, 4500)
	defer f.exec("TRUNCATE holdfast.tasks") // they have no logs
	// Ten were created in each millisecond: windows end between milliseconds.
	f.exec(`UPDATE holdfast.tasks t
		SET id = (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - x.n / 10), 12, '0') || substr(replace(t.id::text, '-', ''), 13))::uuid
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM holdfast.tasks) x WHERE x.id = t.id`)
	op := f.Operator(task.Caller{}, false)
	pages := func(op *Operator, filter AdminFilter, limit int) (all []task.ID, pages int) {
		var from task.ID
		forward := func(a, b task.ID) bool { return (strings.Compare(a.String(), b.String()) < 0) == filter.Oldest }
		for {
			page := storetest.Must(op.List(t.Context(), &filter, from, limit))(t)
			require.LessOrEqual(t, len(page.Tasks), limit)
			for _, x := range page.Tasks {
				require.True(t, filter.Matches(x.Task))
				require.True(t, len(all) == 0 || forward(all[len(all)-1], x.Task.ID), "in order, and none twice")
				all = append(all, x.Task.ID)
			}
			if pages++; page.Next.IsZero() {
				return all, pages
			}
			require.True(t, from.IsZero() || forward(from, page.Next))
			from = page.Next
		}
	}
	failed := func(op *Operator, filter AdminFilter, limit int) (n, _ int) {
		newest, count := pages(op, filter, limit)
		filter.Oldest = true
		oldest, _ := pages(op, filter, limit)
		slices.Reverse(oldest)
		require.Equal(t, newest, oldest, "both orders have the same tasks")
		return len(newest), count
	}
	n, count := failed(op, AdminFilter{States: []task.State{task.StateFailed}}, 10)
	require.Equal(t, 45, n)
	require.GreaterOrEqual(t, count, 5)
	n, _ = failed(op, AdminFilter{ContextID: "ctx100"}, 4)
	require.Equal(t, 9, n)
	n, _ = failed(op, AdminFilter{States: []task.State{task.StateInputRequired}}, 300)
	require.Equal(t, 1000, n)
	n, _ = failed(op, AdminFilter{Until: time.Unix(0, 0)}, 300)
	require.Zero(t, n)
	n, _ = failed(op, AdminFilter{Owner: Among{Is: []string{"o1"}}}, 300)
	require.Equal(t, 1045, n)
	n, _ = failed(op, AdminFilter{Owner: Among{Is: []string{"o1", "o2"}}, Agent: Among{Not: []string{"a0"}}, Tenant: Among{Not: []string{"t1"}}}, 300)
	require.Equal(t, 30, n)
	hour, retried := time.Hour, true
	n, _ = failed(op, AdminFilter{MinDuration: hour}, 300)
	require.Zero(t, n)
	n, _ = failed(op, AdminFilter{MaxDuration: hour, Retried: new(bool)}, 300)
	require.Equal(t, 5500, n)
	n, _ = failed(op, AdminFilter{Retried: &retried}, 300)
	require.Zero(t, n)

	f.windowTasks = 95
	n, count = failed(op, AdminFilter{States: []task.State{task.StateFailed}}, 10)
	require.Equal(t, 45, n)
	require.GreaterOrEqual(t, count, 9, "a page stops after 5 windows")
	f.windowTasks = windowTasks

	counts := storetest.Must(op.Count(t.Context(), &AdminFilter{}))(t)
	require.Equal(t, map[task.State]int64{task.StateCompleted: 4455, task.StateFailed: 45, task.StateInputRequired: 1000}, counts.ByState)
	require.True(t, counts.Since.IsZero())
	require.Equal(t, 24*time.Minute, counts.Width)
	require.EqualValues(t, 45, counts.Created[task.StateFailed][countIntervals-1], "all were created just now")
	counts = storetest.Must(op.Count(t.Context(), &AdminFilter{ContextID: "ctx100"}))(t)
	require.EqualValues(t, 9, counts.ByState[task.StateFailed])

	// An operator of one tenant sees that one only, with and without row-level security.
	require.Empty(t, f.WithoutRowSecurity())
	plain := open(t, Options{URL: f.url})
	for _, s := range []*Store{f.Store, plain} {
		own := s.Operator(task.Caller{Tenant: "t1", Subject: "op"}, true)
		n, _ = failed(own, AdminFilter{}, 500)
		require.Equal(t, 1450, n)
		n, _ = failed(own, AdminFilter{Tenant: Among{Is: []string{"t2"}}}, 500)
		require.Zero(t, n)
		counts := storetest.Must(own.Count(t.Context(), &AdminFilter{}))(t)
		require.Equal(t, map[task.State]int64{task.StateCompleted: 450, task.StateInputRequired: 1000}, counts.ByState)
		foreign := scan[string](f, "SELECT id::text FROM holdfast.tasks WHERE tenant = 't2' LIMIT 1")
		require.ErrorIs(t, errOf(own.Find(t.Context(), foreign)), task.NotFound)
		mine := scan[string](f, "SELECT id::text FROM holdfast.tasks WHERE tenant = 't1' LIMIT 1")
		f.ok(own.Find(t.Context(), mine))
	}
}

// Only one process works on a job. When its claim is over, another one continues with the same batch.
func TestJobsAreFenced(t *testing.T) {
	f := parallel(t)
	by := task.Caller{Tenant: "t", Subject: "op", Method: task.MethodOperator, Credential: "k", Reason: "because"}
	own := f.Operator(by, true)
	j := storetest.Must(own.AddJob(t.Context(), &Job{Action: "hold", Filter: json.RawMessage(`{"agent":"a"}`), Options: json.RawMessage(`{}`)}, task.ID{}, 0))(t)
	require.Equal(t, by, j.Actor)
	require.Equal(t, "t", *j.Tenant)
	stranger := f.Operator(task.Caller{Tenant: "other"}, true)
	require.ErrorIs(t, errOf(stranger.Job(t.Context(), j.ID)), task.NotFound)
	require.ErrorIs(t, errOf(stranger.CancelJob(t.Context(), j.ID)), task.NotFound)
	require.Empty(t, storetest.Must(stranger.Jobs(t.Context(), task.ID{}, 10))(t))

	first := storetest.Must(f.ClaimJob(t.Context(), NewID(), time.Hour))(t)
	require.Equal(t, j.ID, first.ID)
	require.Nil(t, storetest.Must(f.ClaimJob(t.Context(), NewID(), time.Hour))(t))
	batch := []task.ID{NewID(), NewID()}
	f.ok(f.PlanJob(t.Context(), first, batch, batch[1], 2, time.Hour))
	f.exec("UPDATE holdfast.admin_jobs SET claimed_until = now() - interval '1 second'")
	second := storetest.Must(f.ClaimJob(t.Context(), NewID(), time.Hour))(t)
	require.Equal(t, batch, second.Batch)
	require.EqualValues(t, 2, second.Matched)
	require.ErrorIs(t, errOf(f.PlanJob(t.Context(), first, nil, batch[1], 1, time.Hour)), task.LeaseLost)
	require.ErrorIs(t, errOf(f.RecordJob(t.Context(), first, nil, 2, 0, 0, nil, time.Hour)), task.LeaseLost)
	require.NoError(t, f.EndJob(t.Context(), first))
	f.ok(own.CancelJob(t.Context(), j.ID))
	f.ok(f.RecordJob(t.Context(), second, batch[1:], 1, 0, 0, nil, -time.Second))
	second = storetest.Must(f.ClaimJob(t.Context(), NewID(), time.Hour))(t)
	require.Equal(t, batch[1:], second.Batch, "the rest")
	require.True(t, storetest.Must(f.RecordJob(t.Context(), second, nil, 0, 0, 1, []JobFailure{{"x", "y"}}, time.Hour))(t))
	require.NoError(t, f.EndJob(t.Context(), second))
	j = storetest.Must(own.Job(t.Context(), j.ID))(t)
	require.Equal(t, []int64{2, 1, 0, 1}, []int64{j.Matched, j.Done, j.Skipped, j.Failed})
	require.Equal(t, []JobFailure{{"x", "y"}}, j.Failures)
	require.False(t, j.EndedAt.IsZero())
	require.Equal(t, []string{"job.created", "job.canceled"}, []string{
		scan[string](f, "SELECT action FROM holdfast.v_audit WHERE reason = 'because' AND subject = 'op' ORDER BY at, chain, n LIMIT 1"),
		scan[string](f, "SELECT action FROM holdfast.v_audit WHERE reason = 'because' AND subject = 'op' ORDER BY at DESC, chain DESC, n DESC LIMIT 1"),
	})
}

// The audit log is read in pages, the newest row first, without a gap.
func TestAdminAudit(t *testing.T) {
	f := parallel(t)
	op := f.Operator(task.Caller{Subject: "op", Reason: "r"}, false)
	h := f.create(fresh("a"))
	for i := range 20 {
		require.NoError(t, op.Hold(t.Context(), h.ID, i%2 == 0))
	}
	var got []AuditRow
	for place := (AuditPlace{}); ; {
		rows := storetest.Must(f.Audit(t.Context(), place, time.Time{}, 3))(t)
		if len(rows) == 0 {
			break
		}
		got = append(got, rows...)
		place = rows[len(rows)-1].AuditPlace
	}
	require.Len(t, got, 21)
	for i := range got[1:] {
		require.False(t, got[i+1].At.After(got[i].At))
	}
	require.Contains(t, string(got[0].Entries), `"reason":"r"`)
	require.Len(t, storetest.Must(f.Audit(t.Context(), AuditPlace{}, got[5].At, 100))(t), 6)
}

// begins adds transactions to an explained database.
type begins struct {
	querier
	explained *explained
}

func (b begins) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return b.explained.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks it
}

// The pages of an artifact read what they show: not all that follows, again for each page.
func TestPagesOfAnArtifactReadOnlyTheirChunks(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	var want []string
	add := func(id string, n int) {
		evs := make([]*task.Event, n)
		for i := range evs {
			evs[i] = chunkOf(id)
			evs[i].Append = i > 0 || id == "long" && len(want) > 0
			evs[i].Artifact.Parts = []task.Part{task.Text(fmt.Sprintf("%s %d", id, len(want)))}
			if id == "long" {
				want = append(want, evs[i].Artifact.Parts[0].Text)
			}
		}
		p.must(t, evs...)
	}
	for range 5 {
		add("long", 600)
	}
	for range 3 {
		add("between", 700)
	}
	add("long", 1)
	o := f.Operator(task.Caller{Subject: "root"}, false)
	at := storetest.Must(o.Find(t.Context(), p.c.Task.ID.String()))(t)
	list, _ := must2(o.Artifacts(t.Context(), at, "long", 1))(t)
	x := &explained{f: f}
	o.sees.db = begins{f.api, x}
	var got []string
	pages := 0
	for after, more := list[0].Base-1, true; more; pages++ {
		var evs []AdminEvent
		evs, more = must2(o.Chunks(t.Context(), at, &list[0], after))(t)
		require.LessOrEqual(t, len(evs), chunkPage)
		for i := range evs {
			e := storetest.Must(at.Decoded(&evs[i]))(t)
			got, after = append(got, e.Artifact.Parts[0].Text), e.Seq
		}
	}
	require.Equal(t, want, got)
	t.Logf("%d pages of chunks read %d of the database", pages, x.pages)
	require.Less(t, x.pages, 400)
}
