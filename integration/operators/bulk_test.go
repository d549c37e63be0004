package operators

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// An operator cancels all tasks that match a filter, through a server that a profile names.
func TestTasksAreCanceledByFilter(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Cluster(t, db.URL, "a")[0]
	parked := []string{a.Send(a2atest.V03, a2atest.Say("ask:one")).Task(), a.Send(a2atest.V03, a2atest.Say("ask:two")).Task()}
	done := a.Send(a2atest.V03, a2atest.Say("echo:three")).Task()
	profiles := filepath.Join(t.TempDir(), "profiles.yaml")
	require.NoError(t, os.WriteFile(profiles, []byte("profiles: {here: {server: \""+a.Admin+"\"}}\n"), 0o600))
	run := func(args ...string) clustertest.Finished {
		return clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_PROFILES=" + profiles, "HOLDFAST_PROFILE=here"}, append([]string{"tasks"}, args...)...)
	}
	got := run("cancel", "--agent", "demo", "--state", "input-required", "--dry-run")
	require.Zero(t, got.Code, got.Err)
	require.Contains(t, got.Out, " done: 2 matched, 0 done, 0 skipped, 0 failed")
	require.Equal(t, "input-required", a.Get(parked[0]).State())
	got = run("cancel", "--agent", "demo", "--state", "input-required")
	require.Zero(t, got.Code, got.Err)
	require.Contains(t, got.Out, " done: 2 matched, 2 done, 0 skipped, 0 failed")
	for _, id := range parked {
		waittest.Eventually(t, "the task is canceled", func() error {
			return waittest.Unless(a.Get(id).State() == "canceled", "it is %s", a.Get(id).State())
		})
	}
	require.Equal(t, "completed", a.Get(done).State())
}
