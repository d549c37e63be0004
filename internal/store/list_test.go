package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// seedLists fills the database with tasks of every state, of two owners and two agents, in contexts of every size.
// Some have equal status times, some were answered by a bare message, and rejected ones are rare and old.
const seedLists = `
	CREATE TEMP TABLE seed AS
	SELECT i, (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 19))::uuid AS id,
	       (CASE WHEN i <= 20 THEN 8 WHEN i %% 100 < 90 THEN 5 ELSE 1 + i %% 8 END)::smallint AS state,
	       now() - make_interval(secs => (%[1]d - i) / 3) AS at
	  FROM generate_series(1, %[1]d) i;
	INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, status_at, direct, dialect)
	SELECT id, CASE WHEN i %% 50 = 0 THEN 'rare' ELSE 'a' END, 'tenant', CASE WHEN i %% 100 = 1 THEN 'other' ELSE 'owner' END,
	       CASE WHEN i %% 10 < 5 THEN 'one' ELSE 'c' || i / 100 END, state, least(state, 2), least(state, 2), at,
	       state = 5 AND i %% 7 = 0, '1.0' FROM seed;
	INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload, created_at)
	SELECT id, 1, 1, 0, json_build_object('id', 'm' || i, 'role', 'user', 'parts', json_build_array(json_build_object('text', 'hello'))), at FROM seed;
	INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, payload, created_at)
	SELECT id, 2, 2, state, 0, json_build_object('message', json_build_object('id', 's' || i, 'role', 'agent', 'parts', json_build_array(json_build_object('text', 'state ' || state)))), at
	  FROM seed WHERE state > 1;
	INSERT INTO holdfast.task_queue (id, agent, message_seq) SELECT t.id, t.agent, 1 FROM holdfast.tasks t WHERE t.state < 3;
	ANALYZE holdfast.tasks, holdfast.task_events`

func (f *fixture) seedLists(rows int) {
	f.t.Helper()
	f.ok(f.EnsurePartitions(f.t.Context()))
	f.ok(f.conn().PgConn().Exec(f.t.Context(), fmt.Sprintf(seedLists, rows)).ReadAll())
}

// owner is the caller in these tests.
var owner = asker{Tenant: "tenant", Subject: "owner", Agent: "a"}

func mine() *Listing { return &Listing{After: Newest, Limit: 50} }

// Lists with every filter, page by page, are those that are made in memory.
func TestListsAgainstModel(t *testing.T) {
	f := parallel(t)
	f.seedLists(2000)
	type row struct {
		Agent, Owner, Context string
		State                 task.State
		At                    time.Time
		ID                    uuid.UUID
		Direct                bool
	}
	found, err := f.conn().Query(t.Context(), "SELECT agent, owner, context_id, state, status_at, id, direct FROM holdfast.tasks")
	require.NoError(t, err)
	rows := storetest.Must(pgx.CollectRows(found, pgx.RowToStructByPos[row]))(t)
	require.Len(t, rows, 2000)
	slices.SortFunc(rows, func(a, b row) int { // newest first, then by id, last first
		return cmp.Or(b.At.Compare(a.At), slices.Compare(b.ID[:], a.ID[:]))
	})
	for _, agent := range []string{"a", "rare", "none"} {
		asks := owner
		asks.Agent = agent
		v := asks.bare(f.Store)
		for _, contextID := range []string{"", "one", "c7", "none"} {
			for _, state := range append([]task.State{task.StateUnspecified}, task.States...) {
				for _, since := range []time.Time{{}, rows[700].At} {
					l := mine()
					l.ContextID, l.State, l.Since, l.Limit = contextID, state, since, 100
					var want []string
					for _, r := range rows {
						if r.Agent == agent && r.Owner == "owner" && !r.Direct && (contextID == "" || r.Context == contextID) &&
							(state == task.StateUnspecified || r.State == state) && !r.At.Before(since) {
							want = append(want, r.ID.String())
						}
					}
					require.Equal(t, len(want), storetest.Must(v.Count(t.Context(), l, Uncounted))(t))
					require.Equal(t, min(len(want), 7), storetest.Must(v.Count(t.Context(), l, 7))(t))
					var got []string
					for more := true; more; {
						var page []*task.Task
						page, more = must2(v.List(t.Context(), l))(t)
						for _, p := range page {
							got = append(got, p.PublicID)
							l.After = Place{At: p.Status.At, ID: p.ID}
						}
						require.True(t, !more || len(page) == l.Limit)
					}
					require.Equal(t, want, got, "%s %q %s since %s", agent, contextID, state, since)
				}
			}
		}
	}
}

func TestListDetails(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	said := status(task.StateWorking)
	said.Message = user("on it")
	p.must(t, said, chunk("x"), chunk("y"), &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint}})
	f.create(fresh("a"))
	l := mine()
	for _, tt := range []struct{ history, artifacts bool }{{}, {history: true}, {artifacts: true}, {true, true}} {
		l.History, l.Artifacts = tt.history, tt.artifacts
		page, more := must2(owner.bare(f.Store).List(t.Context(), l))(t)
		require.False(t, more)
		require.Len(t, page, 2)
		slices.SortFunc(page, func(a, b *task.Task) int { return cmp.Compare(a.Status.State, b.Status.State) })
		waiting, working := page[0], page[1]
		require.Equal(t, task.StateSubmitted, waiting.Status.State)
		require.Nil(t, waiting.Status.Message)
		require.Equal(t, task.StateWorking, working.Status.State)
		require.Equal(t, "on it", working.Status.Message.FirstText())
		require.Equal(t, working.PublicID, working.Status.Message.TaskID)
		require.Equal(t, task.Seq(5), working.LastSeq)
		if tt.history {
			require.Equal(t, "hello", working.History[0].FirstText())
			require.Len(t, waiting.History, 1)
		}
		if !tt.artifacts {
			require.Empty(t, working.Artifacts)
			continue
		}
		require.Len(t, working.Artifacts, 1)
		require.Equal(t, []task.Part{task.Text("xy")}, working.Artifacts[0].Parts)
		whole := storetest.Must(f.Snapshot(t.Context(), p.c.Task, true))(t)
		require.Less(t, whole.LastSeq, working.LastSeq, "the header was read before the list")
	}
}

// A page of large tasks ends early, and the next page continues there.
func TestPagesAreLimitedInBytes(t *testing.T) {
	f := parallel(t)
	large := strings.Repeat("x", pageBytes/3)
	for range 5 {
		n := fresh("a")
		n.Message.Parts[0].Text = large
		f.create(n)
	}
	l := mine()
	l.History = true
	var sizes []int
	seen := map[task.ID]bool{}
	for more := true; more; {
		var page []*task.Task
		page, more = must2(owner.bare(f.Store).List(t.Context(), l))(t)
		sizes = append(sizes, len(page))
		for _, p := range page {
			require.Len(t, p.History[0].Parts[0].Text, len(large))
			seen[p.ID] = true
			l.After = Place{At: p.Status.At, ID: p.ID}
		}
	}
	require.Equal(t, []int{2, 2, 1}, sizes)
	require.Len(t, seen, 5)

	l.After, l.History = Newest, false
	page, more := must2(owner.bare(f.Store).List(t.Context(), l))(t)
	require.False(t, more)
	require.Len(t, page, 5, "without its history no task is large")
}

// A single task may be larger than a page; then it is a page by itself.
func TestPageHasAtLeastOneTask(t *testing.T) {
	f := parallel(t)
	for range 2 {
		n := fresh("a")
		n.Message.Parts[0].Text = strings.Repeat("x", pageBytes+1)
		f.create(n)
	}
	l := mine()
	l.History = true
	page, more := must2(owner.bare(f.Store).List(t.Context(), l))(t)
	require.True(t, more)
	require.Len(t, page, 1)
}

// planned is a node of an executed plan.
type planned struct {
	NodeType  string    `json:"Node Type"`
	Relation  string    `json:"Relation Name"`
	Index     string    `json:"Index Name"`
	Rows      float64   `json:"Actual Rows"`
	Loops     float64   `json:"Actual Loops"`
	Filtered  float64   `json:"Rows Removed by Filter"`
	Rechecked float64   `json:"Rows Removed by Index Recheck"`
	Plans     []planned `json:"Plans"`
}

// touched counts the rows of tasks that a plan has read.
func (p *planned) touched(t *testing.T, index string) float64 {
	t.Helper()
	n := 0.0
	if strings.HasPrefix(p.Relation, "tasks_") {
		require.Regexp(t, index, p.Index)
		require.Contains(t, []string{"Index Scan", "Index Only Scan"}, p.NodeType)
		n = p.Loops * (p.Rows + p.Filtered + p.Rechecked)
	}
	for i := range p.Plans {
		n += p.Plans[i].touched(t, index)
	}
	return n
}

// For no filter do the rows that a list reads grow with the number of tasks.
func TestListsReadNoMoreThanTheyShow(t *testing.T) {
	f := parallel(t)
	f.seedLists(5000)
	c := f.conn()
	_, err := c.Exec(t.Context(), "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	caller := f.conn()
	f.ok(caller.Exec(t.Context(), "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off;"+become(owner), pgx.QueryExecModeSimpleProtocol))
	texts := statements(t)
	for _, name := range []string{"TasksListed", "TasksListedOfContext", "TasksCounted", "TasksCountedOfContext"} {
		for _, c := range []*pgx.Conn{c, caller} {
			f.ok(c.Prepare(t.Context(), name, texts[name]))
		}
	}
	const limit = 51
	states := map[string]int{"{1,2,3,4,5,6,7,8}": 8, "{5}": 1, "{8}": 1, "{4}": 1}
	for set, scans := range states {
		for _, agent := range []string{"a", "rare"} {
			for _, since := range []string{"-infinity", "2000-01-01"} {
				for _, before := range []string{"infinity", time.Now().Add(-time.Hour).Format(time.RFC3339)} {
					for _, contextID := range []string{"", "one", "c7"} {
						index, suffix, inContext := `^tasks_(open|kept|\d+)_tenant_owner_agent_`, "", ""
						if contextID != "" {
							index, suffix, inContext = `^tasks_(open|kept|\d+)_context_id_tenant_owner_`, "OfContext", "'"+contextID+"',"
						}
						filter := fmt.Sprintf("'{owner}','%s',%s'tenant','%s',8,'%s'", set, inContext, agent, since)
						for _, call := range []string{
							fmt.Sprintf(`"TasksListed%s"(%s,'%s','ffffffff-ffff-ffff-ffff-ffffffffffff',%d)`, suffix, filter, before, limit),
							fmt.Sprintf(`"TasksCounted%s"(%s,%d)`, suffix, filter, limit),
						} {
							for _, c := range []*pgx.Conn{c, caller} {
								var raw []byte
								err := c.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE "+call, pgx.QueryExecModeSimpleProtocol).Scan(&raw)
								require.NoError(t, err, call)
								var plans []struct{ Plan planned }
								require.NoError(t, json.Unmarshal(raw, &plans))
								require.LessOrEqual(t, plans[0].Plan.touched(t, index), float64(scans*limit), "%s\n%s", call, raw)
							}
						}
					}
				}
			}
		}
	}
}
