package operators

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// event is a server-sent event.
type event struct {
	name, id string
	data     object
}

// follow opens a stream. The channel closes when the stream ends.
func (o *operator) follow(ctx context.Context, path string, headers ...string) <-chan event {
	o.t.Helper()
	res, err := o.begin(ctx, http.MethodGet, path, "", headers...) //nolint:bodyclose // by the goroutine below
	require.NoError(o.t, err)
	require.Equal(o.t, http.StatusOK, res.StatusCode)
	require.Equal(o.t, "text/event-stream", res.Header.Get("Content-Type"))
	out := make(chan event, 100_000)
	go func() {
		defer close(out)
		defer res.Body.Close()
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, 8<<20)
		e := event{}
		for in.Scan() {
			name, value, _ := strings.Cut(in.Text(), ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				if json.Unmarshal([]byte(value), &e.data) != nil {
					return
				}
			case "":
				if e.name != "" {
					out <- e
				}
				e = event{}
			}
		}
	}()
	return out
}

// list is a live list, as a client keeps it.
type list struct {
	t      testing.TB
	op     *operator
	last   string
	states map[string]string // of the tasks that were told
	ready  bool
}

func (l *list) take(e event) {
	l.t.Helper()
	if e.id != "" {
		l.last = e.id
	}
	switch e.name {
	case "task":
		row := e.data["task"].(object)
		raw, err := json.Marshal(row)
		require.NoError(l.t, err)
		require.NoError(l.t, document.CheckAs("task", raw))
		l.states[row["id"].(string)] = row["state"].(string)
	case "resync":
		for _, row := range l.op.get("/tasks?limit=500").list("tasks") {
			l.states[row["id"].(string)] = row["state"].(string)
		}
	case "ready":
		l.ready = true
	default:
		require.Fail(l.t, "unknown event "+e.name)
	}
}

// until takes events until a condition holds.
func (l *list) until(events <-chan event, what string, holds func() bool) {
	l.t.Helper()
	for !holds() {
		l.take(waittest.Within(l.t, what, events))
	}
}

// A live list at one replica shows what happens at the other one. When its replica is killed, the client continues at the other
// replica and has missed nothing.
func TestLiveListsSurviveTheirReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	l := &list{t: t, op: as(t, a, ""), states: map[string]string{}}
	events := l.op.follow(waittest.Context(t), "/tasks/stream")
	l.until(events, "ready", func() bool { return l.ready })

	asked := send(b, "", "ask:x")
	failed := send(b, "", "fail:x")
	l.until(events, "tasks of b", func() bool { return l.states[asked] == "input-required" && l.states[failed] == "failed" })
	b2 := as(t, b, "")
	b2.act("/tasks/"+asked+"/cancel", `{"reason":"r"}`)
	l.until(events, "the cancel", func() bool { return l.states[asked] == "canceled" })
	here := send(a, "", "echo:x")
	l.until(events, "a task of a", func() bool { return l.states[here] == "completed" })

	a.Kill()
	var meanwhile []string
	for range 20 {
		meanwhile = append(meanwhile, send(b, "", "echo:x"))
	}
	l.op, l.ready = b2, false
	events = l.op.follow(waittest.Context(t), "/tasks/stream", "Last-Event-ID", l.last)
	l.until(events, "ready", func() bool { return l.ready })
	for _, id := range meanwhile {
		require.Equal(t, "completed", l.states[id])
	}
	late := send(b, "", "ask:y")
	l.until(events, "a later task", func() bool { return l.states[late] == "input-required" })

	// An id that is too old begins with a resync.
	require.Equal(t, "resync", waittest.Within(t, "resync", l.op.follow(waittest.Context(t), "/tasks/stream?last_event_id=1")).name)
}

// A list tells only the tasks of its filter and its tenant. A task that leaves the filter by its state is told as such.
func TestLiveListsAreFiltered(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: guarded})
	var client, op [2]string
	for i, tenant := range []string{"a", "b"} {
		client[i] = db.Keys(store.APIKey{Tenant: tenant}, "alice")[0]
		op[i] = db.Keys(store.APIKey{Tenant: tenant, Scopes: []string{"admin:act"}}, "op")[0]
	}
	own := as(t, r, op[0])
	ctx := waittest.Context(t)
	streams := map[string]<-chan event{
		"own": own.follow(ctx, "/tasks/stream?state=input-required"), "foreign": own.follow(ctx, "/tasks/stream?tenant=b"), "agent": own.follow(ctx, "/tasks/stream?agent=none"),
	}
	for name, events := range streams {
		require.Equal(t, "ready", waittest.Within(t, name, events).name)
	}
	send(r, client[1], "ask:b")
	mine := send(r, client[0], "ask:a")
	matched := func(want bool) {
		t.Helper()
		for {
			e := waittest.Within(t, "the task", streams["own"])
			require.Equal(t, "task", e.name)
			require.Equal(t, "a", e.data["task"].(object)["tenant"])
			if e.data["matches"] == want {
				require.Equal(t, mine, e.data["task"].(object)["id"])
				return
			}
		}
	}
	matched(true)
	own.act("/tasks/"+mine+"/cancel", `{"reason":"r"}`)
	matched(false)
	require.Empty(t, streams["foreign"])
	require.Empty(t, streams["agent"])

	// A revoked key ends the streams that it has opened, and no others.
	other := as(t, r, op[1]).follow(ctx, "/tasks/stream")
	require.Equal(t, "ready", waittest.Within(t, "another list", other).name)
	streams["log"] = own.follow(ctx, "/tasks/"+send(r, client[0], "ask:d")+"/log/stream")
	require.Equal(t, "log", waittest.Within(t, "a log", streams["log"]).name)
	db.Operate("api-keys", "revoke", strings.Split(op[0], "_")[1])
	for _, events := range streams {
		for range events { // until the stream ends
		}
	}
	require.NoError(t, ctx.Err(), "the streams went on")
	require.Equal(t, http.StatusUnauthorized, own.peek(http.MethodGet, "/tasks/stream", ""))
	send(r, client[1], "ask:c")
	require.Equal(t, "task", waittest.Within(t, "the other list goes on", other).name)
}

// The log of a task is followed at one replica, and after a kill at another one from the last event on.
func TestLogsSurviveTheirReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	id := send(b, "", "ask:0")
	var seqs []string
	take := func(e event) bool {
		if e.name == "end" {
			require.Equal(t, "completed", e.data["state"])
			return true
		}
		require.Equal(t, "log", e.name)
		raw, err := json.Marshal(e.data)
		require.NoError(t, err)
		require.NoError(t, document.CheckAs("event", raw))
		seqs = append(seqs, e.id)
		return false
	}
	events := as(t, a, "").follow(waittest.Context(t), "/tasks/"+id+"/log/stream")
	b.Send(a2atest.V03, a2atest.Say("ask:1").To(id))
	for len(seqs) < 4 {
		require.False(t, take(waittest.Within(t, "events", events)))
	}
	a.Kill()
	for e := range events { // what was on its way
		require.False(t, take(e))
	}
	b.Send(a2atest.V03, a2atest.Say("ask:2").To(id))
	op := as(t, b, "")
	events = op.follow(waittest.Context(t), "/tasks/"+id+"/log/stream?version=1.0", "Last-Event-ID", seqs[len(seqs)-1])
	b.Send(a2atest.V03, a2atest.Say("enough").To(id))
	for !take(waittest.Within(t, "events", events)) {
	}
	require.Equal(t, op.pages("/tasks/"+id+"/log?limit=500", "events", "seq", "after")[:len(seqs)], seqs)

	// A stream ends when its task is deleted.
	asked := send(b, "", "ask:x")
	events = op.follow(waittest.Context(t), "/tasks/"+asked+"/log/stream")
	require.Equal(t, "log", waittest.Within(t, "the first event", events).name)
	op.act("/tasks/"+asked+"/purge", `{"reason":"r"}`)
	for {
		if e := waittest.Within(t, "the end", events); e.name == "end" {
			require.Equal(t, "deleted", e.data["state"])
			break
		}
	}
}

// lock locks tasks in a session of its own, until it is called again.
func lock(t *testing.T, db *clustertest.DB, ids []string) (release func()) {
	t.Helper()
	tx, err := clustertest.OpenDB(t, db.URL).Conn.Begin(t.Context())
	require.NoError(t, err)
	// Behind a pooler, all sessions have the time limit that the server needs.
	_, err = tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM holdfast.tasks WHERE id = ANY ($1::uuid[]) FOR UPDATE", ids)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// done waits until a job is done, and returns its numbers.
func (o *operator) done(id string) (matched, done, skipped, failed int) {
	o.t.Helper()
	var a *answer
	waittest.Eventually(o.t, "the job ends", func() error {
		a = o.get("/jobs/" + id)
		return waittest.Unless(a.text("state") == "done", "%s", a.Body)
	})
	var n struct{ Matched, Done, Skipped, Failed int }
	require.NoError(o.t, json.Unmarshal(a.Body, &n))
	return n.Matched, n.Done, n.Skipped, n.Failed
}

// A job goes on at another replica when its own is killed. It counts each task once, gets past a task that another session has
// locked for long, and a dry run changes none.
func TestJobsSurviveTheirReplica(t *testing.T) {
	t.Parallel()
	const tasks = 120
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	ids := make([]string, tasks)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range tasks {
		g.Go(func() error {
			res, err := []*clustertest.Replica{a, b}[i%2].TrySend(a2atest.V03, a2atest.Say("ask:x"))
			if err == nil {
				ids[i] = res.Task()
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	other := send(a, "", "echo:x")
	op := as(t, a, "")
	const parked = `"filter":{"agent":["demo"],"state":["input-required"]}`
	dry := op.act("/jobs", `{"action":"cancel","reason":"try","dry_run":true,`+parked+`}`).text("id")
	matched, done, skipped, failed := op.done(dry)
	require.Equal(t, []int{tasks, 0, 0, 0}, []int{matched, done, skipped, failed})
	require.Contains(t, string(op.get("/tasks/counts").Body), fmt.Sprintf(`"input-required":%d`, tasks))

	// The job begins with the newest tasks. Locks hold it in the middle until the kill, and one task stays locked.
	slices.Sort(ids)
	hold, release := lock(t, db, ids[:1]), lock(t, db, ids[1:tasks/2])
	id := op.act("/jobs", `{"action":"cancel","reason":"clean up",`+parked+`}`).text("id")
	var worker string
	waittest.Eventually(t, "the job is under way", func() error {
		worker = clustertest.One[string](db, `SELECT coalesce((SELECT p.name FROM holdfast.admin_jobs j JOIN holdfast.processes p ON p.id = j.worker_id
			WHERE j.id = $1 AND j.done >= 50 AND j.ended_at IS NULL AND cardinality(j.batch) > 0), '')`, id)
		return waittest.Unless(worker != "", "not yet")
	})
	victim, rest := a, b
	if b.Is(worker) {
		victim, rest = b, a
	}
	victim.Kill()
	release()
	op = as(t, rest, "")
	matched, done, skipped, failed = op.done(id)
	require.Equal(t, []int{tasks, 0, tasks}, []int{matched, skipped, done + failed})
	require.Positive(t, failed)
	require.Less(t, failed, tasks/2)
	require.False(t, victim.Is(op.get("/jobs/"+id).text("worker_name")))
	require.Contains(t, string(op.get("/tasks/counts").Body), fmt.Sprintf(`"canceled":%d`, done))
	require.Equal(t, "completed", op.get("/tasks/"+other).text("state"))
	require.Equal(t, done, clustertest.One[int](db, "SELECT count(DISTINCT task) FROM holdfast.v_audit WHERE action = 'task.canceled' AND reason = 'clean up'"))
	// Only now: a cancel that the job gave up may still wait for this lock, and would take effect.
	hold()
	db.Sound()

	// Retries of a job create one task each.
	send(rest, "", "fail:x")
	again := op.act("/jobs", `{"action":"retry","reason":"r","filter":{"state":["failed","completed"]}}`).text("id")
	matched, done, skipped, failed = op.done(again)
	require.Equal(t, []int{2, 1, 1, 0}, []int{matched, done, skipped, failed})
	require.Equal(t, "done", op.act("/jobs/"+again+"/cancel", `{"reason":"late"}`).text("state"), "a job that has ended stays so")
	// A further retry leaves out what was retried, but not the task that came of it.
	twice := op.act("/jobs", `{"action":"retry","reason":"r","filter":{"state":["failed"]}}`).text("id")
	matched, done, skipped, failed = op.done(twice)
	require.Equal(t, []int{1, 1, 0, 0}, []int{matched, done, skipped, failed})
	require.Equal(t, []string{twice, again, id, dry}, column(op.get("/jobs").list("jobs"), "id"))
	require.Equal(t, []string{dry}, column(op.get("/jobs?before="+id).list("jobs"), "id"))
}

// The streams of one address are limited. A place is free again when its client has left.
func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	op := as(t, r, "")
	ctx, leave := context.WithCancel(waittest.Context(t))
	for range 32 {
		op.follow(ctx, "/tasks/stream")
	}
	a := op.do(http.MethodGet, "/tasks/stream", "")
	require.Equal(t, http.StatusTooManyRequests, a.Status)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Empty(t, op.get("/tasks").list("tasks"), "pages are still served")
	leave()
	waittest.Eventually(t, "a place is free", func() error {
		status := op.peek(http.MethodGet, "/tasks/stream", "")
		return waittest.Unless(status == http.StatusOK, "status %d", status)
	})
}

// An operator may answer at any process, also at one that serves no clients.
func TestEveryProcessTakesAnswers(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	worker := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: clustertest.Settings + "roles: [worker]\n"})
	asked := send(r, "", "ask:x")
	op := as(t, worker, "")
	require.Equal(t, "answered", op.act("/tasks/"+asked+"/answer", `{"reason":"r","text":"y"}`).text("outcome"))
	waittest.Eventually(t, "the task goes on", func() error {
		state := op.get("/tasks/" + asked).text("state")
		return waittest.Unless(state == "completed", "%s", state)
	})
}
