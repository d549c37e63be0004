package agents

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// resumer asks with a shown resume URL, and completes with what came by it.
const resumer = `import json, sys
run = json.load(sys.stdin)
came = run.get("input")
if came is None:
    print(json.dumps({"type": "auth", "message": "Please sign in.", "resume": {"for": 600, "show": True}}))
else:
    print(json.dumps({"type": "complete", "message": json.dumps(came, sort_keys=True)}))
`

// A third party resumes a task by its URL at another replica, after the one that ran it was killed. The client sees the task
// go on without having sent anything.
func TestResumeURL(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	script := filepath.Join(t.TempDir(), "agent.py")
	require.NoError(t, os.WriteFile(script, []byte(resumer), 0o600))
	config := fmt.Sprintf(clustertest.Settings+`
  - name: sign-in
    executor: {kind: command, command: {argv: [python3, %q]}}
  - name: oauth
    resume_by_get: true
    executor: {kind: command, command: {argv: [python3, %q]}}
`, script, script)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	asked := a.Send(a2atest.V03, a2atest.Say("go").At("sign-in"))
	require.Equal(t, "auth-required", asked.State())
	token := tokenOf(t, asked.Said())

	call := func(r *clustertest.Replica, method, token, body string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, r.URL+"/resume/"+token, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		require.Equal(t, "no-referrer", res.Header.Get("Referrer-Policy"))
		return res.StatusCode, string(text)
	}
	forged := strings.Repeat("A", len(token))
	for _, method := range []string{"GET", "HEAD", "POST"} {
		code, _ := call(b, method, forged, "")
		require.Equal(t, http.StatusNotFound, code)
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		code, _ := call(b, method, token, "")
		require.Equal(t, http.StatusMethodNotAllowed, code)
	}
	code, _ := call(b, "POST", token, strings.Repeat("x", 256<<10+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, code)

	a.Kill()
	code, text := call(b, "POST", token+"?code=1", `{"approved": true}`, "Content-Type", "application/json", "Origin", "https://login.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusAccepted, code, text)
	completed := func(id string) (said string) {
		waittest.Eventually(t, "the task completes", func() error {
			now := clustertest.One[string](db, "SELECT state FROM holdfast.v_tasks WHERE task_id = $1", id)
			return waittest.Unless(now == "completed", "%s", now)
		})
		return clustertest.One[string](db, "SELECT status_text FROM holdfast.v_tasks WHERE task_id = $1", id)
	}
	require.JSONEq(t, `{"source":"resume","method":"POST","query":"code=1","contentType":"application/json","data":{"approved":true}}`, completed(asked.Task()))
	code, _ = call(b, "POST", token, "again")
	require.Equal(t, http.StatusGone, code)

	asked = b.Send(a2atest.V03, a2atest.Say("go").At("oauth"))
	token = tokenOf(t, asked.Said())
	code, _ = call(b, "GET", token+"?code=2", "", "Sec-Purpose", "prefetch;prerender")
	require.Equal(t, http.StatusServiceUnavailable, code)
	code, _ = call(b, "HEAD", token+"?code=2", "")
	require.Equal(t, http.StatusMethodNotAllowed, code)
	code, text = call(b, "GET", token+"?code=2", "")
	require.Equal(t, http.StatusAccepted, code)
	require.NotContains(t, text, "code")
	require.Contains(t, completed(asked.Task()), `"query": "code=2"`)
	require.NotContains(t, a.Log()+b.Log(), token)
	db.Sound()
}

// tokenOf returns the token of the URL in a message.
func tokenOf(t *testing.T, said string) string {
	t.Helper()
	_, token, ok := strings.Cut(said, "/resume/")
	require.True(t, ok, said)
	return strings.TrimSpace(token)
}
