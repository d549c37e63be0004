package faults

import (
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/migrations"
)

func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	// Streams outlive the outage: they end when a lease is over.
	a, b := clustertest.Pair(t, clustertest.Options{DB: pg.URL, Config: clustertest.LongLease})
	for outage, take := range map[string]func(){"shut down": pg.Stop, "crashed": pg.Crash} {
		t.Log(outage)
		s := a.Stream(a2atest.V03, a2atest.Say("chunks=120 size=32 delay=20ms"))
		seen := s.Take(10)
		remote := b.Resume(seen[0].Task(), 1)
		waiting := a.Stream(a2atest.V01, a2atest.Say("sleep=1s"))
		waiting.UntilState("working")
		take()

		for _, r := range []*clustertest.Replica{a, b} {
			for d, code := range map[*a2atest.Wire]int{a2atest.V01: -32011, a2atest.V03: -32603} {
				got := r.Finish(d, a2atest.Send, a2atest.Say("echo:x")) // while the database is down
				require.Equal(t, "503", got.Status, got.Body)
				require.NotEmpty(t, got.RetryAfter)
				require.Equal(t, code, got.Code, d)
			}
			got := r.Ask("tasks/get", object{"id": seen[0].Task()})
			require.Equal(t, http.StatusServiceUnavailable, got.HTTP, "%s", got.Body)
			waittest.Eventually(t, "/readyz reports the outage", func() error {
				status, body := r.Ready()
				return waittest.Unless(status == http.StatusServiceUnavailable, "%d %s", status, body)
			})
			alive, err := http.Get(r.Admin + "/livez")
			require.NoError(t, err)
			_ = alive.Body.Close()
			require.Equal(t, http.StatusOK, alive.StatusCode, "a restart of the server would not help")
		}

		pg.Start()
		// No client reconnected: these streams were opened before.
		seen = append(seen, s.Rest()...)
		require.Equal(t, "completed", a2atest.Last(seen).State())
		clustertest.Indexed(t, a2atest.Chunks(seen), 120)
		require.Equal(t, a2atest.Seqs(seen)[1:], a2atest.Seqs(remote.Rest()))
		require.Equal(t, "completed", a2atest.Last(waiting.Rest()).State())
		for _, r := range []*clustertest.Replica{a, b} {
			r.WaitReady()
			require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:x")).State())
		}
		l := clustertest.OpenDB(t, pg.URL)
		l.Sound()
		require.Equal(t, 1, clustertest.One[int](l, "SELECT max(attempt) FROM holdfast.tasks"), "no run had to be repeated")
		require.Equal(t, l.Chunks(seen[0].Task()), a2atest.Chunks(seen))
	}
}

func TestTenReplicasMigrateEmptyDatabase(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	db.Exec("DROP SCHEMA holdfast CASCADE")
	all := make([]clustertest.Options, 10)
	for i := range all {
		all[i] = clustertest.Options{Name: strconv.Itoa(i), DB: db.URL, Config: clustertest.LongLease}
	}
	replicas := clustertest.Together(t, all...)
	steps := 0
	for _, r := range replicas {
		steps += strings.Count(r.Log(), `"msg":"schema step applied"`)
	}
	applied := clustertest.Column[int64](db, "SELECT version_id FROM holdfast.schema_version WHERE version_id > 0 ORDER BY id")
	files, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	known := make([]int64, len(files))
	for i, file := range files {
		known[i], err = goose.NumericComponent(file)
		require.NoError(t, err)
	}
	require.Equal(t, known, applied, "each migration once, and in order")
	require.Equal(t, len(applied), steps)
	require.Equal(t, 10, clustertest.One[int](db, "SELECT count(*) FROM holdfast.workers"))
	for i, r := range replicas {
		res := r.Send(a2atest.V03, a2atest.Say("ask:who is next?"))
		res = replicas[(i+1)%10].Send(a2atest.V03, a2atest.Say("me").To(res.Task()))
		require.Equal(t, "completed", res.State())
	}
}
