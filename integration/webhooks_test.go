package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// hooked adds webhooks to the usual settings, quick to be tried again.
func hooked(more string) string {
	return settings + `
push: {allow_private: true, retry_first: 20ms, retry_most: 200ms, timeout: 2s, connect_timeout: 1s` + more + `}
`
}

// notification is what a receiver got.
type notification struct {
	header http.Header
	path   string
	body   []byte
}

// state is that of the task, in any version.
func (n *notification) state(t testing.TB) string {
	t.Helper()
	var doc struct {
		Status       *status
		StatusUpdate *struct{ Status status }
		Task         *struct{ Status status }
	}
	require.NoError(t, json.Unmarshal(n.body, &doc), "%s", n.body)
	switch {
	case doc.Status != nil:
		return doc.Status.State
	case doc.StatusUpdate != nil:
		return doc.StatusUpdate.Status.State
	case doc.Task != nil:
		return "task " + doc.Task.Status.State
	}
	return ""
}

// receiver is one of webhooks. Its handler sees what came and answers.
type receiver struct {
	t    testing.TB
	url  string
	got  chan *notification
	http *httptest.Server
}

func receive(t testing.TB, address string, answer func(w http.ResponseWriter, n *notification)) *receiver {
	t.Helper()
	r := &receiver{t: t, got: make(chan *notification, 10_000)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		n := &notification{q.Header.Clone(), q.URL.Path, body}
		r.got <- n
		if answer != nil {
			answer(w, n)
		}
	}))
	if address != "" {
		require.NoError(t, s.Listener.Close())
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		s.Listener = l
	}
	s.Start()
	t.Cleanup(s.Close)
	r.url, r.http = s.URL, s
	return r
}

// until takes notifications up to one with a state.
func (r *receiver) until(state string) (all []*notification, states []string) {
	r.t.Helper()
	for {
		n := within(r.t, "a notification with "+state, r.got)
		all, states = append(all, n), append(states, n.state(r.t))
		if states[len(states)-1] == state {
			return all, states
		}
	}
}

// hookOf is how a version words a webhook beside a message, or of a task.
func hookOf(url string) object {
	return object{"url": url, "token": "the token", "authentication": object{"schemes": []string{"Basic"}, "credentials": "dTpw"}}
}

func hookOf10(url string) object {
	return object{"url": url, "token": "the token"}
}

// current sends in the words of 1.0.
func (r *replica) current(method string, params object) *answer {
	r.t.Helper()
	got, err := ask(short(r.t, patience), r.url, request(method, params), "A2A-Version", "1.0")
	require.NoError(r.t, err)
	return got
}

func message10(text string) object {
	return object{"messageId": "m", "role": "ROLE_USER", "parts": []any{object{"text": text}}}
}

// A webhook of every version gets every change of a task in the words of that version, signed with keys that any
// replica publishes.
func TestWebhooksOfEveryVersion(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var replicas []*replica
	for _, name := range []string{"a", "b"} {
		replicas = append(replicas, start(t, replicaOptions{Name: name, DB: db.url, Config: hooked(""), Env: []string{"HOLDFAST_PUBLIC_URL=https://agents.example"}}))
	}
	t.Cleanup(db.sound)
	a, b := replicas[0], replicas[1]
	hook := receive(t, "", nil)

	card, err := http.Get(a.url + "/.well-known/agent-card.json")
	require.NoError(t, err)
	defer card.Body.Close()
	shown, err := io.ReadAll(card.Body)
	require.NoError(t, err)
	require.Contains(t, string(shown), `"pushNotifications":true`)

	p01 := v01.params("", "chunks=3 size=8 delay=5ms")
	p01["pushNotification"] = hookOf(hook.url + "/v01")
	id01 := a.call(v01.send, p01).task()
	n01, states := hook.until("completed")
	require.Equal(t, []string{"working", "completed"}, states)

	p03 := v03.params("", "chunks=3 size=8 delay=5ms")
	p03["configuration"] = object{"pushNotificationConfig": hookOf(hook.url + "/v03")}
	id03 := b.call(v03.send, p03).task()
	n03, states := hook.until("completed")
	require.Equal(t, []string{"working", "completed"}, states)

	sent := a.current("SendMessage", object{
		"message": message10("chunks=3 size=8 delay=5ms"), "configuration": object{"taskPushNotificationConfig": hookOf10(hook.url + "/v10")},
	})
	require.Empty(t, sent.Err, "%s", sent.Body)
	n10, states := hook.until("TASK_STATE_COMPLETED")
	require.Equal(t, []string{"TASK_STATE_WORKING", "TASK_STATE_COMPLETED"}, states)

	end01, end03, end10 := n01[1], n03[1], n10[1]
	require.Contains(t, string(end01.body), `"taskId":"`+id01+`"`)
	require.Equal(t, "the token", end01.header.Get("X-A2A-Token"))
	require.Equal(t, "application/json", end01.header.Get("Content-Type"))
	require.Equal(t, "Basic dTpw", end01.header.Get("Authorization"))
	require.Contains(t, string(end03.body), `"kind":"task","id":"`+id03+`"`)
	require.Contains(t, string(end03.body), `"artifacts":[`, "the task as a whole")
	require.NotContains(t, string(n03[0].body), `"artifacts":[`, "as of then")
	require.Equal(t, "application/a2a+json", end10.header.Get("Content-Type"))
	require.Equal(t, "the token", end10.header.Get("A2A-Notification-Token"))
	require.Equal(t, "Bearer "+end10.header.Get("X-A2A-Signature"), end10.header.Get("Authorization"))

	keys, err := http.Get(b.url + "/.well-known/jwks.json")
	require.NoError(t, err)
	defer keys.Body.Close()
	var set jose.JSONWebKeySet
	require.NoError(t, json.NewDecoder(keys.Body).Decode(&set))
	for _, n := range slices.Concat(n01, n03, n10) {
		signed, err := jose.ParseSignedCompact(n.header.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256})
		require.NoError(t, err)
		payload, err := signed.Verify(set)
		require.NoError(t, err)
		var claims struct{ Iss, Aud, Jti string }
		require.NoError(t, json.Unmarshal(payload, &claims))
		require.Equal(t, "https://agents.example", claims.Iss)
		require.Equal(t, hook.url+n.path, claims.Aud)
		require.Equal(t, n.header.Get("Idempotency-Key"), claims.Jti)
	}
}

// A receiver is down while the log of its tasks grows, and replicas come and go. When it is back all arrive, in order.
func TestAReceiverThatComesBack(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked(", coalesce_after: 0")})
	t.Cleanup(db.sound)
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := reserved.Addr().String()
	require.NoError(t, reserved.Close())

	var tasks []string
	for i := range 10 {
		p := v03.params("", "ask:0")
		p["configuration"] = object{"pushNotificationConfig": object{"url": fmt.Sprintf("http://%s/%d", address, i)}}
		tasks = append(tasks, a.call(v03.send, p).task())
	}
	for _, id := range tasks {
		require.Equal(t, "completed", a.call(v03.send, v03.params(id, "well")).state())
	}
	eventually(t, "attempts fail", func() error {
		n := one[int](db, "SELECT count(*) FROM holdfast.push_attempts WHERE class = 'network'")
		return unless(n > 30, "%d", n)
	})
	a.kill()
	a.run()
	eventually(t, "attempts go on", func() error {
		n := one[int](db, "SELECT count(DISTINCT worker_id) FROM holdfast.push_attempts")
		return unless(n > 1, "%d", n)
	})

	hook := receive(t, address, nil)
	states, ids := map[string][]string{}, map[string]bool{}
	for done := 0; done < len(tasks); {
		n := within(t, "all notifications", hook.got)
		if id := n.header.Get("Idempotency-Key"); ids[id] {
			continue // the kill may have come before a record
		} else {
			ids[id] = true
		}
		states[n.path] = append(states[n.path], n.state(t))
		if n.state(t) == "completed" {
			done++
		}
	}
	for path, seen := range states {
		require.Equal(t, []string{"working", "input-required", "submitted", "working", "completed"}, seen, path)
	}
	eventually(t, "nothing is due", func() error {
		n := one[int](db, "SELECT count(*) FROM holdfast.push_cursors WHERE due_at IS NOT NULL")
		return unless(n == 0, "%d", n)
	})
}

// The replica that delivers is killed when its notification has arrived, before it can record that.
func TestAKilledReplicaRepeatsUnderTheSameID(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	config := hooked("")
	doomed := start(t, replicaOptions{Name: "doomed", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=push"}})
	api := start(t, replicaOptions{Name: "api", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=api,worker"}})
	t.Cleanup(db.sound)
	var once sync.Once
	hook := receive(t, "", func(_ http.ResponseWriter, _ *notification) { once.Do(doomed.kill) })
	p := v03.params("", "echo:x")
	p["configuration"] = object{"pushNotificationConfig": object{"url": hook.url}}
	require.Equal(t, "completed", api.call(v03.send, p).state())
	first := within(t, "the first", hook.got)
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.push_attempts"))

	start(t, replicaOptions{Name: "next", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=push"}})
	all, _ := hook.until("completed")
	again := all[0]
	require.Equal(t, first.header.Get("Idempotency-Key"), again.header.Get("Idempotency-Key"))
	require.Equal(t, first.body, again.body)
	counts := map[string]int{first.header.Get("Idempotency-Key"): 1}
	for _, n := range all {
		counts[n.header.Get("Idempotency-Key")]++
	}
	delete(counts, first.header.Get("Idempotency-Key"))
	for id, n := range counts {
		require.Equal(t, 1, n, id)
	}
}

// Hints have to do where one replica serves, another runs and a third delivers.
func TestDeliveriesOnAReplicaOfTheirOwn(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	config := hooked("")
	start(t, replicaOptions{Name: "push", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=push"}})
	start(t, replicaOptions{Name: "worker", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=worker"}})
	api := start(t, replicaOptions{Name: "api", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=api"}})
	t.Cleanup(db.sound)
	hook := receive(t, "", nil)
	for range 3 {
		p := v03.params("", "echo:x")
		p["configuration"] = object{"pushNotificationConfig": object{"url": hook.url}}
		api.call(v03.send, p)
		hook.until("completed")
	}
}

// What the rules refuse is told when it is set, and webhooks can be off.
func TestWebhooksThatMayNotBe(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	strict := start(t, replicaOptions{Name: "strict", DB: db.url, Config: settings})
	off := start(t, replicaOptions{Name: "off", DB: db.url, Config: settings + "\npush: {enabled: false}\n"})
	t.Cleanup(db.sound)
	id := strict.call(v03.send, v03.params("", "ask:well?")).task()
	set := func(r *replica, url string) *answer {
		got, err := ask(short(t, patience), r.url, request("tasks/pushNotificationConfig/set", object{
			"taskId": id, "pushNotificationConfig": object{"url": url},
		}))
		require.NoError(t, err)
		return got
	}
	for _, url := range []string{"http://127.0.0.1:9090/", "http://[::1]/", "http://169.254.169.254/latest/", "http://localhost/", "http://2130706433/"} {
		got := set(strict, url)
		require.Equal(t, -32602, got.Err.Code, "%s: %s", url, got.Body)
		require.Contains(t, got.Err.Message, "pushNotificationConfig.url: the host ")
	}
	require.Equal(t, -32003, set(off, "https://public.example/").Err.Code)
	card, err := http.Get(off.url + "/.well-known/agent-card.json")
	require.NoError(t, err)
	defer card.Body.Close()
	shown, err := io.ReadAll(card.Body)
	require.NoError(t, err)
	require.NotContains(t, string(shown), `"pushNotifications":true`)
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.push_configs"))
	require.Contains(t, string(strict.logs.all()), "HOLDFAST_SECRET_KEYS", "it says that its key lies in the database")
	require.NotContains(t, string(off.logs.all()), "HOLDFAST_SECRET_KEYS")
}

// Two replicas share thousands of webhooks, and one of them is killed in the middle: each receiver gets its task's end,
// and what comes twice is the same under the same id.
func TestThousandsOfWebhooks(t *testing.T) {
	t.Parallel()
	const tasks, clients = 2000, 20
	db := newDB(t)
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: hooked("")})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: hooked("")})
	t.Cleanup(db.sound)
	// Slow enough that one replica does not do it all before the other one looks.
	hook := receive(t, "", func(http.ResponseWriter, *notification) { time.Sleep(5 * time.Millisecond) })
	deliverers := func() int { return one[int](db, "SELECT count(DISTINCT worker_id) FROM holdfast.push_attempts") }
	var g errgroup.Group
	for c := range clients {
		g.Go(func() error {
			for i := c; i < tasks; i += clients {
				p := v03.params("", "echo:x")
				p["configuration"] = object{
					"blocking":               false,
					"pushNotificationConfig": object{"url": fmt.Sprintf("%s/%d", hook.url, i)},
				}
				if _, err := a.try(v03.send, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	bodies, ended := map[string][]byte{}, map[string]bool{}
	for killed := false; len(ended) < tasks; {
		n := within(t, "the end of every task", hook.got)
		id := n.header.Get("Idempotency-Key")
		if before, again := bodies[id]; again {
			require.Equal(t, string(before), string(n.body), "%s: %s", n.path, id)
			continue
		}
		bodies[id] = n.body
		require.False(t, ended[n.path], "%s: something new after the end", n.path)
		ended[n.path] = n.state(t) == "completed"
		if !ended[n.path] {
			delete(ended, n.path)
		}
		if !killed && len(ended)%100 == 99 && deliverers() > 1 {
			killed = true
			b.kill()
		}
	}
	require.NoError(t, g.Wait())
	eventually(t, "nothing is due", func() error {
		n := one[int](db, "SELECT count(*) FROM holdfast.push_cursors WHERE due_at IS NOT NULL")
		return unless(n == 0, "%d", n)
	})
	require.Equal(t, tasks, one[int](db, "SELECT count(*) FROM holdfast.push_configs"))
	require.Equal(t, 2, deliverers())
}
