package operators

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// talk sends a request to the demo agent, and reads the answer.
func (o *operator) talk(method, path, body string, headers ...string) *answer {
	o.t.Helper()
	res, err := o.begin(waittest.Context(o.t), method, "/talk/demo/"+path, body, headers...)
	require.NoError(o.t, err)
	defer res.Body.Close()
	a := &answer{t: o.t, Status: res.StatusCode, Header: res.Header}
	a.Body, err = io.ReadAll(res.Body)
	require.NoError(o.t, err)
	return a
}

// An operator talks to an agent in every version and binding, in the name of a caller. The task is the caller's, and the audit log
// names the operator.
func TestTalkAsACaller(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: guarded})
	key := db.Keys(store.APIKey{Tenant: "t", Scopes: []string{"admin:act", "admin:all"}}, "op")[0]
	alice := db.Keys(store.APIKey{Tenant: "x y"}, "älice")[0]
	op := as(t, r, key)
	named := []string{"Holdfast-Subject", "%C3%A4lice", "Holdfast-Tenant", "x%20y", "Holdfast-Reason", "ticket%207"}
	console, sent := a2atest.NewPeer(t, "the console"), 0
	for _, w := range []*a2atest.Wire{a2atest.V01, a2atest.V02, a2atest.V03, a2atest.V10, a2atest.REST03, a2atest.REST10} {
		console.URL = r.Admin + admin.Path + "/talk/demo"
		if w.Binding == a2atest.JSONRPC {
			console.URL += "/"
		}
		said := a2atest.Say("echo:hello").With(append([]string{"Authorization", "Bearer " + key}, named...)...)
		require.Equal(t, "completed", a2atest.Plain(console.Send(w, said).Status.State), w)
		require.Equal(t, "completed", a2atest.Plain(a2atest.Last(console.Stream(w, said).Rest()).Status.State), w)
		sent += 2
	}
	require.Equal(t, sent, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE tenant = 'x y' AND owner = 'älice'"))
	require.Equal(t, sent, clustertest.One[int](db, `SELECT count(*) FROM holdfast.v_audit
		WHERE action = 'task.created' AND method = 'operator' AND credential = 'op' AND subject = 'älice' AND tenant = 'x y' AND reason = 'ticket 7'`))

	// The caller finds the task as one of its own, and the operator reads it for the caller.
	task := send(r, alice, "ask:which?")
	require.Contains(t, string(op.talk("GET", "tasks/"+task, "", append([]string{"A2A-Version", "1.0"}, named...)...).Body), "which?")
	require.Contains(t, string(op.talk("POST", "", `{"jsonrpc":"2.0","id":1,"method":"tasks/cancel","params":{"id":"`+task+`"}}`, named...).Body), `"state":"canceled"`)
	bob := op.talk("GET", "tasks/"+task, "", "A2A-Version", "1.0", "Holdfast-Subject", "bob", "Holdfast-Tenant", "x%20y")
	require.Equal(t, http.StatusNotFound, bob.Status)
	require.Contains(t, string(bob.Body), "TASK_NOT_FOUND")

	// A key of the operator is not one of the caller.
	const v10 = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"echo:x"}]}}`
	first := op.talk("POST", "message:send", v10, append([]string{"Idempotency-Key", "k"}, named...)...)
	require.Equal(t, string(first.Body), string(op.talk("POST", "message:send", v10, append([]string{"Idempotency-Key", "k"}, named...)...).Body))
	hers, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, r.URL+"/message:send", strings.NewReader(strings.ReplaceAll(v10, "echo:x", "echo:y")))
	require.NoError(t, err)
	for name, value := range map[string]string{"X-API-Key": alice, "Idempotency-Key": "k", "Content-Type": "application/json"} {
		hers.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(hers)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode, "her key is free")
}

// An operator gives no scope and no tenant that it does not have.
func TestTalkWalls(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(guarded, "  - name: demo\n", "  - name: inner\n    auth: {scope: agents:inner}\n    executor: {kind: demo}\n  - name: demo\n")
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	key := func(tenant string, scopes ...string) *operator {
		return as(t, r, db.Keys(store.APIKey{Tenant: tenant, Scopes: scopes}, "op")[0])
	}
	all, bound, rich := key("t", "admin:act", "admin:all"), key("t", "admin:act"), key("t", "admin:act", "agents:inner")
	const body = `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"echo:x"}]}}}`
	for _, x := range []struct {
		op      *operator
		agent   string
		status  int
		field   string
		headers []string
	}{
		{all, "demo", http.StatusBadRequest, "Holdfast-Subject", nil},
		{all, "demo", http.StatusBadRequest, "Holdfast-Subject", []string{"Holdfast-Subject", "%zz"}},
		{all, "demo", http.StatusBadRequest, "Holdfast-Subject", []string{"Holdfast-Subject", "a%00b"}},
		{all, "demo", http.StatusOK, "", []string{"Holdfast-Subject", "alice", "Holdfast-Tenant", "other"}},
		{bound, "demo", http.StatusForbidden, "Holdfast-Tenant", []string{"Holdfast-Subject", "alice", "Holdfast-Tenant", "other"}},
		{bound, "demo", http.StatusForbidden, "Holdfast-Tenant", []string{"Holdfast-Subject", "alice", "Holdfast-Tenant", ""}},
		{bound, "demo", http.StatusOK, "", []string{"Holdfast-Subject", "alice"}},
		{bound, "inner", http.StatusForbidden, "Holdfast-Scopes", []string{"Holdfast-Subject", "alice", "Holdfast-Scopes", "agents:inner"}},
		{rich, "inner", http.StatusOK, "", []string{"Holdfast-Subject", "alice", "Holdfast-Scopes", "agents:inner"}},
		{all, "none", http.StatusNotFound, "", []string{"Holdfast-Subject", "alice"}},
		{all, "demo", http.StatusForbidden, "Origin", []string{"Holdfast-Subject", "alice", "Origin", "https://evil.example.com"}},
	} {
		res, err := x.op.begin(waittest.Context(t), "POST", "/talk/"+x.agent+"/", body, x.headers...)
		require.NoError(t, err)
		raw, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		res.Body.Close()
		a := &answer{t: t, Status: res.StatusCode, Header: res.Header, Body: raw}
		require.Equal(t, x.status, a.Status, "%s %v: %s", x.agent, x.headers, raw)
		if x.status != http.StatusOK {
			require.Equal(t, x.field, a.text("field"), "%s", raw)
			require.NoError(t, document.CheckAs("problem", raw))
		}
	}
	// Without the scope of the agent, the answer is that of A2A.
	res, err := rich.begin(waittest.Context(t), "GET", "/talk/inner/tasks", "", "Holdfast-Subject", "alice", "A2A-Version", "1.0")
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	require.Equal(t, []string{"t"}, clustertest.Column[string](db, "SELECT DISTINCT tenant FROM holdfast.tasks WHERE agent = 'inner'"))

	may := bound.get("/talk")
	require.Equal(t, "t", may.text("tenant"))
	require.Equal(t, []any{"admin:act"}, may.read()["scopes"])
	require.Nil(t, all.get("/talk").read()["tenant"])
	require.Equal(t, r.URL, may.text("url"))
	require.Equal(t, "X-API-Key", may.list("schemes")[0]["header"])
	require.Equal(t, "agents:inner", may.list("agents")[0]["scope"])
}

// Without schemes all callers are anonymous, also those of an operator.
func TestTalkAnonymously(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	op := as(t, r, "")
	const body = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"ask:x"}]}}`
	require.Equal(t, http.StatusOK, op.talk("POST", "message:send", body).Status)
	require.Equal(t, http.StatusBadRequest, op.talk("POST", "message:send", body, "Holdfast-Subject", "alice").Status)
	require.Equal(t, http.StatusNotFound, op.talk("POST", "no/such", body).Status)
	require.Equal(t, []string{""}, clustertest.Column[string](db, "SELECT owner FROM holdfast.tasks"))
	require.Equal(t, "talk", clustertest.One[string](db, "SELECT reason FROM holdfast.v_audit WHERE method = 'operator'"))
	require.Nil(t, op.get("/talk").read()["scopes"])
}
