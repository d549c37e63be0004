package integration

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// hooked adds webhooks to the usual settings.
func hooked(more object) string { return settings + pushing(more) }

// pushing lets webhooks lead to this machine, quick to be tried again, with what else is said of push.
func pushing(more object) string {
	push := object{"allow_private": true, "retry_first": "20ms", "retry_most": "200ms"}
	maps.Copy(push, more)
	section, err := json.Marshal(push)
	if err != nil {
		panic(err)
	}
	return "\npush: " + string(section) + "\n"
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

func message10(taskID, text string) object {
	m := object{"messageId": rand.Text(), "role": "ROLE_USER", "parts": []any{object{"text": text}}}
	if taskID != "" {
		m["taskId"] = taskID
	}
	return m
}

// hookVersions are those whose webhooks differ.
var hookVersions = []string{"0.1", "0.3", "1.0"}

// tell sends in the words of a version to a task, or to a new one, with a webhook if there is a URL. It returns when the
// task has settled.
func (r *replica) tell(version, taskID, text, url string) (id string) {
	r.t.Helper()
	switch version {
	case "0.1":
		p := v01.params(taskID, text)
		if url != "" {
			p["pushNotification"] = hookOf(url)
		}
		return r.call(v01.send, p).task()
	case "0.3":
		p := v03.params(taskID, text)
		if url != "" {
			p["configuration"] = object{"pushNotificationConfig": hookOf(url)}
		}
		return r.call(v03.send, p).task()
	default:
		p := object{"message": message10(taskID, text)}
		if url != "" {
			p["configuration"] = object{"taskPushNotificationConfig": hookOf10(url)}
		}
		got := r.current("SendMessage", p)
		require.Nil(r.t, got.Err, "%s", got.Body)
		var sent struct{ Task struct{ ID string } }
		require.NoError(r.t, json.Unmarshal(got.Result, &sent))
		return sent.Task.ID
	}
}

// A webhook of every version gets every change of a task in the words of that version, signed with keys that any
// replica publishes.
func TestWebhooksOfEveryVersion(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	var replicas []*replica
	for _, name := range []string{"a", "b"} {
		replicas = append(replicas, start(t, replicaOptions{Name: name, DB: db.url, Config: hooked(nil), Env: []string{"HOLDFAST_PUBLIC_URL=https://agents.example"}}))
	}
	t.Cleanup(db.sound)
	a, b := replicas[0], replicas[1]
	hook := receive(t, 1)

	card, err := http.Get(a.url + "/.well-known/agent-card.json")
	require.NoError(t, err)
	defer card.Body.Close()
	shown, err := io.ReadAll(card.Body)
	require.NoError(t, err)
	require.Contains(t, string(shown), `"pushNotifications":true`)

	const script = "chunks=3 size=8 delay=5ms"
	id01 := a.tell("0.1", "", script, hook.url+"/v01")
	n01, states := hook.until("completed")
	require.Equal(t, []string{"working", "completed"}, states)
	id03 := b.tell("0.3", "", script, hook.url+"/v03")
	n03, states := hook.until("completed")
	require.Equal(t, []string{"working", "completed"}, states)
	a.tell("1.0", "", script, hook.url+"/v10")
	n10, states := hook.until("completed")
	require.Equal(t, []string{"working", "completed"}, states)

	end01, end03, end10 := n01[1], n03[1], n10[1]
	require.Contains(t, string(end01.Body), `"taskId":"`+id01+`"`)
	require.Equal(t, "the token", end01.Header.Get("X-A2A-Token"))
	require.Equal(t, "application/json", end01.Header.Get("Content-Type"))
	require.Equal(t, "Basic dTpw", end01.Header.Get("Authorization"))
	require.Contains(t, string(end03.Body), `"kind":"task","id":"`+id03+`"`)
	require.Contains(t, string(end03.Body), `"artifacts":[`, "the task as a whole")
	require.NotContains(t, string(n03[0].Body), `"artifacts":[`, "as of then")
	require.Contains(t, string(end10.Body), `"state":"TASK_STATE_COMPLETED"`)
	require.Equal(t, "application/a2a+json", end10.Header.Get("Content-Type"))
	require.Equal(t, "the token", end10.Header.Get("A2A-Notification-Token"))
	require.Equal(t, "Bearer "+end10.Header.Get("X-A2A-Signature"), end10.Header.Get("Authorization"))

	keys, err := http.Get(b.url + "/.well-known/jwks.json")
	require.NoError(t, err)
	defer keys.Body.Close()
	var set jose.JSONWebKeySet
	require.NoError(t, json.NewDecoder(keys.Body).Decode(&set))
	for _, n := range slices.Concat(n01, n03, n10) {
		signed, err := jose.ParseSignedCompact(n.Header.Get("X-A2A-Signature"), []jose.SignatureAlgorithm{jose.ES256})
		require.NoError(t, err)
		_, err = signed.Verify(set)
		require.NoError(t, err)
		claims := n.claims(t)
		require.Equal(t, "https://agents.example", claims.Iss)
		require.Equal(t, hook.url+n.Path, claims.Aud)
	}
}

// A receiver is killed and stays down while the log of its tasks grows, and replicas come and go. When it is back all
// arrive, in order.
func TestAReceiverThatComesBack(t *testing.T) {
	t.Parallel()
	const tasks = 24
	db := newDB(t)
	config := hooked(object{"coalesce_after": 0, "timeout": "2s"})
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	before := map[string]*notification{} // by delivery
	versionOf, taskOf := map[string]string{}, map[string]string{}
	begin := func(i int) {
		path := fmt.Sprintf("/%d", i)
		versionOf[path] = hookVersions[i%len(hookVersions)]
		taskOf[path] = a.tell(versionOf[path], "", "ask:0", hook.url+path)
	}
	// Some it has heard of before.
	for i := range tasks / 2 {
		begin(i)
	}
	db.nothingIsDue()
	for _, n := range hook.rest() {
		before[n.id()] = n
	}
	require.Len(t, before, tasks, "two of each")
	hook.kill()
	for i := tasks / 2; i < tasks; i++ {
		begin(i)
	}
	for path, id := range taskOf {
		b.tell(versionOf[path], id, "well", "")
	}
	refused := func(least int) {
		eventually(t, "attempts fail", func() error {
			n := one[int](db, "SELECT count(*) FROM holdfast.v_push_attempts WHERE class = 'network'")
			return unless(n >= least, "%d", n)
		})
	}
	refused(3 * tasks)
	a.kill()
	b.signal(syscall.SIGTERM)
	require.Zero(t, b.wait())
	a.run()
	b.run()
	eventually(t, "attempts go on", func() error {
		n := one[int](db, "SELECT count(DISTINCT worker_id) FROM holdfast.push_attempts")
		return unless(n > 2, "%d", n)
	})

	hook.run()
	told := hook.untilAll(db, tasks)
	for path := range taskOf {
		want := []string{"working", "input-required", "submitted", "working", "completed"}
		for _, n := range before {
			if n.Path == path {
				require.NotContains(t, told.first, n.id(), "what was recorded is not repeated")
				want = want[1:]
			}
		}
		require.Equal(t, want, told.states[path], path)
	}
}

// Of two replicas, the one that delivers is killed when its notification has arrived, and before it can record that: the
// receiver holds the answer back. The other one delivers it again, under the same id, and nothing else.
func TestAKilledReplicaRepeatsUnderTheSameID(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := map[int]*replica{} // by process id
	config := hooked(object{"timeout": "4s"})
	for _, name := range []string{"a", "b"} {
		r := start(t, replicaOptions{Name: name, DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=push"}})
		replicas[r.cmd.Process.Pid] = r
	}
	api := start(t, replicaOptions{Name: "api", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=api,worker"}})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	hook.behave("", act{Hold: true})
	id := api.tell("0.3", "", "echo:x", hook.url)
	first := hook.next("the first")
	dispatcher := one[string](db, "SELECT p.name FROM holdfast.push_cursors k JOIN holdfast.processes p ON p.id = k.worker_id")
	doomed := replicas[pidOf(dispatcher)]
	require.NotNil(t, doomed, dispatcher)
	doomed.kill()
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.push_attempts"))
	hook.behave("")

	told := hook.untilAll(db, 1)
	require.Equal(t, []string{"working", "completed"}, told.states["/"])
	told.add(first)
	require.Len(t, told.first, 2, "that was known")
	for delivery, times := range told.times {
		if delivery == first.id() {
			times--
		}
		require.Equal(t, 1, times, delivery)
	}
	require.Equal(t, []string{"delivered", "delivered"}, db.classes(id))
	require.NotContains(t, column[string](db, "SELECT worker_name FROM holdfast.v_push_attempts"), dispatcher)
}

// Hints have to do where one replica serves, another runs and a third delivers.
func TestDeliveriesOnAReplicaOfTheirOwn(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	config := hooked(nil)
	start(t, replicaOptions{Name: "push", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=push"}})
	start(t, replicaOptions{Name: "worker", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=worker"}})
	api := start(t, replicaOptions{Name: "api", DB: db.url, Config: config, Env: []string{"HOLDFAST_ROLES=api"}})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	for range 3 {
		api.tell("0.3", "", "echo:x", hook.url)
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
	config := hooked(object{"timeout": "2s"}) // what was claimed by the one that is killed waits longer than that
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	// Slow enough that one replica does not do it all before the other one looks.
	hook.behave("", act{Wait: 5 * time.Millisecond})
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
	told := newStories(t)
	for ended, killed := 0, false; ended < tasks; {
		if _, state := told.add(hook.next("the end of every task")); state == "completed" {
			ended++
		}
		if !killed && ended%100 == 99 && deliverers() > 1 {
			killed = true
			b.kill()
		}
	}
	require.NoError(t, g.Wait())
	db.nothingIsDue()
	for _, n := range hook.rest() {
		path, state := told.add(n)
		require.Empty(t, path, "something new after the end: %s", state)
	}
	require.Len(t, told.states, tasks)
	for path, states := range told.states {
		require.Equal(t, []string{"working", "completed"}, states, path)
	}
	require.Equal(t, tasks, one[int](db, "SELECT count(*) FROM holdfast.push_configs"))
	require.Equal(t, 2, deliverers())
}
