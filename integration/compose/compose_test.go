// Package compose runs docker-compose.yml with a Docker daemon: make compose-test. Where no registry is reached,
// deploy/test/base-images makes the images of others from the programs of the machine; images that it cannot make, those of Grafana
// and Jaeger, are left out.
package compose

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var (
	run   = flag.Bool("compose", false, "run docker-compose.yml with the Docker daemon (make compose-test)")
	build = flag.Bool("compose.build", true, "build the images of the repository first")
)

// root is the repository.
const root = "../.."

// version is what the image says of itself.
const version = "v0.0.0-compose-test"

// project is an installation: a copy of the files that docker-compose.yml needs, so that the secrets of this test are not those
// of the developer.
type project struct {
	t     *testing.T
	dir   string
	files []string
	// Ports that this machine forwards to those of the compose file.
	http, grpc, admin, tls, tlsGRPC, prometheus string
}

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{t: t, dir: t.TempDir(), files: []string{"docker-compose.yml", "ports.yml"}}
	copied := exec.CommandContext(t.Context(), "cp", "-r", "--parents", "docker-compose.yml", "deploy", "examples/python", p.dir)
	copied.Dir = root
	out, err := copied.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, "deploy/secrets")))
	for _, port := range []*string{&p.http, &p.grpc, &p.admin, &p.tls, &p.tlsGRPC, &p.prometheus} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		*port = l.Addr().String()
		require.NoError(t, l.Close())
	}
	p.write("ports.yml", fmt.Sprintf(`services:
  caddy: {ports: !override ["%s:443", "%s:8443"]}
  prometheus: {ports: !override ["%s:9090"]}
`, p.tls, p.tlsGRPC, p.prometheus))
	p.write(".env", fmt.Sprintf("HOLDFAST_PUBLISH_HTTP=%s\nHOLDFAST_PUBLISH_GRPC=%s\nHOLDFAST_PUBLISH_ADMIN=%s\n", p.http, p.grpc, p.admin))
	return p
}

func (p *project) in(t *testing.T) *project {
	t.Helper()
	of := *p
	of.t = t
	return &of
}

func (p *project) write(name, content string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644))
}

// command returns docker compose with arguments.
func (p *project) command(ctx context.Context, args ...string) *exec.Cmd {
	all := []string{"compose", "--project-name", "holdfast-compose-test"}
	for _, f := range p.files {
		all = append(all, "--file", f)
	}
	cmd := exec.CommandContext(ctx, "docker", append(all, args...)...)
	cmd.Dir = p.dir
	return cmd
}

// compose runs docker compose and returns its stdout.
func (p *project) compose(args ...string) string {
	p.t.Helper()
	return output(p.t, p.command(p.t.Context(), args...))
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, exec.CommandContext(t.Context(), "docker", args...))
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s\n%s", strings.Join(cmd.Args, " "), out, &errs)
	return strings.TrimSpace(string(out))
}

// containers returns the ids of the running containers of a service.
func (p *project) containers(service string) []string {
	p.t.Helper()
	return strings.Fields(p.compose("ps", "--quiet", service))
}

// healthy waits until a service has so many healthy containers.
func (p *project) healthy(service string, n int) {
	p.t.Helper()
	waittest.Eventually(p.t, fmt.Sprintf("%d of %s are healthy", n, service), func() error {
		states := p.compose("ps", "--format", "{{.Health}}", service)
		return waittest.Unless(strings.Count(states, "healthy") == n && !strings.Contains(states, "unhealthy"), "%s", states)
	})
}

// key makes an API key, and writes it to the secret of a service.
func (p *project) key(secret string, args ...string) string {
	p.t.Helper()
	made := p.compose(append([]string{"exec", "--no-TTY", "server", "/holdfast", "api-keys", "create"}, args...)...)
	require.NotEmpty(p.t, made)
	p.write("deploy/secrets/"+secret, made+"\n")
	return made
}

// client is a client of the balancer.
func (p *project) client() *a2atest.Peer {
	peer := a2atest.NewPeer(p.t, "the balancer")
	peer.URL, peer.GRPC = "http://"+p.http, p.grpc
	return &peer
}

// under sends tasks from eight callers without any retry while what happens, and returns their errors. Every acknowledged task completes.
func under(t *testing.T, c *a2atest.Peer, send func() (*a2atest.Result, error), what func()) (failed []error) {
	t.Helper()
	var tasks []string
	var mu sync.Mutex
	var callers sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := send()
				mu.Lock()
				if err != nil {
					failed = append(failed, err)
				} else {
					tasks = append(tasks, res.ID)
				}
				mu.Unlock()
			}
		})
	}
	more := func() {
		var before, now int
		waittest.Eventually(t, "tasks are acknowledged", func() error {
			mu.Lock()
			defer mu.Unlock()
			now = len(tasks)
			if before == 0 {
				before = now + 1
			}
			return waittest.Unless(now >= before+16, "%d", now)
		})
	}
	more()
	what()
	more()
	close(stop)
	callers.Wait()
	for _, id := range tasks {
		waittest.Eventually(t, "acknowledged task "+id+" is completed", func() error {
			res, err := c.Try("tasks/get", map[string]any{"id": id})
			if err != nil {
				return err
			}
			return waittest.Unless(res.Status.State == "completed", "%s", res.Status.State)
		})
	}
	t.Logf("%d sends, %d failed %v", len(tasks)+len(failed), len(failed), errors.Join(failed[:min(3, len(failed))]...))
	return failed
}

// answers waits until a task completes.
func answers(t *testing.T, c *a2atest.Peer) {
	t.Helper()
	waittest.Eventually(t, "a task completes", func() error {
		res, err := c.TrySend(a2atest.V03, a2atest.Say("echo:hello"))
		if err != nil {
			return err
		}
		return waittest.Unless(res.Status.State == "completed", "%s", res.Status.State)
	})
}

// short sends a short task.
func short(c *a2atest.Peer) func() (*a2atest.Result, error) {
	return func() (*a2atest.Result, error) {
		return c.TrySend(a2atest.V03, a2atest.Say("chunks=2 size=20 delay=20ms"))
	}
}

func TestCompose(t *testing.T) {
	if !*run {
		t.Skip("needs a Docker daemon with compose, and minutes: make compose-test")
	}
	images(t)
	p := newProject(t)
	t.Setenv("HOLDFAST_VERSION", version)
	output(t, exec.CommandContext(t.Context(), filepath.Join(p.dir, "deploy/secrets.sh")))
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := p.command(context.Background(), "--profile", "*", "logs", "--no-color", "--tail=60").CombinedOutput()
			t.Logf("%s", out)
		}
		out, err := p.command(context.Background(), "--profile", "*", "down", "--volumes", "--timeout=5").CombinedOutput()
		require.NoError(t, err, "%s", out)
	})

	p.compose("up", "--detach", "--no-build", "--quiet-pull")
	p.healthy("server", 2)
	c := p.client()
	answers(t, c)

	for _, step := range []struct {
		name string
		test func(*testing.T, *project, *a2atest.Peer)
	}{
		{"the image says its version", imageVersion},
		{"tasks, streams and gRPC pass the balancer", passBalancer},
		{"doctor finds nothing that fails", doctorInside},
		{"the servers' role owns nothing", ownsNothing},
		{"replicas are replaced, and no request is lost", rolls},
		{"no replica answers 503 with Retry-After", noReplica},
		{"operators reach the admin address with a key", operators},
		{"the examples", examples},
		{"Prometheus scrapes and has the alerts", observability},
		{"Caddy with TLS", caddy},
		{"PgBouncer", pooler},
		{"a stop is clean", stop},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(t, p.in(t), c.In(t)) }) {
			return
		}
	}
}

// images makes what a registry does not give here, and builds ours.
func images(t *testing.T) {
	t.Helper()
	builds := exec.CommandContext(t.Context(), "docker", "compose", "--profile", "examples", "build")
	builds.Dir = root
	builds.Env = append(os.Environ(), "HOLDFAST_VERSION="+version, "HOLDFAST_COMMIT=0123abc", "HOLDFAST_DATE=2026-01-02T03:04:05Z")
	if *build {
		output(t, builds)
	}
}

func imageVersion(t *testing.T, _ *project, _ *a2atest.Peer) {
	t.Helper()
	require.Contains(t, docker(t, "run", "--rm", "holdfast:dev", "version"), "holdfast "+version+" revision 0123abc of 2026-01-02T03:04:05Z go")
}

func passBalancer(t *testing.T, _ *project, c *a2atest.Peer) {
	t.Helper()
	for _, w := range []*a2atest.Wire{a2atest.V03, a2atest.V10, a2atest.REST10, a2atest.GRPC10} {
		res := c.Send(w, a2atest.Say("echo:hello"))
		require.Equal(t, "completed", a2atest.Plain(res.Status.State), w)
		firstChunk(c, c.Begin(w, a2atest.Stream, a2atest.Say(resting)))
	}
}

// resting lets the demo agent rest after its first chunk.
const resting = "chunks=2 size=10 delay=1h"

// firstChunk reads the stream of a resting agent: no proxy may collect the chunks.
func firstChunk(c *a2atest.Peer, r *a2atest.Reply) {
	task := r.Until("the first chunk", func(e *a2atest.Event) bool { return e.Artifact != nil }).Task()
	c.Cancel(task)
	r.Rest()
}

func doctorInside(t *testing.T, p *project, _ *a2atest.Peer) {
	t.Helper()
	var report struct {
		Status string
		Checks []struct{ Check, Status, Detail, Advice string }
	}
	require.NoError(t, json.Unmarshal([]byte(p.compose("exec", "--no-TTY", "server", "/holdfast", "doctor", "-o", "json")), &report))
	require.NotEqual(t, "fail", report.Status)
	for _, check := range report.Checks {
		// The installation is open on one machine, without TLS; the daemon gives the limit of files.
		if !slices.Contains([]string{"public url", "callers", "operators", "open files"}, check.Check) {
			require.Equal(t, "ok", check.Status, "%s: %s", check.Check, check.Detail)
		}
		if check.Check == "role" {
			require.Contains(t, check.Detail, "owns nothing")
		}
	}
}

// sql runs a statement in the container of PostgreSQL as its superuser, and returns what it prints.
func (p *project) sql(statement string) string {
	p.t.Helper()
	return p.compose("exec", "--no-TTY", "postgres", "psql", "--username=postgres", "--dbname=holdfast", "--quiet", "--tuples-only",
		"--no-align", "--set=ON_ERROR_STOP=1", "--command", statement)
}

// ownsNothing looks at the running installation: the role that the replicas log in with owns nothing in the cluster, may make
// nothing, and has the rights of no other role but that of callers' statements. They have no secret of another.
func ownsNothing(t *testing.T, p *project, _ *a2atest.Peer) {
	t.Helper()
	require.Equal(t, "holdfast", p.sql("SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = 'holdfast' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"))
	require.Equal(t, "0", p.sql("SELECT count(*) FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = 'holdfast'::regrole AND deptype = 'o'"))
	require.Equal(t, "f", p.sql("SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication FROM pg_roles WHERE rolname = 'holdfast'"))
	require.Empty(t, p.sql(`SELECT r.rolname FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
		WHERE m.member = 'holdfast'::regrole AND r.rolname NOT IN ('holdfast_api_holdfast', 'holdfast_reader')`))
	require.Equal(t, "f", p.sql("SELECT pg_has_role('holdfast', 'holdfast_owner', 'MEMBER')"))
	require.Equal(t, "f", p.sql("SELECT has_schema_privilege('holdfast', 'holdfast', 'CREATE') OR has_database_privilege('holdfast', 'holdfast', 'CREATE')"))
	require.Equal(t, "holdfast_owner", p.sql("SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"))
	require.Equal(t, "holdfast_owner|f", p.sql("SELECT datdba::regrole, (SELECT rolsuper FROM pg_roles WHERE rolname = 'holdfast_owner') FROM pg_database WHERE datname = 'holdfast'"))

	for relation, may := range map[string]bool{"v_tasks": true, "tasks": false} {
		err := p.command(t.Context(), "exec", "--no-TTY", "postgres", "psql", "--username=reader", "holdfast", "--command=TABLE holdfast."+relation).Run()
		require.Equal(t, may, err == nil, "people read the views: %v", err)
	}

	mounts := map[string]string{}
	for _, service := range []string{"server", "migrate"} {
		for _, id := range strings.Fields(p.compose("ps", "--all", "--quiet", service)) {
			mounts[service] += docker(t, "inspect", "--format={{range .Mounts}}{{.Destination}} {{end}}", id)
		}
	}
	require.NotContains(t, mounts["server"], "owner")
	require.Contains(t, mounts["migrate"], "owner_pgpass")
	require.NotContains(t, mounts["migrate"], "/pgpass")
}

// roll returns deploy/roll.sh.
func (p *project) roll() *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(p.dir, "deploy/roll.sh"))
	cmd.Env = append(os.Environ(), "COMPOSE_PROJECT_NAME=holdfast-compose-test", "COMPOSE_FILE="+strings.Join(p.files, ":"))
	return cmd
}

// rolls replaces the replicas. A fault before the first new one is healthy leaves the old ones.
func rolls(t *testing.T, p *project, c *a2atest.Peer) {
	t.Helper()
	old := p.containers("server")
	for file, breaks := range map[string]func(string) string{
		"deploy/secrets/owner_pgpass": func(string) string { return "*:*:*:*:wrong\n" },
		"deploy/config/holdfast.yaml": func(s string) string { return strings.Replace(s, "direct_replies:", "direct_reply:", 1) },
	} {
		raw, err := os.ReadFile(filepath.Join(p.dir, file))
		require.NoError(t, err)
		p.write(file, breaks(string(raw)))
		require.Empty(t, under(t, c, short(c), func() {
			out, err := p.roll().CombinedOutput()
			require.Error(t, err, "%s: %s", file, out)
		}))
		require.Equal(t, old, p.containers("server"))
		p.write(file, string(raw))
	}
	require.Empty(t, under(t, c, short(c), func() { output(t, p.roll()) }))
	p.healthy("server", 2)
	for _, id := range p.containers("server") {
		require.NotContains(t, old, id)
	}
}

func noReplica(t *testing.T, p *project, c *a2atest.Peer) {
	t.Helper()
	p.compose("stop", "server")
	resp, err := a2atest.Post(t.Context(), c.URL, a2atest.Request("tasks/get", map[string]any{"id": "x"}))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	p.compose("up", "--detach", "--no-build", "server")
	p.healthy("server", 2)
	answers(t, c)
}

// get requests a page of the admin address.
func (p *project) get(path, key string) int {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.admin+path, nil)
	require.NoError(p.t, err)
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

func operators(t *testing.T, p *project, _ *a2atest.Peer) {
	t.Helper()
	key := p.key("prometheus_key", "--subject", "prometheus", "--scope", "admin:metrics")
	require.Equal(t, http.StatusUnauthorized, p.get("/metrics", ""))
	require.Equal(t, http.StatusOK, p.get("/metrics", key))
	require.Equal(t, http.StatusForbidden, p.get("/admin/v1/tasks", key))
	require.Equal(t, http.StatusOK, p.get("/console/", ""))
}

func examples(t *testing.T, p *project, c *a2atest.Peer) {
	t.Helper()
	p.key("worker_key", "--subject", "worker", "--scope", "worker:shout")
	raw, err := os.ReadFile(filepath.Join(p.dir, "deploy/config/holdfast.yaml"))
	require.NoError(t, err)
	p.write("deploy/config/holdfast.yaml", regexp.MustCompile(`(?m)^  # (- |  )`).ReplaceAllString(string(raw), "  $1"))
	p.compose("--profile", "examples", "up", "--detach", "--no-build")
	p.compose("up", "--detach", "--no-build", "--no-deps", "--force-recreate", "server")
	p.healthy("server", 2)
	answers(t, c)
	style := a2atest.Say("hello world")
	style.Agent = "style"
	asked := c.Send(a2atest.V03, style)
	require.Equal(t, "input-required", asked.Status.State)
	answer := a2atest.Say("upper").To(asked.ID)
	answer.Agent = "style"
	res := c.Send(a2atest.V03, answer)
	require.Equal(t, "completed", res.Status.State)
	require.Equal(t, "HELLO WORLD ", a2atest.Text(res.Artifacts[0].Parts))
	shout := a2atest.Say("hello")
	shout.Agent = "shout"
	waittest.Eventually(t, "the worker answers", func() error {
		res, err := c.TrySend(a2atest.V03, shout)
		if err != nil {
			return err
		}
		return waittest.Unless(res.Status.State == "completed" && a2atest.Text(res.Artifacts[0].Parts) == "HELLO", "%+v", res)
	})
	p.compose("stop", "http-agent", "worker")
	p.write("deploy/config/holdfast.yaml", string(raw)) // doctor finds a fault in agents that are away
	for _, id := range strings.Fields(p.compose("ps", "--all", "--quiet", "worker")) {
		require.Equal(t, "0", docker(t, "inspect", "--format={{.State.ExitCode}}", id))
	}
}

func observability(t *testing.T, p *project, _ *a2atest.Peer) {
	t.Helper()
	p.compose("--profile", "observability", "up", "--detach", "--no-build", "--no-deps", "prometheus")
	var up struct {
		Data struct{ Result []struct{ Value []any } }
	}
	waittest.Eventually(t, "both replicas are scraped", func() error {
		if err := p.prometheusAPI("query?query=up{job=\"holdfast\"}", &up); err != nil {
			return err
		}
		n := 0
		for _, r := range up.Data.Result {
			if r.Value[1] == "1" {
				n++
			}
		}
		return waittest.Unless(n == 2, "%d", n)
	})
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health string }
			}
		}
	}
	require.NoError(t, p.prometheusAPI("rules", &rules))
	require.NotEmpty(t, rules.Data.Groups)
	require.Greater(t, len(rules.Data.Groups[0].Rules), 5)
	p.compose("stop", "prometheus")
}

func (p *project) prometheusAPI(path string, out any) error {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.prometheus+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

func caddy(t *testing.T, p *project, c *a2atest.Peer) {
	t.Helper()
	p.compose("--profile", "tls", "up", "--detach", "--no-build", "--no-deps", "caddy")
	roots := x509.NewCertPool()
	waittest.Eventually(t, "Caddy has an authority", func() error {
		ca, err := p.command(t.Context(), "exec", "--no-TTY", "caddy", "cat", "/data/caddy/pki/authorities/local/root.crt").Output()
		if err != nil {
			return err
		}
		return waittest.Unless(roots.AppendCertsFromPEM(ca), "%s", ca)
	})
	trust := &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	_, port, err := net.SplitHostPort(p.tls)
	require.NoError(t, err)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
	url := "https://localhost:" + port
	send := func() (*a2atest.Result, error) {
		resp, err := a2atest.PostWith(t.Context(), web, url, a2atest.V03.Request(a2atest.Send, a2atest.Say("echo:hello")))
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		a, err := a2atest.ReadAnswer(resp)
		if err != nil {
			return nil, err
		}
		return a.Result()
	}
	waittest.Eventually(t, "a task over TLS", func() error {
		_, err := send()
		return err
	})

	resp, err := a2atest.PostWith(t.Context(), web, url, a2atest.V03.Request(a2atest.Stream, a2atest.Say(resting)))
	require.NoError(t, err)
	defer resp.Body.Close()
	r := a2atest.NewStream(t, resp.Body)
	firstChunk(c, r)

	conn, err := grpc.NewClient(p.tlsGRPC, grpc.WithTransportCredentials(credentials.NewTLS(trust)))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health.Status)

	require.Empty(t, under(t, c, send, func() { output(t, p.roll()) }))
	p.compose("stop", "caddy")
}

func pooler(t *testing.T, p *project, c *a2atest.Peer) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dir, "deploy/config/holdfast.yaml"))
	require.NoError(t, err)
	p.write("deploy/config/holdfast.yaml", regexp.MustCompile(`(?m)^database_url:.*\n|^# (?P<rest>(listen_)?database_url: )`).ReplaceAllString(string(raw), "$rest"))
	p.compose("--profile", "pooler", "up", "--detach", "--no-build", "--no-deps", "pgbouncer")
	p.compose("up", "--detach", "--no-build", "--no-deps", "--force-recreate", "server")
	p.healthy("server", 2)
	answers(t, c)
	firstChunk(c, c.Begin(a2atest.V03, a2atest.Stream, a2atest.Say(resting)))
	address := docker(t, "inspect", "--format={{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", p.containers("pgbouncer")[0])
	through := p.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'holdfast' AND client_addr = '" + address + "'")
	require.NotEqual(t, "0", through, "the replicas use PgBouncer")
	doctorInside(t, p, c)
	under(t, c, short(c), func() {
		p.compose("restart", "pgbouncer")
		answers(t, c)
	})
}

func stop(t *testing.T, p *project, _ *a2atest.Peer) {
	t.Helper()
	p.compose("--profile", "*", "stop")
	for _, service := range []string{"server", "postgres"} {
		for _, id := range strings.Fields(p.compose("ps", "--all", "--quiet", service)) {
			require.Equal(t, "0", docker(t, "inspect", "--format={{.State.ExitCode}}", id), service)
		}
	}
}
