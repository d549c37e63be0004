package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
)

// The database has a schema, and does not answer while a replica starts: the replica waits for it, at each step, and registers at
// the end.
func TestStartWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	for query, step := range map[string]string{
		"RowSecurity": "connect to the database", "WorkerRegister": "register this process", "SigningKeys": "signing keys",
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			proxy := pgproxytest.New(t, db.URL)
			answer := proxy.Fail(query, "53300", "sorry, too many clients already")
			r := clustertest.Start(t, clustertest.Options{Name: "a", DB: proxy.URL, Config: clustertest.Patient, Async: true})
			for range 2 { // the second time it has tried again
				r.Logs("the start waits for the database; retrying", "step", step)()
			}
			require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.workers"), "it has no lease that nothing renews")
			answer()
			r.WaitServing()
			r.WaitReady()
			require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:done")).State())
		})
	}
}
