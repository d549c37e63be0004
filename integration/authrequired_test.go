package integration

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/metadata"
)

// vault is an agent that opens for those who have shown it a secret, at an address of its own.
type vault struct {
	url string

	mu      sync.Mutex
	secret  string
	granted map[string]bool // tasks
	got     []byte          // all that the server has sent
}

const showIt = "Show at /grant that you may."

func newVault(t testing.TB, secret string) *vault {
	t.Helper()
	v := &vault{secret: secret, granted: map[string]bool{}}
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.url = s.URL
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

// grant shows the agent the secret, and tells the server nothing.
func (v *vault) grant(t testing.TB, taskID string) {
	t.Helper()
	r, err := http.NewRequestWithContext(short(t, patience), http.MethodPost, v.url+"/grant?task="+taskID, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+v.secret)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// worded is a state as a version has it on a binding. 0.1 knows no authentication in a task.
func (w *way) worded(state string) string {
	switch {
	case w.version == "0.1" && state == "auth-required":
		return "input-required"
	case w.version == "1.0", w.binding != onJSONRPC:
		return "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(state, "-", "_"))
	}
	return state
}

// get is how the task reads in the way's words.
func (w *way) get(t testing.TB, r *replica, taskID string, header ...string) *reply {
	t.Helper()
	a := &reply{}
	switch w.binding {
	case onJSONRPC:
		method := map[bool]string{true: "GetTask", false: "tasks/get"}[w.version == "1.0"]
		got, err := ask(short(t, patience), r.url, request(method, object{"id": taskID}), append([]string{"A2A-Version", w.version}, header...)...)
		require.NoError(t, err)
		a.read(t, got.Body)
	case onREST:
		path := strings.TrimSuffix(strings.Split(w.path, "message:")[0], "/")
		req, err := http.NewRequestWithContext(short(t, patience), http.MethodGet, r.url+path+"/tasks/"+taskID, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("A2A-Version", w.version)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		a.read(t, b)
	case onGRPC:
		ctx := metadata.AppendToOutgoingContext(short(t, patience), append([]string{"a2a-version", w.version}, header...)...)
		if w.version == "1.0" {
			got, err := pb10.NewA2AServiceClient(r.connect(t)).GetTask(ctx, &pb10.GetTaskRequest{Id: taskID})
			require.NoError(t, err)
			a.states = []string{got.GetStatus().GetState().String()}
		} else {
			got, err := pb03.NewA2AServiceClient(r.connect(t)).GetTask(ctx, &pb03.GetTaskRequest{Name: "tasks/" + taskID})
			require.NoError(t, err)
			a.states = []string{got.GetStatus().GetState().String()}
		}
	}
	return a
}

// An agent asks its client to authenticate, in the middle of a task. Every version sees that in its own words, on every
// binding, in streams and in webhooks; the client does so where the agent says, and the task goes on with its next
// message, on another replica. What it has shown on the way, to us or to the agent, is kept by nobody.
func TestAuthRequired(t *testing.T) {
	t.Parallel()
	const upstream = "upstream-sesame-0123456789"
	i := startIssuer(t)
	agent := newVault(t, "grant-sesame-0123456789")
	db := newDB(t)
	password := "password-sesame-0123456789"
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost+6)
	require.NoError(t, err)
	config := replace(hooked(nil), "executor: {kind: demo}", fmt.Sprintf("executor: {kind: http, http: {url: %q}}", agent.url+"/run")) + fmt.Sprintf(`
auth:
  schemes:
    - {name: keys, kind: api_key}
    - {name: users, kind: basic, basic: {users: [{name: bob, password_hash: %q}]}}
    - %s
`, hash, i.scheme("sso", ", subject_prefix: 'sso:'"))
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config, Env: i.trust()})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config, Env: i.trust()})
	t.Cleanup(db.sound)
	hook := receive(t, 1)
	key := newAccounts(t, db.url, 1)[0].key
	basic := base64.StdEncoding.EncodeToString([]byte("bob:" + password))
	token := i.token("carol")
	secrets := []string{agent.secret, upstream, key, strings.Split(key, "_")[2], basic, password, token}
	secrets = append(secrets, strings.Split(token, ".")[1:]...)

	paths := map[string]*way{}
	for n, w := range ways {
		for name, credential := range map[string][]string{
			"key": {"x-api-key", key}, "password": {"authorization", "Basic " + basic}, "token": {"authorization", "Bearer " + token},
		} {
			path := fmt.Sprintf("/%d/%s", n, name)
			paths[path] = w
			interrupted, completed := w.worded("auth-required"), w.worded("completed")
			goesOn := w.streams && w.version == "1.0" // where other streams end
			untilInterrupted := interrupted
			if !goesOn {
				untilInterrupted = ""
			}
			first := w.begin(t, a, &utterance{texts: []string{"open"}, hook: hook.url + path, header: credential})
			first.more(untilInterrupted)
			require.Equal(t, interrupted, first.state(), "%s: %s", w.name, first.body)
			require.Contains(t, first.body, showIt, w.name)
			for _, reader := range ways {
				got := reader.get(t, b, first.task, credential...)
				require.Equal(t, reader.worded("auth-required"), got.state(), "%s, of %s: %s", reader.name, w.name, got.body)
				require.Equal(t, reader.version == "0.1", strings.Contains(got.body, `"a2a_state":"auth-required"`), "%s, of %s", reader.name, w.name)
			}
			goOn := &utterance{task: first.task, texts: []string{"go on"}, header: append([]string{"x-upstream-token", upstream}, credential...)}
			if !w.streams {
				require.Equal(t, interrupted, w.send(t, b, goOn).state(), "%s: saying so is not enough", w.name)
			}
			agent.grant(t, first.task)
			second := w.send(t, b, goOn)
			require.Equal(t, completed, second.state(), "%s: %s", w.name, second.body)
			require.Equal(t, first.task, second.task, w.name)
			if goesOn {
				first.more("")
				require.Equal(t, completed, first.state(), w.name)
			}
			for _, reader := range ways {
				require.Equal(t, reader.worded("completed"), reader.get(t, a, first.task, credential...).state(), "%s, of %s", reader.name, w.name)
			}
		}
	}
	states := map[string][]string{}
	for ended := 0; ended < len(paths); {
		n := hook.next("the webhooks of every task")
		state := n.state(t)
		states[n.Path] = append(states[n.Path], state)
		if state == "completed" {
			ended++
		}
		for _, secret := range secrets {
			require.NotContains(t, string(n.Body)+fmt.Sprint(n.Header), secret)
		}
	}
	for path, w := range paths {
		hooked := way{version: w.version, binding: onJSONRPC} // webhooks have the words of the version
		require.Contains(t, states[path], inOldWords(hooked.worded("auth-required")), w.name)
	}

	for _, r := range []*replica{a, b} {
		for _, secret := range secrets {
			require.NotContains(t, string(r.logs.all()), secret, r.name)
		}
	}
	agent.mu.Lock()
	defer agent.mu.Unlock()
	for _, secret := range secrets {
		require.NotContains(t, string(agent.got), secret, "the agent gets what is for it, where it has asked for that")
		require.Empty(t, db.holding(secret))
	}
	require.Contains(t, string(agent.got), "go on")
	// What there is, is found.
	require.Contains(t, db.holding(showIt), "holdfast.task_events")
	require.NotEmpty(t, db.holding(string(one[[]byte](db, "SELECT key_hash FROM holdfast.api_keys LIMIT 1"))), "in bytes, too")
}

// holding are the tables in which something stands, in any column: as it is, as bytes, or in base64.
func (l *ledger) holding(what string) []string {
	l.t.Helper()
	forms := []string{hex.EncodeToString([]byte(what))}
	if !strings.ContainsFunc(what, func(r rune) bool { return r < ' ' || r > '~' }) {
		forms = append(forms, what)
	}
	for shift := range 3 {
		coded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + what))
		forms = append(forms, coded[4:len(coded)-4])
	}
	var out []string
	for _, table := range column[string](l, `SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
		WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')`) {
		if one[bool](l, "SELECT EXISTS (SELECT 1 FROM "+table+" AS r, unnest($1::text[]) AS form WHERE strpos(r::text, form) > 0)", forms) {
			out = append(out, table)
		}
	}
	return out
}
