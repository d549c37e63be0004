package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// finished is what a verb left.
type finished struct {
	code     int
	out, err string
}

// command runs a verb to its end.
func command(t testing.TB, dir string, env []string, args ...string) finished {
	t.Helper()
	cmd, out, errs := verb(t, dir, env, args...)
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		require.NoError(t, err)
	}
	return finished{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func verb(t testing.TB, dir string, env []string, args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(short(t, 2*patience), binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, errs
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	return cmd, out, errs
}

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := cluster(t, db.url, "a")[0]
	env := []string{"HOLDFAST_URL=" + a.url, "HOLDFAST_DATABASE_URL=" + db.url, "HOLDFAST_ADMIN_LISTEN=" + hostOf(a.admin)}
	holdfast := func(args ...string) finished { return command(t, t.TempDir(), env, args...) }

	res := holdfast("send", "echo:hello there")
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, "completed")
	require.Contains(t, res.out, "hello there")

	res = holdfast("send", "ask:which city?", "-o", "json")
	require.Equal(t, 4, res.code, res.err)
	var asked result
	require.NoError(t, json.Unmarshal([]byte(res.out), &asked))
	require.Equal(t, "input-required", asked.state())
	res = holdfast("send", "--task", asked.ID, "Oslo")
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, "You answered: Oslo")

	require.Equal(t, 3, holdfast("send", "fail:no luck").code)
	require.Equal(t, 3, holdfast("stream", "reject:not that").code)
	require.Equal(t, 1, holdfast("send", "--task", "nobody", "x").code)
	require.Equal(t, 2, holdfast("send").code)
	require.Equal(t, 2, holdfast("sent", "x").code)
	res = holdfast("send", "http://127.0.0.1:1", "x")
	require.Equal(t, 1, res.code)
	require.Contains(t, res.err, "Is the server running?")

	res = holdfast("stream", "chunks=5 size=12", "-o", "json")
	require.Zero(t, res.code, res.err)
	require.Equal(t, 5, strings.Count(res.out, `"artifact-update"`))
	require.Equal(t, 1, strings.Count(res.out, `"final":true`))
	for line := range strings.Lines(res.out) {
		require.True(t, json.Valid([]byte(line)))
	}

	res = holdfast("card")
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, a.url)
	res = holdfast("tasks", "list", "--state", "completed", "-o", "json")
	require.Zero(t, res.code, res.err)
	var rows []struct{ ID, State string }
	require.NoError(t, json.Unmarshal([]byte(res.out), &rows))
	require.Len(t, rows, 3)
	require.Equal(t, 6, strings.Count(holdfast("tasks", "list").out, "\n"), "a heading and five tasks")
	res = holdfast("tasks", "get", asked.ID)
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, "which city?")
	require.Contains(t, res.out, "You answered: Oslo")
	res = holdfast("tasks", "events", asked.ID, "-o", "json")
	require.Zero(t, res.code, res.err)
	require.Equal(t, one[int](db, "SELECT last_seq FROM holdfast.tasks WHERE id = $1", asked.ID), strings.Count(res.out, "\n"))
	require.Equal(t, 1, holdfast("tasks", "get", "nobody").code)

	res = holdfast("migrate", "--status")
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, "00001")
	require.NotContains(t, res.out, "pending")
	require.Zero(t, holdfast("migrate").code)
	res = holdfast("ready")
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, "database")
	res = holdfast("version")
	require.Zero(t, res.code)
	require.Contains(t, res.out, "holdfast")
	a.kill()
	require.Equal(t, 1, holdfast("ready").code)
}

func TestMigrateIsAVerb(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.exec("DROP SCHEMA holdfast CASCADE")
	env := []string{"HOLDFAST_DATABASE_URL=" + db.url}
	res := command(t, t.TempDir(), env, "migrate", "--status")
	require.Zero(t, res.code, res.err)
	require.Contains(t, res.out, "pending")
	require.Zero(t, one[int](db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'holdfast'"), "to look changes nothing")
	res = command(t, t.TempDir(), env, "migrate")
	require.Zero(t, res.code, res.err)
	res = command(t, t.TempDir(), env, "migrate", "--status")
	require.NotContains(t, res.out, "pending")
}

// The server behind an address is killed in the middle of a stream, and another one takes the address over.
func TestTheCommandLineResumesAStream(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	front := newProxy(t, hostOf(replicas[0].url))
	cmd, out, errs := verb(t, t.TempDir(), nil, "stream", "http://"+front.addr(), "chunks=150 size=24 delay=20ms", "-o", "json")
	require.NoError(t, cmd.Start())
	eventually(t, "chunks flow", func() error {
		return unless(one[int](db, "SELECT count(*) FROM holdfast.task_events") > 20, "not yet")
	})
	front.lead(hostOf(replicas[1].url))
	replicas[0].kill()
	require.NoError(t, cmd.Wait(), errs)
	require.Contains(t, errs.String(), "resuming after event")
	var chunks []string
	for line := range strings.Lines(out.String()) {
		var r result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		if r.Artifact != nil {
			chunks = append(chunks, text(r.Artifact.Parts))
		}
	}
	indexed(t, chunks, 150)
	db.sound()

	// Where nobody takes over, the exit code says that the stream is not whole.
	cmd, out, errs = verb(t, t.TempDir(), nil, "stream", "http://"+front.addr(), "hold", "--attempts", "2")
	require.NoError(t, cmd.Start())
	eventually(t, "it runs", func() error {
		return unless(one[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2") == 1, "not yet")
	})
	interrupted, _, said := verb(t, t.TempDir(), nil, "stream", "http://"+front.addr(), "hold")
	require.NoError(t, interrupted.Start())
	eventually(t, "it runs too", func() error {
		return unless(one[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2") == 2, "not yet")
	})
	// Its first event may be on its way still, and then it cannot name the task; the code is the same.
	require.NoError(t, interrupted.Process.Signal(os.Interrupt))
	var ended *exec.ExitError
	require.ErrorAs(t, interrupted.Wait(), &ended, said)
	require.Equal(t, 130, ended.ExitCode(), said)

	replicas[1].kill()
	require.ErrorAs(t, cmd.Wait(), &ended)
	require.Equal(t, 1, ended.ExitCode())
	require.Contains(t, errs.String(), "could not be resumed")
	_ = out
}

// proxy is one address in front of servers that come and go.
type proxy struct {
	l  net.Listener
	mu sync.Mutex
	to string
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{l: l, to: to}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(conn)
		}
	}()
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// lead makes new connections go to another server.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
}

func (p *proxy) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
