package operators

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestFacts(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings + "  - {name: second, executor: {kind: demo}}\n"})
	op := as(t, r, "")
	data := send(r, "", "data")
	failed := send(r, "", "fail:no luck")
	asked := sendRaw(r, `{"kind":"text","text":"ask:which one?"}`, `,"metadata":{"z":1,"a":12345678901234567890,"f":1.0}`)
	caller := send(r, "", "call=second echo:child")

	require.Equal(t, "administer", op.get("/me").text("right"))
	all := op.get("/tasks").list("tasks")
	require.Len(t, all, 5)
	require.Equal(t, []string{asked, failed, data}, column(all[len(all)-3:], "id"), "the newest first")
	require.Equal(t, []string{failed}, column(op.get("/tasks?state=failed").list("tasks"), "id"))
	require.Len(t, op.get("/tasks?state=failed&state=input-required&agent=demo&tenant=&owner=").list("tasks"), 2)
	require.Len(t, op.get("/tasks?state=failed&state=input-required&-state=failed&agent=demo&agent=x&-owner=bot&-agent=y").list("tasks"), 1)
	require.Len(t, op.get("/tasks?max_duration=1h&retried=false&-tenant=t").list("tasks"), 5)
	require.Empty(t, op.get("/tasks?min_duration=1h").list("tasks"))
	why := op.get("/tasks?state=failed").list("tasks")[0]
	require.Equal(t, "fail:"+why["reason"].(string), why["said"])
	require.Empty(t, op.get("/tasks?agent=other").list("tasks"))
	require.Empty(t, op.get("/tasks?tenant=t").list("tasks"))
	require.Empty(t, op.get("/tasks?until=2000-01-01T00:00:00Z").list("tasks"))
	require.Len(t, op.get("/tasks?since=2000-01-01T00:00:00Z").list("tasks"), 5)
	require.Equal(t, []string{data}, column(op.get("/tasks?id="+data).list("tasks"), "id"))
	require.Empty(t, op.get("/tasks?id="+data+"&state=failed").list("tasks"))
	context := all[0]["context_id"].(string)
	require.Equal(t, context, op.get("/tasks?context=" + url.QueryEscape(context)).list("tasks")[0]["context_id"])
	require.Equal(t, column(all, "id"), op.pages("/tasks?limit=2", "tasks", "id", "before"))
	require.Contains(t, string(op.get("/tasks/counts").Body), `"failed":1`)
	require.Contains(t, string(op.get("/tasks/counts?agent=demo&state=failed").Body), `"completed":0`)

	// The log is what is stored: the order of members and the digits of numbers are those of the agent and the client.
	whole := op.get("/tasks/" + data + "/log")
	stored := clustertest.One[string](db, "SELECT payload::text FROM holdfast.v_events WHERE task = $1 AND kind = 'artifact'", data)
	require.Contains(t, string(whole.Body), `"payload":`+stored)
	require.Regexp(t, `\d{17,}`, stored, "the sample has a large integer")
	require.Contains(t, string(op.get("/tasks/"+asked).Body), `"metadata":{"z":1,"a":12345678901234567890,"f":1.0}`)
	require.Contains(t, string(op.get("/tasks/"+asked).Body), `which one?`)
	require.Contains(t, string(op.get("/tasks/"+asked).Body), `"status_message":{"id":`)
	for _, version := range []string{"1.0", "0.3"} {
		rendered := op.get("/tasks/" + data + "/log?version=" + version).list("events")
		require.Nil(t, rendered[0]["a2a"], "clients do not see the message as an event")
		require.NotNil(t, rendered[len(rendered)-1]["a2a"])
	}
	forth := op.pages("/tasks/"+data+"/log?limit=2&order=asc", "events", "seq", "after")
	back := op.pages("/tasks/"+data+"/log?limit=2&order=desc", "events", "seq", "before")
	require.Len(t, forth, len(whole.list("events")))
	slices.Reverse(back)
	require.Equal(t, forth, back)
	runs := op.get("/tasks/" + failed + "/runs").list("runs")
	require.Equal(t, []string{"failed"}, column(runs, "outcome"))
	require.Equal(t, []string{"no luck"}, column(runs, "error"))
	require.NotEmpty(t, runs[0]["worker_name"])
	require.Equal(t, clustertest.Column[string](db, "SELECT outcome FROM holdfast.v_runs WHERE task = $1 ORDER BY run", caller),
		column(op.get("/tasks/"+caller+"/runs").list("runs"), "outcome"))
	calls := op.get("/tasks/" + caller + "/lineage").list("calls")
	require.Len(t, calls, 1)
	require.Equal(t, caller, op.get("/tasks/"+calls[0]["task"].(string)+"/lineage").text("called_by"))

	require.Equal(t, []string{"demo", "second"}, column(op.get("/agents").list("agents"), "name"))
	require.NotEmpty(t, op.get("/agents/demo").read()["card"].(object)["skills"])
	require.Equal(t, http.StatusNotFound, op.do("GET", "/agents/none", "").Status)
	require.Len(t, op.get("/replicas").list("replicas"), 1)
	require.Equal(t, true, op.get("/replicas").list("replicas")[0]["this"])
	require.NotEmpty(t, op.get("/limits").list("agents"))
	require.Empty(t, op.get("/retention/plan").list("steps"))
	require.NotEmpty(t, op.get("/doctor").list("checks"))
	db.Keys(store.APIKey{Name: "one", Tenant: "t"}, "x", "y", "z")
	require.Len(t, op.pages("/keys?limit=2", "keys", "subject", "before"), 3)
	require.NotContains(t, string(op.get("/keys").Body), "hash")
}

// every operation, with a task, a webhook and a job in its path.
func operations(id, job string) (all []admin.Operation) {
	for _, o := range admin.Operations() {
		if strings.HasPrefix(o.Path, "/jobs") {
			id := job
			o.Path = strings.ReplaceAll(o.Path, "{id}", id)
		}
		o.Path = strings.NewReplacer("{id}", id, "{config}", "c", "{name}", "demo", "{agent}", "demo", "{path}", "tasks",
			"{artifact}", "echo", "{part}", "0").Replace(o.Path)
		all = append(all, o)
	}
	return all
}

// bodies are valid requests, by the last part of the path.
func bodyOf(path string) string {
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "answer":
		return `{"reason":"r","text":"x"}`
	case "keys":
		return `{"reason":"r","subject":"x"}`
	case "jobs":
		return `{"reason":"r","action":"hold","filter":{"agent":["none"]}}`
	}
	return `{"reason":"r"}`
}

// peek sends a request and reads only the status: streams do not end.
func (o *operator) peek(method, path, body string) int {
	o.t.Helper()
	res, err := o.begin(waittest.Context(o.t), method, path, body)
	require.NoError(o.t, err)
	defer res.Body.Close()
	return res.StatusCode
}

const guarded = clustertest.WithKeys + "admin: {schemes: [keys], all_tenants_scope: admin:all}\n"

func TestRights(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: guarded})
	key := func(scopes ...string) string { return db.Keys(store.APIKey{Tenant: "t", Scopes: scopes}, "op")[0] }
	const unknown = "01a20b75-18e0-70d5-bd02-3a3ee11c7abc"
	for name, x := range map[string]struct {
		right admin.Right
		key   string
	}{
		"none":       {0, key("other", "admin:all")},
		"view":       {admin.View, key("admin:view", "admin:all")},
		"act":        {admin.Act, key("admin:act", "admin:all")},
		"administer": {admin.Administer, key("admin:administer", "admin:all")},
		"operator":   {admin.Administer, key("holdfast:operator", "admin:all")},
	} {
		op := as(t, r, x.key)
		for _, o := range operations(unknown, unknown) {
			status := op.peek(o.Method, o.Path, bodyOf(o.Path))
			if x.right < o.Right {
				require.Equal(t, http.StatusForbidden, status, "%s: %s %s", name, o.Method, o.Path)
			} else {
				require.NotContains(t, []int{http.StatusForbidden, http.StatusUnauthorized}, status, "%s: %s %s", name, o.Method, o.Path)
				require.Less(t, status, 500, "%s: %s %s", name, o.Method, o.Path)
			}
		}
		// A job needs the right of its action.
		require.Equal(t, x.right < admin.Administer, op.peek("POST", "/jobs", `{"reason":"r","action":"purge","filter":{"agent":["none"]}}`) == http.StatusForbidden, name)
	}
	stranger := as(t, r, "")
	for _, o := range append(operations(unknown, unknown), admin.Operation{Method: "GET", Path: "/no/such"}) {
		require.Equal(t, http.StatusUnauthorized, stranger.peek(o.Method, o.Path, bodyOf(o.Path)), o.Path)
	}
	a := as(t, r, key("other")).do("GET", "/tasks", "")
	require.Equal(t, http.StatusForbidden, a.Status)
	require.Contains(t, a.text("detail"), "admin:view")

	// The other pages of the admin address show all tenants.
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		require.Equal(t, http.StatusForbidden, statusOf(r, path, []string{"Authorization", "Bearer " + key("holdfast:operator")}), path)
		require.Equal(t, http.StatusOK, statusOf(r, path, []string{"Authorization", "Bearer " + key("holdfast:operator", "admin:all")}), path)
	}
}

// An operator of one tenant gets the answers for a task that does not exist, in every operation.
func TestTenants(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"with a scope for all": guarded,
		"by default":           clustertest.WithKeys + "admin: {schemes: [keys]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			tenantsSeeTheirOwn(t, db, clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config + receivertest.Pushing(nil)}))
		})
	}
}

func tenantsSeeTheirOwn(t *testing.T, db *clustertest.DB, r *clustertest.Replica) {
	t.Helper()
	var client, op [2]string
	for i, tenant := range []string{"a", "b"} {
		client[i] = db.Keys(store.APIKey{Tenant: tenant}, "alice")[0]
		op[i] = db.Keys(store.APIKey{Tenant: tenant, Scopes: []string{"holdfast:operator"}}, "op")[0]
	}
	own, other := as(t, r, op[0]), as(t, r, op[1])
	foreign, mine := hooked(t, r, client[1], "ask:secret-of-b?"), hooked(t, r, client[0], "ask:mine?")
	job := other.act("/jobs", `{"action":"hold","reason":"r","filter":{"agent":["demo"]}}`).text("id")
	matched, done, _, _ := other.done(job)
	require.Equal(t, []int{1, 1}, []int{matched, done})
	before := clustertest.One[string](db, "SELECT string_agg(t::text, E'\n') FROM holdfast.tasks t WHERE tenant = 'b'")

	const unknown = "01a20b75-18e0-70d5-bd02-3a3ee11c7abc"
	missing := operations(unknown, unknown)
	for i, o := range operations(foreign, job) {
		named := admin.Operations()[i].Path
		switch {
		case o.Whole:
			require.Equal(t, http.StatusForbidden, own.peek(o.Method, o.Path, bodyOf(o.Path)), named)
		case strings.Contains(named, "{id}"):
			a, b := own.do(o.Method, o.Path, bodyOf(o.Path)), own.do(o.Method, missing[i].Path, bodyOf(o.Path))
			require.Equal(t, http.StatusNotFound, a.Status, "%s %s: %s", o.Method, named, a.Body)
			require.Equal(t, string(b.Body), string(a.Body), "the answer for a task that does not exist")
		case !o.Stream && o.Method == http.MethodGet:
			a := own.get(o.Path)
			for _, secret := range []string{foreign, "secret-of-b", job, `"tenant":"b"`} {
				require.NotContains(t, string(a.Body), secret, named)
			}
		}
	}
	require.Equal(t, before, clustertest.One[string](db, "SELECT string_agg(t::text, E'\n') FROM holdfast.tasks t WHERE tenant = 'b'"))
	require.Equal(t, []string{mine}, column(own.get("/tasks").list("tasks"), "id"))
	all := as(t, r, db.Keys(store.APIKey{Scopes: []string{"admin:view", "admin:all"}}, "root")[0])
	require.ElementsMatch(t, []string{mine, foreign}, column(all.get("/tasks").list("tasks"), "id"))
	require.Empty(t, own.get("/tasks?tenant=b").list("tasks"))
	require.Contains(t, string(own.get("/tasks/counts").Body), `"input-required":1`)
	require.Equal(t, []string{mine}, column(own.get("/webhooks").list("webhooks"), "id"))
	require.Empty(t, own.get("/webhooks?tenant=b").list("webhooks"))
	require.Nil(t, own.get("/agents").list("agents")[0]["queue"], "a queue has the tasks of all tenants")
	for _, k := range own.get("/keys").list("keys") {
		require.Equal(t, "a", k["tenant"])
	}

	// A job of an operator touches its tenant only, whatever its filter says.
	for _, filter := range []string{`{"agent":["demo"],"state":["input-required"]}`, `{"tenant":["b"]}`} {
		id := own.act("/jobs", `{"action":"purge","reason":"r","filter":`+filter+`}`).text("id")
		own.done(id)
	}
	require.Equal(t, http.StatusNotFound, own.do("GET", "/tasks/"+mine, "").Status)
	require.Equal(t, http.StatusOK, other.do("GET", "/tasks/"+foreign, "").Status)
	require.Equal(t, before, clustertest.One[string](db, "SELECT string_agg(t::text, E'\n') FROM holdfast.tasks t WHERE tenant = 'b'"))
}

// Views belong to the operators of a tenant, or to those of all tenants, who choose the same names without meeting each other.
func TestViews(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: guarded})
	key := func(tenant string, scopes ...string) *operator {
		return as(t, r, db.Keys(store.APIKey{Tenant: tenant, Scopes: scopes}, "op")[0])
	}
	ops := map[string]*operator{
		"a": key("a", "admin:act"), "b": key("b", "admin:act"), "": key("", "admin:act"), "all": key("a", "admin:act", "admin:all"),
	}
	for name, op := range ops {
		for _, filter := range []string{"state:working", "state:failed agent:" + name} {
			require.Equal(t, http.StatusOK, op.do("PUT", "/views/bad%20ones", `{"filter":"`+filter+`"}`).Status)
		}
	}
	for name, op := range ops {
		require.Equal(t, []string{"state:failed agent:" + name}, column(op.get("/views").list("views"), "filter"), name)
	}
	require.Equal(t, http.StatusOK, ops["a"].do("DELETE", "/views/bad%20ones", "").Status)
	require.Equal(t, http.StatusNotFound, ops["a"].do("DELETE", "/views/bad%20ones", "").Status)
	require.Len(t, ops["b"].get("/views").list("views"), 1)
	require.Len(t, key("b", "admin:view").get("/views").list("views"), 1, "of the tenant, not of the operator")
	require.Equal(t, "view.put|bad ones, view.deleted|bad ones", clustertest.One[string](db,
		"SELECT string_agg(DISTINCT action || '|' || object, ', ' ORDER BY action || '|' || object DESC) FROM holdfast.v_audit WHERE action LIKE 'view.%' AND subject = 'op'"))
}

// A list selects by what clients gave as metadata and by the tokens that agents report; counts say how many tasks each agent has.
func TestListsByMetadataAndTokens(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	op := as(t, r, "")
	ids := []string{send(r, "", "ask:one?"), send(r, "", "ask:two?"), send(r, "", "ask:three?")}
	for i, metadata := range []string{`{"ticket":"T-9","n":7}`, `{"ticket":"T-1","n":"7"}`, `null`} {
		db.Exec("UPDATE holdfast.tasks SET metadata = nullif($2, 'null')::json WHERE id = $1", ids[i], metadata)
	}
	db.Exec(`UPDATE holdfast.task_events SET payload = '{"message":{"metadata":{"usage":{"inputTokens":900,"outputTokens":101}}}}'
		WHERE task = $1 AND state = 3`, ids[1])
	found := func(query string) []string { return column(op.get("/tasks?"+query).list("tasks"), "id") }
	require.Equal(t, []string{ids[0]}, found("metadata=ticket:T-9"))
	require.Equal(t, []string{ids[1], ids[0]}, found("metadata=n:7"), "a value is compared as text")
	require.Equal(t, []string{ids[1]}, found("metadata=n:7&metadata=ticket:T-1"))
	require.Empty(t, found("metadata=ticket:"))
	require.Equal(t, []string{ids[1]}, found("min_tokens=1001"))
	require.Equal(t, []string{ids[1]}, found("min_tokens=1&max_tokens=1001"))
	require.Equal(t, []string{ids[2], ids[0]}, found("max_tokens=1000"))
	require.Contains(t, string(op.get("/tasks/counts?metadata=n:7").Body), `"agents":{"demo":2}`)
}

// A search finds what clients and agents have said, in any case and page by page, and an operator of one tenant finds its own.
func TestSearch(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: guarded})
	client := [2]string{db.Keys(store.APIKey{Tenant: "a"}, "alice")[0], db.Keys(store.APIKey{Tenant: "b"}, "bob")[0]}
	op := as(t, r, db.Keys(store.APIKey{Tenant: "a", Scopes: []string{"admin:view", "admin:all"}}, "op")[0])
	own := as(t, r, db.Keys(store.APIKey{Tenant: "a", Scopes: []string{"admin:view"}}, "own")[0])
	one := send(r, client[0], "ask:Which Invoice_4711?")
	two := send(r, client[1], "fail:no invoice_4711 \"here\" 100%")
	send(r, client[0], "ask:something else")
	silent := send(r, client[0], "chunks=1 size=12") // no message of the agent repeats it
	found := func(o *operator, query string) []string { return column(o.get("/tasks?"+query).list("tasks"), "id") }
	require.Equal(t, []string{two, one}, found(op, "text=INVOICE_4711"))
	require.Equal(t, []string{one}, found(own, "text=INVOICE_4711"), "of its tenant")
	require.Equal(t, []string{one}, found(op, "text=invoice_4711&state=input-required"))
	require.Equal(t, []string{two}, found(op, "text="+url.QueryEscape(`"here" 100%`)))
	require.Equal(t, []string{silent}, found(own, "text=SIZE%3D12"), "a message of the client")
	for _, none := range []string{"text=invoiceX4711", "text=%25%25", "text=%5B", "text=parts", "text=" + one} {
		require.Empty(t, found(op, none), none)
	}
	a := op.get("/tasks?text=invoice&limit=1")
	require.Equal(t, []string{two}, column(a.list("tasks"), "id"))
	require.NotEmpty(t, a.text("searched_since"))
	require.Equal(t, []string{one}, column(op.get("/tasks?text=invoice&limit=1&before="+a.text("next")).list("tasks"), "id"))
	require.Empty(t, op.get("/tasks?text=invoice").text("searched_since"), "all tasks were searched")
	require.Equal(t, "text", op.do("GET", "/tasks?text=x&id="+one, "").text("field"))
	require.Equal(t, "text", op.do("GET", "/tasks?text=", "").text("field"))
	require.Equal(t, "text", op.do("GET", "/tasks/stream?text=x", "").text("field"), "live lists have no search")
}

// A request that is wrong names its mistake.
func TestBadInput(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	op := as(t, r, "")
	id := send(r, "", "ask:x")
	for _, x := range []struct{ method, path, body, field string }{
		{"GET", "/tasks?stat=failed", "", "stat"},
		{"GET", "/tasks?state=sad", "", "state"},
		{"GET", "/tasks?agent=", "", "agent"},
		{"GET", "/tasks?context=a&context=b", "", "context"},
		{"GET", "/tasks?limit=0", "", "limit"},
		{"GET", "/tasks?limit=501", "", "limit"},
		{"GET", "/tasks?limit=x", "", "limit"},
		{"GET", "/tasks?before=x", "", "before"},
		{"GET", "/tasks?since=yesterday", "", "since"},
		{"GET", "/tasks?until=0001-01-01T00:00:00Z", "", "until"},
		{"GET", "/tasks?context=%00", "", "context"},
		{"GET", "/tasks/counts?limit=5", "", "limit"},
		{"GET", "/tasks/stream?last_event_id=x", "", "Last-Event-ID"},
		{"GET", "/tasks/" + id + "?x=1", "", "x"},
		{"GET", "/tasks/" + id + "/log?order=up", "", "order"},
		{"GET", "/tasks/" + id + "/log?after=-1", "", "after"},
		{"GET", "/tasks/" + id + "/log?before=5", "", "before"},
		{"GET", "/tasks/" + id + "/log?version=9", "", "version"},
		{"GET", "/tasks/" + id + "/log?kind=status&kind=x", "", "kind"},
		{"GET", "/tasks/" + id + "/artifacts/a/parts/-1", "", "part"},
		{"GET", "/tasks/" + id + "/artifacts/a/parts/x", "", "part"},
		{"GET", "/tasks/" + id + "/log/stream?version=9", "", "version"},
		{"GET", "/webhooks?failing=yes", "", "failing"},
		{"GET", "/webhooks?before=x", "", "before"},
		{"GET", "/keys?before=none", "", "before"},
		{"GET", "/audit?before=1.2", "", "before"},
		{"GET", "/audit?before=1.99999.3", "", "before"},
		{"GET", "/jobs?before=1", "", "before"},
		{"POST", "/tasks/" + id + "/cancel", `{"reason":"` + strings.Repeat("x", 1001) + `"}`, "reason"},
		{"POST", "/tasks/" + id + "/cancel", `{"reason":7}`, "reason"},
		{"POST", "/tasks/" + id + "/cancel", `{"reason":"r","why":1}`, "why"},
		{"POST", "/tasks/" + id + "/cancel", `{"reason":"r","last":true}`, "last"},
		{"POST", "/tasks/" + id + "/retry", `{"reason":"r","from":1}`, "from"},
		{"POST", "/tasks/" + id + "/webhooks/c/redeliver", `{"reason":"r","from":-1}`, "from"},
		{"POST", "/tasks/" + id + "/answer", `{"reason":"r"}`, "text"},
		{"POST", "/tasks/" + id + "/answer", `{"reason":"r","text":"x","parts":[{"text":"y"}]}`, "parts"},
		{"POST", "/tasks/" + id + "/answer", `{"reason":"r","parts":[{}]}`, "parts[0]"},
		{"POST", "/tasks/" + id + "/answer", `{"reason":"r","parts":[{"text":"x","url":"y"}]}`, "parts[0]"},
		{"POST", "/tasks/" + id + "/answer", `{"reason":"r","text":"x","metadata":[]}`, "metadata"},
		{"POST", "/jobs", `{"reason":"r","filter":{"agent":["a"]}}`, "action"},
		{"POST", "/jobs", `{"reason":"r","action":"explode","filter":{"agent":["a"]}}`, "action"},
		{"POST", "/jobs", `{"reason":"r","action":"cancel"}`, "filter"},
		{"POST", "/jobs", `{"reason":"r","action":"cancel","filter":{"state":["sad"]}}`, "filter.state"},
		{"POST", "/jobs", `{"reason":"r","action":"purge","filter":{"retried":["true"]}}`, "filter.retried"},
		{"GET", "/tasks?min_duration=soon", "", "min_duration"},
		{"GET", "/tasks?metadata=ticket", "", "metadata"},
		{"GET", "/tasks?metadata=a:1&metadata=a:2", "", "metadata"},
		{"GET", "/tasks?min_tokens=many", "", "min_tokens"},
		{"GET", "/tasks?max_tokens=5&text=x", "", "min_tokens"},
		{"GET", "/tasks/counts?min_tokens=5", "", "min_tokens"},
		{"POST", "/jobs", `{"reason":"r","action":"purge","filter":{"metadata":["a:1"]}}`, "filter.metadata"},
		{"PUT", "/views/x", `{"filter":""}`, "filter"},
		{"PUT", "/views/" + strings.Repeat("x", 201), `{"filter":"state:failed"}`, "name"},
		{"GET", "/tasks?state=failed&-state=failed", "", "-state"},
		{"GET", "/tasks?-colour=red", "", "-colour"},
		{"POST", "/jobs", `{"reason":"r","action":"cancel","filter":{"stats":["failed"]}}`, "filter.stats"},
		{"POST", "/keys", `{"reason":"r"}`, "subject"},
		{"POST", "/keys", `{"reason":"r","subject":"x","scopes":["a b"]}`, "scopes"},
		{"POST", "/keys", `{"reason":"r","subject":"x","expires_in_seconds":-1}`, "expires_in_seconds"},
		{"POST", "/keys", `{"reason":"r","subject":"x","name":"` + strings.Repeat("n", 256) + `"}`, "name"},
		{"POST", "/keys", `{"reason":"r","subject":"x\u0007"}`, "subject"},
	} {
		a := op.do(x.method, x.path, x.body)
		require.Equal(t, http.StatusBadRequest, a.Status, "%s %s: %s", x.path, x.body, a.Body)
		require.Equal(t, x.field, a.text("field"), "%s %s: %s", x.path, x.body, a.Body)
		require.True(t, strings.HasPrefix(a.text("detail"), x.field+": "), "%s", a.Body)
	}
	require.Equal(t, http.StatusBadRequest, op.do("POST", "/tasks/"+id+"/cancel", `{"reason":"r"} {}`).Status)
	require.Equal(t, http.StatusBadRequest, op.do("POST", "/tasks/"+id+"/cancel", `{`).Status)
	require.Equal(t, http.StatusRequestEntityTooLarge, op.do("POST", "/tasks/"+id+"/answer", `{"text":"`+strings.Repeat("x", 2<<20)+`"}`).Status)
	require.Equal(t, http.StatusUnsupportedMediaType, op.do("POST", "/tasks/"+id+"/cancel", `{"reason":"r"}`, "Content-Type", "text/plain").Status)
	require.Equal(t, http.StatusNotFound, op.do("GET", "/nothing", "").Status)
	a := op.do("POST", "/tasks", "{}")
	require.Equal(t, http.StatusMethodNotAllowed, a.Status)
	require.Equal(t, "GET", a.Header.Get("Allow"))
	require.Equal(t, http.StatusNotFound, op.do("GET", "/jobs/x", "").Status)
	require.Equal(t, "input-required", op.get("/tasks/"+id).text("state"), "nothing was done")

	// A page of another origin cannot write, and a name that an attacker points here cannot even read.
	for _, headers := range [][]string{{"Origin", "https://evil.example.com"}, {"Sec-Fetch-Site", "cross-site"}} {
		a := op.do("POST", "/tasks/"+id+"/cancel", `{"reason":"r"}`, headers...)
		require.Equal(t, http.StatusForbidden, a.Status, headers)
		require.Equal(t, "Origin", a.text("field"))
	}
	require.Equal(t, http.StatusForbidden, op.do("GET", "/tasks", "", "Host", "evil.example.com").Status)
	require.Equal(t, "canceled", op.act("/tasks/"+id+"/cancel", `{"reason":"r"}`, "Origin", r.Admin).text("outcome"), "its own origin can")
}
