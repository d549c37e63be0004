package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchAndTortureSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	help := session{}.run(t, "bench", "--help")
	require.Zero(t, help.code)
	require.Contains(t, help.out, "The tasks are real")
	gone := session{}.run(t, "torture", "http://127.0.0.1:1")
	require.Equal(t, exitFailed, gone.code)
	require.Contains(t, gone.err, "connection refused")
}

// The benchmarks load a real server; this test checks the report at the end.
func TestBenchReportsFailures(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/agents/good": `{"jsonrpc":"2.0","id":1,"result":{` + taskHead + `,"status":{"state":"completed"}}}`,
		"/agents/bad":  `{"jsonrpc":"2.0","id":1,"result":{` + taskHead + `,"status":{"state":"failed"}}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, answers[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	bench := func(args ...string) result {
		s := session{env: map[string]string{"HOLDFAST_URL": server.URL}}
		return s.run(t, append([]string{"bench", "--duration", "200ms", "--inflight", "1,2"}, args...)...)
	}

	good := bench("-H", "Authorization: Bearer x", "--agent", "good")
	require.Zero(t, good.code, good.err)
	require.Contains(t, good.err, "This creates real tasks at "+server.URL+"/agents/good")
	lines := strings.Split(strings.TrimSpace(good.out), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "IN FLIGHT TASKS TASKS/S P50 MS P95 MS P99 MS ERRORS", strings.Join(strings.Fields(lines[0]), " "))
	require.True(t, strings.HasSuffix(lines[1], "none"))

	bad := bench("-H", "Authorization: Bearer x", "--agent", "bad", "-o", "json")
	require.Equal(t, exitFailed, bad.code)
	require.Contains(t, bad.err, "for example: the task was left failed")
	var told struct {
		Mode    string
		Results []struct {
			InFlight int
			Tasks    int
			Errors   map[string]int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(bad.out), &told))
	require.Equal(t, "blocking", told.Mode)
	require.Len(t, told.Results, 2)
	require.Equal(t, 2, told.Results[1].InFlight)
	require.Zero(t, told.Results[1].Tasks)
	require.Positive(t, told.Results[1].Errors["task failed"])

	refused := bench()
	require.Equal(t, exitFailed, refused.code)
	require.Contains(t, refused.out, "HTTP 401 Unauthorized")

	server.Close()
	gone := bench()
	require.Equal(t, exitFailed, gone.code)
	require.Contains(t, gone.err, "Is the server running?")
	require.Empty(t, gone.out)
}
