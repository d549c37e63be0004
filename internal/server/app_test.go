package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
)

// A card of another server has passed no check of the configuration.
func TestAdoptsWhatACardMayHave(t *testing.T) {
	t.Parallel()
	theirs, err := client.ReadCard([]byte(`{"name":"n","description":"d","version":"7","url":"https://h",
		"defaultInputModes":["text","text/plain","image/png","nonsense"],"defaultOutputModes":["nonsense"],
		"documentationUrl":"javascript:alert(1)","iconUrl":"https://h/i.png","provider":{"organization":"o","url":"data:text/html,x"},
		"capabilities":{"extensions":[{"uri":"`+dispatch.ResumeURI+`","required":true},{"uri":"https://x/e"},{"uri":"a, b"},{"uri":"https://x/e"}]},
		"skills":[{"id":"a","name":"A","inputModes":["text"]},{"id":""},{"id":"a","name":"again"}]}`), 50)
	require.NoError(t, err)
	c := config.DefaultCard()
	adopt(&c, theirs)
	require.Equal(t, "n", c.Name)
	require.Equal(t, "7", c.Version)
	require.Empty(t, c.DocumentationURL, "a script is no page")
	require.Equal(t, "https://h/i.png", c.IconURL)
	require.Equal(t, config.Provider{Organization: "o"}, c.Provider)
	require.Equal(t, []string{"text/plain", "image/png"}, c.DefaultInputModes)
	require.Equal(t, config.DefaultCard().DefaultOutputModes, c.DefaultOutputModes)
	require.Equal(t, []config.Skill{{ID: "a", Name: "A", InputModes: []string{"text/plain"}}}, c.Skills)
	require.Equal(t, []config.Extension{{URI: "https://x/e"}}, c.Extensions)

	mine := config.Card{Name: "mine", Description: "md", Version: "2", DefaultInputModes: []string{"a/b"}, Skills: []config.Skill{{ID: "m"}}}
	adopt(&mine, theirs)
	require.Equal(t, "mine", mine.Name)
	require.Equal(t, "2", mine.Version)
	require.Equal(t, []string{"a/b"}, mine.DefaultInputModes)
	require.Equal(t, []config.Skill{{ID: "m"}}, mine.Skills)
}

// Users without a tenant would share their tasks with all other callers without one.
func TestUsersFileRequiresTenants(t *testing.T) {
	t.Parallel()
	const hash = "$2a$12$WXUPqV8rXUIuJd5rvlN7hO0UPnm.LY3FIiNuRmbM6r5T8qk5tG1Ya"
	for visibility, users := range map[config.Visibility]string{
		config.VisibleToTenant: "alice:" + hash + ":acme\nbob:" + hash + "\n", config.VisibleToOwner: "bob:" + hash + "\n",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "users")
		require.NoError(t, os.WriteFile(file, []byte(users), 0o600))
		yaml := filepath.Join(dir, "holdfast.yaml")
		require.NoError(t, os.WriteFile(yaml, []byte("auth: {visibility: "+string(visibility)+", schemes: [{name: users, kind: basic, basic: {users_file: "+file+"}}]}"), 0o600))
		cfg, err := config.Load(config.Source{File: yaml})
		require.NoError(t, err)
		_, err = buildAuth(cfg, slog.New(slog.DiscardHandler))
		if visibility == config.VisibleToOwner {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, `user "bob" has no tenant, but agent demo shows tasks to whole tenants`)
		require.NoError(t, os.WriteFile(file, []byte("alice:"+hash+":acme\n"), 0o600))
		_, err = buildAuth(cfg, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
	}
}

// Cards tell what the operator says about a scheme. A scheme with a key set of its own has no metadata to link to.
func TestSchemesOnCards(t *testing.T) {
	t.Parallel()
	for want, s := range map[card.Security]config.AuthScheme{
		{Name: "keys", Kind: card.APIKey, Header: "X-API-Key", Description: "Ask us"}: {
			Name: "keys", Kind: config.AuthAPIKey, Description: "Ask us", APIKey: config.APIKeyAuth{Header: "X-API-Key"},
		},
		{Name: "sso", Kind: card.OpenIDConnect, MetadataURL: "https://id.example/.well-known/openid-configuration"}: {
			Name: "sso", Kind: config.AuthJWT, JWT: config.JWTAuth{Issuer: "https://id.example/"},
		},
		{Name: "sso", Kind: card.BearerJWT, Description: "Ours"}: {
			Name: "sso", Kind: config.AuthJWT, Description: "Ours", JWT: config.JWTAuth{Issuer: "https://id.example", JWKSURL: "https://id.example/keys"},
		},
		{Name: "certs", Kind: card.MutualTLS, Description: "Theirs"}: {Name: "certs", Kind: config.AuthMTLS, Description: "Theirs"},
	} {
		require.Equal(t, want, security(&s))
	}
}

func TestWhichRequestsHaveALine(t *testing.T) {
	t.Parallel()
	answers := []dispatch.Answer{
		{Operation: "send", Binding: "rest", Version: "v", Agent: "a", Outcome: "ok", Admitted: true, Tenant: "acme", Took: time.Second, TaskID: "t", ContextID: "c", TraceID: "x", RequestID: "r"},
		{Operation: "cancel", Outcome: "NOT_FOUND", Admitted: true},
		{Operation: "get", Outcome: "ok", Admitted: true},
		{Operation: "send", Outcome: "UNAUTHENTICATED"},
		{Operation: "none", Outcome: "refused"},
	}
	for which, want := range map[config.LogRequests]int{config.RequestsNone: 0, config.RequestsWrites: 2, config.RequestsAll: len(answers)} {
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, nil))
		for i := range answers {
			logRequest(log, which, &answers[i])
		}
		lines := bytes.Count(out.Bytes(), []byte("\n"))
		require.Equal(t, want, lines, which)
		if lines == 0 {
			continue
		}
		var first map[string]any
		require.NoError(t, json.NewDecoder(&out).Decode(&first))
		delete(first, "time")
		require.Equal(t, map[string]any{
			"level": "INFO", "msg": "request", "operation": "send", "binding": "rest", "version": "v", "agent": "a", "outcome": "ok", "took": 1e9,
			"task_id": "t", "context_id": "c", "tenant": "acme", "trace_id": "x", "request_id": "r",
		}, first)
	}
}

// The duties of retention come often enough for every retention that they serve, so that data stays only a fraction longer.
func TestRetentionDutiesComeInTime(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, 90 * 24 * time.Hour} {
		for name, set := range map[string]func(*config.Retention){
			"retention_tasks":   func(r *config.Retention) { r.Tasks = config.Keep(keep) },
			"keys":              func(r *config.Retention) { r.IdempotencyKeys = config.Keep(keep) },
			"delivery attempts": func(r *config.Retention) { r.DeliveryAttempts = config.Keep(keep) },
			"audit":             func(r *config.Retention) { r.Audit = config.Keep(keep) },
		} {
			cfg := &config.Config{}
			set(&cfg.Retention)
			want := name
			if name != "retention_tasks" {
				want = "retention_records"
			}
			every := dutyOf(t, cfg, want).Every
			require.LessOrEqual(t, every, max(10*time.Second, keep/16), "%s for %s", name, keep)
			require.LessOrEqual(t, every, 10*time.Minute, "%s for %s", name, keep)
		}
	}
	require.Equal(t, 10*time.Minute, dutyOf(t, &config.Config{}, "retention_records").Every)
}

func dutyOf(t *testing.T, cfg *config.Config, name string) upkeep.Duty {
	t.Helper()
	for _, d := range retentionDuties(&env{cfg: cfg}, nil) {
		if d.Name == name {
			return d
		}
	}
	require.FailNow(t, "no duty "+name)
	return upkeep.Duty{}
}

// notifySocket is the socket of a supervisor, which receives a datagram for each message.
func notifySocket(t *testing.T, name string) (*net.UnixConn, func() string) {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	return socket, func() string {
		buf := make([]byte, 4096)
		n, err := socket.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}
}

func TestWatchdogIsToldUntilStuck(t *testing.T) {
	t.Parallel()
	name := "@holdfast-test-" + strconv.Itoa(os.Getpid())
	_, received := notifySocket(t, name)
	env := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
	s, err := newSupervisor(func(v string) string { return env[v] })
	require.NoError(t, err)
	defer s.close()
	require.Equal(t, 30*time.Millisecond, s.watchdog)

	ctx, stop := context.WithCancel(t.Context())
	var stuck atomic.Bool
	ended, warned := make(chan error), make(chan string, 1000)
	go func() { ended <- s.watch(ctx, stuck.Load, func(msg string, _ ...any) { warned <- msg }) }()
	for range 3 {
		require.Equal(t, "WATCHDOG=1", received())
	}
	stuck.Store(true)
	require.Contains(t, <-warned, "stuck")
	// Earlier messages are still in the socket; then it is silent.
	<-warned
	require.NoError(t, s.tell("END"))
	for message := received(); message != "END"; message = received() {
		require.Equal(t, "WATCHDOG=1", message)
	}
	<-warned
	<-warned
	require.NoError(t, s.tell("END"))
	require.Equal(t, "END", received())
	stop()
	require.NoError(t, <-ended)
}

// Without systemd, or with a watchdog that means another process, nothing is told.
func TestNobodySupervises(t *testing.T) {
	t.Parallel()
	s, err := newSupervisor(func(string) string { return "" })
	require.NoError(t, err)
	require.NoError(t, s.tell("READY=1"))
	require.NoError(t, s.watch(t.Context(), nil, nil))
	s.close()

	socket, _ := notifySocket(t, filepath.Join(t.TempDir(), "notify"))
	env := map[string]string{"NOTIFY_SOCKET": socket.LocalAddr().String(), "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}
	s, err = newSupervisor(func(v string) string { return env[v] })
	require.NoError(t, err)
	defer s.close()
	require.Zero(t, s.watchdog)

	_, err = newSupervisor(func(string) string { return "/nowhere/notify" })
	require.ErrorContains(t, err, "NOTIFY_SOCKET")
}
