package identity

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// vault is an agent that serves clients that sent it a secret, at an address of its own.
type vault struct {
	URL string

	mu      sync.Mutex
	secret  string
	granted map[string]bool // tasks
	got     []byte          // all data from the server
}

const showIt = "Show at /grant that you may."

func newVault(t testing.TB, secret string) *vault {
	t.Helper()
	v := &vault{secret: secret, granted: map[string]bool{}}
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.URL = s.URL
	return v
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.URL.Path == "/grant" {
		if r.Header.Get("Authorization") != "Bearer "+v.secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		v.granted[r.URL.Query().Get("task")] = true
		return
	}
	raw, err := httputil.DumpRequest(r, true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v.got = append(v.got, raw...)
	var run struct{ Task struct{ ID string } }
	if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if v.granted[run.Task.ID] {
		_, _ = io.WriteString(w, `{"type":"text","text":"what is inside"}`+"\n")
		return
	}
	_, _ = fmt.Fprintf(w, `{"type":"auth","message":%q}`+"\n", showIt)
}

// grant sends the secret to the agent, and nothing to the server.
func (v *vault) grant(t testing.TB, taskID string) {
	t.Helper()
	r, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, v.URL+"/grant?task="+taskID, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+v.secret)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// An agent asks its client to authenticate in the middle of a task. Every version and binding shows that in its own
// terms, in streams and in webhooks. The client authenticates at the agent, and its next message continues the task,
// on another replica. No table keeps what the client showed to the server or to the agent.
func TestAuthRequired(t *testing.T) {
	t.Parallel()
	const upstream = "upstream-sesame-0123456789"
	i := issuertest.Start(t)
	agent := newVault(t, "grant-sesame-0123456789")
	db := clustertest.NewDB(t)
	password := "password-sesame-0123456789"
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost+6)
	require.NoError(t, err)
	users := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(users, append([]byte("bob:"), hash...), 0o600))
	config := clustertest.Replace(receivertest.Hooked(nil), "executor: {kind: demo}", fmt.Sprintf("executor: {kind: http, http: {url: %q}}", agent.URL+"/run")) + fmt.Sprintf(`
auth:
  schemes:
    - {name: keys, kind: api_key}
    - {name: users, kind: basic, basic: {users_file: %q}}
    - %s
`, users, i.Scheme("sso", ", subject_prefix: 'sso:'"))
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config, Env: i.Trust()})
	hook := receivertest.Start(t, 1)
	key := db.Keys(store.APIKey{Tenant: "t"}, "s")[0]
	basic := base64.StdEncoding.EncodeToString([]byte("bob:" + password))
	token := i.Token("carol")
	secrets := []string{agent.secret, upstream, key, strings.Split(key, "_")[2], basic, password, token}
	secrets = append(secrets, strings.Split(token, ".")[1:]...)

	credentials := [][]string{{"x-api-key", key}, {"authorization", "Basic " + basic}, {"authorization", "Bearer " + token}}
	for n, w := range a2atest.Sends {
		path, credential := fmt.Sprintf("/%d", n), credentials[n%len(credentials)]
		interrupted, completed := w.Worded("auth-required"), w.Worded("completed")
		first := a.Begin(w.Wire, w.Op, a2atest.Say("open").Hooked(hook.URL+path, nil).With(credential...))
		first.More("") // a stream ends here in every version: clients read it to its end
		require.Equal(t, interrupted, first.State(), "%s: %s", w, first.Body)
		require.Contains(t, first.Body, showIt, w)
		for _, reader := range a2atest.Wires {
			got := b.Finish(reader, a2atest.Get, a2atest.Say().To(first.Task).With(credential...))
			require.Equal(t, reader.Worded("auth-required"), got.State(), "%s, of %s: %s", reader, w, got.Body)
			require.Equal(t, reader.Version == "0.1", strings.Contains(got.Body, `"a2a_state":"auth-required"`), "%s, of %s", reader, w)
		}
		goOn := a2atest.Say("go on").To(first.Task).With("x-upstream-token", upstream).With(credential...)
		if !w.Op.Streams() {
			require.Equal(t, interrupted, b.Do(w, goOn).State(), "%s: a message alone does not authenticate", w)
		}
		agent.grant(t, first.Task)
		second := b.Do(w, goOn)
		require.Equal(t, completed, second.State(), "%s: %s", w, second.Body)
		require.Equal(t, first.Task, second.Task, w)
	}
	states := map[string][]string{}
	for ended := 0; ended < len(a2atest.Sends); {
		n := hook.Next("the webhooks of every task")
		state := n.State(t)
		states[n.Path] = append(states[n.Path], state)
		if state == "completed" {
			ended++
		}
		for _, secret := range secrets {
			require.NotContains(t, string(n.Body)+fmt.Sprint(n.Header), secret)
		}
	}
	for n, w := range a2atest.Sends {
		hooked := a2atest.Wire{Version: w.Version, Binding: a2atest.JSONRPC} // webhooks use the JSON of the version
		require.Contains(t, states[fmt.Sprintf("/%d", n)], a2atest.Plain(hooked.Worded("auth-required")), w)
	}

	for _, r := range []*clustertest.Replica{a, b} {
		for _, secret := range secrets {
			require.NotContains(t, r.Log(), secret, r.Name)
		}
	}
	agent.mu.Lock()
	defer agent.mu.Unlock()
	for _, secret := range secrets {
		require.NotContains(t, string(agent.got), secret, "the agent gets its secret at its own address")
		require.Empty(t, holding(db, secret))
	}
	require.Contains(t, string(agent.got), "go on")
	// The search finds text that is stored.
	require.Contains(t, holding(db, showIt), "holdfast.task_events")
	require.NotEmpty(t, holding(db, string(clustertest.One[[]byte](db, "SELECT key_hash FROM holdfast.api_keys LIMIT 1"))), "also in bytes")
}

// holding are the tables that contain a text in any column: plain, as bytes, or in base64.
func holding(l *clustertest.DB, what string) []string {
	l.T.Helper()
	forms := []string{hex.EncodeToString([]byte(what))}
	if !strings.ContainsFunc(what, func(r rune) bool { return r < ' ' || r > '~' }) {
		forms = append(forms, what)
	}
	for shift := range 3 {
		coded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + what))
		forms = append(forms, coded[4:len(coded)-4])
	}
	var out []string
	for _, table := range clustertest.Column[string](l, `SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
		WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')`) {
		if clustertest.One[bool](l, "SELECT EXISTS (SELECT 1 FROM "+table+" AS r, unnest($1::text[]) AS form WHERE strpos(r::text, form) > 0)", forms) {
			out = append(out, table)
		}
	}
	return out
}
