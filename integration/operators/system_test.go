package operators

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The pages of the console about the system read these operations.
func TestSystem(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings +
		"  - {name: far, executor: {kind: worker}}\nretention: {tasks: 720h, audit: 720h}\n" + receivertest.Pushing(a2atest.Object{"retry_first": "1h", "retry_most": "1h"})})
	op := as(t, r, "")
	send(r, "", "echo:x")
	for i := range 3 {
		send(r, "", fmt.Sprint("fail:no seat ", 1000+i))
	}
	send(r, "", "fail:other <script>alert(1)</script>")

	stats := op.get("/stats?window=1h&agent=demo")
	row := stats.list("agents")[0]
	require.Equal(t, "demo", row["agent"])
	require.Len(t, row["ended"], 60)
	sum := func(name string) (n int) {
		for _, v := range row[name].([]any) {
			var one int
			_, err := fmt.Sscan(fmt.Sprint(v), &one)
			require.NoError(t, err)
			n += one
		}
		return n
	}
	require.Equal(t, []int{5, 4}, []int{sum("ended"), sum("failed")})
	measured := 0
	for _, v := range row["run_p95"].([]any) {
		if v != nil {
			measured++
		}
	}
	require.Positive(t, measured)
	require.Len(t, op.get("/stats?window=7d").list("agents"), 2)
	require.Equal(t, http.StatusNotFound, op.do("GET", "/stats?agent=none", "").Status)

	groups := op.get("/agents/demo/failures?window=24h").list("groups")
	require.Len(t, groups, 2)
	require.Equal(t, "no seat 1002", groups[0]["reason"], "the newest one")
	require.Equal(t, "3", fmt.Sprint(groups[0]["tasks"]))
	require.Len(t, groups[0]["examples"], 3)
	// The tasks of a group, page by page, and those of one that was not among the first.
	reason := "/tasks?reason=" + url.QueryEscape("no seat 77")
	seats := op.get(reason).list("tasks")
	require.Len(t, seats, 3)
	page := op.get(reason + "&state=failed&agent=demo&limit=2")
	require.Equal(t, column(seats[:2], "id"), column(page.list("tasks"), "id"))
	require.NotEmpty(t, page.text("searched_since"))
	require.Equal(t, column(seats[2:], "id"), column(op.get(reason+"&before="+page.text("next")).list("tasks"), "id"))
	require.Len(t, op.get("/tasks?reason="+url.QueryEscape(groups[1]["reason"].(string))).list("tasks"), 1)
	for _, none := range []string{reason + "&state=rejected", "/tasks?reason=", "/tasks?reason=no+seat"} {
		require.Empty(t, op.get(none).list("tasks"), none)
	}
	for _, wrong := range []string{
		"/tasks?reason=x&text=y", "/tasks?reason=x&state=completed", "/tasks/stream?reason=x", "/tasks/counts?reason=x", "/tasks?reason=" + strings.Repeat("x", 2049),
	} {
		require.Equal(t, "reason", op.do("GET", wrong, "").text("field"), wrong)
	}
	require.Equal(t, http.StatusNotFound, op.do("GET", "/agents/none/failures", "").Status)

	signature := op.get("/agents/demo").read()["signature"].(object)
	require.Equal(t, "verified", signature["status"])
	require.NotEmpty(t, signature["key_id"])

	// A worker that has connected, as the worker API records it.
	id := uuid.NewString()
	db.Exec("INSERT INTO holdfast.remote_workers (id, name, version, sdk, agents) VALUES ($1, 'host<1>', 'v9', 'go', '{far}')", id)
	waittest.Eventually(t, "the agent has a worker", func() error {
		v := fmt.Sprint(op.get("/agents/far").read()["workers"])
		return waittest.Unless(v == "1", "it has %s", v)
	})
	workers := op.get("/workers?agent=far&connected=true").list("workers")
	require.Equal(t, []string{"connected"}, column(workers, "state"))
	require.Empty(t, op.get("/workers?agent=demo").list("workers"))
	require.NotContains(t, op.get("/agents/far").read(), "concurrency", "its workers have it")
	// The list of webhooks that lag, and how many there are.
	lags := hooked(t, r, "", "echo:x")
	require.Equal(t, "1", fmt.Sprint(op.get("/webhooks/lags").read()["failing"]))
	host := column(op.get("/webhooks/lags").list("hosts"), "host")[0]
	require.Equal(t, []string{lags}, column(op.get("/webhooks?failing=true&host="+host).list("webhooks"), "id"))
	require.Empty(t, op.get("/webhooks?disabled=true").list("webhooks"))
	require.Empty(t, op.get("/webhooks?before="+lags+"/").list("webhooks"), "a place without a webhook")
	op.act("/tasks/"+lags+"/webhooks/c/disable", `{"reason":"ticket <7> & more"}`)
	require.Equal(t, []string{lags}, column(op.get("/webhooks?disabled=true&agent=demo").list("webhooks"), "id"))
	require.Equal(t, "ticket <7> & more", op.get("/tasks/" + lags + "/webhooks").list("webhooks")[0]["disabled_for"])
	require.NotEmpty(t, op.get("/tasks/"+lags+"/attempts?config=c").list("attempts"))

	partitions := op.get("/partitions").list("partitions")
	families := map[string]int{}
	for _, p := range partitions {
		families[p["family"].(string)]++
		if p["family"] == "tasks" || p["family"] == "audit" {
			require.NotNil(t, p["drops_at"], p["table"])
		}
	}
	require.Len(t, families, 4)
	database := op.get("/database")
	require.NotEmpty(t, database.text("version"))
	require.NotNil(t, database.read()["next_drop"])
	require.Nil(t, database.read()["disk"], "the database of a URL may be on another machine")
	require.Nil(t, database.read()["growth"], "an hour of history at least")
	require.NotEmpty(t, op.get("/replicas").list("duties"))
	use := op.get("/limits").read()["use"].(object)
	require.NotEmpty(t, use["memory"])
	require.Len(t, use["agents"], 2)
}

// Keys are created with a secret that is shown once, used, and revoked.
func TestKeys(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: guarded})
	all := as(t, r, db.Keys(store.APIKey{Tenant: "t", Scopes: []string{"admin:administer", "admin:all"}}, "op")[0])
	own := as(t, r, db.Keys(store.APIKey{Tenant: "a", Scopes: []string{"admin:administer"}}, "op")[0])

	made := all.act("/keys", `{"reason":"ticket 7","name":"ci <1>","tenant":"b","subject":"robot","scopes":["admin:view"],"expires_in_seconds":3600}`)
	require.Equal(t, http.StatusCreated, made.Status)
	require.NotEmpty(t, made.text("expires_at"))
	secret, id := made.text("key"), made.text("id")
	require.Equal(t, "b", as(t, r, secret).get("/me").text("tenant"))
	require.NotContains(t, string(all.get("/keys").Body), secret)
	require.Equal(t, true, all.get("/keys").read()["accepted"])
	require.Equal(t, "ticket 7", clustertest.One[string](db, "SELECT reason FROM holdfast.v_audit WHERE action = 'key.created' AND object = $1", id))
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.audit_log WHERE entries::text LIKE '%' || $1 || '%'", secret))

	// An operator of one tenant keeps to it, and cannot give what it does not have.
	require.Equal(t, "a", own.act("/keys", `{"reason":"r","subject":"x","scopes":["admin:administer"]}`).text("tenant"))
	refused := own.do("POST", "/keys", `{"reason":"r","subject":"x","tenant":"b"}`)
	require.Equal(t, []any{http.StatusForbidden, "tenant"}, []any{refused.Status, refused.text("field")})
	refused = own.do("POST", "/keys", `{"reason":"r","subject":"x","scopes":["admin:all"]}`)
	require.Equal(t, []any{http.StatusForbidden, "scopes"}, []any{refused.Status, refused.text("field")})
	require.Equal(t, http.StatusNotFound, own.do("POST", "/keys/"+id+"/revoke", `{"reason":"r"}`).Status)
	require.Equal(t, "b", as(t, r, secret).get("/me").text("tenant"), "it is still valid")

	require.Equal(t, "revoked", all.act("/keys/"+id+"/revoke", `{"reason":"leaked"}`).text("state"))
	require.Equal(t, "revoked", all.act("/keys/"+id+"/revoke", `{"reason":"leaked"}`).text("state"), "a repeated one")
	waittest.Eventually(t, "the key is refused", func() error {
		status := as(t, r, secret).do("GET", "/me", "").Status
		return waittest.Unless(status == http.StatusUnauthorized, "it gets %d", status)
	})
}

// The audit log is filtered in pages that pass over a bounded number of rows, and is verified.
func TestAuditOfOperators(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	op := as(t, r, "")
	id := send(r, "", "echo:x")
	other := send(r, "", "echo:y")
	for range 3 {
		op.act("/tasks/"+id+"/hold", `{"reason":"a"}`)
		op.act("/tasks/"+id+"/release", `{"reason":"b"}`)
	}
	require.Len(t, op.get("/audit?action=task.held").list("rows"), 3)
	require.Len(t, op.get("/audit?task="+other).list("rows"), 1)
	require.Len(t, op.get("/audit?task="+id+"&method=operator").list("rows"), 6)
	require.Empty(t, op.get("/audit?task="+id+"&agent=none").list("rows"))
	require.Empty(t, op.get("/audit?tenant=none").list("rows"))
	require.Empty(t, op.get("/audit?action=task.held&until=2000-01-01T00:00:00Z").list("rows"))
	require.Empty(t, op.get("/audit?since="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)).list("rows"))
	require.Len(t, op.pages("/audit?action=task.held&limit=1", "rows", "action", "before"), 3)

	noted := op.get("/audit/verify")
	require.Equal(t, "intact", noted.text("status"))
	heads, err := json.Marshal(noted.list("heads"))
	require.NoError(t, err)
	require.Equal(t, "intact", op.act("/audit/verify", `{"heads":`+string(heads)+`}`).text("status"))
	db.Exec("ALTER TABLE holdfast.audit_chains DISABLE TRIGGER ALL")
	db.Exec("UPDATE holdfast.audit_chains SET head = '\\x00' WHERE length > 0")
	broken := op.get("/audit/verify")
	require.Equal(t, "broken", broken.text("status"))
	require.NotEmpty(t, broken.list("broken"))
}
