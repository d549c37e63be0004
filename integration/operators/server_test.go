package operators

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// Each verb of operators prints the same, and exits with the same code, through the admin API of a server and on the database.
func TestVerbsThroughAServer(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.WithKeys + "admin: {schemes: [keys]}\n" + receivertest.Pushing(a2atest.Object{"retry_first": "1h", "retry_most": "1h"})})
	root := db.Keys(store.APIKey{Scopes: []string{"holdfast:operator"}}, "root")[0]
	client := db.Keys(store.APIKey{Tenant: "acme"}, "alice")[0]
	secret := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(secret, []byte(root+"\n"), 0o600))
	local := func(args ...string) clustertest.Finished {
		return clustertest.Command(t, t.TempDir(), db.Env(), args...)
	}
	// No database can be reached on this way.
	over := []string{"HOLDFAST_SERVER=" + a.Admin, "HOLDFAST_SERVER_CREDENTIAL_FILE=" + secret, "HOLDFAST_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}
	remote := func(args ...string) clustertest.Finished { return clustertest.Command(t, t.TempDir(), over, args...) }

	headers := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(headers, []byte("X-API-Key: "+client+"\n"), 0o600))
	send := func(script string) string {
		res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_URL=" + a.URL}, "send", "--protocol", "0.3", "-H", "@"+headers, "-o", "json", script)
		id := regexp.MustCompile(`"id": ?"([0-9a-f-]{36})"`).FindStringSubmatch(res.Out)
		require.NotEmpty(t, id, "%s %s", res.Out, res.Err)
		return id[1]
	}
	asked := send("ask:which city?")
	done := send("chunks=3 size=12 data=1")
	failed := send("fail:no luck")
	hooked := hook(t, a, client)
	waittest.Eventually(t, "the first delivery has failed", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.push_cursors WHERE attempts = 1 AND claim IS NULL")
		return waittest.Unless(n == 1, "%d", n)
	})

	// Reads: byte for byte.
	for _, args := range [][]string{
		{"tasks", "list"},
		{"tasks", "list", "-o", "json", "--state", "failed"},
		{"tasks", "list", "--agent", "nobody"},
		{"tasks", "list", "--limit", "2", "--owner", "alice"},
		{"tasks", "list", "--state", "nonsense"},
		{"tasks", "get", asked},
		{"tasks", "get", done, "-o", "json"},
		{"tasks", "get", failed, "-o", "json"},
		{"tasks", "get", "nobody"},
		{"tasks", "events", done},
		{"tasks", "events", done, "-o", "json"},
		{"tasks", "events", failed, "-o", "json", "--after", "1"},
		{"tasks", "events", "nobody"},
		{"tasks", "tail", done},
		{"tasks", "tail", failed, "-o", "json"},
		{"tasks", "tail", "nobody"},
		{"push", "list"},
		{"push", "list", "-o", "json"},
		{"push", "list", "--task", hooked, "-o", "json"},
		{"push", "list", "--disabled"},
		{"push", "attempts", asked},
		{"push", "attempts", hooked},
		{"push", "attempts", hooked, "hook", "-o", "json"},
		{"push", "attempts", "nobody"},
		{"tasks", "list", "--tenant", "acme"},
		{"tasks", "list", "--tenant", ""},
		{"push", "list", "--tenant", "acme", "-o", "json"},
		{"push", "list", "--tenant", ""},
		{"agents", "list"},
		{"agents", "list", "-o", "json"},
		{"agents", "get", "nobody"},
		{"queue", "list"},
		{"queue", "list", "--agent", "demo", "-o", "json"},
		{"queue", "list", "--agent", "nobody"},
		{"workers", "list"},
		{"workers", "list", "-o", "json"},
		{"workers", "retire", "0d9cfb5c-6d68-4a27-9a24-a3a9ad0e3a5b"},
		{"api-keys", "list"},
		{"retention", "plan"},
		{"retention", "plan", "-o", "json"},
		{"audit", "list"},
		{"audit", "list", "-o", "json", "--limit", "3"},
		{"audit", "list", "--tenant", "acme", "--action", "task.created"},
		{"audit", "list", "--tenant", ""},
		{"audit", "list", "--subject", "alice", "--agent", "demo", "--limit", "2"},
		{"audit", "list", "--task", done, "-o", "json"},
		{"api-keys", "list", "--tenant", "acme"},
	} {
		want, have := local(args...), remote(args...)
		require.Equal(t, want.Code, have.Code, "%v: %s %s", args, have.Err, want.Err)
		require.Equal(t, mask(want.Out), mask(have.Out), "%v", args)
		require.Equal(t, mask(want.Err), mask(have.Err), "%v", args)
		require.NotContains(t, have.Out+have.Err, root)
	}

	require.Contains(t, remote("tasks", "get", failed).Out, "error        attempt 1 failed: ")
	require.Equal(t, 5, strings.Count(remote("tasks", "list", "--tenant", "acme").Out, "\n"), "a heading, and the four tasks")
	require.Equal(t, 1, strings.Count(local("tasks", "list", "--tenant", "").Out, "\n"), "a heading")
	require.Equal(t, 5, strings.Count(local("audit", "list", "--action", "task.created").Out, "\n"))
	require.Regexp(t, `(?m)^demo +demo +ok +0 +- +0 +2 +-$`, remote("agents", "list").Out, "two tasks are parked")
	require.Regexp(t, `(?m)^demo +0 +- +0 +0 +0 +2$`, local("queue", "list").Out)
	require.Contains(t, remote("agents", "get", "demo").Out, "signature    verified\n")
	require.Contains(t, remote("agents", "get", "demo", "-o", "json").Out, `"card": {`)
	require.NotContains(t, local("agents", "get", "demo").Out, "signature")

	// A shell offers the same names on both ways.
	for _, args := range [][]string{{"tasks", "get", ""}, {"agents", "get", ""}, {"tasks", "list", "--agent", ""}, {"push", "attempts", ""}, {"push", "attempts", hooked, ""}, {"api-keys", "revoke", ""}} {
		waittest.Eventually(t, strings.Join(args, " "), func() error { // nothing is offered if the database takes longer than two seconds
			want, have := local(append([]string{"__complete"}, args...)...), remote(append([]string{"__complete"}, args...)...)
			return waittest.Unless(want.Out == have.Out && strings.Count(have.Out, "\n") > 1, "%s\n%s", want.Out, have.Out)
		})
	}

	// Acts: each on a task of its own.
	for _, x := range []struct {
		script string
		args   []string
	}{
		{"ask:a?", []string{"tasks", "cancel", "ID"}},
		{"chunks=1", []string{"tasks", "cancel", "ID"}},
		{"fail:x", []string{"tasks", "retry", "ID", "--wait", "-o", "json"}},
		{"ask:b?", []string{"tasks", "retry", "ID"}},
		{"chunks=1", []string{"tasks", "hold", "ID"}},
		{"chunks=1", []string{"tasks", "release", "ID", "-o", "json"}},
		{"chunks=1", []string{"tasks", "purge", "--task", "ID", "--yes"}},
		{"chunks=1", []string{"tasks", "purge", "--task", "ID"}},
		{"ask:c?", []string{"push", "disable", "ID"}},
	} {
		var got [2]clustertest.Finished
		var ids [2]string
		for i, run := range []func(...string) clustertest.Finished{local, remote} {
			ids[i] = send(x.script)
			args := strings.Split(strings.ReplaceAll(strings.Join(x.args, "\x00"), "ID", ids[i]), "\x00")
			got[i] = run(args...)
		}
		require.Equal(t, got[0].Code, got[1].Code, "%v: %s", x.args, got[1].Err)
		require.Equal(t, mask(got[0].Out), mask(got[1].Out), "%v", x.args)
		require.Equal(t, mask(got[0].Err), mask(got[1].Err), "%v", x.args)
	}
	for _, act := range []string{"disable", "enable", "redeliver"} {
		want := local("push", act, hooked, "hook", "-o", "json")
		if act == "enable" {
			require.Zero(t, local("push", "disable", hooked, "hook").Code)
		}
		have := remote("push", act, hooked, "hook", "-o", "json", "--reason", "the hook is back")
		require.Zero(t, have.Code, have.Err)
		require.Equal(t, want.Out, have.Out, act)
	}
	require.Equal(t, "root|the hook is back", clustertest.One[string](db,
		"SELECT subject || '|' || reason FROM holdfast.v_audit WHERE action = 'push.enabled' AND reason <> ''"))
	require.Zero(t, local("tasks", "hold", asked, "--reason", "ticket 7").Code)
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_audit WHERE action = 'task.held' AND reason = 'ticket 7'"))

	// Keys: both ways make a key that works, and revoke it.
	hide := func(s string) string {
		return mask(regexp.MustCompile(`[a-z2-7]{16}(_[A-Za-z0-9_-]+)?`).ReplaceAllString(s, "KEY"))
	}
	var made, revoked, plain [2]clustertest.Finished
	for i, run := range []func(...string) clustertest.Finished{local, remote} {
		made[i] = run("api-keys", "create", "--subject", "bob", "--tenant", "acme", "--scope", "a:b", "--scope", "c:d", "--name", "build", "--expires-in", "24h", "--reason", "a new host", "-o", "json")
		require.Zero(t, made[i].Code, made[i].Err)
		var key struct{ ID, Key, Tenant, Subject string }
		require.NoError(t, json.Unmarshal([]byte(made[i].Out), &key))
		use := func() clustertest.Finished {
			return clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_URL=" + a.URL}, "send", "--protocol", "0.3", "-H", "X-API-Key: "+key.Key, "echo:x")
		}
		require.Zero(t, use().Code, use().Err)
		revoked[i] = run("api-keys", "revoke", key.ID, "--reason", "lost")
		require.Zero(t, revoked[i].Code, revoked[i].Err)
		waittest.Eventually(t, "the server refuses the key", func() error {
			return waittest.Unless(use().Code == 1, "it does not")
		})
		require.NotZero(t, run("api-keys", "revoke", "nobodynobodyno12").Code)
		plain[i] = run("api-keys", "create", "--subject", "carol")
	}
	for name, both := range map[string][2]clustertest.Finished{"create -o json": made, "revoke": revoked, "create": plain} {
		require.Equal(t, hide(both[0].Out), hide(both[1].Out), name)
		require.Equal(t, hide(both[0].Err), hide(both[1].Err), name)
	}
	require.Contains(t, plain[1].Out, "hfk_")
	require.Equal(t, 2, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_audit WHERE action = 'key.revoked' AND reason = 'lost'"))
	require.Equal(t, 2, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_audit WHERE action = 'key.created' AND reason = 'a new host'"))

	res := remote("tasks", "purge", "--tenant", "acme", "--yes", "-o", "json")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, `"held": 3`)
	require.Equal(t, 3, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.tasks WHERE tenant = 'acme'"), "those that are held stay")

	// The server makes the checks of doctor itself.
	res = remote("doctor", "-o", "json")
	require.NotEqual(t, 2, res.Code, res.Err)
	require.Contains(t, res.Out, `"check": "schema"`)

	for _, args := range [][]string{{"secret-keys", "reseal"}, {"push", "test", "http://127.0.0.1:1/"}, {"audit", "verify"}, {"tasks", "purge", "--older-than", "1h", "--yes"}} {
		res := remote(args...)
		require.Equal(t, 2, res.Code, "%v: %s", args, res.Err)
		require.Contains(t, res.Err, "needs the database", "%v", args)
	}
	require.Contains(t, remote("tasks", "list", "--database-url", db.URL).Err, "exclude each other")
	res = clustertest.Command(t, t.TempDir(), nil, "tasks", "list", "--server", a.Admin)
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "HOLDFAST_SERVER_CREDENTIAL")
	require.Contains(t, clustertest.Command(t, t.TempDir(), nil, "tasks", "list", "--server", "http://127.0.0.1:1").Err, "did not answer")
	require.Contains(t, clustertest.Command(t, t.TempDir(), nil, "tasks", "list", "--server", a.URL).Err, "is it the admin address")
}

// hook creates a task that waits for its client, with a webhook that nobody answers.
func hook(t *testing.T, r *clustertest.Replica, key string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m-hook","role":"user",` +
		`"parts":[{"kind":"text","text":"ask:hooked?"}]},"configuration":{"blocking":true,"pushNotificationConfig":{"id":"hook","url":"http://` +
		clustertest.Reserve(t) + `/hook"}}}}`
	req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, r.URL, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	var reply struct{ Result struct{ ID string } }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&reply))
	require.NotEmpty(t, reply.Result.ID)
	return reply.Result.ID
}

// mask hides what differs between two tasks, or two moments.
func mask(s string) string {
	s = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`).ReplaceAllString(s, "ID")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?`).ReplaceAllString(s, "TIME")
}
