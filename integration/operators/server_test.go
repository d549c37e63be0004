package operators

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// through is the environment of a verb that reaches a server, and no database.
func through(admin string) []string {
	return []string{"HOLDFAST_SERVER=" + admin, "HOLDFAST_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}
}

// reads are verbs that read, with what they print (nothing: their exit code is not 0).
const reads = `
tasks list                                | DONE
tasks list -o json --state failed         | "task_id": "FAILED"
tasks list --limit 2 --owner alice        | HOOKED
tasks list --tenant acme                  | ASKED
tasks get ASKED                           | which city?
tasks get FAILED -o json                  | no luck
tasks get nobody                          |
tasks events DONE                         | artifact
tasks events FAILED -o json --after 1     | "failed"
tasks tail DONE                           | completed
tasks tail nobody                         |
webhooks list                             | HOOKED
webhooks list --task HOOKED --agent demo  | c
webhooks list --tenant acme -o json       | "config_id": "c"
push attempts HOOKED                      | network
webhooks attempts HOOKED c -o json        | "class": "network"
webhooks attempts nobody                  |
agents list                               | demo   demo  healthy  0      -       0        2       -
agents get demo                           | 2 runs|concurrency
agents get nobody                         |
agents -o json                            | "parked": 2
status                                    | Waiting for people: 2
status -o json                            | "alive": true
jobs                                      | ID
jobs get nothing                          |
tasks --since 1h --until 0.001s --text ask| ASKED
tasks --reason nothing -o json            | []
tasks --since 24h --state failed,rejected -o wide | fail:no luck
open DONE                                 | /console/tasks/
webhooks -w=false                         | HOOKED
workers list -o json                      | []
retention -o json                         | []
audit list --limit 200                    | task.created
audit list --task DONE -o json            | "action":
audit verify                              | HEAD
api-keys list --tenant acme               | alice`

// Each verb reads through the admin API: that of its own process on the database, or that of a server. (TestActs has those that act.)
func TestVerbs(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.WithKeys + "admin: {schemes: [keys]}\n" + receivertest.Pushing(a2atest.Object{"retry_first": "1h", "retry_most": "1h"})
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	root := db.Keys(store.APIKey{Scopes: []string{"holdfast:operator"}}, "root")[0]
	client := db.Keys(store.APIKey{Tenant: "acme"}, "alice")[0]
	secret := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(secret, []byte(root+"\n"), 0o600))
	run := func(env []string) func(args ...string) clustertest.Finished {
		return func(args ...string) clustertest.Finished { return clustertest.Command(t, t.TempDir(), env, args...) }
	}
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	local, bare, remote := run(append(db.Env(), "HOLDFAST_CONFIG="+file)), run(db.Env()), run(append(through(a.Admin), "HOLDFAST_SERVER_CREDENTIAL_FILE="+secret))
	named := strings.NewReplacer("ASKED", send(a, client, "ask:which city?"), "DONE", send(a, client, "chunks=3 size=12"),
		"FAILED", send(a, client, "fail:no luck"), "HOOKED", hooked(t, a, client, "ask:hooked?"))

	ways := []func(...string) clustertest.Finished{local, remote}
	for i, line := range strings.Split(strings.TrimSpace(reads), "\n") {
		verb, prints, _ := strings.Cut(named.Replace(line), "|")
		got := ways[i%2](strings.Fields(verb)...)
		require.NotContains(t, got.Out+got.Err, root)
		if prints = strings.TrimSpace(prints); prints == "" {
			require.NotZero(t, got.Code, "%s: %s", verb, got.Out)
			continue
		}
		require.Zero(t, got.Code, "%s: %s", verb, got.Err)
		for _, text := range strings.Split(prints, "|") {
			require.Contains(t, got.Out, text, verb)
		}
	}
	// Without the configuration, the agents are those that the database knows.
	db.Exec("UPDATE holdfast.tasks SET agent = 'other' WHERE agent = 'demo'")
	known := bare("agents", "list")
	require.Regexp(t, `(?m)^other +- +no worker +0 +- +0 +2 +-$`, known.Out)
	require.Regexp(t, `(?m)^demo +- +unknown `, known.Out, "a live server has it")
	require.Contains(t, known.Err, "--config")
	db.Exec("UPDATE holdfast.tasks SET agent = 'demo' WHERE agent = 'other'")
	require.Contains(t, remote("agents", "get", "demo").Out, "signature    verified\n")
	require.NotContains(t, local("agents", "get", "demo").Out, "signature")
	heads := filepath.Join(t.TempDir(), "heads.json")
	require.NoError(t, os.WriteFile(heads, []byte(local("audit", "verify", "-o", "json").Out), 0o600))
	require.Zero(t, remote("audit", "verify", "--against", heads).Code)

	// A shell offers names. Nothing is offered if an answer takes longer than two seconds.
	for i, words := range []string{"tasks get", "agents get", "tasks list --agent", "push attempts", "push attempts HOOKED", "api-keys revoke"} {
		args := append([]string{"__complete"}, append(strings.Fields(named.Replace(words)), "")...)
		waittest.Eventually(t, words, func() error {
			got := ways[i%2](args...)
			return waittest.Unless(strings.Count(got.Out, "\n") > 1, "%s", got.Out)
		})
	}

	// The server makes the checks of doctor itself, and deliveries to receivers.
	require.Contains(t, remote("doctor", "-o", "json").Out, `"check": "schema"`)
	require.Contains(t, remote("webhooks", "test", "http://127.0.0.1:1/").Out, "class        refused")
	require.Contains(t, remote("reseal").Err, "HOLDFAST_SECRET_KEYS has no key")
	require.Contains(t, remote("tasks", "list", "--database-url", db.URL).Err, "exclude each other")
	for server, says := range map[string]string{a.Admin: "HOLDFAST_SERVER_CREDENTIAL", "http://127.0.0.1:1": "did not answer", a.URL: "is it the admin address"} {
		res := run(nil)("tasks", "list", "--server", server)
		require.Equal(t, 1, res.Code)
		require.Contains(t, res.Err, says)
	}

	// An operator acts on all tasks that match a filter, through a server that a profile names.
	profiles := filepath.Join(t.TempDir(), "profiles.yaml")
	require.NoError(t, os.WriteFile(profiles, []byte(`profiles: {here: {server: "`+a.Admin+`", credential_file: "`+secret+`"}}`), 0o600))
	here := run([]string{"HOLDFAST_PROFILES=" + profiles, "HOLDFAST_PROFILE=here"})
	parked := strings.Fields("tasks cancel --agent demo --state input-required")
	for _, step := range []struct {
		args        []string
		says, state string
	}{{append(parked, "--dry-run"), "2 matched, 0 done, 0 skipped, 0 failed", "input-required"}, {parked, "2 matched, 2 done, 0 skipped, 0 failed", "canceled"}} {
		res := here(step.args...)
		require.Zero(t, res.Code, res.Err)
		require.Contains(t, res.Out, " done: "+step.says)
		db.AwaitState(named.Replace("ASKED"), step.state)
	}
	db.AwaitState(named.Replace("DONE"), "completed")
	for i, step := range []struct{ args, says string }{
		{"tasks purge --older-than 1h --yes", "0 matched"},
		{"tasks purge --older-than 1ms --dry-run", "4 matched, 0 done"},
		{"tasks purge --older-than 1ms --agent demo --yes", "4 matched, 4 done"},
	} {
		res := ways[i%2](strings.Fields(step.args)...)
		require.Contains(t, res.Out, step.says, res.Err)
	}
	require.Zero(t, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.tasks"))
}
