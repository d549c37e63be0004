package operators

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// While the database is away, the key of an operator that was good before shows how the replica is, and nothing else. The log
// has a line for the begin of the outage and one for its end.
func TestOutage(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	db := clustertest.OpenDB(t, pg.URL)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: pg.URL, Config: guarded})
	header := []string{"Authorization", "Bearer " + db.Keys(store.APIKey{Scopes: []string{"holdfast:operator", "admin:all"}}, "op")[0]}
	require.Equal(t, http.StatusOK, status(r, "/metrics", header))
	db.Exec("BEGIN")
	db.Exec("LOCK TABLE holdfast.task_queue")
	waittest.Eventually(t, "the log names the session that blocks others", func() error {
		return waittest.Unless(strings.Contains(r.Log(), fmt.Sprintf("process %d of role holdfast () blocks", db.Conn.PgConn().PID())), "not yet")
	})
	pg.Stop()
	waittest.Eventually(t, "the key is no longer known", func() error {
		now := status(r, "/admin/v1/me", header)
		return waittest.Unless(now == http.StatusServiceUnavailable, "%d", now)
	})
	for _, path := range operatorsOnly {
		require.Equal(t, http.StatusOK, status(r, path, header), path)
	}
	_, body, _ := r.Page("/readyz", header...)
	require.Contains(t, body, `"name":"database","status":"failed"`)
	for _, path := range []string{"/admin/v1/tasks", "/tasks/purge"} {
		require.Equal(t, http.StatusServiceUnavailable, status(r, path, header), path)
	}
	pg.Start()
	clustertest.OpenDB(t, pg.URL).Operate("api-keys", "revoke", strings.Split(header[1], "_")[1])
	waittest.Eventually(t, "the key is refused", func() error {
		now := status(r, "/metrics", header)
		return waittest.Unless(now == http.StatusUnauthorized, "%d", now)
	})
	waittest.Eventually(t, "the log says that it is over", func() error {
		log := r.Log()
		return waittest.Unless(strings.Contains(log, `"msg":"the database is back"`) && strings.Contains(log, `"msg":"listening again"`), "not yet")
	})
	require.NotContains(t, r.Log(), "notifications do not arrive")
	_, outage, _ := strings.Cut(r.Log(), `"level":"ERROR","msg":"the database is out of reach`)
	outage, _, _ = strings.Cut(outage, `"msg":"the database is back"`)
	require.NotEmpty(t, outage)
	require.NotRegexp(t, `"level":"(WARN|ERROR)"|duty recovered`, regexp.MustCompile(`(?m)^.*"level":"DEBUG".*$`).ReplaceAllString(outage, ""))
}

func status(r *clustertest.Replica, path string, header []string) int {
	r.T.Helper()
	code, _, _ := r.Page(path, header...)
	return code
}
