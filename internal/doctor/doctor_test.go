package doctor

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/seal"
	"github.com/holdfast-a2a/holdfast/internal/secret"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/partition"
	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// patience bounds every check; reaching it is a failure and never the normal case.
const patience = 60 * time.Second

func configuration(t testing.TB, url string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{})
	require.NoError(t, err)
	cfg.Listen, cfg.GRPCListen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Limits.MaxStreams = 100
	cfg.DatabaseURL = url
	return cfg
}

// report is the findings by check.
type report map[string][]Finding

func examine(t testing.TB, o Options) report {
	t.Helper()
	out := report{}
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	Examine(t.Context(), o, func(f Finding) {
		require.NotEmpty(t, f.Detail, f.Check)
		require.Equal(t, f.Status != OK, f.Advice != "" || strings.HasPrefix(f.Detail, "not checked"), "advice where it is needed: %v", f)
		out[f.Check] = append(out[f.Check], f)
	})
	return out
}

// is returns the only finding of a check with this status.
func (r report) is(t testing.TB, check string, status Status, says string) {
	t.Helper()
	for _, f := range r[check] {
		if f.Status == status && strings.Contains(f.Detail, says) {
			return
		}
	}
	require.Failf(t, "not found", "%s %s %q in %v", check, status, says, r[check])
}

// only returns the checks that are not ok.
func (r report) only(t testing.TB, checks ...string) {
	t.Helper()
	bad := map[string]bool{}
	for name, findings := range r {
		for _, f := range findings {
			if f.Status != OK {
				bad[name] = true
			}
		}
	}
	for _, c := range checks {
		require.True(t, bad[c], c)
		delete(bad, c)
	}
	require.Empty(t, bad, "%v", r)
}

func connect(t testing.TB, url string) func(sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(context.WithoutCancel(t.Context()), sql, args...)
		require.NoError(t, err, sql)
	}
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 2})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func register(t testing.TB, s *store.Store, ttl time.Duration) task.ID {
	t.Helper()
	id := store.NewID()
	require.NoError(t, s.Register(t.Context(), store.Process{ID: id, Name: "test/1", Version: "1", Roles: "api,worker,push"}, ttl))
	return id
}

func create(t testing.TB, s *store.Store, agent string) task.ID {
	t.Helper()
	id := store.NewID()
	_, err := s.Create(t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, ContextID: "c", Dialect: "0.3"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
	})
	require.NoError(t, err)
	return id
}

// hook sets a webhook with nothing to deliver.
func hook(t testing.TB, s *store.Store, token string) task.ID {
	t.Helper()
	id := create(t, s, "demo")
	require.NoError(t, s.SetPush(t.Context(), id, &task.PushConfig{ID: "c", URL: "https://hooks.example.com", Host: "hooks.example.com:443", Dialect: "1.0", Token: token}, 10))
	return id
}

// PostgreSQL 18.0 and 18.1 lose concurrent updates.
func TestServerThatLosesUpdates(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec := connect(t, db.URL)
	exec("CREATE SCHEMA forged")
	exec(`CREATE FUNCTION forged.current_setting(text) RETURNS text LANGUAGE sql AS
		$$SELECT CASE $1 WHEN 'server_version_num' THEN '180001' ELSE pg_catalog.current_setting($1) END$$`)
	exec("ALTER DATABASE " + db.Name + " SET search_path = forged, pg_catalog, public")
	r := examine(t, Options{Config: configuration(t, db.URL)})
	r.is(t, "database", Fail, "the database is PostgreSQL 18.1, which loses concurrent updates; use PostgreSQL 18.2 or later")
}

func TestHealthyDatabase(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, nil)
	s := open(t, pg.URL)
	_, err := s.EnsurePartitions(t.Context())
	require.NoError(t, err)
	register(t, s, time.Hour)
	create(t, s, "demo")
	r := examine(t, Options{Config: configuration(t, pg.URL), Sources: "a test"})
	if f := r["commit"][0]; f.Status == Warn {
		_, took, _ := strings.Cut(f.Detail, "a commit takes ")
		took, _, _ = strings.Cut(took, " ")
		d, err := time.ParseDuration(took)
		require.NoError(t, err, f)
		require.Greater(t, d, slowCommit)
		r["commit"] = nil // the disk is slow
	} else {
		r.is(t, "commit", OK, "fsync on")
	}
	r.only(t)
	r.is(t, "configuration", OK, "a test")
	r.is(t, "notify", OK, "arrives")
	r.is(t, "workers", OK, "1 processes are alive, 1 with the role worker")
	r.is(t, "queue", OK, "demo: 1 queued")
	r.is(t, "isolation", OK, "the database keeps callers apart, too")
	r.is(t, "webhooks", OK, "0, of which 0 have something to deliver; 1 processes deliver")
	r.is(t, "webhook secrets", OK, "none yet")
	r.is(t, "agents away", OK, "none")
	require.Len(t, r, 31)
}

func TestDatabaseFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, url string, do func(string, ...any))
		url   func(url string) string
		want  map[string]Finding
	}{
		"nothing but that it is fast and new": { // like the throwaway cluster
			want: map[string]Finding{},
		},
		"synchronous_commit is off": {
			url:  func(url string) string { return url + "&synchronous_commit=off" },
			want: map[string]Finding{"commit": {Status: Warn, Detail: "SYNCHRONOUS_COMMIT IS OFF"}},
		},
		"never migrated": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) { do("DROP SCHEMA holdfast CASCADE") },
			want:  map[string]Finding{"schema": {Status: Warn, Detail: "not there yet"}, "role": {Status: OK, Detail: "may create the schema"}},
		},
		"an old schema": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) {
				do("DELETE FROM holdfast.schema_version WHERE version_id = (SELECT max(version_id) FROM holdfast.schema_version)")
			},
			want: map[string]Finding{"schema": {Status: Fail, Detail: "but this program needs"}},
		},
		"a schema from the future": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) {
				do("INSERT INTO holdfast.schema_version (version_id, is_applied) VALUES (99999, true)")
			},
			want: map[string]Finding{"schema": {Status: Warn, Detail: "a newer version migrated the database"}},
		},
		"an unreleased schema": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) {
				do("ALTER TABLE holdfast.schema_version RENAME TO goose_db_version")
			},
			want: map[string]Finding{"schema": {Status: Fail, Detail: "made by an unreleased version of Holdfast"}},
		},
		"a table that the checks need is missing": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) { do("DROP TABLE holdfast.workers CASCADE") },
			want: map[string]Finding{
				"workers": {Status: Fail, Detail: "could not be checked"}, "runs": {Status: Fail, Detail: "could not be checked"},
				"webhooks": {Status: Fail, Detail: "could not be checked"}, "queue": {Status: OK, Detail: "empty"},
			},
		},
		"a dead worker": {
			spoil: func(t *testing.T, url string, do func(string, ...any)) {
				t.Helper()
				s := open(t, url)
				create(t, s, "demo")
				id := register(t, s, time.Hour)
				won, err := s.Claim(t.Context(), id, []store.Demand{{Agent: "demo", Slots: 1}})
				require.NoError(t, err)
				require.Len(t, won, 1)
				do("UPDATE holdfast.workers SET lease_until = now() - interval '90s' WHERE id = $1", id)
			},
			want: map[string]Finding{
				"workers": {Status: Warn, Detail: "1 processes do not renew their lease: test/1 (for 1m3"},
				"runs":    {Status: Warn, Detail: "1 tasks have a run on a dead process"},
			},
		},
		"tasks without workers": {
			spoil: func(t *testing.T, url string, do func(string, ...any)) {
				t.Helper()
				s := open(t, url)
				do("DELETE FROM holdfast.task_queue WHERE id = $1", create(t, s, "demo"))
				create(t, s, "forgotten")
			},
			want: map[string]Finding{
				"runs":  {Status: Fail, Detail: "1 tasks are submitted or working but not in the queue"},
				"queue": {Status: Warn, Detail: "forgotten: 1 queued, 0 running, the oldest due"},
			},
		},
		"a queue that does not move": {
			spoil: func(t *testing.T, url string, do func(string, ...any)) {
				t.Helper()
				create(t, open(t, url), "demo")
				do("UPDATE holdfast.task_queue SET available_at = now() - interval '1 hour'")
			},
			want: map[string]Finding{"queue": {Status: Warn, Detail: "demo: 1 queued, 0 running, the oldest due for 1h0m"}},
		},
		"a partition that is half detached": {
			spoil: func(t *testing.T, url string, _ func(string, ...any)) {
				t.Helper()
				month := partition.Month.Floor(time.Now()).Format("20060102")
				reader := connect(t, url)
				reader("BEGIN")
				reader("SELECT FROM holdfast.audit_log")
				conn, err := pgx.Connect(t.Context(), url)
				require.NoError(t, err)
				defer func() { _ = conn.Close(context.Background()) }()
				_, err = conn.Exec(t.Context(), "SET lock_timeout = '10ms'")
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), "ALTER TABLE holdfast.audit_log DETACH PARTITION holdfast.audit_"+month+" CONCURRENTLY")
				require.ErrorContains(t, err, "lock timeout")
				reader("ROLLBACK")
			},
			want: map[string]Finding{"partitions": {Status: Warn, Detail: "is half detached"}},
		},
		"a partition for now": {
			spoil: func(t *testing.T, url string, do func(string, ...any)) {
				t.Helper()
				all, err := partition.List(t.Context(), storetest.Connect(t, url), partition.Attempts)
				require.NoError(t, err)
				for _, p := range all {
					do("DROP TABLE holdfast." + p.Table)
				}
			},
			want: map[string]Finding{"partitions": {Status: Warn, Detail: "is missing"}},
		},
		"no process delivers": {
			spoil: func(t *testing.T, url string, _ func(string, ...any)) {
				t.Helper()
				require.NoError(t, open(t, url).Register(t.Context(), store.Process{ID: store.NewID(), Name: "x", Version: "1", Roles: "api,worker"}, time.Hour))
			},
			want: map[string]Finding{"webhooks": {Status: Warn, Detail: "none of 1 live processes has the role push"}},
		},
		"webhooks that wait": {
			spoil: func(t *testing.T, url string, do func(string, ...any)) {
				t.Helper()
				hook(t, open(t, url), "")
				do("UPDATE holdfast.push_cursors SET due_at = now() - interval '1 hour'")
			},
			want: map[string]Finding{"webhooks": {Status: Warn, Detail: "1 have waited too long for a replica, the first for 1h0m"}},
		},
		"a receiver that is down": {
			spoil: func(t *testing.T, url string, do func(string, ...any)) {
				t.Helper()
				hook(t, open(t, url), "")
				do("UPDATE holdfast.push_cursors SET due_at = now() + interval '1 hour', attempts = 5, failing_since = now() - interval '20 minutes'")
			},
			want: map[string]Finding{"webhooks": {Status: Warn, Detail: "1 have failed for longer than 10m0s, the first for 20m"}},
		},
		"a disabled webhook": {
			spoil: func(t *testing.T, url string, _ func(string, ...any)) {
				t.Helper()
				s := open(t, url)
				id := hook(t, s, "")
				_, err := s.DisablePush(t.Context(), id, "c", "it was too loud")
				require.NoError(t, err)
			},
			want: map[string]Finding{"webhooks": {Status: Warn, Detail: "1 are disabled, the last one hooks.example.com:443, it was too loud"}},
		},
		"secrets beside their key": {
			spoil: func(t *testing.T, url string, _ func(string, ...any)) {
				t.Helper()
				hook(t, open(t, url), "sesame")
			},
			want: map[string]Finding{"webhook secrets": {Status: Warn, Detail: "the key that seals the secrets of 1 webhooks is in the same database"}},
		},
		"no vacuum": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) {
				do("ALTER TABLE holdfast.task_queue SET (autovacuum_enabled = false)")
			},
			want: map[string]Finding{"vacuum": {Status: Warn, Detail: "autovacuum is off for task_queue"}},
		},
		"callers that the database does not keep apart": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) {
				do("DO $$ BEGIN EXECUTE format('REVOKE SELECT ON holdfast.tasks FROM %I', holdfast.api_role()); END $$")
			},
			want: map[string]Finding{"isolation": {Status: Warn, Detail: "may not use the tables"}},
		},
		"a connection limit": {
			spoil: func(_ *testing.T, _ string, do func(string, ...any)) {
				do("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 12', current_database()); END $$")
			},
			want: map[string]Finding{"connections": {Status: Warn, Detail: "12 allowed"}},
		},
		"a role that may only read": {
			spoil: func(t *testing.T, _ string, do func(string, ...any)) {
				t.Helper()
				do("CREATE ROLE " + reader)
				do("GRANT USAGE, CREATE ON SCHEMA holdfast TO " + reader)
				do("GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO " + reader)
				t.Cleanup(func() { do("DROP OWNED BY " + reader); do("DROP ROLE " + reader) })
			},
			url:  func(url string) string { return url + "&role=" + reader },
			want: map[string]Finding{"role": {Status: Fail, Detail: "may not read and write admin_jobs, admin_sessions, agent_outages, api_keys, audit_chains"}},
		},
		"a standby, or a read-only database": {
			url:  func(url string) string { return url + "&default_transaction_read_only=on" },
			want: map[string]Finding{"database": {Status: Fail, Detail: "transactions are read-only by default"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.New(t).URL
			do := connect(t, url)
			if c.spoil != nil {
				c.spoil(t, url, do)
			}
			if c.url != nil {
				url = c.url(url)
			}
			r := examine(t, Options{Config: configuration(t, url)})
			for check, f := range c.want {
				r.is(t, check, f.Status, f.Detail)
			}
			if c.want["database"].Status == Fail {
				return
			}
			// The other findings are true of every throwaway database.
			bad := []string{"commit"}
			for check := range c.want {
				bad = append(bad, check)
			}
			for check, findings := range r {
				for _, f := range findings {
					if f.Status != OK && check != "partitions" && check != "workers" && check != "vacuum" {
						require.Contains(t, bad, check, f)
					}
				}
			}
		})
	}
}

var reader = fmt.Sprintf("holdfast_doctor_reader_%d", time.Now().UnixNano())

// Secrets stay sealed with keys that the configuration no longer has.
// Owners of other databases in the cluster should not be able to connect to this one.
func TestOtherDatabasesOfCluster(t *testing.T) {
	t.Parallel()
	s := storetest.Server(t, map[string]string{"fsync": "off"})
	do := connect(t, s.URL)
	examined := func() report { return examine(t, Options{Config: configuration(t, s.URL)}) }
	examined().is(t, "role", OK, "owns the tables")
	do("CREATE ROLE staging LOGIN")
	do("CREATE DATABASE staging OWNER staging")
	examined().is(t, "role", Warn, "staging may connect to this database, because PUBLIC may")
	do("DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$")
	examined().is(t, "role", OK, "owns the tables")
}

func TestWebhookSecrets(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	keys := func(fill ...byte) (raw [][]byte, text []string) {
		for _, b := range fill {
			key := bytes.Repeat([]byte{b}, seal.KeySize)
			raw, text = append(raw, key), append(text, base64.StdEncoding.EncodeToString(key))
		}
		return raw, text
	}
	set := func(fill ...byte) *store.Store {
		raw, _ := keys(fill...)
		s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 2, SecretKeys: raw})
		require.NoError(t, err)
		t.Cleanup(func() { s.Close(context.Background()) })
		hook(t, s, "sesame")
		return s
	}
	found := func(fill ...byte) report {
		cfg := configuration(t, url)
		_, cfg.Push.SecretKeys = keys(fill...)
		r := examine(t, Options{Config: cfg})
		require.NotContains(t, fmt.Sprint(r), "sesame")
		require.NotContains(t, fmt.Sprint(r), fmt.Sprint(cfg.Push.SecretKeys))
		return r
	}
	set()
	found().is(t, "webhook secrets", Warn, "the key that seals the secrets of 1 webhooks is in the same database")
	found(1).is(t, "webhook secrets", Warn, "the secrets of 1 webhooks are still sealed with the key in the database")
	set(1)
	r := found(2, 1)
	r.is(t, "webhook secrets", Warn, "the secrets of 1 webhooks are still sealed with the key in the database")
	r.is(t, "webhook secrets", Warn, "the secrets of 1 webhooks are sealed with an older key")
	found(2).is(t, "webhook secrets", Fail, "no key of this configuration opens the secrets of 1 webhooks")
	_, err := set(2, 1).Reseal(t.Context())
	require.NoError(t, err)
	found(2).is(t, "webhook secrets", OK, "those of 3 webhooks are sealed with the first key")
	found().is(t, "webhook secrets", Fail, "no key of this configuration opens the secrets of 3 webhooks")
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	ring := func(fill ...byte) (raw [][]byte, text []string) {
		for _, b := range fill {
			key := bytes.Repeat([]byte{b}, seal.KeySize)
			raw, text = append(raw, key), append(text, base64.StdEncoding.EncodeToString(key))
		}
		return raw, text
	}
	open := func(fill ...byte) *store.Store {
		raw, _ := ring(fill...)
		s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 2, SecretKeys: raw})
		require.NoError(t, err)
		t.Cleanup(func() { s.Close(context.Background()) })
		return s
	}
	found := func(fill ...byte) report {
		cfg := configuration(t, url)
		_, cfg.Push.SecretKeys = ring(fill...)
		return examine(t, Options{Config: cfg})
	}
	found(1).is(t, "signing keys", OK, "none yet")
	_, err := open().AddSigningKey(t.Context(), store.SigningKey{ID: "a", Algorithm: "ES256", Private: []byte("\x30sesame")}, 0, 0)
	require.NoError(t, err)
	r := found()
	r.is(t, "signing keys", Warn, "1 private keys are in the database as they are")
	require.NotContains(t, fmt.Sprint(r), "sesame")
	found(1).is(t, "signing keys", Warn, "1 private keys are not sealed yet")
	_, err = open(1).Reseal(t.Context())
	require.NoError(t, err)
	found(1).is(t, "signing keys", OK, "1, sealed with the first key")
	found(2, 1).is(t, "signing keys", Warn, "1 are sealed with an older key")
	found(2).is(t, "signing keys", Fail, "no key of this configuration opens 1 of them")
}

func TestNotificationsDoNotArrive(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	url := db.URL
	p := pgproxytest.New(t, url)
	p.Deafen(true)
	cfg := configuration(t, url)
	cfg.ListenDatabaseURL = p.URL
	r := examine(t, Options{Config: cfg, Timeout: 20 * time.Second})
	r.is(t, "notify", Warn, "notifications do not arrive")
	r.is(t, "session", Warn, "enable_seqscan is on instead of off")

	connect(t, url)("ALTER DATABASE " + db.Name + " SET default_transaction_isolation = 'repeatable read'")
	r = examine(t, Options{Config: cfg, Timeout: 20 * time.Second})
	r.is(t, "session", Warn, "default_transaction_isolation is repeatable read instead of read committed")

	p.Deafen(false)
	examine(t, Options{Config: cfg}).is(t, "notify", OK, "arrives")
	cfg.ListenDatabaseURL = storetest.New(t).URL
	examine(t, Options{Config: cfg}).is(t, "notify", Fail, "lead to different databases")
	cfg.ListenDatabaseURL = "postgres://u:sesame@127.0.0.1:1/x"
	r = examine(t, Options{Config: cfg})
	r.is(t, "notify", Fail, "connection refused")
	require.NotContains(t, fmt.Sprint(r), "sesame")
}

// A server accepts connections and never answers.
func TestHangingDatabase(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	cfg := configuration(t, "postgres://u:sesame@"+l.Addr().String()+"/x?sslmode=disable")
	r := examine(t, Options{Config: cfg, Timeout: 200 * time.Millisecond})
	r.is(t, "database", Fail, "no answer within 200ms")
	require.NotContains(t, r, "commit")

	// If the database hangs later, doctor gives up after a few checks.
	url := storetest.New(t).URL
	lock := connect(t, url)
	lock("BEGIN")
	lock("LOCK TABLE holdfast.workers, holdfast.task_queue IN ACCESS EXCLUSIVE MODE")
	r = examine(t, Options{Config: configuration(t, url), Timeout: 5 * time.Second})
	late := 0
	for _, findings := range r {
		for _, f := range findings {
			if strings.Contains(f.Detail, "no answer within 5s") {
				late++
			}
		}
	}
	require.Equal(t, 3, late, r)
	require.Contains(t, fmt.Sprint(r), "not checked, like all checks after it")
}

func TestHTTPAgentsOfOtherKinds(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /.well-known/agent-card.json":
			_, _ = fmt.Fprintf(w, `{"name":"A","url":"http://0.0.0.0/a2a/"}`)
		case "GET /old/.well-known/agent.json":
			_, _ = fmt.Fprintf(w, `{"name":"B","url":"%s/old"}`, server.URL)
		case "GET /v1/models":
			_, _ = fmt.Fprint(w, `{"object":"list","data":[]}`)
		case "GET /asks/v1/models":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"error":{"message":"no key","type":"invalid_request_error","param":null,"code":null}}`)
		case "GET /run/models":
			_, _ = fmt.Fprint(w, `{"models":[]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	cfg := configuration(t, "postgres://u@127.0.0.1:1/x")
	wants := map[string]string{
		"/a2a": "speaks A2A", "/old/": "speaks A2A", "/v1": "speaks the API of OpenAI", "/v1/chat/completions": "speaks the API of OpenAI",
		"/asks/v1/responses": "speaks the API of OpenAI", "/run": "answers", "/": "answers",
	}
	for path := range wants {
		cfg.Agents = append(cfg.Agents, config.Agent{Name: path, Executor: config.Executor{
			Kind: config.ExecutorHTTP, HTTP: config.HTTPExecutor{URL: server.URL + path},
		}})
	}
	r := examine(t, Options{Config: cfg})
	for path, want := range wants {
		status := Warn
		if want == "answers" {
			status = OK
		}
		r.is(t, "agent "+path, status, want)
	}
}

func TestSurroundings(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			asked.Add(1)
		}
		if r.Method != http.MethodOptions && r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || r.URL.RawQuery != "" && r.Method == http.MethodGet {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
	}))
	t.Cleanup(agent.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	at := strings.TrimPrefix(taken.URL, "http://")

	cfg := configuration(t, "postgres://u:sesame@127.0.0.1:1/x")
	cfg.Listen, cfg.GRPCListen, cfg.AdminListen = at, at, at
	executor := func(name, url string) config.Agent {
		return config.Agent{Name: name, Executor: config.Executor{
			Kind: config.ExecutorHTTP, HTTP: config.HTTPExecutor{URL: url, Headers: map[string]string{"Authorization": "sesame"}},
		}}
	}
	program := func(name, program string) config.Agent {
		return config.Agent{Name: name, Executor: config.Executor{
			Kind: config.ExecutorCommand, Command: config.CommandExecutor{Argv: []string{program, "sesame"}},
		}}
	}
	model := config.Agent{Name: "model", Executor: config.Executor{Kind: config.ExecutorOpenAI, OpenAI: config.OpenAIExecutor{
		BaseURL: agent.URL + "/sesame", APIKey: secret.Text("sesame"), Tools: []config.ToolServer{
			{Name: "far", URL: gone.URL + "/sesame"}, {Name: "near", Argv: []string{"sh", "sesame"}}, {Name: "typo", Argv: []string{"no-such-tools"}},
		},
	}}}
	cfg.Agents = append(cfg.Agents, model,
		executor("there", strings.Replace(agent.URL, "http://", "http://me:sesame@", 1)+"/run?key=sesame"),
		executor("gone", gone.URL+"/run?key=sesame"), program("sh", "sh"), program("typo", "no-such-program"))
	r := examine(t, Options{Config: cfg, Strangers: []string{"HOLDFAST_DATABSE_URL"}})
	r.is(t, "configuration", Warn, "HOLDFAST_DATABSE_URL")
	r.is(t, "agent demo", OK, "built in")
	r.is(t, "agent there", OK, "answers")
	r.is(t, "agent gone", Fail, "does not answer")
	r.is(t, "agent sh", OK, "is installed")
	r.is(t, "agent model", OK, "openai: "+agent.URL+" answers")
	r.is(t, "agent model", Fail, "tools of far: "+gone.URL+" does not answer")
	r.is(t, "agent model", OK, "tools of near: sh is installed")
	r.is(t, "agent model", Fail, "no-such-tools")
	r.is(t, "agent typo", Fail, "no-such-program")
	r.is(t, "listen", Fail, "is taken")
	r.is(t, "grpc_listen", Fail, "is taken")
	r.is(t, "admin_listen", Fail, "is taken")
	r.is(t, "database", Fail, "is not reachable")
	require.NotContains(t, fmt.Sprint(r), "sesame", "output contains no secret")
	require.Equal(t, int64(2), asked.Load())

	for listen, c := range map[string]struct {
		public string
		want   Status
	}{
		"127.0.0.1:0": {"", OK}, ":0": {"", Warn}, "0.0.0.0:0": {"http://localhost:8080", Warn}, "[::]:0": {"https://agents.example.com", OK},
	} {
		cfg := configuration(t, "postgres://127.0.0.1:1/x")
		cfg.Listen, cfg.PublicURL = listen, c.public
		examine(t, Options{Config: cfg}).is(t, "public url", c.want, "the cards name")
		who := examine(t, Options{Config: cfg})
		if listen == "127.0.0.1:0" {
			who.is(t, "callers", OK, "only this machine")
			continue
		}
		who.is(t, "callers", Fail, "the server will not start")
		cfg.Auth.None = true
		examine(t, Options{Config: cfg}).is(t, "callers", Warn, "auth.none")
		cfg.Agents[0].Auth.Schemes = []string{"keys"}
		examine(t, Options{Config: cfg}).is(t, "callers", Warn, "without TLS")
		cfg.TLS.CertFile = "cert.pem"
		examine(t, Options{Config: cfg}).is(t, "callers", OK, "every agent requires a credential")
	}
}

func TestOperators(t *testing.T) {
	t.Parallel()
	for _, c := range map[string]struct {
		listen string
		admin  config.Admin
		want   Status
		says   string
	}{
		"local":            {"127.0.0.1:0", config.Admin{}, OK, "only this machine"},
		"open, and local":  {"127.0.0.1:0", config.Admin{Open: true}, OK, "only this machine"},
		"probes":           {":0", config.Admin{}, OK, "only the probes"},
		"open":             {":0", config.Admin{Open: true}, Warn, "admin.open"},
		"asks":             {":0", config.Admin{Schemes: []string{"keys"}, Scope: "x"}, Warn, "without TLS"},
		"asks, and is TLS": {":0", config.Admin{Schemes: []string{"keys"}, Scope: "x", TLS: true}, OK, "requires the scope x"},
	} {
		cfg := configuration(t, "postgres://127.0.0.1:1/x")
		cfg.AdminListen, cfg.Admin = c.listen, c.admin
		examine(t, Options{Config: cfg}).is(t, "operators", c.want, c.says)
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	s := open(t, url)
	for _, k := range []store.APIKey{{Subject: "alice"}, {Subject: "alice"}, {Subject: "bob", Tenant: "acme"}, {Subject: "sso:carol"}} {
		k.ID, k.Hash = store.NewID().String(), []byte(strings.Repeat("x", 32))
		_, err := s.AddAPIKey(t.Context(), &k, 0)
		require.NoError(t, err)
	}
	cfg := configuration(t, url)
	look := func(schemes ...config.AuthScheme) report {
		cfg.Auth.Schemes = append([]config.AuthScheme{{Name: "keys", Kind: config.AuthAPIKey}}, schemes...)
		cfg.Agents[0].Auth.Schemes = []string{"keys"}
		return examine(t, Options{Config: cfg})
	}
	look().is(t, "subjects", OK, "3 of keys and users")
	users := config.AuthScheme{Name: "users", Kind: config.AuthBasic, Basic: config.BasicAuth{Users: []config.BasicUser{{Name: "sso:dave"}}}}
	look(users).is(t, "subjects", OK, "4 of keys and users")
	sso := config.AuthScheme{Name: "sso", Kind: config.AuthJWT}
	look(users, sso).is(t, "subjects", Warn, "3 subjects of keys or users, such as ")
	sso.JWT.SubjectPrefix = "sso:"
	look(users, sso).is(t, "subjects", Warn, "2 subjects of keys or users")
	sso.JWT.Tenant = "acme"
	look(users, sso).is(t, "subjects", OK, "4 of")
	sso.JWT = config.JWTAuth{TenantClaim: "org"}
	look(sso).is(t, "subjects", Warn, "3 subjects")
	cfg.Agents[0].Auth.Visibility = config.VisibleToTenant
	look().is(t, "subjects", Warn, "2 subjects of API keys have no tenant, but demo shows tasks to whole tenants")
}

func TestSubjectsOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("alice:x\nbob:x:acme\n"), 0o600))
	cfg := configuration(t, "")
	cfg.Auth.Schemes = []config.AuthScheme{
		{Name: "users", Kind: config.AuthBasic, Basic: config.BasicAuth{UsersFile: file}}, {Name: "sso", Kind: config.AuthJWT},
	}
	d := &database{examination: &examination{Options: Options{Config: cfg}}} // used for the subjects of keys only
	found, err := d.subjects(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, Warn, found[0].Status)
	require.Contains(t, found[0].Detail, "1 subjects of keys or users, such as alice, may also come from the scheme sso")
	require.NoError(t, os.Remove(file))
	found, err = d.subjects(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].Detail, "could not be read")
}

func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	s := open(t, url)
	create(t, s, "demo")
	register(t, s, time.Millisecond)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	look := func() (all string) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT concat(
			(SELECT json_agg(t ORDER BY t.id) FROM holdfast.tasks t), (SELECT json_agg(q ORDER BY q.id) FROM holdfast.task_queue q),
			(SELECT json_agg(e ORDER BY e.task, e.seq) FROM holdfast.task_events e), (SELECT json_agg(w ORDER BY w.id) FROM holdfast.workers w),
			(SELECT json_agg(l) FROM holdfast.leases l), (SELECT array_agg(c.oid ORDER BY c.oid)::text FROM pg_class c WHERE relnamespace = 'holdfast'::regnamespace))`).
			Scan(&all))
		return all
	}
	before := look()
	examine(t, Options{Config: configuration(t, url)})
	require.Equal(t, before, look())
}
