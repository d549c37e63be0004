package operators

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// While the database is away, the key of an operator that was good before shows how the replica is, and nothing else. The log
// has a line for the begin of the outage and one for its end.
func TestOutage(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	db := clustertest.OpenDB(t, pg.URL)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: pg.URL, Config: guarded})
	header := []string{"Authorization", "Bearer " + db.Keys(store.APIKey{Scopes: []string{"holdfast:operator", "admin:all"}}, "op")[0]}
	answers := func(want int, paths ...string) {
		for _, path := range paths {
			waittest.Eventually(t, path, func() error {
				now := statusOf(r, path, header)
				return waittest.Unless(now == want, "%d", now)
			})
		}
	}
	logs := func(text string) {
		waittest.Eventually(t, text, func() error { return waittest.Unless(strings.Contains(r.Log(), text), "not yet") })
	}
	db.Exec("BEGIN")
	db.Exec("LOCK TABLE holdfast.task_queue")
	logs(fmt.Sprintf("process %d of role holdfast () blocks", db.Conn.PgConn().PID()))
	answers(http.StatusOK, "/metrics") // not before: the replica forgets keys when it begins to listen
	pg.Stop()
	answers(http.StatusServiceUnavailable, "/admin/v1/me", "/admin/v1/tasks") // when the key is no longer known
	answers(http.StatusOK, operatorsOnly...)
	_, body, _ := r.Page("/readyz", header...)
	require.Contains(t, body, `"name":"database","status":"failed"`)
	pg.Start()
	clustertest.OpenDB(t, pg.URL).Operate("api-keys", "revoke", strings.Split(header[1], "_")[1])
	answers(http.StatusUnauthorized, "/metrics")
	logs(`"msg":"listening again"`)
	logs(`"msg":"the database is back"`)
	require.NotContains(t, r.Log(), "notifications do not arrive")
	_, outage, _ := strings.Cut(r.Log(), `"level":"ERROR","msg":"the database is out of reach`)
	outage, _, _ = strings.Cut(outage, `"msg":"the database is back"`)
	require.NotEmpty(t, outage)
	require.NotRegexp(t, `"level":"(WARN|ERROR)"|duty recovered`, regexp.MustCompile(`(?m)^.*"level":"DEBUG".*$`).ReplaceAllString(outage, ""))
}

func statusOf(r *clustertest.Replica, path string, header []string) int {
	r.T.Helper()
	code, _, _ := r.Page(path, header...)
	return code
}
