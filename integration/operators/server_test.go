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

// reads are verbs that read, one or more in a line.
const reads = `
tasks list | tasks list -o json --state failed | tasks list --limit 2 --owner alice | tasks list --state nonsense
tasks list --agent nobody | tasks list --tenant acme | tasks list --tenant ''
tasks get ASKED | tasks get DONE -o json | tasks get FAILED -o json | tasks get nobody
tasks events DONE | tasks events FAILED -o json --after 1 | tasks events nobody
tasks tail DONE | tasks tail FAILED -o json | tasks tail nobody
push list | push list --task HOOKED -o json | push list --disabled | push list --tenant acme -o json | push list --tenant ''
push attempts ASKED | push attempts HOOKED | push attempts HOOKED c -o json | push attempts nobody
agents list | agents list -o json | agents get nobody
queue list | queue list --agent demo -o json | queue list --agent nobody
workers list | workers list -o json
retention plan | retention plan -o json
audit list | audit list -o json --limit 3 | audit list --tenant acme --action task.created | audit list --tenant ''
audit list --subject alice --agent demo --limit 2 | audit list --task DONE -o json
api-keys list | api-keys list --tenant acme`

// Each verb that reads prints the same, and exits with the same code, through the admin API of a server and on the database. (TestActs
// has those that act.)
func TestVerbsThroughAServer(t *testing.T) {
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

	// Byte for byte.
	said := map[string]string{}
	for _, verb := range strings.FieldsFunc(reads, func(r rune) bool { return r == '|' || r == '\n' }) {
		args := strings.Fields(named.Replace(verb))
		for i := range args {
			args[i] = strings.TrimPrefix(args[i], "''")
		}
		want, have := local(args...), remote(args...)
		require.Equal(t, want.Code, have.Code, "%v: %s %s", args, have.Err, want.Err)
		require.Equal(t, mask(want.Out), mask(have.Out), "%v", args)
		require.Equal(t, mask(want.Err), mask(have.Err), "%v", args)
		require.NotContains(t, have.Out+have.Err, root)
		said[strings.TrimSpace(verb)] = have.Out
	}
	require.Contains(t, said["tasks get FAILED -o json"], "no luck")
	for verb, lines := range map[string]int{"tasks list --tenant acme": 5, "tasks list --tenant ''": 1, "audit list --tenant acme --action task.created": 5} {
		require.Equal(t, lines, strings.Count(said[verb], "\n"), "with a heading: %s", said[verb])
	}
	require.Regexp(t, `(?m)^demo +demo +ok +0 +- +0 +2 +-$`, said["agents list"], "two tasks are parked")
	require.Regexp(t, `(?m)^demo +0 +- +0 +0 +0 +2$`, said["queue list"])
	// Without the configuration, the agents are those that the database knows.
	db.Exec("UPDATE holdfast.tasks SET agent = 'other' WHERE agent = 'demo'")
	known := bare("agents", "list")
	require.Regexp(t, `(?m)^other +- +ok +0 +- +0 +2 +-$`, known.Out)
	require.NotContains(t, known.Out, "demo")
	require.Contains(t, known.Err, "--config")
	db.Exec("UPDATE holdfast.tasks SET agent = 'demo' WHERE agent = 'other'")
	require.Contains(t, remote("agents", "get", "demo").Out, "signature    verified\n")
	require.NotContains(t, local("agents", "get", "demo").Out, "signature")

	// A shell offers the same names on both ways. Nothing is offered if the database takes longer than two seconds.
	for _, words := range []string{"tasks get", "agents get", "tasks list --agent", "push attempts", "push attempts HOOKED", "api-keys revoke"} {
		args := append([]string{"__complete"}, append(strings.Fields(named.Replace(words)), "")...)
		waittest.Eventually(t, words, func() error {
			want, have := local(args...), remote(args...)
			return waittest.Unless(want.Out == have.Out && strings.Count(have.Out, "\n") > 1, "%s\n%s", want.Out, have.Out)
		})
	}

	// The server makes the checks of doctor itself. Some verbs need the database.
	require.Contains(t, remote("doctor", "-o", "json").Out, `"check": "schema"`)
	for _, verb := range []string{"secret-keys reseal", "push test http://127.0.0.1:1/", "audit verify", "tasks purge --older-than 1h --yes"} {
		res := remote(strings.Fields(verb)...)
		require.Equal(t, 2, res.Code, "%s: %s", verb, res.Err)
		require.Contains(t, res.Err, "needs the database", verb)
	}
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
	res := remote("tasks", "purge", "--tenant", "acme", "--yes", "-o", "json")
	require.Contains(t, res.Out, `"tasks": 4`, res.Err)
	require.Zero(t, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.tasks"))
}
