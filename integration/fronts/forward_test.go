package fronts

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// keeping is a server of the official Go SDK behind a door that keeps the headers of each call. The first call gets no answer,
// and there is no card.
type keeping struct {
	http.Handler
	mu   sync.Mutex
	have []http.Header
}

func (k *keeping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	k.mu.Lock()
	k.have = append(k.have, r.Header.Clone())
	first := len(k.have) == 1
	k.mu.Unlock()
	if first {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client is gone
		<-r.Context().Done()
		return
	}
	k.Handler.ServeHTTP(w, r)
}

func (k *keeping) calls() []http.Header {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.have
}

// The headers of a client reach its agent also from the replica that goes on after a crash. Then nobody has them any more.
func TestForwardedHeadersSurviveACrash(t *testing.T) {
	t.Parallel()
	const canary = "s3cret-canary"
	agent := &keeping{Handler: a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(echoing{}))}
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	db := clustertest.NewDB(t)
	config := clustertest.Patient + inFront("travel",
		fmt.Sprintf("url: %q, version: 1.0, forward: {headers: [Authorization, x-tenant]}", server.URL))
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	task := a.Send(a2atest.V03, a2atest.Say("hello").At("travel").Detached().
		With("Authorization", "Bearer "+canary, "X-Tenant", canary+"-tenant", "X-Other", "other")).Task()
	waittest.Eventually(t, "the agent has the message", func() error { return waittest.Unless(len(agent.calls()) > 0, "not yet") })
	leaksNowhere(t, db, canary)

	runs, others := clustertest.Running(db, task, []*clustertest.Replica{a, b})
	runs.Kill()
	waittest.Eventually(t, "the task has ended", func() error {
		live := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_tasks WHERE ended_at IS NULL")
		return waittest.Unless(live == 0, "%d live", live)
	})
	got := others[0].GetOver(a2atest.Unversioned, a2atest.Say().To(task).At("travel"))
	require.Equal(t, "completed", got.State(), got.Said())
	calls := agent.calls()
	require.Greater(t, len(calls), 1, "another run called the agent")
	for _, header := range calls {
		require.Equal(t, "Bearer "+canary, header.Get("Authorization"))
		require.Equal(t, canary+"-tenant", header.Get("X-Tenant"))
		require.Empty(t, header.Get("X-Other"))
	}
	leaksNowhere(t, db, canary)
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_queue"))
	for _, r := range []*clustertest.Replica{a, b} {
		require.NotContains(t, r.Log(), canary)
	}
	db.Sound()
}

// leaksNowhere checks that no row of the database has a secret.
func leaksNowhere(t *testing.T, db *clustertest.DB, secret string) {
	t.Helper()
	for _, table := range clustertest.Column[string](db, "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'") {
		require.Zero(t, clustertest.One[int64](db, "SELECT count(*) FROM "+table+" t WHERE strpos(t::text, $1) > 0", secret), table)
	}
}
