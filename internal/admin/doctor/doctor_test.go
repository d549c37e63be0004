package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// never is longer than any check takes that is not meant to hang.
const never = time.Hour

func TestMain(m *testing.M) {
	connectTimeout = never
	os.Exit(m.Run())
}

func configuration(t testing.TB, url string) *config.Config {
	t.Helper()
	cfg := storetest.Must(config.Load(config.Source{}))(t)
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
	o.Timeout, o.arrival = cmp.Or(o.Timeout, never), cmp.Or(o.arrival, never)
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
	conn := storetest.Must(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return func(sql string, args ...any) {
		t.Helper()
		storetest.Must(conn.Exec(context.WithoutCancel(t.Context()), sql, args...))(t, sql)
	}
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s := storetest.Must(store.Open(t.Context(), store.Options{URL: url, APIConns: 2}))(t)
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func register(t testing.TB, s *store.Store, ttl time.Duration) task.ID {
	t.Helper()
	id := store.NewID()
	require.NoError(t, s.Register(t.Context(), store.Process{ID: id, Name: "test/1", Version: "1", Roles: "api,worker,push", Agents: map[string]store.ServedAgent{"demo": {Tries: 3, Slots: 16}}}, ttl))
	return id
}

func create(t testing.TB, s *store.Store, agent string) task.ID {
	t.Helper()
	id := store.NewID()
	storetest.Must(s.Create(t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, ContextID: "c", Dialect: "0.3"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
	}))(t)
	return id
}

// hook sets a webhook with nothing to deliver.
func hook(t testing.TB, s *store.Store, token string) task.ID {
	t.Helper()
	id := create(t, s, "demo")
	require.NoError(t, s.SetPush(t.Context(), id, &task.PushConfig{ID: "c", URL: "https://hooks.example.com", Host: "hooks.example.com:443", Dialect: "1.0", Token: token}, 10))
	return id
}

func TestHealthyDatabase(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, nil)
	s := open(t, pg.URL)
	storetest.Must(s.EnsurePartitions(t.Context()))(t)
	register(t, s, time.Hour)
	create(t, s, "demo")
	r := examine(t, Options{Config: configuration(t, pg.URL), Sources: "a test"})
	if f := r["commit"][0]; f.Status == Warn {
		_, took, _ := strings.Cut(f.Detail, "a commit takes ")
		took, _, _ = strings.Cut(took, " ")
		require.Greater(t, storetest.Must(time.ParseDuration(took))(t, f), slowCommit)
		r["commit"] = nil // the disk is slow
	} else {
		r.is(t, "commit", OK, "fsync on")
	}
	r.only(t)
	r.is(t, "configuration", OK, "a test")
	r.is(t, "notify", OK, "arrives")
	r.is(t, "workers", OK, "1 processes are alive, 1 with the role worker")
	r.is(t, "agents", OK, "demo: 1 queued")
	r.is(t, "isolation", OK, "the database keeps callers apart, too")
	r.is(t, "webhooks", OK, "0 have something to deliver; 1 processes deliver")
	r.is(t, "webhook secrets", OK, "none yet")
	require.Len(t, r, 30)
}

// one is a finding of a check.
func one(check string, status Status, detail string) map[string]Finding {
	return map[string]Finding{check: {Status: status, Detail: detail}}
}

// world is a database before its fault.
type world struct {
	t *testing.T
	s *store.Store
}

func TestDatabaseFaults(t *testing.T) {
	t.Parallel()
	const cannot = "could not be checked"
	for name, c := range map[string]struct {
		begin func(w world)
		sql   string // after that
		url   string // is added to the URL of the database
		want  map[string]Finding
	}{
		"nothing but that it is fast and new": {}, // like the throwaway cluster
		"synchronous_commit is off":           {url: "&synchronous_commit=off", want: one("commit", Warn, "SYNCHRONOUS_COMMIT IS OFF")},
		"never migrated": {
			sql:  "DROP SCHEMA holdfast CASCADE",
			want: map[string]Finding{"schema": {Status: Warn, Detail: "not there yet"}, "role": {Status: OK, Detail: "may create the schema"}},
		},
		"an old schema": {
			sql:  "DELETE FROM holdfast.schema_steps WHERE version_id = (SELECT max(version_id) FROM holdfast.schema_steps)",
			want: one("schema", Fail, "but this program needs"),
		},
		"a schema from the future": {
			sql:  "INSERT INTO holdfast.schema_steps (version_id, is_applied) VALUES (99999, true)",
			want: one("schema", Warn, "a newer version migrated the database"),
		},
		"an unreleased schema": {sql: "ALTER TABLE holdfast.schema_steps RENAME TO schema_version", want: one("schema", Fail, "made by an unreleased version of Holdfast")},
		"a table that the checks need is missing": {
			sql: "DROP TABLE holdfast.workers CASCADE",
			want: map[string]Finding{
				"workers": {Status: Fail, Detail: cannot}, "runs": {Status: Fail, Detail: cannot}, "webhooks": {Status: Fail, Detail: cannot}, "agents": {Status: Fail, Detail: cannot},
			},
		},
		"a dead worker": {
			begin: func(w world) {
				create(w.t, w.s, "demo")
				won := storetest.Must(w.s.Claim(w.t.Context(), register(w.t, w.s, time.Hour), []store.Demand{{Agent: "demo", Slots: 1}}))(w.t)
				require.Len(w.t, won, 1)
			},
			sql: "UPDATE holdfast.workers SET lease_until = now() - interval '90s'",
			want: map[string]Finding{
				"workers": {Status: Warn, Detail: "1 processes do not renew their lease: test/1 (for 1m3"},
				"runs":    {Status: Warn, Detail: "1 tasks have a run on a dead process"},
			},
		},
		"a remote worker": {
			begin: func(w world) { create(w.t, w.s, "demo") },
			sql:   "UPDATE holdfast.task_queue SET worker_id = gen_random_uuid(), lease_until = now() + interval '30s'",
			want:  map[string]Finding{"runs": {Status: OK, Detail: "every run has a live worker"}, "workers": {Status: Warn, Detail: ""}},
		},
		"a remote worker that is gone": {
			begin: func(w world) { create(w.t, w.s, "demo") },
			sql:   "UPDATE holdfast.task_queue SET worker_id = gen_random_uuid(), lease_until = now() - interval '1s'",
			want:  map[string]Finding{"runs": {Status: Warn, Detail: "1 tasks have a run on a dead process"}, "workers": {Status: Warn, Detail: ""}},
		},
		"tasks without workers": {
			begin: func(w world) { create(w.t, w.s, "demo"); create(w.t, w.s, "forgotten") },
			sql:   "DELETE FROM holdfast.task_queue WHERE agent = 'demo'",
			want: map[string]Finding{
				"runs":   {Status: Fail, Detail: "1 tasks are submitted or working but not in the queue"},
				"agents": {Status: Warn, Detail: "forgotten: 1 queued, 0 running, the oldest due"},
			},
		},
		"a queue that does not move": {
			begin: func(w world) { register(w.t, w.s, time.Hour); create(w.t, w.s, "demo") },
			sql:   "UPDATE holdfast.task_queue SET available_at = now() - interval '1 hour'",
			want:  one("agents", Warn, "demo: 1 queued, 0 running, the oldest due for 1h0m"),
		},
		"an agent that is away": {
			begin: func(w world) { register(w.t, w.s, time.Hour); create(w.t, w.s, "demo") },
			sql: `UPDATE holdfast.task_queue SET available_at = now() - interval '1 hour';
				INSERT INTO holdfast.agent_outages (agent, error, worker_id) VALUES ('demo', 'connection refused', gen_random_uuid())`,
			want: one("agents", Warn, ": connection refused"),
		},
		"an agent without workers": {
			begin: func(w world) { register(w.t, w.s, time.Hour); create(w.t, w.s, "demo") },
			sql:   `UPDATE holdfast.workers SET agents = '{"demo": {"tries": 3}}'`,
			want:  one("agents", Warn, "; no worker: none of its workers is connected"),
		},
		"a partition for now": {
			sql: `DO $$ DECLARE t regclass; BEGIN
				FOR t IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'holdfast.push_attempts'::regclass LOOP EXECUTE 'DROP TABLE ' || t; END LOOP; END $$`,
			want: one("partitions", Warn, "is missing"),
		},
		"no process delivers": {
			begin: func(w world) {
				require.NoError(w.t, w.s.Register(w.t.Context(), store.Process{ID: store.NewID(), Name: "x", Version: "1", Roles: "api,worker"}, time.Hour))
			},
			want: one("webhooks", Warn, "no live process has the role push"),
		},
		"webhooks that wait": {
			begin: func(w world) { hook(w.t, w.s, "") },
			sql:   "UPDATE holdfast.push_cursors SET due_at = now() - interval '1 hour', due_since = now() - interval '1 hour'",
			want:  one("webhooks", Warn, "the longest overdue one has waited for 1h0m"),
		},
		"a receiver that is down": {
			begin: func(w world) { hook(w.t, w.s, "") },
			sql:   "UPDATE holdfast.push_cursors SET due_at = now() + interval '1 hour', attempts = 5, failing_since = now() - interval '20 minutes'",
			want:  one("webhooks", Warn, "1 to hooks.example.com:443 fail, the first for 20m"),
		},
		"a disabled webhook": {
			begin: func(w world) {
				storetest.Must(w.s.DisablePush(w.t.Context(), hook(w.t, w.s, ""), "c", "it was too loud"))(w.t)
			},
			want: one("webhooks", Warn, "1 are disabled"),
		},
		"no vacuum": {sql: "ALTER TABLE holdfast.task_queue SET (autovacuum_enabled = false)", want: one("vacuum", Warn, "autovacuum is off for task_queue")},
		"callers that the database does not keep apart": {
			sql:  "DO $$ BEGIN EXECUTE format('REVOKE SELECT ON holdfast.tasks FROM %I', holdfast.api_role()); END $$",
			want: one("isolation", Warn, "may not use the tables"),
		},
		"a connection limit": {sql: "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 12', current_database()); END $$", want: one("connections", Warn, "12 allowed")},
		"a role that may only read": {
			sql: "CREATE ROLE " + reader + "; GRANT USAGE, CREATE ON SCHEMA holdfast TO " + reader + "; GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO " + reader,
			url: "&role=" + reader, want: one("role", Fail, "may not read and write admin_jobs, admin_sessions, admin_views, agent_outages, api_keys"),
		},
		"a standby, or a read-only database": {url: "&default_transaction_read_only=on", want: one("database", Fail, "transactions are read-only by default")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.New(t).URL
			if c.begin != nil {
				c.begin(world{t, open(t, url)})
			}
			conn := storetest.Connect(t, url)
			storetest.Must(conn.PgConn().Exec(t.Context(), c.sql).ReadAll())(t)
			if strings.Contains(c.url, reader) {
				t.Cleanup(func() {
					storetest.Must(conn.PgConn().Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+reader+"; DROP ROLE "+reader).ReadAll())(t)
				})
			}
			r := examine(t, Options{Config: configuration(t, url+c.url)})
			for check, f := range c.want {
				r.is(t, check, f.Status, f.Detail)
			}
			if c.want["database"].Status == Fail {
				return
			}
			for check, findings := range r {
				_, wanted := c.want[check]
				for _, f := range findings {
					// The others are true of every throwaway database.
					if f.Status != OK && !wanted && !slices.Contains([]string{"commit", "partitions", "workers", "vacuum"}, check) {
						require.Fail(t, "another finding", "%s: %v", check, f)
					}
				}
			}
		})
	}
}

// A partition is half detached if somebody reads the table and does not end in time.
func TestHalfDetachedPartition(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	reads, detaches := connect(t, url), storetest.Connect(t, url)
	reads("BEGIN")
	reads("SELECT FROM holdfast.audit_log")
	var partition string
	require.NoError(t, detaches.QueryRow(t.Context(), "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'holdfast.audit_log'::regclass LIMIT 1").Scan(&partition))
	storetest.Must(detaches.Exec(t.Context(), "SET lock_timeout = '10ms'"))(t)
	_, err := detaches.Exec(t.Context(), "ALTER TABLE holdfast.audit_log DETACH PARTITION "+partition+" CONCURRENTLY")
	require.ErrorContains(t, err, "lock timeout")
	reads("ROLLBACK")
	examine(t, Options{Config: configuration(t, url)}).is(t, "partitions", Warn, "is half detached")
}

var reader = fmt.Sprintf("holdfast_doctor_reader_%d", time.Now().UnixNano())

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

// sealing opens stores of a database, and examines it, with secret keys that are each of one repeated byte.
type sealing struct {
	t   *testing.T
	url string
}

func (s sealing) keys(fill ...byte) (raw [][]byte, text []string) {
	for _, b := range fill {
		key := bytes.Repeat([]byte{b}, secrets.KeySize)
		raw, text = append(raw, key), append(text, base64.StdEncoding.EncodeToString(key))
	}
	return raw, text
}

func (s sealing) open(fill ...byte) *store.Store {
	s.t.Helper()
	raw, _ := s.keys(fill...)
	st := storetest.Must(store.Open(s.t.Context(), store.Options{URL: s.url, APIConns: 2, SecretKeys: raw}))(s.t)
	s.t.Cleanup(func() { st.Close(context.Background()) })
	return st
}

func (s sealing) found(fill ...byte) report {
	s.t.Helper()
	cfg := configuration(s.t, s.url)
	_, cfg.Push.SecretKeys = s.keys(fill...)
	r := examine(s.t, Options{Config: cfg})
	require.NotContains(s.t, fmt.Sprint(r), "sesame")
	require.NotContains(s.t, fmt.Sprint(r), fmt.Sprint(cfg.Push.SecretKeys))
	return r
}

// Secrets stay sealed with keys that the configuration no longer has.
func TestSecretsAndTheirKeys(t *testing.T) {
	t.Parallel()
	s := sealing{t, storetest.New(t).URL}
	s.found(1).is(t, "signing keys", OK, "none yet")
	hook(t, s.open(), "sesame")
	storetest.Must(s.open().AddSigningKey(t.Context(), store.SigningKey{ID: "a", Algorithm: "ES256", Private: []byte("\x30sesame")}, 0, 0))(t)
	r := s.found()
	r.is(t, "webhook secrets", Warn, "the key that seals the secrets of 1 webhooks is in the same database")
	r.is(t, "signing keys", Warn, "private keys in the database as they are: 1")
	r = s.found(1)
	r.is(t, "webhook secrets", Warn, "the secrets of 1 webhooks are still sealed with the key in the database")
	r.is(t, "signing keys", Warn, "1 private keys are not sealed yet")

	hook(t, s.open(1), "sesame")
	r = s.found(2, 1)
	r.is(t, "webhook secrets", Warn, "the secrets of 1 webhooks are still sealed with the key in the database")
	r.is(t, "webhook secrets", Warn, "the secrets of 1 webhooks are sealed with an older key")
	s.found(2).is(t, "webhook secrets", Fail, "no key of this configuration opens the secrets of 1 webhooks")

	storetest.Must(s.open(1).Reseal(t.Context()))(t)
	s.found(1).is(t, "signing keys", OK, "1, sealed with the first key")
	s.found(2, 1).is(t, "signing keys", Warn, "1 are sealed with an older key")
	s.found(2).is(t, "signing keys", Fail, "no key of this configuration opens 1 of them")
	storetest.Must(s.open(2, 1).Reseal(t.Context()))(t)
	s.found(2).is(t, "webhook secrets", OK, "those of 2 webhooks are sealed with the first key")
	s.found().is(t, "webhook secrets", Fail, "no key of this configuration opens the secrets of 2 webhooks")
}

func TestNotificationsDoNotArrive(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	url := db.URL
	p := pgproxytest.New(t, url)
	p.Deafen(true)
	cfg := configuration(t, url)
	cfg.ListenDatabaseURL = p.URL
	r := examine(t, Options{Config: cfg, arrival: 100 * time.Millisecond})
	r.is(t, "notify", Warn, "notifications do not arrive")
	r.is(t, "session", Warn, "enable_seqscan is on instead of off")

	connect(t, url)("ALTER DATABASE " + db.Name + " SET default_transaction_isolation = 'repeatable read'")
	r = examine(t, Options{Config: cfg, arrival: 100 * time.Millisecond})
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
	l := storetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
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
	waits, ended, look := connect(t, url), make(chan struct{}), storetest.Connect(t, url)
	go func() {
		defer close(ended)
		waits("SELECT FROM holdfast.task_queue")
	}()
	waittest.Eventually(t, "it waits", func() (err error) {
		var n int
		err = look.QueryRow(t.Context(), "SELECT 1 / count(*) FROM pg_locks WHERE relation = 'holdfast.task_queue'::regclass AND waitstart < clock_timestamp() - interval '1 s'").Scan(&n)
		return err
	})
	r = examine(t, Options{Config: configuration(t, url), within: func(check string) time.Duration {
		if slices.Contains([]string{"connections", "workers", "agents"}, check) { // they read the tables
			return 50 * time.Millisecond
		}
		return never
	}})
	late := 0
	for _, findings := range r {
		for _, f := range findings {
			if strings.Contains(f.Detail, "no answer within 50ms") {
				late++
			}
		}
	}
	require.Equal(t, 3, late, r)
	r.is(t, "transactions", Warn, "blocks 1 sessions (task_queue); its transaction is at least")
	lock("ROLLBACK")
	<-ended
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

func TestServersWithTLSAreNoStrangers(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"name":"shop"}`)) }))
	t.Cleanup(server.Close)
	serving := health.NewServer()
	serving.SetServingStatus("lf.a2a.v1.A2AService", grpc_health_v1.HealthCheckResponse_SERVING)
	l := storetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	over := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12})))
	grpc_health_v1.RegisterHealthServer(over, serving)
	go func() { _ = over.Serve(l) }()
	t.Cleanup(over.Stop)
	cfg := configuration(t, "postgres://u@127.0.0.1:1/x")
	cfg.Listen, cfg.GRPCListen, cfg.TLS.CertFile = server.Listener.Addr().String(), l.Addr().String(), "server.pem"
	r := examine(t, Options{Config: cfg})
	r.is(t, "listen", OK, "its agent is shop")
	r.is(t, "grpc_listen", OK, "serving")
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
	gone := "http://" + nettest.Reserve(t)
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
		return config.Agent{Name: name, Executor: config.Executor{Kind: config.ExecutorCommand, Command: config.CommandExecutor{Argv: []string{program, "sesame"}}}}
	}
	model := config.Agent{Name: "model", Executor: config.Executor{Kind: config.ExecutorOpenAI, OpenAI: config.OpenAIExecutor{
		BaseURL: agent.URL + "/sesame", APIKey: secrets.Text("sesame"), Tools: []config.ToolServer{
			{Name: "far", URL: gone + "/sesame"}, {Name: "near", Argv: []string{"sh", "sesame"}}, {Name: "typo", Argv: []string{"no-such-tools"}},
		},
	}}}
	cfg.Agents = append(cfg.Agents, model,
		executor("there", strings.Replace(agent.URL, "http://", "http://me:sesame@", 1)+"/run?key=sesame"),
		executor("gone", gone+"/run?key=sesame"), program("sh", "sh"), program("typo", "no-such-program"))
	r := examine(t, Options{Config: cfg, Strangers: []string{"HOLDFAST_DATABSE_URL"}})
	r.is(t, "configuration", Warn, "HOLDFAST_DATABSE_URL")
	r.is(t, "agent demo", OK, "built in")
	r.is(t, "agent there", OK, "answers")
	r.is(t, "agent gone", Fail, "does not answer")
	r.is(t, "agent sh", OK, "is installed")
	r.is(t, "agent model", OK, "openai: "+agent.URL+" answers")
	r.is(t, "agent model", Fail, "tools of far: "+gone+" does not answer")
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
	for status, want := range map[string]Status{"ok": OK, "degraded": Warn, "failed": Fail} {
		replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"status":%q}`, status) }))
		defer replica.Close()
		cfg := configuration(t, "postgres://127.0.0.1:1/x")
		cfg.AdminListen = strings.TrimPrefix(replica.URL, "http://")
		examine(t, Options{Config: cfg}).is(t, "admin_listen", want, "a server listens")
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	s := open(t, url)
	for _, k := range []store.APIKey{{Subject: "alice"}, {Subject: "alice"}, {Subject: "bob", Tenant: "acme"}, {Subject: "sso:carol"}} {
		k.ID, k.Hash = store.NewID().String(), []byte(strings.Repeat("x", 32))
		storetest.Must(s.AddAPIKey(t.Context(), &k, 0))(t)
	}
	cfg := configuration(t, url)
	look := func(schemes ...config.AuthScheme) report {
		cfg.Auth.Schemes = append([]config.AuthScheme{{Name: "keys", Kind: config.AuthAPIKey}}, schemes...)
		cfg.Agents[0].Auth.Schemes = []string{"keys"}
		return examine(t, Options{Config: cfg})
	}
	look().is(t, "subjects", OK, "3 of keys and users")
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("dave:x\n"), 0o600))
	users := config.AuthScheme{Name: "users", Kind: config.AuthBasic, Basic: config.BasicAuth{UsersFile: file}}
	look(users).is(t, "subjects", OK, "4 of keys and users")
	sso := config.AuthScheme{Name: "sso", Kind: config.AuthJWT}
	look(users, sso).is(t, "subjects", Warn, "3 subjects of keys or users, such as ")
	sso.JWT.SubjectPrefix = "sso:"
	look(users, sso).is(t, "subjects", Warn, "1 subjects of keys or users")
	sso.JWT.Tenant = "acme"
	look(users, sso).is(t, "subjects", OK, "4 of")
	sso.JWT = config.JWTAuth{TenantClaim: "org"}
	look(sso).is(t, "subjects", Warn, "3 subjects")
	cfg.Agents[0].Auth.Visibility = config.VisibleToTenant
	look().is(t, "subjects", Warn, "2 subjects of API keys have no tenant, but demo shows tasks to whole tenants")

	require.NoError(t, os.WriteFile(file, []byte("erin:x\nfrank:x:acme\n"), 0o600))
	sso.JWT = config.JWTAuth{}
	look(users, sso).is(t, "subjects", Warn, "3 subjects of keys or users, such as ")
	require.NoError(t, os.Remove(file))
	look(users).is(t, "subjects", Warn, "could not be read")
}

func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	s := open(t, url)
	create(t, s, "demo")
	register(t, s, time.Millisecond)
	conn := storetest.Must(pgx.Connect(t.Context(), url))(t)
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
