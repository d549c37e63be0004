package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/migrations"
)

func TestTheDatabaseGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	replicas := cluster(t, pg.URL, "a", "b")
	a, b := replicas[0], replicas[1]
	for outage, take := range map[string]func(){"shut down": pg.Stop, "crashed": pg.Crash} {
		t.Log(outage)
		s := a.open(v03.stream, v03.params("", "chunks=120 size=32 delay=20ms"))
		seen := s.take(10)
		remote := b.resume(seen[0].task(), 1)
		waiting := a.open(v01.stream, v01.params("", "sleep=1s"))
		waiting.untilState("working")
		take()

		for _, r := range replicas {
			for d, code := range map[*dialect]int{v01: -32011, v03: -32603} {
				began := time.Now()
				got, err := ask(short(t, patience), r.url, request(d.send, d.params("", "echo:x")))
				require.NoError(t, err)
				require.Equal(t, http.StatusServiceUnavailable, got.HTTP, "%s", got.Body)
				require.NotEmpty(t, got.Header.Get("Retry-After"))
				require.Equal(t, code, got.Err.Code, d.name)
				require.Less(t, time.Since(began), 15*time.Second)
			}
			got, err := ask(short(t, patience), r.url, request("tasks/get", object{"id": seen[0].task()}))
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, got.HTTP, "%s", got.Body)
			eventually(t, "readyz tells", func() error {
				status, body := r.ready()
				return unless(status == http.StatusServiceUnavailable, "%d %s", status, body)
			})
			alive, err := http.Get(r.admin + "/livez")
			require.NoError(t, err)
			_ = alive.Body.Close()
			require.Equal(t, http.StatusOK, alive.StatusCode, "to restart the server would not help")
		}

		pg.Start()
		// Nobody had to reconnect: these are the streams from before.
		seen = append(seen, s.rest()...)
		require.Equal(t, "completed", last(seen).state())
		indexed(t, chunksOf(seen), 120)
		require.Equal(t, seqsOf(seen)[1:], seqsOf(remote.rest()))
		require.Equal(t, "completed", last(waiting.rest()).state())
		for _, r := range replicas {
			r.waitReady()
			require.Equal(t, "completed", r.call(v03.send, v03.params("", "echo:x")).state())
		}
		l := openLedger(t, pg.URL)
		l.sound()
		require.Equal(t, 1, one[int](l, "SELECT max(attempt) FROM holdfast.tasks"), "no run had to be repeated")
		require.Equal(t, l.chunks(seen[0].task()), chunksOf(seen))
	}
}

func TestTenReplicasStartAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.exec("DROP SCHEMA holdfast CASCADE")
	replicas := make([]*replica, 10)
	for i := range replicas {
		replicas[i] = start(t, replicaOptions{Name: fmt.Sprint("replica ", i), DB: db.url, Config: settings, Async: true})
	}
	steps := 0
	for _, r := range replicas {
		r.waitServing()
		r.waitReady()
		steps += bytes.Count(r.logs.all(), []byte(`"msg":"schema step applied"`))
	}
	applied := column[int64](db, "SELECT version_id FROM holdfast.goose_db_version WHERE version_id > 0 ORDER BY id")
	files, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	known := make([]int64, len(files))
	for i, file := range files {
		known[i], err = goose.NumericComponent(file)
		require.NoError(t, err)
	}
	require.Equal(t, known, applied, "each step once, and in order")
	require.Equal(t, len(applied), steps)
	require.Equal(t, 10, one[int](db, "SELECT count(*) FROM holdfast.workers"))
	for i, r := range replicas {
		res := r.call(v03.send, v03.params("", "ask:who is next?"))
		res = replicas[(i+1)%10].call(v03.send, v03.params(res.task(), "me"))
		require.Equal(t, "completed", res.state())
	}
	db.sound()
}
