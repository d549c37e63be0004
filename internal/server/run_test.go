package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func configuration(t *testing.T, url string, role config.Role) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{})
	require.NoError(t, err)
	cfg.DatabaseURL, cfg.Roles = url, []config.Role{role}
	cfg.Listen, cfg.GRPCListen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// At every start, the log warns an operator who has not configured a key.
func TestLogNamesSealingKey(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	for _, keys := range [][]string{nil, {base64.StdEncoding.EncodeToString(make([]byte, 32))}} {
		cfg := configuration(t, url, config.RolePush)
		cfg.Push.SecretKeys = keys
		ctx, stop := context.WithCancel(t.Context())
		said := &log{until: "server ready", then: stop}
		require.NoError(t, server.Run(ctx, cfg, slog.New(slog.NewJSONHandler(said, nil)), server.Options{}))
		require.Equal(t, len(keys) == 0, strings.Contains(said.String(), "set HOLDFAST_SECRET_KEYS"), said.String())
	}
}

// log calls then when a line contains until. The handler writes one line after another.
type log struct {
	bytes.Buffer
	until string
	then  func()
}

func (l *log) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.until)) {
		l.then()
	}
	return l.Buffer.Write(line)
}

// The order matters: docs/architecture.md, Stopping, has the reasons.
func TestStopFollowsStepsAndReleasesLeases(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	count := func(what string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+what).Scan(&n))
		return n
	}
	cfg := configuration(t, url, config.RoleAPI)
	cfg.Roles = []config.Role{config.RoleAPI, config.RoleWorker, config.RolePush}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var said bytes.Buffer
	go func() {
		ended <- server.Run(ctx, cfg, slog.New(slog.NewJSONHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})), server.Options{})
	}()
	waittest.Eventually(t, "the process has all duties", func() error {
		select {
		case err := <-ended:
			require.NoError(t, err, "it ended")
		default:
		}
		n := count("holdfast.v_workers WHERE duties = '{database_figures,erase_logs,expire_parked,partitions,push_figures,queue_figures,retention_records,retention_tasks}'")
		return waittest.Unless(n == 1, "not yet")
	})
	stop()
	require.NoError(t, <-ended)
	require.Zero(t, count("holdfast.leases"))
	require.Zero(t, count("holdfast.workers"))
	var steps []string
	for _, m := range regexp.MustCompile(`"step":"([^"]+)"`).FindAllStringSubmatch(said.String(), -1) {
		steps = append(steps, m[1])
	}
	require.Equal(t, []string{
		"end readiness", "wait for balancers", "stop claiming runs", "close public listeners", "wait for runs", "stop claiming webhooks", "end streams",
		"wait for requests", "wait for deliveries", "stop duties", "stop renewing the lease", "give up the lease",
		"stop background parts", "close admin server",
	}, steps)
}

// slow is an agent whose run ends when the test says so.
type slow struct{ begun, end chan struct{} }

func (s slow) Execute(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
	close(s.begun)
	<-s.end
	return out.Status(ctx, task.StateCompleted, nil)
}

// A server with other agents takes over: no request is refused, and a run that has begun ends at the server before.
func TestHangupChangesAgents(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	write := func(more string) {
		require.NoError(t, os.WriteFile(file, []byte("agents:\n  - {name: slow, default: true, executor: {kind: go}}\n"+more), 0o600))
	}
	write("")
	url := storetest.New(t).URL
	flags := map[string]string{"listen": nettest.Reserve(t), "grpc_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "database_url": url}
	source := config.Source{File: file, Flags: flags, Programs: []string{"slow"}}
	cfg, changes, err := source.Watch()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	up, hangups, ended := make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)
	agent := slow{make(chan struct{}), make(chan struct{})}
	said := &log{until: "server ready", then: sync.OnceFunc(func() { close(up) })}
	go func() {
		ended <- server.Run(ctx, cfg, slog.New(slog.NewJSONHandler(said, nil)), server.Options{
			Executors: map[string]executor.Executor{"slow": agent}, Hangups: hangups, Changes: changes,
		})
	}()
	<-up
	at := "http://" + flags["listen"]
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Post(at, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}}`))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		answer <- string(all)
	}()
	<-agent.begun

	card := func(name string) int {
		resp, err := http.Get(at + "/agents/" + name + "/.well-known/agent-card.json")
		require.NoError(t, err, "no request is refused")
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusNotFound, card("more"))
	write("  - {name: more, executor: {kind: demo}}\n")
	hangups <- struct{}{}
	waittest.Eventually(t, "the new agent is served", func() error { return waittest.Unless(card("more") == http.StatusOK, "not yet") })
	close(agent.end)
	require.Contains(t, <-answer, `"completed"`)

	write("  - {name: more, executor: {kind: demo}}\nlog: {level: warn}\n")
	hangups <- struct{}{}
	waittest.Eventually(t, "the log says what needs a restart", func() error { return waittest.Unless(len(hangups) == 0, "not heard") })
	require.Equal(t, http.StatusOK, card("more"))
	stop()
	require.NoError(t, <-ended)
	require.Contains(t, said.String(), `"keys":["log.level"]`)
	_, err = net.Dial("tcp", flags["listen"])
	require.Error(t, err, "the port is closed")
}

// A port in use is an error with its key, before a database is made.
func TestPortsComeBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, key := range []string{"listen", "grpc_listen", "admin_listen"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
			flags[key] = taken.Addr().String()
			cfg, err := config.Load(config.Source{Flags: flags})
			require.NoError(t, err)
			cfg.DataDir = t.TempDir()
			err = server.Run(t.Context(), cfg, slog.New(slog.DiscardHandler), server.Options{})
			require.ErrorContains(t, err, key+": "+taken.Addr().String()+" is in use by another process")
			require.ErrorContains(t, err, "set "+key+" to another address")
			made, err := os.ReadDir(cfg.DataDir)
			require.NoError(t, err)
			require.Empty(t, made)
		})
	}
}
