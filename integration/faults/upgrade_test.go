package faults

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/migrations"
)

var upgrades = flag.Bool("upgrade", false, "roll between the previous version and this one (make upgrade)")

// TestRollingUpgrade replaces the replicas of the previous version by those of this one, one after the other, and takes
// the upgrade back, under load through a balancer that retries nothing. The schema is migrated first, while all
// replicas are old, and stays when they go back.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	if !*upgrades {
		t.Skip("builds the previous version, which takes minutes: make upgrade")
	}
	old, commit := previous(t)
	db := clustertest.NewDB(t)
	db.Exec("DROP SCHEMA holdfast CASCADE")
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: draining, Binary: old})
	schema := func() int {
		return clustertest.One[int](db, "SELECT max(version_id)::int FROM holdfast.schema_steps")
	}
	before := schema()
	f := sendTo(t, a)
	f.progress()
	asked := a.Send(a2atest.V03, a2atest.Say("ask:what?"))

	db.Operate("migrate")
	t.Logf("from %s: the schema goes from version %d to %d", commit, before, schema())
	require.GreaterOrEqual(t, schema(), before)
	roll := func(binary string) {
		f.replace(a, b, binary)
		f.replace(b, a, binary)
		f.progress()
	}
	roll("")
	require.Equal(t, "completed", b.Send(a2atest.V03, a2atest.Say("that").To(asked.Task())).State(), "a task of the previous version goes on")
	asked = a.Send(a2atest.V03, a2atest.Say("ask:what?"))
	roll(old)
	require.Equal(t, "completed", b.Send(a2atest.V03, a2atest.Say("that").To(asked.Task())).State(), "and one of this version in the previous one")
	f.end()
	require.Empty(t, clustertest.Column[string](db, "SELECT payload->>'outcome' FROM holdfast.task_events WHERE kind = 4 AND payload->>'outcome' IN ('lost', 'retry', 'failed')"), "no run was lost")
}

// previous builds the newest release before this version. Before the first release that is the commit before the newest
// step. If that step is no addition, it is the commit that has the steps of now.
func previous(t *testing.T) (binary, commit string) {
	t.Helper()
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	// kept reports whether all steps of a commit are unchanged: a database that has applied them has the same schema.
	kept := func(commit string) bool {
		files, err := git("ls-tree", "--name-only", commit, "migrations/")
		if err != nil {
			return false // not in a shallow clone
		}
		for file := range strings.Lines(files) {
			file = strings.TrimSpace(file)
			if path.Ext(file) != ".sql" {
				continue
			}
			then, err := git("show", commit+":"+file)
			require.NoError(t, err)
			now, err := migrations.FS.ReadFile(path.Base(file))
			if err != nil || strings.TrimSpace(string(now)) != then {
				return false
			}
		}
		return true
	}
	commit, err := git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
	if err == nil {
		require.True(t, kept(commit), "steps of %s were changed: a released step never changes, so add another", commit)
	} else {
		newest, err := git("log", "-n", "1", "--format=%H", "--", "migrations/*.sql")
		if err != nil || newest == "" {
			t.Skipf("there is no history: %v", err)
		}
		if commit = newest + "^1"; !kept(commit) {
			commit = newest
		}
		require.True(t, kept(commit), "commit the steps first")
	}

	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", "--format=tar", commit)
	archive.Dir = "../.."
	source, err := archive.Output()
	require.NoError(t, err)
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(source)
	out, err := unpack.CombinedOutput()
	require.NoError(t, err, "%s", out)
	binary = filepath.Join(dir, "holdfast-previous")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/server")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary, commit
}
