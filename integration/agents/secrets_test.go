package agents

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// tattling is an agent of any kind that repeats the credentials of each request in an error. The path chooses the error.
func tattling(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		user, password, _ := r.BasicAuth()
		said := fmt.Sprintf("not for %s %s, %s %s, %s, %s", r.Header.Get("Authorization"), r.Header.Get("X-Key"), user, password, r.URL.RawQuery, r.URL.Query().Get("key"))
		switch said = strings.TrimSpace(said); {
		case strings.Contains(r.URL.Path, "/type"):
			w.Header().Set("Content-Type", said)
			_, _ = io.WriteString(w, "x")
		case strings.HasSuffix(r.URL.Path, "/rpc"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":%q}}`, said)
		case strings.HasSuffix(r.URL.Path, "/broken"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"1","contextId":"c","status":{"state":%q}}}`, said)
		case strings.Contains(r.URL.Path, "/stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: {\"type\":\"error\",\"message\":%q,\"error\":{\"message\":%[1]q}}\n\n", said)
		case strings.Contains(r.URL.Path, "/500"):
			http.Error(w, said, http.StatusInternalServerError)
		case strings.Contains(r.URL.Path, "/503"):
			http.Error(w, said, http.StatusServiceUnavailable)
		default:
			http.Error(w, said, http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// Credentials of the configuration are in no log, answer, error or row, whatever agents say in errors.
func TestSecretsOfAgentsLeakNowhere(t *testing.T) {
	t.Parallel()
	const canary = "s3cret-canary"
	db, server := clustertest.NewDB(t), tattling(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(canary+"-of-a-file\n"), 0o600))
	const headers = `{Authorization: "Bearer ${CANARY}-token", X-Key: "${CANARY}-key"}`
	tells := map[string]bool{} // agents in whose errors something was removed
	config := clustertest.Steady
	add := func(name, executor string, removed bool) {
		tells[name] = removed
		config += "  - {name: " + name + ", executor: " + executor + ", limits: {max_attempts: 2, backoff: 10ms, unreachable_for: 1s}}\n"
	}
	add("command", `{kind: command, command: {argv: [sh, -c, "exit 3"], env: {KEY: "${CANARY}"}}}`, false)
	for _, path := range []string{"400", "500", "503", "type"} {
		add("http-"+path, fmt.Sprintf(`{kind: http, http: {url: "%s/%s?key=${CANARY}-query", headers: %s}}`, server.URL, path, headers), true)
	}
	add("http-user", fmt.Sprintf(`{kind: http, http: {url: "http://ada:${CANARY}-password@%s/400"}}`, server.Listener.Addr()), true)
	add("http-gone", `{kind: http, http: {url: "http://user:${CANARY}@127.0.0.1:1/?key=${CANARY}-query"}}`, false)
	for _, path := range []string{"400", "500", "503", "rpc", "broken"} {
		for name, auth := range map[string]string{
			"bearer": `{bearer: "${CANARY}-token"}`, "file": fmt.Sprintf(`{bearer_file: %q}`, file), "basic": `{username: ada, password: "${CANARY}-password"}`,
		} {
			add("a2a-"+path+"-"+name, fmt.Sprintf(`{kind: a2a, a2a: {url: "%s/%s?key=${CANARY}-query", version: "0.3", auth: %s, headers: {X-Key: "${CANARY}-key"}}}`,
				server.URL, path, auth), path != "503")
		}
	}
	for _, path := range []string{"400", "500", "rpc", "broken"} {
		add("a2a-"+path+"-forward", fmt.Sprintf(`{kind: a2a, a2a: {url: "%s/%s", version: "0.3", forward: {headers: [Authorization, X-Key]}}}`, server.URL, path), true)
	}
	add("a2a-card", fmt.Sprintf(`{kind: a2a, a2a: {card_url: "%s/card?key=${CANARY}-query", headers: %s}}`, server.URL, headers), true)
	add("a2a-gone", fmt.Sprintf(`{kind: a2a, a2a: {card_url: "http://127.0.0.1:1/card?key=${CANARY}-query", headers: %s}}`, headers), false)
	for _, path := range []string{"400", "500", "503", "type", "stream"} {
		for api, key := range map[string]string{"chat-completions": `api_key: "${CANARY}-token"`, "responses": fmt.Sprintf("api_key_file: %q", file)} {
			add("openai-"+path+"-"+api, fmt.Sprintf(`{kind: openai, openai: {api: %s, base_url: "%s/%s?key=${CANARY}-query", model: m, %s, headers: {X-Key: "${CANARY}-key"}}}`,
				api, server.URL, path, key), true)
		}
	}
	add("openai-tools", fmt.Sprintf(`{kind: openai, openai: {base_url: "%s/400", model: m, tools: [{name: t, url: "%s/400?key=${CANARY}-query", headers: %s}]}}`,
		server.URL, server.URL, headers), false)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config, Env: []string{"CANARY=" + canary}})

	tasks := map[string]string{}
	for name := range tells {
		hi := a2atest.Say("hi").At(name).Detached().With("Authorization", "Bearer "+canary+"-of-the-client", "X-Key", canary+"-of-the-client")
		tasks[name] = r.Send(a2atest.V03, hi).Task()
	}
	for name, removed := range tells {
		db.AwaitState(tasks[name], "failed")
		res := r.GetOver(a2atest.V03, a2atest.Say().To(tasks[name]).At(name))
		require.NotContains(t, res.Said(), canary, name)
		reason := clustertest.One[string](db, "SELECT string_agg(error, ' ') FROM holdfast.v_runs WHERE task = $1", res.Task())
		require.NotContains(t, reason, canary, name)
		if removed {
			require.Contains(t, reason, "[redacted]", name)
		}
		for _, path := range []string{"/agents/" + name + "/.well-known/agent-card.json", "/tasks/" + res.Task()} {
			_, body, _ := r.Exchange(http.MethodGet, path, nil)
			require.NotContains(t, body, canary, name+path)
		}
	}
	require.NotContains(t, r.Log(), canary)
	require.Contains(t, r.Log(), "[redacted]")
	forms := []string{canary, hex.EncodeToString([]byte(canary)), base64.StdEncoding.EncodeToString([]byte("ada:" + canary + "-password"))}
	require.NotContains(t, r.Log(), forms[2])
	for _, table := range clustertest.Column[string](db, "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'") {
		for _, form := range forms {
			require.Zero(t, clustertest.One[int64](db, "SELECT count(*) FROM "+table+" t WHERE strpos(t::text, $1) > 0", form), table)
		}
	}
}
