package webhooks

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// hookWires are the versions whose webhooks differ.
var hookWires = []*a2atest.Wire{a2atest.V01, a2atest.V03, a2atest.V10}

// tell sends to a task, or creates one, with a webhook if there is a URL. It returns when the task is parked or has
// ended.
func tell(r *clustertest.Replica, w *a2atest.Wire, taskID, text, url string) (id string) {
	r.T.Helper()
	more := object{"token": "the token"}
	if w != a2atest.V10 {
		more["authentication"] = object{"schemes": []string{"Basic"}, "credentials": "dTpw"}
	}
	return r.Send(w, a2atest.Say(text).To(taskID).Hooked(url, more)).Task()
}

// A webhook of every version gets every change of a task in the format of that version, signed with a key that all
// replicas publish.
func TestWebhooksOfEveryVersion(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{
		DB: db.URL, Config: "public_url: https://agents.example\n" + receivertest.Hooked(nil),
	})
	hook := receivertest.Start(t, 1)

	require.Contains(t, a.Read("/.well-known/agent-card.json"), `"pushNotifications":true`)

	const script = "chunks=3 size=8 delay=5ms"
	id01 := tell(a, a2atest.V01, "", script, hook.URL+"/v01")
	n01, states := hook.Until("completed")
	require.Equal(t, []string{"working", "completed"}, states)
	id03 := tell(b, a2atest.V03, "", script, hook.URL+"/v03")
	n03, states := hook.Until("completed")
	require.Equal(t, []string{"working", "completed"}, states)
	tell(a, a2atest.V10, "", script, hook.URL+"/v10")
	n10, states := hook.Until("completed")
	require.Equal(t, []string{"working", "completed"}, states)

	end01, end03, end10 := n01[1], n03[1], n10[1]
	require.Contains(t, string(end01.Body), `"taskId":"`+id01+`"`)
	require.Equal(t, "the token", end01.Header.Get("X-A2A-Token"))
	require.Equal(t, "application/json", end01.Header.Get("Content-Type"))
	require.Equal(t, "Basic dTpw", end01.Header.Get("Authorization"))
	require.Contains(t, string(end03.Body), `"kind":"task","id":"`+id03+`"`)
	require.Contains(t, string(end03.Body), `"artifacts":[`, "the whole task")
	require.NotContains(t, string(n03[0].Body), `"artifacts":[`, "as of that event")
	require.Contains(t, string(end10.Body), `"state":"TASK_STATE_COMPLETED"`)
	require.Equal(t, "application/a2a+json", end10.Header.Get("Content-Type"))
	require.Equal(t, "the token", end10.Header.Get("A2A-Notification-Token"))
	require.Equal(t, "Bearer "+end10.Header.Get("X-A2A-Signature"), end10.Header.Get("Authorization"))

	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal([]byte(b.Read("/.well-known/jwks.json")), &set))
	for _, n := range slices.Concat(n01, n03, n10) {
		signed, err := jose.ParseSignedCompact(n.Header.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256})
		require.NoError(t, err)
		_, err = signed.Verify(set)
		require.NoError(t, err)
		claims := n.Claims(t)
		require.Equal(t, "https://agents.example", claims.Iss)
		require.Equal(t, hook.URL+n.Path, claims.Aud)
	}
}

// A receiver is killed and stays down while its tasks' logs grow and replicas restart. When it is back it gets all
// events, in order.
func TestReceiverGetsBacklogAfterOutage(t *testing.T) {
	t.Parallel()
	const tasks = 24
	db := clustertest.NewDB(t)
	config := receivertest.Hooked(object{"coalesce_after": 0, "timeout": "2m"})
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	hook := receivertest.Start(t, 1)
	before := map[string]*receivertest.Notification{} // by delivery id
	wireOf, taskOf := map[string]*a2atest.Wire{}, map[string]string{}
	begin := func(i int) {
		path := fmt.Sprintf("/%d", i)
		wireOf[path] = hookWires[i%len(hookWires)]
		taskOf[path] = tell(a, wireOf[path], "", "ask:0", hook.URL+path)
	}
	// Half of the tasks had deliveries before.
	for i := range tasks / 2 {
		begin(i)
	}
	db.NothingIsDue()
	for _, n := range hook.Rest() {
		before[n.ID()] = n
	}
	require.Len(t, before, tasks, "two of each task")
	hook.Kill()
	for i := tasks / 2; i < tasks; i++ {
		begin(i)
	}
	for path, id := range taskOf {
		tell(b, wireOf[path], id, "well", "")
	}
	refused := func(least int) {
		waittest.Eventually(t, "attempts fail", func() error {
			n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_push_attempts WHERE class = 'network'")
			return waittest.Unless(n >= least, "%d", n)
		})
	}
	refused(3 * tasks)
	a.Kill()
	b.Stop()
	db.Exec("UPDATE holdfast.push_cursors SET due_at = now(), locked_until = now() WHERE claim IS NOT NULL") // the claims of a end
	a.Run()
	b.Run()
	waittest.Eventually(t, "attempts continue", func() error {
		n := clustertest.One[int](db, "SELECT count(DISTINCT worker_id) FROM holdfast.push_attempts")
		return waittest.Unless(n > 2, "%d", n)
	})

	hook.Run()
	told := hook.UntilAll(db, tasks)
	for path := range taskOf {
		want := []string{"working", "input-required", "submitted", "working", "completed"}
		for _, n := range before {
			if n.Path == path {
				require.NotContains(t, told.First, n.ID(), "recorded deliveries are not repeated")
				want = want[1:]
			}
		}
		require.Equal(t, want, told.States[path], path)
	}
}

// Of two replicas, the delivering one is killed after its notification arrived and before it can record that: the
// receiver delays its answer. The other replica delivers the event again under the same id, and no other event twice.
func TestRedeliveryAfterKillHasSameID(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	var replicas []*clustertest.Replica
	config := receivertest.Hooked(object{"timeout": "2m"})
	for _, name := range []string{"a", "b"} {
		replicas = append(replicas, clustertest.Start(t, clustertest.Options{Name: name, DB: db.URL, Config: config, Env: []string{"HOLDFAST_ROLES=push"}}))
	}
	api := clustertest.Start(t, clustertest.Options{Name: "api", DB: db.URL, Config: config, Env: []string{"HOLDFAST_ROLES=api,worker"}})
	hook := receivertest.Start(t, 1)
	hook.Behave("", receivertest.Act{Hold: true})
	id := tell(api, a2atest.V03, "", "echo:x", hook.URL)
	first := hook.Next("the first")
	dispatcher := clustertest.One[string](db, "SELECT p.name FROM holdfast.push_cursors k JOIN holdfast.processes p ON p.id = k.worker_id")
	doomed := slices.IndexFunc(replicas, func(r *clustertest.Replica) bool { return r.Is(dispatcher) })
	require.GreaterOrEqual(t, doomed, 0, dispatcher)
	replicas[doomed].Kill()
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.push_attempts"))
	hook.Behave("")
	db.Exec("UPDATE holdfast.push_cursors SET due_at = now(), locked_until = now()") // the end of the claim
	told := hook.UntilAll(db, 1)
	require.Equal(t, []string{"working", "completed"}, told.States["/"])
	told.Add(first)
	require.Len(t, told.First, 2, "the repeated delivery was expected")
	for delivery, times := range told.Times {
		if delivery == first.ID() {
			times--
		}
		require.Equal(t, 1, times, delivery)
	}
	require.Equal(t, []string{"delivered", "delivered"}, classes(db, id))
	require.NotContains(t, clustertest.Column[string](db, "SELECT worker_name FROM holdfast.v_push_attempts"), dispatcher)
}
