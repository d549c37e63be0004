package operators

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// act is what an operator does to a target, by a verb on the database or through a server, and over the admin API.
type act struct {
	name, path string
	target     func() string // each door has its own
	verb       string        // empty: no verb does it
	does
}

type does struct {
	outcome string // an expression
	prints  string // of the verb, where it prints no outcome
	code    int    // exit code of the verb
	body    string // of the API, without the reason
	status  int    // of the API; 0: 200
	action  string // in the audit log; empty: nothing is done
	state   string // of the target, afterwards
}

// Operators act by verbs and over the API, with the same outcomes. Each act has an audit row with the operator and the reason, and the
// API does none without a reason.
func TestActs(t *testing.T) { //nolint:tparallel // the subtests act on one server, and count its audit log
	t.Parallel()
	db := clustertest.NewDB(t)
	ready := filepath.Join(t.TempDir(), "ready")
	const grace = "cancel_grace: 5s}\n"
	config := clustertest.Replace(guarded, grace, grace+fmt.Sprintf(`
  - name: moody
    executor: {kind: command, command: {argv: [sh, -c, "test -e '%s' || exit 75"]}}
    limits: {backoff: 1h}
`, ready)) + receivertest.Pushing(a2atest.Object{"retry_first": "1h", "retry_most": "1h"})
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	secret := db.Keys(store.APIKey{Tenant: "t", Scopes: []string{"holdfast:operator", "admin:all"}}, "grace")[0]
	op, client := as(t, r, secret), db.Keys(store.APIKey{Tenant: "t"}, "alice")[0]

	after := func(id string, acts ...string) string {
		for _, path := range acts {
			op.act("/tasks/"+id+path, `{"reason":"before"}`)
		}
		return id
	}
	task := func(script string, acts ...string) func() string {
		return func() string { return after(send(r, client, script), acts...) }
	}
	hook := func(acts ...string) func() string {
		return func() string { return after(hooked(t, r, client, "ask:x"), acts...) }
	}
	begun := func() string {
		return r.Stream(a2atest.V03, a2atest.Say("hold").With("X-API-Key", client)).UntilState("working").Task()
	}
	backingOff := func() string {
		_ = os.Remove(ready)
		id := r.Stream(a2atest.V03, a2atest.Say("hello").At("moody").With("X-API-Key", client)).Take(1)[0].Task()
		waittest.Eventually(t, "the attempt has failed", func() error {
			return waittest.Unless(clustertest.One[bool](db, `SELECT worker_id IS NULL AND available_at > now() + interval '1 min'
				FROM holdfast.task_queue WHERE id = $1`, id), "not yet")
		})
		require.NoError(t, os.WriteFile(ready, nil, 0o600))
		return id
	}
	job := func() string {
		id := op.act("/jobs", `{"action":"hold","dry_run":true,"reason":"r","filter":{"agent":["demo"]}}`).text("id")
		// It has not ended, and no process works on it.
		db.Exec("UPDATE holdfast.admin_jobs SET ended_at = NULL, fence = fence + 1, claimed_until = now() + interval '1 hour' WHERE id = $1", id)
		return id
	}
	worker := func() string {
		id := uuid.NewString()
		db.Exec("INSERT INTO holdfast.remote_workers (id, name, version, sdk, agents) VALUES ($1, 'host<1>', 'v9', 'go', '{demo}')", id)
		return id
	}
	key := func() string { return strings.Split(db.Keys(store.APIKey{}, "x")[0], "_")[1] }
	nobody := func() string { return uuid.NewString() }
	const (
		cancel, retry, hold     = "/tasks/{id}/cancel", "/tasks/{id}/retry", "/tasks/{id}/hold"
		release, purge, answer  = "/tasks/{id}/release", "/tasks/{id}/purge", "/tasks/{id}/answer"
		redeliver               = "/tasks/{id}/webhooks/{config}/redeliver"
		disable, enable, retire = "/tasks/{id}/webhooks/{config}/disable", "/tasks/{id}/webhooks/{config}/enable", "/workers/{id}/retire"
	)
	acts := []act{
		{"cancel a parked task", cancel, task("ask:x"), "tasks cancel ID", does{outcome: "canceled", action: "task.canceled", state: "canceled"}},
		{"cancel a running task", cancel, begun, "tasks cancel ID", does{outcome: "canceled|requested", action: "task.canceled", state: "canceled"}},
		{"ask for a cancel", cancel, begun, "tasks cancel --no-wait ID", does{
			outcome: "canceled|requested", action: "task.canceled", state: "canceled",
		}},
		{"cancel again", cancel, task("ask:x", "/cancel"), "tasks cancel ID", does{outcome: "canceled", state: "canceled"}},
		{"cancel an ended task", cancel, task("echo:x"), "tasks cancel ID", does{outcome: "ended", code: 3, state: "completed"}},
		{"cancel nothing", cancel, nobody, "tasks cancel ID", does{prints: "task not found", code: 1, status: 404}},
		{"retry a failed task", retry, task("fail:x"), "tasks retry ID", does{outcome: "sent", action: "task.created", state: "failed"}},
		{"retry and wait", retry, task("fail:x"), "tasks retry ID --wait", does{outcome: "sent", code: 3, action: "task.created"}},
		{"retry a canceled task", retry, task("ask:x", "/cancel"), "tasks retry ID --wait", does{outcome: "sent", code: 4, action: "task.created"}},
		{"retry a parked task", retry, task("ask:x"), "tasks retry ID", does{outcome: "failed", code: 1, status: 409, state: "input-required"}},
		{"retry a completed task", retry, task("echo:x"), "tasks retry ID", does{outcome: "failed", code: 1, status: 409}},
		{"hurry", retry, backingOff, "tasks retry ID --wait", does{outcome: "hurried", action: "task.hurried", state: "completed"}},
		{"answer", answer, task("ask:x"), "inbox ID --data {\"z\":1}", does{
			outcome: "answered", body: `,"parts":[{"text":"this"},{"data":{"z":1,"a":12345678901234567890}}]`, action: "task.continued", state: "completed",
		}},
		{"answer nothing", answer, task("echo:x"), "", does{body: `,"text":"y"`, status: 409}},
		{"hold", hold, task("chunks=1"), "tasks hold ID", does{outcome: "held", action: "task.held"}},
		{"release", release, task("chunks=1", "/hold"), "tasks release ID", does{outcome: "released", action: "task.released"}},
		{"purge", purge, task("chunks=1"), "tasks purge ID --yes", does{outcome: "purged", action: "task.purged"}},
		{"purge a held task", purge, task("chunks=1", "/hold"), "tasks purge ID --yes", does{outcome: "held", state: "completed"}},
		{"disable", disable, hook(), "push disable ID c", does{outcome: "disabled", action: "push.disabled"}},
		{"redeliver", redeliver, hook(), "push redeliver ID c", does{outcome: "due", body: `,"from":1`, action: "push.redelivered"}},
		{"redeliver to a disabled one", redeliver, hook("/webhooks/c/disable"), "push redeliver ID c", does{outcome: "disabled", action: "push.redelivered"}},
		{"redeliver nothing", redeliver, hook(), "push redeliver ID c --from 9999", does{outcome: "failed", code: 1, body: `,"from":9999`, status: 404}},
		{"enable", enable, hook("/webhooks/c/disable"), "push enable ID c", does{outcome: "due", action: "push.enabled"}},
		{"create a key", "/keys", nobody, "api-keys create --subject bob --tenant t --scope a:b --name build --expires-in 24h", does{
			prints: `"tenant": "t"`, body: `,"subject":"bob"`, status: 201, action: "key.created",
		}},
		{"revoke a key", "/keys/{id}/revoke", key, "api-keys revoke ID", does{prints: "revoked", action: "key.revoked"}},
		{"revoke nothing", "/keys/{id}/revoke", func() string { return "nobodynobodyno12" }, "api-keys revoke ID", does{
			prints: "no key has this id", code: 1, status: 404,
		}},
		{"retire a worker", retire, worker, "workers retire ID", does{prints: "ID", action: "worker.retired"}},
		{"retire nobody", retire, nobody, "workers retire ID", does{prints: "no such worker", code: 1, status: 404}},
		{"begin a job", "/jobs", nobody, "", does{body: `,"action":"hold","filter":{"agent":["none"]}`, status: 201, action: "job.created"}},
		{"cancel a job", "/jobs/{id}/cancel", job, "", does{action: "job.canceled"}},
		{"end a session", "/sessions/{id}/end", func() string { return session(t, r, op, secret) }, "", does{outcome: "ended", action: "session.ended"}},
	}
	verbs := map[string][]string{"database": db.Env(), "server": append(through(r.Admin), "HOLDFAST_SERVER_CREDENTIAL="+secret)}
	for i, x := range acts {
		t.Run(x.name, func(t *testing.T) {
			for _, door := range []string{[]string{"database", "server"}[i%2], "api"} {
				id, why := x.target(), x.name+" <by> "+door
				switch {
				case door == "api":
					path := strings.NewReplacer("{id}", id, "{config}", "c").Replace(x.path)
					without := op.do("POST", path, `{"reason":" "`+x.body+`}`)
					require.Equal(t, http.StatusBadRequest, without.Status, "%s", without.Body)
					require.Equal(t, "reason", without.text("field"))
					a := op.do("POST", path, `{"reason":"`+why+`"`+x.body+`}`)
					require.Equal(t, cmp.Or(x.status, http.StatusOK), a.Status, "%s", a.Body)
					if x.outcome != "" && a.Status < 300 {
						require.Regexp(t, "^("+x.outcome+")$", a.text("outcome"))
					}
				case x.verb == "":
					continue
				default:
					args := append(strings.Fields(strings.ReplaceAll(x.verb, "ID", id)), "--reason", why, "-o", "json")
					got := clustertest.Command(t, t.TempDir(), verbs[door], args...)
					require.Equal(t, x.code, got.Code, "%s: %s", door, got.Err)
					require.Regexp(t, cmp.Or(strings.ReplaceAll(x.prints, "ID", id), `"outcome": "(`+x.outcome+`)"`), got.Out+got.Err)
				}
				if x.state != "" {
					db.AwaitState(id, x.state)
				}
				if x.action == "" {
					require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_audit WHERE reason = $1", why))
					continue
				}
				require.Equal(t, x.action+" operator", clustertest.One[string](db,
					"SELECT action || ' ' || method FROM holdfast.v_audit WHERE reason = $1 AND address <> '' ORDER BY at LIMIT 1", why), door)
				if door != "database" && x.action != "task.created" && x.action != "task.continued" { // these are in the name of the client
					require.Equal(t, "grace of t", clustertest.One[string](db,
						"SELECT subject || ' of ' || tenant FROM holdfast.v_audit WHERE reason = $1 LIMIT 1", why), door)
				}
			}
		})
	}
	// Other tests have what leaves no entry, or only where there are secrets.
	elsewhere := []string{"/talk/{agent}/{path}", "/audit/verify", "/webhooks/test", "/secrets/reseal"}
	for _, o := range admin.Operations() {
		if o.Method == http.MethodPost && !slices.Contains(elsewhere, o.Path) {
			require.True(t, slices.ContainsFunc(acts, func(x act) bool { return x.path == o.Path && x.action != "" }), "%s needs a case", o.Path)
		}
	}

	// A key of a request makes one act of two. A job has none: it would promise that a repeated request makes no second one.
	failed := send(r, client, "fail:x")
	again := op.act("/tasks/"+failed+"/retry", `{"reason":"r"}`, "Idempotency-Key", "k").text("new_task")
	require.Equal(t, again, op.act("/tasks/"+failed+"/retry", `{"reason":"r"}`, "Idempotency-Key", "k").text("new_task"))
	require.NotEqual(t, again, op.act("/tasks/"+failed+"/retry", `{"reason":"r"}`).text("new_task"))
	for path, body := range map[string]string{"/jobs": `{"reason":"r","action":"hold","filter":{"agent":["none"]}}`, "/keys": `{"reason":"r","subject":"x"}`} {
		keyed := op.do("POST", path, body, "Idempotency-Key", "k")
		require.Equal(t, []any{http.StatusBadRequest, "Idempotency-Key"}, []any{keyed.Status, keyed.text("field")}, path)
	}
}

// The inbox has the questions of all agents until one person has answered. An open server asks for no reasons.
func TestInbox(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL})
	op, id := as(t, r, ""), r.Send(a2atest.V03, a2atest.Say("ask:Which city?")).Task()
	require.Contains(t, string(op.get("/inbox?agent=demo&limit=1").Body), "Which city?")
	require.Contains(t, clustertest.Command(t, t.TempDir(), db.Env(), "inbox").Out, "Which city?")
	require.Contains(t, clustertest.Command(t, t.TempDir(), db.Env(), "inbox", id).Out, "Which city?")
	for _, person := range []struct {
		key, text string
		status    int
	}{{"q", "Oslo", http.StatusOK}, {"q", "Oslo", http.StatusOK}, {"q", "Rome", http.StatusBadRequest}, {"r", "Oslo", http.StatusConflict}} {
		a := op.do("POST", "/tasks/"+id+"/answer", `{"text":"`+person.text+`"}`, "Idempotency-Key", person.key)
		require.Equal(t, person.status, a.Status, "%v: %s", person, a.Body)
		db.AwaitState(id, "completed")
	}
	require.Empty(t, op.get("/inbox").read()["tasks"])
}

// hooked makes a task with a webhook, c, that nobody answers, and waits until its first delivery has failed.
func hooked(t testing.TB, r *clustertest.Replica, key, script string) string {
	t.Helper()
	id := r.Send(a2atest.V03, says(key, script).Hooked("http://"+nettest.Reserve(t)+"/hook", a2atest.Object{"id": "c"})).Task()
	db := clustertest.OpenDB(t, r.Options.DB)
	waittest.Eventually(t, "the first delivery has failed", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.push_cursors WHERE task = $1 AND attempts > 0 AND claim IS NULL", id)
		return waittest.Unless(n == 1, "%d", n)
	})
	return id
}

// session opens a session of a browser, and returns its id.
func session(t *testing.T, r *clustertest.Replica, op *operator, key string) string {
	t.Helper()
	b := &browser{t, http.DefaultClient, map[string]*http.Cookie{}}
	a := b.do("POST", r.Admin+"/admin/login/key", `{"key":"`+key+`"}`, "Origin", r.Admin)
	require.Equal(t, http.StatusNoContent, a.Status, "%s", a.Body)
	return column(op.get("/sessions").list("sessions"), "id")[0]
}
