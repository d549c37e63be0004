package operators

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The views answer on a streaming standby, in the role that reads them, and count the same tasks as on the primary.
func TestViewsOnAStandby(t *testing.T) {
	t.Parallel()
	primary := storetest.Server(t, map[string]string{"fsync": "off"})
	standby := primary.Standby()
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: primary.URL, Config: clustertest.Settings})
	for range 10 {
		require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:hello")).State())
	}
	reader := clustertest.OpenDB(t, standby.URL)
	waittest.Eventually(t, "the standby has the tasks", func() error {
		n := clustertest.One[int64](reader, "SELECT count(*) FROM holdfast.v_tasks WHERE state = 'completed'")
		return waittest.Unless(n == 10, "%d tasks", n)
	})
	require.True(t, clustertest.One[bool](reader, "SELECT pg_is_in_recovery()"))
	require.NotZero(t, clustertest.One[int64](reader, "SELECT count(*) FROM holdfast.v_events"))

	reader.Exec("SET ROLE holdfast_reader")
	for _, view := range clustertest.Column[string](reader, `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'holdfast' AND c.relkind = 'v' AND c.relname LIKE 'v\_%' ORDER BY 1`) {
		clustertest.One[int64](reader, "SELECT count(*) FROM "+view)
	}
	reader.Exec("RESET ROLE")
	_, err := reader.Conn.Exec(t.Context(), "DELETE FROM holdfast.tasks")
	require.ErrorContains(t, err, "read-only transaction")
}
