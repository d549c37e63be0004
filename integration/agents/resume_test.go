package agents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

// tokenOf returns the token of the URL in a message.
func tokenOf(t *testing.T, said string) string {
	t.Helper()
	_, token, ok := strings.Cut(said, "/resume/")
	require.True(t, ok, said)
	return strings.TrimSpace(token)
}

// approverScript is the agent approver as a command.
const approverScript = `import json, sys
run = json.load(sys.stdin)
came = run.get("input")
if came is None:
    print(json.dumps({"type": "auth", "message": "Please sign in.", "resume": {"show": True}}))
else:
    print(json.dumps({"type": "status", "message": "Checking."}))
    print(json.dumps({"type": "complete", "message": " ".join([came["method"], came["query"], came["text"]])}))
`

// approverHTTP is the agent approver over HTTP.
func approverHTTP(w http.ResponseWriter, r *http.Request) {
	var run struct {
		Input *struct{ Method, Query, Text string }
	}
	if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if run.Input == nil {
		_, _ = io.WriteString(w, `{"type": "auth", "message": "Please sign in.", "resume": {"show": true}}`+"\n")
		return
	}
	_, _ = fmt.Fprintf(w, `{"type": "status", "message": "Checking."}`+"\n"+`{"type": "complete", "message": %q}`+"\n",
		strings.Join([]string{run.Input.Method, run.Input.Query, run.Input.Text}, " "))
}

// approvers is a configuration with the agent approver of every kind.
func approvers(t *testing.T) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "agent.py")
	require.NoError(t, os.WriteFile(script, []byte(approverScript), 0o600))
	server := httptest.NewServer(http.HandlerFunc(approverHTTP))
	t.Cleanup(server.Close)
	return fmt.Sprintf(clustertest.Steady+`
  - {name: go, executor: {kind: go}, on_busy: reject}
  - {name: command, executor: {kind: command, command: {argv: [python3, %q]}}}
  - {name: http, executor: {kind: http, http: {url: %q}}}
`, script, server.URL)
}

// approver makes the options of a replica of the program approver.
func approver(t *testing.T, name string, db *clustertest.DB, config string, env ...string) clustertest.Options {
	t.Helper()
	return clustertest.Options{Name: name, DB: db.URL, Config: config, Env: env, Binary: clustertest.Program(t, "./integration/agents/approver")}
}

// post sends a request by a resume URL.
func post(t *testing.T, r *clustertest.Replica, token, body string) (status int, text string) {
	t.Helper()
	status, text, _ = r.In(t).Exchange(http.MethodPost, "/resume/"+token, []byte(body), "Content-Type", "text/plain")
	return status, text
}

// settled waits until a task of the agent in Go has ended.
func settled(r *clustertest.Replica, id string) *a2atest.Result {
	r.T.Helper()
	return r.Under("/agents/go").Settled(id)
}

// A client on a stream and one with a webhook see the task go on, and send nothing.
func TestListenersSeeResumes(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := approvers(t) + receivertest.Pushing(nil)
	both := clustertest.Together(t, approver(t, "a", db, config), approver(t, "b", db, config))
	a, b := both[0], both[1]
	for _, agent := range []string{"go", "command", "http"} {
		hook := receivertest.Start(t, 1)
		asked := a.Send(a2atest.V03, a2atest.Say("go").At(agent).Hooked(hook.URL, nil))
		require.Equal(t, "auth-required", asked.State(), agent)
		_, states := hook.Until("auth-required")
		require.NotContains(t, states, "completed")
		stream := b.Subscribe(a2atest.V10, a2atest.Say().To(asked.Task()).At(agent))
		require.Equal(t, "auth-required", a2atest.Plain(stream.Take(1)[0].State()))

		status, text := post(t, a, tokenOf(t, asked.Said())+"?code=1", "hush "+agent)
		require.Equal(t, http.StatusAccepted, status, text)
		var seen []string
		for _, e := range stream.Rest() {
			seen = append(seen, strings.TrimSpace(a2atest.Plain(e.State())+" "+e.Said()))
		}
		require.Equal(t, []string{"submitted", "working Checking.", "completed POST code=1 hush " + agent}, withoutBare(seen), agent)
		_, states = hook.Until("completed")
		require.Contains(t, states, "working", agent)
		status, _ = post(t, b, tokenOf(t, asked.Said()), "again")
		require.Equal(t, http.StatusGone, status)
		require.NotContains(t, a.Log()+b.Log(), tokenOf(t, asked.Said()))
		require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_history WHERE task_id = $1 AND role = 'user'", asked.Task()),
			"the client sent one message")
	}
	db.Sound()
}

// withoutBare removes the status with which the server says that a run has begun.
func withoutBare(seen []string) []string {
	return slices.DeleteFunc(seen, func(s string) bool { return s == "working" })
}

// A new first key leaves the URLs of the old one valid, and what was accepted under it readable, until it is removed.
func TestResumesOutliveAKeyRotation(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := approvers(t)
	oldKey, newKey := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("o"), 32)), base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("n"), 32))
	keys := func(all ...string) string { return "HOLDFAST_SECRET_KEYS=" + strings.Join(all, ",") }
	both := clustertest.Together(t, approver(t, "front", db, config, "HOLDFAST_ROLES=api", keys(oldKey)), approver(t, "worker", db, config, keys(oldKey)))
	front, worker := both[0], both[1]
	ask := func(r *clustertest.Replica) (id, token string) {
		t.Helper()
		asked := r.Send(a2atest.V03, a2atest.Say("go").At("go"))
		return asked.Task(), tokenOf(t, asked.Said())
	}
	queued, token := ask(front)
	parked, parkedToken := ask(front)
	_, forgotten := ask(front)
	worker.Kill()
	status, text := post(t, front, token, "under the old key")
	require.Equal(t, http.StatusAccepted, status, text)
	front.Kill()

	worker = clustertest.Start(t, approver(t, "rotated", db, config, keys(newKey, oldKey)))
	require.Equal(t, "POST  under the old key", settled(worker, queued).Said())
	status, text = post(t, worker, parkedToken, "signed by the old key")
	require.Equal(t, http.StatusAccepted, status, text)
	require.Equal(t, "POST  signed by the old key", settled(worker, parked).Said())
	fresh, freshToken := ask(worker)
	worker.Kill()

	// The server's own signing keys are sealed with the old key.
	rekeyed := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.URL, keys(newKey, oldKey)}, "reseal")
	require.Zero(t, rekeyed.Code, rekeyed.Err)
	worker = clustertest.Start(t, approver(t, "removed", db, config, keys(newKey)))
	status, _ = post(t, worker, forgotten, "too late")
	require.Equal(t, http.StatusNotFound, status)
	status, text = post(t, worker, freshToken, "signed by the new key")
	require.Equal(t, http.StatusAccepted, status, text)
	require.Equal(t, "POST  signed by the new key", settled(worker, fresh).Said())
	db.Sound()
}
